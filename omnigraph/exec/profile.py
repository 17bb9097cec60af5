"""Query profile: rows and milliseconds of each operator, printed with the plan (EXPLAIN ANALYZE).

Invariant: a profile's lines are the lines of the plan's explanation, each followed by its figures;
an operator that never ran says so.
"""

from collections.abc import Iterator, Sequence
from time import perf_counter
from typing import TYPE_CHECKING

from omnigraph.deferred import deferred
from omnigraph.light_dataclass import dataclass
from omnigraph.plan import ir

if TYPE_CHECKING:
    from omnigraph.plan.explain import explain, operator_lines
else:
    explain = deferred("omnigraph.plan.explain", "explain")
    operator_lines = deferred("omnigraph.plan.explain", "operator_lines")

Ended = tuple[int, float]
"""Output rows and seconds of an operator."""


@dataclass(frozen=True, slots=True)
class Figures:
    """The figures of a run in another process, in the order of the plan's lines."""

    pattern: tuple[Ended | None, ...]
    tail: tuple[Ended, ...]


def side_by_side(runs: Sequence[Figures]) -> Figures:
    """The figures of shares that ran in parallel: rows add up, the longest counts as the time. The
    tail is left out: it belongs to the process that gathers the shares."""
    lines = zip(*(run.pattern for run in runs), strict=True)
    return Figures(tuple(_together([each for each in line if each]) for line in lines), ())


def _together(ended: list[Ended]) -> Ended | None:
    if not ended:
        return None
    return sum(each[0] for each in ended), max(each[1] for each in ended)


class Profile:
    """Figures of one run. Inner operators may run several times; their figures add up."""

    __slots__ = ("_elsewhere", "_ended", "_rest", "_tail", "_waiting", "rows_held_max", "started")

    def __init__(self, elsewhere: Figures | None = None, elsewhere_for: str = "not run") -> None:
        self.started = perf_counter()
        self._rest = elsewhere_for  # what operators without figures did
        self._elsewhere = elsewhere
        self._ended: dict[int, Ended] = {}
        self._waiting = 0
        self.rows_held_max = 0  # by all operators of the pattern together
        self._tail: list[Ended] = [] if elsewhere is None else list(elsewhere.tail)

    def operator(self, op: ir.PatternOp, rows: int, since: float) -> float:
        """Record rows and time of a pattern operator; returns the time now."""
        now = perf_counter()
        before = self._ended.get(id(op), (0, 0.0))
        self._ended[id(op)] = (before[0] + rows, before[1] + now - since)
        return now

    def hold(self, rows: int) -> None:
        """Count rows that wait for the operators after theirs, or with a minus are done."""
        self._waiting += rows
        self.rows_held_max = max(self.rows_held_max, self._waiting)

    def stage(self, rows: int, seconds: float) -> None:
        """Record rows and time of the next operator after the pattern."""
        self._tail.append((rows, seconds))

    @property
    def seconds(self) -> float:
        """Seconds of all operators together."""
        elsewhere = () if self._elsewhere is None else self._elsewhere.pattern
        ended = (*self._ended.values(), *self._tail, *(each for each in elsewhere if each))
        return sum(each[1] for each in ended)

    def figures(self, plan: ir.ReadPlan) -> Figures:
        """The figures as a value, for another process to print."""
        return Figures(tuple(self._figures(plan.pattern)), tuple(self._tail))

    def explain(self, plan: ir.ReadPlan) -> str:
        """The plan with its figures."""
        computed = len(plan.computed)
        head, *lines = explain(plan).splitlines()
        head, lines = "\n".join([head, *lines[:computed]]), lines[computed:]
        ran = self._figures(plan.pattern) if self._elsewhere is None else self._elsewhere.pattern
        figures = [*ran, *self._tail]
        figures += [None] * (len(lines) - len(figures))
        width = max(map(len, lines))
        profiled = [
            f"{line:<{width}}  {_figures_text(each, self._rest)}"
            for line, each in zip(lines, figures, strict=True)
        ]
        return "\n".join([head, *profiled]) + "\n"

    def _figures(self, ops: tuple[ir.PatternOp, ...]) -> Iterator[Ended | None]:
        for op in ops:
            yield self._ended.get(id(op))
            if isinstance(op, ir.SemiJoin | ir.Matches | ir.LeftJoin):
                yield from self._figures(op.inner)


def line_of(op: ir.PatternOp) -> str:
    """An operator on one line."""
    return operator_lines(op)[0]


def _figures_text(ended: Ended | None, otherwise: str) -> str:
    if ended is None:
        return otherwise
    return f"{ended[0]} rows  {ended[1] * 1000:.3f} ms"
