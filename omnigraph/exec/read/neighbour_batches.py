"""Neighbours of many nodes in batches of bounded size, the row of a hub cut where a batch is full.

Invariant: the batches together are what `reached` or `taken` gives of all nodes at once, in the
same order, and none but the only one is longer than `rows_max`.
"""

from collections.abc import Iterator

import numpy as np

from omnigraph.exec.memory.adjacency import EdgeListView, ListView
from omnigraph.number_arrays import runs_of

Reached = tuple[np.ndarray, np.ndarray]
"""Indexes of owners, and a neighbour for each."""

Taken = tuple[np.ndarray, np.ndarray, np.ndarray]
"""As `Reached`, with the position of each edge."""


def reached_in_batches(
    lists: ListView, nodes: np.ndarray, rows_max: int | None
) -> Iterator[Reached]:
    """Every neighbour of every node."""
    for begin, end in runs_of(lists.degrees(nodes), rows_max):
        hub = _hub(lists, nodes, begin, end, rows_max)
        if hub is None:
            owners, reached = lists.reached(nodes[begin:end])
            yield owners + begin, reached
            continue
        assert rows_max is not None
        for start in range(0, len(hub), rows_max):
            part = hub[start : start + rows_max].astype(np.int64)
            yield np.full(len(part), begin), part


def taken_in_batches(
    lists: EdgeListView, nodes: np.ndarray, rows_max: int | None
) -> Iterator[Taken]:
    """Every neighbour of every node, once an edge."""
    for begin, end in runs_of(lists.degrees(nodes), rows_max):
        hub = _hub(lists, nodes, begin, end, rows_max)
        if hub is None:
            owners, reached, edges = lists.taken(nodes[begin:end])
            yield owners + begin, reached, edges
            continue
        assert rows_max is not None
        own = np.asarray(lists.edge_row(int(nodes[begin])))
        for start in range(0, len(hub), rows_max):
            part = hub[start : start + rows_max].astype(np.int64)
            edges = own[start : start + rows_max].astype(np.int64)
            yield np.full(len(part), begin), part, edges


def _hub(
    lists: ListView, nodes: np.ndarray, begin: int, end: int, rows_max: int | None
) -> np.ndarray | None:
    """The neighbours of a run that is one node with more than fit; None for other runs."""
    if rows_max is None or end - begin != 1:
        return None
    row = np.asarray(lists.row(int(nodes[begin])))
    return row if len(row) > rows_max else None


def spread_in_batches(
    first: np.ndarray, counts: np.ndarray, rows_max: int | None
) -> Iterator[Reached]:
    """Every index of ranges that begin at `first`, with the number of its range; ranges are cut
    where a batch is full. Of nothing there is one batch."""
    ends = np.cumsum(counts)
    starts = ends - counts
    total = int(ends[-1]) if len(ends) else 0
    size = max(total, 1) if rows_max is None else rows_max
    for begin in range(0, max(total, 1), size):
        end = min(total, begin + size)
        low = int(np.searchsorted(ends, begin, side="right"))
        high = int(np.searchsorted(starts, end, side="left"))
        own = np.arange(low, max(high, low))
        inside = np.minimum(ends[own], end) - np.maximum(starts[own], begin)
        inside = np.maximum(inside, 0)
        offsets = first[own] + np.maximum(begin - starts[own], 0)
        owners = np.repeat(own, inside)
        filled = np.cumsum(inside)
        indexes = np.arange(len(owners)) + np.repeat(offsets - (filled - inside), inside)
        yield owners, indexes
