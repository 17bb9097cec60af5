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
from omnigraph.costs import COSTS
from omnigraph.exec.memory.adjacency import searched
from omnigraph.exec.memory.list_patch import ListPatch, indexes_of, patch_of
from omnigraph.exec.topology.edge_delta import EdgeDelta
from omnigraph.light_dataclass import dataclass
from omnigraph.storage.derived.edge_file import EdgeFile, RowLists, Way

_EMPTY = np.empty(0, np.int64)


class FiledLists:
    """Neighbours by node number: of a file, or of the patch over it."""

    def __init__(
        self, base: RowLists, patch: ListPatch | None, looped: np.ndarray, nodes: int
    ) -> None:
        self._base = base
        self._patch = patch if patch is not None and len(patch.nodes) else None
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
        first[is_patched] = patch.begins[own]
        counts[is_patched] = patch.ends[own] - patch.begins[own]
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
            indexes = indexes_of(first, counts)
            edges = _EMPTY
            if with_edges:
                assert base.edges is not None
                edges = base.edges.take(indexes)
            return owners, base.neighbours.take(indexes), edges
        in_patch = is_patched[owners]
        neighbours = np.empty(len(owners), np.int64)
        edges = np.empty(len(owners), np.int64)
        of_base = indexes_of(first[~is_patched], counts[~is_patched])
        of_patch = indexes_of(first[is_patched], counts[is_patched])
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
        row = self._patch_row(node, edges=False)
        if row is not None:
            return row
        first, end = self._base.bounds_of(node)
        return self._base.neighbours.slice(first, end).data

    def edge_row(self, node: int) -> Sequence[int]:
        row = self._patch_row(node, edges=True)
        if row is not None:
            return row
        assert self._base.edges is not None
        first, end = self._base.bounds_of(node)
        return self._base.edges.slice(first, end).data

    def _patch_row(self, node: int, *, edges: bool) -> Sequence[int] | None:
        patch = self._patch
        index = -1 if patch is None else patch.index(node)
        if patch is None or index < 0:
            return None
        values = patch.edges if edges else patch.neighbours
        return values[patch.begins[index] : patch.ends[index]].data


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
        for begin, end in number_arrays.runs_of(most, COSTS.neighbours_counted_together):
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


@dataclass(frozen=True, slots=True)
class OneWay:
    """Neighbours and edges of every node, one way: those of an edge file, and of the rows that a
    delta over it patches, first with repeated neighbours, then each once."""

    nodes: int
    distinct: FiledLists
    multiple: FiledLists
    file: EdgeFile
    delta: EdgeDelta
    patches: tuple[ListPatch, ListPatch]

    @property
    def bytes_held(self) -> int:
        return sum(patch.bytes_held for patch in self.patches) + 4096


def filed_adjacency(file: EdgeFile, delta: EdgeDelta, way: Way, nodes: int) -> OneWay:
    """The adjacency of an edge file and the edges since, one way."""
    lists = FiledLists(file.multiple[way], None, file.looped, nodes)
    patch = _patch(lists, file.count, delta, way)
    return _one_way(file, delta, way, nodes, (patch, patch.without_repetitions()))


def followed_adjacency(before: OneWay, delta: EdgeDelta, way: Way, nodes: int) -> OneWay:
    """The same from that of an earlier version, whose delta is the first part of this one: only the
    nodes are patched whose edges changed between the two."""
    dead, made = len(before.delta.removed), len(before.delta.row_ids)
    step = EdgeDelta(
        delta.removed[dead:],
        delta.removed_source[dead:],
        delta.removed_target[dead:],
        delta.row_ids[made:],
        delta.source[made:],
        delta.target[made:],
    )
    rows = _patch(before.multiple, before.file.count + made, step, way)
    multiple, distinct = before.patches
    patches = multiple.followed(rows), distinct.followed(rows.without_repetitions())
    return _one_way(before.file, delta, way, nodes, patches)


def grown(adjacency: OneWay, way: Way, nodes: int) -> OneWay:
    """The same adjacency for more nodes: those newer than the edges have no neighbours."""
    return _one_way(adjacency.file, adjacency.delta, way, nodes, adjacency.patches)


def _one_way(
    file: EdgeFile,
    delta: EdgeDelta,
    way: Way,
    nodes: int,
    patches: tuple[ListPatch, ListPatch],
) -> OneWay:
    multiple = FiledLists(file.multiple[way], patches[0], file.looped, nodes)
    distinct = FiledLists(file.distinct[way], patches[1], file.looped, nodes)
    return OneWay(nodes, distinct, multiple, file, delta, patches)


def either_way(out: OneWay, back: OneWay) -> FiledAdjacency:
    """The adjacency of both ways together."""
    return FiledAdjacency(
        max(out.nodes, back.nodes),
        BothLists(out.multiple, back.multiple, distinct=True),
        BothLists(out.multiple, back.multiple, distinct=False),
    )


def _patch(lists: FiledLists, count: int, delta: EdgeDelta, way: Way) -> ListPatch:
    """The rows of every node whose edges the delta touched. Its own edges have the positions from
    `count` on."""
    is_out = way is Way.OUT
    lost = delta.removed_source if is_out else delta.removed_target
    near, far = (delta.source, delta.target) if is_out else (delta.target, delta.source)
    positions = np.arange(count, count + len(near))
    live = (near >= 0) & (far >= 0) & ~number_arrays.are_among(positions, delta.removed)
    nodes = number_arrays.distinct(np.concatenate((lost[lost >= 0], near[live])))
    owners, neighbours, edges = lists.taken(nodes)
    keep = ~number_arrays.are_among(edges, delta.removed)
    owners = np.concatenate((owners[keep], np.searchsorted(nodes, near[live])))
    neighbours = np.concatenate((neighbours[keep], far[live])).astype(np.int64)
    edges = np.concatenate((edges[keep], positions[live])).astype(np.int64)
    order = np.lexsort((edges, neighbours, owners))
    counts = np.bincount(owners, minlength=len(nodes))
    return patch_of(nodes.astype(np.int64), counts, neighbours[order], edges[order])
