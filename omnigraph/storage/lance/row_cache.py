"""Row cache: filled by `Deltas.touched`, read by `TableReader.by_row_id`.

A comparison of two versions reads the rows that differ; the merge or diff that follows reads the
same rows by row id, and gets them from here.

Invariant: a cached row is what its version holds. A version never changes, and a row that no step
between two versions wrote is the same in both, under the same row id; its address is the same too,
if its fragment is. The rows of a few comparisons are kept, in an LRU.
"""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph import number_arrays
from omnigraph.costs import COSTS
from omnigraph.lru import Lru
from omnigraph.storage.lance.columns import ADDRESS, ROW_ID, fragment_ids
from omnigraph.storage.lance.datasets import Handle, files_of
from omnigraph.storage.lance.strict_commit import known_fragments
from omnigraph.storage.records import TablePin

RowsRead = tuple[Handle, pa.Table]
"""Rows with their row ids and addresses, and the version they were read from."""


class RowCache:
    """Rows by version. Safe to share between threads."""

    def __init__(self) -> None:
        self._rows: Lru[TablePin, tuple[Handle, Sequence[RowsRead]]] = Lru(
            COSTS.row_cache_versions_max
        )

    def keep(self, pin: TablePin, handle: Handle, reads: Sequence[RowsRead]) -> None:
        """Rows of one version, read from it or from others that share them. Of two with one row id
        the first is the version's."""
        self._rows.put(pin, (handle, reads))

    def find(self, pin: TablePin, row_ids: pa.Array, columns: Sequence[str]) -> pa.Table | None:
        """These rows in their order, or None unless all of them are here with these columns."""
        handle, reads = self._rows.get(pin, (None, ()))
        stored = [name for name in columns if name not in (ROW_ID, ADDRESS)]
        if handle is None or any(not _has(rows, stored) for _, rows in reads):
            return None
        if any(not _alike(origin, handle, stored) for origin, _ in reads):
            return None
        cached = pa.concat_tables([rows.select([*stored, ROW_ID, ADDRESS]) for _, rows in reads])
        positions = pc.index_in(row_ids, value_set=cached[ROW_ID].combine_chunks())
        if positions.null_count:
            return None
        rows = cached.take(positions)
        if ADDRESS in columns:
            ends = np.cumsum([0, *(len(rows) for _, rows in reads)])
            origins = np.searchsorted(ends, positions.to_numpy(), side="right") - 1
            if not _same_fragments(handle, reads, origins, rows[ADDRESS]):
                return None
        return rows.select(list(columns))

    def clear(self) -> None:
        """Forget everything."""
        self._rows.clear()


def _has(rows: pa.Table, columns: Sequence[str]) -> bool:
    return set(columns) <= set(rows.column_names)


def _alike(one: Handle, other: Handle, columns: Sequence[str]) -> bool:
    """Whether two versions mean the same by these columns."""
    if one is other:
        return True
    ours, theirs = ({field.name: field for field in handle.schema} for handle in (one, other))
    return all(
        name in ours and name in theirs and ours[name].equals(theirs[name], check_metadata=True)
        for name in columns
    )


def _same_fragments(
    handle: Handle, reads: Sequence[RowsRead], origins: np.ndarray, addresses: pa.ChunkedArray
) -> bool:
    """Whether the fragment of each row is the same one in the version the row was read from."""
    owners = fragment_ids(addresses.to_numpy())
    now = fragments_of(handle)
    for nth, (origin, _) in enumerate(reads):
        if origin is handle:
            continue
        then = fragments_of(origin)
        used = number_arrays.distinct(owners[origins == nth]).tolist()
        if any(now.get(number) != then[number] for number in used):
            return False
    return True


def fragments_of(handle: Handle) -> dict[int, tuple[str, ...]]:
    """The fragments of a version by their ids, each with its files."""
    return {fragment.fragment_id: files_of(fragment) for fragment in known_fragments(handle)}
