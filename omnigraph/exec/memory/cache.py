"""Byte-bounded cache of data derived from table versions, with lock-free lookups.

Invariant: a version never changes, so neither does a value kept under its key. Entries not used
since the last eviction are evicted first, and the kept values never weigh more than the bound. Of
threads that miss the same key one makes the value and the others wait for it.

Not an `Lru`, which locks and reorders on every lookup: a point query takes microseconds and looks
up several keys. Here a lookup takes no lock and moves nothing: it marks the key, and the order is
settled at an eviction. An eviction begins a new `epoch`: a caller may keep a value it looked up, to
save the next lookup, for one epoch.
"""

from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable
from threading import Lock, RLock
from typing import Any, TypeVar

from omnigraph.costs import COSTS

Kept = TypeVar("Kept")


class Cache:
    """Values by key, in approximate LRU order. Safe to share between threads."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.epoch = 0
        self._kept: OrderedDict[Hashable, tuple[Any, int]] = OrderedDict()
        self._marked: dict[Hashable, None] = {}  # used in this epoch, in order of first use
        self._bytes = 0
        self._turn = Lock()
        self._making: dict[Hashable, RLock] = {}
        self._uses: Counter[Hashable] = Counter()

    @property
    def bytes_kept(self) -> int:
        return self._bytes

    def get(self, key: Hashable) -> Any | None:
        """The value of a key, now marked as used; None on a miss."""
        entry = self._kept.get(key)
        if entry is None:
            return None
        self._marked[key] = None
        return entry[0]

    def put(self, key: Hashable, value: Any, bytes_held: int) -> None:
        """Keep a value, if it fits at all, and evict others until the bound holds again."""
        with self._turn:
            self._bytes -= self._kept.pop(key, (None, 0))[1]
            if bytes_held > self.bytes_max:
                return
            self._kept[key] = (value, bytes_held)
            self._bytes += bytes_held
            if self._bytes > self.bytes_max:
                self._make_room(key)

    def _make_room(self, newest: Hashable) -> None:
        marked, self._marked = self._marked, {}
        self.epoch += 1
        for key in (*list(marked), newest):
            if key in self._kept:
                self._kept.move_to_end(key)
        while self._bytes > self.bytes_max:
            _, (_, freed) = self._kept.popitem(last=False)
            self._bytes -= freed

    def made(self, key: Hashable, make: Callable[[], tuple[Kept, int]]) -> Kept:
        """The value of a key; on a miss the one that `make` returns with its weight in bytes."""
        value: Kept | None = self.get(key)
        if value is not None:
            return value
        with self._turn:
            lock = self._making.setdefault(key, RLock())
        try:
            with lock:
                value = self.get(key)
                if value is None:
                    value, bytes_held = make()
                    self.put(key, value, bytes_held)
        finally:
            with self._turn:
                self._making.pop(key, None)
        return value

    def use(self, key: Hashable, cost: int = 1) -> int:
        """Count a use of a key that is not kept; the total so far says when keeping it pays."""
        with self._turn:
            if len(self._uses) > COSTS.cache_uses_max:
                self._uses.clear()
            self._uses[key] += cost
            return self._uses[key]

    def clear(self) -> None:
        """Drop every entry."""
        with self._turn:
            self.epoch += 1
            self._kept.clear()
            self._marked.clear()
            self._uses.clear()
            self._bytes = 0
