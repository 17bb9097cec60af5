"""A graph whose schema changes, and everything there is to see of it."""

import io
from pathlib import Path
from typing import Any

import orjson

import omnigraph as og
from omnigraph.graph import Graph
from omnigraph.storage.names import MAIN
from omnigraph.types import TableKey

SCHEMA = """
node Person {
  name: String @key
  age: I32?
  nick: String?
  tags: [String]?
  face: Vector(2)?
  photo: Blob?
  mood: enum(calm, glad)?
}
node City { name: String @key  size: I64? }
edge Knows: Person -> Person { since: Date? }
edge LivesIn: Person -> City
"""

RECORDS: list[dict[str, Any]] = [
    {
        "type": "Person",
        "data": {
            "name": "Ada",
            "age": 36,
            "nick": "A",
            "tags": ["x", "y"],
            "face": [1.0, 2.0],
            "photo": "base64:aGk=",
            "mood": "calm",
        },
    },
    {"type": "Person", "data": {"name": "Bob", "age": 7}},
    {"type": "Person", "data": {"name": "Cy", "tags": [], "mood": "glad"}},
    {"type": "City", "data": {"name": "Paris", "size": 2}},
    {"edge": "Knows", "from": "Ada", "to": "Bob", "data": {"id": "k1", "since": "2020-01-02"}},
    {"edge": "Knows", "from": "Bob", "to": "Cy", "data": {"id": "k2"}},
    {"edge": "LivesIn", "from": "Ada", "to": "Paris", "data": {"id": "l1"}},
]

Lines = list[dict[str, Any]]


def evolving(uri: str | Path, options: dict[str, str] | None = None) -> Graph:
    """A new graph with people in it."""
    graph = og.init(uri, SCHEMA, storage_options=options)
    graph.load(RECORDS, "append")
    return graph


def dump(graph: Graph, commit: str | None = None) -> Lines:
    """Every entity, as an export tells it."""
    stream = io.BytesIO()
    graph.export(stream, snapshot=commit)
    return [orjson.loads(line) for line in stream.getvalue().splitlines()]


def of_type(lines: Lines, name: str) -> dict[str, dict[str, Any]]:
    """The entities of one type by id."""
    return {
        line["data"]["id"]: {key: value for key, value in line["data"].items() if key != "id"}
        for line in lines
        if name in (line.get("type"), line.get("edge"))
    }


def ask(graph: Graph, match: str, returned: str, commit: str | None = None) -> list[Any]:
    """The rows of a read, in order."""
    text = f"query q() {{ match {{ {match} }} return {{ {returned} as v }} order {{ v }} }}"
    return [row["v"] for row in graph.query(text, snapshot=commit).rows]


def head(graph: Graph) -> str:
    """The commit that main is at."""
    return str(graph.snapshot().commit_id)


def heads_agree(graph: Graph) -> bool:
    """Whether every table head is the published version."""
    store = graph._store
    return all(
        store.datasets.head(pin.location, pin.branch) == pin.version
        for pin in store.snapshot(MAIN).tables.values()
    )


def data_files(graph: Graph, table: str) -> set[str]:
    """The data files of a table's published version."""
    handle = graph._store.datasets.handle(graph.snapshot().tables[TableKey(table)])
    return {file.path for fragment in handle.get_fragments() for file in fragment.metadata.files}
