"""Rows known by row id, read straight from the files they lie in.

To plan a filter that names many row ids takes Lance longer than to read the rows. But a fragment
lists the row ids of its rows in their order, so that a row id tells a place in a file. A row that
was written again is listed by the old fragment too, which has it deleted: the newest one that lists
a row id has the row.

Invariant: only rows that the version holds may be asked for, because a place does not tell whether
its row was deleted. What is not certain or not worth while is left to the caller: few rows in many
files, fragments that would take long to look through and all older ones, nested columns, columns in
several files or under other names, and files that are not on this disk.
"""

import os
import re
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from threading import Lock

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa
from lance.file import LanceFileReader
from lance.fragment import DataFile, FragmentMetadata, LanceFragment, RowIdMeta, RowIdSequence

from omnigraph.storage.lance.datasets import Handle

_ROW_ID, _ADDRESS = "_rowid", "_rowaddr"
_SCATTERED_MAX = 50_000
_LISTS_MAX = 512
_READERS_MAX = 16
_ROWS_A_FILE = 64  # files are opened only for so many rows each, on average
_NO_ROW = np.uint64(2**64 - 1)

Numbers = npt.NDArray[np.uint64]
Places = npt.NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class Stretch:
    """Row ids that follow each other, in their order."""

    first: int
    end: int

    def find(self, wanted: Numbers) -> tuple[Places, Numbers]:
        """Which of some sorted row ids are listed, and the places of those."""
        ends = np.array((self.first, self.end), np.uint64)
        low, high = wanted.searchsorted(ends).tolist()
        return np.arange(low, high), wanted[low:high] - np.uint64(self.first)


@dataclass(frozen=True, slots=True)
class Scattered:
    """Row ids in any order: sorted here with the place of each, and one after them that no row has,
    so that what is larger than all finds something too."""

    ids: Numbers
    places: Numbers

    def find(self, wanted: Numbers) -> tuple[Places, Numbers]:
        """Which of some sorted row ids are listed, and the places of those."""
        at = self.ids.searchsorted(wanted)
        found = (self.ids[at] == wanted).nonzero()[0]
        return found, self.places[at[found]]


class InPlace:
    """Reads rows from files. Keeps a few of them open, and remembers which row ids they hold: that
    never changes. Safe to share between threads."""

    def __init__(self) -> None:
        self._lists: OrderedDict[str, Stretch | Scattered | None] = OrderedDict()
        self._readers: OrderedDict[tuple[str, ...], LanceFileReader] = OrderedDict()
        self._turn = Lock()

    def rows(
        self, handle: Handle, row_ids: pa.Array, columns: Sequence[str]
    ) -> tuple[list[pa.Table], pa.Array]:
        """Those of the rows whose places are known, in any order, and the row ids of the others."""
        if "://" in handle.uri:
            return [], row_ids
        lying, others = self._lying(handle, row_ids)
        if len(lying) > max(1, len(row_ids) // _ROWS_A_FILE):
            return [], row_ids
        found = []
        for fragment, ids, places in lying:
            rows = self._taken(handle, fragment, ids, places, columns)
            if rows is None:
                others.append(ids)
            else:
                found.append(rows)
        return found, pa.array(np.concatenate(others))

    def _lying(
        self, handle: Handle, row_ids: pa.Array
    ) -> tuple[list[tuple[LanceFragment, Numbers, Numbers]], list[Numbers]]:
        """The fragments the rows lie in, each with those and their places; and what is unknown."""
        wanted = np.sort(row_ids.to_numpy())
        lying = []
        newest_first = sorted(handle.get_fragments(), key=_number, reverse=True)
        for fragment in newest_first:
            listed = self._listed(fragment) if len(wanted) else None
            if listed is None:
                break
            at, places = listed.find(wanted)
            if len(at):
                lying.append((fragment, wanted[at], places))
                wanted = np.delete(wanted, at)
        return lying, [wanted]

    def clear(self) -> None:
        """Close every file."""
        with self._turn:
            self._readers.clear()

    def _listed(self, fragment: LanceFragment) -> Stretch | Scattered | None:
        held = fragment.metadata
        path = held.files[0]._path
        with self._turn:
            if path in self._lists:
                self._lists.move_to_end(path)
                return self._lists[path]
        listed = _stretch(held) or _scattered(held)
        with self._turn:
            self._lists[path] = listed
            if len(self._lists) > _LISTS_MAX:
                self._lists.popitem(last=False)
        return listed

    def _taken(
        self,
        handle: Handle,
        fragment: LanceFragment,
        row_ids: Numbers,
        places: Numbers,
        columns: Sequence[str],
    ) -> pa.Table | None:
        """The rows of one file, or None if it does not hold the columns as the version has them."""
        order = np.argsort(places)
        row_ids, places = row_ids[order], places[order]
        stored = [name for name in columns if name not in (_ROW_ID, _ADDRESS)]
        rows = self._read(handle, fragment.metadata, stored, places)
        if rows is None:
            return None
        at = np.uint64(fragment.fragment_id << 32) | places
        known = {_ROW_ID: pa.array(row_ids), _ADDRESS: pa.array(at)}
        fields = [
            pa.field(name, pa.uint64()) if name in known else handle.schema.field(name)
            for name in columns
        ]
        values = [known[name] if name in known else rows[name] for name in columns]
        return pa.table(values, schema=pa.schema(fields))

    def _read(
        self, handle: Handle, held: FragmentMetadata, columns: Sequence[str], places: Numbers
    ) -> pa.Table | None:
        if len(held.files) != 1 or held.overlays:
            return None
        [file] = held.files
        ids = {f.name(): f.id() for f in handle.lance_schema.fields() if not f.children()}
        if not ids.keys() >= set(columns) or not set(ids.values()) >= set(file.fields):
            return None  # in a file with nested columns the others are not where they seem to be
        key = (file._path, *(f"{ids[name]} {name}" for name in columns))
        with self._turn:
            reader = self._readers.pop(key, None)  # one thread has it at a time
        if reader is None:
            reader = _opened(handle, ids, file, columns)
        if reader is None:
            return None
        rows = reader.take_rows(places.tolist(), batch_size=len(places)).to_table()
        with self._turn:
            self._readers[key] = reader
            if len(self._readers) > _READERS_MAX:
                self._readers.popitem(last=False)
        return rows


def _number(fragment: LanceFragment) -> int:
    return int(fragment.fragment_id)


# Files


def _opened(
    handle: Handle, ids: Mapping[str, int], file: DataFile, columns: Sequence[str]
) -> LanceFileReader | None:
    """A file that holds columns by the version's names for them. Columns are told apart by their
    ids: a name may have come again for another one."""
    # A branch goes on with files of the one it came from.
    root = handle.uri if file.base_id is None else handle.base_paths()[file.base_id].path
    path = os.path.join(root, "data", file._path)
    if not os.path.exists(path):
        return None
    try:
        reader = LanceFileReader(path, columns=list(columns))
    except (OSError, ValueError):
        return None  # it has other names for them
    held = reader.metadata().schema
    theirs = dict(zip(held.names, file.fields, strict=False))
    is_alike = len(held) == len(file.fields) and all(
        theirs.get(name) == ids[name] and held.field(name).type == handle.schema.field(name).type
        for name in columns
    )
    return reader if is_alike else None


# Row ids as Lance writes them: a message of segments, of which each is one of several kinds

_SEGMENT, _RANGE, _FIRST, _END = 0x0A, 0x0A, 0x08, 0x10


def _stretch(held: FragmentMetadata) -> Stretch | None:
    """The row ids of a fragment, if they are one range without holes."""
    if held.row_id_meta is None or not _starts_in_order(held.row_id_meta):
        return None
    data = bytes(orjson.loads(held.row_id_meta.json()).get("Inline", ()))
    ends, at = {_FIRST: 0, _END: 0}, 0
    try:
        written = _only(_only(data, _SEGMENT), _RANGE)
        while at < len(written):
            tag = written[at]
            ends[tag], at = _varint(written, at + 1)
    except IndexError:
        return None  # another kind of segment, or several
    is_whole = len(ends) == 2 and ends[_END] - ends[_FIRST] == held.physical_rows
    return Stretch(ends[_FIRST], ends[_END]) if is_whole else None


def _starts_in_order(meta: RowIdMeta) -> bool:
    """Whether the first row ids follow each other. Their text has these alone; those of a million
    rows in another order are long."""
    shown = repr(RowIdSequence.from_inline_metadata(meta)).partition("]")[0]
    ids = [int(number) for number in re.findall(r"\d+", shown)]
    return bool(ids) and ids == list(range(ids[0], ids[0] + len(ids)))


def _only(data: bytes, tag: int) -> bytes:
    """What the one field of a message holds; `IndexError` if it is another one, or not alone."""
    length, at = _varint(data, 1)
    if data[0] != tag or at + length != len(data):
        raise IndexError
    return data[at:]


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """A number of seven bits a byte, the lowest first, and the place after it."""
    value = shift = 0
    while data[at] >= 0x80:
        value |= (data[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7
    return value | data[at] << shift, at + 1


def _scattered(held: FragmentMetadata) -> Scattered | None:
    if held.row_id_meta is None or held.physical_rows > _SCATTERED_MAX:
        return None
    ids = np.asarray(RowIdSequence.from_inline_metadata(held.row_id_meta).to_pyarrow())
    places = np.argsort(ids)
    return Scattered(np.append(ids[places], _NO_ROW), places.astype(np.uint64))
