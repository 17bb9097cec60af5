"""LRU cache: a mapping that evicts the least recently used entries beyond a bound.

Invariant: the weights of the kept entries never add up to more than `weight_max`. Every call takes
the cache's lock, so threads may share one; what a caller does with a value is the caller's to lock.
"""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from threading import Lock
from typing import Generic, TypeVar, overload

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")
Other = TypeVar("Other")


class Lru(Generic[Key, Value]):
    """At most `weight_max` entries, or entries of that weight in all where `weight_of` weighs a
    value. A value is weighed when it is put: one that grew is put again."""

    __slots__ = ("_entries", "_lock", "_weight", "_weight_of", "weight_max")

    def __init__(self, weight_max: int, weight_of: Callable[[Value], int] | None = None) -> None:
        self.weight_max = weight_max
        self._weight_of = weight_of
        self._entries: OrderedDict[Key, tuple[Value, int]] = OrderedDict()
        self._weight = 0
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def weight(self) -> int:
        """What the kept entries weigh."""
        return self._weight

    @overload
    def get(self, key: Key) -> Value | None: ...
    @overload
    def get(self, key: Key, default: Other) -> Value | Other: ...
    def get(self, key: Key, default: object = None) -> object:
        """The value of a key, now the most recently used; `default` where there is none."""
        with self._lock:
            entry = self._entries.get(key)
            if entry is None:
                return default
            self._entries.move_to_end(key)
            return entry[0]

    def put(self, key: Key, value: Value) -> list[Value]:
        """Keep a value as the most recently used; the values that were evicted for it. A value
        that outweighs the bound by itself is not kept."""
        weight = 1 if self._weight_of is None else self._weight_of(value)
        with self._lock:
            self._drop(key)
            if weight > self.weight_max:
                return [value]
            self._entries[key] = value, weight
            self._weight += weight
            evicted = []
            while self._weight > self.weight_max:
                _, (oldest, freed) = self._entries.popitem(last=False)
                self._weight -= freed
                evicted.append(oldest)
            return evicted

    def pop(self, key: Key) -> Value | None:
        """Take a value out; None where there is none."""
        with self._lock:
            entry = self._drop(key)
        return None if entry is None else entry[0]

    def discard(self, unwanted: Callable[[Key], bool]) -> None:
        """Drop every entry whose key is unwanted."""
        with self._lock:
            for key in [key for key in self._entries if unwanted(key)]:
                self._drop(key)

    def clear(self) -> None:
        """Drop every entry."""
        with self._lock:
            self._entries.clear()
            self._weight = 0

    def _drop(self, key: Key) -> tuple[Value, int] | None:
        entry = self._entries.pop(key, None)
        if entry is not None:
            self._weight -= entry[1]
        return entry
