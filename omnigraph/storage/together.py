"""Several reads at once: Lance leaves Python while it reads, so another core can take some.

Invariant: every read has ended when `together` returns or raises. A read never starts others this
way, so no thread waits for one that waits for it.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from functools import cache
from typing import TypeVar

T = TypeVar("T")

_THREADS = 4


def together(reads: Sequence[Callable[[], T]]) -> list[T]:
    """What each gives, in order. The first runs here, the others in threads."""
    if not reads:
        return []
    waiting = [_threads().submit(read) for read in reads[1:]]
    try:
        first = reads[0]()
    finally:
        wait(waiting)
    return [first, *(each.result() for each in waiting)]


@cache
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_THREADS, thread_name_prefix="omnigraph-read")
