"""Fast path of: `edge_arrays` — the sorted lists (CSR) of an edge file merged with a delta.

Reference: `storage/derived/edge_file.py`, which sorts all edges.
Held equal by: `test_TP1_lists_that_are_merged_equal_those_sorted_anew`.
Falls back: never; a table without a file of an earlier version is sorted by the reference.

Invariant: both lists are sorted by node, neighbour and position, and every position of the delta is
behind all of the base. So an edge of the delta goes behind its equals, and nothing is sorted again.
"""

from typing import Any

import numpy as np

from omnigraph.exec.topology.edge_delta import EdgeDelta
from omnigraph.storage.derived.edge_file import EdgeFile, Way, distinct_arrays


def folded_arrays(
    file: EdgeFile, delta: EdgeDelta, nodes: tuple[int, int]
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The facts and arrays of the file of a version: those of its base, without the dead positions
    and with the new ones. Edges with an end of -1 are in no list."""
    gone = np.zeros(file.count + len(delta.row_ids), bool)
    gone[delta.removed] = True
    row_ids = np.concatenate((file.row_ids.whole(), delta.row_ids))
    moved = None
    if len(delta.removed):
        moved = np.cumsum(~gone, dtype=np.int32) - 1
        row_ids = row_ids[~gone]
    arrays: dict[str, np.ndarray] = {}
    for way, near, far, count in (
        (Way.OUT, delta.source, delta.target, nodes[0]),
        (Way.IN, delta.target, delta.source, nodes[1]),
    ):
        keys, edges = _merged(file, way, near, far, gone)
        edges = edges if moved is None else moved[edges]
        arrays |= _lists(way, keys, edges, count)
        if way is Way.OUT:
            loops = keys[(keys >> 32) == (keys & 0xFFFFFFFF)]
            looped = np.unique(loops >> 32).astype(np.uint32)
    arrays["looped"] = looped
    arrays["row_ids"] = row_ids.astype(np.uint64, copy=False)
    ascending = bool((row_ids[1:] > row_ids[:-1]).all())
    return {"edges": len(row_ids), "ascending": ascending}, arrays


def _merged(
    file: EdgeFile, way: Way, near: np.ndarray, far: np.ndarray, gone: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The pairs of numbers of every live edge, sorted, and the positions of the edges."""
    lists = file.multiple[way]
    assert lists.edges is not None
    starts = lists.starts.whole().astype(np.int64)
    degrees = starts[1:] - starts[:-1]
    keys = np.repeat(np.arange(lists.nodes, dtype=np.int64) << 32, degrees)
    keys |= lists.neighbours.whole()
    edges = lists.edges.whole()
    if gone[: file.count].any():
        kept = ~gone[edges]
        keys, edges = keys[kept], edges[kept]
    positions = np.arange(file.count, len(gone), dtype=np.int32)
    live = (near >= 0) & (far >= 0) & ~gone[file.count :]
    positions, added = positions[live], (near[live].astype(np.int64) << 32) | far[live]
    order = np.argsort(added, kind="stable")
    added, positions = added[order], positions[order]
    at_end = np.searchsorted(keys, added, side="right")
    return np.insert(keys, at_end, added), np.insert(edges, at_end, positions)


def _lists(way: Way, keys: np.ndarray, edges: np.ndarray, count: int) -> dict[str, np.ndarray]:
    bounds = np.arange(count + 1, dtype=np.int64) << 32
    starts = np.searchsorted(keys, bounds).astype(np.uint32)
    neighbours = (keys & 0xFFFFFFFF).astype(np.int32)
    arrays = {
        f"{way}_starts": starts,
        f"{way}_neighbours": neighbours,
        f"{way}_edges": edges.astype(np.int32, copy=False),
    }
    return arrays | distinct_arrays(way, starts, neighbours)
