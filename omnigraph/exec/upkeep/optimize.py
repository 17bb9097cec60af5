"""Optimize: compaction of fragments, indexes over all rows, a folded manifest.

    plan ─▶ tasks, without a lock ─▶ stage on the newest versions ─▶ one commit ─▶ the manifest

Invariant: no row changes and no version is removed. One run is one commit, or none when every table
was in order. Writers go on meanwhile: appends cost no repetition, and a table that is rewritten
again and again meanwhile is reported as skipped.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from omnigraph import environment
from omnigraph.catalog.indexes import IndexNote
from omnigraph.catalog.model import Catalog
from omnigraph.errors import OmnigraphError, RecoveryRequired, VersionMismatch
from omnigraph.exec.progress import OnUpkeepProgress, UpkeepProgress
from omnigraph.exec.search.schema_indexes import SchemaIndex, by_table, schema_indexes
from omnigraph.exec.threads import in_order
from omnigraph.exec.topology.build import TopologyNote, topology_after
from omnigraph.exec.upkeep.build_indexes import requests_after_load, requests_of
from omnigraph.storage.manifest.state import LOCATION as MANIFEST
from omnigraph.storage.names import MAIN, owner_of
from omnigraph.storage.protocol.intent import WriterKind
from omnigraph.storage.protocol.write import Write
from omnigraph.storage.records import NO_NOTE, CommitNote, TablePin, base_of
from omnigraph.storage.retry import HEAD_READ, OPTIMIZE, retried
from omnigraph.storage.store import Store
from omnigraph.storage.upkeep.compaction import Outcome, TableDone, TablePlan, Task
from omnigraph.storage.upkeep.drift import Drift
from omnigraph.types import TableKey

_ROUNDS = 3
"""Attempts for a table whose fragments changed meanwhile."""


class _Moved(Exception):
    """A table moved between the look at its fragments and the staging of their compaction."""


Run = Callable[[Sequence[Task]], Sequence[Outcome]]


@dataclass(frozen=True, slots=True)
class TableReport:
    """Result for one table, or the reason it was skipped."""

    table: str
    rows: int
    fragments_before: int
    fragments_after: int
    built: tuple[IndexNote, ...] = ()
    pending: tuple[IndexNote, ...] = ()
    skipped: str | None = None
    committed: bool = False
    published_version: int = 0
    head_version: int = 0
    fragments_removed: int = 0
    fragments_added: int = 0


@dataclass(frozen=True, slots=True)
class OptimizeReport:
    """Result of a run. `commit_id` is None when every table was in order.

    >>> sorted(table.table for table in graph.optimize().tables)[:1]
    ['__manifest']
    """

    branch: str
    tables: tuple[TableReport, ...]
    commit_id: str | None
    engine: str
    topology: tuple[TopologyNote, ...] = ()  # the files that were written


@dataclass(slots=True)
class _Table:
    """State of one table during a run."""

    indexes: tuple[SchemaIndex, ...]
    report: TableReport
    done: TableDone | None = None
    rounds: int = 0


@dataclass(slots=True)
class Optimizer:
    """One run over one branch. `run` runs tasks elsewhere, None in threads of this process; `parts`
    is the number of tasks that share one index segment; `loaded` are the tables of a load, whose
    indexes alone are built."""

    store: Store
    catalog: Catalog
    branch: str = MAIN
    note: CommitNote = NO_NOTE
    progress: OnUpkeepProgress | None = None
    run: Run | None = None
    parts: int = 1
    engine: str = "local"
    loaded: frozenset[TableKey] | None = None
    _tables: dict[TableKey, _Table] = field(default_factory=dict)

    def optimize(self) -> OptimizeReport:
        """Compact and index every table of the branch, and fold its manifest."""
        with self.store.upkeep():
            return _begun_again(self.store, self.catalog, self.branch, self._optimized)

    def index_loaded(self) -> OptimizeReport:
        """Build and extend the indexes of the tables of a load, as a commit of the index writer."""
        return _begun_again(self.store, self.catalog, self.branch, self._indexed)

    def _indexed(self) -> OptimizeReport:
        self._look()
        self._work([key for key, table in self._tables.items() if table.report.skipped is None])
        commit_id = self._commit()
        reports = tuple(table.report for table in self._tables.values())
        return OptimizeReport(self.branch, reports, commit_id, self.engine)

    def _optimized(self) -> OptimizeReport:
        self.store.heal()  # an unrecoverable sidecar stops the run here
        self._look()
        self._work([key for key, table in self._tables.items() if table.report.skipped is None])
        commit_id = self._commit()
        reports = [self._final(key, table) for key, table in self._tables.items()]
        moved = frozenset(
            key
            for key, table in self._tables.items()
            if table.report.committed and table.done is not None and table.done.plan.moves_many
        )
        topology = topology_after(self.store, self.catalog, self.branch, moved=moved)
        tables = (*reports, self._manifest())
        return OptimizeReport(self.branch, tables, commit_id, self.engine, topology)

    # Looking

    def _look(self) -> None:
        for key in self._tables:
            self._drop(key)
        self._tables.clear()
        snapshot = self.store.snapshot(self.branch)
        indexes = dict(by_table(schema_indexes(self.catalog)))
        for key, pin in sorted(snapshot.tables.items()):
            if self.loaded is not None and key not in self.loaded:
                continue
            report = TableReport(key, pin.row_count, 0, 0, skipped=self._why_not(key, pin))
            self._tables[key] = _Table(tuple(indexes.get(key, ())), report)

    def _why_not(self, key: TableKey, pin: TablePin) -> str | None:
        if pin.branch != owner_of(self.branch):
            return f"inherited from {pin.branch or MAIN} and never written on {self.branch}"
        drift = retried(OPTIMIZE, lambda losses: self._drift(key, losses), lost=(RecoveryRequired,))
        if drift is None:
            return None
        where = "behind" if drift.is_behind else "ahead of"
        way_out = "omnigraph check" if drift.is_behind else "omnigraph repair"
        return (
            f"uncovered drift: its head {drift.head} is {where} the published version "
            f"{drift.pin.version}; run `{way_out}`"
        )

    def _drift(self, key: TableKey, losses: int) -> Drift | None:
        """The drift of a table. A dead writer's sidecar cannot be settled while a live writer has
        the same table locked, so it may be there after the first heal: heal and look again."""
        if losses:
            self.store.heal()
        return self.store.drifts.of(self.branch, key)

    # Working

    def _work(self, keys: Sequence[TableKey]) -> None:
        """Plan these tables and run their tasks, all together."""
        snapshot = self.store.snapshot(self.branch)
        plans = {key: self._plan(key, snapshot.tables[key]) for key in keys}
        plans = {key: plan for key, plan in plans.items() if not plan.is_empty}
        tasks = {key: plan.tasks(parts=self.parts) for key, plan in plans.items()}
        outcomes = iter(self._run([task for each in tasks.values() for task in each]))
        for key, plan in plans.items():
            got = [next(outcomes) for _ in tasks[key]]
            self._tables[key].done = self.store.compactor.gather(plan, tasks[key], got)

    def _plan(self, key: TableKey, pin: TablePin) -> TablePlan:
        table = self._tables[key]
        is_load = self.loaded is not None
        asked = requests_after_load if is_load else requests_of
        requests, pending = asked(self.store.tables.reader(pin), table.indexes)
        base = base_of(pin, owner_of(self.branch))
        plan = self.store.compactor.plan(base, requests, compacts=not is_load)
        built = {segment.request.name for segment in plan.indexes.segments}
        table.report = replace(
            table.report,
            rows=pin.row_count,
            fragments_before=plan.fragments,
            fragments_after=plan.fragments,
            built=tuple(
                IndexNote(w.table, w.column, w.kind) for w in table.indexes if w.name in built
            ),
            pending=tuple(pending),
        )
        return plan

    def _run(self, tasks: Sequence[Task]) -> Sequence[Outcome]:
        if not tasks:
            return []
        if self.run is not None:
            self._tell("tasks", 0, len(tasks))
            outcomes = self.run(tasks)
            self._tell("tasks", len(tasks), len(tasks))
            return outcomes
        return list(self._run_here(tasks))

    def _run_here(self, tasks: Sequence[Task]) -> Iterable[Outcome]:
        outcomes = in_order(
            self.store.compactor.run, tasks, threads=environment.MAINTENANCE_CONCURRENCY.read()
        )
        for number, outcome in enumerate(outcomes, start=1):
            self._tell("tasks", number, len(tasks), tasks[number - 1].base.table_key)
            yield outcome

    # Committing

    def _commit(self) -> str | None:
        """Stage the results on the newest versions and publish one commit."""
        try:
            return retried(OPTIMIZE, self._commit_once, lost=(_Moved,))
        except (VersionMismatch, _Moved):
            self._give_up(key for key, table in self._tables.items() if table.done)
            return None

    def _commit_once(self, losses: int) -> str | None:
        self._again()
        write = self.store.begin(
            self.branch,
            kind=WriterKind.OPTIMIZE if self.loaded is None else WriterKind.ENSURE_INDICES,
            **self.note.stated,
            schema=self.catalog.schema_id,
        )
        if not self._stage(write):
            if any(table.done for table in self._tables.values()):
                raise _Moved
            return None
        commit = self.store.commit(write)
        for table in self._tables.values():
            removed, added = table.done.counts if table.done else (0, 0)
            table.report = replace(
                table.report,
                committed=table.done is not None,
                fragments_removed=removed,
                fragments_added=added,
            )
        return commit.id

    def _again(self) -> None:
        """Redo tables whose fragments changed meanwhile, or skip them after too many rounds."""
        snapshot = self.store.snapshot(self.branch)
        moved = [
            key
            for key, table in self._tables.items()
            if table.done and not _holds(self.store, table.done, snapshot.tables.get(key))
        ]
        for key in moved:
            self._drop(key)
            self._tables[key].rounds += 1
        self._give_up(key for key in moved if self._tables[key].rounds >= _ROUNDS)
        left = [key for key in moved if self._tables[key].report.skipped is None]
        self._work([key for key in left if key in snapshot.tables])

    def _give_up(self, keys: Iterable[TableKey]) -> None:
        for key in keys:
            self._drop(key)
            table = self._tables[key]
            reason = "it was written all the time meanwhile; run optimize again"
            table.report = replace(table.report, built=(), skipped=reason)

    def _drop(self, key: TableKey) -> None:
        """Let go of what was done for a table, its files included."""
        done, self._tables[key].done = self._tables[key].done, None
        if done is not None:
            self.store.compactor.drop(done)

    def _stage(self, write: Write) -> bool:
        """Stage every finished table; False when one has moved since."""
        ready = {key: table.done for key, table in self._tables.items() if table.done}
        for key, done in ready.items():
            now = write.base(key)
            if not self.store.compactor.holds(done, now):
                return False
            staged, steps = self.store.compactor.stage(done, now)
            write.upkeep(staged, *steps)
        return bool(ready)

    # Reporting

    def _final(self, key: TableKey, table: _Table) -> TableReport:
        pin = self.store.snapshot(self.branch).tables.get(key)
        if pin is None:
            return table.report
        drifted = table.report.skipped is not None and "drift" in table.report.skipped
        head = self.store.drifts.head(pin) if drifted else pin.version
        fragments = self.store.tables.reader(pin).fragment_count()
        before = table.report.fragments_before or fragments
        return replace(
            table.report,
            fragments_before=before,
            fragments_after=fragments,
            published_version=pin.version,
            head_version=head,
        )

    def _manifest(self) -> TableReport:
        try:
            before, removed, added = self.store.optimize_manifest(self.branch)
        except OmnigraphError as cause:  # the tables are published: folding waits for the next run
            return TableReport(MANIFEST, 0, 0, 0, skipped=str(cause))
        snapshot = self.store.snapshot(self.branch)
        self._tell("manifest", 1, 1, MANIFEST)
        return TableReport(
            MANIFEST,
            0,
            before,
            before - removed + added,
            committed=removed > 0,
            published_version=snapshot.manifest_version,
            head_version=snapshot.manifest_version,
            fragments_removed=removed,
            fragments_added=added,
        )

    def _tell(self, stage: str, done: int, total: int, table: str = "") -> None:
        if self.progress is not None:
            self.progress(UpkeepProgress(stage, done, total, table))


def _holds(store: Store, done: TableDone, now: TablePin | None) -> bool:
    return now is not None and store.compactor.holds(done, now)


def _begun_again(
    store: Store, catalog: Catalog, branch: str, work: Callable[[], OptimizeReport]
) -> OptimizeReport:
    """Run from the start when what it read was cleaned up meanwhile. Under another schema the
    caller does so, with other indexes."""

    def counts(loss: Exception) -> bool:
        return store.snapshot(branch).schema == catalog.schema_id

    return retried(HEAD_READ, lambda losses: work(), counts=counts)
