"""Arrays of numbers: sorted sets (union, difference) with numpy, runs, and their Arrow form.

`np.unique` and its kin, and `pa.array` of a numpy array, import `numpy.ma` at their first call,
which takes longer than a point query.

Invariant: a set is ascending and has every number once. The Arrow form shares the memory.
"""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc


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


def are_among(numbers: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Flags of the numbers that are among the others. A hash table of the fewer of the two is made,
    where `np.isin` sorts both together: few looked up among many cost one pass over those."""
    if not len(numbers) or not len(others):
        return np.zeros(len(numbers), bool)
    few, many = to_arrow(numbers), to_arrow(others.astype(numbers.dtype, copy=False))
    if len(few) < len(many):
        many = many.filter(pc.is_in(many, value_set=few))
    flags: np.ndarray = pc.is_in(few, value_set=many).to_numpy(zero_copy_only=False)
    return flags


def to_arrow(numbers: np.ndarray) -> pa.Array:
    """Numbers as an Arrow array without nulls."""
    numbers = np.ascontiguousarray(numbers)
    kind = pa.from_numpy_dtype(numbers.dtype)
    return pa.Array.from_buffers(kind, len(numbers), [None, pa.py_buffer(numbers)])


def from_arrow(numbers: pa.Array) -> np.ndarray:
    """The numbers of an Arrow array without nulls. `to_numpy` would import pandas where it is
    installed, which takes a second."""
    assert not numbers.null_count
    dtype = np.dtype(numbers.type.to_pandas_dtype())
    data = numbers.buffers()[1]
    if data is None:
        return np.empty(0, dtype)
    return np.frombuffer(data, dtype, len(numbers), numbers.offset * dtype.itemsize)


def runs_of(counts: np.ndarray, rows_max: int | None) -> Iterator[tuple[int, int]]:
    """Bounds of runs whose counts add up to no more than `rows_max`; a larger count is a run of its
    own. Of nothing there is one run."""
    if rows_max is None or int(counts.sum()) <= rows_max:
        yield 0, len(counts)
        return
    ends, begin = np.cumsum(counts), 0
    while begin < len(counts):
        before = int(ends[begin - 1]) if begin else 0
        end = int(np.searchsorted(ends, before + rows_max, side="right"))
        end = max(end, begin + 1)
        yield begin, end
        begin = end
