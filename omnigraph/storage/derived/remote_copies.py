"""Local copies of derived files on an object store: a cache folder bounded in bytes (LRU).

Invariant: a copy has the digest in its name, as every derived file has, so a copy that is cut or
damaged is found out like any other. What cannot be fetched, listed or put changes no answer.
"""

import os
import secrets
import time
from collections.abc import Hashable, Iterator
from contextlib import suppress
from pathlib import Path

from omnigraph import environment
from omnigraph.errors import OmnigraphError
from omnigraph.storage.objects import Objects

_LOOK_AGAIN_S = 2.0


class RemoteCopies:
    """The derived files of one graph on an object store, and their copies on this machine."""

    def __init__(self, objects: Objects, folder: str) -> None:
        self._objects = objects
        self._folder = folder
        self._sizes: dict[str, int] = {}
        self._looked_s = float("-inf")
        self._asked: set[Hashable] = set()

    def listed(self, segment: str, version: Hashable) -> Iterator[tuple[str, int]]:
        """Names and sizes of the files of one table. The store is asked again for a version that
        was not asked for before."""
        now = time.monotonic()
        if version not in self._asked and now - self._looked_s > _LOOK_AGAIN_S:
            self.look()
            self._looked_s = now
            self._asked.clear()
        self._asked.add(version)
        for name in self.names(segment):
            yield name, self._sizes[f"{self._folder}/{segment}/{name}"]

    def look(self) -> None:
        """List the files of every table anew."""
        with suppress(OmnigraphError):
            listing = self._objects.listed(self._folder)
            self._sizes = {each.path: each.size for each in listing}

    def names(self, segment: str) -> list[str]:
        """Names of the files of one table, as the store was last seen."""
        prefix = f"{self._folder}/{segment}/"
        return [path.removeprefix(prefix) for path in self._sizes if path.startswith(prefix)]

    def everything(self) -> Iterator[tuple[str, str, int]]:
        """Every file beside the graph: the folder of its table, its name and its size."""
        self.look()
        for path, size in self._sizes.items():
            segment, _, name = path.removeprefix(f"{self._folder}/").partition("/")
            yield segment, name, size

    def fetch(self, path: Path) -> bool:
        """Copy a file to this machine, unless it is here; whether it is here now."""
        with suppress(OSError):
            os.utime(path)
            return True
        if path.exists():
            return True
        try:
            stored = self._objects.get(self._key(path))
        except OmnigraphError:
            return False
        if stored is None:
            self._sizes.pop(self._key(path), None)
            return False
        aside = path.parent.parent / f"aside-{os.getpid()}-{secrets.token_hex(4)}"
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            aside.write_bytes(stored.data)
            aside.rename(path)
        except OSError:
            with suppress(OSError):
                aside.unlink()
            return False
        evict(path.parent.parent.parent, environment.TOPOLOGY_CACHE.read(), path)
        return True

    def put(self, path: Path) -> None:
        """Put a file that was written here beside the graph."""
        with suppress(OmnigraphError, OSError):
            self._objects.put(self._key(path), path.read_bytes())
            self._sizes[self._key(path)] = path.stat().st_size
        evict(path.parent.parent.parent, environment.TOPOLOGY_CACHE.read(), path)

    def remove(self, path: Path) -> None:
        """Remove a file beside the graph."""
        self._sizes.pop(self._key(path), None)
        with suppress(OmnigraphError):
            self._objects.delete(self._key(path))

    def clear(self) -> None:
        """Forget what the store listed."""
        self._sizes = {}
        self._looked_s = float("-inf")
        self._asked.clear()

    def _key(self, path: Path) -> str:
        return f"{self._folder}/{path.parent.name}/{path.name}"


def evict(folder: Path, bytes_max: int, newest: Path) -> None:
    """Remove the copies used least recently until the folder is within its bound. A process that
    has one mapped keeps what it has."""
    copies = []
    for path in folder.rglob("*.og"):
        with suppress(OSError):
            facts = path.stat()
            copies.append((facts.st_mtime, facts.st_size, path))
    total = sum(size for _, size, _ in copies)
    for _, size, path in sorted(copies):
        if total <= bytes_max:
            return
        if path != newest:
            with suppress(OSError):
                path.unlink()
                total -= size
