"""Graphs for the tests of upkeep: people who know each other, written in many small commits."""

from pathlib import Path

import lance
import numpy as np
import pyarrow as pa

import omnigraph as og
from omnigraph.graph import Graph
from omnigraph.storage.protocol.intent import WriterKind
from omnigraph.types import TableKey

SCHEMA = """
node Person { name: String @key  age: I32?  bio: String? @index  face: Vector(4)? @index
              email: String? @unique  @range(age, 0..150) }
node Place { name: String @key  kind: enum(city, town)? }
edge Knows: Person -> Person @card(0..3) { since: I64? }
"""
PERSON, PLACE, KNOWS = TableKey("node:Person"), TableKey("node:Place"), TableKey("edge:Knows")
TABLES = (PERSON, PLACE, KNOWS)

Content = dict[str, list[dict[str, object]]]


def people(first: int, last: int) -> pa.Table:
    """Rows of people with these numbers."""
    names = [f"p{n:05}" for n in range(first, last)]
    faces = np.random.default_rng(first).normal(size=(len(names), 4)).astype(np.float32)
    return pa.table(
        {
            "id": names,
            "name": names,
            "age": pa.array([n % 90 for n in range(first, last)], pa.int32()),
            "bio": [f"likes graphs and number{n % 7}" for n in range(first, last)],
            "face": pa.array(faces.tolist(), pa.list_(pa.float32(), 4)),
            "email": [f"{name}@x" for name in names],
        }
    )


def friends(first: int, last: int) -> pa.Table:
    """Each of these people knows the next one; the last one knows the first of them."""
    names = [f"p{n:05}" for n in range(first, last)]
    return pa.table(
        {
            "id": [f"k{name}" for name in names],
            "src": names,
            "dst": names[1:] + names[:1],
            "since": pa.array(range(first, last), pa.int64()),
        }
    )


def add(graph: Graph, first: int, last: int, *, branch: str = "main") -> str:
    """One commit with these people and whom they know."""
    write = graph._store.begin(branch, kind=WriterKind.MUTATION, actor="act-test")
    write.append(PERSON, people(first, last))
    write.append(KNOWS, friends(first, last))
    return graph._store.commit(write).id


def made(path: Path, commits: int = 6, *, each: int = 60, fold: bool = False) -> Graph:
    """A graph of as many small commits."""
    graph = og.init(path, SCHEMA, fold=fold)
    for number in range(commits):
        add(graph, number * each, (number + 1) * each)
    return graph


def content(graph: Graph, branch: str = "main", *, commit: str | None = None) -> Content:
    """Everything a read sees, in the order of ids."""
    snapshot = graph.snapshot(branch, commit=commit)
    return {
        key: sorted(
            graph._store.reader(snapshot, key).rows().to_pylist(), key=lambda row: str(row["id"])
        )
        for key in TABLES
        if key in snapshot.tables
    }


def foreign_append(graph: Graph, first: int, last: int) -> None:
    """Rows that somebody wrote with Lance alone."""
    path = f"{graph.uri}/{graph.snapshot().tables[PERSON].location}"
    schema = lance.dataset(path).schema
    lance.write_dataset(people(first, last).select(schema.names).cast(schema), path, mode="append")


def fragments(graph: Graph, key: TableKey = PERSON, branch: str = "main") -> int:
    """How many fragments a table has."""
    return graph._store.reader(graph.snapshot(branch), key).fragment_count()


def files(graph: Graph) -> int:
    """How many files the graph is made of, locks left out."""
    root = Path(graph.uri)
    return sum(p.is_file() and "__locks" not in p.parts for p in root.rglob("*"))
