"""Flush barriers (fsync): files, and the folders that name them, on disk before a write goes on.

    fsync   a commit is acknowledged once a power cut cannot take it away
    os      nothing is flushed: the page cache keeps what the system has not written yet

In both modes a barrier fails for a staged file that does not exist, before a version names it.

A barrier flushes all its files at once, from many threads, because a disk takes one long step for
all that are asked for together. A file counts once its own content and the entry of its name in the
folder are on disk, and those of the folders above it; folders above are flushed by a process once.
Below a branch's `tree/` folder, which another process may remove and make again, the nearest two
are flushed each time.

Invariant: when `barrier` returns, its paths and everything owed before it was called are on disk. A
path stays owed until a flush of it has ended, so no thread passes a barrier because another one has
merely begun to flush. On an object store every put is durable when it is answered, and nothing is
done here.
"""

import os
import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from functools import cache, partial
from pathlib import Path

from omnigraph import environment
from omnigraph.errors import BadRequest, StorageFailed
from omnigraph.storage.stats import Stats

FSYNC, OS = "fsync", "os"
MODES = (FSYNC, OS)
DEFAULT = FSYNC
_THREADS = 16
_KEY = b"omnigraph:durability"
_TREE = "/tree/"


def checked_durability(mode: str | None) -> str | None:
    """The mode a caller asks for, or `BadRequest`."""
    if mode is not None and mode not in MODES:
        raise BadRequest(f"durability is '{mode}'", f"use {' or '.join(MODES)}")
    return mode


def chosen_durability(asked: str | None, stored: str | None = None) -> str:
    """The mode of an open graph: asked for, set in the environment, or the graph's own."""
    return asked or environment.DURABILITY.read() or stored or DEFAULT


def stored_durability(metadata: Mapping[bytes, bytes] | None) -> str | None:
    """The mode that a graph was made with, from the metadata of its manifest's schema."""
    mode = (metadata or {}).get(_KEY, b"").decode("utf-8", "replace")
    return mode if mode in MODES else None


def durability_metadata(mode: str | None) -> dict[bytes, bytes]:
    """How the mode of a graph is stored: not at all when nobody chose one."""
    return {} if mode is None else {_KEY: mode.encode()}


class Flusher:
    """The flushes of one graph's files. Safe to share between threads."""

    def __init__(self, root: Path | None, stats: Stats, mode: str = OS) -> None:
        self._root = None if root is None else str(root)
        self._stats = stats
        self._mode = mode
        self._turn = threading.Lock()
        self._owed: set[str] = set()
        self._named: set[str] = set()  # folders whose own entry is on disk
        self._heads: dict[str, str] = {}

    def choose(self, mode: str) -> None:
        """Go on in another mode."""
        self._mode = mode

    @property
    def mode(self) -> str:
        """How this graph is written: an object store flushes by itself."""
        return self._mode

    @property
    def is_on(self) -> bool:
        """Whether barriers flush anything."""
        return self._root is not None and self._mode == FSYNC

    def owe(self, paths: Iterable[str]) -> None:
        """Let the next barrier flush these paths too."""
        if self.is_on:
            with self._turn:
                self._owed.update(paths)

    def owe_head(self, folder: str, path: str, *others: str) -> None:
        """Owe the version that a write builds on, unless this process flushed it itself: another
        one may have died between writing it and flushing it."""
        if self.is_on and self._heads.get(folder) != path:
            self._heads[folder] = path
            self.owe((path, *others))

    def flushed_head(self, folder: str, path: str) -> None:
        """Remember the version of a dataset that a barrier has flushed."""
        if self.is_on:
            self._heads[folder] = path

    def owe_below(self, folder: str) -> None:
        """Let the next barrier flush every file below a folder."""
        if self.is_on:
            self.owe(_below(f"{self._root}/{folder}", len(str(self._root)) + 1))

    def barrier(self, paths: Iterable[str] = (), *, staged: Iterable[str] = ()) -> None:
        """Return when the paths and all that is owed are on disk, or `StorageFailed`. `staged` are
        files that a version is about to name, which must exist in either mode."""
        if not self.is_on:
            self._require(staged)
            return
        with self._turn:
            owed = frozenset(self._owed)
        own = frozenset((*paths, *staged))
        due = owed | own
        if not due:
            return
        self._stats.call("disk.barrier")
        folders = {above for path in due for above in self._unnamed_above(path)}
        _together([partial(self._flush, path, path in own) for path in sorted(due | folders)])
        with self._turn:
            self._owed -= owed
            self._named |= folders

    def forget(self, prefix: str) -> None:
        """A folder was removed: one of the same name is another one."""
        if self.is_on:
            below = f"{prefix.rstrip('/')}/"
            with self._turn:
                self._named = {n for n in self._named if not f"{n}/".startswith(below)}
                self._owed = {o for o in self._owed if not f"{o}/".startswith(below)}
                for folder in [f for f in self._heads if f"{f}/".startswith(below)]:
                    del self._heads[folder]

    def _unnamed_above(self, path: str) -> Iterable[str]:
        """The folders whose entries name a path: its own, always, and those above it which this
        process has not flushed yet. The graph's own folder is the empty path."""
        folder = path.rpartition("/")[0]
        yield folder
        if folder and _TREE in folder:
            yield folder.rpartition("/")[0]
        while folder and folder not in self._named:
            folder = folder.rpartition("/")[0]
            yield folder

    def _require(self, staged: Iterable[str]) -> None:
        """Look for files that were not flushed. On an object store the answer to the put says that
        they are there."""
        if self._root is None:
            return
        for path in staged:
            self._stats.call("disk.look")
            if not os.path.lexists(f"{self._root}/{path}"):
                raise _missing(f"{self._root}/{path}")

    def _flush(self, path: str, is_required: bool) -> None:
        self._stats.call("disk.flush")
        full = f"{self._root}/{path}" if path else str(self._root)
        try:
            flush_path(full)
        except FileNotFoundError as cause:
            if is_required:  # else given up by the thread that owed it
                raise _missing(full) from cause
        except OSError as cause:
            raise StorageFailed(f"flushed {full} to disk", str(cause)) from cause


def _missing(path: str) -> StorageFailed:
    return StorageFailed(
        "checked the files of a new version",
        f"missing file {path}: it was removed or written elsewhere; prepare the write again",
    )


def flush_path(path: str) -> None:
    """Flush one file or folder."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _below(folder: str, skip: int) -> list[str]:
    return [
        f"{parent}/{name}"[skip:]
        for parent, folders, files in os.walk(folder)
        for name in (*folders, *files)
    ]


def _together(calls: list[Callable[[], None]]) -> None:
    """Run all calls at once; the first failure is raised when all have ended."""
    waiting = [_threads().submit(call) for call in calls[1:]]
    try:
        calls[0]()
    finally:
        wait(waiting)
    for each in waiting:
        each.result()


@cache
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_THREADS, thread_name_prefix="omnigraph-flush")


# A process that was forked has none of the threads.
os.register_at_fork(after_in_child=_threads.cache_clear)
