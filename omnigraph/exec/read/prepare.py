"""What follows from a plan alone, worked out once.

Invariant: nothing here depends on a snapshot, on parameters or on what is held.
"""

from dataclasses import dataclass

from omnigraph.exec.read.context import WantedColumns, wanted_columns
from omnigraph.exec.read.joins import names_in
from omnigraph.exec.read.walk import Shortcut, shortcut_of
from omnigraph.exec.read.walk_result import Tail, tail_of
from omnigraph.plan import ir
from omnigraph.types import ValueType


@dataclass(frozen=True, slots=True, eq=False)
class Prepared:
    """A plan, and how it is run."""

    plan: ir.ReadPlan
    wanted: WantedColumns
    shortcut: Shortcut | None
    tail: Tail | None
    counts: bool  # nothing is asked of the rows but how many they are
    counts_last_step: bool  # nothing is asked of the last step but how many rows it makes
    embeds: bool  # a text becomes a vector on the way, which may take a while
    names: list[str]
    types: tuple[ValueType, ...]


def prepare(plan: ir.ReadPlan) -> Prepared:
    """What follows from a plan alone."""
    return Prepared(
        plan,
        wanted_columns(plan),
        shortcut_of(plan.pattern),
        tail_of(plan),
        _only_counts(plan),
        _counts_last_step(plan),
        any(isinstance(s.ranking, ir.Nearest) and _is_text(s.ranking.query) for s in plan.scores),
        [column.name for column in plan.columns],
        tuple(column.type for column in plan.columns),
    )


def _only_counts(plan: ir.ReadPlan) -> bool:
    groups = plan.aggregate
    return (
        groups is not None
        and not groups.keys
        and not plan.scores
        and all(measure.operand is None for measure in groups.measures)
        and all(isinstance(column.value, ir.SlotRef) for column in plan.columns)
        and plan.limit != 0
        and not plan.offset
    )


def _is_text(expr: ir.Expr) -> bool:
    return isinstance(expr, ir.Operand) and expr.type.is_text


def _counts_last_step(plan: ir.ReadPlan) -> bool:
    groups = plan.aggregate
    if groups is None or plan.scores or any(m.operand is not None for m in groups.measures):
        return False
    step = plan.pattern[-1] if plan.pattern else None
    if not isinstance(step, ir.Expand | ir.ExpandEdges) or step.closes:
        return False
    bound = {step.out, step.edge_var} if isinstance(step, ir.ExpandEdges) else {step.out}
    return bound.isdisjoint(names_in(groups.keys))
