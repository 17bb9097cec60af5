"""Order by and limit: a stable sort on integer keys, with a partial sort for a small limit.

Invariant: nulls come first when ascending and last when descending, NaN after every number, and
rows that tie in every key keep their order. A cut is taken as if everything had been sorted.
"""

import numpy as np
import pyarrow as pa

from omnigraph.costs import COSTS
from omnigraph.exec.read.codes import is_sortable, present, sortable


def ordered_rows(
    keys: list[np.ndarray], length: int, *, offset: int, limit: int | None
) -> np.ndarray:
    """The rows that remain, in order. Keys are integers, the most significant first."""
    end = length if limit is None else min(length, offset + limit)
    if offset >= end:
        return np.empty(0, np.int64)
    keys = [key for key in keys if len(key) and (key != key[0]).any()]
    if not keys:
        return np.arange(offset, end)
    among = _candidates(keys[0], end)
    if among is not None:
        keys = [key[among] for key in keys]
    order = _sorted(keys[0]) if len(keys) == 1 else np.lexsort(keys[::-1])
    chosen = order[offset:end]
    return chosen if among is None else among[chosen]


def _sorted(key: np.ndarray) -> np.ndarray:
    """The order of one key. Ranks are distinct and dense, and a counting sort compares nothing."""
    low = key.min()
    span = int(key.max()) - int(low) + 1
    if span <= 8 * len(key):
        slots = np.full(span, -1)
        slots[key - low] = np.arange(len(key))
        order = slots[slots >= 0]
        if len(order) == len(key):
            return order
    return np.argsort(key, kind="stable")


def _candidates(key: np.ndarray, end: int) -> np.ndarray | None:
    """Rows that can be among the first `end`; None for all of them."""
    if len(key) < COSTS.order_partition_rows_min or end * 4 > len(key):
        return None
    last = np.partition(key, end - 1)[end - 1]
    return np.flatnonzero(key <= last)


def keys_of_values(values: pa.Array, *, descending: bool) -> list[np.ndarray]:
    """A column of numbers, moments or truth values as keys."""
    assert is_sortable(values.type)
    keys = [sortable(values)]
    if values.null_count:
        has_value = present(values)
        keys = [has_value.astype(np.int8), np.where(has_value, keys[0], 0)]
    return [~key for key in keys] if descending else keys


def keys_of_codes(codes: np.ndarray, *, descending: bool) -> list[np.ndarray]:
    """Codes as a key: null is the least, so it is last when descending."""
    return [~codes if descending else codes]
