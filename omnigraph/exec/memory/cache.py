"""What is derived from table versions, kept while it fits.

Invariant: a version never changes, so neither does anything kept under its key; what was not used
since something last had to go goes first, and what is kept never weighs more than the bound. Of
threads that want the same missing thing one makes it and the others wait for it.

Looking something up takes no lock and moves nothing: it marks the key, and the order is settled
when room is needed. That moment begins a new `epoch`; who remembers what it looked up, to save the
next look, remembers it for one epoch.
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
        """What is kept under a key, now marked as used."""
        found = self._kept.get(key)
        if found is None:
            return None
        self._marked[key] = None
        return found[0]

    def put(self, key: Hashable, value: Any, bytes_held: int) -> None:
        """Keep a value, if it fits at all, and let go of what no longer does."""
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
            self.epoch += 1
            self._kept.clear()
            self._marked.clear()
            self._uses.clear()
            self._bytes = 0
