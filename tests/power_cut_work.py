"""What is done before a power cut: every kind of write, one commit or one name at a time.

A step is acknowledged when its call returns. Run as a program it writes a mark for each one.
"""

import json
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

import omnigraph as og
from omnigraph.graph import Graph
from tests.power_cuts import ACK

SCHEMA = """
node Person {
    name: String @key
    age: I64?
}

edge Knows: Person -> Person
"""
WIDER = SCHEMA.replace("age: I64?", "age: I64?\n    city: String?")
INSERT = "query q($n: String) { insert Person { name: $n, age: 1 } }"
PAIR = """query q($a: String, $b: String) {
    insert Person { name: $a } insert Person { name: $b } insert Knows { from: $a, to: $b }
}"""
PEOPLE = "query q() { match { $p: Person } return { $p.name, $p.age } }"
EDGES = "query q() { match { $a: Person $a knows $b } return { $a.name, $b.name } }"


def steps(uri: str, singles: int) -> Iterator[Callable[[], Any]]:
    """The steps, each to be called before the next is taken."""
    graph: Graph | None = None

    def begin() -> None:
        nonlocal graph
        graph = og.init(uri, SCHEMA, durability="fsync")

    yield begin
    assert graph is not None
    main = graph
    for number in range(3):
        yield lambda n=number: main.mutate(INSERT, {"n": f"p{n}"})
    yield lambda: main.mutate(PAIR, {"a": "a", "b": "b"})
    yield lambda: main.mutate('query q() { update Person set { age: 7 } where name = "p1" }')
    yield lambda: main.mutate('query q() { delete Person where name = "p2" }')
    yield lambda: main.branches.create("side")
    side = main.branch("side")
    yield lambda: side.mutate(PAIR, {"a": "sa", "b": "sb"})
    yield lambda: side.mutate(INSERT, {"n": "sc"})
    yield lambda: main.branches.merge("side")
    yield lambda: main.branches.delete("side")
    yield lambda: main.tags.create("v1")
    people = [{"type": "Person", "data": {"name": f"l{n}", "age": n}} for n in range(20)]
    yield lambda: main.load(people, "merge", engine="local")
    yield lambda: main.schema.apply(WIDER)
    for number in range(singles):
        yield lambda n=number: main.mutate(INSERT, {"n": f"s{n}"})
    yield lambda: main.optimize()
    yield lambda: main.mutate(INSERT, {"n": "last"})


def view(uri: str) -> Any:
    """Everything that a reader sees, or None when there is no graph."""
    try:
        graph = og.open(uri, read_only=True)
    except og.NotFound:
        return None
    with graph:
        return seen(graph)


def seen(graph: Graph) -> Any:
    """Everything that a reader sees, as JSON would say it."""
    branches = sorted(graph.branches.list())
    rows = {
        branch: [
            sorted(map(str, graph.query(text, branch=branch).rows)) for text in (PEOPLE, EDGES)
        ]
        for branch in branches
    }
    tags = sorted(tag.name for tag in graph.tags.list())
    return json.loads(json.dumps([rows, tags, "city" in graph.schema.text]))


def main() -> None:
    uri, singles, views = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    with open(views, "w") as file:
        for step in steps(uri, singles):
            step()
            os.write(1, ACK)
            file.write(json.dumps(view(uri)) + "\n")


if __name__ == "__main__":
    main()
