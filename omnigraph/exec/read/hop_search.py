"""Breadth-first search within a range of hops, from many sources, in blocks of bounded memory.

Invariant: a source reaches the same nodes whatever is searched beside it. A block of sources never
holds more than `cells_max` nodes at once: one that would is halved, and a single source that still
would is searched with one mark a node instead.
"""

from collections.abc import Iterator

import numpy as np

from omnigraph import number_arrays
from omnigraph.costs import COSTS
from omnigraph.exec.limits import Watch
from omnigraph.exec.memory.adjacency import ListView
from omnigraph.exec.read.neighbour_batches import reached_in_batches
from omnigraph.light_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Block:
    """Nodes reached from the sources `first` to `end`: the number of a source, and a node."""

    first: int
    end: int
    owners: np.ndarray
    nodes: np.ndarray


def search_blocks(
    watch: Watch,
    lists: ListView,
    sources: np.ndarray,
    hops: tuple[int, int],
    cells_max: int | None,
) -> Iterator[Block]:
    """The nodes within the bounds of every source, ascending by source. Without a limit a block
    announces what it holds. Of no source there is one block, of nothing."""
    width = max(lists.nodes, 1)
    marked = max(1, COSTS.search_marks_max // width)
    size = marked if cells_max is None else max(marked, COSTS.search_block_rows)
    first = 0
    while first < len(sources) or not first:
        end = min(first + size, len(sources))
        cells = _cells(watch, lists, sources[first:end], hops, cells_max)
        if cells is None:
            size = max((end - first) // 2, 1)
            continue
        owners, nodes = np.divmod(cells, width)
        yield Block(first, end, owners + first, nodes)
        if cells_max is not None and len(cells) * 4 < cells_max:
            size = max(size, (end - first) * 2)
        first = max(end, 1)


def _cells(
    watch: Watch,
    lists: ListView,
    sources: np.ndarray,
    hops: tuple[int, int],
    cells_max: int | None,
) -> np.ndarray | None:
    """Source and node as one number, ascending; None when they are too many to hold."""
    hops_min, hops_max = hops
    width = max(lists.nodes, 1)
    cells = np.arange(len(sources), dtype=np.int64) * width + sources
    visited = _Visited(len(sources) * width)
    produced, count = list[np.ndarray](), 0
    for hop in range(1, hops_max + 1):
        visited.add(cells)
        owners, nodes = np.divmod(cells, width) if len(sources) > 1 else (cells * 0, cells)
        if hop == hops_min:
            # Nodes one hop nearer have not been produced yet; their self edges do it now.
            produced.append(cells[lists.loops(nodes)])
        taken = int(lists.degrees(nodes).sum())
        if cells_max is not None and taken > cells_max:
            return None if len(sources) > 1 else _marked(watch, lists, sources, hops, cells_max)
        watch.hold(16 * taken)
        spread, reached = lists.reached(nodes)
        cells = visited.others(owners[spread] * width + reached)
        if hop > 1:
            cells = _distinct(cells, len(sources) * width)
        if hop >= hops_min:
            produced.append(cells)
            count += len(cells)
        if not len(cells):
            break
        if cells_max is not None and count > cells_max and len(sources) > 1:
            return None
    whole = np.concatenate(produced) if produced else np.empty(0, np.int64)
    whole.sort(kind="stable")  # a few ascending runs
    return whole


class _Visited:
    """The cells a search has been at: marks while they are few, else a sorted set."""

    def __init__(self, size: int) -> None:
        self._marks = np.zeros(size, bool) if size <= COSTS.search_marks_max else None
        self._sorted = np.empty(0, np.int64)

    def add(self, cells: np.ndarray) -> None:
        if self._marks is not None:
            self._marks[cells] = True
        else:
            self._sorted = np.concatenate((self._sorted, cells))
            self._sorted.sort(kind="stable")

    def others(self, cells: np.ndarray) -> np.ndarray:
        """The cells that were not visited."""
        if self._marks is not None:
            is_new = ~self._marks[cells]
        else:
            nearest = np.minimum(np.searchsorted(self._sorted, cells), len(self._sorted) - 1)
            is_new = self._sorted[nearest] != cells
        others: np.ndarray = cells[is_new]
        return others


def _distinct(cells: np.ndarray, size: int) -> np.ndarray:
    if len(cells) * 16 < size or size > COSTS.search_marks_max:
        return number_arrays.distinct(cells)
    marked = np.zeros(size, bool)
    marked[cells] = True
    return np.flatnonzero(marked)


def _marked(
    watch: Watch, lists: ListView, source: np.ndarray, hops: tuple[int, int], rows_max: int
) -> np.ndarray:
    """The search of one source that reaches much: a mark a node, neighbours a batch at a time."""
    hops_min, hops_max = hops
    watch.hold(24 * lists.nodes)
    visited, produced = np.zeros(lists.nodes, bool), np.zeros(lists.nodes, bool)
    frontier = source
    for hop in range(1, hops_max + 1):
        visited[frontier] = True
        if hop == hops_min:
            produced[frontier[lists.loops(frontier)]] = True
        reached = np.zeros(lists.nodes, bool)
        for _, neighbours in reached_in_batches(lists, frontier, rows_max):
            reached[neighbours] = True
            watch.tick()
        reached &= ~visited
        frontier = np.flatnonzero(reached)
        if hop >= hops_min:
            produced |= reached
        if not len(frontier):
            break
    return np.flatnonzero(produced)
