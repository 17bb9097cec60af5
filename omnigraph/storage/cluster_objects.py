"""Objects of a cluster: small objects below its storage root, with compare-and-swap by content.

Invariant: `swap` replaces exactly the bytes that its caller has read, or nothing. On S3 the store
compares entity tags; on local disk, which has no conditional put over an object, a `flock` on the
root folder makes one of a look and a put, and the kernel frees it when the process ends.
"""

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from omnigraph.errors import StorageFailed
from omnigraph.storage import failpoints
from omnigraph.storage.flushing import Flusher, chosen_durability
from omnigraph.storage.lifetime import Lifetime
from omnigraph.storage.names import MANIFEST
from omnigraph.storage.objects import Objects, StorageOptions, root_of
from omnigraph.storage.stats import Stats

_DELETING = "__deleting"


def step(name: str) -> None:
    """Pass a step of a cluster's apply, unless a test armed it."""
    failpoints.hit(name)


class ClusterObjects:
    """The objects below one storage root: a path, `file://…` or `s3://bucket/prefix`."""

    def __init__(self, uri: str, options: StorageOptions | None = None) -> None:
        self._where = root_of(uri, options)
        stats = Stats(Lifetime(self._where.uri))
        flusher = Flusher(self._where.path, stats, chosen_durability(None))
        self._objects = Objects(self._where, stats, flusher)

    @property
    def uri(self) -> str:
        """The root, as it is joined with paths."""
        return self._where.uri

    @property
    def options(self) -> StorageOptions | None:
        """The storage options that graphs below the root are opened with."""
        return self._where.storage_options

    def join(self, path: str) -> str:
        """The address of an object or a graph below the root."""
        return self._where.join(path)

    def read(self, path: str) -> bytes | None:
        """The content of an object, or None when there is none."""
        if self._is_unmade:
            return None
        stored = self._objects.get(path)
        return None if stored is None else stored.data

    def create(self, path: str, data: bytes) -> bool:
        """Write an object unless there is one; whether it was written."""
        with self._turn():
            return self._objects.put_if_absent(path, data) is not None

    def keep(self, path: str, data: bytes) -> None:
        """Write an object whose content never changes, or bring back one that was tampered with."""
        if self.read(path) != data:
            self._make_root()
            self._objects.put(path, data)

    def swap(self, path: str, data: bytes, expected: bytes | None) -> bool:
        """Replace the content that the caller has read, None for no object; whether it was."""
        if expected is None:
            return self.create(path, data)
        with self._turn():
            stored = self._objects.get(path)
            if stored is None or stored.data != expected:
                return False
            if not self._where.is_local:
                return self._objects.put_if_match(path, data, stored.tag) is not None
            self._objects.put(path, data)
            return True

    def remove(self, path: str, expected: bytes) -> bool:
        """Remove an object of this content; whether it was there."""
        if self._is_unmade:
            return False
        with self._turn():
            stored = self._objects.get(path)
            if stored is None or stored.data != expected:
                return False
            self._objects.delete(path)
            if self._where.path is not None:
                with suppress(OSError):  # a folder that it alone had made
                    os.rmdir(self._where.path / path.rpartition("/")[0])
            return True

    def delete(self, path: str) -> None:
        """Remove an object, whatever it holds; one that is gone already is no failure."""
        if not self._is_unmade:
            self._objects.delete(path)

    def list(self, prefix: str) -> tuple[str, ...]:
        """The paths of the objects below a prefix, sorted."""
        return () if self._is_unmade else self._objects.list(prefix)

    def is_half_deleted(self, path: str) -> bool:
        """Whether the deletion of a graph was begun and cut off."""
        return not self._is_unmade and self._objects.has(f"{path}/{_DELETING}")

    def delete_graph(self, path: str) -> None:
        """Remove a graph. A mark comes first and the manifest goes next, so that what a cut-off
        deletion left is marked, or is no graph."""
        if self._is_unmade:
            return
        self._objects.put(f"{path}/{_DELETING}", b"")
        self._objects.delete_prefix(f"{path}/{MANIFEST}")
        step("cluster.graph_half_deleted")
        if self._where.path is None:
            self._objects.delete_prefix(path)
            return
        try:
            shutil.rmtree(self._where.path / path)
        except FileNotFoundError:
            return
        except OSError as cause:
            raise StorageFailed(f"removed {self.join(path)}", str(cause)) from cause

    @property
    def _is_unmade(self) -> bool:
        return self._where.path is not None and not self._where.path.is_dir()

    def _make_root(self) -> None:
        if self._where.path is not None:
            try:
                self._where.path.mkdir(parents=True, exist_ok=True)
            except OSError as cause:
                raise StorageFailed(f"made the folder {self._where.path}", str(cause)) from cause

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """Alone among the processes that change an object of this root on a local disk."""
        if self._where.path is None:
            yield
            return
        self._make_root()
        try:
            descriptor = os.open(self._where.path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as cause:
            raise StorageFailed(f"opened {self._where.path}", str(cause)) from cause
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            with suppress(OSError):
                os.close(descriptor)
