"""Entities of one type at one version, by row id, and which of them differ.

Invariant: rows are aligned by position, and a row id of null is an entity that is not there. Two
entities are equal when every property, both ends and the bytes of every blob are equal. The bytes
of a blob are read only when nothing else decides, and never all at once.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.catalog.arrow import PROPERTY_ID, arrow_type
from omnigraph.catalog.model import EdgeType, Type
from omnigraph.storage.lance.columns import ADDRESS, BLOB_SIZE, BLOB_URI
from omnigraph.storage.lance.reader import TableReader

Mask = npt.NDArray[np.bool_]

_PAYLOAD_BYTES = 8 << 20
_CHUNK_BYTES = 4 << 20
_CHUNK_ROWS_MIN, _CHUNK_ROWS_MAX = 1_000, 10_000
_COLUMN_BYTES = 64
_DESCRIBED = (BLOB_SIZE, BLOB_URI)


class Aligned(Protocol):
    """Entities at positions 0..n, whatever version each comes from."""

    @property
    def rows(self) -> pa.Table:
        """The columns of the type in the catalog's names; blobs as what describes them."""

    def digests(self, column: str, where: Mask) -> npt.NDArray[np.object_]:
        """What identifies the bytes of a blob column, at the places of the mask."""


class Entities:
    """One type at one version."""

    def __init__(self, owner: Type, reader: TableReader) -> None:
        self.owner = owner
        self.reader = reader
        self._columns = _column_names(owner, reader.schema)
        self._same_as_id = owner.key[0] if owner.key_is_id else None

    def at(self, row_ids: pa.Array, ids: pa.Array, *, located: bool = False) -> "Picked":
        """The entities of these row ids, whose own ids are known; `located` with their
        addresses."""
        names = [name for name in self._columns if name not in ("id", self._same_as_id)]
        names += [ADDRESS] if located else []
        known = pc.if_else(row_ids.is_valid(), ids, pa.scalar(None, pa.string()))
        columns = {"id": known}
        if self._same_as_id is not None:
            columns[self._same_as_id] = known
        if names:
            rows = _aligned(self.columns(row_ids.drop_null(), names), row_ids)
            columns |= zip(names, rows.columns, strict=True)
        return Picked(self, row_ids, pa.table(columns))

    def read_by(self) -> list[str]:
        """The columns of the table that `at` reads."""
        names = [name for name in self._columns if name not in ("id", self._same_as_id)]
        return [held for name in names if (held := self._columns[name]) is not None]

    def columns(self, row_ids: pa.Array, names: Sequence[str]) -> pa.Table:
        """Some columns of these rows, in the catalog's names."""
        stored = {name: self._columns.get(name, name) for name in names}
        there = [name for name in stored.values() if name is not None]
        rows = self.reader.by_row_id(row_ids, there)
        return pa.table(
            {
                name: rows[held] if held is not None else _absent(self.owner, name, len(row_ids))
                for name, held in stored.items()
            }
        )

    def stageable(self, row_ids: pa.Array) -> pa.Table:
        """Whole rows as a write takes them, in the catalog's names."""
        rows = self.reader.stageable(row_ids)
        return pa.table(
            {
                name: rows[held] if held is not None else _absent(self.owner, name, len(row_ids))
                for name, held in self._columns.items()
            }
        )

    def stored(self, rows: pa.Table) -> pa.Table:
        """Rows in the catalog's names as this version's table holds them."""
        named = {held: name for name, held in self._columns.items()}
        columns = [
            _fitting(rows[named[field.name]], field)
            if field.name in named
            else pa.nulls(rows.num_rows, field.type)
            for field in self.reader.schema
        ]
        return pa.table(columns, schema=self.reader.schema)

    def payloads(self, row_ids: pa.Array, column: str) -> pa.Array:
        """The bytes of a blob property."""
        stored = self._columns[column]
        if stored is None:
            return pa.nulls(len(row_ids), pa.large_binary())
        return self.reader.payloads(row_ids, stored)


@dataclass(frozen=True, slots=True)
class Picked:
    """Entities of one version, and where in it their rows are."""

    entities: Entities
    row_ids: pa.Array
    located: pa.Table

    @property
    def rows(self) -> pa.Table:
        """The columns of the type in the catalog's names; blobs as what describes them."""
        if ADDRESS not in self.located.column_names:
            return self.located
        return self.located.drop([ADDRESS])

    @property
    def addresses(self) -> pa.Array:
        """Where each row is in the version; null where there is none. Only of located ones."""
        return self.located[ADDRESS].combine_chunks()

    def some(self, places: pa.Array) -> "Picked":
        """Those at some places."""
        return Picked(self.entities, self.row_ids.take(places), self.located.take(places))

    def digests(self, column: str, where: Mask) -> npt.NDArray[np.object_]:
        """A hash of the bytes, or the address of a blob that lives elsewhere."""
        found = np.empty(len(where), dtype=object)
        described = self.rows[column].to_pylist()
        inside = []
        for place in np.flatnonzero(where):
            cell = described[place]
            if cell is not None and cell[BLOB_URI]:
                found[place] = cell[BLOB_URI]
            elif cell is not None:
                inside.append(int(place))
        for group in _budgeted(inside, [cell[BLOB_SIZE] if cell else 0 for cell in described]):
            payloads = self.entities.payloads(self.row_ids.take(pa.array(group)), column)
            for at, payload in zip(group, payloads, strict=True):
                found[at] = hashlib.sha256(payload.as_buffer()).digest()
        return found


def _aligned(rows: pa.Table, row_ids: pa.Array) -> pa.Table:
    """The rows at the places of the row ids; nulls where a row id is null."""
    if row_ids.null_count == 0:
        return rows
    there = row_ids.is_valid()
    places = pc.subtract(pc.cumulative_sum(there.cast(pa.int64())), 1)
    return rows.take(pc.if_else(there, places, pa.scalar(None, pa.int64())))


def _fitting(values: pa.ChunkedArray, field: pa.Field) -> pa.ChunkedArray:
    if values.type == field.type:
        return values
    if values.null_count == len(values):  # a blob that a version lacks has no type to cast from
        return pa.chunked_array([pa.nulls(len(values), field.type)])
    return values.cast(field.type)


@dataclass(frozen=True, slots=True)
class Chosen:
    """Entities taken place by place from one of two."""

    first: Mask
    yes: Aligned
    no: Aligned

    @property
    def rows(self) -> pa.Table:
        places = np.arange(len(self.first)) + np.where(self.first, 0, len(self.first))
        return pa.concat_tables([self.yes.rows, self.no.rows]).take(pa.array(places))

    def digests(self, column: str, where: Mask) -> npt.NDArray[np.object_]:
        """From wherever the entity comes."""
        yes = self.yes.digests(column, where & self.first)
        return np.where(self.first, yes, self.no.digests(column, where & ~self.first))


def rows_a_chunk(owner: Type) -> int:
    """How many entities of a type are compared at a time. Many, because a version's pages are read
    again for each chunk; fewer where vectors make them large."""
    width = sum(4 * (prop.type.dimension or 0) + _COLUMN_BYTES for prop in owner.properties)
    return min(_CHUNK_ROWS_MAX, max(_CHUNK_ROWS_MIN, _CHUNK_BYTES // (width + _COLUMN_BYTES)))


def present(entities: Aligned) -> Mask:
    """Where there is an entity."""
    return _mask(entities.rows["id"].combine_chunks().is_valid())


def differ(left: Aligned, right: Aligned) -> Mask:
    """Where two versions of an entity are not equal."""
    ours, theirs = left.rows, right.rows
    wrong = np.zeros(ours.num_rows, dtype=bool)
    described = []
    for name in ours.column_names:
        one, other = ours[name].combine_chunks(), theirs[name].combine_chunks()
        if pa.types.is_struct(one.type) or pa.types.is_struct(other.type):
            described.append(name)
        else:
            wrong |= unequal(one, other)
    for name in described:
        wrong |= _blobs_differ(left, right, name, undecided=~wrong)
    return wrong


def differ_in(left: Aligned, right: Aligned, column: str) -> Mask:
    """Where two versions of an entity have another value in one property."""
    one, other = left.rows[column].combine_chunks(), right.rows[column].combine_chunks()
    if pa.types.is_struct(one.type) or pa.types.is_struct(other.type):
        return _blobs_differ(left, right, column, undecided=np.ones(len(one), dtype=bool))
    return unequal(one, other)


def unequal(one: pa.Array, other: pa.Array) -> Mask:
    """Where two columns differ. Null equals null, and a number equals itself, NaN too."""
    nulls = _mask(one.is_null()) != _mask(other.is_null())
    both = _mask(one.is_valid()) & _mask(other.is_valid())
    kind = one.type
    if pa.types.is_fixed_size_list(kind):
        width = kind.list_size
        pieces = (_vectors(values, width) for values in (one, other))
        values = (next(pieces) != next(pieces)).any(axis=1)
    elif pa.types.is_floating(kind):
        values = _bits(one) != _bits(other)
    elif pa.types.is_list(kind):
        values = np.array([repr(a) != repr(b) for a, b in zip(one, other, strict=True)], dtype=bool)
    else:
        values = _mask(pc.fill_null(pc.not_equal(one, other), False))
    wrong: Mask = nulls | (both & values)
    return wrong


def _blobs_differ(left: Aligned, right: Aligned, column: str, undecided: Mask) -> Mask:
    ours, theirs = left.rows[column].combine_chunks(), right.rows[column].combine_chunks()
    valid = _mask(ours.is_valid()), _mask(theirs.is_valid())
    wrong: Mask = undecided & (valid[0] != valid[1])
    both = undecided & valid[0] & valid[1]
    if both.any():
        for part in _DESCRIBED:
            wrong |= both & unequal(pc.struct_field(ours, part), pc.struct_field(theirs, part))
        open_ = both & ~wrong
        wrong |= open_ & (left.digests(column, open_) != right.digests(column, open_))
    return wrong


def _vectors(values: pa.FixedSizeListArray, width: int) -> npt.NDArray[np.uint32]:
    """The bits of each vector in a row; a null one as zeros."""
    filled = values if values.null_count == 0 else _without_nulls(values, width)
    flat = filled.flatten().to_numpy(zero_copy_only=False).astype(np.float32, copy=False)
    bits: npt.NDArray[np.uint32] = flat.view(np.uint32).reshape(len(values), width)
    return bits


def _without_nulls(values: pa.FixedSizeListArray, width: int) -> pa.FixedSizeListArray:
    zeros = pa.FixedSizeListArray.from_arrays(
        pa.array([0.0] * width, values.type.value_type), width
    )
    places = pa.array(np.arange(len(values)))
    both = pa.concat_arrays([values, zeros.cast(values.type)])
    return both.take(pc.if_else(values.is_valid(), places, len(values)))


def _bits(values: pa.Array) -> npt.NDArray[np.unsignedinteger]:
    width = values.type.bit_width // 8
    numbers = pc.fill_null(values, 0).to_numpy(zero_copy_only=False)
    bits: npt.NDArray[np.unsignedinteger] = numbers.view(f"u{width}")
    return bits


def _mask(values: pa.Array) -> Mask:
    mask: Mask = np.asarray(values.to_numpy(zero_copy_only=False), dtype=bool)
    return mask


def _budgeted(places: Sequence[int], sizes: Sequence[int]) -> list[list[int]]:
    """The places in groups whose bytes fit into memory together."""
    groups: list[list[int]] = []
    held = _PAYLOAD_BYTES + 1
    for place in places:
        if held + sizes[place] > _PAYLOAD_BYTES:
            groups.append([])
            held = 0
        groups[-1].append(place)
        held += sizes[place]
    return groups


def _column_names(owner: Type, schema: pa.Schema) -> dict[str, str | None]:
    """Each column of a type with its name in a version: renamed ones are found by identity."""
    key = PROPERTY_ID.encode()
    by_id = {
        field.metadata[key].decode(): field.name
        for field in schema
        if field.metadata and key in field.metadata
    }
    names: dict[str, str | None] = {"id": "id"}
    if isinstance(owner, EdgeType):
        names |= {"src": "src", "dst": "dst"}
    for prop in sorted(owner.properties, key=lambda each: each.id):
        same_name = prop.name if prop.name in schema.names else None
        names[prop.name] = by_id.get(str(prop.id), same_name if prop.type.is_blob else None)
    return names


def _absent(owner: Type, name: str, length: int) -> pa.Array:
    prop = owner.property(name)
    assert prop is not None
    return pa.nulls(length, arrow_type(prop.type))
