"""Many hashes with a value each, looked up and added many at a time.

Invariant: an entry keeps its number for ever. At most half of the slots are taken, so a search is
a few looks.
"""

import numpy as np

Hashes = tuple[np.ndarray, np.ndarray]
"""The two halves of 128 bits, for each of some texts."""

_FREE = -1


class Slots:
    """Entries of a hash and a 64-bit value. For one thread at a time."""

    def __init__(self) -> None:
        self._slots = np.full(2, _FREE, np.int32)
        self._columns = np.empty((3, 1), np.uint64)  # the halves of the hash, and the value
        self._count = 0

    def __len__(self) -> int:
        return self._count

    @property
    def values(self) -> np.ndarray:
        """The value of each entry, by its number."""
        return self._columns[2, : self._count]

    def find(self, hashes: Hashes) -> np.ndarray:
        """The number of the entry of each hash, -1 where there is none."""
        one, two = hashes
        first, second, _ = self._columns
        found = np.full(len(one), _FREE, np.int32)
        asked, slot, step = np.arange(len(one)), self._first(one), 0
        while len(asked):
            entry = self._slots[slot]
            taken = entry != _FREE
            same = taken & (first[entry] == one[asked]) & (second[entry] == two[asked])
            found[asked[same]] = entry[same]
            others = taken & ~same
            step += 1
            asked, slot = asked[others], self._next(slot[others], step)
        return found

    def add(self, hashes: Hashes, values: np.ndarray) -> None:
        """Entries that are not there yet, numbered in their order."""
        before, after = self._count, self._count + len(values)
        self.reserve(after)
        for column, own in zip(self._columns, (*hashes, values), strict=True):
            column[before:after] = own
        self._count = after
        self._place(np.arange(before, after, dtype=np.int32))

    def reserve(self, count: int) -> None:
        """Make room for so many entries at once, not little by little."""
        if count <= self._columns.shape[1]:
            return
        columns = np.empty((3, count + count // 4), np.uint64)
        columns[:, : self._count] = self._columns[:, : self._count]
        self._columns = columns
        slots = 1 << (2 * columns.shape[1] - 1).bit_length()
        if slots > len(self._slots):
            self._slots = np.full(slots, _FREE, np.int32)
            self._place(np.arange(self._count, dtype=np.int32))

    def _place(self, entries: np.ndarray) -> None:
        slot, step = self._first(self._columns[0, entries]), 0
        while len(entries):
            free = self._slots[slot] == _FREE
            # Of several that want one slot the last gets it.
            self._slots[slot[free]] = entries[free]
            lost = self._slots[slot] != entries
            step += 1
            entries, slot = entries[lost], self._next(slot[lost], step)

    def _first(self, hashes: np.ndarray) -> np.ndarray:
        return (hashes & np.uint64(len(self._slots) - 1)).astype(np.int64)

    def _next(self, slot: np.ndarray, step: int) -> np.ndarray:
        # Steps that grow by one reach every slot of a power of two.
        return (slot + step) & (len(self._slots) - 1)
