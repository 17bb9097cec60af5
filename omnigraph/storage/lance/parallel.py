"""Thread pool for calls into Lance, which releases the GIL while it works.

Invariant: every call has ended when `together` returns or raises. A call never starts others this
way, so there is no deadlock: no thread waits for one that waits for it.
"""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from functools import cache
from typing import TypeVar

T = TypeVar("T")
First = TypeVar("First")
Second = TypeVar("Second")

_THREADS = 4


def together(calls: Sequence[Callable[[], T]]) -> list[T]:
    """The results in order. The first call runs in this thread, the others in the pool."""
    if not calls:
        return []
    waiting = [_threads().submit(call) for call in calls[1:]]
    try:
        first = calls[0]()
    finally:
        wait(waiting)
    return [first, *(each.result() for each in waiting)]


def in_turn(calls: Sequence[Callable[[], T]]) -> list[T]:
    """The results in order, one call after the other: for calls that take less than a thread."""
    return [call() for call in calls]


def both(one: Callable[[], First], other: Callable[[], Second]) -> tuple[First, Second]:
    """The results of two calls. The second runs in the pool."""
    waiting = _threads().submit(other)
    try:
        first = one()
    finally:
        wait([waiting])
    return first, waiting.result()


@cache
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_THREADS, thread_name_prefix="omnigraph-lance")


# A process that was forked has none of the threads.
os.register_at_fork(after_in_child=_threads.cache_clear)
