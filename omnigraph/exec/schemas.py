"""Accepted schemas of a graph: that of each branch, and an archive of those earlier commits name.

    _schema.pg  _schema.ir.json          the schema of main: as written, and with its identities
    _schemas/<id>.pg  <id>.ir.json       the same for every schema that took part in a change
    _schemas/<id>.joined                 both in one, on an object store: a call less to open it

A branch's head row names its schema by id, a hash of the two files. So a reader learns the schema
together with the tables it reads, at no further cost, and a commit keeps its schema for as long as
it can be read.

Invariant: a schema's files are in `_schemas/` before the commit that names it is published, and
never change there. Files are used only if they have the hash that was asked for.
"""

import hashlib
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

import orjson
import pyarrow as pa

from omnigraph.catalog import codec
from omnigraph.catalog.model import Catalog
from omnigraph.costs import COSTS
from omnigraph.deferred import deferred
from omnigraph.errors import NotFound, StorageFailed
from omnigraph.light_dataclass import dataclass
from omnigraph.lru import Lru
from omnigraph.storage.local_copies import SCHEMAS
from omnigraph.storage.names import MAIN
from omnigraph.storage.opening import first_snapshot
from omnigraph.storage.records import SchemaId, Snapshot
from omnigraph.storage.retry import SCHEMA, retried
from omnigraph.storage.store import Store
from omnigraph.types import SchemaStep, TableKey

if TYPE_CHECKING:
    from omnigraph.catalog.schema_steps import schema_steps
else:
    schema_steps = deferred("omnigraph.catalog.schema_steps", "schema_steps")

SCHEMA_TEXT, SCHEMA_IR = "_schema.pg", "_schema.ir.json"
ARCHIVE = "_schemas"
_BETWEEN = b"\0"
_UNREADABLE = SchemaStep(
    "schema changed; cleanup removed the definition before it", {"kind": "schema_changed"}
)

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Accepted:
    """One accepted schema: its text and its catalog."""

    id: SchemaId
    text: str
    catalog: Catalog

    def files(self) -> dict[str, bytes]:
        """The files of the graph's current schema."""
        return {SCHEMA_TEXT: self.text.encode(), SCHEMA_IR: _document(self.catalog)}

    def joined(self) -> dict[str, bytes]:
        """The file that has both."""
        return {_joined(self.id): self.text.encode() + _BETWEEN + _document(self.catalog)}


def accepted(text: str, catalog: Catalog) -> Accepted:
    """A schema with its id."""
    schema_id = _hash(text.encode(), _document(catalog))
    return Accepted(schema_id, text, replace(catalog, schema_id=schema_id))


def schema_tables(catalog: Catalog) -> list[tuple[TableKey, pa.Schema]]:
    """The tables that hold the nodes and edges of a schema."""
    return [(owner.table, owner.schema) for owner in catalog.types]


class Schemas:
    """Cache of the accepted schemas of one open graph, each read once."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._read: Lru[SchemaId | None, Accepted] = Lru(COSTS.schemas_max)
        self._known: Lru[str, Accepted] = Lru(COSTS.schema_branches_max)
        self._steps: Lru[tuple[SchemaId, SchemaId], tuple[SchemaStep, ...]] = Lru(
            COSTS.schema_pairs_max
        )

    def of(self, snapshot: Snapshot) -> Accepted:
        """The schema that a snapshot was written under."""
        schema = self._read.get(snapshot.schema)
        if schema is None:
            try:
                schema = _read(self._store, snapshot.schema)
            except StorageFailed:
                # Cleanup removes a schema with the last commit that has it.
                history = self._store.history
                history.lost.require_readable([history.get(snapshot.commit_id)])
                raise
            self._read.put(snapshot.schema, schema)
        return schema

    def steps(self, before: SchemaId, after: SchemaId) -> tuple[SchemaStep, ...]:
        """Return the steps between two schemas of one line of commits; one step that says so if
        cleanup removed one of them."""
        steps = self._steps.get((before, after))
        if steps is None:
            try:
                old, new = self._named(before), self._named(after)
            except StorageFailed:
                return (_UNREADABLE,)
            steps = schema_steps(old.catalog, new.catalog)
            self._steps.put((before, after), steps)
        return steps

    def _named(self, schema_id: SchemaId) -> Accepted:
        schema = self._read.get(schema_id)
        if schema is None:
            schema = _read(self._store, schema_id)
            self._read.put(schema_id, schema)
        return schema

    def current(self, branch: str = MAIN) -> Accepted:
        """The current schema of a branch, read from its head."""
        schema = self.of(self._store.snapshot(branch))
        self._known.put(branch, schema)
        return schema

    def opened(self) -> Accepted:
        """The schema of main as the open of the graph saw it."""
        schema = self.of(first_snapshot(self._store))
        self._known.put(MAIN, schema)
        return schema

    def known(self, branch: str = MAIN) -> Accepted:
        """The schema of a branch that this process read last. A write planned under a stale one is
        refused."""
        schema = self._known.get(branch)
        if schema is None:
            schema = self.of(self._store.snapshot(branch, recent=True))
            self._known.put(branch, schema)
        return schema

    def changed(self, before: Accepted, branch: str = MAIN) -> bool:
        """Read the current schema of a branch; whether it differs from one that was known before.
        What is known now may have been read by another thread since."""
        try:
            return self.current(branch).id != before.id
        except NotFound:
            self._known.pop(branch)  # the branch is gone: what the caller met says so
            return False

    def archive(self, schema: Accepted) -> None:
        """Write a schema's files to the archive. Idempotent."""
        text, document = _archived(schema.id)
        files = {text: schema.text.encode(), document: _document(schema.catalog)}
        if not self._store.where.is_local:
            files |= schema.joined()
        self._store.files.keep(files)


def under_schema(schemas: Schemas, work: Callable[[Catalog], Result], branch: str = MAIN) -> Result:
    """Plan and write under the known schema of a branch; retry when it has changed since.

    Any error of the first plan, an unknown name included, may be due to the stale schema.
    """
    planned: Accepted | None = None

    def attempt(losses: int) -> Result:
        nonlocal planned
        planned = schemas.known(branch)
        return work(planned.catalog)

    def is_stale(_loss: Exception) -> bool:
        return planned is None or schemas.changed(planned, branch)

    return retried(SCHEMA, attempt, counts=is_stale)


def seen_under(snapshot: Snapshot, old: Catalog, new: Catalog) -> Snapshot:
    """A snapshot with its tables under the names of another schema. Columns need no translation:
    they are looked up by identity."""
    names = {owner.id: owner.table for owner in new.types}
    pins = (
        replace(snapshot.tables[owner.table], table_key=names[owner.id])
        for owner in old.types
        if owner.id in names and owner.table in snapshot.tables
    )
    return replace(snapshot, tables={pin.table_key: pin for pin in pins})


def _archived(schema_id: SchemaId) -> tuple[str, str]:
    return f"{ARCHIVE}/{schema_id}.pg", f"{ARCHIVE}/{schema_id}.ir.json"


def _joined(schema_id: SchemaId) -> str:
    return f"{ARCHIVE}/{schema_id}.joined"


def _read(store: Store, schema_id: SchemaId | None) -> Accepted:
    """Read a schema from the current files or the archive. While a change is being finished the
    current files may still be those of the schema before it."""
    if schema_id is not None and not store.where.is_local:
        known = _parted(store.copies.get(SCHEMAS, schema_id), schema_id)
        if known is not None:
            return known
        known = _parted(store.files.read(_joined(schema_id)), schema_id)
        if known is not None:
            return _copied(store, known)
    return _copied(store, _read_files(store, schema_id))


def _copied(store: Store, schema: Accepted) -> Accepted:
    [both] = schema.joined().values()
    store.copies.put(SCHEMAS, schema.id, both)
    return schema


def _parted(both: bytes | None, schema_id: SchemaId) -> Accepted | None:
    """A schema of the file that has text and document, if it has the hash that was asked for."""
    if both is None or SchemaId(hashlib.sha256(both).hexdigest()[:32]) != schema_id:
        return None
    text, _, document = both.partition(_BETWEEN)
    return Accepted(schema_id, text.decode(), _decoded(document, schema_id))


def _read_files(store: Store, schema_id: SchemaId | None) -> Accepted:
    text, document = (store.files.read(path) for path in (SCHEMA_TEXT, SCHEMA_IR))
    if text is not None and document is not None:
        current_id = _hash(text, document)
        if schema_id in (None, current_id):
            return Accepted(current_id, text.decode(), _decoded(document, current_id))
    if schema_id is not None:
        old_text, old = (store.files.read(path) for path in _archived(schema_id))
        if old_text is not None and old is not None:
            if _hash(old_text, old) != schema_id:
                raise StorageFailed("read a schema", f"{_archived(schema_id)[1]} is damaged")
            return Accepted(schema_id, old_text.decode(), _decoded(old, schema_id))
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
    return SchemaId(hashlib.sha256(text + _BETWEEN + document).hexdigest()[:32])
