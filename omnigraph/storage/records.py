"""Every record the storage room keeps on disk, and its two directions.

Invariant: no other module knows a stored shape. Decoding returns the current type or fails loudly;
a record that cannot be understood is never guessed at.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, NewType

import orjson
import pyarrow as pa

from omnigraph.errors import StorageFailed
from omnigraph.storage.names import MAIN, table_location
from omnigraph.storage.stamp import stamped
from omnigraph.types import TableKey

CommitId = NewType("CommitId", str)
"""A graph commit: a ULID."""

OperationId = NewType("OperationId", str)
"""One attempt to write: a ULID, the name of its sidecar."""

SchemaId = NewType("SchemaId", str)
"""One accepted schema: a hash of the files that hold it."""

RECOVERY_ACTOR = "omnigraph:recovery"

# Manifest rows

_PRIMARY_KEY = {"lance-schema:unenforced-primary-key": "true"}

MANIFEST_SCHEMA = stamped(
    pa.schema(
        [
            pa.field("object_id", pa.string(), nullable=False, metadata=_PRIMARY_KEY),
            pa.field("object_type", pa.string(), nullable=False),
            pa.field("location", pa.string()),
            pa.field("metadata", pa.string()),
            pa.field("base_objects", pa.list_(pa.string())),
            pa.field("table_key", pa.string()),
            pa.field("table_version", pa.int64()),
            pa.field("table_branch", pa.string()),
            pa.field("row_count", pa.int64()),
        ]
    )
)

TABLE, TABLE_VERSION, TABLE_TOMBSTONE = "table", "table_version", "table_tombstone"
GRAPH_COMMIT, GRAPH_HEAD = "graph_commit", "graph_head"
OBJECT_TYPES = (TABLE, TABLE_VERSION, TABLE_TOMBSTONE, GRAPH_COMMIT, GRAPH_HEAD)

DATASET = "dataset"
"""What `NotFound` calls a version of a table, or a file of one, that is not there."""

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class TablePin:
    """One published version of one table.

    `branch` owns the files the version was written to (None for main) and `fork` is the identity
    of that Lance branch, so a deleted and recreated branch is never taken for the old one.
    """

    table_key: TableKey
    location: str
    version: int
    branch: str | None = None
    fork: str = ""
    row_count: int = 0


@dataclass(frozen=True, slots=True)
class Tombstone:
    """The end of a table under a name: its versions up to `version` are no longer visible there.

    A name may live again for a table in another folder, which the end of the first does not reach.
    """

    table_key: TableKey
    version: int
    branch: str | None = None
    location: str = ""  # empty: wherever it is


Origin = tuple[str, str]
"""A branch that commits were written on, and its identity; empty for main."""


@dataclass(frozen=True, slots=True)
class Commit:
    """One graph commit. `branch` is None for main; `created_at` counts microseconds. A branch
    has at most one commit of a `mark`."""

    id: CommitId
    parent: CommitId | None
    merged_parent: CommitId | None
    actor: str | None
    created_at: int
    branch: str | None
    manifest_version: int
    operation_id: OperationId | None = None
    mark: str | None = None
    merged_from: Origin | None = None  # where the merged parent was written

    @property
    def parents(self) -> tuple[CommitId, ...]:
        """The commits this one follows: none for the genesis, two for a merge."""
        return tuple(p for p in (self.parent, self.merged_parent) if p is not None)


def table_row(table_key: TableKey, location: str) -> Row:
    """The row that says a table exists, and where."""
    return _row(
        f"table:{_named(table_key, location)}", TABLE, location=location, table_key=table_key
    )


def version_row(pin: TablePin) -> Row:
    """The row that makes a table version visible."""
    return _row(
        f"table_version:{_named(pin.table_key, pin.location)}:{pin.branch or MAIN}:{pin.version}",
        TABLE_VERSION,
        location=pin.location,
        metadata={"fork": pin.fork} if pin.fork else None,
        table_key=pin.table_key,
        table_version=pin.version,
        table_branch=pin.branch,
        row_count=pin.row_count,
    )


def tombstone_row(stone: Tombstone) -> Row:
    """The row that hides a table's versions up to one."""
    name = _named(stone.table_key, stone.location or table_location(stone.table_key))
    return _row(
        f"table_tombstone:{name}:{stone.branch or MAIN}:{stone.version}",
        TABLE_TOMBSTONE,
        location=stone.location or None,
        table_key=stone.table_key,
        table_version=stone.version,
        table_branch=stone.branch,
    )


def _named(table_key: TableKey, location: str) -> str:
    """A table inside an object's name. One that is not in the folder of its name was renamed, or
    took the name of another, and says where it is: versions of two tables are two objects."""
    return table_key if location == table_location(table_key) else f"{table_key}@{location}"


def commit_row(commit: Commit) -> Row:
    """The lineage row of a commit. Its manifest version is the one the row is created at."""
    facts: dict[str, Any] = {
        "parent": commit.parent,
        "merged_parent": commit.merged_parent,
        "actor": commit.actor,
        "created_at": commit.created_at,
        "branch": commit.branch,
        "operation_id": commit.operation_id,
    }
    if commit.mark is not None:
        facts["mark"] = commit.mark
    if commit.merged_from is not None:
        facts["merged_from"] = commit.merged_from
    return _row(commit.id, GRAPH_COMMIT, metadata=facts, base_objects=list(commit.parents))


def head_id(branch: str) -> str:
    """The object id of a branch's head row."""
    return f"graph_head:{branch}"


class Head(NamedTuple):
    """What a head row says, and its address in the manifest."""

    commit: CommitId
    address: int
    schema: SchemaId | None  # None: the graph was made without one


def head_row(branch: str, commit: CommitId, schema: SchemaId | None) -> Row:
    """The row every publish on a branch rewrites: two publishers collide on it."""
    facts = {"commit": commit} if schema is None else {"commit": commit, "schema": schema}
    return _row(head_id(branch), GRAPH_HEAD, metadata=facts)


def _row(object_id: str, object_type: str, **columns: Any) -> Row:
    row: Row = dict.fromkeys(MANIFEST_SCHEMA.names)
    metadata = columns.pop("metadata", None)
    row.update(columns, object_id=object_id, object_type=object_type)
    row["metadata"] = None if metadata is None else orjson.dumps(metadata).decode()
    return row


def manifest_batch(rows: Sequence[Row]) -> pa.Table:
    """Rows as Arrow, in the manifest's schema."""
    return pa.Table.from_pylist(list(rows), schema=MANIFEST_SCHEMA)


def decode_pin(row: Row) -> TablePin:
    """A `table_version` row as a pin."""
    facts = orjson.loads(row["metadata"]) if row["metadata"] else {}
    return TablePin(
        table_key=TableKey(row["table_key"]),
        location=row["location"],
        version=row["table_version"],
        branch=row["table_branch"],
        fork=facts.get("fork", ""),
        row_count=row["row_count"] or 0,
    )


def decode_head(row: Row) -> Head:
    """A `graph_head` row, read together with its address."""
    facts = orjson.loads(row["metadata"])
    return Head(CommitId(facts["commit"]), row["_rowaddr"], facts.get("schema"))


def decode_commit(row: Row) -> Commit:
    """A `graph_commit` row, read together with the version its row was created at."""
    facts = orjson.loads(row["metadata"])
    return Commit(
        id=CommitId(row["object_id"]),
        parent=facts["parent"],
        merged_parent=facts["merged_parent"],
        actor=facts["actor"],
        created_at=facts["created_at"],
        branch=facts["branch"],
        manifest_version=row["_row_created_at_version"],
        operation_id=facts["operation_id"],
        mark=facts.get("mark"),
        merged_from=_origin(facts),
    )


def _origin(facts: Mapping[str, Any]) -> Origin | None:
    found = facts.get("merged_from")
    return None if found is None else (found[0], found[1])


# Sidecars

SIDECAR_FORMAT = 1


@dataclass(frozen=True, slots=True)
class SidecarTable:
    """What a writer is about to do to one table."""

    table_key: TableKey
    table_path: str
    table_branch: str | None
    fork: str
    expected_version: int
    post_commit_pin: int
    confirmed_version: int | None = None


@dataclass(frozen=True, slots=True)
class SidecarFile:
    """A file that takes its place when the write is published, and where it waits until then."""

    path: str
    staged: str
    sha256: str


@dataclass(frozen=True, slots=True)
class Sidecar:
    """The durable note of one write. `multi_step` writes count only once confirmed.

    A write that changes the schema names the new one, the tables that get another name, and the
    versions of all tables it was checked against.
    """

    operation_id: OperationId
    kind: str
    actor: str | None
    branch: str
    branch_identity: str | None  # None for main
    commit_id: CommitId
    rollback_id: CommitId  # named beforehand, so that undoing twice publishes once
    tables: tuple[SidecarTable, ...]
    merged_parent: CommitId | None = None
    merged_from: Origin | None = None
    multi_step: bool = False
    new_tables: tuple[TablePin, ...] = ()
    tombstones: tuple[Tombstone, ...] = ()
    files: tuple[SidecarFile, ...] = ()
    schema: SchemaId | None = None
    renames: dict[TableKey, TableKey] = field(default_factory=dict)
    relied_on: dict[TableKey, int] = field(default_factory=dict)
    reclaim: tuple[str, ...] = ()  # folders whose past goes once the write is published
    mark: str | None = None

    def confirmed(self, versions: dict[TableKey, int]) -> "Sidecar":
        """The same note, saying which version each table reached."""
        tables = tuple(replace(t, confirmed_version=versions[t.table_key]) for t in self.tables)
        return replace(self, tables=tables)


def encode_sidecar(sidecar: Sidecar) -> bytes:
    """The bytes of a sidecar."""
    return orjson.dumps({"format": SIDECAR_FORMAT, **_plain(sidecar)}, option=orjson.OPT_INDENT_2)


def _plain(sidecar: Sidecar) -> dict[str, Any]:
    plain: dict[str, Any] = orjson.loads(orjson.dumps(sidecar))
    return plain


_SIDECAR_PARTS: dict[str, Any] = {
    "tables": SidecarTable,
    "new_tables": TablePin,
    "tombstones": Tombstone,
    "files": SidecarFile,
}


def decode_sidecar(data: bytes, *, path: str) -> Sidecar:
    """The sidecar in these bytes, or a loud failure that names the file."""
    try:
        facts = orjson.loads(data)
        if facts.pop("format") != SIDECAR_FORMAT:
            raise ValueError("it has an unknown format")
        parts: dict[str, Any] = {
            name: tuple(kind(**part) for part in facts.pop(name))
            for name, kind in _SIDECAR_PARTS.items()
        }
        facts["reclaim"] = tuple(facts.get("reclaim", ()))
        facts["merged_from"] = _origin(facts)
        return Sidecar(**facts, **parts)
    except (ValueError, KeyError, TypeError, AttributeError) as cause:
        raise StorageFailed(
            f"read the sidecar {path}",
            f"it is corrupt ({cause}); the file is kept: look at it and move it away to go on",
        ) from cause


def under_new_names(
    pins: Iterable[TablePin], renames: Mapping[TableKey, TableKey]
) -> tuple[TablePin, ...]:
    """Pins of tables as they are called after a write that renames some."""
    return tuple(replace(pin, table_key=renames.get(pin.table_key, pin.table_key)) for pin in pins)


# The recovery audit

ROLLED_FORWARD, ROLLED_BACK = "RolledForward", "RolledBack"
ORPHANED_BRANCH_DISCARDED = "OrphanedBranchDiscarded"

RECOVERY_SCHEMA = pa.schema(
    [
        pa.field("operation_id", pa.string(), nullable=False, metadata=_PRIMARY_KEY),
        pa.field("graph_commit_id", pa.string()),
        pa.field("recovery_kind", pa.string(), nullable=False),
        pa.field("recovery_for_actor", pa.string()),
        pa.field("sidecar_writer_kind", pa.string(), nullable=False),
        pa.field("graph_branch", pa.string()),
        pa.field("per_table_outcomes", pa.string(), nullable=False),
        pa.field("created_at", pa.int64(), nullable=False),
    ]
)


@dataclass(frozen=True, slots=True)
class TableOutcome:
    """What recovery did to one table: the version it found and the one it left, logically."""

    table_key: TableKey
    from_version: int
    to_version: int


@dataclass(frozen=True, slots=True)
class Recovery:
    """One settled sidecar."""

    operation_id: OperationId
    graph_commit_id: CommitId | None
    recovery_kind: str
    recovery_for_actor: str | None
    sidecar_writer_kind: str
    graph_branch: str | None
    per_table_outcomes: tuple[TableOutcome, ...]
    created_at: int


def recovery_batch(recovery: Recovery) -> pa.Table:
    """One audit row."""
    row = {name: getattr(recovery, name) for name in RECOVERY_SCHEMA.names}
    row["per_table_outcomes"] = orjson.dumps(recovery.per_table_outcomes).decode()
    return pa.Table.from_pylist([row], schema=RECOVERY_SCHEMA)


def decode_recoveries(table: pa.Table) -> tuple[Recovery, ...]:
    """Audit rows as values."""
    return tuple(
        Recovery(**{**row, "per_table_outcomes": _outcomes(row["per_table_outcomes"])})
        for row in table.to_pylist()
    )


def _outcomes(text: str) -> tuple[TableOutcome, ...]:
    return tuple(TableOutcome(**outcome) for outcome in orjson.loads(text))


# Snapshots


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything one read sees: the published version of every table, at one commit."""

    branch: str
    commit_id: CommitId
    manifest_version: int
    internal_schema_version: int
    tables: dict[TableKey, TablePin]
    schema: SchemaId | None = None


def visible(pins: Iterable[TablePin], stones: Iterable[Tombstone]) -> dict[TableKey, TablePin]:
    """The pin of each table: its latest version that no tombstone covers.

    A fork's versions continue from its parent's, so on a branch the latest version is the branch's
    own as soon as it has one, and a tombstone written there covers what the branch inherited.
    """
    covered: dict[tuple[TableKey, str], int] = {}
    for stone in stones:
        name = stone.table_key, stone.location
        covered[name] = max(covered.get(name, 0), stone.version)
    latest: dict[TableKey, TablePin] = {}
    for pin in pins:
        names = (pin.table_key, pin.location), (pin.table_key, "")
        if any(pin.version <= covered.get(name, 0) for name in names):
            continue
        best = latest.get(pin.table_key)
        if best is None or pin.version > best.version:
            latest[pin.table_key] = pin
    return latest
