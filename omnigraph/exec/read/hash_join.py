"""Hash join of a scan with the rows so far, on two values that the next filter equates.

Invariant: a pair that is left out of the cross join has unequal or null values on the two sides, so
the filter that follows, which is applied in full, would have dropped it.
"""

import numpy as np
import pyarrow as pa

from omnigraph.exec.memory.adjacency import NeighbourLists
from omnigraph.exec.read.context import Context
from omnigraph.exec.values.rows import BoundEntities, Positions, Rows, as_numpy
from omnigraph.light_dataclass import dataclass
from omnigraph.plan import ir

Side = ir.Column | ir.EntityId


@dataclass(frozen=True, slots=True)
class Equality:
    """A value of the rows so far that must equal one of the scanned node."""

    outer: Side
    inner: Side


def equality_of(op: ir.NodeScan, then: ir.PatternOp | None, rows: Rows) -> Equality | None:
    """The first equality, in the filter after a scan, of a scanned value with one of the rows."""
    if not isinstance(then, ir.Filter):
        return None
    parts = then.where.parts if isinstance(then.where, ir.And) else (then.where,)
    for part in parts:
        if not isinstance(part, ir.Compare) or part.op is not ir.CompareOp.EQ:
            continue
        for inner, outer in ((part.left, part.right), (part.right, part.left)):
            if not isinstance(inner, Side) or not isinstance(outer, Side):
                continue
            if inner.var == op.out and outer.var in rows.bindings:
                return Equality(outer, inner)
    return None


def paired(
    context: Context, rows: Rows, var: ir.Var, nodes: BoundEntities, equality: Equality
) -> tuple[np.ndarray, Positions] | None:
    """The pairs of rows and scanned nodes; None when their types cannot be hashed alike."""
    evaluator = context.evaluator
    outer = evaluator.values(equality.outer, rows)
    inner = evaluator.values(equality.inner, Rows(len(nodes.positions), {var: nodes}, {}))
    if outer.type != inner.type or pa.types.is_floating(outer.type):
        return None
    codes = pa.concat_arrays([outer, inner]).dictionary_encode().indices
    numbers = as_numpy(codes.fill_null(-1)).astype(np.int64)
    left, right = numbers[: rows.length], numbers[rows.length :]
    valued = np.flatnonzero(left >= 0)
    order = np.argsort(right, kind="stable")
    starts = np.searchsorted(right[order], np.arange(numbers.max(initial=-1) + 2))
    buckets = NeighbourLists(starts, order)
    context.watch.hold(rows.bytes_as(int(buckets.degrees(left[valued]).sum())))
    owners, indexes = buckets.spread(left[valued])
    return valued[owners], nodes.positions[order[indexes]]
