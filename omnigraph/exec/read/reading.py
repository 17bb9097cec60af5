"""Query entry point of one open graph: from a plan, parameters and a snapshot to a result.

Invariant: a query sees the one snapshot it was given, whatever it shares with others: a view of
that snapshot for an epoch of the cache, and its prepared plan. A plan whose result was small before
runs in the caller's thread; everything that may take longer runs under guard.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa

from omnigraph import environment
from omnigraph.costs import COSTS
from omnigraph.deferred import deferred
from omnigraph.errors import LimitExceeded, StorageFailed
from omnigraph.exec.allocator import keep_large_blocks
from omnigraph.exec.limits import Limits, Stop, Watch, watched_by
from omnigraph.exec.memory.view import Holdings, TablesView
from omnigraph.exec.profile import Figures
from omnigraph.exec.read import guard
from omnigraph.exec.read.context import Context, TraversalMode
from omnigraph.exec.read.files_needed import leave_files
from omnigraph.exec.read.prepare import PreparedPlan, prepare
from omnigraph.exec.read.result import QueryResult, plain_columns
from omnigraph.exec.read.run import Run
from omnigraph.exec.read.share import Share, ShareResult
from omnigraph.exec.read.union import united
from omnigraph.exec.search.rank import Ranker
from omnigraph.exec.values.computed import cut_plan, given_of
from omnigraph.exec.values.constants import Given
from omnigraph.exec.values.evaluate import Evaluator
from omnigraph.plan import ir
from omnigraph.storage.derived.mapped_file import DamagedFile
from omnigraph.storage.records import Snapshot
from omnigraph.storage.store import Store

if TYPE_CHECKING:
    from omnigraph.exec.search import embed
    from omnigraph.exec.search.vector_fill import TextVectors
else:
    embed = deferred("omnigraph.exec.search", "embed")

Done = TypeVar("Done")

_COLUMN_BYTES_MAX = (1 << 31) - 1


class Reading:
    """The read side of one open graph: its resident tables, its views and its limits."""

    def __init__(self, store: Store, limits: Limits | None = None) -> None:
        self.limits = limits or Limits.from_environment()
        self.holdings = Holdings(store, self.limits.cache_bytes_max)
        self.embedder: embed.Provider | None = None
        self.text_vectors: TextVectors | None = None  # that writes made
        self.few_rows_max = COSTS.few_rows_max
        self._history = store.history
        self._prepared: dict[int, PreparedPlan] = {}
        self._parts = 0  # of the plans in it
        self._large: PreparedPlan | None = None  # the last one
        self._views: dict[tuple[str, str], TablesView] = {}
        self._epoch = 0

    def run(
        self,
        plan: ir.ReadPlan,
        params: Mapping[str, ir.Constant],
        snapshot: Snapshot,
        stop: Stop | None = None,
        started: float | None = None,
    ) -> QueryResult:
        """Return the rows of a plan in one snapshot. The deadline counts from `started`
        (`time.perf_counter`), by default from now."""
        watch = Watch(self.limits, stop, started)
        with watched_by(watch):
            given = given_of(plan, params, now_ms())
            if plan.union is None:
                return self._read(plan, given, snapshot, stop, watch.started)
            parts = plan.union.parts
            results = [self._read(part, given, snapshot, stop, watch.started) for part in parts]
            return united(plan, results)

    def rows_of(self, plan: ir.ReadPlan, given: Given, snapshot: Snapshot) -> QueryResult:
        """The rows of a plan that is part of a request whose values are known."""
        return self._read(plan, given, snapshot, None)

    def _read(
        self,
        plan: ir.ReadPlan,
        given: Given,
        snapshot: Snapshot,
        stop: Stop | None,
        started: float | None = None,
    ) -> QueryResult:
        asked = cut_plan(plan, given)
        result = self._looked_up(asked, given, snapshot, stop)
        if result is not None:
            return result
        with self._history.lost.reading(snapshot):
            return self._undamaged(lambda: self._ran(asked, given, snapshot, stop, started))

    def _ran(
        self,
        plan: ir.ReadPlan,
        given: Given,
        snapshot: Snapshot,
        stop: Stop | None,
        started: float | None,
    ) -> QueryResult:
        running = self._running(plan, given, snapshot, stop=stop, started=started)
        tables = running.context.tables
        if running.prepared in tables.small:
            with watched_by(running.context.watch), _typed_overflow(running.context.watch):
                small = running.small()
            if small is not None:
                if running.prepared.lookup is not None:
                    running.prepared.lookup.bind(tables)
                return small
        keep_large_blocks()
        with _typed_overflow(running.context.watch):
            return guard.run(running.context.watch, running.result)

    def _looked_up(
        self, plan: ir.ReadPlan, given: Given, snapshot: Snapshot, stop: Stop | None
    ) -> QueryResult | None:
        """The result of a point lookup whose values are mapped."""
        prepared = self._prepare(plan)
        lookup = prepared.lookup
        if lookup is None or not self.few_rows_max or (stop is not None and stop.is_cancelled):
            return None
        try:
            row = lookup.row(self._view(snapshot), given)
        except DamagedFile as damaged:
            self.close()
            self.holdings.store.derived.reject(damaged)
            return None
        if row is None:
            return None
        values, length, profile = row
        return QueryResult(
            list(prepared.names),
            snapshot.commit_id,
            prepared.types,
            values,
            length,
            plan,
            profile,
            _object_columns=plan.object_columns,
        )

    def answer(self, plan: ir.ReadPlan, given: Given, snapshot: Snapshot) -> ShareResult:
        """The result of a plan as one share, which has all its rows."""

        def answered() -> ShareResult:
            running = self._running(plan, given, snapshot)
            result = guard.run(running.context.watch, running.result)
            return ShareResult(len(result), plain_columns(result), running.profile.figures(plan))

        with self._history.lost.reading(snapshot):
            return self._undamaged(answered)

    def parts(
        self,
        plan: ir.ReadPlan,
        given: Given,
        snapshot: Snapshot,
        share: Share,
        ended: Callable[[Figures], None],
    ) -> Iterator[pa.Table]:
        """What one share of a plan in two parts gives, in tables of bounded size, and the figures
        of its run. A damaged file is left out from the next attempt on."""
        keep_large_blocks()
        with self._history.lost.reading(snapshot):
            running = self._running(plan, given, snapshot)
            parts = running.parts(share)
            try:
                while True:
                    with watched_by(running.context.watch):
                        part = next(parts, None)
                    if part is None:
                        break
                    yield part
            except DamagedFile as damaged:
                self.close()
                self.holdings.store.derived.reject(damaged)
                raise StorageFailed(
                    f"read a share of query '{plan.name}'", str(damaged)
                ) from damaged
            ended(running.profile.figures(plan))

    def leave_files(self, plan: ir.ReadPlan, snapshot: Snapshot) -> None:
        """Make the topology and column files that other processes are about to map, where this one
        may write them."""
        view = self._view(snapshot)
        with self._history.lost.reading(snapshot), watched_by(Watch(self.limits)):
            self._undamaged(lambda: leave_files(view, plan, self._prepare(plan).columns_read))

    def _undamaged(self, attempt: Callable[[], Done]) -> Done:
        """The result of an attempt; of another without each derived file that proves damaged."""
        while True:
            try:
                return attempt()
            except DamagedFile as damaged:
                self.close()
                self.holdings.store.derived.reject(damaged)

    def starts_at_points(self, plan: ir.ReadPlan) -> bool:
        """Whether a plan begins with a point lookup, whose nodes are too few to share out."""
        return self._prepare(plan).walk is not None

    def _running(
        self,
        plan: ir.ReadPlan,
        given: Given,
        snapshot: Snapshot,
        *,
        stop: Stop | None = None,
        started: float | None = None,
    ) -> Run:
        tables = self._view(snapshot)
        ranker = Ranker(tables, given, self.embedder)
        ranker.require_provider(plan.scores)
        prepared = self._prepare(plan)
        context = Context(
            tables,
            Evaluator(given, ranker.text_matches),
            Watch(self.limits, stop, started),
            TraversalMode(environment.TRAVERSAL.read()),
            environment.FRONTIER.read(),
            prepared.columns_read,
            self.limits.batch_rows_max,
        )
        return Run(prepared, context, ranker, self.few_rows_max)

    def _view(self, snapshot: Snapshot) -> TablesView:
        """The tables of a snapshot, shared with earlier queries of the same one."""
        key, epoch = (snapshot.branch, snapshot.commit_id), self.holdings.cache.epoch
        if epoch != self._epoch or len(self._views) > COSTS.views_max:
            self._views.clear()  # they may keep evicted entries alive
            self._epoch = epoch
        view = self._views.get(key)
        if view is None or (view.snapshot is not snapshot and view.snapshot != snapshot):
            view = self._views[key] = TablesView(self.holdings, snapshot)
        return view

    def _prepare(self, plan: ir.ReadPlan) -> PreparedPlan:
        """The prepared plan, cached by identity: hashing a plan takes longer than a lookup may."""
        known = self._prepared.get(id(plan), self._large)
        if known is None or known.plan is not plan:
            known = prepare(plan)
            if known.is_large:
                self._large = known
                return known
            self._parts += known.size
            is_full = len(self._prepared) >= COSTS.prepared_plans_max
            if is_full or self._parts > COSTS.prepared_parts_max:
                self._prepared.clear()
                self._parts = known.size
            self._prepared[id(plan)] = known
        return known

    def close(self) -> None:
        """Empty the cache."""
        self._views.clear()
        self.holdings.clear()


@contextmanager
def _typed_overflow(watch: Watch) -> Iterator[None]:
    """Turn an array beyond what Arrow can address or allocate into `LimitExceeded`."""
    try:
        yield
    except (pa.ArrowInvalid, pa.ArrowCapacityError, MemoryError) as cause:
        if isinstance(cause, pa.ArrowInvalid) and "overflow" not in str(cause):
            raise
        raise LimitExceeded(
            f"bytes of one column at `{watch.where}`",
            _COLUMN_BYTES_MAX + 1,
            _COLUMN_BYTES_MAX,
            "narrow the pattern before this operator, or return fewer or shorter texts",
        ) from cause


def now_ms() -> int:
    """The moment of a request."""
    return time.time_ns() // 1_000_000
