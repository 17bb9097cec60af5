"""Promotion of staged files: schema files that change together with a commit.

A write that replaces such files puts the new ones aside first and names them in its sidecar. Once
the commit is published they take their places.

Invariant: a file is replaced only by a commit that is published, and a commit whose files were put
aside is published only while all of them are still whole. Each step can be repeated.
"""

import hashlib
from collections.abc import Iterable, Mapping

from omnigraph.storage import failpoints
from omnigraph.storage.objects import Objects
from omnigraph.storage.protocol.sidecars import SidecarFile
from omnigraph.storage.records import OperationId

FOLDER = "__staged"


class Promotions:
    """The files of one graph that commits replace."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects

    def stage(self, operation: OperationId, files: Mapping[str, bytes]) -> tuple[SidecarFile, ...]:
        """Put the new content of each path aside."""
        staged = []
        for path, data in files.items():
            aside = f"{FOLDER}/{operation}/{path}"
            self._objects.put_unflushed(aside, data)
            staged.append(SidecarFile(path, aside, hashlib.sha256(data).hexdigest()))
        return tuple(staged)

    def whole(self, files: Iterable[SidecarFile]) -> bool:
        """Whether everything put aside is there as it was written, or in its place already."""
        return all(self._read(file) is not None or self._is_promoted(file) for file in files)

    def promote(self, files: Iterable[SidecarFile]) -> None:
        """Move each file to its place. One that is not put aside any more is in its place."""
        for file in files:
            failpoints.hit("promote.file")
            data = self._read(file)
            if data is not None:
                self._objects.move(file.staged, file.path, data)
            self._objects.prune(_folder_of(file))

    def discard(self, files: Iterable[SidecarFile]) -> None:
        """Drop what was put aside by a write that came to nothing."""
        for file in files:
            self._objects.delete(file.staged)
            self._objects.prune(_folder_of(file))

    def _is_promoted(self, file: SidecarFile) -> bool:
        stored = self._objects.get(file.path)
        return stored is not None and hashlib.sha256(stored.data).hexdigest() == file.sha256

    def _read(self, file: SidecarFile) -> bytes | None:
        stored = self._objects.get(file.staged)
        if stored is None or hashlib.sha256(stored.data).hexdigest() != file.sha256:
            return None
        return stored.data


def _folder_of(file: SidecarFile) -> str:
    """The folder that one operation put its files aside in."""
    return "/".join(file.staged.split("/")[:2])
