"""Cheapest paths in the order of their costs, beside Bellman-Ford over the same random graphs."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omnigraph.costs import COSTS
from omnigraph.exec.limits import Limits, Watch
from omnigraph.exec.memory.adjacency import Adjacency
from omnigraph.exec.read.cost_search import by_cost
from omnigraph.exec.read.path_search import EdgeLane, Question, Reached, SearchField, cheapest
from omnigraph.plan import ir

ENDLESS = Question(1, ir.HOPS_ENDLESS, tracked=True, every=False, edges=True)
ROUNDED = [0.0, 0.1, 0.2, 0.3, 0.7, 0.8, 10.0]
"""Weights whose sums differ by rounding: 0.1 + 0.7 is less than 0.8."""

fields = st.tuples(
    st.integers(1, 9),  # nodes
    st.integers(0, 40),  # edges a lane
    st.integers(1, 2),  # lanes
    st.sampled_from(["whole", "any", "rounded", "zero"]),
    st.booleans(),  # some nodes and edges may not be walked
    st.integers(0, 2**32),
)


def field_of(
    width: int, count: int, lanes: int, kind: str, is_closed: bool, seed: int
) -> SearchField:
    random = np.random.default_rng(seed)

    def lane() -> EdgeLane:
        ends = random.integers(0, width, (count, 2))
        order = np.lexsort((ends[:, 1], ends[:, 0]))
        starts = np.searchsorted(ends[order, 0], np.arange(width + 1))
        weights = {
            "whole": random.integers(0, 5, count).astype(float),
            "any": random.random(count),
            "rounded": random.choice(ROUNDED, count),
            "zero": np.zeros(count),
        }[kind]
        weights[random.random(count) < 0.1] = np.nan
        open_edges, ranks = random.random(count) < 0.8, random.permutation(count)
        return EdgeLane(
            Adjacency(starts, ends[order, 1], order),
            0,
            width,
            0,
            (lambda edges: open_edges[edges]) if is_closed else None,
            lambda edges: weights[edges],
            lambda edges: ranks[edges],
        )

    passable, ranks = random.random(width) < 0.8, random.permutation(width)
    return SearchField(
        tuple(lane() for _ in range(lanes)),
        width,
        (lambda spots: passable[spots]) if is_closed else None,
        lambda spots: ranks[spots],
    )


def told(reached: Reached) -> dict[int, Any]:
    """Of each cell what its path holds."""
    return {
        int(part.cells[i]): (
            part.length,
            float(part.costs[i]),
            part.nodes[i].tolist(),
            part.lanes[i].tolist(),
            part.edges[i].tolist(),
        )
        for part in reached.parts
        if part.costs is not None
        for i in range(len(part.cells))
    }


@settings(max_examples=400, deadline=None)
@given(fields, st.integers(1, 3), st.booleans(), st.integers(1, 4), st.data())
def test_paths_by_cost_are_those_of_bellman_ford(
    drawn: tuple[int, int, int, str, bool, int],
    sources: int,
    has_goals: bool,
    at_once: int,
    data: st.DataObject,
) -> None:
    over = field_of(*drawn)
    nodes = st.integers(0, over.width - 1)
    spots = np.array(data.draw(st.lists(nodes, max_size=sources, unique=True)), np.int64)
    cells = st.sampled_from(range(len(spots) * over.width)) if len(spots) else st.nothing()
    goals = np.array(sorted(data.draw(st.sets(cells))), np.int64) if has_goals else None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(COSTS, "cost_search_cells_min", at_once)
        fast = by_cost(Watch(Limits()), over, spots, ENDLESS, goals)
    assert told(fast) == told(cheapest(Watch(Limits()), over, spots, ENDLESS, goals))


def test_a_bound_of_hops_is_left_to_bellman_ford() -> None:
    # From 0 to 2: 9 in one hop, 2 in two.
    weights = np.array([1.0, 9.0, 1.0])
    adjacency = Adjacency(np.array([0, 2, 3, 3]), np.array([1, 2, 2]), np.arange(3))
    lane = EdgeLane(adjacency, 0, 3, 0, None, lambda e: weights[e], lambda e: e)
    over = SearchField((lane,), 3, None, lambda s: s)
    goal = np.array([2])
    for hops, cost in (1, 9.0), (2, 2.0), (ir.HOPS_ENDLESS, 2.0):
        asked = Question(1, hops, tracked=True, every=False, edges=True)
        assert told(by_cost(Watch(Limits()), over, np.array([0]), asked, goal))[2][1] == cost


def test_sums_that_rounding_makes_equal_are_told_apart_by_their_hops() -> None:
    # To 1: 0.8 in one hop, a little less (0.1 + 0.7) in two. To 3 both are 10.8.
    weights = np.array([0.8, 0.1, 10.0, 0.7])
    adjacency = Adjacency(np.array([0, 2, 3, 4, 4]), np.array([1, 2, 3, 1]), np.arange(4))
    lane = EdgeLane(adjacency, 0, 4, 0, None, lambda e: weights[e], lambda e: e)
    over = SearchField((lane,), 4, None, lambda s: s)
    found = told(by_cost(Watch(Limits()), over, np.array([0]), ENDLESS, None))
    assert found[1][2] == [0, 2, 1]
    assert found[3][1:3] == (10.8, [0, 1, 3])


def test_a_search_for_a_goal_goes_no_farther_than_its_cost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    walked = list[int]()
    count = 10_000
    adjacency = Adjacency(
        np.minimum(np.arange(count + 1), count - 1), np.arange(1, count), np.arange(count - 1)
    )

    def weights(edges: np.ndarray) -> np.ndarray:
        walked.extend(edges.tolist())
        return np.ones(len(edges))

    monkeypatch.setattr(COSTS, "cost_search_cells_min", 1)
    lane = EdgeLane(adjacency, 0, count, 0, None, weights, lambda e: e)
    over = SearchField((lane,), count, None, lambda s: s)
    found = told(by_cost(Watch(Limits()), over, np.array([0]), ENDLESS, np.array([3])))
    assert found[3][2] == [0, 1, 2, 3]
    assert max(walked) <= 4
