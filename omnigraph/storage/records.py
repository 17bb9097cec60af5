"""Codecs of the stored records: manifest rows and commits.

Invariant: no other module knows the shape of these rows (the recovery audit has its codec in
`recovery_records.py`, sidecars have theirs in `protocol/sidecars.py`). Decoding returns the current
type or fails loudly; a record that cannot be understood is never guessed at.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, fields
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple, NewType, TypedDict

import orjson
import pyarrow as pa

from omnigraph.errors import StorageFailed
from omnigraph.light_dataclass import dataclass
from omnigraph.storage.names import MAIN, table_location
from omnigraph.storage.stamp import stamped
from omnigraph.types import SchemaStep, TableKey, parse_table_key

CommitId = NewType("CommitId", str)
"""A graph commit: a ULID."""

OperationId = NewType("OperationId", str)
"""One attempt to write: a ULID, the name of its sidecar."""

SchemaId = NewType("SchemaId", str)
"""One accepted schema: a hash of the files that hold it."""

RECOVERY_ACTOR = "omnigraph:recovery"

# Manifest rows

PRIMARY_KEY = {"lance-schema:unenforced-primary-key": "true"}

MANIFEST_SCHEMA = stamped(
    pa.schema(
        [
            pa.field("object_id", pa.string(), nullable=False, metadata=PRIMARY_KEY),
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

    @property
    def home(self) -> "Home":
        """The folder that new files of this version's branch belong to."""
        return self.location, self.branch, self.fork


Home = tuple[str, str | None, str]
"""Folder of a dataset, or of one of its Lance branches: location, branch, identity of the fork. A
branch that was deleted and created again has another home."""

WriteBase = NewType("WriteBase", TablePin)
"""A table version in the folder of the branch that is written to. Files are written through a
`WriteBase` alone: a version that a branch only reads may lie in the folder of another branch.
`base_of` is the one place that makes one."""


def base_of(pin: TablePin, owner: str | None) -> WriteBase:
    """Return a version as the base of a write; `owner` is the branch that is written to, None for
    main. Raises `StorageFailed` if the version lies in the folder of another branch."""
    if pin.branch != owner:
        raise StorageFailed(
            f"prepared a write of {pin.table_key}",
            f"version {pin.version} lies in the folder of '{pin.branch or MAIN}', not in that of "
            f"'{owner or MAIN}'",
        )
    return WriteBase(pin)


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
class EmbeddedBy:
    """Provider and model that made the vectors of a property, and their width."""

    provider: str
    model: str
    width: int


Embedded = Mapping[str, EmbeddedBy]
"""Models by property, which is named by `embedded_property`."""

EmbeddedChange = Mapping[str, EmbeddedBy | None]
"""Models that a commit sets; None removes the record of a property."""


def embedded_property(type_id: int, property_id: int) -> str:
    """Return the name of a property in a record of models: identities, which survive renames."""
    return f"{type_id}.{property_id}"


def embedded_after(before: Embedded, change: EmbeddedChange) -> Embedded:
    """Return the models of a branch after a commit."""
    if not change:
        return before
    return {key: by for key, by in {**before, **change}.items() if by is not None}


@dataclass(frozen=True, slots=True)
class RowCounts:
    """How many rows of one table a commit inserted, updated and deleted."""

    inserted: int = 0
    updated: int = 0
    deleted: int = 0

    def __bool__(self) -> bool:
        return bool(self.inserted or self.updated or self.deleted)


NO_ROWS = RowCounts()

Counts = Mapping[TableKey, RowCounts]
"""Row counts by table; a table without changed rows is absent."""


class StatedNote(TypedDict):
    """A note as the arguments of a write's beginning."""

    actor: str | None
    message: str | None
    metadata: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class CommitNote:
    """What a caller says about a write: who writes, why, and texts of its own by name."""

    actor: str | None = None
    message: str | None = None
    metadata: Mapping[str, str] = field(default_factory=dict, hash=False)

    @property
    def stated(self) -> StatedNote:
        """The note as arguments for `Store.begin`, or for a record with commit facts."""
        return {"actor": self.actor, "message": self.message, "metadata": self.metadata}


NO_NOTE = CommitNote()


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitFacts:
    """What a writer states about its commit before it is published.

    Every record of a write inherits these fields (`Intent`, the sidecar's, `ManifestChange`,
    `Commit`) and hands them on with `facts_of`, so a new fact is added here and in the codec below.
    """

    actor: str | None = None
    merged_parent: CommitId | None = None
    merged_from: Origin | None = None  # where the merged parent was written
    mark: str | None = None  # a branch has at most one commit of a mark
    message: str | None = None
    metadata: Mapping[str, str] = field(default_factory=dict, hash=False)
    counts: Counts = field(default_factory=dict, hash=False)
    embedded: EmbeddedChange = field(default_factory=dict, hash=False)


_FACT_NAMES = tuple(each.name for each in fields(CommitFacts))


def facts_of(record: CommitFacts) -> dict[str, Any]:
    """The commit facts of a record, as arguments for the next record of the same write."""
    return {name: getattr(record, name) for name in _FACT_NAMES}


_CHANGES = ("inserted", "updated", "deleted")
OPTIONAL_FACTS = ("mark", "merged_from", "message", "metadata", "counts", "embedded")


def optional_facts(record: CommitFacts) -> dict[str, Any]:
    """The facts that are stored only where a writer states them, ready for JSON."""
    facts = {name: getattr(record, name) for name in OPTIONAL_FACTS}
    facts["metadata"] = dict(record.metadata) or None
    facts["counts"] = {
        key: {op: count for op in _CHANGES if (count := getattr(counts, op))}
        for key, counts in record.counts.items()
    } or None
    facts["embedded"] = encoded_models(record.embedded) or None
    return {name: value for name, value in facts.items() if value is not None}


def decode_facts(facts: Mapping[str, Any]) -> dict[str, Any]:
    """The commit facts in a stored record, those it was written without at their defaults."""
    origin = facts.get("merged_from")
    return {
        "actor": facts["actor"],
        "merged_parent": facts["merged_parent"],
        "merged_from": None if origin is None else (origin[0], origin[1]),
        "mark": facts.get("mark"),
        "message": facts.get("message"),
        "metadata": dict(facts.get("metadata") or {}),
        "counts": {
            TableKey(key): RowCounts(**counts)
            for key, counts in (facts.get("counts") or {}).items()
        },
        "embedded": decoded_models(facts.get("embedded")),
    }


def encoded_models(models: EmbeddedChange) -> dict[str, list[str | int] | None]:
    """Return a record of models, ready for JSON."""
    return {
        key: None if by is None else [by.provider, by.model, by.width] for key, by in models.items()
    }


def decoded_models(stored: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the record of models that was stored; an absent one is empty."""
    return {key: None if by is None else EmbeddedBy(*by) for key, by in (stored or {}).items()}


TRANSACTIONS = "tx/"  # branches for the length of a block, of which nothing need be known


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Commit(CommitFacts):
    """One graph commit. `branch` is None for main; `created_at` counts microseconds."""

    id: CommitId
    parent: CommitId | None
    created_at: int
    branch: str | None
    manifest_version: int
    operation_id: OperationId | None = None
    schema: SchemaId | None = field(default=None, compare=False)  # None: not told
    schema_steps: tuple[SchemaStep, ...] = field(default=(), compare=False)  # set by listings

    @property
    def parents(self) -> tuple[CommitId, ...]:
        """The commits this one follows: none for the genesis, two for a merge."""
        return tuple(p for p in (self.parent, self.merged_parent) if p is not None)

    @property
    def created(self) -> datetime:
        """The moment of the commit: `created_at` as a datetime in UTC."""
        return datetime.fromtimestamp(0, UTC) + timedelta(microseconds=self.created_at)

    @property
    def when(self) -> str:
        """The moment of the commit in UTC, as a point in time takes it: `main@{…}`."""
        return f"{self.created:%Y-%m-%d %H:%M:%S}Z"

    @property
    def changed(self) -> str:
        """The rows that the commit changed, by type, and its first schema step:
        `+3 Person ~1 Knows`."""
        changed = []
        nodes_first = sorted(self.counts, key=lambda key: (parse_table_key(key)[0] != "node", key))
        for key, counts in ((key, self.counts[key]) for key in nodes_first):
            signs = (("+", counts.inserted), ("~", counts.updated), ("-", counts.deleted))
            changed += [f"{sign}{count}" for sign, count in signs if count]
            changed.append(parse_table_key(key)[1])
        if self.merged_from is not None and not self.merged_from[0].startswith(TRANSACTIONS):
            changed.append(f"[merge {self.merged_from[0]}]")
        if self.schema_steps:
            first, *rest = self.schema_steps
            changed.append(f"[schema: {first}{f'; and {len(rest)} more' if rest else ''}]")
        return " ".join(changed)

    def __repr__(self) -> str:
        message = None if self.message is None else repr(self.message.partition("\n")[0])
        facts = (self.id, self.branch or MAIN, self.when, self.actor, self.changed, message)
        return f"Commit({', '.join(filter(None, facts))})"


def table_row(table_key: TableKey, location: str) -> Row:
    """The row that says a table exists, and where."""
    return _row(
        f"table:{_named(table_key, location)}", TABLE, location=location, table_key=table_key
    )


def version_row(pin: TablePin, manifest_version: int) -> Row:
    """The row that makes a table version visible, from a manifest version on."""
    facts = {"fork": pin.fork} if pin.fork else {}
    return _row(
        f"table_version:{_named(pin.table_key, pin.location)}:{pin.branch or MAIN}:{pin.version}",
        TABLE_VERSION,
        location=pin.location,
        metadata={**facts, "manifest_version": manifest_version},
        table_key=pin.table_key,
        table_version=pin.version,
        table_branch=pin.branch,
        row_count=pin.row_count,
    )


def tombstone_row(stone: Tombstone, manifest_version: int) -> Row:
    """The row that hides a table's versions up to one, from a manifest version on."""
    name = _named(stone.table_key, stone.location or table_location(stone.table_key))
    return _row(
        f"table_tombstone:{name}:{stone.branch or MAIN}:{stone.version}",
        TABLE_TOMBSTONE,
        location=stone.location or None,
        metadata={"manifest_version": manifest_version},
        table_key=stone.table_key,
        table_version=stone.version,
        table_branch=stone.branch,
    )


def _named(table_key: TableKey, location: str) -> str:
    """A table inside an object's name. One that is not in the folder of its name was renamed, or
    took the name of another, and says where it is: versions of two tables are two objects."""
    return table_key if location == table_location(table_key) else f"{table_key}@{location}"


def commit_row(commit: Commit) -> Row:
    """The lineage row of a commit."""
    facts: dict[str, Any] = {
        "parent": commit.parent,
        "merged_parent": commit.merged_parent,
        "actor": commit.actor,
        "created_at": commit.created_at,
        "branch": commit.branch,
        "operation_id": commit.operation_id,
        "manifest_version": commit.manifest_version,
        **({} if commit.schema is None else {"schema": commit.schema}),
        **optional_facts(commit),
    }
    return _row(commit.id, GRAPH_COMMIT, metadata=facts, base_objects=list(commit.parents))


def head_id(branch: str) -> str:
    """The object id of a branch's head row."""
    return f"graph_head:{branch}"


class Head(NamedTuple):
    """What a head row says, and its address in the manifest."""

    commit: CommitId
    address: int
    schema: SchemaId | None  # None: the graph was made without one
    embedded: Embedded


NO_MODELS: Embedded = {}


def head_row(
    branch: str, commit: CommitId, schema: SchemaId | None, embedded: Embedded = NO_MODELS
) -> Row:
    """The row every publish on a branch rewrites: two publishers collide on it."""
    facts: dict[str, Any] = {"commit": commit}
    if schema is not None:
        facts["schema"] = schema
    if embedded:
        facts["embedded"] = encoded_models(embedded)
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
    facts = _facts(row) if row["metadata"] else {}
    if row["table_key"] is None or row["location"] is None or row["table_version"] is None:
        raise _unreadable(row)
    return TablePin(
        table_key=TableKey(row["table_key"]),
        location=row["location"],
        version=row["table_version"],
        branch=row["table_branch"],
        fork=facts.get("fork", ""),
        row_count=row["row_count"] or 0,
    )


def decode_head(row: Row, address: int) -> Head:
    """A `graph_head` row, and its address in the manifest."""
    facts = _facts(row)
    if "commit" not in facts:
        raise _unreadable(row)
    models = decoded_models(facts.get("embedded"))
    return Head(CommitId(facts["commit"]), address, facts.get("schema"), models)


def _facts(row: Row) -> dict[str, Any]:
    try:
        facts = orjson.loads(row["metadata"])
    except ValueError as cause:
        raise _unreadable(row) from cause
    if not isinstance(facts, dict):
        raise _unreadable(row)
    return facts


def _unreadable(row: Row) -> StorageFailed:
    name = row.get("object_id") or row.get("table_key")  # who reads pins reads no ids
    return StorageFailed(
        "read __manifest",
        f"its row {name!r} is damaged; run `omnigraph check`, or restore a backup",
    )


def decode_tombstone(row: Row) -> Tombstone:
    """A `table_tombstone` row as a value."""
    return Tombstone(
        TableKey(row["table_key"]),
        row["table_version"],
        row["table_branch"],
        row["location"] or "",
    )


def decode_commit(row: Row, created_at_version: int) -> Commit:
    """A `graph_commit` row, read together with the manifest version that created it.

    The row names its manifest version too (`published_at` says which of the two counts). Where they
    differ Lance rebased the publish over a compaction of the manifest that another process
    committed meanwhile, and the version that created the row is the one that shows the commit.
    """
    facts = _facts(row)
    try:
        return Commit(
            id=CommitId(row["object_id"]),
            parent=facts["parent"],
            created_at=facts["created_at"],
            branch=facts["branch"],
            manifest_version=created_at_version,
            operation_id=facts["operation_id"],
            schema=facts.get("schema"),
            **decode_facts(facts),
        )
    except KeyError as cause:
        raise _unreadable(row) from cause


def decode_mark(row: Row) -> str | None:
    """The mark of a `graph_commit` row."""
    mark: str | None = _facts(row).get("mark")
    return mark


# Snapshots


@dataclass(frozen=True, slots=True)
class TopologyState:
    """The topology file of a table version: the version it is of, its size, the rows written or
    removed since, and the branch whose file it is (None: main's)."""

    version: int
    bytes: int
    rows_behind: int
    branch: str | None = None


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything one read sees: the published version of every table, at one commit."""

    branch: str
    commit_id: CommitId
    manifest_version: int
    internal_schema_version: int
    tables: dict[TableKey, TablePin]
    schema: SchemaId | None = None
    topology: Mapping[TableKey, TopologyState] = field(default_factory=dict, compare=False)
    embedded: Embedded = field(default_factory=dict, compare=False, repr=False)


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
