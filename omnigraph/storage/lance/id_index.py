"""Fast path of: a search for ids in Lance — hash index in memory from id to row address.

An insert of a keyed node must know whether its id is in use, an upsert where the rows are that it
replaces. For tables that this process writes to by id, the index keeps a hash of every id and the
address of its row: read once, and brought up to date by this process's own commits. Rows that other
processes wrote are read from the fragments the index has not seen.

Reference: Lance's own search, by `merge_insert` in `TableStaging.stage_merge_insert` and by a
filter on ids in `exec.values.selection.rows_by_key`.
Held equal by: `test_an_upsert_replaces_exactly_the_rows_of_its_ids`.
Falls back: while reading the ids would cost more than the lookups made so far, for tables of more
than `id_index_rows_max` rows, and for versions older than the indexed one.

Invariant: no false negatives; a hit may be a row deleted since, and taking such a row out again
does nothing. Ids are told apart by 128 bits of keyed hash. Only published versions are indexed: a
write that was undone never is.
"""

from collections.abc import Callable, Iterator
from dataclasses import field
from threading import Lock

import numpy as np
import pyarrow as pa
from lance.fragment import LanceFragment

from omnigraph.costs import COSTS
from omnigraph.light_dataclass import dataclass
from omnigraph.lru import Lru
from omnigraph.storage.lance.columns import addresses_in
from omnigraph.storage.lance.datasets import Handle, files_of
from omnigraph.storage.lance.id_hashing import Hashes, hashes_of
from omnigraph.storage.lance.strict_commit import known_fragments
from omnigraph.storage.records import TablePin

NO_ADDRESS = np.uint64(2**64 - 1)
_FREE = -1
_LINES_MAX = 1_024  # tables on branches whose lookups are counted

_Line = tuple[str, str | None, str]
"""A table on one incarnation of one Lance branch: along it versions only grow."""

_Files = tuple[str, ...]
ReadRows = Callable[[TablePin, Handle, list[LanceFragment]], Iterator[pa.RecordBatch]]
"""Ids and addresses, in that order, of the rows of some fragments."""


class HashTable:
    """Open-addressing hash table from a 128-bit hash to a 64-bit value, with quadratic probing,
    searched and filled many keys at a time. An entry keeps its number for ever; at most half of the
    slots are taken, so a search probes a few. For one thread at a time."""

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
        entries = np.full(len(one), _FREE, np.int32)
        sought, slot, step = np.arange(len(one)), self._first(one), 0
        while len(sought):
            entry = self._slots[slot]
            taken = entry != _FREE
            same = taken & (first[entry] == one[sought]) & (second[entry] == two[sought])
            entries[sought[same]] = entry[same]
            others = taken & ~same
            step += 1
            sought, slot = sought[others], self._next(slot[others], step)
        return entries

    def add(self, hashes: Hashes, values: np.ndarray) -> None:
        """Add entries whose hashes the table lacks, numbered in their order."""
        before, after = self._count, self._count + len(values)
        self.reserve(after)
        for column, own in zip(self._columns, (*hashes, values), strict=True):
            column[before:after] = own
        self._count = after
        self._insert(np.arange(before, after, dtype=np.int32))

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
            self._insert(np.arange(self._count, dtype=np.int32))

    def _insert(self, entries: np.ndarray) -> None:
        slot, step = self._first(self._columns[0, entries]), 0
        while len(entries):
            free = self._slots[slot] == _FREE
            # Of several entries that compete for one slot the last gets it.
            self._slots[slot[free]] = entries[free]
            lost = self._slots[slot] != entries
            step += 1
            entries, slot = entries[lost], self._next(slot[lost], step)

    def _first(self, hashes: np.ndarray) -> np.ndarray:
        return (hashes & np.uint64(len(self._slots) - 1)).astype(np.int64)

    def _next(self, slot: np.ndarray, step: int) -> np.ndarray:
        # Steps that grow by one reach every slot of a power of two.
        return (slot + step) & (len(self._slots) - 1)


@dataclass(frozen=True, slots=True)
class IdMatches:
    """Ids that were looked up: the addresses of their rows, and what adding the ids can reuse."""

    addresses: np.ndarray
    """Of the ids that have a row, and no others."""

    _hashes: Hashes
    _entries: np.ndarray
    _table: HashTable
    _table_size: int

    @property
    def are_distinct(self) -> bool:
        """Whether no id was looked up twice. Equal hashes are of equal ids."""
        ordered = np.sort(self._hashes[0])
        return not (ordered[1:] == ordered[:-1]).any()


@dataclass(slots=True)
class _TableIds:
    """The ids of one table, on one of its Lance branches, up to a version."""

    version: int
    seen: dict[int, _Files] = field(default_factory=dict)  # fragments whose ids are known
    unplaced: set[_Files] = field(default_factory=set)  # those of them whose addresses are not
    exact: bool = True  # whether addresses can be known at all
    table: HashTable = field(default_factory=HashTable)

    def __len__(self) -> int:
        return len(self.table)

    def answers(self, *, exact: bool) -> bool:
        """Whether every id is known; with `exact` whether every address is too."""
        return not exact or (self.exact and not self.unplaced)

    def find(self, ids: pa.Array | pa.ChunkedArray) -> IdMatches:
        hashes = hashes_of(ids)
        entries = self.table.find(hashes)
        addresses = self.table.values[entries[entries >= 0]]
        addresses = addresses[addresses != NO_ADDRESS]
        return IdMatches(addresses, hashes, entries, self.table, len(self.table))

    def add(self, matches: IdMatches, addresses: np.ndarray) -> None:
        """Set the addresses of rows that are new or have moved."""
        entries = matches._entries
        if matches._table is not self.table or matches._table_size != len(self.table):
            entries = self.table.find(matches._hashes)
        old = entries >= 0
        self.table.values[entries[old]] = addresses[old]
        new = ~old
        self.table.add((matches._hashes[0][new], matches._hashes[1][new]), addresses[new])


class IdIndex:
    """The id indexes of a graph's tables. Safe to share between threads."""

    def __init__(self, read_rows: ReadRows) -> None:
        self._read_rows = read_rows
        self._tables: Lru[_Line, _TableIds] = Lru(COSTS.id_index_rows_max, len)
        self._lookups: Lru[_Line, int] = Lru(_LINES_MAX)
        self._turn = Lock()

    def has(self, pin: TablePin) -> bool:
        """Whether ids of this table's line were read already."""
        with self._turn:
            return self._tables.get(_line(pin)) is not None

    def lacks(self, pin: TablePin, handle: Handle, ids: pa.Array) -> bool:
        """Whether this version certainly has none of the ids; False when it may."""
        with self._turn:
            known = self._current(pin, handle, lookups=1, exact=False)
            return known is not None and not (known.table.find(hashes_of(ids)) >= 0).any()

    def find(self, pin: TablePin, handle: Handle, ids: pa.ChunkedArray) -> IdMatches | None:
        """The rows of the ids in this version; None when the index cannot tell."""
        with self._turn:
            lookups = 1 + len(ids) // COSTS.id_index_ids_per_lookup
            known = self._current(pin, handle, lookups=lookups, exact=True)
            return None if known is None else known.find(ids)

    def published(
        self,
        base: TablePin,
        now: TablePin,
        handle: Handle,
        ids: pa.ChunkedArray,
        *,
        ordered: bool,
        matches: IdMatches | None = None,
    ) -> None:
        """Index the rows of a write that this process published after `base`. `ids` are those of
        all rows it wrote, `ordered` as they were written; `matches` is what `find` gave for
        them."""
        line = _line(base)
        with self._turn:
            known = self._tables.get(line)
            if known is None or known.version != base.version:
                return
            # No restore came in between, so a fragment id still names the same fragment.
            fragments = {fragment.fragment_id: fragment for fragment in known_fragments(handle)}
            new = [fragment for number, fragment in fragments.items() if number not in known.seen]
            written = _addresses(new) if ordered and now.version == base.version + 1 else None
            if len(ids):
                if written is not None and len(written) == len(ids):
                    addresses, new = written, []
                else:
                    addresses = np.full(len(ids), NO_ADDRESS)
                known.add(matches or known.find(ids), addresses)
            known.seen = {n: known.seen.get(n) or files_of(fragments[n]) for n in fragments}
            known.unplaced |= {known.seen[fragment.fragment_id] for fragment in new}
            known.version = now.version
            self._tables.put(line, known)

    def _current(
        self, pin: TablePin, handle: Handle, *, lookups: int, exact: bool
    ) -> _TableIds | None:
        line = _line(pin)
        known = self._tables.get(line)
        if known is not None and known.version > pin.version:
            return None  # an older version may have rows that were gone when this was read
        if known is not None and known.version == pin.version and known.answers(exact=exact):
            return known
        fragments = {files_of(fragment): fragment for fragment in known_fragments(handle)}
        if known is not None and known.version != pin.version:
            # Rows of a fragment that is gone moved, or came back to where they were before.
            known.exact = known.exact and fragments.keys() >= set(known.seen.values())
        if known is not None and exact and not known.exact:
            known = None
        if known is None:
            known = _TableIds(pin.version)
        read = set(known.seen.values()) - (known.unplaced if exact else set())
        fresh = {files: fragment for files, fragment in fragments.items() if files not in read}
        if fresh and not self._read(pin, handle, known, list(fresh.values()), lookups):
            return None
        known.version = pin.version
        known.seen = {fragment.fragment_id: files for files, fragment in fragments.items()}
        known.unplaced -= fresh.keys()
        self._tables.put(line, known)
        return known

    def _read(
        self,
        pin: TablePin,
        handle: Handle,
        known: _TableIds,
        fresh: list[LanceFragment],
        lookups: int,
    ) -> bool:
        """Read the rows of fragments that are not known, unless that takes too long."""
        line = _line(pin)
        rows = sum(fragment.metadata.physical_rows for fragment in fresh)
        lookups += self._lookups.get(line, 0)
        self._lookups.put(line, lookups)
        if rows > lookups * COSTS.id_index_rows_per_lookup or rows > self._tables.weight_max:
            return False
        self._tables.pop(line)  # a read that ends half-way leaves nothing half known
        known.table.reserve(len(known.table) + rows)
        for batch in self._read_rows(pin, handle, fresh):
            known.add(known.find(batch.column(0)), batch.column(1).to_numpy())
        self._lookups.pop(line)
        return True

    def clear(self) -> None:
        """Forget everything."""
        with self._turn:
            self._tables.clear()
            self._lookups.clear()


def _addresses(fragments: list[LanceFragment]) -> np.ndarray:
    """The address of every row of fragments just written, in the order they were written."""
    by_number = sorted(fragments, key=lambda fragment: fragment.fragment_id)
    parts = [addresses_in(f.fragment_id, np.arange(f.metadata.physical_rows)) for f in by_number]
    return np.concatenate(parts) if parts else np.empty(0, np.uint64)


def _line(pin: TablePin) -> _Line:
    return pin.location, pin.branch, pin.fork
