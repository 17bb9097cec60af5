"""Edge file: the adjacency of an edge table on disk, as compressed sparse rows both ways (CSR).

    out_starts, out_neighbours, out_edges    by source number: its neighbours, ascending, and edges
    in_…                                     the same by target number
    …_distinct_starts, …_distinct            without repetitions, where there are parallel edges
    looped                                   the numbers that have an edge to themselves
    row_ids                                  the row id of each edge, by its position

Invariant: an edge's position is its place in the table at the version the file names. Neighbours
are numbers of the node files that the file names; a later file of their lineages keeps them.
"""

from enum import StrEnum
from typing import Any

import numpy as np

from omnigraph.storage.derived.mapped_file import (
    DamagedFile,
    MappedFile,
    NumberArray,
    NumberRange,
)
from omnigraph.storage.derived.radix_sort import sorted_both_ways


class Way(StrEnum):
    """The direction of an adjacency."""

    OUT = "out"
    IN = "in"


class RowLists:
    """Neighbours by node number, one way."""

    def __init__(self, starts: NumberArray, neighbours: NumberArray, edges: NumberArray | None):
        self.starts = starts
        self.neighbours = neighbours
        self.edges = edges

    @property
    def nodes(self) -> int:
        return len(self.starts) - 1

    def bounds(self, nodes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The first index of each node's neighbours, and their count. Nodes newer than the file
        have none."""
        known = self.nodes
        if not len(nodes) or nodes.max() < known:
            first = self.starts.take(nodes).astype(np.int64)
            return first, self.starts.take(nodes + 1).astype(np.int64) - first
        first = np.zeros(len(nodes), np.int64)
        counts = np.zeros(len(nodes), np.int64)
        old = np.flatnonzero(nodes < known)
        first[old], counts[old] = self.bounds(nodes[old])
        return first, counts

    def bounds_of(self, node: int) -> tuple[int, int]:
        """The first index of one node's neighbours, and the one behind the last."""
        if node >= self.nodes:
            return 0, 0
        first, end = self.starts.slice(node, node + 2).tolist()
        return first, end


class EdgeFile:
    """One edge file, open."""

    def __init__(self, file: MappedFile) -> None:
        self.file = file
        self.digest = file.digest
        try:
            self.count = int(file.facts["edges"])
            self.ends = (str(file.facts["source"]), str(file.facts["target"]))
            self.row_ids: NumberArray = file.array("row_ids")
            self.looped = file.array("looped").whole()
            self.multiple = {way: _lists(file, way) for way in Way}
            self.distinct = {way: _distinct(file, way) or self.multiple[way] for way in Way}
        except (KeyError, TypeError, ValueError) as cause:
            raise DamagedFile(file.path, f"it lacks {cause}") from cause
        self.in_order = bool(file.facts.get("in_order"))
        self._ascending = bool(file.facts.get("ascending"))
        self._by_row_id: tuple[np.ndarray, np.ndarray | None] | None = None

    def positions_of(self, row_ids: np.ndarray) -> np.ndarray:
        """The position of each row id, or -1."""
        if not self.count or not len(row_ids):
            return np.full(len(row_ids), -1)
        if isinstance(self.row_ids, NumberRange):
            first = self.row_ids.slice(0, 1)[0]
            inside = (row_ids >= first) & (row_ids - first < np.uint64(self.count))
            return np.where(inside, (row_ids - first).astype(np.int64), -1)
        if self._by_row_id is None:
            whole = self.row_ids.whole()
            order = None if self._ascending else np.argsort(whole, kind="stable")
            self._by_row_id = whole if order is None else whole[order], order
        ordered, order = self._by_row_id
        nearest = np.minimum(np.searchsorted(ordered, row_ids), self.count - 1)
        positions = nearest if order is None else order[nearest]
        return np.where(ordered[nearest] == row_ids, positions, -1)


def _lists(file: MappedFile, way: Way) -> RowLists:
    arrays = (file.array(f"{way}_{name}") for name in ("starts", "neighbours", "edges"))
    return RowLists(*arrays)


def _distinct(file: MappedFile, way: Way) -> RowLists | None:
    if not file.has(f"{way}_distinct"):
        return None
    return RowLists(file.array(f"{way}_distinct_starts"), file.array(f"{way}_distinct"), None)


def edge_arrays(
    ends: tuple[np.ndarray, np.ndarray], nodes: tuple[int, int], row_ids: np.ndarray
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The facts and arrays of an edge file. Edges with an end of -1 are in no list."""
    source, target = ends
    positions: np.ndarray | None = None
    if len(source) and min(source.min(), target.min()) < 0:
        positions = np.flatnonzero((source >= 0) & (target >= 0)).astype(np.int32)
        source, target = source[positions], target[positions]
    arrays: dict[str, np.ndarray] = {}
    for way, near, (order, neighbours) in zip(
        Way, (source, target), sorted_both_ways(source, target), strict=True
    ):
        starts = np.zeros(nodes[0 if way is Way.OUT else 1] + 1, np.uint32)
        np.cumsum(np.bincount(near, minlength=len(starts) - 1), out=starts[1:], dtype=np.uint32)
        arrays[f"{way}_starts"] = starts
        arrays[f"{way}_neighbours"] = neighbours
        arrays[f"{way}_edges"] = order if positions is None else positions[order]
        arrays |= distinct_arrays(way, starts, neighbours)
    arrays["looped"] = np.unique(source[source == target]).astype(np.uint32)
    arrays["row_ids"] = row_ids.astype(np.uint64, copy=False)
    ascending = bool((row_ids[1:] > row_ids[:-1]).all())
    return {"edges": len(row_ids), "ascending": ascending}, arrays


def distinct_arrays(way: Way, starts: np.ndarray, neighbours: np.ndarray) -> dict[str, np.ndarray]:
    """The lists without repetitions; nothing when there are no parallel edges."""
    first = np.ones(len(neighbours), bool)
    np.not_equal(neighbours[1:], neighbours[:-1], out=first[1:])
    # The first neighbour of a node may be the last one of the node before.
    first[starts[:-1][starts[:-1] < starts[1:]]] = True
    if first.all():
        return {}
    before = np.concatenate(([0], np.cumsum(first)))
    distinct_starts = before[starts].astype(np.uint32)
    return {f"{way}_distinct_starts": distinct_starts, f"{way}_distinct": neighbours[first]}
