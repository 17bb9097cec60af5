"""A graph of people that has one of everything a rule can be about, and short ways to use it."""

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import omnigraph as og
from omnigraph.graph import Graph
from omnigraph.storage.names import MAIN
from omnigraph.types import TableKey

SCHEMA = """
node Person {
    name: String @key
    age: I32?
    email: String? @unique
    mood: enum(calm, cross)?
    code: String?
    score: F64?
    height: F32?
    count: U64?
    tags: [String]?
    marks: [I32]?
    place: Vector(3)?
    photo: Blob?
    born: Date?
    seen: DateTime?
    active: Bool?
    first: String?
    last: String?
    @unique(first, last)
    @range(age, 0..150)
    @range(score, -1.5..1.5)
    @check(code, "^[A-Z]+$")
}

node Company {
    name: String @key
    size: I64?
}

node Note {
    text: String
    pages: I32?
}

node City {
    country: String
    name: String
    zip: I32?
    @key(country, name)
}

node Reading {
    at: F64 @key
    value: F64
}

edge WorksAt: Person -> Company @card(0..1) {
    title: String?
}

edge Knows: Person -> Person {
    since: Date?
    weight: F64?
    @unique(src, dst)
}

edge Lives: Person -> City @card(1..2)

edge Mentions: Note -> Person {
    line: I32
}
"""

PERSON, COMPANY, NOTE = TableKey("node:Person"), TableKey("node:Company"), TableKey("node:Note")
CITY, READING = TableKey("node:City"), TableKey("node:Reading")
WORKS_AT, KNOWS = TableKey("edge:WorksAt"), TableKey("edge:Knows")
LIVES, MENTIONS = TableKey("edge:Lives"), TableKey("edge:Mentions")
TABLES = (PERSON, COMPANY, NOTE, CITY, READING, WORKS_AT, KNOWS, LIVES, MENTIONS)


def make_template(folder: Path) -> Path:
    """An empty graph to copy: creating nine tables takes longer than copying them."""
    og.init(folder, schema=SCHEMA).close()
    return folder


def copy_of(template: Path, folder: Path) -> Graph:
    """A graph of one's own."""
    shutil.copytree(template, folder)
    return og.open(folder)


def do(graph: Graph, body: str, branch: str = MAIN, **params: Any) -> og.MutationResult:
    """Run statements. Parameters are declared as what their values are."""
    declared = ", ".join(f"${name}: {_type_of(value)}" for name, value in params.items())
    return graph.mutate(f"query q({declared}) {{ {body} }}", params, branch=branch)


def _type_of(value: object) -> str:
    match value:
        case None:
            return "String?"
        case bool():
            return "Bool"
        case int():
            return "I64"
        case float():
            return "F64"
        case list():
            return f"[{_type_of(value[0])}]"
        case _:
            return "String"


Rows = dict[str, dict[str, Any]]


def rows(graph: Graph, table: TableKey, branch: str = MAIN, commit: str | None = None) -> Rows:
    """The rows of a table by id, without nulls and without the id."""
    store = graph._store
    reader = store.reader(store.snapshot(branch, commit=commit), table)
    columns = [name for name in reader.schema.names if name != "photo"]
    found = reader.rows(columns).to_pylist()
    assert len({row["id"] for row in found}) == len(found), f"{table} holds an id twice"
    return {row["id"]: present(row) for row in found}


def present(row: Mapping[str, Any]) -> dict[str, Any]:
    """The columns that have a value, without the id."""
    return {name: value for name, value in row.items() if value is not None and name != "id"}


def blobs(graph: Graph, table: TableKey = PERSON, column: str = "photo") -> dict[str, bytes | None]:
    """The bytes of a blob column by id."""
    store = graph._store
    reader = store.reader(store.snapshot(), table)
    found = reader.rows(["id", column], blob_handling="all_binary").to_pylist()
    return {row["id"]: row[column] for row in found}


def everything(graph: Graph, branch: str = MAIN) -> dict[TableKey, Rows]:
    """All that a read of a branch sees."""
    return {table: rows(graph, table, branch) for table in TABLES}


def pairs(graph: Graph, table: TableKey, branch: str = MAIN) -> list[tuple[str, str]]:
    """The ends of every edge, sorted."""
    return sorted((row["src"], row["dst"]) for row in rows(graph, table, branch).values())
