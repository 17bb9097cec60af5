"""Walks that are only counted: by degrees, as many as walking them gives."""

from collections.abc import Iterator
from itertools import product
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from omnigraph.costs import COSTS
from omnigraph.exec.read import batches
from omnigraph.exec.read.share import Share
from omnigraph.exec.values.computed import given_of
from omnigraph.graph import Graph
from omnigraph.plan import ir
from omnigraph.plan.middle_start import from_the_middle
from tests.exec.random_queries import SCHEMA
from tests.exec.read.test_random_queries import overwrite
from tests.exec.topology.test_topology_builders import forget
from tests.exec.world import graph_of

NODES = 6
PAIRS = st.lists(st.tuples(st.integers(0, NODES - 1), st.integers(0, NODES - 1)), max_size=24)

COUNTS = {
    "two": "match { $a: P  $a e $b  $b e $c } return { count($a) as n }",
    "three": "match { $a: P  $a e $b  $b e $c  $c e $d } return { count($a) as n }",
    "back": "match { $a: P  $b e $a  $b e $c } return { count($a) as n }",
    "either": "match { $a: P  $a <e> $b  $b e $c } return { count($a) as n }",
    "edges": "match { $a: P  $a $x:e $b  $b $y:e $c } return { count($a) as n }",
    "grouped": "match { $a: P  $a e $b  $b e $c } return { $a, count($b) as n }",
    "star": "match { $a: P  $a e $b  $c e $a } return { count($a) as n }",
    "star of edges": "match { $a: P  $a $x:e $b  $a $y:e $c } return { count($a) as n }",
    "star of three": "match { $a: P  $a e $b  $a e $c  $d e $a } return { count($a) as n }",
    "grouped star": "match { $a: P  $a e $b  $c e $a } return { $a, count($b) as n }",
    "mutual": "match { $a: P  $a e $b  $b e $a } return { count($a) as n }",
    "parallel": "match { $a: P  $a e $b  $a e $b } return { count($a) as n }",
    "either mutual": "match { $a: P  $a <e> $b  $b e $a } return { count($a) as n }",
    "triangle": "match { $a: P  $a e $b  $b e $c  $c e $a } return { count($a) as n }",
}


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Graph]:
    with graph_of(Path(tmp_path_factory.mktemp("counted")) / "g", SCHEMA) as made:
        yield made


def write(graph: Graph, pairs: list[tuple[int, int]]) -> None:
    nodes = [{"id": f"p{n}", "k": f"p{n}"} for n in range(NODES)]
    edges = [{"id": f"e{n}", "src": f"p{a}", "dst": f"p{b}"} for n, (a, b) in enumerate(pairs)]
    overwrite(graph, {"P": nodes, "C": [], "E": edges, "W": []})


def expected(name: str, pairs: list[tuple[int, int]]) -> list[dict[str, object]]:
    edges = set(pairs)
    either = edges | {(b, a) for a, b in edges}
    people = range(NODES)
    match name:
        case "two":
            n = sum((a, b) in edges and (b, c) in edges for a, b, c in product(people, repeat=3))
        case "three":
            walks = product(people, repeat=4)
            n = sum({(a, b), (b, c), (c, d)} <= edges for a, b, c, d in walks)
        case "back":
            n = sum((b, a) in edges and (b, c) in edges for a, b, c in product(people, repeat=3))
        case "either":
            n = sum((a, b) in either and (b, c) in edges for a, b, c in product(people, repeat=3))
        case "edges":
            n = sum(b == c for (_, b), (c, _) in product(pairs, repeat=2))
        case "star":
            n = sum((a, b) in edges and (c, a) in edges for a, b, c in product(people, repeat=3))
        case "star of edges":
            n = sum(a == b for (a, _), (b, _) in product(pairs, repeat=2))
        case "star of three":
            stars = product(people, repeat=4)
            n = sum({(a, b), (a, c), (d, a)} <= edges for a, b, c, d in stars)
        case "mutual":
            n = sum((b, a) in edges for a, b in edges)
        case "parallel":
            n = len(edges)
        case "either mutual":
            n = sum((b, a) in edges for a, b in either)
        case "triangle":
            n = sum({(b, c), (c, a)} <= edges for (a, b), c in product(edges, people))
        case _:
            rows = []
            for a in people:
                walks = product(people, repeat=2)
                ends = [((a, b), (c, a) if name == "grouped star" else (b, c)) for b, c in walks]
                n = sum({one, other} <= edges for one, other in ends)
                rows += [{"a": f"p{a}", "n": n}] if n else []
            return rows
    return [{"n": n}]


@settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(pairs=PAIRS, filed=st.booleans())
def test_walks_that_are_counted_are_as_many_as_walks_that_are_made(
    graph: Graph, pairs: list[tuple[int, int]], filed: bool
) -> None:
    write(graph, pairs)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMNIGRAPH_TOPOLOGY_ROWS_MIN", "0" if filed else "1000000")
        patch.setenv("OMNIGRAPH_TRAVERSAL_MODE", "csr")
        patch.setattr(COSTS, "count_nodes_together", 3)  # several blocks, the last one not full
        forget(graph)
        for name, body in COUNTS.items():
            assert graph.query(f"query q() {{ {body} }}").rows == expected(name, pairs), name


def test_counted_walks_make_no_row_a_walk(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    overwrite(
        graph,
        {
            "P": [{"id": f"p{n}", "k": f"p{n}"} for n in range(NODES)],
            "C": [],
            "E": [{"id": "e0", "src": "p0", "dst": "p1"}],
            "W": [],
        },
    )
    monkeypatch.setenv("OMNIGRAPH_TRAVERSAL_MODE", "csr")

    def refuse(*arguments: object) -> None:
        raise AssertionError("a step was taken")

    monkeypatch.setattr(batches, "expand", refuse)
    monkeypatch.setattr(batches, "expand_edges", refuse)
    for name, count in {"three": 0, "star": 0, "star of edges": 1}.items():
        assert graph.query(f"query q() {{ {COUNTS[name]} }}").rows == [{"n": count}], name


@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(pairs=PAIRS, filed=st.booleans(), count=st.integers(1, NODES + 1))
def test_two_hops_counted_from_the_middle_are_as_many_in_any_number_of_shares(
    graph: Graph, pairs: list[tuple[int, int]], filed: bool, count: int
) -> None:
    write(graph, pairs)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMNIGRAPH_TOPOLOGY_ROWS_MIN", "0" if filed else "1000000")
        forget(graph)
        for name in ("two", "back", "either", "edges"):
            text = f"query q() {{ {COUNTS[name]} }}"
            plan, _, pinned = graph._planned_read(text, None, None, None, None)
            middle = from_the_middle(plan)
            (first, step, _) = middle.pattern
            assert middle != plan
            assert isinstance(first, ir.NodeScan)
            assert first.out == step.source == "b"
            added = 0
            for number in range(count):
                given_ = given_of(middle, {}, 0)
                share = Share(number, count)
                for part in graph._reading.parts(middle, given_, pinned, share, lambda _: None):
                    added += sum(part.column(0).to_pylist())
            assert [{"n": added}] == expected(name, pairs), name


@pytest.mark.parametrize(
    "body",
    [
        "match { $a: P  $a e $b  $b e $c } return { $a, count($b) as n }",
        'match { $a: P { k: "p1" }  $a e $b  $b e $c } return { count($a) as n }',
        "match { $a: P  $a e{1,2} $b  $b e $c } return { count($a) as n }",
        "match { $a: P  $a e $b  $b e $a } return { count($a) as n }",
        "match { $a: P  $a e $b  $a e $c } return { count($a) as n }",
        "match { $a: P  $a e $b  $b e $c } return { count(distinct $b) as n }",
        "match { $a: P  $a e $b  $b e $c  $c e $d } return { count($a) as n }",
    ],
)
def test_other_plans_begin_where_they_began(graph: Graph, body: str) -> None:
    plan, _, _ = graph._planned_read(f"query q() {{ {body} }}", None, None, None, None)
    assert from_the_middle(plan) is plan
