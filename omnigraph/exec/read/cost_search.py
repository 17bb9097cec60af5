"""Fast path of: `path_search.cheapest` — shortest weighted paths in the order of their costs.

Delta-stepping, a Dijkstra in numpy: the cheapest of the cells that wait are walked from first, so
most cells are walked from once, where Bellman-Ford walks from a cell each time it gets cheaper.
Then one breadth-first search along the edges of cheapest paths alone finds the paths.

Invariant: a sum of weights is no less than that of a part of it, rounded or not, so the least sums
do not depend on the order of the walks, and a path that costs more than every goal leads to none.

Reference: `path_search.cheapest` (Bellman-Ford).
Held equal by: `test_paths_by_cost_are_those_of_bellman_ford`.
Falls back: where the number of hops is bounded, for the cheapest path may have too many, and where
sums of weights are so near each other that rounding may make them equal.
"""

from dataclasses import replace

import numpy as np

from omnigraph.costs import COSTS
from omnigraph.exec.limits import Watch
from omnigraph.exec.read.path_search import (
    Layer,
    Question,
    Reached,
    SearchField,
    among_goals,
    cheapest,
    distinct,
    least_of_each,
    links_from,
    path_order,
    paths_to,
    weighed,
)
from omnigraph.plan import ir

_ROUNDED = 1e-9
"""Sums of weights that differ by this part of the largest may become equal when they grow."""


def by_cost(
    watch: Watch, over: SearchField, spots: np.ndarray, asked: Question, goals: np.ndarray | None
) -> Reached:
    """The path of the least cost to every cell; with `goals`, ascending cells, to those."""
    if asked.hops_max < ir.HOPS_ENDLESS:
        return cheapest(watch, over, spots, asked, goals)
    starts = np.arange(len(spots)) * over.width + spots
    watch.hold(18 * len(starts) * over.width)
    least = _Least(over.width, starts, goals)
    _settle(watch, over, starts, asked, least)
    reached = _written(watch, over, starts, asked, least)
    return cheapest(watch, over, spots, asked, goals) if reached is None else reached


class _Least:
    """The least cost of every cell so far, infinite where no path is known. A cell that costs more
    than every goal of its source leads to none."""

    def __init__(self, width: int, starts: np.ndarray, goals: np.ndarray | None) -> None:
        self.costs = np.full(len(starts) * width, np.inf)
        self.costs[starts] = 0.0
        self.goals = goals
        self._width = width
        self._bounds = np.full(len(starts), np.inf)

    def is_within(self, cells: np.ndarray, costs: np.ndarray) -> np.ndarray:
        """Which cells, at these costs, may lead to a goal."""
        within: np.ndarray = costs <= self._bounds[cells // self._width]
        return within

    def lower(self, cells: np.ndarray, costs: np.ndarray) -> None:
        """Paths that cost less; some lead to the same cell."""
        np.minimum.at(self.costs, cells, costs)
        if self.goals is not None:
            self._bounds[:] = 0.0
            np.maximum.at(self._bounds, self.goals // self._width, self.costs[self.goals])


def _settle(
    watch: Watch, over: SearchField, starts: np.ndarray, asked: Question, least: _Least
) -> None:
    """Find the least costs, those of goals at least and of all cells on the way to them."""
    is_waiting = np.zeros(len(least.costs), bool)
    waiting, chosen = np.empty(0, np.int64), starts
    while len(chosen):
        links = links_from(watch, over, Layer(chosen), asked, first=chosen is starts)
        links, costs = weighed(over, links, least.costs[chosen])
        is_better = (costs < least.costs[links.cells]) & least.is_within(links.cells, costs)
        cells = links.cells[is_better]
        least.lower(cells, costs[is_better])
        fresh = distinct(cells[~is_waiting[cells]], len(is_waiting))
        waiting = np.concatenate((waiting, fresh))
        is_waiting[waiting] = False
        waiting = waiting[least.is_within(waiting, least.costs[waiting])]
        chosen, waiting = _cheapest_first(waiting, least.costs)
        is_waiting[waiting] = True


def _cheapest_first(waiting: np.ndarray, costs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The cells to walk from now, and those that wait on."""
    count = max(COSTS.cost_search_cells_min, len(waiting) // 8)
    if len(waiting) <= count:
        return waiting, waiting[:0]
    order = np.argpartition(costs[waiting], count)
    return waiting[order[:count]], waiting[order[count:]]


def _written(
    watch: Watch, over: SearchField, starts: np.ndarray, asked: Question, least: _Least
) -> Reached | None:
    """The paths of least costs: of several to a cell those of the fewest hops, and of these the
    first. A hop along an edge of such paths alone reaches a cell at its least cost. None where a
    path of fewer hops may cost the same as soon as its sum is rounded."""
    reached = Reached()
    is_seen = np.zeros(len(least.costs), bool)
    spread = _ROUNDED * float(least.costs[np.isfinite(least.costs)].max(initial=0.0))
    layers = [Layer(starts)]
    while len(layers[-1].cells):
        layer, hop = layers[-1], len(layers)
        is_seen[layer.cells] = True
        links = links_from(watch, over, layer, asked, first=hop == 1)
        links, costs = weighed(over, links, least.costs[layer.cells])
        near = np.flatnonzero(least.is_within(links.cells, costs) & np.isfinite(costs))
        links, costs = links.take(near), costs[near]
        excess = costs - least.costs[links.cells]
        if np.any((excess > 0) & (excess <= spread)):
            return None
        chosen = np.flatnonzero((excess == 0) & ~is_seen[links.cells])
        links = links.take(chosen)
        links = links.take(least_of_each(over, links, costs[chosen]))
        links = links.take(path_order(over, links))
        layers.append(Layer(links.cells, links, np.arange(len(links.cells))))
        ends = np.argsort(links.cells)
        ends = ends[among_goals(links.cells[ends], least.goals)]
        part = paths_to(watch, over, layers, ends, asked, hop)
        reached.add(replace(part, costs=least.costs[part.cells]))
    return reached
