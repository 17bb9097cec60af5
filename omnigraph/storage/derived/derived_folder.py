"""Derived files of a graph: written aside, renamed, listed, mapped and removed.

    __derived/<table>/<kind>-<line>-<version>-<digest>.og

Invariant: a file appears under its name whole and synced, or not at all, and never changes. A file
that is odd in any way is counted in `stats`, never used, and removed where that is allowed. One
process of a machine builds at a time; nobody waits for it. A read-only handle writes to the user's
own cache folder alone. Files of a graph on an object store lie beside it, and are mapped from
copies in that folder (`remote_copies`).
"""

import fcntl
import logging
import os
import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np

from omnigraph import environment, user_cache
from omnigraph.costs import COSTS
from omnigraph.light_dataclass import dataclass
from omnigraph.storage.derived.mapped_file import DamagedFile, MappedFile, write_file
from omnigraph.storage.derived.remote_copies import RemoteCopies
from omnigraph.storage.failpoints import hit
from omnigraph.storage.names import fnv1a64
from omnigraph.storage.objects import Objects, Root
from omnigraph.storage.records import TablePin
from omnigraph.storage.stats import Stats
from omnigraph.types import TableKey

FOLDER = "__derived"
NODES, EDGES = "nodes", "edges"
_SUFFIX = ".og"
_ASIDE = "aside-"
_LOCK = "builder.lock"


def line_name(pin: TablePin) -> str:
    """A table's branch inside a file name."""
    return fnv1a64(f"{pin.branch or ''}\n{pin.fork}")


@dataclass(frozen=True, slots=True)
class DerivedName:
    """The name of a derived file: its kind, the line and version it is of, and its digest."""

    kind: str
    line: str
    version: int
    digest: str

    def __str__(self) -> str:
        return f"{self.kind}-{self.line}-{self.version}-{self.digest}{_SUFFIX}"

    @classmethod
    def parsed(cls, text: str) -> "DerivedName | None":
        """The name in a listing; None for other files."""
        parts = text.removesuffix(_SUFFIX).split("-")
        if not text.endswith(_SUFFIX) or len(parts) != 4 or not parts[2].isdecimal():
            return None
        return cls(parts[0], parts[1], int(parts[2]), parts[3])


@dataclass(frozen=True, slots=True)
class DerivedEntry:
    """A derived file on disk."""

    name: DerivedName
    path: Path
    size: int
    location: str


class DerivedFiles:
    """The derived files of one graph. Safe to share between threads. With `enabled` off there are
    none: every answer comes from tables."""

    def __init__(
        self,
        where: Root,
        objects: Objects,
        stats: Stats,
        *,
        read_only: bool,
        enabled: bool = True,
    ) -> None:
        self._stats = stats
        self._enabled = enabled
        self._remote = RemoteCopies(objects, FOLDER) if enabled and not where.is_local else None
        self._where = where
        self._read_only = read_only
        self._open: dict[Path, MappedFile] = {}
        self._rejected: set[Path] = set()
        self._turn = Lock()
        self._cache: Path | None = None

    # Folders

    @property
    def own(self) -> Path | None:
        """The folder inside a local graph."""
        return None if self._where.path is None else self._where.path / FOLDER

    @property
    def _target(self) -> Path | None:
        """The folder that this handle writes to."""
        if not self._enabled:
            return None
        return self._user_folder() if self._read_only or self.own is None else self.own

    def _user_folder(self) -> Path | None:
        if self._cache is None:
            folder = user_cache.lasting_folder()
            if folder is None:
                return None
            self._cache = folder / "derived" / fnv1a64(self._where.uri)
        return self._cache

    def _folders(self) -> list[Path]:
        if not self._enabled:
            return []
        folders = [] if self.own is None else [self.own]
        if self._read_only or self.own is None:
            cache = self._user_folder()
            folders += [] if cache is None else [cache]
        return folders

    # Listing and opening

    def listed(self, pin: TablePin) -> list[DerivedEntry]:
        """The files of one table that may be used for a version of it."""
        entries: list[DerivedEntry] = []
        for folder in self._folders():
            entries += _entries(folder / _segment(pin.location), pin.location)
        if self._remote is not None:
            entries += self._remote_entries(pin, {str(each.name) for each in entries})
        return [each for each in entries if each.path not in self._rejected]

    def _remote_entries(self, pin: TablePin, copied: set[str]) -> Iterator[DerivedEntry]:
        """The files of one table that lie beside the graph and have no copy here yet."""
        folder = self._user_folder()
        if self._remote is None or folder is None:
            return
        own = folder / _segment(pin.location)
        for text, size in self._remote.listed(_segment(pin.location), pin):
            name = DerivedName.parsed(text)
            if name is not None and text not in copied:
                yield DerivedEntry(name, own / text, size, pin.location)

    def everything(self) -> Iterator[DerivedEntry]:
        """Every derived file, of every table."""
        for folder in self._folders():
            with suppress(OSError):
                for each in sorted(os.listdir(folder)):
                    yield from _entries(folder / each, each.replace("-", "/", 1))
        folder_of_copies = self._user_folder()
        if self._remote is None or folder_of_copies is None:
            return
        for segment, text, size in list(self._remote.everything()):
            name, path = DerivedName.parsed(text), folder_of_copies / segment / text
            if name is not None and not path.exists():
                yield DerivedEntry(name, path, size, segment.replace("-", "/", 1))

    def is_present(self, entry: DerivedEntry) -> bool:
        """Whether a file is on this machine, fetched if it has to be."""
        return self._remote is None or self._remote.fetch(entry.path)

    def opened(self, entry: DerivedEntry) -> MappedFile | None:
        """A file, mapped; None when it is odd, or gone by now."""
        known = self._open.get(entry.path)
        if known is not None:
            return known
        if not self.is_present(entry):
            return None
        try:
            file = MappedFile(entry.path, entry.name.digest)
        except DamagedFile as damaged:
            if not damaged.is_unreadable:
                self.reject(damaged)
            return None
        with self._turn:
            alike = [path for path in self._open if path.parent == entry.path.parent]
            for path in filter(self._is_removed, alike):
                del self._open[path]  # a mapping takes a descriptor, and the file its disk space
            return self._open.setdefault(entry.path, file)

    def is_open(self, file: MappedFile) -> bool:
        """Whether a file is kept mapped for whoever asks for it next."""
        return self._open.get(file.path) is file

    def _is_removed(self, path: Path) -> bool:
        """Whether a file is gone for good: of one on an object store only a copy may be."""
        if path.exists():
            return False
        return self._remote is None or path.name not in self._remote.names(path.parent.name)

    def reject(self, damaged: DamagedFile) -> None:
        """Use a file no more, count it, and remove it where that is allowed."""
        self._stats.event(
            "derived.rejected", level=logging.WARNING, path=str(damaged.path), cause=damaged.fact
        )
        with self._turn:
            self._rejected.add(damaged.path)
            self._open.pop(damaged.path, None)
        if not self._read_only or damaged.path.parent.parent == self._cache:
            with suppress(OSError):
                damaged.path.unlink()
        if self._remote is not None and not self._read_only:
            self._remote.remove(damaged.path)

    # Building

    @contextmanager
    def building(self) -> Iterator[bool]:
        """Whether this process is the one that builds now. It never waits for another."""
        descriptor = self._builder_lock()
        try:
            yield descriptor is not None
        finally:
            if descriptor is not None:
                os.close(descriptor)

    def _builder_lock(self) -> int | None:
        target = self._target
        if target is None:
            return None
        try:
            target.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(target / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except OSError:
            return None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(descriptor)
            return None
        _sweep(target)
        return descriptor

    def write(
        self, kind: str, pin: TablePin, facts: Mapping[str, Any], arrays: Mapping[str, np.ndarray]
    ) -> MappedFile | None:
        """Write a file of a table version, as the builder; None when the disk takes no more."""
        target = self._target
        assert target is not None
        folder = target / _segment(pin.location)
        aside = target / f"{_ASIDE}{os.getpid()}-{secrets.token_hex(4)}"
        whole = {**facts, "kind": kind, "location": pin.location, "version": pin.version}
        whole |= {"branch": pin.branch or "", "fork": pin.fork, "rows": pin.row_count}
        whole["table"] = pin.table_key
        try:
            folder.mkdir(parents=True, exist_ok=True)
            hit("derived.begun")
            digest, size = write_file(aside, whole, arrays)
            hit("derived.written")
            name = DerivedName(kind, line_name(pin), pin.version, digest)
            path = folder / str(name)
            aside.rename(path)
            hit("derived.renamed")
            _sync(folder)
            if self._remote is not None and not self._read_only:
                self._remote.put(path)
        except OSError as cause:
            self._stats.event("derived.unwritten", cause=str(cause))
            with suppress(OSError):
                aside.unlink()
            return None
        with self._turn:
            self._rejected.discard(path)  # a damaged file that is made again may have its name
        self._stats.event("derived.written", path=str(path), bytes=size)
        self._prune(folder, name)
        return self.opened(DerivedEntry(name, path, size, pin.location))

    def _prune(self, folder: Path, newest: DerivedName) -> None:
        """Remove the oldest files of a line, which newer ones replace."""
        names = {each.name for each in _entries(folder, "")}
        if self._remote is not None and not self._read_only:
            listed = map(DerivedName.parsed, self._remote.names(folder.name))
            names |= {each for each in listed if each is not None}
        alike = [each for each in names if (each.kind, each.line) == (newest.kind, newest.line)]
        for name in sorted(alike, key=lambda each: each.version)[: -COSTS.derived_files_kept]:
            with suppress(OSError):
                (folder / str(name)).unlink()
            if self._remote is not None and not self._read_only:
                self._remote.remove(folder / str(name))

    def remove(self, unused: Callable[[DerivedEntry], bool]) -> tuple[int, int]:
        """Remove the files for which a condition holds: how many, and their bytes."""
        files, bytes_freed = 0, 0
        for entry in self.everything():
            if unused(entry):
                with suppress(OSError):
                    entry.path.unlink()
                    files, bytes_freed = files + 1, bytes_freed + entry.size
                if self._remote is not None:
                    self._remote.remove(entry.path)
        return files, bytes_freed

    def remove_line(self, pin: TablePin) -> None:
        """Remove the files of a table on one branch, after the branch was deleted. Best effort:
        `remove` finds those that stay. On an object store files that another process wrote are
        looked for only where the table is large enough for one."""
        segment, line = _segment(pin.location), line_name(pin)
        if self._remote is not None and pin.row_count >= environment.TOPOLOGY_ROWS.read():
            self._remote.look()
        for folder in self._folders():
            for entry in _entries(folder / segment, pin.location):
                if entry.name.line == line:
                    with suppress(OSError):
                        entry.path.unlink()
                    with self._turn:
                        self._open.pop(entry.path, None)
        remote = None if self._read_only else self._remote
        for text in [] if remote is None else remote.names(segment):
            name = DerivedName.parsed(text)
            if remote is not None and name is not None and name.line == line:
                remote.remove(Path(segment, text))

    def close(self) -> None:
        """Forget every mapping, and what an object store listed."""
        with self._turn:
            self._open.clear()
            self._rejected.clear()
        if self._remote is not None:
            self._remote.clear()


def is_of(file: MappedFile, kind: str, pin: TablePin, fingerprint: str) -> bool:
    """Whether a file is of exactly this version of this table, and not of another graph's."""
    facts = file.facts
    own = (facts.get("kind"), facts.get("location"), facts.get("version"), facts.get("branch"))
    return own == (kind, pin.location, pin.version, pin.branch or "") and (
        facts.get("fork"),
        facts.get("fingerprint"),
    ) == (pin.fork, fingerprint)


def pin_of(file: MappedFile) -> TablePin:
    """The table version that a file says it is of."""
    facts = file.facts
    try:
        location, version = str(facts["location"]), int(facts["version"])
        branch, fork, rows = str(facts["branch"]), str(facts["fork"]), int(facts["rows"])
        key = TableKey(str(facts["table"]))
    except (KeyError, TypeError, ValueError) as cause:
        raise DamagedFile(file.path, f"it lacks {cause}") from cause
    return TablePin(key, location, version, branch or None, fork, rows)


def _segment(location: str) -> str:
    return location.replace("/", "-")


def _entries(folder: Path, location: str) -> list[DerivedEntry]:
    entries = []
    try:
        with os.scandir(folder) as listing:
            for each in listing:
                name = DerivedName.parsed(each.name)
                if name is not None:
                    entries.append(
                        DerivedEntry(name, folder / each.name, each.stat().st_size, location)
                    )
    except OSError:
        return entries
    return sorted(entries, key=lambda entry: entry.path.name)


def _sweep(folder: Path) -> None:
    """Remove what builders that died left aside: the holder of the lock is the only builder."""
    with suppress(OSError):
        for each in os.listdir(folder):
            if each.startswith(_ASIDE):
                with suppress(OSError):
                    (folder / each).unlink()


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
