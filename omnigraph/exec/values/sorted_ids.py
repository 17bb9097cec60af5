"""Merge of two sorted id arrays: binary insertion of a few, a sort of many.

Invariant: ids are ordered by their UTF-8 bytes, which is the order of Python's strings too.
"""

from bisect import bisect_left

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.costs import COSTS

Numbers = npt.NDArray[np.int64]


def joined(ids: pa.Array, more: pa.Array) -> tuple[pa.Array, Numbers, Numbers]:
    """Two sorted arrays without a common id as one, and where the ids of each went."""
    both = pa.concat_arrays([ids, more])
    order = _order(ids, more, both)
    positions = np.empty(len(both), dtype=np.int64)
    positions[order] = np.arange(len(both))
    return both.take(pa.array(order)), positions[: len(ids)], positions[len(ids) :]


def _order(ids: pa.Array, more: pa.Array, both: pa.Array) -> Numbers:
    if len(more) > COSTS.inserted_ids_max:
        return pc.sort_indices(both).to_numpy().astype(np.int64)  # type: ignore[no-any-return]
    # A few are inserted by binary search, which costs less than to sort all again.
    rows = range(len(ids))
    added = more.to_pylist()
    positions = [bisect_left(rows, each, key=lambda row: ids[row].as_py()) for each in added]
    return np.insert(np.arange(len(ids)), positions, len(ids) + np.arange(len(more)))
