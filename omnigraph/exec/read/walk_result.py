"""The result of a few rows: ranked, ordered, cut, and as Python values.

Invariant: rows leave in the order that the operators give them. Their numbers are those of the same
searches; a number that is no number is left to the operators.
"""

import math
from typing import Any

from omnigraph.exec.memory.resident import Nodes
from omnigraph.exec.read.result import Few
from omnigraph.exec.read.walk_rows import Frame, Reader, Side, kind_of
from omnigraph.exec.search.rank import Ranker
from omnigraph.plan import ir
from omnigraph.types import FLOATS, NUMERICS, Scalar

Slots = dict[ir.Slot, list[Any]]
_PLAIN = NUMERICS | FLOATS | {Scalar.STRING, Scalar.BOOL}


class Tail:
    """What follows the pattern of a plan: numbers, order, cut and columns."""

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
            at, domain = frame.at[ranking.column.var], frame.domains[ranking.column.var]
            if not isinstance(domain, Nodes):
                return None
            numbers = ranker.scores_of(ranking, domain, at)
            if any(map(math.isnan, numbers.values())):
                return None
            if score.required and any(place not in numbers for place in at):
                kept = [row for row, place in enumerate(at) if place in numbers]
                frame = frame.take(kept)
                slots = {slot: [held[row] for row in kept] for slot, held in slots.items()}
                at = frame.at[ranking.column.var]
            slots[score.out] = [numbers.get(place) for place in at]
        return frame, slots

    def places(self, frame: Frame, slots: Slots, reader: Reader) -> list[int]:
        """The rows that leave, in order."""
        places = list(range(frame.length))
        for value, descending in reversed(self._order) if frame.length > 1 else ():
            if isinstance(value, ir.SlotRef):
                values = slots[value.slot]
            else:
                assert isinstance(value, Side)
                at = frame.at[value.var]
                if at.count(at[0]) == frame.length:
                    continue
                values = reader.values(value, frame)
            places.sort(key=_Keys(values).__getitem__, reverse=descending)
        return places[self._cut]

    def columns(
        self, places: list[int], frame: Frame, slots: Slots, reader: Reader
    ) -> tuple[Few, ...]:
        """The values of the rows that leave."""
        chosen = frame.take(places)
        made: list[Few] = []
        for value in self._columns:
            if isinstance(value, ir.SlotRef):
                made.append(Few([slots[value.slot][place] for place in places]))
            else:
                assert isinstance(value, Side)
                made.append(Few(reader.values(value, chosen)))
        return tuple(made)


class _Keys:
    """Values as keys to sort by: null before everything."""

    __slots__ = ("_values",)

    def __init__(self, values: list[Any]) -> None:
        self._values = values

    def __getitem__(self, place: int) -> tuple[bool, Any]:
        value = self._values[place]
        return (value is not None, value)


def tail_of(plan: ir.ReadPlan) -> Tail | None:
    """What follows the pattern, when a few rows need no operator for it."""
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
