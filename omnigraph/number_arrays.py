"""Arrays of numbers: sorted sets (union, difference) with numpy, and their Arrow form.

`np.unique` and its kin, and `pa.array` of a numpy array, import `numpy.ma` at their first call,
which takes longer than a point query.

Invariant: a set is ascending and has every number once. The Arrow form shares the memory.
"""

import numpy as np
import pyarrow as pa


def distinct(numbers: np.ndarray) -> np.ndarray:
    """The numbers, each once."""
    if len(numbers) < 2:
        return numbers.copy()
    ordered = np.sort(numbers)
    first = np.ones(len(ordered), bool)
    np.not_equal(ordered[1:], ordered[:-1], out=first[1:])
    return ordered[first]


def union(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """The numbers of either."""
    return distinct(np.concatenate((one, other)))


def difference(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """The numbers of the first that the second does not have."""
    own = distinct(one)
    return own[~np.isin(own, other)] if len(other) else own


def to_arrow(numbers: np.ndarray) -> pa.Array:
    """Numbers as an Arrow array without nulls."""
    numbers = np.ascontiguousarray(numbers)
    kind = pa.from_numpy_dtype(numbers.dtype)
    return pa.Array.from_buffers(kind, len(numbers), [None, pa.py_buffer(numbers)])
