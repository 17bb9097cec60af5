"""Parts of a store that write: publisher, committer, recoverer, upkeep, put together.

Invariant: one of each for an open graph, made when it first writes: a process that reads needs none
of them, and loading them takes as long as loading what it needs.
"""

from collections.abc import Callable, Sequence
from functools import partial

from omnigraph.errors import Conflict, RecoveryRequired, StorageFailed
from omnigraph.storage.flushing import Flusher
from omnigraph.storage.lance.datasets import Datasets
from omnigraph.storage.lance.delta import Deltas
from omnigraph.storage.lance.tables import Tables
from omnigraph.storage.locks.locks import Locks
from omnigraph.storage.locks.turns import LockTaken, Turn
from omnigraph.storage.manifest.feed_claims import FeedClaims
from omnigraph.storage.manifest.history import History
from omnigraph.storage.manifest.manifest import Manifest
from omnigraph.storage.manifest.publish import Publisher
from omnigraph.storage.manifest.queries import Queries
from omnigraph.storage.manifest.state import publish_lock
from omnigraph.storage.objects import Objects, Root
from omnigraph.storage.protocol.audit import Audit
from omnigraph.storage.protocol.auto_compaction import Folding
from omnigraph.storage.protocol.commit import Committer, HeadAhead, Prepared, sidecar_lock_names
from omnigraph.storage.protocol.promote import Promotions
from omnigraph.storage.protocol.reclaim import Reclaims
from omnigraph.storage.protocol.recover import Recoverer
from omnigraph.storage.protocol.sidecars import Sidecar, Sidecars
from omnigraph.storage.records import Commit, OperationId
from omnigraph.storage.stats import Stats
from omnigraph.storage.upkeep.cleanup import Reclaimer
from omnigraph.storage.upkeep.compaction import Compactor
from omnigraph.storage.upkeep.drift import Drifts
from omnigraph.storage.upkeep.leftovers import Leftovers
from omnigraph.storage.upkeep.repair import Repairer
from omnigraph.types import TableKey

ROLLBACK_PENDING = "a pending recovery sidecar requires rollback — reopen the graph read-write"


class WriteParts:
    """The write side of one open graph."""

    def __init__(
        self,
        where: Root,
        datasets: Datasets,
        tables: Tables,
        deltas: Deltas,
        manifest: Manifest,
        queries: Queries,
        history: History,
        objects: Objects,
        sidecars: Sidecars,
        locks: Locks,
        flusher: Flusher,
        stats: Stats,
        require_writable: Callable[[], None],
        *,
        read_only: bool,
        folds: bool,
        wait_s: float,
    ) -> None:
        self._manifest, self._history = manifest, history
        self._sidecars, self._flusher = sidecars, flusher
        self.publisher = Publisher(where.uri, datasets, manifest, queries, locks, stats)
        self.feed_claims = FeedClaims(where, objects, locks, require_writable)
        self.audit = Audit(datasets, tables)
        self.drifts = Drifts(datasets, tables, manifest, sidecars, locks, read_only=read_only)
        self.reclaimer = Reclaimer(datasets, manifest, queries, sidecars, objects, locks, stats)
        self.leftovers = Leftovers(where, datasets, sidecars, objects, locks)
        promotions = Promotions(objects)
        reclaims = Reclaims(datasets, manifest, objects, stats)
        self.compactor = Compactor(datasets, tables, objects)
        self.folding = Folding(datasets, tables, manifest, locks, stats, on=folds)
        self.recoverer = Recoverer(
            datasets,
            tables,
            manifest,
            self.publisher,
            history,
            sidecars,
            promotions,
            reclaims,
            self.audit,
            locks,
            stats,
        )
        self.repairer = Repairer(
            datasets,
            tables,
            deltas,
            manifest,
            self.publisher,
            sidecars,
            self.drifts,
            self.recoverer,
            locks,
        )
        self.committer = Committer(
            tables,
            manifest,
            queries,
            self.publisher,
            sidecars,
            locks,
            self.folding,
            promotions,
            reclaims,
            flusher,
            stats,
            partial(self.recoverer.heal, patient=True),
            wait_s=wait_s,
        )

    def commit(self, prepared: Prepared, turn: Turn) -> Commit:
        """Walk a prepared write through the protocol, and settle what it meets."""
        branch = prepared.intent.branch
        try:
            commit, has_steps = self.committer.commit(prepared, turn)
        except HeadAhead as ahead:
            raise self._refusal(prepared, ahead, turn) from ahead
        except RecoveryRequired as stopped:
            if isinstance(stopped.__cause__, Conflict):
                # Lost at the very end: undo it now, the caller may begin again.
                self.recoverer.heal(patient=True, kept=turn.kept)
                raise stopped.__cause__ from stopped
            raise
        state = self._manifest.known(branch)
        if state is not None and state.version == commit.manifest_version:
            self._history.remember(commit, self._manifest.snapshot(state), published=state)
        # A commit has at most four barriers: one with steps of its own leaves this to the next.
        if not (self._flusher.is_on and has_steps):
            self.folding.fold_manifest_quietly(branch, turn.kept)
        self._manifest.leave_checkpoint()
        return commit

    def _refusal(self, prepared: Prepared, ahead: HeadAhead, turn: Turn) -> Exception:
        """The refusal of a write that met the head of a writer which died between our look and our
        locks. If live ones have others of its locks, the next attempt waits for those, and settles
        it."""
        branch = prepared.intent.branch
        self._manifest.state(branch).require(prepared.expected_table_versions)
        blocking = _blocking(self._sidecars, ahead.alive, ahead.table_key, branch)
        if blocking is None:
            self._manifest.state(branch).require(prepared.expected_table_versions)
        else:
            names = {*sidecar_lock_names(blocking), publish_lock(branch)}
            lacking = sorted(names - turn.kept.keys())
            if turn.begins_again and lacking:
                turn.takes(names)
                return LockTaken(lacking[0])
            return RecoveryRequired(blocking.operation_id, ROLLBACK_PENDING)
        return StorageFailed(
            f"checked {ahead.table_key} on {branch}",
            f"its head {ahead.head} is ahead of the published version {ahead.pinned} and no "
            "sidecar explains it; run `omnigraph repair`",
        )


def _blocking(
    sidecars: Sidecars, operations: Sequence[OperationId], table_key: TableKey, branch: str
) -> Sidecar | None:
    """The sidecar that explains why the head of a table ran ahead."""
    for operation in operations:
        sidecar = sidecars.read(operation)
        if sidecar is None or sidecar.branch != branch:
            continue
        if any(table.table_key == table_key for table in sidecar.tables):
            return sidecar
    return None
