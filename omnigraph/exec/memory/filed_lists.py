"""Fast path of: the adjacency in memory (`adjacency`) — mapped from an edge file, with a patch.

Reference: `exec/memory/adjacency.py`, compressed sparse rows built of all edges.
Held equal by: `test_TP_reading_with_files_gives_the_rows_of_the_naive_evaluator` and
`test_TP1_lists_of_a_file_and_its_delta_equal_those_built_anew`.
Falls back: when a table has no file of the numberings in use, when it is too far behind, and when a
block of it is damaged; then the adjacency is built in memory.

Invariant: a node whose edges changed since the file has its whole row in the patch, and every other
node has that of the file. Rows are ascending, parallel edges side by side.
"""

from collections.abc import Sequence

import numpy as np

from omnigraph import number_arrays
from omnigraph.exec.memory.adjacency import searched
from omnigraph.exec.topology.edge_delta import EdgeDelta
from omnigraph.light_dataclass import dataclass
from omnigraph.storage.derived.edge_file import EdgeFile, RowLists, Way

_EMPTY = np.empty(0, np.int64)

_COUNTED_TOGETHER = 1 << 20
"""Neighbours either way that are put together at once to be counted."""


@dataclass(frozen=True, slots=True)
class ListPatch:
    """The rows of a few nodes, ascending: their neighbours and edges now."""

    nodes: np.ndarray
    starts: np.ndarray
    neighbours: np.ndarray
    edges: np.ndarray

    def indexes(self, nodes: np.ndarray) -> np.ndarray:
        """The index of each node's row, or -1."""
        if not len(self.nodes):
            return np.full(len(nodes), -1)
        nearest = np.minimum(np.searchsorted(self.nodes, nodes), len(self.nodes) - 1)
        return np.where(self.nodes[nearest] == nodes, nearest, -1)

    def without_repetitions(self) -> "ListPatch":
        """The same rows, each neighbour once."""
        owners = np.repeat(np.arange(len(self.nodes)), np.diff(self.starts))
        first = np.ones(len(self.neighbours), bool)
        first[1:] = (owners[1:] != owners[:-1]) | (self.neighbours[1:] != self.neighbours[:-1])
        starts = np.concatenate(([0], np.cumsum(first)))[self.starts]
        return ListPatch(self.nodes, starts, self.neighbours[first], self.edges[first])


def _indexes(first: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Every index of ranges that begin at `first`, one after the other."""
    ends = np.cumsum(counts)
    indexes = np.arange(ends[-1] if len(ends) else 0)
    indexes += np.repeat(first - (ends - counts), counts)
    return indexes


class FiledLists:
    """Neighbours by node number: of a file, or of the patch over it."""

    def __init__(
        self, base: RowLists, patch: ListPatch | None, looped: np.ndarray, nodes: int
    ) -> None:
        self._base = base
        self._patch = patch if patch is not None and len(patch.nodes) else None
        self._patched = set() if self._patch is None else set(self._patch.nodes.tolist())
        self._looped = looped
        self.nodes = nodes

    def degrees(self, nodes: np.ndarray) -> np.ndarray:
        _, counts, _ = self._bounds(nodes)
        return counts

    def _bounds(self, nodes: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
        """The first index of each row, its length, and the flags of those in the patch."""
        first, counts = self._base.bounds(nodes)
        patch = self._patch
        if patch is None:
            return first, counts, None
        indexes = patch.indexes(nodes)
        is_patched = indexes >= 0
        if not is_patched.any():
            return first, counts, None
        own = indexes[is_patched]
        first[is_patched] = patch.starts[own]
        counts[is_patched] = patch.starts[own + 1] - patch.starts[own]
        return first, counts, is_patched

    def reached(self, nodes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        owners, neighbours, _ = self._rows(nodes, with_edges=False)
        return owners, neighbours

    def taken(self, nodes: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        return self._rows(nodes, with_edges=True)

    def _rows(
        self, nodes: np.ndarray, *, with_edges: bool
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        first, counts, is_patched = self._bounds(nodes)
        owners = np.repeat(np.arange(len(nodes)), counts)
        base, patch = self._base, self._patch
        if is_patched is None or patch is None:
            indexes = _indexes(first, counts)
            edges = _EMPTY
            if with_edges:
                assert base.edges is not None
                edges = base.edges.take(indexes)
            return owners, base.neighbours.take(indexes), edges
        in_patch = is_patched[owners]
        neighbours = np.empty(len(owners), np.int64)
        edges = np.empty(len(owners), np.int64)
        of_base = _indexes(first[~is_patched], counts[~is_patched])
        of_patch = _indexes(first[is_patched], counts[is_patched])
        neighbours[~in_patch] = base.neighbours.take(of_base)
        neighbours[in_patch] = patch.neighbours[of_patch]
        if with_edges:
            assert base.edges is not None
            edges[~in_patch] = base.edges.take(of_base)
            edges[in_patch] = patch.edges[of_patch]
        return owners, neighbours, edges

    def between(self, begin: int, end: int) -> np.ndarray:
        base = self._base
        if self._patch is not None:
            return self.reached(np.arange(begin, end))[1]
        end = min(end, base.nodes)
        if begin >= end:
            return _EMPTY
        first, counts = base.bounds(np.array([begin, end - 1]))
        return base.neighbours.slice(int(first[0]), int(first[1] + counts[1]))

    def joined(self, nodes: np.ndarray, others: np.ndarray) -> np.ndarray:
        first, counts, is_patched = self._bounds(nodes)
        base, patch = self._base, self._patch
        if is_patched is None or patch is None:
            return searched(base.neighbours.take, first, first + counts, others)
        flags = np.empty(len(nodes), bool)
        for chosen, values_at in (
            (~is_patched, base.neighbours.take),
            (is_patched, patch.neighbours.__getitem__),
        ):
            begin = first[chosen]
            flags[chosen] = searched(values_at, begin, begin + counts[chosen], others[chosen])
        return flags

    def loops(self, nodes: np.ndarray) -> np.ndarray:
        flags = np.zeros(len(nodes), bool)
        if len(self._looped):
            nearest = np.searchsorted(self._looped, nodes)
            nearest = np.minimum(nearest, len(self._looped) - 1)
            flags = self._looped[nearest] == nodes
        if self._patch is not None:
            for index in np.flatnonzero(self._patch.indexes(nodes) >= 0).tolist():
                node = int(nodes[index])
                flags[index] = node in self.row(node)
        return flags

    def row(self, node: int) -> Sequence[int]:
        if node in self._patched:
            return self._patch_row(node, edges=False)
        first, end = self._base.bounds_of(node)
        return self._base.neighbours.slice(first, end).data

    def edge_row(self, node: int) -> Sequence[int]:
        if node in self._patched:
            return self._patch_row(node, edges=True)
        assert self._base.edges is not None
        first, end = self._base.bounds_of(node)
        return self._base.edges.slice(first, end).data

    def _patch_row(self, node: int, *, edges: bool) -> Sequence[int]:
        patch = self._patch
        assert patch is not None
        index = int(np.searchsorted(patch.nodes, node))
        values = patch.edges if edges else patch.neighbours
        return values[patch.starts[index] : patch.starts[index + 1]].data


class BothLists:
    """Neighbours either way, put together row by row; a self edge once."""

    def __init__(self, out: FiledLists, back: FiledLists, *, distinct: bool) -> None:
        self._out = out
        self._back = back
        self._distinct = distinct
        self.nodes = max(out.nodes, back.nodes)

    def taken(self, nodes: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        near, forth, edges = self._out.taken(nodes)
        far, back, more = self._back.taken(nodes)
        other_end = back != nodes[far]
        owners = np.concatenate((near, far[other_end]))
        neighbours = np.concatenate((forth, back[other_end]))
        edges = np.concatenate((edges, more[other_end]))
        order = np.lexsort((neighbours, owners))
        owners, neighbours, edges = owners[order], neighbours[order], edges[order]
        if self._distinct and len(owners):
            first = np.ones(len(owners), bool)
            first[1:] = (owners[1:] != owners[:-1]) | (neighbours[1:] != neighbours[:-1])
            owners, neighbours, edges = owners[first], neighbours[first], edges[first]
        return owners, neighbours, edges

    def reached(self, nodes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        owners, neighbours, _ = self.taken(nodes)
        return owners, neighbours

    def degrees(self, nodes: np.ndarray) -> np.ndarray:
        most = self._out.degrees(nodes) + self._back.degrees(nodes)
        counts = np.zeros(len(nodes), np.int64)
        for begin, end in number_arrays.runs_of(most, _COUNTED_TOGETHER):
            owners, _ = self.reached(nodes[begin:end])
            counts[begin:end] = np.bincount(owners, minlength=end - begin)
        return counts

    def between(self, begin: int, end: int) -> np.ndarray:
        return self.reached(np.arange(begin, end))[1]

    def joined(self, nodes: np.ndarray, others: np.ndarray) -> np.ndarray:
        flags = self._out.joined(nodes, others)
        rest = np.flatnonzero(~flags)
        flags[rest] = self._back.joined(nodes[rest], others[rest])
        return flags

    def loops(self, nodes: np.ndarray) -> np.ndarray:
        return self._out.loops(nodes)

    def row(self, node: int) -> Sequence[int]:
        return self.taken(np.array([node]))[1].data

    def edge_row(self, node: int) -> Sequence[int]:
        return self.taken(np.array([node]))[2].data


@dataclass(frozen=True, slots=True)
class FiledAdjacency:
    """Neighbours and edges of every node, one way or both."""

    nodes: int
    distinct: FiledLists | BothLists
    multiple: FiledLists | BothLists


def filed_adjacency(file: EdgeFile, delta: EdgeDelta, way: Way, nodes: int) -> FiledAdjacency:
    """The adjacency of an edge file and the edges since, one way."""
    looped = file.looped
    base = file.multiple[way]
    if delta.is_empty:
        multiple = FiledLists(base, None, looped, nodes)
        return FiledAdjacency(nodes, FiledLists(file.distinct[way], None, looped, nodes), multiple)
    patch = _patch(FiledLists(base, None, looped, nodes), file.count, delta, way)
    distinct = FiledLists(file.distinct[way], patch.without_repetitions(), looped, nodes)
    return FiledAdjacency(nodes, distinct, FiledLists(base, patch, looped, nodes))


def either_way(out: FiledAdjacency, back: FiledAdjacency) -> FiledAdjacency:
    """The adjacency of both ways together."""
    assert isinstance(out.multiple, FiledLists)
    assert isinstance(back.multiple, FiledLists)
    return FiledAdjacency(
        max(out.nodes, back.nodes),
        BothLists(out.multiple, back.multiple, distinct=True),
        BothLists(out.multiple, back.multiple, distinct=False),
    )


def _patch(lists: FiledLists, count: int, delta: EdgeDelta, way: Way) -> ListPatch:
    """The rows of every node whose edges the delta touched."""
    is_out = way is Way.OUT
    lost = delta.removed_source if is_out else delta.removed_target
    near, far = (delta.source, delta.target) if is_out else (delta.target, delta.source)
    positions = np.arange(count, count + len(near))
    live = (near >= 0) & (far >= 0) & ~np.isin(positions, delta.removed)
    nodes = number_arrays.distinct(np.concatenate((lost[lost >= 0], near[live])))
    owners, neighbours, edges = lists.taken(nodes)
    keep = ~np.isin(edges, delta.removed)
    owners = np.concatenate((owners[keep], np.searchsorted(nodes, near[live])))
    neighbours = np.concatenate((neighbours[keep], far[live])).astype(np.int64)
    edges = np.concatenate((edges[keep], positions[live])).astype(np.int64)
    order = np.lexsort((edges, neighbours, owners))
    counts = np.bincount(owners, minlength=len(nodes))
    starts = np.concatenate(([0], np.cumsum(counts)))
    return ListPatch(nodes.astype(np.int64), starts, neighbours[order], edges[order])
