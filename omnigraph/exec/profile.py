"""How long each operator took and how many rows left it.

Invariant: a profile's lines are the lines of the plan's explanation, each followed by its figures;
an operator that never ran says so.
"""

from collections.abc import Iterator
from time import perf_counter

from omnigraph.plan import ir
from omnigraph.plan.explain import explain, operator_lines

Ended = tuple[int, float]
"""Rows that left, and seconds."""


class Profile:
    """Figures of one run. Inner operators may run several times; their figures add up."""

    __slots__ = ("_ended", "_tail", "started")

    def __init__(self) -> None:
        self.started = perf_counter()
        self._ended: dict[int, Ended] = {}
        self._tail: list[Ended] = []

    def operator(self, op: ir.PatternOp, rows: int, since: float) -> float:
        """Note what an operator of the pattern did; the time now."""
        now = perf_counter()
        before = self._ended.get(id(op), (0, 0.0))
        self._ended[id(op)] = (before[0] + rows, before[1] + now - since)
        return now

    def stage(self, rows: int, seconds: float) -> None:
        """Note what the next operator after the pattern did."""
        self._tail.append((rows, seconds))

    @property
    def seconds(self) -> float:
        """What all operators took."""
        return sum(each[1] for each in (*self._ended.values(), *self._tail))

    def explain(self, plan: ir.ReadPlan) -> str:
        """The plan with its figures."""
        head, *lines = explain(plan).splitlines()
        figures = [*self._figures(plan.pattern), *self._tail]
        figures += [None] * (len(lines) - len(figures))
        width = max(map(len, lines))
        told = [
            f"{line:<{width}}  {_told(each)}" for line, each in zip(lines, figures, strict=True)
        ]
        return "\n".join([head, *told]) + "\n"

    def _figures(self, ops: tuple[ir.PatternOp, ...]) -> Iterator[Ended | None]:
        for op in ops:
            yield self._ended.get(id(op))
            if isinstance(op, ir.SemiJoin | ir.Matches | ir.LeftJoin):
                yield from self._figures(op.inner)


def line_of(op: ir.PatternOp) -> str:
    """An operator on one line."""
    return operator_lines(op)[0]


def _told(ended: Ended | None) -> str:
    if ended is None:
        return "not run"
    return f"{ended[0]} rows  {ended[1] * 1000:.3f} ms"
