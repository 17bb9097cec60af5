"""Where the rows of a table are, by id, known without asking the table.

An insert of a keyed node has to know whether its id is in use, and an upsert where the rows are
that it replaces. For tables that this process writes to by id, a hash of every id and the address
of its row are kept: read once, and carried on by this process's own commits. What others wrote is
read from the fragments not seen yet.

Invariant: what is kept for a table covers every row of the version it is kept for, and maybe rows
that are gone: taking those out again does nothing. So "lacks" is certain, and an address is right
or dead. Ids are told apart by 128 bits of hash under random keys. Only published versions count:
a write that was undone is never taken for the table.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from threading import Lock

import numpy as np
import pyarrow as pa
from lance.fragment import LanceFragment

from omnigraph.storage.lance.datasets import Handle, files_of
from omnigraph.storage.lance.hashing import hashes_of
from omnigraph.storage.lance.slots import Hashes, Slots
from omnigraph.storage.records import TablePin

ROWS_MAX = 10_000_000  # kept in all, about 40 bytes each
READ_A_LOOKUP = 20_000
"""Rows that are read in the time of a lookup: reading a table must not cost more than the lookups
that were made in it."""

IDS_A_LOOKUP = 200
"""Ids of an upsert that take as long as one lookup."""

NOWHERE = np.uint64(2**64 - 1)

_Line = tuple[str, str | None, str]
_Files = tuple[str, ...]
ReadRows = Callable[[TablePin, Handle, list[LanceFragment]], Iterator[pa.RecordBatch]]
"""Ids and addresses of the rows of some fragments, in that order."""


@dataclass(frozen=True, slots=True)
class Found:
    """Ids that were looked up: what is told of them, and what learning of them again can use."""

    at: np.ndarray
    """Where their rows are; those of no row are not in it."""

    _hashes: Hashes
    _entries: np.ndarray
    _slots: Slots
    _known: int

    @property
    def are_distinct(self) -> bool:
        """Whether no id came twice. Hashes that are equal are of equal ids."""
        ordered = np.sort(self._hashes[0])
        return not (ordered[1:] == ordered[:-1]).any()


@dataclass(slots=True)
class _Held:
    """What is known of one table, on one of its Lance branches."""

    version: int
    seen: dict[int, _Files] = field(default_factory=dict)  # fragments whose ids are known
    unplaced: set[_Files] = field(default_factory=set)  # those of them whose addresses are not
    exact: bool = True  # whether addresses can be told at all
    slots: Slots = field(default_factory=Slots)

    def tells(self, *, exact: bool) -> bool:
        """Whether all that is asked is known: which ids are there, or where they are too."""
        return not exact or (self.exact and not self.unplaced)

    def find(self, ids: pa.Array | pa.ChunkedArray) -> Found:
        hashes = hashes_of(ids)
        entries = self.slots.find(hashes)
        at = self.slots.values[entries[entries >= 0]]
        return Found(at[at != NOWHERE], hashes, entries, self.slots, len(self.slots))

    def add(self, found: Found, at: np.ndarray) -> None:
        """Learn rows, or where they have moved to."""
        entries = found._entries
        if found._slots is not self.slots or found._known != len(self.slots):
            entries = self.slots.find(found._hashes)
        old = entries >= 0
        self.slots.values[entries[old]] = at[old]
        new = ~old
        self.slots.add((found._hashes[0][new], found._hashes[1][new]), at[new])


class Places:
    """What is known about the rows of tables. Safe to share between threads."""

    def __init__(self, read_rows: ReadRows) -> None:
        self._read_rows = read_rows
        self._held: OrderedDict[_Line, _Held] = OrderedDict()
        self._asked: dict[_Line, int] = {}
        self._turn = Lock()

    def lacks(self, pin: TablePin, handle: Handle, ids: pa.Array) -> bool:
        """Whether this version certainly has none of the ids; False when it may."""
        with self._turn:
            held = self._current(pin, handle, asked=1, exact=False)
            return held is not None and not (held.slots.find(hashes_of(ids)) >= 0).any()

    def find(self, pin: TablePin, handle: Handle, ids: pa.ChunkedArray) -> Found | None:
        """Where the ids are in this version; None when that takes a look to tell."""
        with self._turn:
            asked = 1 + len(ids) // IDS_A_LOOKUP
            held = self._current(pin, handle, asked=asked, exact=True)
            return None if held is None else held.find(ids)

    def published(
        self,
        base: TablePin,
        now: TablePin,
        handle: Handle,
        ids: pa.ChunkedArray,
        *,
        ordered: bool,
        found: Found | None = None,
    ) -> None:
        """This process published a table one write later. `ids` are those of rows it wrote, all of
        them, `ordered` as they were written; `found` is what `find` gave for the same ids."""
        line = _line(base)
        with self._turn:
            held = self._held.get(line)
            if held is None or held.version != base.version:
                return
            # Nobody restored anything in between, so a number is still the same fragment.
            there = {fragment.fragment_id: fragment for fragment in handle.get_fragments()}
            new = [fragment for number, fragment in there.items() if number not in held.seen]
            at = _addresses(new) if ordered and now.version == base.version + 1 else None
            if len(ids):
                placed = at is not None and len(at) == len(ids)
                nowhere = np.full(len(ids), NOWHERE)
                held.add(found or held.find(ids), at if at is not None and placed else nowhere)
                if placed:
                    new = []
            held.seen = {n: held.seen.get(n) or files_of(there[n]) for n in there}
            held.unplaced |= {held.seen[fragment.fragment_id] for fragment in new}
            held.version = now.version
            self._keep(line, held)

    def _current(self, pin: TablePin, handle: Handle, *, asked: int, exact: bool) -> _Held | None:
        line = _line(pin)
        held = self._held.get(line)
        if held is not None and held.version > pin.version:
            return None  # an older version may have rows that were gone when this was read
        if held is not None and held.version == pin.version and held.tells(exact=exact):
            self._held.move_to_end(line)
            return held
        there = {files_of(fragment): fragment for fragment in handle.get_fragments()}
        if held is not None and held.version != pin.version:
            # Rows of a fragment that is gone moved, or came back to where they were before.
            held.exact = held.exact and there.keys() >= set(held.seen.values())
        if held is not None and exact and not held.exact:
            held = None
        if held is None:
            held = _Held(pin.version)
        known = set(held.seen.values()) - (held.unplaced if exact else set())
        fresh = {files: fragment for files, fragment in there.items() if files not in known}
        if fresh and not self._read(pin, handle, held, list(fresh.values()), asked):
            return None
        held.version = pin.version
        held.seen = {fragment.fragment_id: files for files, fragment in there.items()}
        held.unplaced -= fresh.keys()
        self._keep(line, held)
        return held

    def _read(
        self, pin: TablePin, handle: Handle, held: _Held, fresh: list[LanceFragment], asked: int
    ) -> bool:
        """Read the rows of fragments that are not known, unless that takes too long."""
        line = _line(pin)
        rows = sum(fragment.metadata.physical_rows for fragment in fresh)
        self._asked[line] = self._asked.get(line, 0) + asked
        if rows > self._asked[line] * READ_A_LOOKUP or rows > ROWS_MAX:
            return False
        self._held.pop(line, None)  # a read that ends half-way leaves nothing half known
        held.slots.reserve(len(held.slots) + rows)
        for batch in self._read_rows(pin, handle, fresh):
            held.add(held.find(batch.column(0)), batch.column(1).to_numpy())
        self._asked.pop(line, None)
        return True

    def _keep(self, line: _Line, held: _Held) -> None:
        self._held[line] = held
        self._held.move_to_end(line)
        while self._held and sum(len(each.slots) for each in self._held.values()) > ROWS_MAX:
            self._held.popitem(last=False)

    def clear(self) -> None:
        """Forget everything."""
        with self._turn:
            self._held.clear()
            self._asked.clear()


def _addresses(fragments: list[LanceFragment]) -> np.ndarray:
    """The address of every row of fragments just written, in the order they were written."""
    by_number = sorted(fragments, key=lambda fragment: fragment.fragment_id)
    parts = [
        (np.uint64(f.fragment_id) << np.uint64(32))
        + np.arange(f.metadata.physical_rows, dtype=np.uint64)
        for f in by_number
    ]
    return np.concatenate(parts) if parts else np.empty(0, np.uint64)


def _line(pin: TablePin) -> _Line:
    return pin.location, pin.branch, pin.fork
