"""Two reads at once: Lance leaves Python while it reads, so a second core can take one of them.

Invariant: both have ended when `both` returns or raises, and the first one's error comes first.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import TypeVar

A = TypeVar("A")
B = TypeVar("B")

_THREADS = 4


def both(one: Callable[[], A], other: Callable[[], B]) -> tuple[A, B]:
    """What the two give. The second runs in a thread that must not call this itself."""
    waiting = _threads().submit(other)
    try:
        first = one()
    finally:
        waiting.exception()  # ended, however it went
    return first, waiting.result()


@cache
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_THREADS, thread_name_prefix="omnigraph-read")
