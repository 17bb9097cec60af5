"""Entity comparison: rows of one type at one version, by row id, and a mask of those that differ.

Invariant: rows are aligned by position, and a null row id stands for a missing entity. Two
entities are equal when every property, both ends and the bytes of every blob are equal. The bytes
of a blob are read only when nothing else decides, and never all at once.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.catalog.arrow import arrow_type, property_columns
from omnigraph.catalog.counterparts import stored_ids
from omnigraph.catalog.model import EdgeType, Type
from omnigraph.costs import COSTS
from omnigraph.exec.values.default_cells import default_cells
from omnigraph.storage.lance.columns import ADDRESS, BLOB_SIZE, BLOB_URI
from omnigraph.storage.lance.reader import TableReader
from omnigraph.types import PropertyId

Mask = npt.NDArray[np.bool_]

_COLUMN_BYTES = 64
_DESCRIBED = (BLOB_SIZE, BLOB_URI)


class Aligned(Protocol):
    """Entities at positions 0..n, each of any version."""

    @property
    def rows(self) -> pa.Table:
        """The columns of the type in the catalog's names; blobs by their descriptions."""

    def digests(self, column: str, where: Mask) -> npt.NDArray[np.object_]:
        """A digest of the bytes of a blob column, at the positions of the mask."""


class Entities:
    """One type at one version. `stored_as` is the type as that version's own schema has it, where
    the owner is of another one; with `defaults` a property that the version lacks has its default,
    else it is null."""

    def __init__(
        self,
        owner: Type,
        reader: TableReader,
        *,
        stored_as: Type | None = None,
        defaults: bool = False,
    ) -> None:
        self.owner = owner
        self.reader = reader
        self._defaults = defaults
        ids = {prop.name: prop.id for prop in owner.properties}
        if stored_as is not None:
            ids = stored_ids(owner, stored_as)
        self._columns = _column_names(owner, reader.schema, ids)
        self._same_as_id = owner.key[0] if owner.key_is_id else None

    def pick(self, row_ids: pa.Array, ids: pa.Array, *, located: bool = False) -> "Picked":
        """The entities of these row ids, whose own ids are known; `located` with their
        addresses."""
        if isinstance(self.owner, EdgeType):  # no file finds an edge by its id
            self.reader.recent_rows.note(self.reader.pin, ids, row_ids)
        names = [name for name in self._columns if name not in ("id", self._same_as_id)]
        read = [*names, ADDRESS] if located else names
        known = pc.if_else(row_ids.is_valid(), ids, pa.scalar(None, pa.string()))
        columns = {"id": known}
        if self._same_as_id is not None:
            columns[self._same_as_id] = known
        if read:
            rows = _aligned(self.columns(row_ids.drop_null(), read), row_ids)
            columns |= zip(read, rows.columns, strict=True)
        addresses = columns.pop(ADDRESS).combine_chunks() if located else None
        return Picked(self, row_ids, pa.table(columns), addresses)

    def lacking(self) -> frozenset[str]:
        """The columns of the type that this version does not have."""
        return frozenset(name for name, column in self._columns.items() if column is None)

    @property
    def names(self) -> list[str]:
        """Every column of the type, in the catalog's names."""
        return list(self._columns)

    def read_by(self) -> list[str]:
        """The columns of the table that `pick` reads."""
        names = [name for name in self._columns if name not in ("id", self._same_as_id)]
        return [column for name in names if (column := self._columns[name]) is not None]

    def columns(self, row_ids: pa.Array, names: Sequence[str]) -> pa.Table:
        """Some columns of these rows, in the catalog's names."""
        stored = {name: self._columns.get(name, name) for name in names}
        rows = self.reader.by_row_id(
            row_ids, [name for name in stored.values() if name is not None]
        )
        return self._named(rows, stored, len(row_ids))

    def stageable(self, row_ids: pa.Array) -> pa.Table:
        """Whole rows as a write takes them, in the catalog's names."""
        rows = self.reader.stageable(row_ids)
        return self._named(rows, self._columns, len(row_ids))

    def _named(self, rows: pa.Table, columns: Mapping[str, str | None], length: int) -> pa.Table:
        """Stored columns in the catalog's names and types; the default or null where the version
        has no such column."""
        return pa.table(
            {
                name: self._absent(name, length)
                if column is None
                else _wide(self.owner, name, rows[column])
                for name, column in columns.items()
            }
        )

    def _absent(self, name: str, length: int) -> pa.Array:
        prop = self.owner.property(name)
        assert prop is not None
        if self._defaults:
            return default_cells(prop, length)
        return pa.nulls(length, arrow_type(prop.type))

    def stored(self, rows: pa.Table) -> pa.Table:
        """Rows in the catalog's names as this version's table holds them."""
        named = {column: name for name, column in self._columns.items()}
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
    rows: pa.Table
    addresses: pa.Array | None  # null for a missing entity; None unless located

    def take(self, positions: pa.Array) -> "Picked":
        """The entities at these positions."""
        addresses = None if self.addresses is None else self.addresses.take(positions)
        return Picked(
            self.entities, self.row_ids.take(positions), self.rows.take(positions), addresses
        )

    def digests(self, column: str, where: Mask) -> npt.NDArray[np.object_]:
        """A hash of the bytes, or the address of a blob that lives elsewhere."""
        digests = np.empty(len(where), dtype=object)
        described = self.rows[column].to_pylist()
        inside = []
        for position in np.flatnonzero(where):
            cell = described[position]
            if cell is not None and cell[BLOB_URI]:
                digests[position] = cell[BLOB_URI]
            elif cell is not None:
                inside.append(int(position))
        for group in _budgeted(inside, [cell[BLOB_SIZE] if cell else 0 for cell in described]):
            payloads = self.entities.payloads(self.row_ids.take(pa.array(group)), column)
            for index, payload in zip(group, payloads, strict=True):
                digests[index] = hashlib.sha256(payload.as_buffer()).digest()
        return digests


def _aligned(rows: pa.Table, row_ids: pa.Array) -> pa.Table:
    """Rows at the positions of their row ids; nulls where a row id is null."""
    if row_ids.null_count == 0:
        return rows
    present = row_ids.is_valid()
    positions = pc.subtract(pc.cumulative_sum(present.cast(pa.int64())), 1)
    return rows.take(pc.if_else(present, positions, pa.scalar(None, pa.int64())))


def _fitting(values: pa.ChunkedArray, field: pa.Field) -> pa.ChunkedArray:
    if values.type == field.type:
        return values
    if values.null_count == len(values):  # a blob that a version lacks has no type to cast from
        return pa.chunked_array([pa.nulls(len(values), field.type)])
    return values.cast(field.type)


@dataclass(frozen=True)
class Chosen:
    """Entities chosen by position from one of two."""

    first: Mask
    yes: Aligned
    no: Aligned

    @cached_property
    def rows(self) -> pa.Table:
        positions = np.arange(len(self.first)) + np.where(self.first, 0, len(self.first))
        return pa.concat_tables([self.yes.rows, self.no.rows]).take(pa.array(positions))

    def digests(self, column: str, where: Mask) -> npt.NDArray[np.object_]:
        """From wherever the entity comes."""
        yes = self.yes.digests(column, where & self.first)
        return np.where(self.first, yes, self.no.digests(column, where & ~self.first))


@dataclass(frozen=True)
class Overlaid:
    """Entities with certain columns taken from others, where the mask allows and both are present.
    Elsewhere these columns are null."""

    entities: Aligned
    other: Aligned
    columns: frozenset[str]
    where: Mask

    @cached_property
    def rows(self) -> pa.Table:
        here = self._here
        positions = pa.array(np.arange(len(here)), mask=~here)
        rows = self.entities.rows
        return pa.table(
            {
                name: self.other.rows[name].take(positions) if name in self.columns else rows[name]
                for name in rows.column_names
            }
        )

    @cached_property
    def _here(self) -> Mask:
        here: Mask = self.where & present(self.entities)
        return here

    def digests(self, column: str, where: Mask) -> npt.NDArray[np.object_]:
        """From wherever the column comes."""
        if column in self.columns:
            return self.other.digests(column, where & self._here)
        return self.entities.digests(column, where)


def rows_a_chunk(owner: Type) -> int:
    """How many entities of a type are compared at a time. Many, because a version's pages are read
    again for each chunk; fewer where vectors make them large."""
    width = sum(4 * (prop.type.dimension or 0) + _COLUMN_BYTES for prop in owner.properties)
    rows = COSTS.entity_chunk_bytes_max // (width + _COLUMN_BYTES)
    return min(COSTS.entity_chunk_rows_max, max(COSTS.entity_chunk_rows_min, rows))


def present(entities: Aligned) -> Mask:
    """A mask of the entities that are not missing."""
    return mask_of(entities.rows["id"].combine_chunks().is_valid())


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
    nulls = mask_of(one.is_null()) != mask_of(other.is_null())
    both = mask_of(one.is_valid()) & mask_of(other.is_valid())
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
        values = mask_of(pc.fill_null(pc.not_equal(one, other), False))
    wrong: Mask = nulls | (both & values)
    return wrong


def _blobs_differ(left: Aligned, right: Aligned, column: str, undecided: Mask) -> Mask:
    ours, theirs = left.rows[column].combine_chunks(), right.rows[column].combine_chunks()
    valid = mask_of(ours.is_valid()), mask_of(theirs.is_valid())
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
    positions = pa.array(np.arange(len(values)))
    both = pa.concat_arrays([values, zeros.cast(values.type)])
    return both.take(pc.if_else(values.is_valid(), positions, len(values)))


def _bits(values: pa.Array) -> npt.NDArray[np.unsignedinteger]:
    width = values.type.bit_width // 8
    numbers = pc.fill_null(values, 0).to_numpy(zero_copy_only=False)
    bits: npt.NDArray[np.unsignedinteger] = numbers.view(f"u{width}")
    return bits


def mask_of(values: pa.Array) -> Mask:
    """A boolean array of Arrow as numpy has it."""
    mask: Mask = np.asarray(values.to_numpy(zero_copy_only=False), dtype=bool)
    return mask


def _budgeted(positions: Sequence[int], sizes: Sequence[int]) -> list[list[int]]:
    """Positions in groups whose bytes fit into memory together."""
    groups: list[list[int]] = []
    size = COSTS.entity_payload_bytes_max + 1
    for position in positions:
        if size + sizes[position] > COSTS.entity_payload_bytes_max:
            groups.append([])
            size = 0
        groups[-1].append(position)
        size += sizes[position]
    return groups


def _column_names(
    owner: Type, schema: pa.Schema, ids: Mapping[str, PropertyId]
) -> dict[str, str | None]:
    """Each column of a type with its name in a version: renamed ones are found by identity, which
    is that of `ids` there."""
    by_id, stored = property_columns(schema), set(schema.names)
    names: dict[str, str | None] = {"id": "id"}
    if isinstance(owner, EdgeType):
        names |= {"src": "src", "dst": "dst"}
    for prop in sorted(owner.properties, key=lambda each: each.id):
        same_name = prop.name if prop.name in stored else None
        own_id = ids.get(prop.name)
        if own_id is None:
            names[prop.name] = None
        else:
            names[prop.name] = by_id.get(own_id, same_name if prop.type.is_blob else None)
    return names


def _wide(owner: Type, name: str, values: pa.ChunkedArray) -> pa.ChunkedArray:
    """A column of a version as the type of today has it: one that was widened since is cast."""
    prop = owner.property(name)
    if prop is None or prop.type.is_blob or values.type == arrow_type(prop.type):
        return values
    return values.cast(arrow_type(prop.type))
