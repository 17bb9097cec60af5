"""A small graph to branch and merge: people, companies, who knows whom and who works where.

Writes go straight through storage, so that a test can make any history in few commits.
"""

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

import omnigraph as og
from omnigraph.graph import Graph
from omnigraph.storage.names import MAIN
from omnigraph.storage.protocol.intent import WriterKind
from omnigraph.storage.records import Commit
from omnigraph.types import TableKey

SCHEMA = """
node Person {
    name: String @key
    age: I32?
    email: String? @unique
}

node Company {
    name: String @key
}

edge Knows: Person -> Person {
    since: I32?
}

edge WorksAt: Person -> Company @card(0..1) {
    title: String?
}
"""

PERSON, COMPANY = TableKey("node:Person"), TableKey("node:Company")
KNOWS, WORKS_AT = TableKey("edge:Knows"), TableKey("edge:WorksAt")
TABLES = (PERSON, COMPANY, KNOWS, WORKS_AT)

Row = dict[str, Any]
Edit = Mapping[str, Row | None]
"""Rows by id; None removes."""


def make_template(folder: Path) -> Path:
    """An empty graph to copy."""
    og.init(folder, schema=SCHEMA).close()
    return folder


def copy_of(template: Path, folder: Path) -> Graph:
    """A graph of one's own."""
    shutil.copytree(template, folder)
    return og.open(folder)


def branched_copy_of(template: Path, folder: Path) -> Graph:
    """The same for a graph with branches, which name their files by address."""
    og.backup(template, folder, check=False)
    return og.open(folder)


def person(name: str, age: int | None = None, email: str | None = None) -> Row:
    return {"id": name, "name": name, "age": age, "email": email}


def knows(edge_id: str, src: str, dst: str, since: int | None = None) -> Row:
    return {"id": edge_id, "src": src, "dst": dst, "since": since}


def works_at(edge_id: str, src: str, dst: str, title: str | None = None) -> Row:
    return {"id": edge_id, "src": src, "dst": dst, "title": title}


def edit(graph: Graph, branch: str = MAIN, **tables: Edit) -> Commit:
    """One commit: `edit(graph, "b", Person={"Ada": person("Ada", 36), "Bob": None})`."""
    store = graph._store
    write = store.begin(branch, kind=WriterKind.MUTATION, actor="act-test")
    keys = {key.partition(":")[2]: key for key in store.snapshot(branch).tables}
    for name, rows in tables.items():
        _edit_table(write, write.read(keys[name]), rows)
    return store.commit(write)


def _edit_table(write: Any, reader: Any, rows: Edit) -> None:
    known = reader.rows(["id", "_rowid"]).to_pydict()
    at = dict(zip(known["id"], known["_rowid"], strict=True))
    added = pa.Table.from_pylist([r for r in rows.values() if r is not None], schema=reader.schema)
    gone = pa.array([at[key] for key in rows if key in at], pa.uint64())
    updated = sum(row is not None for key, row in rows.items() if key in at)
    write.patch(reader.pin.table_key, removed=gone, added=added, updated=updated)


State = dict[tuple[str, str], Row]


def state(graph: Graph, branch: str = MAIN, *, commit: str | None = None) -> State:
    """Everything a read sees, by type and id."""
    store = graph._store
    snapshot = store.snapshot(branch, commit=commit)
    seen: State = {}
    for table in snapshot.tables:
        reader = store.reader(snapshot, table)
        rows = reader.rows(reader.schema.names).to_pylist()
        for row in rows:
            key = (table.partition(":")[2], row["id"])
            assert key not in seen, f"{key} is there twice"
            seen[key] = row
        assert snapshot.tables[table].row_count == len(rows)
    return seen
