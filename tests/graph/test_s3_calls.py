"""Calls on an object store, counted: each takes tens of milliseconds, so each has a reason."""

from collections.abc import Callable, Iterator

import pytest

import omnigraph
from omnigraph.graph import Graph
from tests.storage.s3 import Server, serve

SCHEMA = """
node Person { name: String @key  age: I64? }
node Company { name: String @key }
edge Knows: Person -> Person { since: I64? }
"""
INSERT = "query q($n: String) { insert Person { name: $n, age: 1 } }"
WITH_EDGE = """
query q($n: String, $m: String) {
    insert Person { name: $n, age: 1 }
    insert Knows { from: $n, to: $m }
}
"""

INSERT_CALLS = 13
"""A list (is anything to be healed?), the data, the lock, a look whether the branch moved, the
note, the version, the publish lock, the manifest's rows, what they replace, the manifest's version,
the end of both locks and of the note."""

BY_THE_CLOCK = 1
"""Now and then a folder of derived files is listed, or a lease renewed."""


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serve() as running:
        yield running


@pytest.fixture
def graph(server: Server) -> Iterator[Graph]:
    where = server.place()
    with omnigraph.init(where.uri, SCHEMA, storage_options=where.options) as made:
        for number in range(3):
            made.mutate(WITH_EDGE, {"n": f"p{number}", "m": f"p{number}"})
        yield made


def calls(server: Server, verb: Callable[[], object]) -> int:
    before = server.requests
    verb()
    return server.requests - before


def test_calls_of_an_insert(server: Server, graph: Graph) -> None:
    def insert(name: str) -> int:
        return calls(server, lambda: graph.mutate(INSERT, {"n": name}))

    def insert_with_edge(name: str) -> int:
        return calls(server, lambda: graph.mutate(WITH_EDGE, {"n": name, "m": "p1"}))

    counts = [insert(f"a{number}") for number in range(4)]
    assert min(counts) == INSERT_CALLS
    assert max(counts) <= INSERT_CALLS + BY_THE_CLOCK
    # The edge adds its table's data, lock and version, and two tables a look at both heads; the
    # other end is looked up in rows of which those written since are read.
    assert min(insert_with_edge(f"b{number}") for number in range(3)) <= 21


def test_calls_of_a_branch_from_its_creation_to_its_deletion(server: Server, graph: Graph) -> None:
    graph.branches.create("earlier")
    assert calls(server, lambda: graph.branches.create("b")) <= 7
    first = calls(server, lambda: graph.mutate(INSERT, {"n": "x"}, branch="b"))
    assert first <= 22, "the first write on a branch forks its table"
    assert calls(server, lambda: graph.branches.merge("b")) <= 24
    deleted = calls(server, lambda: graph.branches.delete("b"))
    assert deleted <= 16, "one of them reads the other branch"
    assert calls(server, lambda: graph.branches.delete("earlier")) <= 10, "without a fork"
    names = {
        row["n"]
        for row in graph.query("query q() { match { $p: Person } return { $p.name as n } }").rows
    }
    assert "x" in names


def test_calls_of_a_merge_with_changes_on_both_sides(server: Server, graph: Graph) -> None:
    graph.branches.create("b")
    graph.mutate(INSERT, {"n": "x"}, branch="b")
    graph.mutate(INSERT, {"n": "y"})
    assert calls(server, lambda: graph.branches.merge("b")) <= 27
