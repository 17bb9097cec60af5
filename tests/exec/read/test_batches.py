"""A pattern is solved in batches: it holds few rows at once, and gives the rows it always gives."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.costs import COSTS
from omnigraph.exec.limits import Limits, Watch
from omnigraph.exec.memory.adjacency import NeighbourLists, adjacency_of
from omnigraph.exec.read.hop_search import search_blocks
from omnigraph.exec.read.neighbour_batches import (
    reached_in_batches,
    spread_in_batches,
    taken_in_batches,
)
from omnigraph.exec.read.reading import Reading
from omnigraph.graph import Graph
from tests.exec.world import graph_of

SCHEMA = """
node P { name: String @key  age: I32? }
edge E: P -> P { weight: I32? }
"""
PEOPLE = 300
HUB = 700  # edges of one node, and as many that lead to it
ROWS_MAX = 64

COUNTED = {
    "hops": "match { $a: P $a e{1,3} $b $b.age > 3 } return { count(*) as n }",
    "hops, grouped": "match { $a: P $a e{1,3} $b $b.age > 3 } return { $b.age as age, "
    "count(*) as n, sum($a.age) as total, min($a.name) as least } order { n desc, age } limit 3",
    "steps": "match { $a: P $a e $b $b e $c } return { count(*) as n }",
    "edges": "match { $a: P $a $x:e $b $b $y:e $c $x.weight > $y.weight } "
    "return { count(*) as n, avg($y.weight) as mean }",
    "filtered steps": "match { $a: P $a.age > 2 $a e $b $b.age < 7 $b e $c } "
    "return { $c.age as age, count(*) as n, avg($a.age) as mean }",
    "nobody's": "match { $a: P $a e $b not { $b e $c $c e $a } } return { count(*) as n }",
    "known to how many": "match { $a: P $a e $b count { $b e $c $c.age > 5 } > 3 } "
    "return { count(*) as n }",
    "optional": "match { $a: P optional { $a e $b $b e $c } } return { count($c) as n }",
    "crossed": "match { $a: P $b: P $a.age < $b.age } return { count(*) as n }",
    "closed": "match { $a: P $a e $b $b e $c $c e $a } return { count(*) as n }",
    "distinct": "match { $a: P $a e $b $b e $c } return { count(distinct $c.age) as n }",
    "first of many": "match { $a: P $a e $b $b e $c } return { $a.name, $c.name } "
    "order { $c.age desc, $a.name } limit 5 offset 2",
    "different": "match { $a: P $a e $b $b e $c } return distinct { $c.age }",
}


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Graph]:
    people = [{"name": f"p{n:03}", "age": None if n % 17 == 0 else n % 10} for n in range(PEOPLE)]
    ends = [(0, n % PEOPLE) for n in range(HUB)] + [(n % PEOPLE, 0) for n in range(0, HUB, 10)]
    ends += [(n, (n * step + 1) % PEOPLE) for n in range(PEOPLE) for step in (1, 2, 7)]
    edges = [
        {"id": f"e{n}", "src": f"p{a:03}", "dst": f"p{b:03}", "weight": n % 13}
        for n, (a, b) in enumerate(ends)
    ]
    path = Path(tmp_path_factory.mktemp("batches")) / "g"
    with graph_of(path, SCHEMA, {"P": people}, {"E": edges}) as made:
        yield made


@pytest.mark.parametrize("name", COUNTED)
def test_SQ2_a_pattern_holds_a_batch_for_each_operator_whatever_it_makes(
    graph: Graph, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("OMNIGRAPH_TRAVERSAL_MODE", "csr")
    text = f"query q() {{ {COUNTED[name]} }}"
    whole = Graph(graph._store)
    whole._reading = Reading(graph._store, Limits(rows_max=1 << 40, time_ms_max=10**9))
    limited = Graph(graph._store)
    limited._reading = Reading(graph._store, Limits(rows_max=ROWS_MAX, time_ms_max=10**9))
    expected, result = whole.query(text), limited.query(text)
    assert result.rows == expected.rows
    assert result.rows
    operators = len(COUNTED[name].split("$")) + COUNTED[name].count("{")
    held = result._profile.rows_held_max - PEOPLE  # the first scan binds all its nodes
    assert held <= ROWS_MAX * operators, "more than a batch for each operator"
    assert expected._profile.rows_held_max > 4 * ROWS_MAX


def test_SQ2_a_count_of_many_rows_needs_little_of_its_budget(graph: Graph) -> None:
    text = "query q() { match { $a: P $b: P $c: P $a.age < $c.age } return { count(*) as n } }"
    limited = Graph(graph._store)
    limited._reading = Reading(graph._store, Limits(memory_bytes_max=2 << 20, time_ms_max=10**9))
    ages = [None if n % 17 == 0 else n % 10 for n in range(PEOPLE)]
    pairs = sum(a < b for a in ages for b in ages if a is not None and b is not None)
    assert limited.query(text).rows == [{"n": pairs * PEOPLE}], "27 million rows"


EDGES = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=40)


@given(EDGES, st.lists(st.integers(0, 9)), st.integers(1, 7))
def test_neighbours_in_batches_are_all_neighbours(
    ends: list[tuple[int, int]], nodes: list[int], rows_max: int
) -> None:
    pairs = np.array(sorted(ends), np.int64).reshape(-1, 2)
    adjacency = adjacency_of(pairs[:, 0], pairs[:, 1], np.arange(len(pairs)), 10)
    asked = np.array(nodes, np.int64)
    for lists, batches, whole in (
        (adjacency.distinct, reached_in_batches, adjacency.distinct.reached),
        (adjacency.multiple, taken_in_batches, adjacency.multiple.taken),
    ):
        made = list(batches(lists, asked, rows_max))  # type: ignore[operator]
        assert all(len(batch[0]) <= rows_max for batch in made)
        for column, expected in zip(zip(*made, strict=True), whole(asked), strict=True):
            assert np.concatenate(column).tolist() == expected.tolist()
    starts, counts = asked, np.arange(len(asked)) % 4
    spread = list(spread_in_batches(starts, counts, rows_max))
    indexes = [
        int(first + n) for first, count in zip(nodes, counts, strict=True) for n in range(count)
    ]
    assert [int(i) for _, part in spread for i in part] == indexes
    assert [int(i) for part, _ in spread for i in part] == np.repeat(
        np.arange(len(counts)), counts
    ).tolist()
    assert all(len(part) <= rows_max for part, _ in spread)


@given(EDGES, st.sets(st.integers(0, 9)), st.integers(1, 3), st.integers(0, 2), st.integers(1, 9))
def test_a_search_reaches_the_same_nodes_in_any_blocks(
    ends: list[tuple[int, int]], sources: set[int], least: int, more: int, cells_max: int
) -> None:
    distinct = sorted(set(ends))
    rows = [[b for a, b in distinct if a == node] for node in range(10)]
    starts = np.concatenate(([0], np.cumsum([len(row) for row in rows])))
    flat = np.array([b for row in rows for b in row], np.int64)
    lists, asked = NeighbourLists(starts, flat), np.array(sorted(sources), np.int64)
    expected = {
        (number, node)
        for number, source in enumerate(asked.tolist())
        for node in _within(rows, source, least, least + more)
    }
    for marks_max in (1 << 24, 10):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(COSTS, "search_marks_max", marks_max)
            blocks = list(
                search_blocks(Watch(Limits()), lists, asked, (least, least + more), cells_max)
            )
        pairs = [pair for block in blocks for pair in zip(block.owners, block.nodes, strict=True)]
        assert len(pairs) == len(set(pairs))
        assert {(int(a), int(b)) for a, b in pairs} == expected


def _within(rows: list[list[int]], source: int, least: int, most: int) -> set[int]:
    """Shortest distances, and self edges one further: as the query language defines a walk."""
    distance, frontier = {source: 0}, [source]
    for hop in range(1, most + 1):
        frontier = sorted({b for a in frontier for b in rows[a] if b not in distance})
        distance |= dict.fromkeys(frontier, hop)
    reached = {node for node, hops in distance.items() if least <= hops <= most}
    loops = {n for n, hops in distance.items() if n in rows[n] and least <= hops + 1 <= most}
    return reached | loops
