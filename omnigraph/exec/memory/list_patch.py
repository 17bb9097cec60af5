"""List patch: the whole neighbour rows of the few nodes whose edges changed since an edge file.

Invariant: a patch never changes. A later version's patch shares the rows of an earlier one and adds
those that changed since, so a commit of few edges costs their nodes' rows, not all that were
patched before.
"""

from threading import Lock

import numpy as np

from omnigraph.costs import COSTS
from omnigraph.light_dataclass import dataclass


class RowPool:
    """Neighbours and edges of rows, one after the other, that only ever grow at the end."""

    def __init__(self, neighbours: np.ndarray, edges: np.ndarray, used: int) -> None:
        self.neighbours = neighbours
        self.edges = edges
        self._used = used
        self._lock = Lock()

    def extended(self, seen: int, neighbours: np.ndarray, edges: np.ndarray) -> "RowPool":
        """A pool whose first `seen` values are these, and then some more. The arrays are shared,
        unless another version has written there."""
        size = seen + len(neighbours)
        with self._lock:
            if self._used == seen and size <= len(self.neighbours):
                self.neighbours[seen:size] = neighbours
                self.edges[seen:size] = edges
                self._used = size
                return self
        grown = []
        for old, more in ((self.neighbours, neighbours), (self.edges, edges)):
            array = np.empty(max(COSTS.list_values_min, size * 2), np.int64)
            array[:seen], array[seen:size] = old[:seen], more
            grown.append(array)
        return RowPool(grown[0], grown[1], size)


@dataclass(frozen=True, slots=True)
class ListPatch:
    """The rows of a few nodes, ascending by node: where each begins and ends in the pool, of which
    the first `size` values are theirs or an earlier version's."""

    nodes: np.ndarray
    begins: np.ndarray
    ends: np.ndarray
    pool: RowPool
    size: int

    @property
    def neighbours(self) -> np.ndarray:
        """The neighbours of all rows; `begins` and `ends` are indexes here."""
        return self.pool.neighbours

    @property
    def edges(self) -> np.ndarray:
        """The edges of all rows, by the same indexes."""
        return self.pool.edges

    @property
    def bytes_held(self) -> int:
        return int(self.nodes.nbytes) * 3 + 16 * self.size

    def indexes(self, nodes: np.ndarray) -> np.ndarray:
        """The index of each node's row, or -1."""
        if not len(self.nodes):
            return np.full(len(nodes), -1)
        nearest = np.minimum(np.searchsorted(self.nodes, nodes), len(self.nodes) - 1)
        return np.where(self.nodes[nearest] == nodes, nearest, -1)

    def index(self, node: int) -> int:
        """The index of one node's row, or -1."""
        nearest = int(np.searchsorted(self.nodes, node))
        return nearest if nearest < len(self.nodes) and self.nodes[nearest] == node else -1

    def followed(self, rows: "ListPatch") -> "ListPatch":
        """This patch with the rows of some nodes instead of its own, or beside them."""
        pool = self.pool.extended(self.size, rows.neighbours[: rows.size], rows.edges[: rows.size])
        begins, ends = rows.begins + self.size, rows.ends + self.size
        size = self.size + rows.size
        own = self.indexes(rows.nodes)
        is_new = own < 0
        before = np.searchsorted(self.nodes, rows.nodes[is_new])
        parts = []
        for mine, theirs in ((self.begins, begins), (self.ends, ends)):
            merged = mine.copy()
            merged[own[~is_new]] = theirs[~is_new]
            parts.append(np.insert(merged, before, theirs[is_new]))
        nodes = np.insert(self.nodes, before, rows.nodes[is_new])
        patch = ListPatch(nodes, parts[0], parts[1], pool, size)
        live = int((patch.ends - patch.begins).sum())
        return (
            patch
            if size <= COSTS.list_values_min + live * COSTS.list_garbage_factor
            else patch.compacted()
        )

    def compacted(self) -> "ListPatch":
        """The same rows without what lies between them."""
        counts = self.ends - self.begins
        indexes = indexes_of(self.begins, counts)
        return patch_of(self.nodes, counts, self.neighbours[indexes], self.edges[indexes])

    def without_repetitions(self) -> "ListPatch":
        """The rows of a patch that was just made, each neighbour once."""
        counts = self.ends - self.begins
        neighbours, edges = self.neighbours[: self.size], self.edges[: self.size]
        owners = np.repeat(np.arange(len(self.nodes)), counts)
        first = np.ones(len(neighbours), bool)
        first[1:] = (owners[1:] != owners[:-1]) | (neighbours[1:] != neighbours[:-1])
        counts = np.bincount(owners[first], minlength=len(self.nodes))
        return patch_of(self.nodes, counts, neighbours[first], edges[first])


def patch_of(
    nodes: np.ndarray, counts: np.ndarray, neighbours: np.ndarray, edges: np.ndarray
) -> ListPatch:
    """A patch of rows that lie one after the other, so many values each."""
    ends = np.cumsum(counts)
    size = len(neighbours)
    return ListPatch(nodes, ends - counts, ends, RowPool(neighbours, edges, size), size)


def indexes_of(first: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Every index of ranges that begin at `first`, one after the other."""
    ends = np.cumsum(counts)
    indexes = np.arange(ends[-1] if len(ends) else 0)
    indexes += np.repeat(first - (ends - counts), counts)
    return indexes
