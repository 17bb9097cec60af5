"""ULID generator: fresh ids, many at a time.

Invariant: ids are ULIDs: 26 characters, the first ten the time. The ids of one call ascend, and two
calls never share one: each draws 48 random bits of its own and counts in the other 32.
"""

import os
import time

import numpy as np
import pyarrow as pa

_LETTERS = np.frombuffer(b"0123456789ABCDEFGHJKMNPQRSTVWXYZ", np.uint8)
_CHARS = 26
_COUNT_BITS = 32
_COUNT_CHARS = 7  # 35 bits: the count, and the last three bits that were drawn


def ulids(count: int) -> pa.Array:
    """That many new ids."""
    if count > 1 << _COUNT_BITS:
        raise ValueError("too many ids for one call")
    drawn = int.from_bytes(os.urandom(6), "big")
    head = (time.time_ns() // 1_000_000) << 48 | drawn
    chars = np.empty((count, _CHARS), np.uint8)
    first, kept = head >> 3, (head & 7) << _COUNT_BITS
    for index in range(_CHARS - _COUNT_CHARS - 1, -1, -1):
        chars[:, index] = _LETTERS[first & 31]
        first >>= 5
    numbers = np.arange(count, dtype=np.int64) | kept
    for index in range(_CHARS - 1, _CHARS - _COUNT_CHARS - 1, -1):
        chars[:, index] = _LETTERS[numbers & 31]
        numbers >>= 5
    offsets = np.arange(count + 1, dtype=np.int64) * _CHARS
    if offsets[-1] < 1 << 31:
        buffers = [None, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(chars)]
        return pa.Array.from_buffers(pa.utf8(), count, buffers)
    raise ValueError("too many ids for one call")
