"""Query executor: run the operators of a read plan against a snapshot.

    pattern ─▶ scores ─▶ groups | rows ─▶ distinct ─▶ order, cut ─▶ columns
    rows of              one value         which         which,       Arrow
    positions            a group           rows          in order     arrays

Invariant: late materialisation. The pattern moves positions, order and groups move codes, and
values are gathered for the rows that remain. A pattern with more rows than are held at once is
solved in batches, whose columns are added up as they come.
"""

from collections.abc import Iterator
from itertools import chain
from time import perf_counter
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from omnigraph.deferred import deferred
from omnigraph.exec.profile import Profile
from omnigraph.exec.read.added_up import AddedUp
from omnigraph.exec.read.aggregate import Groups, aggregate
from omnigraph.exec.read.batches import Batches
from omnigraph.exec.read.context import Context, TraversalMode, domains_of, load_columns
from omnigraph.exec.read.prepare import PreparedPlan
from omnigraph.exec.read.project import Projector
from omnigraph.exec.read.result import PythonColumn, QueryResult
from omnigraph.exec.read.scan import counted, scan_share
from omnigraph.exec.read.share import Share, put_together
from omnigraph.exec.read.walk import Walk
from omnigraph.exec.read.walk_result import Tail
from omnigraph.exec.read.walk_rows import CellReader, Frame
from omnigraph.exec.read.weighing import Weighing
from omnigraph.exec.search.rank import Ranker, TopK
from omnigraph.exec.values.rows import ONE_ROW, Rows
from omnigraph.plan import ir

if TYPE_CHECKING:
    from omnigraph.plan.shares import Shares
else:
    Shares = deferred("omnigraph.plan.shares", "Shares")

_Walked = tuple[QueryResult | None, tuple[ir.PatternOp, ...], Rows]
"""A small result; or the operators that are left, and the rows they go on from."""


class Run:
    """One run of one plan."""

    def __init__(
        self,
        prepared: PreparedPlan,
        context: Context,
        ranker: Ranker,
        few_rows_max: int,
    ) -> None:
        self.prepared = prepared
        self.plan = prepared.plan
        self.few_rows_max = few_rows_max
        self.context = context
        self.evaluator = context.evaluator
        self.cache = context.tables.holdings.cache
        self.ranker = ranker
        self.profile = Profile()
        self._weighed = Weighing(prepared, context, Batches(context, ranker, self.profile)).batches
        self._walk: _Walked | None = None

    def small(self) -> QueryResult | None:
        """The result, if it is small as it was before and everything it needs is resident."""
        self._walk = self._walked()
        return self._walk[0]

    def result(self) -> QueryResult:
        """The result, however long it takes."""
        group = self._counted()
        if group is not None:
            return self._finished(group, perf_counter())
        small, ops, rows = self._walk or self._walked()
        if small is not None:
            if not self.prepared.embeds and not self.prepared.is_large:
                self.context.tables.small.add(self.prepared)
            return small
        return self._tabled(ops, rows)

    def gathered(self, shares: Shares, rows: Rows, since: float) -> QueryResult:
        """The result, from the slots that all shares or batches of a plan filled."""
        plan = shares.gathered
        self.context.watch.operator = "gather"
        for _ in self.plan.scores:
            self.profile.stage(rows.length, 0.0)
        merged: Rows | Groups = rows
        if plan.aggregate is not None:
            groups = aggregate(plan.aggregate, rows, self.evaluator, self.cache)
            merged = put_together(shares, groups)
            self.profile.stage(merged.length, perf_counter() - since)
        projector = Projector(plan, self.context)
        return self._result(*projector.project(merged, self.profile, perf_counter()))

    def _shared(self, share: Share) -> Rows:
        """The nodes of the first scan that belong to a share."""
        first, since = self.plan.pattern[0], perf_counter()
        assert isinstance(first, ir.NodeScan)
        self.context.watch.operator = first
        rows = scan_share(self.context, first, share)
        self.profile.operator(first, rows.length, since)
        return rows

    def parts(self, share: Share) -> Iterator[pa.Table]:
        """What a share gives: columns of the first part of a plan in two parts, in several tables
        of bounded size, and at least one."""
        shares = self.prepared.shares
        assert shares is not None
        added, is_first = AddedUp(shares, self.context, self.prepared.columns_shown), True
        ops, start = self.plan.pattern, ONE_ROW
        if share.of > 1:
            ops, start = ops[1:], self._shared(share)
        for rows, weights in self._weighed(ops, start):
            added.add(self._scored(rows, Profile()), weights)
            if added.is_full:
                yield added.taken()
                is_first = False
        if is_first or not added.is_empty:
            yield added.taken()

    def _tabled(self, ops: tuple[ir.PatternOp, ...], rows: Rows) -> QueryResult:
        """The result of the operators that are left: of all rows at once where they are few, else
        added up batch by batch."""
        batches = self._weighed(ops, rows)
        first, second = next(batches), next(batches, None)
        if second is None:
            return self._at_once(*first)
        shares = self.prepared.shares
        assert shares is not None
        added, since = AddedUp(shares, self.context, self.prepared.columns_shown), perf_counter()
        for rows, weights in chain((first, second), batches):
            added.add(self._scored(rows, Profile()), weights)
        return self.gathered(shares, added.slots(), since)

    def _at_once(self, rows: Rows, weights: np.ndarray | None) -> QueryResult:
        plan = self.plan
        if plan.aggregate is None:
            return self._finished(self._scored(rows, self.profile), perf_counter())
        rows, since = self._scored(rows, self.profile), perf_counter()
        self._load(rows)
        self.context.watch.operator = "group by"
        groups = aggregate(plan.aggregate, rows, self.evaluator, self.cache, weights)
        self.profile.stage(groups.length, perf_counter() - since)
        return self._finished(groups, perf_counter())

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

    def _walked(self) -> _Walked:
        """The result, if a walk makes all of it; otherwise the operators that are left, and the
        rows they go on from."""
        pattern, prepared = self.plan.pattern, self.prepared
        if prepared.walk is None or not self.few_rows_max:
            return None, pattern, ONE_ROW
        if self.context.mode is TraversalMode.INDEXED:
            return None, pattern, ONE_ROW
        walk = Walk(self.context, self.few_rows_max)
        done, frame = prepared.walk.run(walk, self.profile)
        if frame is None:
            return None, pattern, ONE_ROW
        if done == len(pattern) and prepared.counts:
            return self._totalled(frame.length), (), ONE_ROW
        small = None
        if done == len(pattern) and prepared.tail is not None:
            small = self._small(prepared.tail, frame, walk.reader)
        return small, pattern[done:], frame.rows() if small is None else ONE_ROW

    def _small(self, tail: Tail, frame: Frame, reader: CellReader) -> QueryResult | None:
        """The result of a few rows, unless the operators must rank them."""
        plan, watch, since = self.plan, self.context.watch, perf_counter()
        watch.operator = "score"
        scored = tail.scored(frame, self.ranker)
        if scored is None:
            return None
        frame, slots = scored
        load_columns(self.prepared.columns_shown, frame.domains)
        watch.tick()
        for _ in plan.scores:
            self.profile.stage(frame.length, (perf_counter() - since) / len(plan.scores))
        since = perf_counter()
        watch.operator = "project"
        chosen = tail.ordered_rows(frame, slots, reader)
        sorted_at = perf_counter()
        values = tail.columns(chosen, frame, slots, reader)
        self.profile.stage(len(chosen), perf_counter() - sorted_at)
        if plan.order:
            self.profile.stage(frame.length, sorted_at - since)
        if plan.limit is not None or plan.offset:
            self.profile.stage(len(chosen), 0.0)
        return self._result(values, len(chosen))

    def _totalled(self, count: int) -> QueryResult:
        """The one row of a plan that only counts."""
        self.profile.stage(1, 0.0)
        self.profile.stage(1, 0.0)
        return self._result(tuple(PythonColumn([count]) for _ in self.plan.columns), 1)

    def _scored(self, rows: Rows, profile: Profile) -> Rows:
        for score in self.plan.scores:
            since = perf_counter()
            self.context.watch.operator = "score"
            rows = self.ranker.score(score, rows, self._wanted_of(score))
            profile.stage(rows.length, perf_counter() - since)
            self.context.watch.tick()
        return rows

    def _wanted_of(self, score: ir.Score) -> TopK | None:
        """How many of the best entities a cut can show: each has at least one row."""
        plan = self.plan
        if not score.required or plan.limit is None or plan.aggregate or plan.distinct:
            return None
        first = plan.order[0].value if plan.order else None
        if not isinstance(first, ir.SlotRef) or first.slot != score.out:
            return None
        return TopK(plan.limit + plan.offset, _ties_by_id(score, plan.order[1:2]))

    # The result

    def _finished(self, rows: Rows | Groups, since: float) -> QueryResult:
        if isinstance(rows, Rows):
            self._load(rows)
        projector = Projector(self.plan, self.context)
        return self._result(*projector.project(rows, self.profile, since))

    def _load(self, rows: Rows) -> None:
        load_columns(self.prepared.columns_shown, domains_of(rows))

    def _result(self, values: tuple[pa.Array | PythonColumn, ...], length: int) -> QueryResult:
        return QueryResult(
            list(self.prepared.names),
            self.context.tables.snapshot.commit_id,
            self.prepared.types,
            values,
            length,
            self.plan,
            self.profile,
            _object_columns=self.plan.object_columns,
        )


def _ties_by_id(score: ir.Score, then: tuple[ir.SortKey, ...]) -> bool:
    """Whether entities that tie in a score are next ordered by their ids, as rankings are."""
    if isinstance(score.ranking, ir.Rrf) or not then or then[0].descending:
        return False
    value = then[0].value
    return isinstance(value, ir.EntityId) and value.var == score.ranking.column.var
