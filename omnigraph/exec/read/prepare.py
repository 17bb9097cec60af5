"""Prepared plans: facts that follow from a read plan alone, worked out once and cached.

Invariant: nothing here depends on a snapshot, on parameters or on what is resident.
"""

from functools import cached_property
from typing import TYPE_CHECKING

from omnigraph.deferred import deferred
from omnigraph.exec.read.context import ColumnsRead, columns_read
from omnigraph.exec.read.count_walks import chain_length, closed_pair
from omnigraph.exec.read.joins import names_in
from omnigraph.exec.read.point_lookup import PointLookup, point_lookup_of
from omnigraph.exec.read.walk import WalkPlan, walk_plan_of
from omnigraph.exec.read.walk_result import Tail, tail_of
from omnigraph.light_dataclass import dataclass
from omnigraph.plan import ir
from omnigraph.plan.expressions import size_of
from omnigraph.plan.middle_start import Step, is_counted_step
from omnigraph.types import ValueType

if TYPE_CHECKING:
    from omnigraph.plan.shares import Shares, in_shares
else:
    in_shares = deferred("omnigraph.plan.shares", "in_shares")


LARGE = 1 << 14

_STAR_STEPS_MAX = 2
"""So many degrees, multiplied, stay within 64 bits."""


@dataclass(frozen=True, eq=False)
class PreparedPlan:
    """A plan, and how it is run."""

    plan: ir.ReadPlan
    columns_read: ColumnsRead
    columns_shown: ColumnsRead  # by what follows the pattern
    walk: WalkPlan | None
    tail: Tail | None
    lookup: PointLookup | None
    counts: bool  # the result is the number of rows and nothing else
    counts_last_step: bool  # only the number of rows that the last step makes is used
    counted_steps: int  # of a chain at the end of which only the number of rows is used
    star_steps: int  # at the end, each from a node that none of them reaches, and only counted
    closed_pair: tuple[ir.Expand, ir.Expand] | None  # at the end, of which only a count is used
    embeds: bool  # a text is embedded on the way, which may take a while
    names: list[str]
    types: tuple[ValueType, ...]
    size: int  # parts and items, up to `LARGE`

    @property
    def is_large(self) -> bool:
        """Whether it takes so much memory that it is not kept for later queries."""
        return self.size >= LARGE

    @cached_property
    def shares(self) -> "Shares | None":
        """The plan in two parts, the first for a share or a batch of its rows; None for one that
        must see all its rows at once."""
        return in_shares(self.plan)


def prepare(plan: ir.ReadPlan) -> PreparedPlan:
    """The facts of a plan."""
    tail = tail_of(plan)
    return PreparedPlan(
        plan,
        columns_read(plan),
        columns_read((plan.aggregate, plan.columns, plan.order)),
        walk_plan_of(plan.pattern),
        tail,
        point_lookup_of(plan, tail),
        _only_counts(plan),
        _counts_last_step(plan),
        _counted_steps(plan),
        _star_steps(plan),
        closed_pair(plan.pattern) if _only_counts(plan) else None,
        any(isinstance(s.ranking, ir.Nearest) and _is_text(s.ranking.query) for s in plan.scores),
        plan.output_names,
        tuple(column.type for column in plan.columns),
        size_of(plan, LARGE),
    )


def _only_counts(plan: ir.ReadPlan) -> bool:
    groups = plan.aggregate
    return (
        groups is not None
        and not groups.keys
        and not plan.scores
        and plan.having is None
        and all(measure.operand is None for measure in groups.measures)
        and all(isinstance(column.value, ir.SlotRef) for column in plan.columns)
        and plan.limit != 0
        and not plan.offset
    )


def _is_text(expr: ir.Expr) -> bool:
    return isinstance(expr, ir.Operand) and expr.type.is_text


def _counted_steps(plan: ir.ReadPlan) -> int:
    groups = plan.aggregate
    if groups is None or not _counts_last_step(plan):
        return 0
    used, length = set(names_in(groups.keys)), 0
    for op in reversed(plan.pattern[len(plan.pattern) - chain_length(plan.pattern) :]):
        assert isinstance(op, ir.Expand | ir.ExpandEdges)
        bound = {op.out, op.edge_var} if isinstance(op, ir.ExpandEdges) else {op.out}
        if not bound.isdisjoint(used):
            break
        length += 1
    return length


def _star_steps(plan: ir.ReadPlan) -> int:
    if plan.aggregate is None or not _counts_last_step(plan):
        return 0
    used, length = set(names_in(plan.aggregate.keys)), 0
    for op in reversed(plan.pattern[1:]):
        if not isinstance(op, Step) or not is_counted_step(op) or length == _STAR_STEPS_MAX:
            break
        bound = {op.out, op.edge_var} if isinstance(op, ir.ExpandEdges) else {op.out}
        if not bound.isdisjoint(used):
            break
        used.add(op.source)
        length += 1
    return length


def _counts_last_step(plan: ir.ReadPlan) -> bool:
    groups = plan.aggregate
    if groups is None or plan.scores or any(m.operand is not None for m in groups.measures):
        return False
    step = plan.pattern[-1] if plan.pattern else None
    if not isinstance(step, ir.Expand | ir.ExpandEdges) or step.closes:
        return False
    bound = {step.out, step.edge_var} if isinstance(step, ir.ExpandEdges) else {step.out}
    return bound.isdisjoint(names_in(groups.keys))
