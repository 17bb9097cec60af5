"""Several calls into Lance at once: it leaves Python while it works, so another core can take some.

Invariant: every call has ended when `together` returns or raises. A call never starts others this
way, so no thread waits for one that waits for it.
"""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from functools import cache
from typing import TypeVar

T = TypeVar("T")
Here = TypeVar("Here")
There = TypeVar("There")

_THREADS = 4


def together(calls: Sequence[Callable[[], T]]) -> list[T]:
    """What each gives, in order. The first runs here, the others in threads."""
    if not calls:
        return []
    waiting = [_threads().submit(call) for call in calls[1:]]
    try:
        first = calls[0]()
    finally:
        wait(waiting)
    return [first, *(each.result() for each in waiting)]


def both(here: Callable[[], Here], there: Callable[[], There]) -> tuple[Here, There]:
    """What two calls give. The second runs in a thread."""
    waiting = _threads().submit(there)
    try:
        first = here()
    finally:
        wait([waiting])
    return first, waiting.result()


@cache
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_THREADS, thread_name_prefix="omnigraph-lance")


# A process that was forked has none of the threads.
os.register_at_fork(after_in_child=_threads.cache_clear)
