"""Scans: the nodes of a table that satisfy a condition.

Invariant: a scan binds the same nodes whether Lance filters them or memory does. A version nobody
holds is asked through Lance, with the condition pushed down and only the columns the query looks
at; one that is asked again and again is held, and then a key is found by binary search and any
other condition by one pass over the columns it names.
"""

from bisect import bisect_left, bisect_right

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.exec.cache import Cache
from omnigraph.exec.columns import in_one
from omnigraph.exec.constants import CONSTANTS, Given, fit
from omnigraph.exec.context import Context, TraversalMode
from omnigraph.exec.held import Nodes
from omnigraph.exec.pairs import equality_of, paired
from omnigraph.exec.predicates import push_down
from omnigraph.exec.rows import Binding, Positions, Rows, as_numpy
from omnigraph.exec.source import Part
from omnigraph.plan import ir
from omnigraph.types import NUMERICS, Scalar

_PASSES = 1
"""A column is sorted once it was searched more often than this: a pass costs less than a sort."""


def scan(context: Context, op: ir.NodeScan, rows: Rows, then: ir.PatternOp | None = None) -> Rows:
    """Every row with every node of the table that satisfies the condition.

    `then` is the operator that follows: pairs that it would drop need not be made.
    """
    found = _looked_up(context, op) if _looks_up(context, op) else _held(context, op)
    if rows.length == 1 and not rows.bindings and not rows.slots:
        return Rows(len(found.at), {op.out: found}, {})
    equality = equality_of(op, then, rows)
    pairs = equality and paired(context, rows, op.out, found, equality)
    outer, inner = pairs or _all_pairs(context, rows, found)
    return rows.take(outer).bind(op.out, Binding(found.domain, inner))


def _all_pairs(context: Context, rows: Rows, found: Binding) -> tuple[np.ndarray, Positions]:
    context.watch.hold(rows.bytes_as(rows.length * len(found.at)))
    return np.repeat(np.arange(rows.length), len(found.at)), np.tile(found.at, rows.length)


def counted(context: Context, op: ir.NodeScan) -> int | None:
    """How many nodes a scan finds, when nothing has to be read to tell."""
    source = context.tables.source(op.table)
    if op.where is None:
        return source.pin.row_count
    pushed = push_down(op.where, context.evaluator.given, source.columns.name_of)
    if pushed.rest is not None or not _looks_up(context, op):
        return None
    return source.reader.count(pushed.filter)


def _looks_up(context: Context, op: ir.NodeScan) -> bool:
    if op.where is None or context.tables.holds_nodes(op.table):
        return context.mode is TraversalMode.INDEXED
    if context.mode is not TraversalMode.AUTO:
        return context.mode is TraversalMode.INDEXED
    return not context.tables.worth_holding(op.table)


def _looked_up(context: Context, op: ir.NodeScan) -> Binding:
    source = context.tables.source(op.table)
    pushed = push_down(op.where, context.evaluator.given, source.columns.name_of)
    wanted = (source.columns.name_of(c) for c in context.wanted.get(op.out, ()))
    names = list(dict.fromkeys(["id", *(name for name in wanted if name is not None)]))
    part = Part(source, source.reader.rows(names, filter=pushed.filter))
    found = Binding(part, np.arange(len(part)))
    return found if pushed.rest is None else _filtered(context, op.out, found, pushed.rest)


def _held(context: Context, op: ir.NodeScan) -> Binding:
    nodes = context.tables.nodes(op.table)
    if op.where is None:
        return Binding(nodes, nodes.present)
    parts = op.where.parts if isinstance(op.where, ir.And) else (op.where,)
    cache = context.tables.holdings.cache
    for part in parts:
        at = _pointed_at(nodes, cache, part, context.evaluator.given)
        if at is None:
            continue
        rest = tuple(other for other in parts if other is not part)
        found = Binding(nodes, at)
        return _filtered(context, op.out, found, ir.And(rest)) if rest else found
    return _filtered(context, op.out, Binding(nodes, nodes.present), op.where)


def _filtered(context: Context, var: ir.Var, found: Binding, where: ir.Expr) -> Binding:
    """Cheap conditions first: a text search looks only at what they leave."""
    parts = where.parts if isinstance(where, ir.And) else (where,)
    for part in sorted(parts, key=_has_text_match):
        rows = Rows(len(found.at), {var: found}, {})
        keep = context.evaluator.keep(part, rows)
        if not keep.all():
            found = found.take(np.flatnonzero(keep))
    return found


def _has_text_match(expr: ir.Expr) -> bool:
    match expr:
        case ir.TextMatch():
            return True
        case ir.And(parts=parts) | ir.Or(parts=parts):
            return any(map(_has_text_match, parts))
        case ir.Not(part=part):
            return _has_text_match(part)
        case _:
            return False


# ---- one value of one column


def _pointed_at(nodes: Nodes, cache: Cache, part: ir.Expr, given: Given) -> Positions | None:
    """The nodes an equality names, if it is one and a sorted column can tell."""
    if not isinstance(part, ir.Compare) or part.op is not ir.CompareOp.EQ:
        return None
    subject, value = part.left, part.right
    if isinstance(subject, CONSTANTS):
        subject, value = value, subject
    if not isinstance(value, CONSTANTS):
        return None
    wanted = given.of(value)
    if wanted is None:
        return np.empty(0, np.int64)
    match subject:
        case ir.EntityId():
            return _present(nodes, _one(nodes.ids.find(str(wanted))))
        case ir.Column():
            return _by_column(nodes, cache, subject, wanted)
        case _:
            return None


def _one(position: int) -> Positions:
    return np.array([position] if position >= 0 else [], np.int64)


def _present(nodes: Nodes, at: Positions) -> Positions:
    if nodes.present is nodes.everything or not len(at):
        return at
    places = np.minimum(np.searchsorted(nodes.present, at), len(nodes.present) - 1)
    return at[nodes.present[places] == at] if len(nodes.present) else at[:0]


def _by_column(
    nodes: Nodes, cache: Cache, column: ir.Column, wanted: ir.Constant
) -> Positions | None:
    name = nodes.source.columns.name_of(column)
    if name is None:
        return np.empty(0, np.int64)
    if cache.use((nodes.source.key, "sorted", name, "uses")) <= _PASSES:
        return None
    if column.type.is_text:
        found = _sorted_texts(nodes, cache, name).equal_to(str(wanted))
    elif column.type.scalar in NUMERICS - {Scalar.F32, Scalar.F64}:
        assert isinstance(wanted, int | float)
        fitted = fit(ir.CompareOp.EQ, wanted, column.type.scalar)
        if isinstance(fitted, bool):
            return np.empty(0, np.int64)
        found = _sorted_numbers(nodes, cache, name).equal_to(int(fitted[1]))
    else:
        return None
    return _present(nodes, found)


class _SortedTexts:
    """Positions in the order of a text column, nulls left out."""

    def __init__(self, values: pa.Array, order: np.ndarray) -> None:
        self._values = values
        self._order = order

    def __len__(self) -> int:
        return len(self._order)

    def __getitem__(self, place: int) -> str:
        return str(self._values[int(self._order[place])].as_py())

    def equal_to(self, wanted: str) -> Positions:
        first = bisect_left(self, wanted)
        last = first
        if first < len(self) and self[first] == wanted:
            last = first + 1
            if last < len(self) and self[last] == wanted:
                last = bisect_right(self, wanted, lo=first)
        return self._order[first:last]


class _SortedNumbers:
    """Positions in the order of a column of integers, nulls left out."""

    def __init__(self, numbers: np.ndarray, order: np.ndarray) -> None:
        self._numbers = numbers
        self._order = order

    def equal_to(self, wanted: int) -> Positions:
        exact = self._numbers.dtype.type(wanted)
        first = np.searchsorted(self._numbers, exact, "left")
        last = np.searchsorted(self._numbers, exact, "right")
        return self._order[first:last]


def _order_of(values: pa.Array) -> np.ndarray:
    order = as_numpy(pc.array_sort_indices(values, null_placement="at_end"))
    return order[: len(values) - values.null_count].astype(np.int64)


def _sorted_texts(nodes: Nodes, cache: Cache, name: str) -> _SortedTexts:
    def make() -> tuple[_SortedTexts, int]:
        values = nodes.column(name)
        if values.equals(nodes.ids.strings):  # a key of one string is the id
            return _SortedTexts(nodes.ids.strings, nodes.ids.order), 0
        order = _order_of(values)
        return _SortedTexts(values, order), int(values.nbytes + order.nbytes)

    return cache.made((nodes.source.key, "sorted", name), make)


def _sorted_numbers(nodes: Nodes, cache: Cache, name: str) -> _SortedNumbers:
    def make() -> tuple[_SortedNumbers, int]:
        values = nodes.column(name)
        order = _order_of(values)
        numbers = in_one(pa.chunked_array([values.take(pa.array(order))])).to_numpy()
        return _SortedNumbers(numbers, order), int(numbers.nbytes + order.nbytes)

    return cache.made((nodes.source.key, "sorted", name), make)
