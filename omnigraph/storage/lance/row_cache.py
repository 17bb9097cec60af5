"""Rows that a comparison of two versions has read on its way, for whoever reads them next.

Invariant: what is found here is what the version holds. A version never changes, and a row that no
step between two versions wrote is the same in both, under the same row id; it is at the same
address too, if its fragment is the same one. Only the rows of a few comparisons are kept.
"""

from collections import OrderedDict
from collections.abc import Sequence
from threading import Lock

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.storage.lance.datasets import Handle, files_of
from omnigraph.storage.records import TablePin

ROW_ID, ADDRESS = "_rowid", "_rowaddr"

_VERSIONS_MAX = 8

Read = tuple[Handle, pa.Table]
"""Rows with their row ids and addresses, and the version they were read from."""


class Carried:
    """Rows by version. Safe to share between threads."""

    def __init__(self) -> None:
        self._rows: OrderedDict[TablePin, tuple[Handle, Sequence[Read]]] = OrderedDict()
        self._turn = Lock()

    def keep(self, pin: TablePin, handle: Handle, reads: Sequence[Read]) -> None:
        """Rows of one version, read from it or from others that share them. Of two with one row id
        the first is the version's."""
        with self._turn:
            self._rows[pin] = handle, reads
            self._rows.move_to_end(pin)
            while len(self._rows) > _VERSIONS_MAX:
                self._rows.popitem(last=False)

    def find(self, pin: TablePin, row_ids: pa.Array, columns: Sequence[str]) -> pa.Table | None:
        """These rows in their order, or None unless all of them are here with these columns."""
        with self._turn:
            handle, reads = self._rows.get(pin, (None, ()))
        wanted = [name for name in columns if name not in (ROW_ID, ADDRESS)]
        if handle is None or any(not _has(rows, wanted) for _, rows in reads):
            return None
        if any(not _alike(origin, handle, wanted) for origin, _ in reads):
            return None
        found = pa.concat_tables([rows.select([*wanted, ROW_ID, ADDRESS]) for _, rows in reads])
        places = pc.index_in(row_ids, value_set=found[ROW_ID].combine_chunks())
        if places.null_count:
            return None
        rows = found.take(places)
        if ADDRESS in columns:
            ends = np.cumsum([0, *(len(rows) for _, rows in reads)])
            origins = np.searchsorted(ends, places.to_numpy(), side="right") - 1
            if not _still_there(handle, reads, origins, rows[ADDRESS]):
                return None
        return rows.select(list(columns))

    def clear(self) -> None:
        """Forget everything."""
        with self._turn:
            self._rows.clear()


def _has(rows: pa.Table, columns: Sequence[str]) -> bool:
    return set(columns) <= set(rows.column_names)


def _alike(one: Handle, other: Handle, columns: Sequence[str]) -> bool:
    """Whether two versions mean the same by these columns."""
    if one is other:
        return True
    ours, theirs = one.schema, other.schema
    return all(
        name in ours.names
        and name in theirs.names
        and ours.field(name).equals(theirs.field(name), check_metadata=True)
        for name in columns
    )


def _still_there(
    handle: Handle, reads: Sequence[Read], origins: np.ndarray, addresses: pa.ChunkedArray
) -> bool:
    """Whether the fragment of each row is the same one in the version the row was read from."""
    numbers = addresses.to_numpy() >> np.uint64(32)
    now = fragments_of(handle)
    for place, (origin, _) in enumerate(reads):
        if origin is handle:
            continue
        then = fragments_of(origin)
        used = np.unique(numbers[origins == place]).tolist()
        if any(now.get(number) != then[number] for number in used):
            return False
    return True


def fragments_of(handle: Handle) -> dict[int, tuple[str, ...]]:
    """The fragments of a version by their numbers, each with its files."""
    return {fragment.fragment_id: files_of(fragment) for fragment in handle.get_fragments()}
