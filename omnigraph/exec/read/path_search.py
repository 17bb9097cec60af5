"""Shortest paths over several edge tables: breadth-first search (BFS) and Bellman-Ford in numpy.

Invariant: one search a source, all sources of a block at once. A cell is a source and a node; the
nodes of all tables share one numbering, table after table. A layer holds the cells that a hop
reached for the first time, in the order of their paths (types and ids of nodes, from the source
on), so the first link to a cell is that of its first path.
"""

from collections.abc import Callable, Sequence
from dataclasses import field

import numpy as np

from omnigraph.exec.limits import Watch
from omnigraph.exec.memory.adjacency import AdjacencyView, NeighbourLists
from omnigraph.light_dataclass import dataclass

Flags = Callable[[np.ndarray], np.ndarray]
"""Which of some edges or nodes, given by position, may be walked."""


@dataclass(frozen=True, slots=True)
class EdgeLane:
    """The edges of one leg, between nodes numbered from `source` and from `target` on."""

    adjacency: AdjacencyView
    source: int
    size: int
    target: int
    allowed: Flags | None
    weights: Callable[[np.ndarray], np.ndarray] | None
    """Weights of edges by position, NaN for an edge without one."""

    edge_ranks: Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True, slots=True)
class SearchField:
    """Where a search goes: lanes, which nodes it may pass, and how nodes are ordered."""

    lanes: tuple[EdgeLane, ...]
    width: int  # the nodes of all tables
    passable: Flags | None
    ranks: Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True, slots=True)
class Question:
    """Bounds of a search, and what is kept of it."""

    hops_min: int
    hops_max: int
    tracked: bool  # paths are asked for, not lengths alone
    every: bool  # all shortest paths of a destination
    edges: bool  # edges are asked for


@dataclass(frozen=True, slots=True)
class Links:
    """Edges of one hop: indexes into the layer before, cells they lead to, and the edges."""

    parents: np.ndarray
    cells: np.ndarray
    lanes: np.ndarray
    edges: np.ndarray

    def take(self, chosen: np.ndarray) -> "Links":
        return Links(
            self.parents[chosen], self.cells[chosen], self.lanes[chosen], self.edges[chosen]
        )


@dataclass(slots=True)
class Layer:
    """Cells of one hop, each with the links that lead to it. `owners` are indexes of cells."""

    cells: np.ndarray
    links: Links | None = None
    owners: np.ndarray | None = None  # of links, ascending


@dataclass(frozen=True, slots=True)
class Paths:
    """Paths of one length: cells at their end, nodes and edges hop by hop."""

    cells: np.ndarray
    length: int
    nodes: np.ndarray  # a row a path, from the source on
    lanes: np.ndarray
    edges: np.ndarray
    costs: np.ndarray | None = None


@dataclass(slots=True)
class Reached:
    """What a block of sources reached."""

    parts: list[Paths] = field(default_factory=list)

    def add(self, part: Paths) -> None:
        if len(part.cells):
            self.parts.append(part)


def search(
    watch: Watch, over: SearchField, spots: np.ndarray, asked: Question, goals: np.ndarray | None
) -> Reached:
    """Every cell that is reached within the bounds; with `goals`, ascending cells, only those."""
    layers = [Layer(np.arange(len(spots)) * over.width + spots)]
    visited = np.zeros(len(spots) * over.width, bool)
    reached = Reached()
    for hop in range(1, asked.hops_max + 1):
        layer = layers[-1]
        visited[layer.cells] = True
        links = links_from(watch, over, layer, asked, first=hop == 1)
        if hop == asked.hops_min:
            loops = links.take(np.flatnonzero(links.cells == layer.cells[links.parents]))
            loops = loops.take(among_goals(loops.cells, goals))
            reached.add(_looped(watch, over, layers, loops, asked, hop))
        links = links.take(np.flatnonzero(~visited[links.cells]))
        layer = _layer(watch, over, links, asked, len(visited))
        layers.append(layer)
        if hop >= asked.hops_min:
            ends = among_goals(layer.cells, goals)
            reached.add(paths_to(watch, over, layers, ends, asked, hop))
        if not asked.tracked:
            layers = [Layer(layer.cells)]
        if not len(layer.cells):
            break
        if goals is not None and hop >= asked.hops_min:
            visited[layer.cells] = True
            if visited[goals].all():
                break
    return reached


def links_from(
    watch: Watch, over: SearchField, layer: Layer, asked: Question, *, first: bool
) -> Links:
    """The edges that may be walked from a layer."""
    spots = layer.cells % over.width
    start = np.arange(len(spots))
    if over.passable is not None and not first:
        start = np.flatnonzero(over.passable(spots))
    by_edge = asked.edges or asked.every
    parts = [
        _along(watch, over, layer, number, start, by_edge)
        for number in range(len(over.lanes))
        if len(start)
    ]
    if not parts:
        nothing = np.empty(0, np.int64)
        return Links(nothing, nothing, nothing, nothing)
    if len(parts) == 1:
        return parts[0]
    members = zip(*((p.parents, p.cells, p.lanes, p.edges) for p in parts), strict=True)
    return Links(*(np.concatenate(member) for member in members))


def _along(
    watch: Watch, over: SearchField, layer: Layer, number: int, start: np.ndarray, by_edge: bool
) -> Links:
    lane = over.lanes[number]
    owners, spots = np.divmod(layer.cells[start], over.width)
    local = spots - lane.source
    if lane.size < over.width:
        inside = np.flatnonzero((local >= 0) & (local < lane.size))
        start, owners, local = start[inside], owners[inside], local[inside]
    if by_edge or lane.allowed is not None or lane.weights is not None:
        lists = lane.adjacency.multiple
        watch.hold(40 * int(lists.degrees(local).sum()))
        spread, nodes, edges = lists.taken(local)
        edges = edges.astype(np.int64)
        if lane.allowed is not None:
            chosen = np.flatnonzero(lane.allowed(edges))
            spread, nodes, edges = spread[chosen], nodes[chosen], edges[chosen]
    else:
        near = lane.adjacency.distinct
        watch.hold(32 * int(near.degrees(local).sum()))
        spread, nodes = near.reached(local)
        edges = np.zeros(len(nodes), np.int64)
    cells = owners[spread] * over.width + (lane.target + nodes.astype(np.int64))
    return Links(start[spread], cells, np.full(len(cells), number), edges)


def _layer(watch: Watch, over: SearchField, links: Links, asked: Question, size: int) -> Layer:
    """The cells that links lead to, in the order of their paths. `size` is more than any cell."""
    if not asked.tracked:
        return Layer(distinct(links.cells, size))
    if asked.every:
        cells, owners = np.unique(links.cells, return_inverse=True)
        order = np.argsort(owners, kind="stable")
        return Layer(cells, links.take(order), owners[order])
    if len(over.lanes) > 1:
        links = links.take(np.argsort(links.parents, kind="stable"))
    links = _first_parents(watch, links, asked, size)
    if asked.edges:
        links = links.take(np.lexsort((links.parents, links.cells)))
        links = links.take(_first_of_each(over, links, asked))
    links = links.take(path_order(over, links))
    return Layer(links.cells, links, np.arange(len(links.cells)))


def distinct(cells: np.ndarray, size: int) -> np.ndarray:
    """The cells, each once, ascending."""
    if len(cells) * 16 < size:
        return np.unique(cells)
    marked = np.zeros(size, bool)
    marked[cells] = True
    return np.flatnonzero(marked)


def _first_parents(watch: Watch, links: Links, asked: Question, size: int) -> Links:
    """The links of each cell from its first parent; one of them, unless edges are asked for. Links
    come in the order of their parents."""
    watch.hold(8 * size + 16 * len(links.cells))
    numbers = np.arange(len(links.cells))
    first = np.empty(size, np.int64)
    first[links.cells[::-1]] = numbers[::-1]  # of several links to a cell the first is written last
    first = first[links.cells]
    if asked.edges:
        return links.take(np.flatnonzero(links.parents == links.parents[first]))
    return links.take(np.flatnonzero(first == numbers))


def _first_of_each(over: SearchField, links: Links, asked: Question) -> np.ndarray:
    """The first link of each cell, of parallel edges that with the least id. Links come ordered by
    cells, then by parents."""
    count = len(links.cells)
    starts = np.ones(count, bool)
    np.not_equal(links.cells[1:], links.cells[:-1], out=starts[1:])
    first = np.flatnonzero(starts)
    if not asked.edges or len(first) == count:
        return first
    group = np.cumsum(starts) - 1
    rivals = np.flatnonzero(links.parents == links.parents[first][group])
    if len(rivals) == len(first):
        return first
    ranks = edge_ranks(over, links.lanes[rivals], links.edges[rivals])
    order = np.lexsort((ranks, group[rivals]))
    _, least = np.unique(group[rivals][order], return_index=True)
    best: np.ndarray = rivals[order][least]
    return best


def edge_ranks(over: SearchField, lanes: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """Numbers that order edges by type and id; lanes are in the order of their edge types."""
    ranks = np.zeros(len(edges), np.int64)
    for number, lane in enumerate(over.lanes):
        mine = np.flatnonzero(lanes == number)
        if len(mine):
            ranks[mine] = lane.edge_ranks(edges[mine])
    base = int(ranks.max(initial=0)) + 1
    return lanes * base + ranks


def among_goals(cells: np.ndarray, goals: np.ndarray | None) -> np.ndarray:
    """The indexes of the cells that are goals."""
    if goals is None:
        return np.arange(len(cells))
    if not len(goals):
        return np.empty(0, np.int64)
    near = np.minimum(np.searchsorted(goals, cells), len(goals) - 1)
    return np.flatnonzero(goals[near] == cells)


# ---- writing paths down


def paths_to(
    watch: Watch,
    over: SearchField,
    layers: Sequence[Layer],
    ends: np.ndarray,
    asked: Question,
    length: int,
) -> Paths:
    """The paths to some cells of the last layer."""
    last = layers[-1]
    if not asked.tracked:
        return _bare(last.cells[ends], length)
    current = ends
    nodes, lanes, edges = [last.cells[current] % over.width], list[np.ndarray](), list[np.ndarray]()
    final = last.cells[current]
    for depth in range(length, 0, -1):
        layer = layers[depth]
        assert layer.links is not None
        assert layer.owners is not None
        if asked.every:
            starts = np.searchsorted(layer.owners, np.arange(len(layer.cells) + 1))
            spread, chosen = NeighbourLists(starts, layer.owners).spread(current)
            watch.hold(24 * (length + 1) * len(chosen))
            nodes, lanes = [n[spread] for n in nodes], [n[spread] for n in lanes]
            edges, final = [n[spread] for n in edges], final[spread]
        else:
            chosen = current
        lanes.append(layer.links.lanes[chosen])
        edges.append(layer.links.edges[chosen])
        current = layer.links.parents[chosen]
        nodes.append(layers[depth - 1].cells[current] % over.width)
    count = len(final)
    return Paths(
        final, length, _columns(nodes, count), _columns(lanes, count), _columns(edges, count)
    )


def _columns(backward: list[np.ndarray], count: int) -> np.ndarray:
    if not backward:
        return np.empty((count, 0), np.int64)
    return np.stack(backward[::-1], axis=1)


def _bare(cells: np.ndarray, length: int) -> Paths:
    nothing = np.empty((len(cells), 0), np.int64)
    return Paths(cells, length, nothing, nothing, nothing)


def _looped(
    watch: Watch, over: SearchField, layers: list[Layer], loops: Links, asked: Question, length: int
) -> Paths:
    """The paths to cells one hop nearer than the bounds, which their self edges produce now."""
    if not asked.tracked:
        return _bare(np.unique(loops.cells), length)
    loops = loops.take(np.argsort(loops.cells, kind="stable"))
    if not asked.every:
        loops = loops.take(_first_of_each(over, loops, asked))
    before = paths_to(watch, over, layers, np.unique(loops.parents), asked, length - 1)
    order = np.argsort(before.cells, kind="stable")
    starts = np.searchsorted(before.cells[order], loops.cells)
    ends = np.searchsorted(before.cells[order], loops.cells, side="right")
    counts = ends - starts
    which = np.repeat(np.arange(len(loops.cells)), counts)
    within = np.arange(len(which)) - np.repeat(np.cumsum(counts) - counts, counts)
    paths = order[starts[which] + within]
    node = (loops.cells[which] % over.width)[:, None]
    return Paths(
        loops.cells[which],
        length,
        np.hstack((before.nodes[paths], node)),
        np.hstack((before.lanes[paths], loops.lanes[which][:, None])),
        np.hstack((before.edges[paths], loops.edges[which][:, None])),
    )


# ---- weights


def cheapest(
    watch: Watch, over: SearchField, spots: np.ndarray, asked: Question, goals: np.ndarray | None
) -> Reached:
    """The path of the least cost to every cell (Bellman-Ford, a round a hop)."""
    size = len(spots) * over.width
    start = np.arange(len(spots)) * over.width + spots
    watch.hold(24 * size)
    best = np.full(size, np.inf)
    best[start] = 0.0
    depth, index = np.zeros(size, np.int32), np.zeros(size, np.int64)
    layers, before = [Layer(start)], np.zeros(len(start))
    for hop in range(1, asked.hops_max + 1):
        links = links_from(watch, over, layers[-1], asked, first=hop == 1)
        links, costs = weighed(over, links, before)
        better = np.flatnonzero(costs < best[links.cells])
        links, costs = links.take(better), costs[better]
        least = least_of_each(over, links, costs)
        links, costs = links.take(least), costs[least]
        order = path_order(over, links)
        links, before = links.take(order), costs[order]
        layers.append(Layer(links.cells, links, np.arange(len(order))))
        best[links.cells], depth[links.cells] = before, hop
        index[links.cells] = np.arange(len(order))
        if not len(order):
            break
    reached = Reached()
    for hop in range(1, len(layers)):
        cells = np.flatnonzero(depth == hop)
        cells = cells[among_goals(cells, goals)]
        part = paths_to(watch, over, layers[: hop + 1], index[cells], asked, hop)
        reached.add(Paths(part.cells, hop, part.nodes, part.lanes, part.edges, costs=best[cells]))
    return reached


def weighed(over: SearchField, links: Links, before: np.ndarray) -> tuple[Links, np.ndarray]:
    """The links that have a weight, and what their cells cost by them. `before` are costs of the
    cells that they lead from."""
    weights = np.full(len(links.cells), np.nan)
    for number, lane in enumerate(over.lanes):
        mine = np.flatnonzero(links.lanes == number)
        if len(mine):
            assert lane.weights is not None
            weights[mine] = lane.weights(links.edges[mine])
    known = np.flatnonzero(~np.isnan(weights))
    links = links.take(known)
    return links, before[links.parents] + weights[known]


def least_of_each(over: SearchField, links: Links, costs: np.ndarray) -> np.ndarray:
    """The index of the cheapest link to each cell, of equal ones that of the first path."""
    ranks = edge_ranks(over, links.lanes, links.edges)
    order = np.lexsort((ranks, links.parents, costs, links.cells))
    _, first = np.unique(links.cells[order], return_index=True)
    chosen: np.ndarray = order[first]
    return chosen


def path_order(over: SearchField, links: Links) -> np.ndarray:
    """The order of links that brings their cells into the order of their paths."""
    order: np.ndarray = np.lexsort((over.ranks(links.cells % over.width), links.parents))
    return order
