"""A small graph and a small writer: three tables, rows made of an id and a number.

The writer stages appended, upserted, replaced and deleted rows over several tables. It stands in
for the real writers, which differ from it only in what they stage.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from omnigraph.storage.lance.tables import keyed
from omnigraph.storage.locks.turns import Turn
from omnigraph.storage.names import MAIN
from omnigraph.storage.opening import create, open_store
from omnigraph.storage.protocol.intent import WriterKind
from omnigraph.storage.protocol.write import Write
from omnigraph.storage.records import Commit
from omnigraph.storage.store import Settings, Store
from omnigraph.types import TableKey

PERSON, CITY, KNOWS = TableKey("node:Person"), TableKey("node:City"), TableKey("edge:Knows")
TABLES = (PERSON, CITY, KNOWS)

_NODE = pa.schema([pa.field("id", pa.string(), nullable=False), pa.field("n", pa.int64())])
_EDGE = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        pa.field("src", pa.string(), nullable=False),
        pa.field("dst", pa.string(), nullable=False),
        pa.field("n", pa.int64()),
    ]
)
SCHEMAS = {PERSON: _NODE, CITY: _NODE, KNOWS: _EDGE}

FAST = Settings(lease_term_s=1.0)


def rows(table_key: TableKey, values: Mapping[str, int]) -> pa.Table:
    """Rows with these ids and numbers."""
    columns = {"id": list(values), "n": list(values.values())}
    if table_key == KNOWS:
        columns |= {"src": ["a"] * len(values), "dst": ["b"] * len(values)}
    return pa.table(columns, schema=keyed(SCHEMAS[table_key]))


@dataclass(frozen=True)
class Where:
    """A place for a graph, as child processes can be told it."""

    uri: str
    options: dict[str, str] = field(default_factory=dict)

    def create(self, settings: Settings = FAST) -> Store:
        tables = [(key, SCHEMAS[key]) for key in TABLES]
        return create(self.uri, tables, storage_options=self.options or None, settings=settings)

    def open(self, *, read_only: bool = False, settings: Settings = FAST) -> Store:
        return open_store(
            self.uri,
            read_only=read_only,
            storage_options=self.options or None,
            settings=settings,
        )


def put(
    store: Store,
    values: Mapping[TableKey, Mapping[str, int]],
    *,
    branch: str = MAIN,
    kind: WriterKind = WriterKind.MUTATION,
    actor: str | None = "act-test",
    turn: Turn | None = None,
) -> Commit:
    """One commit that upserts rows into every named table."""
    write = store.begin(branch, kind=kind, actor=actor, turn=turn)
    for table_key, each in values.items():
        write.upsert(table_key, rows(table_key, each))
    return store.commit(write)


def append(
    store: Store, table_key: TableKey, *ids: str, branch: str = MAIN, turn: Turn | None = None
) -> Commit:
    """One commit that appends rows to one table."""
    write = store.begin(branch, kind=WriterKind.MUTATION, actor="act-test", turn=turn)
    write.append(table_key, rows(table_key, dict.fromkeys(ids, 1)))
    return store.commit(write)


def remove(store: Store, write: Write, table_key: TableKey, filter: str) -> bool:
    """Stage the removal of matching rows; whether any match."""
    reader = store.tables.reader(write.base(table_key))
    row_ids = reader.row_ids(filter).combine_chunks()
    if len(row_ids):
        write.patch(table_key, removed=row_ids, added=reader.schema.empty_table(), updated=0)
    return len(row_ids) > 0


def replace_all(store: Store, write: Write, table_key: TableKey, new: pa.Table) -> None:
    """Stage rows that replace all others."""
    base = write.base(table_key)
    written = store.tables.write_fragments(base, new, replacing=True) if new.num_rows else ()
    write.fragments(table_key, written, replacing=True)


Content = dict[TableKey, dict[str, int]]


def content(store: Store, branch: str = MAIN, *, commit: str | None = None) -> Content:
    """Everything a read sees."""
    snapshot = store.snapshot(branch, commit=commit)
    seen: Content = {}
    for table_key in TABLES:
        table = store.reader(snapshot, table_key).rows(["id", "n"])
        ids = table["id"].to_pylist()
        assert len(set(ids)) == len(ids), f"{table_key} holds an id twice"
        seen[table_key] = dict(zip(ids, table["n"].to_pylist(), strict=True))
        assert snapshot.tables[table_key].row_count == len(ids)
    return seen


def heads_agree(store: Store, branch: str = MAIN) -> bool:
    """Whether every table head is the published version."""
    pins = store.snapshot(branch).tables.values()
    return all(
        store.datasets.head(pin.location, pin.branch) == pin.version
        for pin in pins
        if pin.branch == (None if branch == MAIN else branch)
    )


def create_graph(where: Where) -> None:
    """Create a graph and forget the handle: for processes that end right after."""
    where.create()
