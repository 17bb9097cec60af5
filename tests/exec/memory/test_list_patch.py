"""Patches of neighbour rows, followed from version to version, equal those made at once."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omnigraph.exec.memory.filed_lists import (
    OneWay,
    filed_adjacency,
    followed_adjacency,
    grown,
)
from omnigraph.exec.memory.list_patch import ListPatch, patch_of
from omnigraph.exec.topology.edge_delta import EdgeDelta, no_edges
from omnigraph.storage.derived.edge_file import Way
from tests.exec.topology.test_topology_files import edge_file

NODES = 9
PAIRS = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=12)
STEPS = st.lists(PAIRS, min_size=1, max_size=8)


@settings(max_examples=60, deadline=None)
@given(base=PAIRS, steps=STEPS, choose=st.randoms(use_true_random=False))
def test_patches_that_are_followed_equal_those_made_at_once(
    tmp_path_factory: pytest.TempPathFactory,
    base: list[tuple[int, int]],
    steps: list[list[tuple[int, int]]],
    choose: Any,
) -> None:
    file = edge_file(tmp_path_factory.mktemp("patch"), np.array(base, np.int32).reshape(-1, 2))
    ends, dead = list(base), list[int]()
    ways = {way: filed_adjacency(file, no_edges(), way, NODES) for way in Way}
    earlier: list[tuple[OneWay, list[list[int]]]] = []
    for step in steps:
        ends += step
        live = [n for n in range(len(ends)) if n not in dead]
        dead += choose.sample(live, len(live) // 4)
        delta = delta_of(ends, len(base), dead)
        for way in Way:
            if choose.random() < 0.8:  # the other way follows several steps at once
                earlier.append((ways[way], rows_of(ways[way])))
                ways[way] = followed_adjacency(ways[way], delta, way, NODES)
                anew = filed_adjacency(file, delta, way, NODES)
                assert rows_of(ways[way]) == rows_of(anew)
    for adjacency, rows in earlier:
        assert rows_of(adjacency) == rows  # a version shares arrays with later ones, and stays


def delta_of(ends: list[tuple[int, int]], count: int, dead: list[int]) -> EdgeDelta:
    pairs = np.array(ends, np.int64).reshape(-1, 2)
    return EdgeDelta(
        np.array(dead, np.int64),
        *(pairs[dead, side] for side in (0, 1)),
        np.arange(count, len(ends), dtype=np.uint64),
        *(pairs[count:, side] for side in (0, 1)),
    )


def rows_of(adjacency: OneWay) -> list[list[int]]:
    """Everything that an adjacency says of each node, asked for together and one by one."""
    nodes = np.arange(NODES)
    lists, distinct = adjacency.multiple, adjacency.distinct
    said = [part.tolist() for part in (*lists.taken(nodes), *distinct.reached(nodes))]
    said += [lists.degrees(nodes).tolist(), distinct.loops(nodes).tolist()]
    for node in range(NODES):
        said += [list(lists.row(node)), list(lists.edge_row(node)), list(distinct.row(node))]
    return said


def test_a_step_costs_its_own_rows_not_all_that_were_patched_before() -> None:
    patch = of_nodes(*range(1000)).followed(of_nodes(3))
    shared, size = patch.pool, patch.size
    for node in range(4, 104):
        patch = patch.followed(of_nodes(node))
    assert patch.pool is shared
    assert patch.size == size + 100  # one row a step was written


def test_two_versions_that_follow_one_do_not_write_over_each_other() -> None:
    first = of_nodes(1, 2).followed(of_nodes(3))
    one, other = first.followed(of_nodes(5)), first.followed(of_nodes(7))
    assert one.pool is not other.pool
    assert [row(one, node) for node in (1, 2, 3, 5)] == [[1], [2], [3], [5]]
    assert [row(other, node) for node in (1, 2, 3, 7)] == [[1], [2], [3], [7]]


def test_rows_that_were_replaced_again_and_again_are_dropped() -> None:
    patch = of_nodes(1, 2, 3)
    for _ in range(2000):
        patch = patch.followed(of_nodes(2))
    assert patch.size < 600
    assert [row(patch, node) for node in (1, 2, 3)] == [[1], [2], [3]]


def test_more_nodes_are_no_more_rows(tmp_path: Any) -> None:
    file = edge_file(tmp_path, np.array([[0, 1], [1, 2]], np.int32))
    made = filed_adjacency(file, no_edges(), Way.OUT, 3)
    more = grown(made, Way.OUT, 8)
    assert more.patches is made.patches
    assert more.multiple.degrees(np.arange(8)).tolist() == [1, 1, 0, 0, 0, 0, 0, 0]


def of_nodes(*nodes: int) -> ListPatch:
    """A row for each node: itself, as neighbour and edge."""
    own = np.array(nodes, np.int64)
    return patch_of(own, np.ones(len(own), np.int64), own.copy(), own.copy())


def row(patch: ListPatch, node: int) -> list[int]:
    index = patch.index(node)
    found: list[int] = patch.neighbours[patch.begins[index] : patch.ends[index]].tolist()
    return found
