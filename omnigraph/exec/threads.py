"""Thread pool helpers: calls in a bounded pool, results in order, the first error wins.

Invariant: at most `threads` calls run at a time. Results come in the order of the calls. When one
raises, calls that have not begun are cancelled and those that run are waited for.
"""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from itertools import chain, islice
from typing import Generic, TypeVar

Item = TypeVar("Item")
Done = TypeVar("Done")


class Jobs(Generic[Done]):
    """A queue of calls that a few threads work through."""

    def __init__(self, threads: int) -> None:
        self._pool = ThreadPoolExecutor(threads)
        self._queue: list[Future[Done]] = []

    def start(self, call: Callable[[], Done]) -> None:
        """Put a call at the end of the queue. Whoever bounds memory takes `results` in between."""
        self._queue.append(self._pool.submit(call))

    def results(self, left: int = 0) -> Iterator[Done]:
        """Wait for the oldest calls until at most `left` are without a result taken."""
        while len(self._queue) > left:
            yield self._queue.pop(0).result()

    def close(self) -> None:
        """Cancel calls that have not begun and wait for those that run."""
        self._pool.shutdown(cancel_futures=True)


def in_order(
    work: Callable[[Item], Done],
    items: Iterable[Item],
    *,
    threads: int,
    ahead: int | None = None,
) -> Iterator[Done]:
    """The result for each item, in order, worked out by threads.

    At most `ahead` calls go beyond the item whose result was taken; without it all items are
    started at once. A single item is worked out in the caller's thread.
    """
    rest = iter(items)
    first = list(islice(rest, 2))
    if len(first) < 2:
        yield from map(work, first)
        return
    jobs: Jobs[Done] = Jobs(threads)
    try:
        for item in chain(first, rest):
            jobs.start(partial(work, item))
            if ahead is not None:
                yield from jobs.results(left=ahead)
        yield from jobs.results()
    finally:
        jobs.close()
