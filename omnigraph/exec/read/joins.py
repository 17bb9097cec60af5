"""Correlated subpatterns: semi join, anti join, left join, and counts of solutions.

Invariant: an inner pattern continues from the rows themselves, each marked with its number, so it
sees the row's variables and its solutions are told apart by row. Variables it binds are dropped,
except by `LeftJoin`, which keeps them.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from omnigraph.exec.read.context import Context
from omnigraph.exec.read.expand import degrees, is_single_step
from omnigraph.exec.values.rows import NULL, BoundEntities, Rows
from omnigraph.plan import ir

Solve = Callable[[tuple[ir.PatternOp, ...], Rows], Iterator[Rows]]
"""Rows walked through operators, in batches."""


def semi_join(context: Context, op: ir.SemiJoin, rows: Rows, solve: Solve) -> Rows:
    """The rows with a solution, or with `anti` those without."""
    return rows.where((_counts(context, op.inner, rows, solve) == 0) == op.anti)


def matches(context: Context, op: ir.Matches, rows: Rows, solve: Solve) -> Rows:
    """Every row, with how many solutions it has, or whether any."""
    counts = _counts(context, op.inner, rows, solve)
    return rows.put(op.out, pa.array(counts > 0 if op.exists else counts))


def left_join(op: ir.LeftJoin, rows: Rows, solve: Solve) -> Iterator[Rows]:
    """Every row with each of its solutions, then those without one once, with nulls."""
    marked, mark = _marked(rows)
    lonely, solved = np.ones(rows.length, bool), None
    for solved in solve(op.inner, marked):
        numbers = solved.slots[mark].to_numpy()
        lonely[numbers] = False
        bindings = {var: solved.bindings[var] for var in (*rows.bindings, *op.binds)}
        yield Rows(solved.length, bindings, {slot: solved.slots[slot] for slot in rows.slots})
    assert solved is not None, "a pattern gives a batch, though an empty one"
    alone = rows.take(np.flatnonzero(lonely))
    nothing = np.full(alone.length, NULL)
    for var in op.binds:
        if var not in rows.bindings:
            alone = alone.bind(var, BoundEntities(solved.bindings[var].domain, nothing))
    yield alone


def joined(parts: Iterable[Rows]) -> Rows:
    """Rows of one pattern, one below the other. What their variables are bound in is the same."""
    every = list(parts)
    several = [part for part in every if part.length] or every[:1]
    if len(several) == 1:
        return several[0]
    first = several[0]
    bindings = {
        var: BoundEntities(
            bound.domain, np.concatenate([part.bindings[var].positions for part in several])
        )
        for var, bound in first.bindings.items()
    }
    slots = {slot: pa.concat_arrays([part.slots[slot] for part in several]) for slot in first.slots}
    return Rows(sum(part.length for part in several), bindings, slots)


def _counts(
    context: Context, inner: tuple[ir.PatternOp, ...], rows: Rows, solve: Solve
) -> np.ndarray:
    """How many solutions each row has."""
    step = inner[0]
    if len(inner) == 1 and is_single_step(step, rows):
        assert isinstance(step, ir.Expand | ir.ExpandEdges)
        return degrees(context, step, rows)
    distinct, inverse = _correlated(inner, rows)
    marked, mark = _marked(distinct)
    counts = np.zeros(distinct.length, np.int64)
    for solved in solve(inner, marked):
        counts += np.bincount(solved.slots[mark].to_numpy(), minlength=distinct.length)
    return counts if inverse is None else counts[inverse]


def _marked(rows: Rows) -> tuple[Rows, ir.Slot]:
    mark = ir.Slot(f"row:{len(rows.slots)}")
    return rows.put(mark, pa.array(np.arange(rows.length))), mark


def _correlated(inner: tuple[ir.PatternOp, ...], rows: Rows) -> tuple[Rows, np.ndarray | None]:
    """The rows that the inner pattern can tell apart: when it sees one variable, one row an entity;
    and the index of each row's representative."""
    seen = set(names_in(inner))
    outer = [var for var in rows.bindings if var in seen]
    slots = [slot for slot in rows.slots if slot in seen]
    if len(outer) != 1 or slots:
        return rows, None
    bound = rows.bindings[outer[0]]
    distinct, inverse = np.unique(bound.positions, return_inverse=True)
    return Rows(len(distinct), {outer[0]: BoundEntities(bound.domain, distinct)}, {}), inverse


def names_in(part: Any) -> Iterator[str]:
    """Every variable and slot a pattern mentions."""
    if isinstance(part, str):
        yield part
    elif isinstance(part, tuple):
        for each in part:
            yield from names_in(each)
    elif is_dataclass(part) and not isinstance(part, ir.Const):
        for field in fields(part):
            yield from names_in(getattr(part, field.name))
