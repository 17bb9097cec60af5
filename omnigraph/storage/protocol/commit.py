"""The commit protocol: make a write to many tables visible as one commit.

    stage ─▶ write_sidecar ─▶ commit_staged ─▶ publish ─▶ delete_sidecar
    files    durable note     table heads      manifest   note gone
    only     (phase A)        (phase B)        (phase C)  (phase D)

Invariant: before `publish` no reader sees the write; after `write_sidecar` no crash loses track of
it. Whichever arrow a crash lands on, `recover` leaves the graph before the write or after it. The
locks of every table the write touches or relies on are held from before phase A to after phase D,
so a base that was checked under them cannot move until the write is done.

Where commits are flushed (`flushing`), a barrier stands at each arrow that a power cut must not
reorder: staged files and the note before a head moves; the versions of the tables before the
confirmation and before the publish, with the publish's own files; the published version, and the
schema files that changed with it, before the commit is acknowledged.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import field
from functools import partial
from typing import Protocol

from omnigraph.errors import (
    Conflict,
    NotFound,
    OmnigraphError,
    RecoveryRequired,
    StorageFailed,
    VersionMismatch,
    unpublished,
)
from omnigraph.light_dataclass import dataclass
from omnigraph.storage import failpoints
from omnigraph.storage.flushing import Flusher
from omnigraph.storage.lance.datasets import CommitRaced, VersionTaken
from omnigraph.storage.lance.parallel import in_turn, together
from omnigraph.storage.lance.staging import StagedWrite
from omnigraph.storage.lance.strict_commit import now_s
from omnigraph.storage.lance.tables import Tables
from omnigraph.storage.locks.locks import LOCK_WAIT_S, Guard, Kept, Locks, hold
from omnigraph.storage.locks.turns import Turn
from omnigraph.storage.manifest.branches import BRANCHES_LOCK
from omnigraph.storage.manifest.manifest import Manifest
from omnigraph.storage.manifest.publish import Publisher
from omnigraph.storage.manifest.queries import Queries
from omnigraph.storage.manifest.state import State, crowd_lock, publish_lock
from omnigraph.storage.names import MAIN, lock_name, owner_of
from omnigraph.storage.protocol.auto_compaction import Folding
from omnigraph.storage.protocol.intent import AlreadyMarked, Intent, change_of
from omnigraph.storage.protocol.promote import Promotions
from omnigraph.storage.protocol.reclaim import Reclaims
from omnigraph.storage.protocol.sidecars import Sidecar, Sidecars, SidecarTable
from omnigraph.storage.records import (
    Commit,
    CommitId,
    OperationId,
    SchemaId,
    TablePin,
    WriteBase,
)
from omnigraph.storage.stats import Stats
from omnigraph.types import TableKey

Step = Callable[[WriteBase], StagedWrite | WriteBase | None]
"""A further version of a table, staged once the one before it is its head. A pin is what Lance has
committed by itself."""


@dataclass(frozen=True, slots=True)
class TableWrite:
    """What a write does to one table: one staged version, and rarely more after it. `is_own` says
    that its rows were written for this attempt alone, and nobody stages them again."""

    staged: StagedWrite
    then: tuple[Step, ...] = ()
    is_own: bool = False


@dataclass(frozen=True, slots=True)
class Prepared:
    """A write with everything decided and nothing durable but unreferenced files: its intent, its
    staged tables, and what it relied on."""

    intent: Intent
    writes: tuple[TableWrite, ...]
    expected_head: CommitId | None = None
    relied_on: Mapping[TableKey, TablePin] = field(default_factory=dict)
    base_schema: SchemaId | None = None
    files: Mapping[str, bytes] = field(default_factory=dict)
    forks: bool = False
    """Whether it is the first write of a branch to one of its tables. No other writer of the branch
    keeps that table's lock, so deleting the branch waits for the publish lock."""

    @property
    def expected_table_versions(self) -> dict[TableKey, int]:
        """The versions of written and relied-on tables that this write is valid for."""
        written = {w.staged.table_key: w.staged.base.version for w in self.writes}
        dropped = {stone.table_key: stone.version for stone in self.intent.tombstones}
        relied_on = {key: pin.version for key, pin in self.relied_on.items()}
        return {**relied_on, **dropped, **written}

    @property
    def changes_rows_alone(self) -> bool:
        """True for a write that stays valid under another schema as long as its own tables stand
        still: a schema change moves the head of every table whose type it touches."""
        return (
            self.intent.branch == MAIN
            and not self.is_serial
            and not self.intent.new_tables
            and not self.intent.tombstones
            and not self.files
        )

    @property
    def is_serial(self) -> bool:
        """Whether the branch head must stand still from the check to the publish."""
        return (
            self.expected_head is not None
            or self.intent.mark is not None
            or not self.writes
            or self.forks
            or self.intent.schema is not None
        )


class Heal(Protocol):
    """Settles what dead writers left."""

    def __call__(self, *, kept: Kept) -> Sequence[OperationId]:
        """The operations that stay unsettled beside the locks that the caller holds."""


class HeadAhead(Exception):
    """A table head ran ahead of the manifest: somebody stopped half-way. `alive` are the operations
    that could not be settled under the locks of the write which met it."""

    def __init__(self, table_key: TableKey, pinned: int, head: int) -> None:
        super().__init__(f"{table_key} is at version {head}, published is {pinned}")
        self.table_key, self.pinned, self.head = table_key, pinned, head
        self.alive: Sequence[OperationId] = ()


class Committer:
    """Walks one `Prepared` write through the protocol. Keeps nothing between writes."""

    def __init__(
        self,
        tables: Tables,
        manifest: Manifest,
        queries: Queries,
        publisher: Publisher,
        sidecars: Sidecars,
        locks: Locks,
        folding: Folding,
        promotions: Promotions,
        reclaims: Reclaims,
        flusher: Flusher,
        stats: Stats,
        heal: Heal,
        *,
        wait_s: float = LOCK_WAIT_S,
    ) -> None:
        self._tables = tables
        self._manifest = manifest
        self._queries = queries
        self._publisher = publisher
        self._sidecars = sidecars
        self._locks = locks
        self._folding = folding
        self._promotions = promotions
        self._reclaims = reclaims
        self._flusher = flusher
        self._stats = stats
        self._heal = heal
        self._wait_s = wait_s

    def commit(self, prepared: Prepared, turn: Turn) -> tuple[Commit, bool]:
        """Publish, or raise: a `Conflict` before anything is durable, `RecoveryRequired` after. The
        commit, and whether it took several versions of a table."""
        names = lock_names(prepared)
        # Of two writers that need one lock each none keeps what the other needs.
        turn.takes((*names, crowd_lock(prepared.intent.branch)) if len(names) > 1 else names)
        with ExitStack() as stack:
            with self._dropping_refused(prepared, StorageFailed):
                wait_s, gives_way = self._wait_s, turn.gives_way
                locks = hold(self._locks, names, kept=turn.kept, wait_s=wait_s, gives_way=gives_way)
                guard = stack.enter_context(locks)
            failpoints.hit("commit.locked")
            try:
                return self._commit_locked(prepared, turn, guard)
            except HeadAhead as ahead:
                # Here, under the locks: once they are free the next writer has them, and meets it.
                ahead.alive = self._heal(kept={**turn.kept, **guard.locks})
                raise

    def _commit_locked(self, prepared: Prepared, turn: Turn, guard: Guard) -> tuple[Commit, bool]:
        """Phases A to D under the locks of every table."""
        intent, seen_at = prepared.intent, now_s()
        with unpublished():
            with self._dropping_refused(prepared, Conflict, HeadAhead):
                self._require_base(prepared, seen_at)
            sidecar = self._note(prepared)
            self._write_sidecar(sidecar, prepared)
        try:
            pins = self._commit_tables(prepared, sidecar, guard, seen_at)
            commit = self._publish(prepared, pins, guard, turn)
            self._promotions.promote(sidecar.files)
            self._flusher.barrier()
            self._reclaims.reclaim(intent.branch, intent.reclaim)
        except HeadAhead:
            raise
        except Exception as cause:
            # A table head may have moved, so from here no failure is harmless.
            self._stats.event("commit.stopped", operation=intent.operation_id, cause=cause)
            raise RecoveryRequired(intent.operation_id, _reason(cause)) from cause
        self._sidecars.delete_published(sidecar.operation_id)
        self._learn(prepared, pins)
        failpoints.hit("commit.sidecar_deleted")
        return commit, sidecar.multi_step

    def _require_base(self, prepared: Prepared, now: float) -> None:
        """Under the locks, before anything is durable: the branch is the one we know, this program
        may write to it, its pins and the heads stand still."""
        watched = list(self._watched(prepared, now).values())
        looks = [partial(self._tables.head, base) for base in watched]
        run = together if self._tables.is_remote else in_turn
        # What was staged may build on a state that is seconds old. Lance would rebase the publish
        # over whatever came since, the stamp of a newer program included.
        _, *heads = run([partial(self._published_version, prepared), *looks])
        for base, head in zip(watched, heads, strict=True):
            if head != base.version:
                # Left by a writer that died: what is published was looked at above.
                raise HeadAhead(base.table_key, base.version, head)
        failpoints.hit("commit.checked")

    @contextmanager
    def _dropping_refused(self, prepared: Prepared, *refusals: type[Exception]) -> Iterator[None]:
        """Delete what was staged for an attempt that is refused here, and for no other: files, and
        tables that nobody has seen."""
        try:
            yield
        except refusals:
            staged = (write.staged for write in prepared.writes if write.is_own)
            self._reclaims.drop_refused(self._tables.refused(staged))
            with suppress(OmnigraphError):  # what stays is reclaimed by cleanup
                for pin in prepared.intent.new_tables:
                    self._tables.remove(pin.location)
            raise

    def _published_version(self, prepared: Prepared) -> int:
        return self._require_published(prepared).version

    def _watched(self, prepared: Prepared, now: float) -> dict[TableKey, TablePin]:
        """The tables whose heads are looked at before anything is durable."""
        if self._is_refused_alone(prepared, now):
            return {}
        written: dict[TableKey, TablePin] = {
            write.staged.table_key: write.staged.base for write in prepared.writes
        }
        # A schema change settles dead writers of any table first, under the schema they wrote for.
        # A table that a branch has not forked is not its own: others move that head.
        owner = owner_of(prepared.intent.branch)
        own = {key: pin for key, pin in prepared.relied_on.items() if pin.branch == owner}
        return {**own, **written} if prepared.intent.schema else written

    def _is_refused_alone(self, prepared: Prepared, now: float) -> bool:
        """Whether a head that ran ahead refuses the only step of a write, before anything moved."""
        if prepared.intent.schema or len(prepared.writes) != 1:
            return False
        return self._tables.is_strict(prepared.writes[0].staged, now)

    def _require_published(self, prepared: Prepared) -> State:
        """The manifest still shows the branch and the versions this write was prepared on."""
        intent = prepared.intent
        state = self._manifest.state(intent.branch)
        if state.identity != intent.branch_identity:
            raise NotFound(
                "branch", intent.branch, "it was deleted and created again; prepare once more"
            )
        if intent.mark is not None:
            # The publish lock is held, so a mark that is absent now stays absent until we publish.
            marked = self._queries.marked(state, intent.mark)
            if marked is not None:
                raise AlreadyMarked(marked)
        schema = None if prepared.changes_rows_alone else prepared.base_schema
        try:
            state.require(prepared.expected_table_versions, prepared.expected_head, schema)
        except VersionMismatch:
            state.require_schema(prepared.base_schema)  # a schema change moved the table
            raise
        return state

    def _note(self, prepared: Prepared) -> Sidecar:
        intent = prepared.intent
        folds = any(self._folding.is_due(w.staged.base) for w in prepared.writes)
        return Sidecar(
            intent,
            tables=tuple(_table_note(write) for write in prepared.writes),
            multi_step=folds or any(write.then for write in prepared.writes),
            files=self._promotions.stage(intent.operation_id, prepared.files),
            relied_on=prepared.expected_table_versions if intent.schema is not None else {},
        )

    def _write_sidecar(self, sidecar: Sidecar, prepared: Prepared) -> None:
        staged = self._tables.named(write.staged for write in prepared.writes)
        staged += (file.staged for file in sidecar.files)
        for pin in prepared.intent.new_tables:
            self._flusher.owe_below(pin.location)
        try:
            self._sidecars.write(sidecar, staged)
        except StorageFailed:
            # The put may have landed although its answer was a failure.
            with suppress(StorageFailed):
                self._sidecars.delete(sidecar.operation_id)
            raise
        failpoints.hit("commit.sidecar_written")

    def _commit_tables(
        self, prepared: Prepared, sidecar: Sidecar, guard: Guard, seen_at: float
    ) -> tuple[TablePin, ...]:
        named: list[str] = []
        each = partial(
            self._commit_table, sidecar=sidecar, guard=guard, seen_at=seen_at, named=named
        )
        # The note names every table, so it does not matter which of them move before a crash.
        run = together if self._tables.is_remote and not sidecar.multi_step else in_turn
        try:
            pins = tuple(run([partial(each, write) for write in prepared.writes]))
        except HeadAhead:
            if len(prepared.writes) > 1:
                raise CommitRaced("a table head moved under this writer's lock") from None
            # Nothing moved and nothing will: without its note the write has never been.
            self._sidecars.delete(sidecar.operation_id)
            raise
        if sidecar.multi_step:
            guard.require_alive()
            reached = sidecar.confirmed({p.table_key: p.version for p in pins})
            self._sidecars.confirm(reached, named)
            failpoints.hit("commit.confirmed")
        failpoints.hit("commit.tables_done")
        return pins

    def _commit_table(
        self,
        write: TableWrite,
        sidecar: Sidecar,
        guard: Guard,
        seen_at: float,
        named: list[str],
    ) -> TablePin:
        """Commit the versions of one table. Files of further versions are added to `named`."""
        guard.require_alive()
        failpoints.hit("commit.table_before")
        try:
            pin = self._tables.commit_staged(write.staged, sidecar.operation_id, seen_at=seen_at)
        except VersionTaken as cause:
            base = write.staged.base
            raise HeadAhead(base.table_key, base.version, self._tables.head(base)) from cause
        self._stats.event("phase_b.committed", table=pin.table_key, version=pin.version)
        failpoints.hit("commit.table_after")
        for step in write.then:
            failpoints.hit("commit.step_before")
            staged = step(pin)
            guard.require_alive()
            if isinstance(staged, StagedWrite):
                named += self._tables.named([staged])
                pin = self._tables.commit_staged(staged, sidecar.operation_id, seen_at=seen_at)
            elif staged is not None:
                named += self._tables.named_since(pin, staged)
                pin = staged
            failpoints.hit("commit.step_after")
        if sidecar.multi_step and self._folding.is_due(write.staged.base):
            guard.require_alive()
            folded = self._folding.fold_table(pin)
            named += self._tables.named_since(pin, folded)
            pin = folded
        return pin

    def _learn(self, prepared: Prepared, pins: tuple[TablePin, ...]) -> None:
        for write, pin in zip(prepared.writes, pins, strict=True):
            if not write.then:
                self._tables.published(write.staged, pin)

    def _publish(
        self, prepared: Prepared, pins: tuple[TablePin, ...], guard: Guard, turn: Turn
    ) -> Commit:
        guard.require_alive()
        return self._publisher.publish(
            prepared.intent.branch,
            change_of(prepared.intent, pins),
            expected_table_versions=prepared.expected_table_versions,
            expected_head=prepared.expected_head,
            # A turn may keep more than this commit asks for: the publish lock of a write before it.
            kept={**turn.kept, **guard.locks},
        )


def lock_names(prepared: Prepared) -> tuple[str, ...]:
    """The locks a write holds from before its sidecar until after its deletion."""
    branch = prepared.intent.branch
    tables = tuple(lock_name(key, branch) for key in prepared.expected_table_versions)
    return (*tables, publish_lock(branch)) if prepared.is_serial else tables


def sidecar_lock_names(sidecar: Sidecar) -> tuple[str, ...]:
    """The locks the writer of a sidecar holds while it lives. A note without tables belongs to a
    writer that holds the publish lock."""
    # No branch may come while the schema changes.
    branches = () if sidecar.intent.schema is None else (BRANCHES_LOCK,)
    if not sidecar.tables:
        return (*branches, publish_lock(sidecar.branch))
    keys = {table.table_key for table in sidecar.tables} | sidecar.relied_on.keys()
    return (*branches, *(lock_name(key, sidecar.branch) for key in sorted(keys)))


def _table_note(write: TableWrite) -> SidecarTable:
    base = write.staged.base
    return SidecarTable(
        table_key=base.table_key,
        table_path=base.location,
        table_branch=base.branch,
        fork=base.fork,
        expected_version=base.version,
        # Of a write of several versions it is the first: how many a fold or a step adds is known
        # only when they are there, and the confirmation says it.
        post_commit_pin=base.version + 1,
    )


def _reason(cause: Exception) -> str:
    return f"the write stopped after its sidecar was written ({cause})"
