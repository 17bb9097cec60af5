"""A schema with every kind of property and rule, and short ways to load it."""

from pathlib import Path
from typing import Any

import orjson

import omnigraph as og
from omnigraph.catalog.accept import accept
from omnigraph.graph import Graph

SCHEMA = """
node Person {
  name: String @key
  age: I32?
  email: String? @unique
  role: enum(admin, guest)?
  score: F32?
  height: F64?
  big: U64?
  ok: Bool?
  born: Date?
  seen: DateTime?
  tags: [String]?
  marks: [F64]?
  days: [Date]?
  face: Vector(2)?
  pic: Blob?
  @range(age, 0..150)
  @check(email, "^[^@]+@[^@]+$")
}
node Ticket { tenant: String  number: I64  @key(tenant, number) }
node Count { n: I64 @key }
node Log { text: String }
edge Knows: Person -> Person { since: Date?  @unique(src, dst) }
edge Wrote: Person -> Log @card(0..2) { weight: F64? }
edge Owns: Count -> Log @card(1..1)
"""
CATALOG = accept(SCHEMA)


def new_graph(folder: Path) -> Graph:
    """An empty graph of the schema."""
    return og.init(folder / "graph.omni", SCHEMA)


def lines(*records: Any) -> bytes:
    """Records as NDJSON; text and bytes are taken as lines already."""
    encoded = (r if isinstance(r, bytes) else orjson.dumps(r) for r in records)
    return b"".join(line + b"\n" for line in encoded)


def node(kind: str, **data: Any) -> dict[str, Any]:
    """A node record."""
    return {"type": kind, "data": data}


def person(name: str, **data: Any) -> dict[str, Any]:
    """A person record."""
    return node("Person", name=name, **data)


def edge(kind: str, source: str, target: str, **data: Any) -> dict[str, Any]:
    """An edge record."""
    return {"edge": kind, "from": source, "to": target, "data": data}


def contents(graph: Graph, branch: str = "main") -> dict[str, list[dict[str, Any]]]:
    """Every row of every table with rows, in id order."""
    found = {}
    snapshot = graph.snapshot(branch)
    for key in snapshot.tables:
        rows = graph._store.reader(snapshot, key).rows(blob_handling="all_binary").to_pylist()
        if rows:
            found[str(key)] = sorted(rows, key=lambda row: row["id"])
    return found


def by_name(graph: Graph, table: str) -> dict[str, dict[str, Any]]:
    """The rows of one table by id."""
    return {row["id"]: row for row in contents(graph).get(table, [])}
