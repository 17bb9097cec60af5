"""Folding: compaction of small fragments by the writers that add them.

A commit leaves one small fragment a table, and every read and upsert pays for each fragment. When
a size class holds too many fragments, the writer that added the last one rewrites that class: for
a table as further versions of its own commit, for `__manifest` after its commit is published.

Invariant: folding never changes a row, never removes a version a reader may hold, and fails no
write: what it could not fold waits for the next commit.
"""

import logging

from omnigraph.costs import COSTS
from omnigraph.errors import OmnigraphError, StorageFailed
from omnigraph.storage import failpoints
from omnigraph.storage.lance.compaction_groups import merge_groups
from omnigraph.storage.lance.datasets import CommitRaced, Datasets, Handle, dataset_folder
from omnigraph.storage.lance.index_segments import inherited
from omnigraph.storage.lance.inline_commits import InlineResidual, rewrite_counts
from omnigraph.storage.lance.strict_commit import known_fragments
from omnigraph.storage.lance.tables import Tables
from omnigraph.storage.lance.written_files import version_path
from omnigraph.storage.locks.locks import NONE_KEPT, Kept, Locks, hold, hold_if_idle
from omnigraph.storage.manifest import published_at
from omnigraph.storage.manifest.manifest import Manifest
from omnigraph.storage.manifest.state import LOCATION, publish_lock
from omnigraph.storage.names import owner_of
from omnigraph.storage.records import TablePin, WriteBase
from omnigraph.storage.stats import Stats

_CLASSES = 4


def class_to_fold(handle: Handle, *, incoming: int = 0) -> int | None:
    """Return the rows of the smallest size class with too many fragments, or None while there are
    few in all.

    A fold takes a class that holds many fragments, and all below it, so what it writes is more than
    its largest fragment: a row is rewritten a few times a class, and one-row writes beside a large
    fragment leave that alone.
    """
    fragments = known_fragments(handle)
    if len(fragments) + incoming < COSTS.fold_fragments_min:
        return None
    fixed = inherited(handle)
    sizes = [f.physical_rows for f in fragments if f.fragment_id not in fixed] + [1] * incoming
    many = min(COSTS.fold_class_fragments_min, COSTS.fold_fragments_min)
    least, rows = 0, COSTS.fold_class_rows
    for _ in range(_CLASSES):
        if sum(least <= size < rows for size in sizes) >= many:
            return rows
        least, rows = rows, rows * COSTS.fold_class_growth
    return None


class Folding:
    """Folds tables and manifests, when it is on."""

    def __init__(
        self,
        datasets: Datasets,
        tables: Tables,
        manifest: Manifest,
        locks: Locks,
        stats: Stats,
        *,
        on: bool,
    ) -> None:
        self._datasets = datasets
        self._tables = tables
        self._manifest = manifest
        self._locks = locks
        self._stats = stats
        self._residual = InlineResidual(datasets)
        self._on = on

    def is_due(self, base: TablePin) -> bool:
        """Whether the next commit on this version should fold the table."""
        return self._on and class_to_fold(self._datasets.handle(base), incoming=1) is not None

    def fold_table(self, pin: WriteBase) -> WriteBase:
        """The table with its small fragments folded, under its lock and inside a sidecar."""
        failpoints.hit("fold.table_before")
        head = self._datasets.open(pin.location, pin.branch, pin.version)
        target = class_to_fold(head)
        if target is None:
            return pin
        try:
            self._residual.compact(head, target_rows=target)
        except (OmnigraphError, CommitRaced) as cause:
            self._left(pin.table_key, cause)
            # Whatever was committed rewrites no row, so the latest version is as good as the other.
            head = self._datasets.open(pin.location, pin.branch)
        self._stats.event("fold.table", table=pin.table_key, version=head.version)
        failpoints.hit("fold.table_after")
        return self._tables.pinned(pin, head)

    def fold_manifest(self, branch: str, kept: Kept = NONE_KEPT) -> None:
        """Fold a branch's manifest, unless somebody is publishing right now."""
        known = self._manifest.known(branch)
        if not self._on or known is None or class_to_fold(known.handle) is None:
            return
        with hold_if_idle(self._locks, [publish_lock(branch)], kept=kept) as guard:
            if guard is None:
                return
            failpoints.hit("fold.manifest_before")
            # The state counts up to the newest version, where Lance would list all of them.
            before = self._manifest.state(branch).version
            head = self._datasets.open(LOCATION, owner_of(branch), before)
            target = class_to_fold(head)
            if target is not None:
                folder = dataset_folder(LOCATION, owner_of(branch))
                self._residual.compact(
                    head, target_rows=target, folder=folder, joins=published_at.joining(head)
                )
                self._owe(folder, before, int(head.version))
                self._manifest.state(branch, own=True)
                self._stats.event("fold.manifest", branch=branch, version=head.version)
            failpoints.hit("fold.manifest_after")

    def optimize_manifest(self, branch: str) -> tuple[int, int, int]:
        """Rewrite a branch's manifest as few fragments: how many it had, how many went and how many
        came instead. No commit."""
        with hold(self._locks, [publish_lock(branch)]):
            failpoints.hit("upkeep.manifest_before")
            self._manifest.state(branch)  # refuses the stamp of another program
            head = self._datasets.open(LOCATION, owner_of(branch))
            before = head.get_fragments()
            groups = merge_groups(before)
            rewrites = [
                self._residual.rewritten(head, g, target_rows=COSTS.compact_rows_max)
                for g in groups
            ]
            if rewrites:
                folder = dataset_folder(LOCATION, owner_of(branch))
                self._residual.flush_rewritten(folder, rewrites)
                version = int(head.version)
                try:
                    head = self._residual.commit_rewrites(
                        head, rewrites, published_at.joining(head)
                    )
                except CommitRaced as cause:
                    raise StorageFailed("folded __manifest", str(cause)) from cause
                self._owe(folder, version, int(head.version))
                self._datasets.flusher.barrier()
                self._stats.event("upkeep.manifest", branch=branch, version=head.version)
            failpoints.hit("upkeep.manifest_after")
            return len(before), *rewrite_counts(rewrites)

    def _owe(self, folder: str, before: int, after: int) -> None:
        """Owe the versions of a fold. Whoever publishes on them flushes them first, and until then
        a power cut may take them: the version before holds the same rows."""
        versions = range(before + 1, after + 1)
        self._datasets.flusher.owe(version_path(folder, version) for version in versions)

    def fold_manifest_quietly(self, branch: str, kept: Kept = NONE_KEPT) -> None:
        """Fold after a published commit, which a failure here must not fail."""
        try:
            self.fold_manifest(branch, kept)
        except (OmnigraphError, CommitRaced, OSError) as cause:
            self._left(f"__manifest on {branch}", cause)

    def _left(self, subject: str, cause: Exception) -> None:
        self._stats.event("fold.failed", level=logging.WARNING, subject=subject, cause=str(cause))
