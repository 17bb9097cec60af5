"""Walks along edges whose ends are interfaces: every way of running, and plain Python, agree.

The naive evaluator runs plans; here edges are pairs of nodes, and nodes a type and an id, so what
a family of edge types means is worked out without any.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from omnigraph.errors import TypeCheckError
from omnigraph.graph import Graph
from omnigraph.plan.compile import compile_query
from omnigraph.storage.protocol.intent import WriterKind
from omnigraph.types import TableKey
from tests.exec.read.test_random_queries import WAYS, answers
from tests.exec.world import edge_rows, graph_of, node_rows
from tests.storage.world import replace_all

SCHEMA = """
interface N { k: String  tag: String }
node A implements N { k: String @key }
node B implements N { k: String @key }
node D { k: String @key  tag: String }
edge Links: N -> N { w: I32 }
edge About: D -> N { w: I32 }
"""

Node = tuple[str, str]
Edges = list[tuple[Node, Node, int]]
TYPES = {"A": "A", "B": "B", "N": "AB", "D": "D"}


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Graph]:
    with graph_of(Path(tmp_path_factory.mktemp("ends")) / "g", SCHEMA) as made:
        yield made


@st.composite
def worlds(draw: DrawFn) -> tuple[list[Node], Edges]:
    """Nodes, of which some share an id, and edges that do not lead from a node to itself."""
    nodes = [(type_, key) for type_ in "ABD" for key in "xyz"[: draw(st.integers(1, 3))]]
    named = [node for node in nodes if node[0] != "D"]
    edges = list[tuple[Node, Node, int]]()
    for _ in range(draw(st.integers(0, 10))):
        source, target = draw(st.sampled_from(nodes)), draw(st.sampled_from(named))
        if source != target:
            edges.append((source, target, draw(st.integers(0, 1))))
    return nodes, edges


def member(source: Node, target: Node) -> str:
    return f"About_{target[0]}" if source[0] == "D" else f"Links_{source[0]}_{target[0]}"


def overwrite(graph: Graph, nodes: list[Node], edges: Edges) -> None:
    """Replace everything in the graph."""
    catalog, writing = graph.schema.catalog, graph._store.begin("main", kind=WriterKind.LOAD)
    for name in catalog.nodes:
        own = [{"k": key, "tag": f"{type_}{key}"} for type_, key in nodes if type_ == name]
        replace_all(graph._store, writing, TableKey(f"node:{name}"), node_rows(catalog, name, own))
    for name in catalog.edges:
        rows: list[dict[str, Any]] = [
            {"id": f"e{n}", "src": source[1], "dst": target[1], "w": weight}
            for n, (source, target, weight) in enumerate(edges)
            if member(source, target) == name
        ]
        replace_all(graph._store, writing, TableKey(f"edge:{name}"), edge_rows(catalog, name, rows))
    graph._store.commit(writing)


def steps(edges: Edges, word: str, left: str, *, heavy: bool) -> set[tuple[Node, Node]]:
    """The single steps of a walk. An edge is taken backwards where only its end fits the left."""
    taken = set[tuple[Node, Node]]()
    for source, target, weight in edges:
        is_about = source[0] == "D"
        if (word != "_" and ("about" if is_about else "links") not in word) or weight < heavy:
            continue
        backwards = is_about and left != "D"
        taken.add((target, source) if backwards else (source, target))
        if word == "<links>":
            taken.add((target, source))
    return taken


def expected(
    nodes: list[Node],
    steps: set[tuple[Node, Node]],
    ends: tuple[str, str],
    hops: tuple[int, int],
) -> list[dict[str, str]]:
    """Pairs of nodes so many hops apart, in the order of their ids."""
    pairs = list[tuple[Node, Node]]()
    for start in nodes:
        near, seen = {start}, {start}
        for hop in range(1, min(hops[1], len(nodes)) + 1):
            near = {b for a, b in steps if a in near} - seen
            seen |= near
            pairs += [(start, end) for end in near if hop >= hops[0]]
    kept = [(a, b) for a, b in pairs if a[0] in TYPES[ends[0]] and b[0] in TYPES[ends[1]]]
    shown = [{"a": a[0] + a[1], "b": b[0] + b[1]} for a, b in kept]
    return sorted(shown, key=lambda row: (row["a"], row["b"]))


HOPS = {"": (1, 1), "{1,2}": (1, 2), "{2}": (2, 2), "*": (1, 99)}


@settings(
    max_examples=12,
    phases=(Phase.explicit, Phase.generate),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(world=worlds(), asked=st.data())
def test_a_walk_along_a_family_goes_where_its_edges_go(
    graph: Graph, world: tuple[list[Node], Edges], asked: st.DataObject
) -> None:
    nodes, edges = world
    overwrite(graph, nodes, edges)
    for _ in range(8):
        word = asked.draw(st.sampled_from(("links", "<links>", "about", "_", "about|links")))
        hops = asked.draw(st.sampled_from(list(HOPS)))
        left = asked.draw(st.sampled_from(("A", "B", "N", "D")))
        right = asked.draw(st.sampled_from(("A", "B", "N")))
        heavy = asked.draw(st.booleans())
        taken = steps(edges, word, left, heavy=heavy)
        if word == "about" and left != "D":
            right = "D"
        bound = f"$a $k:{word}{hops} $b where $k.w = 1" if heavy else f"$a {word}{hops} $b"
        read = f"$a: {left}  {bound}  $b: {right}"
        columns = "$a.tag as a, $b.tag as b"
        text = f"query q() {{ match {{ {read} }} return distinct {{ {columns} }} }}"
        wanted = expected(nodes, taken, (left, right), HOPS[hops])
        try:
            compile_query(text, graph.schema.catalog)
        except TypeCheckError:
            # One of the alternatives is never reached, or nothing can be.
            assert "|" in word or not wanted
            continue
        found = answers(graph, text, {}, *WAYS[0])
        assert found == wanted, text
        for way in WAYS[1:]:
            assert answers(graph, text, {}, *way) == found, f"{way}: {text}"


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_nodes_of_two_types_that_share_an_id_stay_two_in_a_stage(
    graph: Graph, way: tuple[str, int, int]
) -> None:
    nodes = [("A", "x"), ("B", "x"), ("D", "p"), ("D", "q")]
    a, b, p, q = nodes
    overwrite(graph, nodes, [(p, a, 0), (p, b, 0), (q, b, 0)])

    def after(stage: str, columns: str) -> list[tuple[Any, ...]]:
        read = f"match {{ $d: D  $d about $x }} with {stage} match {{ $e: D  $e about $x }}"
        rows = answers(graph, f"query q() {{ {read} return {{ {columns} }} }}", {}, *way)
        return sorted(tuple(row.values()) for row in rows)

    walked = after("{ $x, count($d) as n }", "$x.tag as t, $n, $e.k as e")
    assert walked == [("Ax", 1, "p"), ("Bx", 2, "p"), ("Bx", 2, "q")]
    assert after("distinct { $x }", "$x.tag as t, $e.k as e") == [
        ("Ax", "p"),
        ("Bx", "p"),
        ("Bx", "q"),
    ]
