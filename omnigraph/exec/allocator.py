"""Memory allocator of the C library (mallopt, malloc_trim): what it keeps of freed memory.

An operator makes and frees arrays of some megabytes for each batch of rows. By default the C
library gives such a block back to the system at once and asks for new pages for the next one; the
system clears them, which took a third of the time of a walk over 20 million edges. Each thread of a
load has a heap of its own, though, and what is free inside of it serves no other: that goes back.

Invariant: no more than `KEPT_BYTES` of free memory stay at the end of each heap of the C library.
Thresholds that somebody set in the environment stay as they are, and so does any other library.
"""

import sys
from functools import cache
from typing import Any

import pyarrow as pa

from omnigraph import environment

KEPT_BYTES = 32 << 20
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # M_… of malloc.h
_SET_BY_USERS = {"MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES"}


@cache
def keep_large_blocks() -> bool:
    """Tell the C library once; whether it was told."""
    if sys.platform != "linux" or not _SET_BY_USERS.isdisjoint(environment.current()):
        return False
    mallopt = _of_c("mallopt")
    if mallopt is None:
        return False
    return bool(mallopt(_TRIM_THRESHOLD, KEPT_BYTES) and mallopt(_MMAP_THRESHOLD, KEPT_BYTES))


def give_back() -> None:
    """Give free memory back to the system: some milliseconds, so for the ends of long stages."""
    trim = _of_c("malloc_trim")
    if trim is not None:
        trim(0)
    pa.default_memory_pool().release_unused()


@cache
def _of_c(name: str) -> Any:
    """A function of the C library, if it has it."""
    import ctypes  # noqa: PLC0415  of no use elsewhere

    return getattr(ctypes.CDLL(None), name, None)
