"""Ids that a table certainly lacks, told without asking it.

An insert of a keyed node has to know whether its id is in use. For a table that this process
inserts into, the hashes of every id it holds are kept: 8 bytes an id, read once and carried on by
this process's own commits. What others wrote is read from the fragments not seen yet.

Invariant: the hashes kept for a table cover every id of the version they are kept for, and maybe
more. So "lacks" is certain, and anything else means: look it up. Ids are never taken out: one that
was removed is looked up when it comes again.
"""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Lock

import numpy as np
import pyarrow as pa
from lance.fragment import LanceFragment

from omnigraph.storage.datasets import Handle
from omnigraph.storage.records import TablePin

TABLES_MAX = 64
ROWS_MAX = 8_000_000
READ_A_LOOKUP = 20_000
"""Rows whose ids are read in the time of a lookup: reading them all must not cost more than the
lookups made so far."""

_RECENT_MAX = 4_096
_WEIGHTS = np.random.default_rng().integers(0, 2**64, 4_096, np.uint64, endpoint=False) | np.uint64(
    1
)

_Line = tuple[str, str | None, str]
_Files = tuple[str, ...]
ReadIds = Callable[[TablePin, Handle, list[LanceFragment]], pa.Array]


@dataclass(slots=True)
class _Held:
    """The hashes of one table, on one of its Lance branches."""

    version: int
    seen: frozenset[_Files]
    sorted: np.ndarray
    recent: set[int] = field(default_factory=set)

    def has_any(self, hashes: np.ndarray) -> bool:
        places = np.minimum(np.searchsorted(self.sorted, hashes), len(self.sorted) - 1)
        if len(self.sorted) and bool((self.sorted[places] == hashes).any()):
            return True
        return not self.recent.isdisjoint(hashes.tolist())

    def add(self, hashes: np.ndarray) -> None:
        self.recent.update(hashes.tolist())
        if len(self.recent) > max(_RECENT_MAX, len(self.sorted) // 8):
            fresh = np.fromiter(self.recent, np.uint64, len(self.recent))
            self.sorted = np.union1d(self.sorted, fresh)
            self.recent = set()

    def __len__(self) -> int:
        return len(self.sorted) + len(self.recent)


class Lacking:
    """What is known about the ids of tables. Safe to share between threads."""

    def __init__(self, read_ids: ReadIds) -> None:
        self._read_ids = read_ids
        self._held: OrderedDict[_Line, _Held] = OrderedDict()
        self._asked: dict[_Line, int] = {}
        self._turn = Lock()

    def lacks(self, pin: TablePin, handle: Handle, ids: pa.Array) -> bool:
        """Whether this version certainly has none of the ids; False when it may."""
        line = _line(pin)
        with self._turn:
            held = self._held.get(line)
            if held is None or held.version != pin.version:
                held = self._caught_up(line, pin, handle, held)
            return held is not None and not held.has_any(hashes_of(ids))

    def committed(
        self, base: TablePin, now: TablePin, handle: Handle, ids: pa.Array | None
    ) -> None:
        """This process moved a table from one version to another and added these ids, or none."""
        line = _line(base)
        with self._turn:
            held = self._held.get(line)
            if held is None or held.version != base.version:
                return
            if ids is not None and len(ids):
                held.add(hashes_of(ids))
            held.version = now.version
            held.seen = _seen(handle)
            if len(held) > ROWS_MAX:
                del self._held[line]

    def _caught_up(
        self, line: _Line, pin: TablePin, handle: Handle, held: _Held | None
    ) -> _Held | None:
        if held is not None and held.version > pin.version:
            return None  # an older version may have ids that were gone when this was read
        seen = held.seen if held is not None else frozenset()
        fresh = [f for f in handle.get_fragments() if _files(f) not in seen]
        rows = sum(fragment.metadata.physical_rows for fragment in fresh)
        self._asked[line] = self._asked.get(line, 0) + 1
        if rows > self._asked[line] * READ_A_LOOKUP or rows > ROWS_MAX:
            return None
        hashes = hashes_of(self._read_ids(pin, handle, fresh))
        if held is None:
            held = _Held(pin.version, frozenset(), np.unique(hashes))
        else:
            held.add(hashes)
        held.version, held.seen = pin.version, _seen(handle)
        self._keep(line, held)
        return held

    def _keep(self, line: _Line, held: _Held) -> None:
        self._asked.pop(line, None)
        self._held[line] = held
        self._held.move_to_end(line)
        while len(self._held) > TABLES_MAX:
            self._held.popitem(last=False)

    def clear(self) -> None:
        """Forget everything."""
        with self._turn:
            self._held.clear()
            self._asked.clear()


def hashes_of(ids: pa.Array) -> np.ndarray:
    """A 64-bit hash of each id: the sum of its bytes, each times a random weight of its place."""
    if isinstance(ids, pa.ChunkedArray):
        ids = ids.combine_chunks()
    if not len(ids):
        return np.empty(0, np.uint64)
    ids = ids.cast(pa.large_binary())
    _, offsets_buffer, data_buffer = ids.buffers()
    offsets = np.frombuffer(offsets_buffer, np.int64)[ids.offset : ids.offset + len(ids) + 1]
    lengths = np.diff(offsets)
    start, end = int(offsets[0]), int(offsets[-1])
    sums: np.ndarray = lengths.astype(np.uint64) * _WEIGHTS[-1]
    if end == start:
        return sums
    data = np.frombuffer(data_buffer, np.uint8)[start:end].astype(np.uint64)
    places = np.arange(end - start) - np.repeat(offsets[:-1] - start, lengths)
    data *= _WEIGHTS[places % len(_WEIGHTS)]
    filled = lengths > 0
    sums[filled] += np.add.reduceat(data, (offsets[:-1] - start)[filled])
    return sums


def _line(pin: TablePin) -> _Line:
    return pin.location, pin.branch, pin.fork


def _seen(handle: Handle) -> frozenset[_Files]:
    return frozenset(_files(fragment) for fragment in handle.get_fragments())


def _files(fragment: LanceFragment) -> _Files:
    """What tells fragments apart: their numbers come again after a restore."""
    return tuple(file.path for file in fragment.metadata.files)
