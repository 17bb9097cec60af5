"""What is derived from table versions, kept while it fits.

Invariant: a version never changes, so neither does anything kept under its key; the least recently
used goes first, and what is kept never weighs more than the bound. Of threads that want the same
missing thing one makes it and the others wait for it.
"""

from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable
from threading import Lock, RLock
from typing import Any, TypeVar

Kept = TypeVar("Kept")

_USES_MAX = 4096


class Cache:
    """A byte-bounded LRU, safe to share between threads."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self._kept: OrderedDict[Hashable, tuple[Any, int]] = OrderedDict()
        self._bytes = 0
        self._turn = Lock()
        self._making: dict[Hashable, RLock] = {}
        self._uses: Counter[Hashable] = Counter()

    @property
    def bytes_kept(self) -> int:
        return self._bytes

    def get(self, key: Hashable) -> Any | None:
        """What is kept under a key, now the most recently used."""
        with self._turn:
            found = self._kept.get(key)
            if found is None:
                return None
            self._kept.move_to_end(key)
            return found[0]

    def put(self, key: Hashable, value: Any, bytes_held: int) -> None:
        """Keep a value, if it fits at all, and let go of what no longer does."""
        with self._turn:
            self._bytes -= self._kept.pop(key, (None, 0))[1]
            if bytes_held > self.bytes_max:
                return
            self._kept[key] = (value, bytes_held)
            self._bytes += bytes_held
            while self._bytes > self.bytes_max:
                _, (_, freed) = self._kept.popitem(last=False)
                self._bytes -= freed

    def made(self, key: Hashable, make: Callable[[], tuple[Kept, int]]) -> Kept:
        """What is kept under a key, or what `make` returns with its weight in bytes."""
        found: Kept | None = self.get(key)
        if found is not None:
            return found
        with self._turn:
            lock = self._making.setdefault(key, RLock())
        try:
            with lock:
                found = self.get(key)
                if found is None:
                    found, bytes_held = make()
                    self.put(key, found, bytes_held)
        finally:
            with self._turn:
                self._making.pop(key, None)
        return found

    def use(self, key: Hashable, cost: int = 1) -> int:
        """Count a use of something that is not kept; the total so far says when keeping it pays."""
        with self._turn:
            if len(self._uses) > _USES_MAX:
                self._uses.clear()
            self._uses[key] += cost
            return self._uses[key]

    def clear(self) -> None:
        """Let go of everything."""
        with self._turn:
            self._kept.clear()
            self._uses.clear()
            self._bytes = 0
