"""The schemas a graph has accepted: the one that holds, and those that held at earlier commits.

    _schema.pg  _schema.ir.json          the accepted schema: as written, and with its identities
    _schemas/<id>.pg  <id>.ir.json       the same for every schema that took part in a change

A branch's head row names its schema by id, a hash of the two files. So a reader learns which schema
holds together with the tables it reads, at no further cost, and a commit keeps its schema for ever.

Invariant: a schema's files are in `_schemas/` before the commit that names it is published, and
never change there. What is read is used only if it has the hash that was asked for.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from threading import Lock
from typing import TypeVar

import orjson
import pyarrow as pa

from omnigraph.catalog import codec
from omnigraph.catalog.arrow import edge_schema, node_schema
from omnigraph.catalog.model import Catalog, EdgeType, NodeType
from omnigraph.errors import StorageFailed
from omnigraph.storage.names import MAIN
from omnigraph.storage.records import SchemaId, Snapshot
from omnigraph.storage.retry import SCHEMA, retried
from omnigraph.storage.store import Store
from omnigraph.types import TableKey

SCHEMA_TEXT, SCHEMA_IR = "_schema.pg", "_schema.ir.json"
ARCHIVE = "_schemas"

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Accepted:
    """One accepted schema: as it was written, and what it means."""

    id: SchemaId
    text: str
    catalog: Catalog

    def files(self) -> dict[str, bytes]:
        """The files that hold it while it is the graph's schema."""
        return {SCHEMA_TEXT: self.text.encode(), SCHEMA_IR: _document(self.catalog)}


def accepted(text: str, catalog: Catalog) -> Accepted:
    """A schema with its id."""
    schema_id = _hash(text.encode(), _document(catalog))
    return Accepted(schema_id, text, replace(catalog, schema_id=schema_id))


def schema_tables(catalog: Catalog) -> list[tuple[TableKey, pa.Schema]]:
    """The tables that hold the nodes and edges of a schema."""
    return [(owner.table, table_schema(owner)) for owner in catalog.types]


def table_schema(owner: NodeType | EdgeType) -> pa.Schema:
    """The columns of a type's table."""
    return node_schema(owner) if isinstance(owner, NodeType) else edge_schema(owner)


class Schemas:
    """The accepted schemas of one open graph, each read once."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._read: dict[SchemaId | None, Accepted] = {}
        self._known: Accepted | None = None
        self._turn = Lock()

    def at(self, snapshot: Snapshot) -> Accepted:
        """The schema that a snapshot was written under."""
        found = self._read.get(snapshot.schema)
        if found is None:
            found = _read(self._store, snapshot.schema)
            with self._turn:
                self._read[snapshot.schema] = found
        return found

    def current(self) -> Accepted:
        """The schema that holds now: a look at the head of main."""
        self._known = self.at(self._store.snapshot(MAIN))
        return self._known

    def known(self) -> Accepted:
        """The schema that held when this process last looked. A write planned for it is refused if
        it holds no more."""
        return self._known or self.current()

    def changed(self) -> bool:
        """Look again; whether another schema holds now than the one that was known."""
        before = self._known
        return before is None or self.current().id != before.id

    def archive(self, schema: Accepted) -> None:
        """Keep a schema's files for as long as commits may name it."""
        text, document = _archived(schema.id)
        if not self._store.objects.has(document):
            self._store.objects.put(text, schema.text.encode())
            self._store.objects.put(document, _document(schema.catalog))


def under_schema(schemas: Schemas, work: Callable[[Catalog], Result]) -> Result:
    """Plan and write under the schema this process knows; again when another holds by now.

    Whatever the first plan met, a name it did not know included, may be due to the old schema.
    """
    return retried(
        SCHEMA,
        lambda losses: work(schemas.known().catalog),
        counts=lambda loss: schemas.changed(),
    )


def seen_under(snapshot: Snapshot, old: Catalog, new: Catalog) -> Snapshot:
    """A snapshot with its tables under the names another schema has for them. Columns need no
    translation: they are found by identity."""
    names = {owner.id: owner.table for owner in new.types}
    tables = {
        names[owner.id]: snapshot.tables[owner.table]
        for owner in old.types
        if owner.id in names and owner.table in snapshot.tables
    }
    return replace(snapshot, tables=tables)


def _archived(schema_id: SchemaId) -> tuple[str, str]:
    return f"{ARCHIVE}/{schema_id}.pg", f"{ARCHIVE}/{schema_id}.ir.json"


def _read(store: Store, schema_id: SchemaId | None) -> Accepted:
    """A schema's files from the one place or the other: while a change is being finished the first
    may still hold the schema before it."""
    text, document = (store.objects.get(path) for path in (SCHEMA_TEXT, SCHEMA_IR))
    if text is not None and document is not None:
        found = _hash(text.data, document.data)
        if schema_id in (None, found):
            return Accepted(found, text.data.decode(), _decoded(document.data, found))
    if schema_id is not None:
        old_text, old = (store.objects.get(path) for path in _archived(schema_id))
        if old_text is not None and old is not None:
            if _hash(old_text.data, old.data) != schema_id:
                raise StorageFailed("read a schema", f"{_archived(schema_id)[1]} is damaged")
            return Accepted(schema_id, old_text.data.decode(), _decoded(old.data, schema_id))
    if text is None or document is None:
        missing = SCHEMA_TEXT if text is None else SCHEMA_IR
        raise StorageFailed("read the schema", f"{store.where.join(missing)} is missing")
    raise StorageFailed(
        "read the schema", f"{SCHEMA_TEXT} or {SCHEMA_IR} is damaged: not what was accepted"
    )


def _decoded(data: bytes, schema_id: SchemaId) -> Catalog:
    try:
        return replace(codec.decode(orjson.loads(data)), schema_id=schema_id)
    except orjson.JSONDecodeError as cause:
        raise StorageFailed("read the schema", f"{SCHEMA_IR} is damaged ({cause})") from cause


def _document(catalog: Catalog) -> bytes:
    return orjson.dumps(codec.encode(catalog))


def _hash(text: bytes, document: bytes) -> SchemaId:
    return SchemaId(hashlib.sha256(text + b"\0" + document).hexdigest()[:32])
