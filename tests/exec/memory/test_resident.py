"""A resident table equals the version it is of, read whole or derived from an earlier version."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from omnigraph.exec.memory.adjacency import Adjacency, build
from omnigraph.exec.memory.resident import Edges, read_edges
from omnigraph.exec.memory.view import TablesView
from omnigraph.graph import Graph
from omnigraph.plan import ir
from omnigraph.storage.protocol.intent import WriterKind
from omnigraph.types import TableKey
from tests.exec.world import edge_rows, graph_of, node_rows
from tests.storage.world import remove, replace_all

SCHEMA = """
node P { k: String @key  i: I32?  s: String? }
edge E: P -> P { w: I32? }
"""
P, E = TableKey("node:P"), TableKey("edge:E")
IDS = [f"p{n}" for n in range(8)]
EDGES = [f"e{n:02d}" for n in range(14)]

Node, Edge = dict[str, Any], dict[str, Any]


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Graph]:
    with graph_of(Path(tmp_path_factory.mktemp("held")) / "g", SCHEMA) as made:
        yield made


class Model:
    """The graph as two dictionaries, written to the graph step by step."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.nodes: dict[str, Node] = {}
        self.edges: dict[str, Edge] = {}

    def begin_anew(self) -> None:
        self.nodes = {key: self.node(key, 0) for key in IDS[:5]}
        self.edges = {key: self.edge(key, n % 5, (n * 3) % 5, n) for n, key in enumerate(EDGES[:9])}
        self.replace()

    def node(self, key: str, value: int | None) -> Node:
        return {"id": key, "k": key, "i": value, "s": None if value is None else f"s{value}"}

    def edge(self, key: str, source: int, target: int, value: int | None) -> Edge:
        there = sorted(self.nodes)
        ends = there[source % len(there)], there[target % len(there)]
        return {"id": key, "src": ends[0], "dst": ends[1], "w": value}

    def replace(self) -> None:
        catalog = self.graph.schema.catalog
        writing = self.graph._store.begin("main", kind=WriterKind.LOAD)
        replace_all(
            self.graph._store, writing, P, node_rows(catalog, "P", list(self.nodes.values()))
        )
        replace_all(
            self.graph._store, writing, E, edge_rows(catalog, "E", list(self.edges.values()))
        )
        self.graph._store.commit(writing)

    def put_nodes(self, keys: list[str], value: int | None) -> None:
        rows = [self.node(key, value) for key in keys]
        self.nodes |= {row["id"]: row for row in rows}
        writing = self.graph._store.begin("main", kind=WriterKind.MUTATION)
        writing.upsert(P, node_rows(self.graph.schema.catalog, "P", rows))
        self.graph._store.commit(writing)

    def put_edges(self, keys: list[str], source: int, value: int | None) -> None:
        rows = [self.edge(key, source, n, value) for n, key in enumerate(keys)]
        self.edges |= {row["id"]: row for row in rows}
        writing = self.graph._store.begin("main", kind=WriterKind.MUTATION)
        writing.upsert(E, edge_rows(self.graph.schema.catalog, "E", rows))
        self.graph._store.commit(writing)

    def drop_edges(self, keys: list[str]) -> None:
        self._drop([], [key for key in keys if key in self.edges])

    def drop_node(self, key: str) -> None:
        if key in self.nodes and len(self.nodes) > 1:
            edges = [k for k, e in self.edges.items() if key in (e["src"], e["dst"])]
            self._drop([key], edges)

    def _drop(self, nodes: list[str], edges: list[str]) -> None:
        if not nodes and not edges:
            return
        writing = self.graph._store.begin("main", kind=WriterKind.MUTATION)
        for table, model, keys in ((P, self.nodes, nodes), (E, self.edges, edges)):
            if keys:
                listed = ", ".join(repr(key) for key in keys)
                remove(self.graph._store, writing, table, f"id IN ({listed})")
            for key in keys:
                del model[key]
        self.graph._store.commit(writing)


def some(keys: list[str], count: int) -> st.SearchStrategy[list[str]]:
    return st.lists(st.sampled_from(keys), min_size=1, max_size=count, unique=True)


STEPS = st.one_of(
    st.tuples(st.just("put_nodes"), some(IDS, 8), st.integers(0, 3)),
    st.tuples(st.just("put_edges"), some(EDGES, 5), st.integers(0, 7), st.integers(0, 3)),
    st.tuples(st.just("drop_edges"), some(EDGES, 4)),
    st.tuples(st.just("drop_node"), st.sampled_from(IDS)),
    st.tuples(st.just("replace")),
)

ALL_EDGES = "query q() { match { $a: P  $a $k:e $b } return { $a, $k.id as k, $k.w as w, $b } }"
ALL_PAIRS = "query q() { match { $a: P  $a <e> $b } return { $a, $b } }"
ALL_NODES = "query q() { match { $p: P } return { $p, $p.i as i, $p.s as s } }"
ONE_NODE = "query q($k: String) { match { $p: P { k: $k } } return { $p } }"


@settings(
    max_examples=20,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(steps=st.lists(STEPS, min_size=2, max_size=7))
def test_after_any_writes_reading_sees_what_was_written(
    graph: Graph, steps: list[tuple[Any, ...]]
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMNIGRAPH_TRAVERSAL_MODE", "csr")
        model = Model(graph)
        model.begin_anew()
        _check(model)
        for name, *arguments in steps:
            getattr(model, name)(*arguments)
            _check(model)


def _check(model: Model) -> None:
    graph = model.graph
    edges = sorted(
        ({"a": e["src"], "k": e["id"], "w": e["w"], "b": e["dst"]} for e in model.edges.values()),
        key=lambda row: (row["a"], row["b"], row["k"]),
    )
    assert graph.query(ALL_EDGES).rows == edges
    pairs = {(e["src"], e["dst"]) for e in model.edges.values()}
    pairs |= {(b, a) for a, b in pairs}
    assert [(r["a"], r["b"]) for r in graph.query(ALL_PAIRS)] == sorted(pairs)
    nodes = [{"p": n["id"], "i": n["i"], "s": n["s"]} for _, n in sorted(model.nodes.items())]
    assert graph.query(ALL_NODES).rows == nodes
    for key in (IDS[0], IDS[-1]):
        found = [row["p"] for row in graph.query(ONE_NODE, {"k": key})]
        assert found == ([key] if key in model.nodes else [])
    for direction in (ir.Direction.OUT, ir.Direction.IN):
        _check_adjacency(graph, direction)


def _held(graph: Graph) -> tuple[Edges, TablesView]:
    view = TablesView(graph._reading.holdings, graph.snapshot())
    return view.topology(E, P, P).edges, view


def _check_adjacency(graph: Graph, direction: ir.Direction) -> None:
    edges, view = _held(graph)
    held = view.topology(E, P, P).adjacency(direction, len(edges.dictionaries[0]))
    anew = read_edges(view.source(E), graph._reading.holdings.cache, edges.dictionaries)
    assert _facts(held, edges) == _facts(build(anew, direction), anew)


def _facts(adjacency: Adjacency, edges: Edges) -> list[tuple[int, int, int]]:
    sources = np.repeat(np.arange(adjacency.nodes), np.diff(adjacency.starts))
    row_ids = edges.row_ids[adjacency.edges]
    facts = zip(sources.tolist(), adjacency.neighbours.tolist(), row_ids.tolist(), strict=True)
    return sorted(facts)


def test_a_small_write_is_followed_and_not_read_anew(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMNIGRAPH_TRAVERSAL_MODE", "csr")
    model = Model(graph)
    model.begin_anew()
    _check(model)
    family = _held(graph)[0].dictionaries[0].family
    model.put_nodes(["p7"], 3)
    model.put_edges(["e13", "e00"], 7, 2)
    _check(model)
    edges, view = _held(graph)
    assert edges.change is not None
    assert view.nodes(P).change is not None
    assert edges.dictionaries[0].family is family
    model.drop_edges(["e01"])
    _check(model)
    assert _held(graph)[0].change is not None


def test_what_is_held_stays_below_the_bound(graph: Graph) -> None:
    cache = graph._reading.holdings.cache
    before, cache.bytes_max = cache.bytes_max, 600
    try:
        model = Model(graph)
        model.begin_anew()
        _check(model)
        assert cache.bytes_kept <= 600
    finally:
        cache.bytes_max = before
