"""Partial aggregation: a read split into a plan for each share of nodes and one that gathers.

Invariant: the rows of `gathered` over the rows of all shares are the rows of the plan, however the
nodes are shared out. A pattern maps each row by itself, so it is solved share by share; operators
that look at rows together (groups, distinct, order, cut) run once more over the shares' columns.
Sums of integers are added up in halves, which no share can overflow; sums of floats are added up in
another order, and may differ in their last bits.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import assert_never

from omnigraph.plan import ir
from omnigraph.plan.expressions import needs, substituted, type_of
from omnigraph.plan.operands import COUNT, INTEGER, NUMBER
from omnigraph.types import ValueType


@dataclass(frozen=True, slots=True)
class Halves:
    """An exact sum of integers, as two measures."""

    high: ir.Slot
    low: ir.Slot


@dataclass(frozen=True, slots=True)
class WholeSum:
    """A sum of integers that is made of its halves."""

    measure: ir.Measure
    total: Halves


@dataclass(frozen=True, slots=True)
class Average:
    """A measure that is made of a total and a count."""

    out: ir.Slot
    total: ir.Slot | Halves
    count: ir.Slot


@dataclass(frozen=True, slots=True)
class Shares:
    """A plan in two parts: the columns of the first are the slots of the second."""

    of_share: ir.ReadPlan
    gathered: ir.ReadPlan
    sums: tuple[WholeSum, ...] = ()
    averages: tuple[Average, ...] = ()
    folded: ir.ReadPlan | None = None
    """Fewer rows of the same columns, which stand for those of several shares: groups that are
    merged, rows that are cut or made distinct. None where every row counts."""


_OF_ALL_ROWS = (ir.AggregateOp.COLLECT, ir.AggregateOp.PERCENTILE, ir.AggregateOp.STDDEV)
"""Measures that cannot be put together from those of shares."""

_OF_EXTREMES = (ir.AggregateOp.MIN, ir.AggregateOp.MAX)
"""Measures that are the same of values that come once."""


def in_shares(plan: ir.ReadPlan) -> Shares | None:
    """The two parts of a plan; None for one that must see all its rows at once: a fusion of
    rankings does, and a stage."""
    if not isinstance(plan.pattern[0], ir.NodeScan) or not all(map(_is_of_a_row, plan.scores)):
        return None
    if any(isinstance(op, ir.Stage) for op in plan.pattern):
        return None
    groups = plan.aggregate
    if groups is None:
        return _rows(plan)
    if not any(measure.distinct or measure.op in _OF_ALL_ROWS for measure in groups.measures):
        return _partial_groups(plan, groups)
    return _rows_of_groups(plan, groups)


def _is_of_a_row(score: ir.Score) -> bool:
    """Whether a score depends on its row and the whole table alone, and is cheap to ask for often:
    a text is embedded once."""
    match score.ranking:
        case ir.Rrf():
            return False
        case ir.Nearest(query=query):
            return not type_of(query).is_text
        case ir.Bm25():
            return True
        case _:
            assert_never(score.ranking)


def _rows(plan: ir.ReadPlan) -> Shares:
    """Rows that are only ordered and cut: no share gives more than the cut can show."""
    leaves = _Leaves()
    columns = tuple(replace(c, value=leaves.slot(c.value)) for c in plan.columns)
    projected = len(leaves.columns)
    order = tuple(replace(key, value=leaves.slot(key.value)) for key in plan.order)
    gathered = replace(plan, pattern=(), scores=(), columns=columns, order=order)
    # Distinct compares the columns alone; with sort keys beside them every row of a share counts.
    cuts = plan.limit is not None and not (plan.distinct and len(leaves.columns) > projected)
    of_share = replace(
        plan,
        columns=leaves.columns,
        order=plan.order if cuts else (),
        limit=(plan.limit or 0) + plan.offset if cuts else None,
        offset=0,
        object_columns=(),
    )
    folds = cuts or (plan.distinct and len(leaves.columns) == projected)
    folded = replace(
        gathered,
        columns=leaves.as_slots,
        object_columns=(),
        order=order if cuts else (),
        limit=of_share.limit,
        offset=0,
    )
    return Shares(of_share, gathered, folded=folded if folds else None)


def _rows_of_groups(plan: ir.ReadPlan, groups: ir.Aggregate) -> Shares:
    """The rows to group: a value that is distinct in a share need not be so in all of them."""
    leaves = _Leaves()
    keys = tuple(leaves.slot(key) for key in groups.keys)
    measures = tuple(
        measure
        if measure.operand is None
        else replace(measure, operand=leaves.slot(measure.operand))
        for measure in groups.measures
    )
    of_share = _only_columns(plan, leaves.columns, None)
    folded = None
    if all(measure.distinct or measure.op in _OF_EXTREMES for measure in groups.measures):
        of_share = replace(of_share, distinct=True)
        folded = replace(of_share, pattern=(), scores=(), columns=leaves.as_slots)
    gathered = _regrouped(plan, leaves, ir.Aggregate(keys, measures))
    return Shares(of_share, gathered, folded=folded)


def _partial_groups(plan: ir.ReadPlan, groups: ir.Aggregate) -> Shares:
    """The groups of each share, to be added up."""
    leaves = _Leaves()
    keys = tuple(leaves.slot(key) for key in groups.keys)
    partial = list[ir.Measure]()
    whole = list[ir.Measure]()
    merged = list[ir.Measure]()
    sums = list[WholeSum]()
    averages = list[Average]()

    def add(measure: ir.Measure, out: ir.Slot, op: ir.AggregateOp, kind: ValueType) -> ir.Slot:
        """Measure in each share, and put the measures together."""
        given = ir.Slot(f"{out} of a share")
        partial.append(replace(measure, out=given, op=op, type=kind))
        operand = leaves.slot(ir.SlotRef(given, kind))
        own = replace(measure, op=_together(op), operand=operand, type=kind)
        whole.append(replace(own, out=out))
        merged.append(replace(own, out=given))
        return out

    def add_halves(measure: ir.Measure) -> Halves:
        high, low = (ir.Slot(f"{measure.out} {half}") for half in ("high", "low"))
        return Halves(
            add(measure, high, ir.AggregateOp.SUM_HIGH, INTEGER),
            add(measure, low, ir.AggregateOp.SUM_LOW, INTEGER),
        )

    for measure in groups.measures:
        out = measure.out
        match measure.op:
            case ir.AggregateOp.AVG:
                total = (
                    add_halves(measure)
                    if measure.is_of_integers
                    else add(measure, ir.Slot(f"{out} total"), ir.AggregateOp.SUM, NUMBER)
                )
                count = add(measure, ir.Slot(f"{out} count"), ir.AggregateOp.COUNT, COUNT)
                averages.append(Average(out, total, count))
            case ir.AggregateOp.SUM if measure.is_of_integers:
                sums.append(WholeSum(measure, add_halves(measure)))
            case _:
                add(measure, out, measure.op, measure.type)
    of_share = _only_columns(plan, leaves.columns, ir.Aggregate(groups.keys, tuple(partial)))
    gathered = _regrouped(plan, leaves, ir.Aggregate(keys, tuple(whole)))
    measured = {measure.operand: ir.SlotRef(measure.out, measure.type) for measure in merged}
    folded = replace(
        of_share,
        pattern=(),
        scores=(),
        aggregate=ir.Aggregate(keys, tuple(merged)),
        columns=tuple(
            replace(column, value=measured.get(column.value, column.value))
            for column in leaves.as_slots
        ),
    )
    return Shares(of_share, gathered, tuple(sums), tuple(averages), folded)


def _together(op: ir.AggregateOp) -> ir.AggregateOp:
    """The function that puts the measures of several shares together."""
    match op:
        case ir.AggregateOp.COUNT | ir.AggregateOp.SUM:
            return ir.AggregateOp.SUM
        case ir.AggregateOp.SUM_HIGH | ir.AggregateOp.SUM_LOW:
            return ir.AggregateOp.SUM
        case ir.AggregateOp.MIN | ir.AggregateOp.MAX:
            return op
        case ir.AggregateOp.AVG:
            raise AssertionError("an average is put together from its total and its count")
        case ir.AggregateOp.COLLECT | ir.AggregateOp.PERCENTILE | ir.AggregateOp.STDDEV:
            raise AssertionError(f"{op} is measured over all rows at once")
        case _:
            assert_never(op)


def _only_columns(
    plan: ir.ReadPlan, columns: Iterable[ir.OutputColumn], groups: ir.Aggregate | None
) -> ir.ReadPlan:
    return replace(
        plan,
        aggregate=groups,
        columns=tuple(columns),
        distinct=False,
        order=(),
        limit=None,
        offset=0,
        having=None,
        object_columns=(),
    )


def _regrouped(plan: ir.ReadPlan, leaves: "_Leaves", groups: ir.Aggregate) -> ir.ReadPlan:
    """The rest of a plan over the groups of all shares. Its keys are slots; its measures were."""
    return replace(
        plan,
        pattern=(),
        scores=(),
        aggregate=groups,
        columns=tuple(replace(c, value=leaves.known(c.value)) for c in plan.columns),
        having=None if plan.having is None else leaves.known(plan.having),
        order=tuple(replace(key, value=leaves.known(key.value)) for key in plan.order),
    )


@dataclass
class _Leaves:
    """Output columns of a share: one for each expression, which becomes one slot."""

    _slots: dict[ir.Expr, ir.SlotRef] = field(default_factory=dict)

    def slot(self, expr: ir.Expr) -> ir.Expr:
        """The slot of an expression's values. An expression that reads no row stays as it is."""
        if not needs(expr):
            return expr
        if expr not in self._slots:
            kind = type_of(expr)
            self._slots[expr] = ir.SlotRef(ir.Slot(f"share {len(self._slots)}"), kind)
        return self._slots[expr]

    def known(self, expr: ir.Expr) -> ir.Expr:
        """The expression with the slots of the values that leave in the place of these."""
        whole: ir.Expr = substituted(expr, self._slots.get)
        return whole

    @property
    def columns(self) -> tuple[ir.OutputColumn, ...]:
        return tuple(
            ir.OutputColumn(slot.slot, expr, slot.type) for expr, slot in self._slots.items()
        )

    @property
    def as_slots(self) -> tuple[ir.OutputColumn, ...]:
        """The same columns, of rows that have them already."""
        return tuple(ir.OutputColumn(s.slot, s, s.type) for s in self._slots.values())
