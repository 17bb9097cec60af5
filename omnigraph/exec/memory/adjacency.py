"""Adjacency in compressed sparse rows (CSR): for each node number its neighbours.

Invariant: neighbours of a node are ascending, parallel edges side by side. An adjacency patched
after a small write equals one built anew; a property test compares the two.

An edge as one integer, source number above and neighbour below, makes a sorted array of integers
the same thing as the rows: building is one sort, patching is two searches in it.
"""

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Protocol

import numpy as np

from omnigraph.costs import COSTS
from omnigraph.exec.limits import announce
from omnigraph.exec.memory.cache import Cache
from omnigraph.exec.memory.resident import Edges
from omnigraph.light_dataclass import dataclass
from omnigraph.plan import ir

_LOW = np.int64(0xFFFFFFFF)

_BYTES_AN_EDGE = 48
"""The peak of building: keys, their order, both again in that order."""


class ListView(Protocol):
    """Neighbours by node number, wherever they are kept."""

    @property
    def nodes(self) -> int: ...

    def degrees(self, nodes: np.ndarray) -> np.ndarray:
        """How many neighbours each node has."""
        ...

    def reached(self, nodes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """For every neighbour of every node: the index into `nodes` of its owner, and itself."""
        ...

    def loops(self, nodes: np.ndarray) -> np.ndarray:
        """Flags of the nodes that are neighbours of their own."""
        ...

    def row(self, node: int) -> Sequence[int]:
        """The neighbours of one node, ascending."""
        ...

    def joined(self, nodes: np.ndarray, others: np.ndarray) -> np.ndarray:
        """Flags of the pairs of which the other is a neighbour of the node."""
        ...

    def between(self, begin: int, end: int) -> np.ndarray:
        """The neighbours of the nodes from one number to before another."""
        ...


class EdgeListView(ListView, Protocol):
    """Neighbours once an edge, with the edges."""

    def taken(self, nodes: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """As `reached`, with the position of each edge."""
        ...

    def edge_row(self, node: int) -> Sequence[int]:
        """The edges of one node, in step with its neighbours."""
        ...


class AdjacencyView(Protocol):
    """Neighbours and edges of every node, wherever they are kept."""

    @property
    def nodes(self) -> int: ...

    @property
    def distinct(self) -> ListView: ...

    @property
    def multiple(self) -> EdgeListView: ...


@dataclass(frozen=True)
class Adjacency:
    """Neighbours and edges of every node, one way."""

    starts: np.ndarray  # node number → first index of its neighbours; one longer than nodes
    neighbours: np.ndarray
    edges: np.ndarray  # positions of the edges, in step with the neighbours

    @property
    def bytes_held(self) -> int:
        # The distinct rows may come on top.
        return int(self.starts.nbytes * 2 + self.neighbours.nbytes * 2 + self.edges.nbytes)

    @property
    def nodes(self) -> int:
        return len(self.starts) - 1

    @cached_property
    def distinct(self) -> "NeighbourLists":
        """The neighbours without repetitions."""
        keys = self.keys()
        first = np.empty(len(keys), bool)
        first[:1] = True
        np.not_equal(keys[1:], keys[:-1], out=first[1:])
        if first.all():
            return NeighbourLists(self.starts, self.neighbours)
        before = np.concatenate(([0], np.cumsum(first)))
        return NeighbourLists(before[self.starts], self.neighbours[first])

    @cached_property
    def multiple(self) -> "EdgeLists":
        """The neighbours, once an edge."""
        return EdgeLists(self.starts, self.neighbours, self.edges)

    def keys(self) -> np.ndarray:
        """The edges as sorted integers."""
        sources = np.repeat(np.arange(self.nodes, dtype=np.int64), np.diff(self.starts))
        return _packed(sources, self.neighbours)


@dataclass(frozen=True)
class NeighbourLists:
    """The CSR arrays of an adjacency, without its edges: neighbours by node number."""

    starts: np.ndarray
    neighbours: np.ndarray

    @property
    def nodes(self) -> int:
        return len(self.starts) - 1

    @cached_property
    def _views(self) -> tuple[memoryview, memoryview]:
        """The arrays as memory views, whose items are Python integers."""
        return self.starts.data, self.neighbours.data

    def row(self, node: int) -> memoryview:
        """The neighbours of one node, ascending."""
        starts, neighbours = self._views
        return neighbours[starts[node] : starts[node + 1]]

    def reached(self, nodes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """For every neighbour of every node: the index into `nodes` of its owner, and itself."""
        owners, indexes = self.spread(nodes)
        return owners, self.neighbours[indexes]

    def between(self, begin: int, end: int) -> np.ndarray:
        return self.neighbours[self.starts[begin] : self.starts[min(end, self.nodes)]]

    def joined(self, nodes: np.ndarray, others: np.ndarray) -> np.ndarray:
        """Flags of the pairs of which the other is a neighbour of the node."""
        first = self.starts[nodes]
        return searched(self.neighbours.__getitem__, first, self.starts[nodes + 1], others)

    def loops(self, nodes: np.ndarray) -> np.ndarray:
        """Flags of the nodes that are neighbours of their own."""
        flags: np.ndarray = self.self_looped[nodes]
        return flags

    @cached_property
    def self_looped(self) -> np.ndarray:
        """Which nodes are neighbours of their own."""
        count = len(self.starts) - 1
        sources = np.repeat(np.arange(count), np.diff(self.starts))
        looped = np.zeros(count, bool)
        looped[sources[sources == self.neighbours]] = True
        return looped

    def degrees(self, nodes: np.ndarray) -> np.ndarray:
        """How many neighbours each node has."""
        counts: np.ndarray = self.starts[nodes + 1] - self.starts[nodes]
        return counts

    def spread(self, nodes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """For every neighbour of every node: the index into `nodes` of its owner, and its own index
        into `neighbours`."""
        first = self.starts[nodes]
        counts = self.starts[nodes + 1] - first
        owners = np.repeat(np.arange(len(nodes)), counts)
        ends = np.cumsum(counts)
        indexes = np.arange(ends[-1] if len(ends) else 0)
        indexes += np.repeat(first - (ends - counts), counts)
        return owners, indexes


@dataclass(frozen=True)
class EdgeLists(NeighbourLists):
    """Neighbours by node number, once an edge, with the edges."""

    edges: np.ndarray

    def taken(self, nodes: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """As `reached`, with the position of each edge."""
        owners, indexes = self.spread(nodes)
        return owners, self.neighbours[indexes], self.edges[indexes]

    def edge_row(self, node: int) -> memoryview:
        """The edges of one node, in step with its neighbours."""
        starts = self._views[0]
        return self.edges.data[starts[node] : starts[node + 1]]


def searched(
    values_at: Callable[[np.ndarray], np.ndarray],
    first: np.ndarray,
    end: np.ndarray,
    sought: np.ndarray,
) -> np.ndarray:
    """Flags of the values that occur in their own ascending stretch of an array: binary search of
    all at once."""
    flags = np.zeros(len(sought), bool)
    for start in range(0, len(sought), COSTS.edges_searched_together):
        block = slice(start, start + COSTS.edges_searched_together)
        low, high, values = (
            first[block].astype(np.int64),
            end[block].astype(np.int64),
            sought[block],
        )
        active = np.flatnonzero(low < high)
        while len(active):
            middle = (low[active] + high[active]) >> 1
            probed = values_at(middle)
            equal = probed == values[active]
            flags[start + active[equal]] = True
            less = probed < values[active]
            low[active] = np.where(less, middle + 1, low[active])
            high[active] = np.where(less, high[active], middle)
            active = active[~equal & (low[active] < high[active])]
    return flags


def _packed(sources: np.ndarray, neighbours: np.ndarray) -> np.ndarray:
    keys: np.ndarray = (sources.astype(np.int64) << 32) | neighbours
    return keys


def _from_keys(keys: np.ndarray, edges: np.ndarray, nodes: int) -> Adjacency:
    """Rows of sorted keys."""
    counts = np.bincount(keys >> 32, minlength=nodes)
    starts = np.concatenate(([0], np.cumsum(counts)))
    return Adjacency(starts, (keys & _LOW).astype(np.int32), edges.astype(np.int32))


def _ends(edges: Edges, direction: ir.Direction) -> tuple[np.ndarray, np.ndarray]:
    source, target = edges.ends
    return (source, target) if direction is ir.Direction.OUT else (target, source)


def build(edges: Edges, direction: ir.Direction) -> Adjacency:
    """The adjacency of an edge table version, one way."""
    sources, neighbours = _ends(edges, direction)
    positions = np.arange(edges.size)
    if edges.alive is not None:
        positions = np.flatnonzero(edges.alive)
        sources, neighbours = sources[positions], neighbours[positions]
    return adjacency_of(sources, neighbours, positions, _nodes(edges, direction))


def adjacency_of(
    sources: np.ndarray, neighbours: np.ndarray, edges: np.ndarray, nodes: int
) -> Adjacency:
    """The adjacency of edges given by their ends and positions."""
    announce(_BYTES_AN_EDGE * len(sources))
    keys = _packed(sources, neighbours)
    order = np.argsort(keys, kind="stable")
    return _from_keys(keys[order], edges[order], nodes)


def _nodes(edges: Edges, direction: ir.Direction) -> int:
    return len(edges.dictionaries[0 if direction is ir.Direction.OUT else 1])


def patch(before: Adjacency, edges: Edges, direction: ir.Direction) -> Adjacency:
    """The adjacency of a version from that of the version it follows."""
    assert edges.change is not None
    written = edges.change.written
    stale = np.zeros(edges.size, bool)
    stale[written] = True
    if edges.alive is not None:
        stale |= ~edges.alive
    keep = ~stale[before.edges]
    keys, positions = before.keys()[keep], before.edges[keep]
    added = written if edges.alive is None else written[edges.alive[written]]
    sources, neighbours = _ends(edges, direction)
    new = _packed(sources[added], neighbours[added])
    order = np.argsort(new, kind="stable")
    where = np.searchsorted(keys, new[order])
    keys = np.insert(keys, where, new[order])
    positions = np.insert(positions, where, added[order])
    return _from_keys(keys, positions, max(_nodes(edges, direction), before.nodes))


def both_ways(out: Adjacency, back: Adjacency) -> Adjacency:
    """Every edge from either end; a self edge once."""
    announce(_BYTES_AN_EDGE * (len(out.edges) + len(back.edges)))
    keys, returning = out.keys(), back.keys()
    other_end = (returning >> 32) != (returning & _LOW)
    keys = np.concatenate((keys, returning[other_end]))
    edges = np.concatenate((out.edges, back.edges[other_end]))
    order = np.argsort(keys, kind="stable")
    return _from_keys(keys[order], edges[order], max(out.nodes, back.nodes))


class Topology:
    """The adjacency of one edge table version, built when it is first walked."""

    def __init__(self, edges: Edges, cache: Cache) -> None:
        self.edges = edges
        self._cache = cache
        # Numbers mean nodes only together with the dictionaries that gave them out.
        self._family = tuple(ids.family for ids in edges.dictionaries)

    def adjacency(self, direction: ir.Direction, nodes: int) -> AdjacencyView:
        """Neighbours for node numbers below `nodes`."""
        made = self._whole(direction)
        return made if made.nodes >= nodes else self._grown(made, direction, nodes)

    def _whole(self, direction: ir.Direction) -> Adjacency:
        return self._cache.made(self._key(self.edges.key, direction), lambda: self._made(direction))

    def _key(self, version: object, direction: ir.Direction) -> tuple[object, ...]:
        return version, "adjacency", direction, self._family

    def _made(self, direction: ir.Direction) -> tuple[Adjacency, int]:
        if direction is ir.Direction.BOTH:
            out, back = (self._whole(way) for way in (ir.Direction.OUT, ir.Direction.IN))
            made = both_ways(out, back)
        else:
            made = self._patched(direction) or build(self.edges, direction)
        return made, made.bytes_held

    def _patched(self, direction: ir.Direction) -> Adjacency | None:
        change = self.edges.change
        if change is None:
            return None
        before: Adjacency | None = self._cache.get(self._key(change.base, direction))
        return None if before is None else patch(before, self.edges, direction)

    def _grown(self, made: Adjacency, direction: ir.Direction, nodes: int) -> Adjacency:
        """The same adjacency for more nodes: those newer than the edges have no neighbours."""
        more = np.full(nodes - made.nodes, made.starts[-1])
        grown = Adjacency(np.concatenate((made.starts, more)), made.neighbours, made.edges)
        self._cache.put(self._key(self.edges.key, direction), grown, grown.bytes_held)
        return grown
