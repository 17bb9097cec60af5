"""The storage room's own door: one open graph, its parts put together.

Invariant: a read-only store writes nothing, not even a lock file.
"""

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from omnigraph.deferred import deferred
from omnigraph.errors import BadRequest, NotFound, StorageFailed
from omnigraph.light_dataclass import dataclass
from omnigraph.storage.beside import BesideObjects
from omnigraph.storage.derived.derived_folder import DerivedFiles
from omnigraph.storage.external import ExternalBlobs, checked_bases
from omnigraph.storage.flushing import Flusher, chosen_durability
from omnigraph.storage.lance.datasets import Datasets, Handle
from omnigraph.storage.lance.delta import Deltas
from omnigraph.storage.lance.derived_bases import DerivedBases
from omnigraph.storage.lance.reader import Arriving, TableReader, uncounted
from omnigraph.storage.lance.row_cache import RowCache
from omnigraph.storage.lance.tables import Tables
from omnigraph.storage.lance.tag_refs import TagRefs
from omnigraph.storage.late_parts import LateParts
from omnigraph.storage.lifetime import Lifetime
from omnigraph.storage.local_copies import LocalCopies
from omnigraph.storage.locks.locks import LEASE_TERM_S, LOCK_WAIT_S, Guard, Locks, hold, make_locks
from omnigraph.storage.locks.turns import Turn, Turns
from omnigraph.storage.manifest.branches import BACKUP_LOCK, BRANCHES_LOCK, RETENTION_LOCK, Branches
from omnigraph.storage.manifest.history import History
from omnigraph.storage.manifest.manifest import Manifest
from omnigraph.storage.manifest.owned_branches import OwnedBranches
from omnigraph.storage.manifest.queries import Queries
from omnigraph.storage.manifest.state import State
from omnigraph.storage.manifest.state_copies import StateCopies
from omnigraph.storage.manifest.tags import Tags
from omnigraph.storage.names import (
    MAIN,
    lock_name,
)
from omnigraph.storage.objects import Files, Objects, Root
from omnigraph.storage.protocol.intent import WriterKind, stated_facts
from omnigraph.storage.protocol.sidecars import Sidecars
from omnigraph.storage.records import Commit, CommitId, OperationId, Origin, SchemaId, Snapshot
from omnigraph.storage.stats import Stats
from omnigraph.types import TableKey

if TYPE_CHECKING:
    from omnigraph.storage.protocol.commit import Prepared
    from omnigraph.storage.protocol.schema_write import SchemaWrite
    from omnigraph.storage.protocol.write import Write
    from omnigraph.storage.write_parts import WriteParts
else:
    SchemaWrite = deferred("omnigraph.storage.protocol.schema_write", "SchemaWrite")
    Write = deferred("omnigraph.storage.protocol.write", "Write")
    WriteParts = deferred("omnigraph.storage.write_parts", "WriteParts")

SCHEMA_LOCK = lock_name("a-schema-change", "")  # taken before all others


@dataclass(frozen=True, slots=True)
class Settings:
    """How a store behaves. `fold` off leaves small fragments to `optimize`; `external_blobs` are
    the bases that blobs may be copied from; `durability` is `fsync`, `os`, or the graph's own;
    `derived` off reads tables alone, which tests compare with."""

    fold: bool = True
    external_blobs: tuple[str, ...] = ()
    durability: str | None = None
    derived: bool = True
    lease_term_s: float = LEASE_TERM_S
    lock_wait_s: float = LOCK_WAIT_S


class Store(LateParts):
    """One open graph."""

    def __init__(self, where: Root, *, read_only: bool, settings: Settings) -> None:
        self.where = where
        self.read_only = read_only
        self.lease_term_s = settings.lease_term_s
        self._external_bases = checked_bases(settings.external_blobs)
        self.lifetime = Lifetime(where.uri)
        self.stats = Stats(self.lifetime)
        self.flusher = Flusher(where.path, self.stats, chosen_durability(settings.durability))
        self.objects = Objects(where, self.stats, self.flusher)
        self.files = Files(self.objects)
        self.locks: Locks = make_locks(
            where, self.objects, self.stats, term_s=settings.lease_term_s
        )
        self.copies = LocalCopies(where)
        self.state_copies = StateCopies(self.copies, self.objects, read_only=read_only)
        self.datasets = Datasets(where, self.objects, self.stats)
        row_cache = RowCache()
        self.tables = Tables(self.datasets, row_cache)
        self.deltas = Deltas(self.datasets, row_cache)
        self.derived = DerivedBases(
            self.datasets,
            self.deltas,
            DerivedFiles(
                where, self.objects, self.stats, read_only=read_only, enabled=settings.derived
            ),
        )
        self.tables.finder = self.derived
        tag_refs = TagRefs(where, self.datasets, self.objects)
        self.manifest = Manifest(where.uri, self.datasets, tag_refs, self.state_copies)
        self.queries = Queries(self.datasets, self.manifest)
        self.history = History(self.datasets, self.manifest, self.queries)
        self.branches = Branches(
            self.datasets,
            tag_refs,
            self.manifest,
            self.locks,
            self.stats,
            self.require_writable,
            self.derived.files,
        )
        self.owned_branches = OwnedBranches(self.branches, self.locks, self.stats)
        self.tags = Tags(
            tag_refs,
            self.datasets,
            self.manifest,
            self.queries,
            self.locks,
            self.stats,
            self.require_writable,
        )
        self.beside = BesideObjects(where, self.objects, self.locks, self.require_writable)
        self.sidecars = Sidecars(self.objects, self.stats)
        self.turns = Turns(self.locks, settings.lock_wait_s)
        self.first: Handle | None = None  # the manifest by which an open knew the graph
        super().__init__()
        self._settings = settings
        self._schema_turn: Guard | None = None  # of a schema change under way

    def _write_parts(self) -> WriteParts:
        return WriteParts(
            self.where,
            self.datasets,
            self.tables,
            self.deltas,
            self.manifest,
            self.queries,
            self.history,
            self.objects,
            self.sidecars,
            self.locks,
            self.flusher,
            self.stats,
            self.require_writable,
            read_only=self.read_only,
            folds=self._settings.fold,
            wait_s=self._settings.lock_wait_s,
        )

    # Reading

    def snapshot(
        self,
        branch: str = MAIN,
        *,
        commit: str | None = None,
        recent: bool = False,
        seen_by: "Write | None" = None,
        since: float | None = None,
    ) -> Snapshot:
        """What a read sees now, or saw at a commit; with `recent` what it saw a moment ago, without
        a look if this process has just had one; or what a write builds on. A read that was asked
        for at `since` (`time.monotonic`) shares a look that began later."""
        if seen_by is not None:
            return self.manifest.snapshot(seen_by.state)
        if commit is not None:
            return self.history.snapshot(commit)
        known = self.manifest.recent(branch) if recent else self.manifest.state(branch, since=since)
        return self.manifest.snapshot(known)

    def reader(
        self, snapshot: Snapshot, table_key: TableKey, arriving: Arriving = uncounted
    ) -> TableReader:
        """One table as a snapshot sees it. `arriving` counts what is read of it."""
        pin = snapshot.tables.get(table_key)
        if pin is None:
            raise NotFound("table", table_key)
        return self.tables.reader(pin, arriving)

    def external_blobs(self) -> ExternalBlobs:
        """What one operation may copy from outside."""
        return ExternalBlobs(self._external_bases, self.where.storage_options)

    def marked(self, branch: str, mark: str) -> Commit | None:
        """The commit of a branch that carries a mark."""
        return self.queries.marked(self.manifest.state(branch), mark)

    # Writing

    def begin(
        self,
        branch: str = MAIN,
        *,
        kind: WriterKind,
        actor: str | None = None,
        message: str | None = None,
        metadata: Mapping[str, str] | None = None,
        schema: str | None = None,
        recent: bool = False,
        healed: bool = False,
        turn: Turn | None = None,
    ) -> Write:
        """Begin a write at the branch's head, after settling what dead writers left. One that was
        planned against another schema than the branch has now is refused with `SchemaChanged`.

        `recent` takes the head this process saw a moment ago: for callers that can begin again,
        since the commit holds only if that head is current. `healed` says that the caller has
        settled dead writers itself. `turn` is that of an attempt which is prepared again when it
        loses.
        """
        facts = stated_facts(actor, message, metadata)
        turn = turn or Turn()
        state = self._base_state(branch, schema, turn, recent=recent, healed=healed)
        return Write(state, self.tables, self.branches, facts, kind=kind, turn=turn)

    def begin_schema_change(
        self,
        branch: str = MAIN,
        *,
        kind: WriterKind = WriterKind.SCHEMA_APPLY,
        actor: str | None = None,
        message: str | None = None,
        metadata: Mapping[str, str] | None = None,
        schema: str | None = None,
        turn: Turn | None = None,
    ) -> SchemaWrite:
        """Begin a write on a branch that may create, drop, rename and evolve tables."""
        facts = stated_facts(actor, message, metadata)
        turn = turn or Turn()
        state = self._base_state(branch, schema, turn)
        return SchemaWrite(state, self.tables, self.branches, facts, kind=kind, turn=turn)

    def _base_state(
        self,
        branch: str,
        schema: str | None,
        turn: Turn,
        *,
        recent: bool = False,
        healed: bool = False,
    ) -> State:
        self.require_writable()
        if not healed and self.sidecars.pending():
            self._recoverer.heal(patient=False, kept=turn.kept)
        state = self.manifest.recent(branch) if recent else self.manifest.state(branch)
        state.require_schema(SchemaId(schema) if schema else None)
        return state

    def is_current(self, write: Write) -> bool:
        """Whether nothing was published on its branch since the state a write began with."""
        seen = write.state
        try:
            now = self.manifest.state(seen.branch)
        except NotFound:
            return False
        return (now.identity, now.version) == (seen.identity, seen.version)

    def commit(
        self,
        write: Write,
        *,
        expected_head: CommitId | None = None,
        merged_parent: CommitId | None = None,
        merged_from: Origin | None = None,
        mark: str | None = None,
    ) -> Commit:
        """Publish everything a write staged as one commit; `AlreadyMarked` if one carries the
        mark."""
        prepared = write.prepared(
            expected_head=expected_head,
            merged_parent=merged_parent,
            merged_from=merged_from,
            mark=mark,
        )
        return self.commit_prepared(prepared, write.turn)

    def commit_prepared(self, prepared: "Prepared", turn: Turn) -> Commit:
        """Walk a prepared write through the protocol."""
        if prepared.intent.schema is not None and self._schema_turn is not None:
            # Without the turn a cleanup may have removed the files of the schema, or a branch come.
            self._schema_turn.require_alive()
        with self.lifetime.committing():
            return self._writing.commit(prepared, turn)

    @contextmanager
    def upkeep(self, *, reclaims: bool = False) -> Iterator[None]:
        """One at a time: what optimize works on, cleanup would take away. While versions are
        reclaimed nobody makes a branch or a tag at a past one, and no backup is copied."""
        self.require_writable()
        with (
            hold(self.locks, [lock_name("upkeep", "")]),
            hold(self.locks, [RETENTION_LOCK, BACKUP_LOCK] if reclaims else []),
        ):
            yield

    def optimize_manifest(self, branch: str) -> tuple[int, int, int]:
        """Rewrite a branch's manifest as few fragments: how many it had, how many went and how many
        came instead. No commit."""
        return self.folding.optimize_manifest(branch)

    def leave_checkpoint(self) -> None:
        """Leave the state of main in one object, for machines that never read the graph."""
        self.manifest.leave_checkpoint(commits=1)

    def heal(self, *, if_room: bool = False) -> tuple[OperationId, ...]:
        """Settle every sidecar whose writer is dead; the operations whose writer lives. With
        `if_room` a full disk is no failure: the sidecars stay until there is room."""
        self.require_writable()
        try:
            return self._recoverer.heal(patient=True) if self.sidecars.pending() else ()
        except StorageFailed as cause:
            if not (if_room and cause.is_full):
                raise
            self.stats.event("recover.no_room", level=logging.WARNING, cause=str(cause))
            return self.sidecars.pending()

    @contextmanager
    def schema_change(self) -> Iterator[None]:
        """The turn of one schema change: no other runs, and no branch comes or goes meanwhile."""
        while True:
            self.heal()
            with hold(self.locks, [SCHEMA_LOCK, BRANCHES_LOCK]) as guard:
                # The one before us may have died meanwhile, and settling it takes the same locks.
                if not _has_unsettled_schema_change(self.sidecars):
                    self._schema_turn = guard
                    try:
                        yield
                    finally:
                        self._schema_turn = None
                    return

    def close(self) -> None:
        """Let commits end and let go of everything: a later call is `GraphClosed`."""
        if self._made is not None:
            self.leave_checkpoint()
        elif self.state_copies.was_fetched:  # a reader that read many commits leaves them too
            self.manifest.leave_checkpoint()
        self.lifetime.end()
        self.forget()

    def forget(self) -> None:
        """Let go of every open handle and everything remembered. A later use opens them again."""
        self.datasets.close()
        self.tables.forget()
        self.derived.clear()
        self.derived.files.close()
        self.deltas.clear()
        self.manifest.close()
        self.queries.marks.clear()
        self.history.close()

    def require_writable(self) -> None:
        """Pass unless the store was opened read-only."""
        if self.read_only:
            raise BadRequest("the graph is open read-only", "open it without read_only to write")


def _has_unsettled_schema_change(sidecars: Sidecars) -> bool:
    notes = map(sidecars.read, sidecars.pending())
    return any(note is not None and note.intent.schema is not None for note in notes)
