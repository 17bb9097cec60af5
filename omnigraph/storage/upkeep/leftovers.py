"""Leftovers beside the tables (garbage collection): staged files, schemas that no commit names,
locks of branches that are gone, and what dead writers never finished.

Invariant: nothing is removed that a commit, a live branch, a sidecar or a live writer can ask for.
A schema change holds the lock of the branches from before its files are written until its commit is
published, and so does whoever makes or deletes a branch; under that lock files of schemas and locks
of branches are removed. What no lock guards goes once it is older than the longest write.
"""

import time
from collections.abc import Callable

from omnigraph.errors import OmnigraphError, StorageFailed
from omnigraph.storage import failpoints
from omnigraph.storage.lance.datasets import Datasets
from omnigraph.storage.locks.locks import FOLDER as LOCKS
from omnigraph.storage.locks.locks import Locks, hold
from omnigraph.storage.manifest import manifest
from omnigraph.storage.manifest.branches import BRANCHES_LOCK
from omnigraph.storage.manifest.state import LOCATION as MANIFEST
from omnigraph.storage.names import MAIN, encode, is_lock_of_gone
from omnigraph.storage.objects import Listed, Objects, Root
from omnigraph.storage.protocol import promote
from omnigraph.storage.protocol.sidecars import Sidecars
from omnigraph.storage.records import SchemaId
from omnigraph.storage.upkeep.cleanup import SAFE_AGE_S, TableCleanup
from omnigraph.storage.upkeep.unfinished import is_small, remove_unfinished, unfinished

UNFINISHED = "unfinished"

InUse = Callable[[frozenset[SchemaId]], frozenset[SchemaId]]
"""Of the schemas that have files, those that something readable names."""


class Leftovers:
    """Finds and removes what lies beside the tables and nobody needs."""

    def __init__(
        self, where: Root, datasets: Datasets, sidecars: Sidecars, objects: Objects, locks: Locks
    ) -> None:
        self._where = where
        self._datasets = datasets
        self._sidecars = sidecars
        self._objects = objects
        self._locks = locks

    def remove(self, archive: str, in_use: InUse, *, confirm: bool) -> tuple[TableCleanup, ...]:
        """Remove leftovers of every kind, or say what would go. `archive` is the folder of files
        that are named after schemas. A kind that fails is told and stops no other."""
        staged = _cleaned(promote.FOLDER, lambda: self._staged(confirm))
        others = [_cleaned(UNFINISHED, lambda: self._unfinished(confirm))]
        try:
            with hold(self._locks, [BRANCHES_LOCK] if confirm else []):
                others += (
                    _cleaned(archive, lambda: self._schemas(archive, in_use, confirm)),
                    _cleaned(LOCKS, lambda: self._idle_locks(confirm)),
                )
        except StorageFailed as cause:  # a schema change takes long
            others.append(TableCleanup(archive, error=str(cause)))
        return (staged, *(each for each in others if each != each.nothing))

    def _staged(self, confirm: bool) -> list[Listed]:
        """What writers that died put aside, long ago and for nothing."""
        pending = set(self._sidecars.pending())
        gone = []
        for file in self._objects.listed(promote.FOLDER):
            operation = file.path.removeprefix(f"{promote.FOLDER}/").partition("/")[0]
            if operation in pending or not _is_old(file, SAFE_AGE_S):
                continue
            if confirm:
                self._objects.delete(file.path)
                self._objects.prune(f"{promote.FOLDER}/{operation}")
            gone.append(file)
        return gone

    def _schemas(self, archive: str, in_use: InUse, confirm: bool) -> list[Listed]:
        """The files of schemas that nothing readable names. One of a change that a crash stopped is
        named by its sidecar, or by nothing."""
        files = {file: SchemaId(_stem(file)) for file in self._objects.listed(archive)}
        pending = map(self._sidecars.read, self._sidecars.pending())
        named = {note.intent.schema for note in pending if note is not None}
        candidates = frozenset(files.values()) - named
        unused = candidates - in_use(candidates) if candidates else candidates
        gone = [
            f for f, id_ in files.items() if id_ in unused and _is_old(f, manifest.RECLAIM_AGE_S)
        ]
        failpoints.hit("cleanup.schemas")
        if confirm and gone:
            self._objects.delete(*(file.path for file in gone))
        return gone

    def _idle_locks(self, confirm: bool) -> list[Listed]:
        """Locks of deleted branches: those of writers that died there, and of who came too late."""
        live = {encode(MAIN), *self._datasets.refs(MANIFEST)}
        gone = self._locks.retire(
            lambda name: is_lock_of_gone(name, live),
            idle_s=manifest.RECLAIM_AGE_S,
            confirm=confirm,
        )
        return [Listed(f"{LOCKS}/{name}", 0, 0.0) for name in gone]

    def _unfinished(self, confirm: bool) -> list[Listed]:
        """Files that never got their names. A small object gets its own within a moment, and a
        writer that was stopped for longer fails before anything names it."""
        root = self._where.path
        if root is None:
            return []
        gone = [each for each in unfinished(root) if _is_old(each, _longest_s(each))]
        for each in gone if confirm else ():
            remove_unfinished(root, each)
        return gone


def _cleaned(kind: str, remove: Callable[[], list[Listed]]) -> TableCleanup:
    """What went of one kind, or why it did not."""
    try:
        gone = remove()
    except (OmnigraphError, OSError) as cause:
        return TableCleanup(kind, error=str(cause))
    return TableCleanup(kind, bytes=sum(file.size for file in gone), files=len(gone))


def _is_old(file: Listed, age_s: float) -> bool:
    return time.time() - file.modified >= age_s


def _longest_s(file: Listed) -> float:
    return manifest.RECLAIM_AGE_S if is_small(file) else SAFE_AGE_S


def _stem(file: Listed) -> str:
    """The name of a file before its first dot."""
    return file.path.rpartition("/")[2].partition(".")[0]
