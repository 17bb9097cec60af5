"""Blob access: size, ETag and address of one blob cell, and its bytes on demand.

Invariant: looking a blob up reads its description and never its bytes. A null cell raises
`NotFound`: only an empty blob has no bytes.
"""

import hashlib
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pyarrow as pa

from omnigraph.catalog.arrow import property_columns
from omnigraph.catalog.model import Catalog, Property, Type
from omnigraph.errors import BadRequest, NotFound
from omnigraph.exec.changes.entity_view import require_type
from omnigraph.exec.values.pushdown import ids_filter
from omnigraph.storage.lance.columns import BLOB_SIZE, BLOB_URI, ROW_ID, UPDATED
from omnigraph.storage.lance.reader import TableReader
from omnigraph.storage.records import Snapshot
from omnigraph.storage.store import Store

Selector = tuple[str, str, str, str]
"""Kind, type, id and property."""


@dataclass(frozen=True, slots=True, eq=False)
class BlobCell:
    r"""A blob that is not null. `uri` is the address of an external one, which has no bytes here.

    >>> graph.blob("node", "Person", "Ada", "photo").read()
    b'\x89PNG'
    """

    size: int | None
    etag: str | None
    uri: str | None
    commit_id: str
    _reading: Callable[[], AbstractContextManager[None]] = field(compare=False, repr=False)
    _reader: TableReader = field(compare=False, repr=False)
    _row_id: int = field(compare=False, repr=False)
    _column: str = field(compare=False, repr=False)

    def __reduce__(self) -> tuple[Any, ...]:
        data = b"" if self.uri is not None or not self.size else self.read()
        return _copied, (self.size, self.etag, self.uri, self.commit_id, data)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, BlobCell):
            return NotImplemented
        return self._facts() == other._facts()

    def __hash__(self) -> int:
        return hash(self._facts())

    def _facts(self) -> tuple[int | None, str | None, str | None, str]:
        return self.size, self.etag, self.uri, self.commit_id

    @property
    def kind(self) -> str:
        """Where the bytes are: `managed` or `external`."""
        return "managed" if self.uri is None else "external"

    def read(self, offset: int = 0, length: int | None = None) -> bytes:
        """The bytes from an offset on, at most `length` of them, up to the end of the blob."""
        self.require_range(offset, length)
        with self._reading():
            rows = self._reader.payloads(pa.array([self._row_id], pa.uint64()), self._column)
        data: bytes = rows[0].as_py()
        return data[offset : len(data) if length is None else offset + length]

    def require_range(self, offset: int, length: int | None) -> None:
        """Pass for a part of the blob that can be read here."""
        if offset < 0 or offset > (self.size or 0):
            raise BadRequest(
                f"offset {offset} lies outside the blob, which has {self.size} bytes",
                "give an offset inside it",
            )
        if length is not None and length < 1:
            raise BadRequest(f"a length of {length} reads nothing", "give a length above 0")
        if self.uri is not None:
            raise BadRequest(f"the blob is kept elsewhere, at {self.uri}", "read it there")


@dataclass(frozen=True, slots=True, eq=False)
class CopiedBlob(BlobCell):
    """A blob that was read: a copy without its graph, as pickling makes it."""

    _data: bytes = field(kw_only=True, repr=False)

    def read(self, offset: int = 0, length: int | None = None) -> bytes:
        """The bytes from an offset on, at most `length` of them, up to the end of the blob."""
        self.require_range(offset, length)
        return self._data[offset : len(self._data) if length is None else offset + length]


def _copied(
    size: int | None, etag: str | None, uri: str | None, commit_id: str, data: bytes
) -> CopiedBlob:
    nothing: Any = None  # the data is what is read
    unused = (nothing, nothing, 0, "")
    return CopiedBlob(size, etag, uri, commit_id, *unused, _data=data)


def find_blob(store: Store, catalog: Catalog, snapshot: Snapshot, selector: Selector) -> BlobCell:
    """The blob of an entity as a snapshot has it."""
    kind, type_name, entity, name = selector
    owner = require_type(catalog, kind, type_name)
    prop = require_blob(owner, kind, name)
    what = f"blob {name} of {kind} {type_name}"
    if owner.table not in snapshot.tables:
        raise NotFound(what, entity)
    reading = partial(store.history.lost.reading, snapshot)
    with reading():
        reader = store.reader(snapshot, owner.table)
        column = _column(reader, prop)
        if column is None:
            raise NotFound(what, entity)
        rows = reader.rows([column, UPDATED], filter=ids_filter([entity]), with_row_id=True)
    cell = rows[column][0].as_py() if rows.num_rows else None
    if cell is None:
        raise NotFound(what, entity, "the entity is not there, or its value is null")
    row_id = rows[ROW_ID][0].as_py()
    uri = cell.get(BLOB_URI) or None
    pin = reader.pin
    # The version that wrote the row: what others write to the table leaves the tag as it is.
    line = f"{pin.location}|{pin.branch}|{pin.fork}"
    facts = f"{line}|{rows[UPDATED][0].as_py()}|{row_id}|{prop.id}"
    return BlobCell(
        size=None if uri else int(cell.get(BLOB_SIZE) or 0),
        etag=None if uri else f'"{hashlib.sha256(facts.encode()).hexdigest()[:32]}"',
        uri=uri,
        commit_id=str(snapshot.commit_id),
        _reading=reading,
        _reader=reader,
        _row_id=row_id,
        _column=column,
    )


def require_blob(owner: Type, kind: str, name: str) -> Property:
    """A Blob property that a caller names, or `BadRequest`."""
    prop = owner.property(name)
    if prop is None or not prop.type.is_blob:
        blobs = ", ".join(p.name for p in owner.properties if p.type.is_blob) or "none"
        raise BadRequest(f"{kind} {owner.name} has no Blob property '{name}'", f"it has: {blobs}")
    return prop


def _column(reader: TableReader, prop: Property) -> str | None:
    """The property's column in this version, under its name of then; None when it has none."""
    same_name = prop.name if prop.name in reader.schema.names else None
    return property_columns(reader.schema).get(prop.id, same_name)
