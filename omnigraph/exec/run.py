"""Run a read plan against a snapshot.

    pattern ─▶ scores ─▶ groups | rows ─▶ distinct ─▶ order, cut ─▶ columns
    rows of              one value         which         which,       Arrow
    positions            a group           rows          in order     arrays

Invariant: nothing is looked up before it is needed. The pattern moves positions, order and groups
move codes, and values are gathered for the rows that leave.
"""

import os
import time
from collections.abc import Mapping
from time import perf_counter
from typing import assert_never

import numpy as np
import pyarrow as pa

from omnigraph.catalog.arrow import arrow_type
from omnigraph.errors import BadRequest
from omnigraph.exec import embed
from omnigraph.exec.aggregate import Groups, aggregate
from omnigraph.exec.codes import Codes, codes_of, combined, encoded, first_of_each, is_sortable
from omnigraph.exec.constants import Given
from omnigraph.exec.context import Context, TraversalMode, WantedColumns, wanted_columns
from omnigraph.exec.evaluate import Evaluator, repeated
from omnigraph.exec.expand import expand, expand_edges
from omnigraph.exec.joins import left_join, matches, semi_join
from omnigraph.exec.limits import Limits, Watch
from omnigraph.exec.order import keys_of_codes, keys_of_values, places
from omnigraph.exec.profile import Profile
from omnigraph.exec.rank import Ranker, Wanted
from omnigraph.exec.result import QueryResult
from omnigraph.exec.rows import ONE_ROW, Rows
from omnigraph.exec.scan import counted, scan
from omnigraph.exec.tables import Holdings, TablesView
from omnigraph.plan import ir
from omnigraph.storage.records import Snapshot
from omnigraph.storage.store import Store

_FRONTIER_MAX = 1024
_PLANS_MAX = 1024


class Reading:
    """The read side of one open graph: what it holds in memory, and its limits."""

    def __init__(self, store: Store, limits: Limits | None = None) -> None:
        self.limits = limits or Limits.from_environment()
        self.holdings = Holdings(store, self.limits.cache_bytes_max)
        self.embedder: embed.Provider | None = None
        self._wanted: dict[int, tuple[ir.ReadPlan, WantedColumns]] = {}

    def run(
        self, plan: ir.ReadPlan, params: Mapping[str, ir.Constant], snapshot: Snapshot
    ) -> QueryResult:
        """The rows of a plan in one snapshot."""
        tables = TablesView(self.holdings, snapshot)
        given = Given(params, time.time_ns() // 1_000_000)
        ranker = Ranker(tables, given, self.embedder)
        context = Context(
            tables,
            Evaluator(given, ranker.text_matches),
            Watch(self.limits),
            _mode(),
            _frontier_max(),
            self._wanted_of(plan),
        )
        return _Run(plan, context, ranker).result()

    def _wanted_of(self, plan: ir.ReadPlan) -> WantedColumns:
        """The columns of a plan, remembered by the plan itself: hashing one takes longer."""
        known = self._wanted.get(id(plan))
        if known is None or known[0] is not plan:
            if len(self._wanted) >= _PLANS_MAX:
                self._wanted.clear()
            known = self._wanted[id(plan)] = (plan, wanted_columns(plan))
        return known[1]


def _mode() -> TraversalMode:
    text = os.environ.get("OMNIGRAPH_TRAVERSAL_MODE", "auto")
    try:
        return TraversalMode(text)
    except ValueError:
        modes = ", ".join(TraversalMode)
        raise BadRequest(f"OMNIGRAPH_TRAVERSAL_MODE is '{text}'", f"use {modes}") from None


def _frontier_max() -> int:
    text = os.environ.get("OMNIGRAPH_EXPAND_INDEXED_MAX_FRONTIER")
    return int(text) if text is not None and text.isdigit() else _FRONTIER_MAX


class _Run:
    """One run of one plan."""

    def __init__(self, plan: ir.ReadPlan, context: Context, ranker: Ranker) -> None:
        self.plan = plan
        self.context = context
        self.evaluator = context.evaluator
        self.cache = context.tables.holdings.cache
        self.ranker = ranker
        self.profile = Profile()

    def result(self) -> QueryResult:
        plan = self.plan
        group = self._counted()
        if group is not None:
            return self._finished(group, perf_counter())
        rows = self._scored(self.solve(plan.pattern, ONE_ROW))
        since = perf_counter()
        frame: Rows | Groups = rows
        if plan.aggregate is not None:
            self.context.watch.operator = "group by"
            frame = aggregate(plan.aggregate, rows, self.evaluator, self.cache)
            self.profile.stage(frame.length, perf_counter() - since)
            since = perf_counter()
        return self._finished(frame, since)

    def _counted(self) -> Groups | None:
        """The one group of a plan that only counts the nodes of a scan."""
        op, groups = self.plan.pattern[0], self.plan.aggregate
        if len(self.plan.pattern) > 1 or groups is None or groups.keys or self.plan.scores:
            return None
        if not isinstance(op, ir.NodeScan) or any(m.operand is not None for m in groups.measures):
            return None
        self.context.watch.operator = op
        since = perf_counter()
        count = counted(self.context, op)
        if count is None:
            return None
        self.profile.operator(op, count, since)
        self.profile.stage(1, 0.0)
        return Groups(1, {}, {measure.out: pa.array([count]) for measure in groups.measures})

    # The pattern

    def solve(self, ops: tuple[ir.PatternOp, ...], rows: Rows) -> Rows:
        """Walk rows through operators."""
        watch = self.context.watch
        since = perf_counter()
        for op, then in zip(ops, (*ops[1:], None), strict=True):
            watch.operator = op
            rows = self._step(op, rows, then)
            since = self.profile.operator(op, rows.length, since)
            watch.tick()
        return rows

    def _step(self, op: ir.PatternOp, rows: Rows, then: ir.PatternOp | None) -> Rows:
        context = self.context
        match op:
            case ir.NodeScan():
                return scan(context, op, rows, then)
            case ir.Expand():
                return expand(context, op, rows)
            case ir.ExpandEdges():
                return expand_edges(context, op, rows)
            case ir.Filter(where=where):
                return rows.where(self.evaluator.keep(where, rows))
            case ir.SemiJoin():
                return semi_join(context, op, rows, self.solve)
            case ir.Matches():
                return matches(context, op, rows, self.solve)
            case ir.LeftJoin():
                return left_join(op, rows, self.solve)
            case _:
                assert_never(op)

    def _scored(self, rows: Rows) -> Rows:
        for score in self.plan.scores:
            since = perf_counter()
            self.context.watch.operator = "score"
            rows = self.ranker.score(score, rows, self._wanted_of(score))
            self.profile.stage(rows.length, perf_counter() - since)
            self.context.watch.tick()
        return rows

    def _wanted_of(self, score: ir.Score) -> Wanted | None:
        """How many of the best entities a cut can show: each has at least one row."""
        plan = self.plan
        if not score.required or plan.limit is None or plan.aggregate or plan.distinct:
            return None
        first = plan.order[0].value if plan.order else None
        if not isinstance(first, ir.SlotRef) or first.slot != score.out:
            return None
        return Wanted(plan.limit + plan.offset, _ties_by_id(score, plan.order[1:2]))

    # The columns

    def _finished(self, frame: Rows | Groups, since: float) -> QueryResult:
        plan, watch = self.plan, self.context.watch
        watch.operator = "order by"
        total = frame.length
        if plan.distinct:
            frame, codes = self._distinct(frame)
            keys = self._keys(frame) + [each.of_rows for each in codes]
        else:
            keys = self._keys(frame) if total > 1 else []
        chosen = places(keys, frame.length, offset=plan.offset, limit=plan.limit)
        if keys or len(chosen) < frame.length:
            frame = taken(frame, chosen)
        sorted_at = perf_counter()
        watch.operator = "project"
        watch.tick()
        values = tuple(self._column(column, frame) for column in plan.columns)
        # In the order of the plan's lines: project, order by, slice. Cutting comes with sorting.
        self.profile.stage(len(chosen), perf_counter() - sorted_at)
        if plan.order:
            self.profile.stage(total, sorted_at - since)
        if plan.limit is not None or plan.offset:
            self.profile.stage(len(chosen), 0.0)
        return QueryResult(
            [column.name for column in plan.columns],
            self.context.tables.snapshot.commit_id,
            tuple(column.type for column in plan.columns),
            values,
            len(chosen),
            plan,
            self.profile,
        )

    def _distinct(self, frame: Rows | Groups) -> tuple[Rows | Groups, list[Codes]]:
        """Equal output rows as one, and the codes of their columns."""
        codes = [self._codes(column.value, frame) for column in self.plan.columns]
        whole = combined(codes, frame.length)
        firsts = first_of_each(whole)
        kept = [Codes(each.of_rows[firsts], each.count) for each in codes]
        return taken(frame, firsts), kept

    def _keys(self, frame: Rows | Groups) -> list[np.ndarray]:
        """The order of the plan as integers."""
        keys = []
        for key in self.plan.order:
            keys += self._key(key, frame)
        return keys

    def _key(self, key: ir.SortKey, frame: Rows | Groups) -> list[np.ndarray]:
        if not _is_coded(key.value):
            values = self._value(key.value, frame)
            if is_sortable(values.type):
                return keys_of_values(values, descending=key.descending)
        codes = self._codes(key.value, frame)
        return keys_of_codes(codes.of_rows, descending=key.descending)

    def _codes(self, expr: ir.Expr, frame: Rows | Groups) -> Codes:
        if isinstance(frame, Rows):
            return codes_of(expr, frame, self.evaluator, self.cache)
        return encoded(self._value(expr, frame))

    def _value(self, expr: ir.Expr, frame: Rows | Groups) -> pa.Array:
        if isinstance(frame, Rows):
            return self.evaluator.values(expr, frame)
        if expr in frame.keys:
            return frame.keys[expr]
        if isinstance(expr, ir.SlotRef):
            return frame.measures[expr.slot]
        assert isinstance(expr, ir.Const | ir.Param | ir.Now), f"{expr} is neither key nor measure"
        return repeated(self.evaluator.given.of(expr), expr.type, frame.length)

    def _column(self, column: ir.OutputColumn, frame: Rows | Groups) -> pa.Array:
        if column.type.is_vector:
            self.context.watch.hold(4 * frame.length * (column.type.dimension or 0))
        values = self._value(column.value, frame)
        wanted = arrow_type(column.type)
        return values if values.type == wanted else values.cast(wanted)


def _ties_by_id(score: ir.Score, then: tuple[ir.SortKey, ...]) -> bool:
    """Whether entities that tie in a score are next ordered by their ids, as rankings are."""
    if isinstance(score.ranking, ir.Rrf) or not then or then[0].descending:
        return False
    value = then[0].value
    return isinstance(value, ir.EntityId) and value.var == score.ranking.column.var


def _is_coded(expr: ir.Expr) -> bool:
    """Whether codes are at hand, without the values: ids, and columns of text."""
    match expr:
        case ir.EntityId():
            return True
        case ir.Column(type=type_):
            return type_.is_text
        case _:
            return False


def taken(frame: Rows | Groups, chosen: np.ndarray) -> Rows | Groups:
    """Some rows or groups, in this order."""
    if isinstance(frame, Rows):
        return frame.take(chosen)
    index = pa.array(chosen)
    return Groups(
        len(chosen),
        {key: values.take(index) for key, values in frame.keys.items()},
        {slot: values.take(index) for slot, values in frame.measures.items()},
    )
