"""ULID generator: fresh ids, many at a time, or those of a series that a task can give again.

Invariant: ids are ULIDs: 26 characters, the first ten the time. The ids of one call ascend, and two
calls never share one: each draws 48 random bits of its own and counts in the other 32. Within a
series ids follow from the load, the part of its input and how many the part had before, so a part
that is read twice in the same order gets the same ids; no two parts of a load share one.
"""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

_LETTERS = np.frombuffer(b"0123456789ABCDEFGHJKMNPQRSTVWXYZ", np.uint8)
_PAIRS = (
    np.stack([np.repeat(_LETTERS, 32), np.tile(_LETTERS, 32)], axis=1).reshape(-1).view(np.uint16)
)
"""Two letters for each number of ten bits."""

_CHARS = 26
_COUNT_BITS = 32
_COUNT_CHARS = 7  # 35 bits: the count, and the last three bits that were drawn

_DRAWN_BITS, _PART_BITS, _ROW_BITS = 25, 19, 36
_SERIES_CHARS = 11  # 55 bits: the part and the row


@dataclass(slots=True)
class _Series:
    load: int
    part: int
    next_row: int = 0


_series: ContextVar[_Series | None] = ContextVar("series", default=None)


def new_series() -> int:
    """The number of a load, from the time and random bits, for `minted_in_series`."""
    drawn = int.from_bytes(os.urandom(4), "big") & ((1 << _DRAWN_BITS) - 1)
    return (time.time_ns() // 1_000_000) << _DRAWN_BITS | drawn


@contextmanager
def minted_in_series(load: int, part: int) -> Iterator[None]:
    """Within the block new ids are those of one part of a load, in order."""
    if part >= 1 << _PART_BITS:
        raise ValueError("too many parts for one load")
    token = _series.set(_Series(load, part))
    try:
        yield
    finally:
        _series.reset(token)


def ulids(count: int) -> pa.Array:
    """That many new ids."""
    if count > 1 << _COUNT_BITS:
        raise ValueError("too many ids for one call")
    series = _series.get()
    if series is not None:
        first_row = series.part << _ROW_BITS | series.next_row
        series.next_row += count
        return _spelled(series.load, np.arange(count, dtype=np.int64) + first_row, _SERIES_CHARS)
    drawn = int.from_bytes(os.urandom(6), "big")
    head = (time.time_ns() // 1_000_000) << 48 | drawn
    numbers = np.arange(count, dtype=np.int64) | (head & 7) << _COUNT_BITS
    return _spelled(head >> 3, numbers, _COUNT_CHARS)


def _spelled(head: int, numbers: npt.NDArray[np.int64], tail_chars: int) -> pa.Array:
    """Texts of a common head and a number each in the last characters. Numbers ascend, so bits
    that the first and the last have in common are those of all."""
    count = len(numbers)
    if count * _CHARS >= 1 << 31:
        raise ValueError("too many ids for one call")
    if not count:
        return pa.array([], pa.utf8())
    first = head << 5 * tail_chars | int(numbers[0])
    pairs = [_PAIRS[first >> 10 * step & 1023] for step in range(_CHARS // 2)]
    # All texts are the first one, and then those pairs of letters are set in which they differ.
    texts = bytearray(np.array(pairs[::-1]).tobytes()) * count
    chars = np.frombuffer(texts, np.uint16).reshape(count, _CHARS // 2)
    for step in range(-(-(int(numbers[0]) ^ int(numbers[-1])).bit_length() // 10)):
        own = numbers >> 10 * step
        own |= head << 5 * tail_chars >> 10 * step & 1023
        chars[:, -1 - step] = _PAIRS.take(own & 1023)
    offsets = np.arange(count + 1, dtype=np.int32) * np.int32(_CHARS)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(texts)]
    return pa.Array.from_buffers(pa.utf8(), count, buffers)
