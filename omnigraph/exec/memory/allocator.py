"""Memory allocator of the C library (mallopt): large blocks are reused, not given back each time.

An operator makes and frees arrays of some megabytes for each batch of rows. By default the C
library gives such a block back to the system at once and asks for new pages for the next one; the
system clears them, which took a third of the time of a walk over 20 million edges.

Invariant: no more than `KEPT_BYTES` of free memory stay at the end of each heap of the C library.
Thresholds that somebody set in the environment stay as they are, and so does any other library.
"""

import sys
from functools import cache

from omnigraph import environment

KEPT_BYTES = 32 << 20
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # M_… of malloc.h
_SET_BY_USERS = {"MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES"}


@cache
def keep_large_blocks() -> bool:
    """Tell the C library once; whether it was told."""
    if sys.platform != "linux" or not _SET_BY_USERS.isdisjoint(environment.current()):
        return False
    import ctypes  # noqa: PLC0415  of no use elsewhere

    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    return bool(mallopt(_TRIM_THRESHOLD, KEPT_BYTES) and mallopt(_MMAP_THRESHOLD, KEPT_BYTES))
