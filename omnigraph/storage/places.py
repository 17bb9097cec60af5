"""Where the rows of a table are, by id, known without asking the table.

An insert of a keyed node has to know whether its id is in use, and an upsert where the rows are
that it replaces. For tables that this process writes to by id, a hash of every id and the address
of its row are kept: read once, and carried on by this process's own commits. What others wrote is
read from the fragments not seen yet.

Invariant: what is kept for a table covers every row of the version it is kept for, and maybe rows
that are gone: taking those out again does nothing. So "lacks" is certain, and an address is right
or dead. Ids are told apart by 128 bits of hash under random weights. Only published versions count:
a write that was undone is never taken for the table.
"""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Lock

import numpy as np
import pyarrow as pa
from lance.fragment import LanceFragment

from omnigraph.storage.datasets import Handle, files_of
from omnigraph.storage.hashing import hashes_of
from omnigraph.storage.records import TablePin

ROWS_MAX = 16_000_000  # kept in all, 24 bytes each
READ_A_LOOKUP = 20_000
"""Rows that are read in the time of a lookup: reading a table must not cost more than the lookups
that were made in it."""

IDS_A_LOOKUP = 200
"""Ids of an upsert that take as long as one lookup."""

NOWHERE = np.uint64(2**64 - 1)

_Line = tuple[str, str | None, str]
_Files = tuple[str, ...]
ReadRows = Callable[[TablePin, Handle, list[LanceFragment]], pa.Table]
"""Ids and addresses of the rows of some fragments, in that order."""


@dataclass(slots=True)
class _Run:
    """Rows in the order of their hashes."""

    hashes: np.ndarray
    checks: np.ndarray
    at: np.ndarray

    def __len__(self) -> int:
        return len(self.hashes)

    def found(self, hashes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Which of the hashes are here, and the places of those."""
        places = np.minimum(np.searchsorted(self.hashes, hashes), len(self) - 1)
        here = self.hashes[places] == hashes
        return here, places[here]


def _run(hashes: np.ndarray, checks: np.ndarray, at: np.ndarray) -> _Run:
    order = np.argsort(hashes, kind="stable")
    return _Run(hashes[order], checks[order], at[order])


@dataclass(slots=True)
class _Held:
    """What is known of one table, on one of its Lance branches."""

    version: int
    seen: frozenset[_Files] = frozenset()  # fragments whose ids are known
    unplaced: set[_Files] = field(default_factory=set)  # those of them whose addresses are not
    exact: bool = True  # whether addresses can be told at all
    runs: list[_Run] = field(default_factory=list)  # each longer than all after it

    def __len__(self) -> int:
        return sum(map(len, self.runs))

    def has_any(self, ids: pa.Array) -> bool:
        hashes, _ = hashes_of(ids)
        return any(bool(run.found(hashes)[0].any()) for run in self.runs)

    def find(self, ids: pa.Array) -> np.ndarray | None:
        """The addresses of the ids, `NOWHERE` for those it lacks, in any order; None when two ids
        cannot be told apart."""
        wanted = _run(*hashes_of(ids), np.full(len(ids), NOWHERE))
        for run in self.runs:
            here, places = run.found(wanted.hashes)
            if not (run.checks[places] == wanted.checks[here]).all():
                return None
            wanted.at[here] = run.at[places]
        return wanted.at

    def add(self, ids: pa.Array, at: np.ndarray) -> None:
        """Learn rows, or where they have moved to."""
        rows = _run(*hashes_of(ids), at)
        new = np.ones(len(rows), bool)
        for run in self.runs:
            here, places = run.found(rows.hashes)
            self.exact = self.exact and bool((run.checks[places] == rows.checks[here]).all())
            run.at[places] = rows.at[here]
            new &= ~here
        if not new.any():
            return
        self.runs.append(_Run(rows.hashes[new], rows.checks[new], rows.at[new]))
        while len(self.runs) > 1 and len(self.runs[-2]) <= 2 * len(self.runs[-1]):
            last, before = self.runs.pop(), self.runs.pop()
            pairs = ((before.hashes, last.hashes), (before.checks, last.checks))
            both = [np.concatenate(pair) for pair in (*pairs, (before.at, last.at))]
            self.runs.append(_run(*both))


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
            return held is not None and not held.has_any(ids)

    def find(self, pin: TablePin, handle: Handle, ids: pa.Array) -> np.ndarray | None:
        """The addresses of the ids in this version, `NOWHERE` for those it lacks, in any order;
        None when that takes a look to tell."""
        with self._turn:
            asked = 1 + len(ids) // IDS_A_LOOKUP
            held = self._current(pin, handle, asked=asked, exact=True)
            return None if held is None else held.find(ids)

    def published(
        self, base: TablePin, now: TablePin, handle: Handle, ids: pa.Array | None, *, ordered: bool
    ) -> None:
        """This process published a table one write later. `ids` are those of rows it wrote, all of
        them, `ordered` as they were written."""
        line = _line(base)
        with self._turn:
            held = self._held.get(line)
            if held is None or held.version != base.version:
                return
            new = [f for f in handle.get_fragments() if files_of(f) not in held.seen]
            at = _addresses(new) if ordered and now.version == base.version + 1 else None
            if ids is not None and len(ids):
                placed = at is not None and len(at) == len(ids)
                held.add(ids, at if at is not None and placed else np.full(len(ids), NOWHERE))
                if placed:
                    new = []
            held.unplaced |= {files_of(fragment) for fragment in new}
            held.version, held.seen = now.version, _seen(handle)
            self._keep(line, held)

    def _current(self, pin: TablePin, handle: Handle, *, asked: int, exact: bool) -> _Held | None:
        line = _line(pin)
        held = self._held.get(line)
        if held is not None and held.version > pin.version:
            return None  # an older version may have rows that were gone when this was read
        if held is not None and held.version != pin.version:
            # Rows of a fragment that is gone moved, or came back to where they were before.
            held.exact = held.exact and held.seen <= _seen(handle)
        if held is not None and exact and not held.exact:
            held = None
        if held is None:
            held = _Held(pin.version)
        known = held.seen - held.unplaced if exact else held.seen
        fresh = [f for f in handle.get_fragments() if files_of(f) not in known]
        if not fresh:
            held.version = pin.version
            self._keep(line, held)
            return held
        rows = sum(fragment.metadata.physical_rows for fragment in fresh)
        self._asked[line] = self._asked.get(line, 0) + asked
        if rows > self._asked[line] * READ_A_LOOKUP or rows > ROWS_MAX:
            return None
        read = self._read_rows(pin, handle, fresh)
        held.add(read.column(0).combine_chunks(), read.column(1).to_numpy().copy())
        held.version, held.seen = pin.version, _seen(handle)
        held.unplaced -= {files_of(fragment) for fragment in fresh}
        self._asked.pop(line, None)
        self._keep(line, held)
        return held

    def _keep(self, line: _Line, held: _Held) -> None:
        self._held[line] = held
        self._held.move_to_end(line)
        while self._held and sum(map(len, self._held.values())) > ROWS_MAX:
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


def _seen(handle: Handle) -> frozenset[_Files]:
    return frozenset(files_of(fragment) for fragment in handle.get_fragments())
