"""Fast path of: `rowids.rows_by_id` — rows by row id, read straight from the data files.

Planning a filter that names many row ids takes Lance longer than reading the rows. But a fragment
lists the row ids of its rows in their order, so a row id gives an offset in a file. A row that was
written again is listed by the old fragment too, which has it deleted: the newest fragment that
lists a row id has the row.

Reference: `rowids.rows_by_id`, which filters by row id.
Held equal by: `test_the_newest_fragment_that_lists_a_row_has_it`, and for what it assumes of
Lance's files by `tests/substrate/test_lance_files.py`.
Falls back: for few rows in many files, fragments that would take long to look through and all older
ones, nested columns, columns in several files or under other names, and files that are not on this
disk. The row ids of all of those are handed back to the caller.

Invariant: only rows that the version holds may be asked for, because a row id list does not tell
whether a row was deleted.
"""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa
from lance.file import LanceFileReader
from lance.fragment import DataFile, FragmentMetadata, LanceFragment, RowIdMeta, RowIdSequence

from omnigraph.costs import COSTS
from omnigraph.light_dataclass import dataclass
from omnigraph.lru import Lru
from omnigraph.storage.lance.columns import ADDRESS, ROW_ID, addresses_in
from omnigraph.storage.lance.datasets import Handle
from omnigraph.storage.lance.protobuf import varint
from omnigraph.storage.lance.rowids import rows_by_id

_NO_ROW = np.uint64(2**64 - 1)

Numbers = npt.NDArray[np.uint64]
Positions = npt.NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class RowIdRange:
    """Row ids of a fragment that are consecutive, in their order."""

    first: int
    end: int

    def find(self, row_ids: Numbers) -> tuple[Positions, Numbers]:
        """The positions of those of some sorted row ids that the fragment lists, and the offsets
        of their rows."""
        ends = np.array((self.first, self.end), np.uint64)
        low, high = row_ids.searchsorted(ends).tolist()
        return np.arange(low, high), row_ids[low:high] - np.uint64(self.first)

    def row_ids_at(self, offsets: Positions) -> Numbers:
        """The row ids at some offsets."""
        return offsets.astype(np.uint64) + np.uint64(self.first)


@dataclass(frozen=True, slots=True)
class RowIdList:
    """Row ids of a fragment in any order: sorted here with the offset of each, and with one after
    them that no row has, so that a search for a larger one ends at an entry too."""

    ids: Numbers
    offsets: Numbers

    def find(self, row_ids: Numbers) -> tuple[Positions, Numbers]:
        """The positions of those of some sorted row ids that the fragment lists, and the offsets
        of their rows."""
        nearest = self.ids.searchsorted(row_ids)
        listed = (self.ids[nearest] == row_ids).nonzero()[0]
        return listed, self.offsets[nearest[listed]]

    def row_ids_at(self, offsets: Positions) -> Numbers:
        """The row ids at some offsets."""
        in_order = np.empty(len(self.offsets), np.uint64)
        in_order[self.offsets.astype(np.intp)] = self.ids[:-1]
        row_ids: Numbers = in_order[offsets]
        return row_ids


RowIds = RowIdRange | RowIdList


class DirectReader:
    """Reads rows from data files. Keeps a few files open, and the row ids of fragments, which never
    change, in LRUs. Safe to share between threads."""

    def __init__(self) -> None:
        self._row_ids: Lru[str, tuple[RowIds | None]] = Lru(COSTS.direct_read_fragments_max)
        self._readers: Lru[tuple[str, ...], LanceFileReader] = Lru(COSTS.direct_read_files_max)

    def rows(
        self, handle: Handle, row_ids: pa.Array, columns: Sequence[str]
    ) -> tuple[list[pa.Table], pa.Array]:
        """The rows whose offsets are known, in any order, and the row ids of the others."""
        reads_files = not {ROW_ID, ADDRESS}.issuperset(columns)
        if reads_files and "://" in handle.uri:
            return [], row_ids
        located, others = self._located(handle, row_ids)
        if reads_files and len(located) > max(1, len(row_ids) // COSTS.direct_read_rows_per_file):
            return [], row_ids
        tables = []
        for fragment, ids, offsets in located:
            rows = self._taken(handle, fragment, ids, offsets, columns)
            if rows is None:
                others.append(ids)
            else:
                tables.append(rows)
        return tables, pa.array(np.concatenate(others))

    def addresses(self, handle: Handle, row_ids: pa.Array) -> pa.Array | None:
        """The addresses of the rows, in any order; None when one of them is not known."""
        located, others = self._located(handle, row_ids)
        if any(len(each) for each in others):
            return None
        parts = [addresses_in(fragment.fragment_id, offsets) for fragment, _, offsets in located]
        return pa.array(np.concatenate(parts) if parts else np.empty(0, np.uint64))

    def present(self, handle: Handle, row_ids: pa.Array, columns: Sequence[str]) -> pa.Table:
        """The rows in any order, those whose offsets are not known by a filter of Lance."""
        tables, others = self.rows(handle, row_ids, columns)
        if len(others) or not tables:
            tables.append(rows_by_id(handle, others, columns, ordered=False))
        return pa.concat_tables(tables)

    def whole(
        self, handle: Handle, columns: Sequence[str]
    ) -> Iterator[tuple[RowIds, pa.RecordBatchReader]] | None:
        """Columns of every fragment as their files have them, deleted rows too, with the row ids of
        their rows. None when one of the files cannot be read here."""
        if "://" in handle.uri:
            return None
        listed = [(each.metadata, self._row_ids_of(each)) for each in handle.get_fragments()]
        ids = _plain_fields(handle)
        if any(row_ids is None or not _holds(m, ids, columns) for m, row_ids in listed):
            return None
        return self._streams(handle, ids, listed, columns)

    def _streams(
        self,
        handle: Handle,
        ids: Mapping[str, int],
        listed: Sequence[tuple[FragmentMetadata, RowIds | None]],
        columns: Sequence[str],
    ) -> Iterator[tuple[RowIds, pa.RecordBatchReader]]:
        for metadata, row_ids in listed:
            key, reader = self._reader(handle, ids, metadata, columns)
            if reader is None or row_ids is None:
                raise UnreadableFile
            yield row_ids, reader.read_all(batch_size=COSTS.direct_read_batch_rows).to_batches()
            self._readers.put(key, reader)

    def _located(
        self, handle: Handle, row_ids: pa.Array
    ) -> tuple[list[tuple[LanceFragment, Numbers, Numbers]], list[Numbers]]:
        """The fragments the rows lie in, each with their row ids and offsets; and the row ids that
        are left."""
        left = np.sort(row_ids.to_numpy())
        located = []
        newest_first = sorted(handle.get_fragments(), key=_number, reverse=True)
        for fragment in newest_first:
            listed = self._row_ids_of(fragment) if len(left) else None
            if listed is None:
                break
            positions, offsets = listed.find(left)
            if len(positions):
                located.append((fragment, left[positions], offsets))
                left = np.delete(left, positions)
        return located, [left]

    def clear(self) -> None:
        """Close every file, and forget the row ids of fragments."""
        self._readers.clear()
        self._row_ids.clear()

    def _row_ids_of(self, fragment: LanceFragment) -> RowIds | None:
        metadata = fragment.metadata
        path = metadata.files[0]._path
        known = self._row_ids.get(path)
        if known is None:
            known = (row_id_range(metadata) or row_id_list(metadata),)
            self._row_ids.put(path, known)
        return known[0]

    def _taken(
        self,
        handle: Handle,
        fragment: LanceFragment,
        row_ids: Numbers,
        offsets: Numbers,
        columns: Sequence[str],
    ) -> pa.Table | None:
        """The rows of one file, or None if it does not hold the columns as the version has them."""
        order = np.argsort(offsets)
        row_ids, offsets = row_ids[order], offsets[order]
        addresses = pa.array(addresses_in(fragment.fragment_id, offsets))
        values: dict[str, Any] = {ROW_ID: pa.array(row_ids), ADDRESS: addresses}
        fields = {name: pa.field(name, pa.uint64()) for name in values}
        stored = [name for name in columns if name not in values]
        if stored:
            rows = self._read(handle, fragment.metadata, stored, offsets)
            if rows is None:
                return None
            declared = handle.schema  # made anew at each use
            values |= {name: rows[name] for name in stored}
            fields |= {name: declared.field(name) for name in stored}
        schema = pa.schema([fields[name] for name in columns])
        return pa.table([values[name] for name in columns], schema=schema)

    def _read(
        self, handle: Handle, metadata: FragmentMetadata, columns: Sequence[str], offsets: Numbers
    ) -> pa.Table | None:
        ids = _plain_fields(handle)
        if not _holds(metadata, ids, columns):
            return None
        key, reader = self._reader(handle, ids, metadata, columns)
        if reader is None:
            return None
        rows = reader.take_rows(offsets.tolist(), batch_size=len(offsets)).to_table()
        self._readers.put(key, reader)
        return rows

    def _reader(
        self,
        handle: Handle,
        ids: Mapping[str, int],
        metadata: FragmentMetadata,
        columns: Sequence[str],
    ) -> tuple[tuple[str, ...], LanceFileReader | None]:
        """A reader of the one file of a fragment, which one thread has at a time, and the name it
        is put back under."""
        [file] = metadata.files
        key = (file._path, *(f"{ids[name]} {name}" for name in columns))
        return key, self._readers.pop(key) or _opened(handle, ids, file, columns)


class UnreadableFile(Exception):
    """A data file is gone, or has other names for the columns."""


def _plain_fields(handle: Handle) -> dict[str, int]:
    """The field ids of the columns that are not nested."""
    return {f.name(): f.id() for f in handle.lance_schema.fields() if not f.children()}


def _holds(metadata: FragmentMetadata, ids: Mapping[str, int], columns: Sequence[str]) -> bool:
    """Whether a fragment is one file, of columns that are where they seem to be: in a file with
    nested ones the others are not."""
    if len(metadata.files) != 1 or metadata.overlays:
        return False
    return ids.keys() >= set(columns) and set(ids.values()) >= set(metadata.files[0].fields)


def _number(fragment: LanceFragment) -> int:
    return int(fragment.fragment_id)


# Files


def _opened(
    handle: Handle, ids: Mapping[str, int], file: DataFile, columns: Sequence[str]
) -> LanceFileReader | None:
    """A file that holds columns by the version's names for them. Columns are compared by field id:
    a name may have been given to another column since."""
    # A branch goes on with files of the one it was forked from.
    root = handle.uri if file.base_id is None else handle.base_paths()[file.base_id].path
    path = os.path.join(root, "data", file._path)
    if not os.path.exists(path):
        return None
    try:
        reader = LanceFileReader(path, columns=list(columns))
    except (OSError, ValueError):
        return None  # it has other names for them
    schema, declared = reader.metadata().schema, handle.schema
    theirs = dict(zip(schema.names, file.fields, strict=False))
    is_alike = len(schema) == len(file.fields) and all(
        theirs.get(name) == ids[name] and schema.field(name).type == declared.field(name).type
        for name in columns
    )
    return reader if is_alike else None


# Row ids as Lance writes them: a protobuf message of segments, each of one of several kinds

_SEGMENT, _RANGE, _FIRST, _END = 0x0A, 0x0A, 0x08, 0x10


def row_id_range(metadata: FragmentMetadata) -> RowIdRange | None:
    """The row ids of a fragment, if they are one range without holes."""
    if metadata.row_id_meta is None or not _starts_in_order(metadata.row_id_meta):
        return None
    data = bytes(orjson.loads(metadata.row_id_meta.json()).get("Inline", ()))
    ends, position = {_FIRST: 0, _END: 0}, 0
    try:
        message = _only(_only(data, _SEGMENT), _RANGE)
        while position < len(message):
            tag = message[position]
            ends[tag], position = varint(message, position + 1)
    except IndexError:
        return None  # another kind of segment, or several
    is_whole = len(ends) == 2 and ends[_END] - ends[_FIRST] == metadata.physical_rows
    return RowIdRange(ends[_FIRST], ends[_END]) if is_whole else None


def _starts_in_order(meta: RowIdMeta) -> bool:
    """Whether the first row ids are consecutive. The `repr` of a sequence lists these alone; the
    message of a million rows in another order is long."""
    shown = repr(RowIdSequence.from_inline_metadata(meta)).partition("]")[0]
    ids = [int(number) for number in re.findall(r"\d+", shown)]
    return bool(ids) and ids == list(range(ids[0], ids[0] + len(ids)))


def _only(data: bytes, tag: int) -> bytes:
    """The content of a message's one field; `IndexError` if it is another one, or not alone."""
    length, start = varint(data, 1)
    if data[0] != tag or start + length != len(data):
        raise IndexError
    return data[start:]


def row_id_list(metadata: FragmentMetadata) -> RowIdList | None:
    """The row ids of a fragment in any order, unless they are too many to sort."""
    if metadata.row_id_meta is None or metadata.physical_rows > COSTS.direct_read_listed_rows_max:
        return None
    ids = np.asarray(RowIdSequence.from_inline_metadata(metadata.row_id_meta).to_pyarrow())
    order = np.argsort(ids)
    return RowIdList(np.append(ids[order], _NO_ROW), order.astype(np.uint64))
