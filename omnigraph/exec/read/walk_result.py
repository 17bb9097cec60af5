"""Fast path of: the operators of read/run — rank, order, cut and project the rows of a walk.

Reference: `read/project` and `search/rank`.
Held equal by: `test_walking_one_by_one_gives_the_rows_of_the_operators` and
`test_every_way_of_running_a_query_gives_the_same_rows`.
Falls back: for groups, distinct, fused rankings, expressions that are no column, types that Python
sorts otherwise, and rankings with a NaN.

Invariant: rows come in the order that the operators give them, with the numbers of the same
searches.
"""

import math
from typing import Any

from omnigraph.exec.memory.resident import Nodes
from omnigraph.exec.read.result import PythonColumn
from omnigraph.exec.read.walk_rows import CellReader, Frame, Side, kind_of
from omnigraph.exec.search.rank import Ranker
from omnigraph.plan import ir
from omnigraph.types import FLOATS, NUMERICS, Scalar

Slots = dict[ir.Slot, list[Any]]
_PLAIN = NUMERICS | FLOATS | {Scalar.STRING, Scalar.BOOL}


class Tail:
    """The tail of a plan, after its pattern: scores, order, cut and columns."""

    def __init__(self, plan: ir.ReadPlan) -> None:
        self._scores = plan.scores
        self._order = [(key.value, key.descending) for key in plan.order]
        self._columns = [column.value for column in plan.columns]
        self._cut = slice(plan.offset, None if plan.limit is None else plan.offset + plan.limit)

    def scored(self, frame: Frame, ranker: Ranker) -> tuple[Frame, Slots] | None:
        """The rows with their ranking numbers; None when the operators must rank them."""
        slots: Slots = {}
        for score in self._scores:
            ranking = score.ranking
            assert not isinstance(ranking, ir.Rrf)
            var = ranking.column.var
            positions, domain = frame.positions[var], frame.domains[var]
            if not isinstance(domain, Nodes):
                return None
            numbers = ranker.scores_of(ranking, domain, positions)
            if any(map(math.isnan, numbers.values())):
                return None
            if score.required and any(position not in numbers for position in positions):
                kept = [row for row, position in enumerate(positions) if position in numbers]
                frame = frame.take(kept)
                slots = {slot: [values[row] for row in kept] for slot, values in slots.items()}
                positions = frame.positions[var]
            slots[score.out] = [numbers.get(position) for position in positions]
        return frame, slots

    def ordered_rows(self, frame: Frame, slots: Slots, reader: CellReader) -> list[int]:
        """The rows that remain, in order."""
        rows = list(range(frame.length))
        for value, descending in reversed(self._order) if frame.length > 1 else ():
            if isinstance(value, ir.SlotRef):
                values = slots[value.slot]
            else:
                assert isinstance(value, Side)
                positions = frame.positions[value.var]
                if positions.count(positions[0]) == frame.length:
                    continue
                values = reader.values(value, frame)
            rows.sort(key=_Keys(values).__getitem__, reverse=descending)
        return rows[self._cut]

    def columns(
        self, rows: list[int], frame: Frame, slots: Slots, reader: CellReader
    ) -> tuple[PythonColumn, ...]:
        """The values of the rows that remain."""
        chosen = frame.take(rows)
        made: list[PythonColumn] = []
        for value in self._columns:
            if isinstance(value, ir.SlotRef):
                made.append(PythonColumn([slots[value.slot][row] for row in rows]))
            else:
                assert isinstance(value, Side)
                made.append(PythonColumn(reader.values(value, chosen)))
        return tuple(made)


class _Keys:
    """Values as keys to sort by: null before everything."""

    __slots__ = ("_values",)

    def __init__(self, values: list[Any]) -> None:
        self._values = values

    def __getitem__(self, row: int) -> tuple[bool, Any]:
        value = self._values[row]
        return (value is not None, value)


def tail_of(plan: ir.ReadPlan) -> Tail | None:
    """The tail of a plan, if it needs no operator."""
    if plan.aggregate is not None or plan.distinct:
        return None
    if any(isinstance(score.ranking, ir.Rrf) for score in plan.scores):
        return None
    slots = {score.out for score in plan.scores}
    if not all(_sorts(key.value, slots) for key in plan.order):
        return None
    return Tail(plan) if all(_is_plain(column, slots) for column in plan.columns) else None


def _sorts(value: ir.Expr, slots: set[ir.Slot]) -> bool:
    if isinstance(value, ir.SlotRef):
        return value.slot in slots
    return isinstance(value, Side) and kind_of(value.type) is not None


def _is_plain(column: ir.OutputColumn, slots: set[ir.Slot]) -> bool:
    if isinstance(column.value, ir.SlotRef):
        return column.value.slot in slots
    if not isinstance(column.value, Side) or column.type.is_list:
        return False
    return column.type.scalar in _PLAIN
