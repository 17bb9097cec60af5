"""Write locks that work across processes and die with their holder.

On local disk a lock is `flock` on a file below `__locks/`: the kernel frees it when the process
ends, kill -9 included. Elsewhere it is a lease: an object its holder rewrites while it lives.

Invariant: at most one holder a name. Locks are taken in name order, so there is no deadlock. A
lease is taken over only after its object stayed unchanged for a whole term on the observer's own
clock, so clocks of different machines are never compared; for a fifth of a term when its holder ran
on this machine and is known to be dead, which leaves the time for its last request to land. Who
waits for one lease watches all that it needs, so the terms of dead holders run side by side. A
holder that could not renew in time is told by `require_alive` before it moves a head. Threads of a
process that wait for one lock get it in the order they came (FIFO).
"""

import fcntl
import os
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import field
from pathlib import Path
from typing import Any, Protocol

import orjson

from omnigraph.errors import OmnigraphError, StorageFailed
from omnigraph.light_dataclass import dataclass
from omnigraph.lru import Lru
from omnigraph.storage.locks.process_mark import is_dead, own_mark
from omnigraph.storage.locks.waiting_line import has_line, in_line
from omnigraph.storage.names import BRANCH_MARK, branch_mark
from omnigraph.storage.objects import Objects, Root, Stored
from omnigraph.storage.stats import Stats

FOLDER = "__locks"
LEASE_TERM_S = 10.0
LOCK_WAIT_S = 60.0
_DEAD_SHARE = 0.2
_IDLE_TERMS = 3
_KNOWN_MAX = 10_000
_NEW_MAX = 1_000
_POLL_FIRST_S, _POLL_MAX_S = 0.001, 0.004  # close together: who waits long asks as often


class Lock(Protocol):
    """One lock, ours until `release`."""

    def require_alive(self) -> None:
        """Pass while the lock is certainly ours."""

    def release(self) -> None:
        """Give it up."""


class Locks(Protocol):
    """Locks by name."""

    def acquire(self, name: str, *, wait_s: float) -> Lock | None:
        """Take the lock, or None when a live holder kept it for `wait_s`."""

    def probe(self, name: str, *, patient: bool = True) -> Lock | None:
        """Take the lock if its holder is dead or gone; None as soon as one is seen alive, or at
        once when not `patient` and nothing is known yet."""

    def watch(self, names: Iterable[str]) -> None:
        """Look at locks that will be asked for, so that waiting for one waits for all."""

    def known(self, prefix: str) -> tuple[str, ...]:
        """The names with a beginning that anybody has taken, sorted."""

    def discard(self, names: Iterable[str], *, for_good: bool = False) -> None:
        """Remove what is kept of locks that the caller holds and nobody is expected to ask for;
        `for_good` if these names never come again."""

    def retire(
        self, is_unneeded: Callable[[str], bool], *, idle_s: float, confirm: bool
    ) -> tuple[str, ...]:
        """Remove what is kept of unneeded locks that nobody holds, or only name them. The caller
        sees to it that none of them comes to be needed meanwhile."""

    def presume_new(self, branch: str) -> None:
        """A branch is new, so most likely nobody has taken a lock of it yet."""


def make_locks(where: Root, objects: Objects, stats: Stats, *, term_s: float) -> Locks:
    """The locks of a graph: files on local disk, leases elsewhere."""
    if where.path is not None:
        return FileLocks(where.path / FOLDER, stats)
    return LeaseLocks(objects, stats, term_s=term_s)


class Guard:
    """Several locks of one holder, and whether one of them had another holder before."""

    def __init__(self) -> None:
        self.locks: dict[str, Lock] = {}
        self.waited = False

    def require_alive(self) -> None:
        """Pass while every lock is certainly ours."""
        for lock in self.locks.values():
            lock.require_alive()


class LockTaken(StorageFailed):
    """Another writer has a lock that this thread does not wait for: it comes before those that the
    thread keeps, or what the thread prepared would be stale by the end of the wait."""

    def __init__(self, name: str) -> None:
        super().__init__(f"asked for the write lock {name}", "another writer has it")
        self.lock = name

    def __reduce__(self) -> tuple[Any, ...]:
        return LockTaken, (self.lock,)


Kept = Mapping[str, Lock]
"""Locks by name that the caller holds already, and shares with what it calls."""

NONE_KEPT: Kept = {}


@contextmanager
def hold(
    locks: Locks,
    names: Iterable[str],
    *,
    kept: Kept = NONE_KEPT,
    wait_s: float = LOCK_WAIT_S,
    gives_way: bool = False,
) -> Iterator[Guard]:
    """Hold all the names, the `kept` ones among them. The others are taken in name order; one that
    comes before a kept lock is taken only if it is free, and else `LockTaken`. With `gives_way` so
    is each of them."""
    last = max(kept, default="")
    guard = Guard()
    taken: list[Lock] = []
    with ExitStack() as stack:
        stack.callback(_release, taken)
        ordered = sorted(set(names))
        for index, name in enumerate(ordered):
            lock = kept.get(name)
            if lock is None:
                lock = locks.acquire(name, wait_s=0.0)
                if lock is None and (gives_way or name < last):
                    raise LockTaken(name)
                if lock is None:
                    if not guard.waited:
                        locks.watch(each for each in ordered[index + 1 :] if each not in kept)
                    guard.waited = True
                    lock = locks.acquire(name, wait_s=wait_s)
                if lock is None:
                    raise StorageFailed(
                        f"waited {wait_s:g} s for the write lock {name}",
                        "another writer still has it",
                    )
                taken.append(lock)
            guard.locks[name] = lock
        yield guard


def _release(taken: Sequence[Lock]) -> None:
    """Give up locks, the last one first. The end of a lease is a call, so leases end at once."""
    others = [threading.Thread(target=x.release) for x in taken[1:] if isinstance(x, _Lease)]
    for thread in others:
        thread.start()
    for lock in reversed([*taken[:1], *(x for x in taken[1:] if not isinstance(x, _Lease))]):
        lock.release()
    for thread in others:
        thread.join()


@contextmanager
def hold_if_idle(
    locks: Locks, names: Iterable[str], *, kept: Kept = NONE_KEPT, patient: bool = True
) -> Iterator[Guard | None]:
    """Hold all the names, or none (and yield None) when one belongs to a live holder. The former
    holder of a `kept` lock is dead."""
    guard = Guard()
    with ExitStack() as stack:
        for name in sorted(set(names)):
            lock = kept.get(name)
            if lock is None:
                lock = locks.probe(name, patient=patient)
                if lock is None:
                    stack.close()
                    yield None
                    return
                stack.callback(lock.release)
            guard.locks[name] = lock
        yield guard


# Local disk


class FileLocks:
    """`flock` on one file a name. A file is removed only by its holder, and whoever takes a lock
    looks whether its file is still the one of that name: else a lock would be split in two."""

    def __init__(self, folder: Path, stats: Stats) -> None:
        self._folder = folder
        self._stats = stats

    def acquire(self, name: str, *, wait_s: float) -> Lock | None:
        line = str(self._folder / name)
        if not wait_s:
            return None if has_line(line) else self.probe(name)
        deadline = time.monotonic() + wait_s
        with in_line(line, deadline) as is_first:
            return self._asked_for(name, deadline) if is_first else None

    def probe(self, name: str, *, patient: bool = True) -> Lock | None:
        return self._asked_for(name, time.monotonic())

    def _asked_for(self, name: str, deadline: float) -> Lock | None:
        """Ask for a lock until the deadline, at least once."""
        while True:
            descriptor = self._open(name)
            pause = _POLL_FIRST_S
            while not _flocked(descriptor):
                if time.monotonic() >= deadline:
                    os.close(descriptor)
                    return None
                time.sleep(pause)
                pause = min(pause * 1.5, _POLL_MAX_S)
            if os.fstat(descriptor).st_nlink:
                return _FileLock(descriptor)
            os.close(descriptor)  # its last holder removed it: there may be another one by now

    def watch(self, names: Iterable[str]) -> None:
        """A file lock of a dead holder is free at once."""

    def known(self, prefix: str) -> tuple[str, ...]:
        try:
            names = os.listdir(self._folder)
        except FileNotFoundError:
            return ()
        own = (name.removesuffix(".lock") for name in names if name.endswith(".lock"))
        return tuple(sorted(name for name in own if name.startswith(prefix)))

    def discard(self, names: Iterable[str], *, for_good: bool = False) -> None:
        for name in names:
            with suppress(OSError):
                os.unlink(self._folder / f"{name}.lock")

    def retire(
        self, is_unneeded: Callable[[str], bool], *, idle_s: float, confirm: bool
    ) -> tuple[str, ...]:
        """The kernel knows whether a file is held, so it need not have been idle."""
        gone = []
        for name in filter(is_unneeded, self.known("")):
            lock = self.probe(name) if confirm else None
            if lock is not None:
                self.discard([name])
                lock.release()
            if lock is not None or not confirm:
                gone.append(name)
        return tuple(gone)

    def presume_new(self, branch: str) -> None:
        """A file lock is opened and made by one call."""

    def _open(self, name: str) -> int:
        self._stats.call("lock.acquire")
        path = self._folder / f"{name}.lock"
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        try:
            try:
                return os.open(path, flags, 0o666)
            except FileNotFoundError:
                self._folder.mkdir(exist_ok=True)
                return os.open(path, flags, 0o666)
        except OSError as cause:
            raise StorageFailed(f"opened the lock {path}", str(cause)) from cause


def _flocked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@dataclass(slots=True)
class _FileLock:
    descriptor: int

    def require_alive(self) -> None:
        """A file lock cannot be lost while the process lives."""

    def release(self) -> None:
        os.close(self.descriptor)


# Object stores


class LeaseLocks:
    """One small object a name: free, or held and renewed every third of its term."""

    def __init__(self, objects: Objects, stats: Stats, *, term_s: float = LEASE_TERM_S) -> None:
        self._objects = objects
        self._stats = stats
        self._term_s = term_s
        self._free_tags: Lru[str, str] = Lru(_KNOWN_MAX)
        self._seen: Lru[str, tuple[str, float]] = Lru(_KNOWN_MAX)  # of others: tag, since when
        self._removed: set[str] = set()  # leases that end without being freed
        self._new: Lru[str, None] = Lru(_NEW_MAX)  # ends of names that nobody seems to have taken

    def acquire(self, name: str, *, wait_s: float) -> Lock | None:
        line = f"{self._objects.uri}/{_path(name)}"
        if not wait_s:
            return None if has_line(line) else self._take(name, wait_s=0.0, until_alive=False)
        deadline = time.monotonic() + wait_s
        with in_line(line, deadline) as is_first:
            left_s = max(0.0, deadline - time.monotonic())
            return self._take(name, wait_s=left_s, until_alive=False) if is_first else None

    def probe(self, name: str, *, patient: bool = True) -> Lock | None:
        return self._take(name, wait_s=float("inf") if patient else 0.0, until_alive=True)

    def watch(self, names: Iterable[str]) -> None:
        for path in map(_path, names):
            stored = self._objects.get(path)
            if stored is not None and _owner(stored.data) is not None:
                self._ran_out(path, stored)

    def known(self, prefix: str) -> tuple[str, ...]:
        names = map(_name, self._objects.list(FOLDER))
        return tuple(name for name in names if name.startswith(prefix))

    def discard(self, names: Iterable[str], *, for_good: bool = False) -> None:
        """A delete that lands late would take the lease of a later holder, so a name that may come
        again is left to `retire`."""
        for path in map(_path, names) if for_good else ():
            with suppress(OmnigraphError):  # else it is freed, or runs out by itself
                self._objects.delete(path)
                self._removed.add(path)

    def retire(
        self, is_unneeded: Callable[[str], bool], *, idle_s: float, confirm: bool
    ) -> tuple[str, ...]:
        """A lease that was not rewritten for many terms has no holder that renews it. Ages are
        taken on the store's own clock, from the lease that was rewritten last."""
        leases = self._objects.listed(FOLDER)
        newest = max((lease.modified for lease in leases), default=0.0)
        idle_s = max(idle_s, _IDLE_TERMS * self._term_s)
        idle = (lease.path for lease in leases if newest - lease.modified > idle_s)
        gone = [path for path in idle if is_unneeded(_name(path))]
        if confirm and gone:
            self._objects.delete(*gone)
        return tuple(map(_name, gone))

    def presume_new(self, branch: str) -> None:
        self._new.put(branch_mark(branch), None)

    def _take(self, name: str, *, wait_s: float, until_alive: bool) -> Lock | None:
        self._stats.call("lock.acquire")
        path, owner = _path(name), uuid.uuid4().hex
        known = self._free_tags.pop(path)
        tag = self._objects.put_if_match(path, _lease(owner), known) if known else None
        mark = name[name.rfind(BRANCH_MARK) :]
        if tag is None and self._new.get(mark, "") is None:
            tag = self._objects.put_if_absent(path, _lease(owner))
            if tag is None:
                self._new.pop(mark)
        deadline = time.monotonic() + wait_s
        first = ""
        while tag is None:
            stored = self._objects.get(path)
            if stored is None:
                tag = self._objects.put_if_absent(path, _lease(owner))
            elif _owner(stored.data) in (None, owner) or self._ran_out(path, stored):
                tag = self._objects.put_if_match(path, _lease(owner), stored.tag)
            elif (until_alive and first not in ("", stored.tag)) or time.monotonic() >= deadline:
                return None
            else:
                first = first or stored.tag
                time.sleep(min(0.05, self._term_s / 10))
        self._seen.pop(path)
        lease = _Lease(self, path, owner, tag, time.monotonic())
        lease.start()
        return lease

    def _ran_out(self, path: str, stored: Stored) -> bool:
        """Whether this process has seen the lease unchanged for longer than its term, or for a
        part of it when the holder is known to be dead."""
        seen, since = self._seen.get(path, ("", 0.0))
        if seen != stored.tag:
            self._seen.put(path, (stored.tag, time.monotonic()))
            return False
        unchanged_s = time.monotonic() - since
        if unchanged_s > self._term_s:
            return True
        return unchanged_s > self._term_s * _DEAD_SHARE and is_dead(_mark(stored.data))

    def renewed(self, path: str, owner: str, tag: str) -> str | None:
        """The next tag of a lease that is still ours."""
        return self._objects.put_if_match(path, _lease(owner), tag)

    def tag_if_owned(self, path: str, owner: str) -> str | None:
        """The current tag, if the lease still names this owner."""
        stored = self._objects.get(path)
        return stored.tag if stored is not None and _owner(stored.data) == owner else None

    def freed(self, path: str, tag: str) -> None:
        """Mark the lease free, unless somebody else has it by now or it was removed."""
        if path in self._removed:
            self._removed.remove(path)
            return
        free = self._objects.put_if_match(path, _lease(None), tag)
        if free is not None:
            self._free_tags.put(path, free)

    @property
    def term_s(self) -> float:
        return self._term_s


def _path(name: str) -> str:
    return f"{FOLDER}/{name}.json"


def _name(path: str) -> str:
    return path.removeprefix(f"{FOLDER}/").removesuffix(".json")


def _lease(owner: str | None) -> bytes:
    # The nonce makes every renewal a new tag, also where tags are hashes of the content.
    facts = {"owner": owner, "nonce": uuid.uuid4().hex}
    return orjson.dumps(facts if owner is None else {**facts, "process": own_mark()})


def _owner(data: bytes) -> str | None:
    owner = orjson.loads(data)["owner"]
    return None if owner is None else str(owner)


def _mark(data: bytes) -> object:
    """What the lease says about its holder's process: nothing in leases of earlier programs."""
    return orjson.loads(data).get("process")


@dataclass(slots=True)
class _Lease:
    locks: LeaseLocks
    path: str
    owner: str
    tag: str
    renewed_at: float
    _done: threading.Event = field(default_factory=threading.Event)
    _turn: threading.Lock = field(default_factory=threading.Lock)

    def start(self) -> None:
        threading.Thread(target=self._renew, name="omnigraph-lease", daemon=True).start()

    def require_alive(self) -> None:
        if time.monotonic() - self.renewed_at > self.locks.term_s:
            raise StorageFailed(f"held the lease {self.path}", "it ran out before it was renewed")

    def release(self) -> None:
        self._done.set()
        with self._turn:
            try:
                self.locks.freed(self.path, self.tag)
            except OmnigraphError:
                return  # it runs out by itself

    def _renew(self) -> None:
        while not self._done.wait(self.locks.term_s / 3):
            with self._turn:
                if self._done.is_set():
                    return
                self._renew_once()

    def _renew_once(self) -> None:
        started = time.monotonic()
        try:
            tag = self.locks.renewed(self.path, self.owner, self.tag)
            if tag is not None:
                self.tag, self.renewed_at = tag, started
            else:
                self._look_again()
        except OmnigraphError:
            return  # tried again at the next turn; `require_alive` watches the term

    def _look_again(self) -> None:
        """A renewal whose answer got lost left a tag we do not know; anything else is a loss."""
        tag = self.locks.tag_if_owned(self.path, self.owner)
        if tag is None:
            self.renewed_at = float("-inf")
        else:
            self.tag = tag
