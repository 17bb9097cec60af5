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
from dataclasses import dataclass
from itertools import zip_longest
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
from omnigraph.exec.expand import degrees, expand, expand_edges, is_single_step
from omnigraph.exec.few import Shortcut, Walk, shortcut_of
from omnigraph.exec.few_result import Tail, tail_of
from omnigraph.exec.frame import Frame, Reader
from omnigraph.exec.joins import left_join, matches, names_in, semi_join
from omnigraph.exec.limits import Limits, Watch
from omnigraph.exec.order import keys_of_codes, keys_of_values, places
from omnigraph.exec.profile import Profile
from omnigraph.exec.rank import Ranker, Wanted
from omnigraph.exec.result import Few, QueryResult
from omnigraph.exec.rows import ONE_ROW, Rows
from omnigraph.exec.scan import counted, scan
from omnigraph.exec.tables import Holdings, TablesView
from omnigraph.plan import ir
from omnigraph.storage.records import Snapshot
from omnigraph.storage.store import Store
from omnigraph.types import ValueType

_FEW_ROWS_MAX = 128
_FRONTIER_MAX = 1024
_PLANS_MAX = 1024


class Reading:
    """The read side of one open graph: what it holds in memory, and its limits."""

    def __init__(self, store: Store, limits: Limits | None = None) -> None:
        self.limits = limits or Limits.from_environment()
        self.holdings = Holdings(store, self.limits.cache_bytes_max)
        self.embedder: embed.Provider | None = None
        self.few_rows_max = _FEW_ROWS_MAX
        self._prepared: dict[int, Prepared] = {}
        self._views: dict[str, TablesView] = {}

    def run(
        self, plan: ir.ReadPlan, params: Mapping[str, ir.Constant], snapshot: Snapshot
    ) -> QueryResult:
        """The rows of a plan in one snapshot."""
        tables = self._view(snapshot)
        given = Given(params, time.time_ns() // 1_000_000)
        ranker = Ranker(tables, given, self.embedder)
        prepared = self._prepare(plan)
        context = Context(
            tables,
            Evaluator(given, ranker.text_matches),
            Watch(self.limits),
            _mode(),
            _frontier_max(),
            prepared.wanted,
        )
        return _Run(prepared, context, ranker, self.few_rows_max).result()

    def _view(self, snapshot: Snapshot) -> TablesView:
        """The tables of a snapshot, shared with the queries before that saw the same one."""
        view = self._views.get(snapshot.branch)
        epoch = self.holdings.cache.epoch
        if view is None or view.snapshot is not snapshot or view.epoch != epoch:
            if view is not None and view.epoch != epoch:
                self._views.clear()  # they hold what the cache let go of
            view = self._views[snapshot.branch] = TablesView(self.holdings, snapshot)
        return view

    def _prepare(self, plan: ir.ReadPlan) -> "Prepared":
        """What follows from a plan alone, remembered by the plan: hashing one takes longer."""
        known = self._prepared.get(id(plan))
        if known is None or known.plan is not plan:
            if len(self._prepared) >= _PLANS_MAX:
                self._prepared.clear()
            known = self._prepared[id(plan)] = prepare(plan)
        return known

    def close(self) -> None:
        """Let go of everything held."""
        self._views.clear()
        self.holdings.cache.clear()


@dataclass(frozen=True, slots=True)
class Prepared:
    """A plan, and how it is run."""

    plan: ir.ReadPlan
    wanted: WantedColumns
    shortcut: Shortcut | None
    tail: Tail | None
    counts: bool  # nothing is asked of the rows but how many they are
    counts_last_step: bool  # nothing is asked of the last step but how many rows it makes
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


def _counts_last_step(plan: ir.ReadPlan) -> bool:
    groups, step = plan.aggregate, plan.pattern[-1]
    if groups is None or plan.scores or any(m.operand is not None for m in groups.measures):
        return False
    if not isinstance(step, ir.Expand | ir.ExpandEdges) or step.closes:
        return False
    bound = {step.out, step.edge_var} if isinstance(step, ir.ExpandEdges) else {step.out}
    return bound.isdisjoint(names_in(groups.keys))


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

    def __init__(
        self, prepared: Prepared, context: Context, ranker: Ranker, few_rows_max: int
    ) -> None:
        self.prepared = prepared
        self.plan = prepared.plan
        self.few_rows_max = few_rows_max
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
        small, ops, rows = self._walked()
        if small is not None:
            return small
        if plan.aggregate is None:
            return self._finished(self._scored(self.solve(ops, rows)), perf_counter())
        rows, weights = self._weighed(ops, rows)
        since = perf_counter()
        self.context.watch.operator = "group by"
        groups = aggregate(plan.aggregate, rows, self.evaluator, self.cache, weights)
        self.profile.stage(groups.length, perf_counter() - since)
        return self._finished(groups, perf_counter())

    def _weighed(self, ops: tuple[ir.PatternOp, ...], rows: Rows) -> tuple[Rows, np.ndarray | None]:
        """The rows to group. Where the last step only makes rows to be counted, it is not taken:
        each row gets the number of rows it would become."""
        if not ops or not self.prepared.counts_last_step:
            return self._scored(self.solve(ops, rows)), None
        rows, step = self.solve(ops[:-1], rows), ops[-1]
        if not is_single_step(step, rows):
            return self.solve(ops[-1:], rows), None
        assert isinstance(step, ir.Expand | ir.ExpandEdges)
        self.context.watch.operator = step
        since = perf_counter()
        weights = degrees(self.context, step, rows)
        self.profile.operator(step, int(weights.sum()), since)
        self.context.watch.tick()
        return rows.where(weights > 0), weights[weights > 0]

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
        measures = {measure.out: pa.array([count]) for measure in groups.measures}
        return Groups(1, ONE_ROW, {}, measures)

    # A few rows

    def _walked(self) -> tuple[QueryResult | None, tuple[ir.PatternOp, ...], Rows]:
        """The result, if all of it is small; otherwise the operators that are left, and the rows
        they go on from."""
        pattern, prepared = self.plan.pattern, self.prepared
        if prepared.shortcut is None or not self.few_rows_max:
            return None, pattern, ONE_ROW
        if self.context.mode is TraversalMode.INDEXED:
            return None, pattern, ONE_ROW
        walk = Walk(self.context, self.few_rows_max)
        done, frame = prepared.shortcut.walk(walk, self.profile)
        if frame is None:
            return None, pattern, ONE_ROW
        if done == len(pattern) and prepared.counts:
            return self._totalled(frame.length), (), ONE_ROW
        small = None
        if done == len(pattern) and prepared.tail is not None:
            small = self._small(prepared.tail, frame, walk.reader)
        return small, pattern[done:], frame.rows() if small is None else ONE_ROW

    def _small(self, tail: Tail, frame: Frame, reader: Reader) -> QueryResult | None:
        """The result of a few rows, unless the operators must rank them."""
        plan, watch, since = self.plan, self.context.watch, perf_counter()
        watch.operator = "score"
        scored = tail.scored(frame, self.ranker)
        if scored is None:
            return None
        frame, slots = scored
        watch.tick()
        for _ in plan.scores:
            self.profile.stage(frame.length, (perf_counter() - since) / len(plan.scores))
        since = perf_counter()
        watch.operator = "project"
        places = tail.places(frame, slots, reader)
        sorted_at = perf_counter()
        values = tail.columns(places, frame, slots, reader)
        self.profile.stage(len(places), perf_counter() - sorted_at)
        if plan.order:
            self.profile.stage(frame.length, sorted_at - since)
        if plan.limit is not None or plan.offset:
            self.profile.stage(len(places), 0.0)
        return self._result(values, len(places))

    def _totalled(self, count: int) -> QueryResult:
        """The one row of a plan that only counts."""
        self.profile.stage(1, 0.0)
        self.profile.stage(1, 0.0)
        return self._result(tuple(Few([count]) for _ in self.plan.columns), 1)

    def _result(self, values: tuple[pa.Array | Few, ...], length: int) -> QueryResult:
        return QueryResult(
            list(self.prepared.names),
            self.context.tables.snapshot.commit_id,
            self.prepared.types,
            values,
            length,
            self.plan,
            self.profile,
        )

    # The pattern

    def solve(self, ops: tuple[ir.PatternOp, ...], rows: Rows) -> Rows:
        """Walk rows through operators."""
        watch = self.context.watch
        since = perf_counter()
        for op, then in zip_longest(ops, ops[1:]):
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
            frame = frame.take(chosen)
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
        return self._result(values, len(chosen))

    def _distinct(self, frame: Rows | Groups) -> tuple[Rows | Groups, list[Codes]]:
        """Equal output rows as one, and the codes of their columns."""
        codes = [self._codes(column.value, frame) for column in self.plan.columns]
        whole = combined(codes, frame.length)
        firsts = first_of_each(whole)
        kept = [Codes(each.of_rows[firsts], each.count) for each in codes]
        return frame.take(firsts), kept

    def _keys(self, frame: Rows | Groups) -> list[np.ndarray]:
        """The order of the plan as integers."""
        keys = []
        for key in self.plan.order:
            keys += self._key(key, frame)
        return keys

    def _key(self, key: ir.SortKey, frame: Rows | Groups) -> list[np.ndarray]:
        coded = _is_coded(key.value) if isinstance(frame, Rows) else key.value in frame.keys
        if not coded:
            values = self._value(key.value, frame)
            if is_sortable(values.type):
                return keys_of_values(values, descending=key.descending)
        codes = self._codes(key.value, frame)
        return keys_of_codes(codes.of_rows, descending=key.descending)

    def _codes(self, expr: ir.Expr, frame: Rows | Groups) -> Codes:
        if isinstance(frame, Rows):
            return codes_of(expr, frame, self.evaluator, self.cache)
        return frame.keys.get(expr) or encoded(self._value(expr, frame))

    def _value(self, expr: ir.Expr, frame: Rows | Groups) -> pa.Array:
        if isinstance(frame, Rows):
            return self.evaluator.values(expr, frame)
        if expr in frame.keys:
            return self.evaluator.values(expr, frame.examples)
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
