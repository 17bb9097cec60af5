"""Sidecars: the durable notes of writes that are under way, below `__recovery/`.

Invariant: a note is there before the first table head of its write moves and until its write is
published or undone. At rest the folder is empty.
"""

import logging

from omnigraph.errors import StorageFailed
from omnigraph.storage import failpoints
from omnigraph.storage.objects import Objects
from omnigraph.storage.records import (
    OperationId,
    Sidecar,
    decode_sidecar,
    encode_sidecar,
)
from omnigraph.storage.stats import Stats

FOLDER = "__recovery"


class Sidecars:
    """The notes of one graph."""

    def __init__(self, objects: Objects, stats: Stats) -> None:
        self._objects = objects
        self._stats = stats

    def write(self, sidecar: Sidecar) -> None:
        """Put the note. When this fails no head has moved, and there is nothing to recover."""
        _fault("sidecar.put", "wrote a sidecar")
        self._objects.put(_path(sidecar.operation_id), encode_sidecar(sidecar))
        self._stats.event(
            "phase_a.sidecar_written",
            operation=sidecar.operation_id,
            kind=sidecar.kind,
            branch=sidecar.branch,
            tables=len(sidecar.tables),
        )

    def confirm(self, sidecar: Sidecar) -> None:
        """Rewrite the note with the versions its tables reached."""
        _fault("sidecar.confirm", "confirmed a sidecar")
        self._objects.put(_path(sidecar.operation_id), encode_sidecar(sidecar))
        self._stats.event("phase_b.sidecar_confirmed", operation=sidecar.operation_id)

    def delete(self, operation: OperationId) -> None:
        """Remove the note."""
        _fault("sidecar.delete", "deleted a sidecar")
        self._objects.delete(_path(operation))

    def delete_published(self, operation: OperationId) -> None:
        """Remove the note of a published write. A failure must not fail a write that is durable:
        the next write or open finds the note and settles it."""
        try:
            self.delete(operation)
        except StorageFailed as cause:
            self._stats.event(
                "phase_d.delete_failed",
                level=logging.WARNING,
                operation=operation,
                cause=str(cause),
            )
        else:
            self._stats.event("phase_d.sidecar_deleted", operation=operation)

    def pending(self) -> tuple[OperationId, ...]:
        """The operations with a note, oldest first. A failure to look fails the caller."""
        _fault("sidecar.list", "listed the sidecars")
        names = (path.rpartition("/")[2] for path in self._objects.list(FOLDER))
        return tuple(OperationId(n.removesuffix(".json")) for n in names if n.endswith(".json"))

    def read(self, operation: OperationId) -> Sidecar | None:
        """The note, or None when its writer finished meanwhile."""
        path = _path(operation)
        found = self._objects.get(path)
        return None if found is None else decode_sidecar(found.data, path=path)


def _path(operation: OperationId) -> str:
    return f"{FOLDER}/{operation}.json"


def _fault(name: str, doing: str) -> None:
    """A failpoint that fails the way the object store would."""
    try:
        failpoints.hit(name)
    except OSError as cause:
        raise StorageFailed(doing, str(cause)) from cause
