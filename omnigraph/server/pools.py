"""Bounded thread pools with bounded queues, and per-actor admission of writes.

Invariant: work that finds its queue full is refused with 429 and `Retry-After` at once; the backlog
of a pool never exceeds its queue. What was admitted is released exactly once.
"""

import asyncio
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from time import perf_counter
from typing import Any, TypeVar

from omnigraph.server.refusals import overloaded

R = TypeVar("R")
_WEIGHT = 0.1
_BUSY_SECONDS = 1
_ACTOR_SECONDS = 60


class BoundedPool:
    """Threads for one kind of work, with a bounded number of waiting jobs."""

    def __init__(self, name: str, threads: int, queue: int) -> None:
        self.name = name
        self._threads = threads
        self._bound = threads + queue
        self._executor = ThreadPoolExecutor(threads, f"omnigraph-{name}")
        self._mean_s = 0.0
        self.inside = 0  # running and waiting; touched by the event loop alone

    @property
    def waiting(self) -> int:
        """Jobs that have no thread yet."""
        return max(0, self.inside - self._threads)

    def expected_wait_s(self) -> float:
        """About how long a job that comes now will wait for a thread."""
        return self.waiting / self._threads * self._mean_s

    def submit(self, work: Callable[[], R], *, wait_s: float | None = None) -> "asyncio.Future[R]":
        """Run work in a thread; refused when the queue is full, or the wait would exceed
        `wait_s`."""
        if self.inside >= self._bound:
            raise overloaded(f"too many {self.name} requests are waiting", seconds=_BUSY_SECONDS)
        if wait_s is not None and self.expected_wait_s() > wait_s:
            raise overloaded(
                f"a {self.name} request would wait longer than it may take", seconds=_BUSY_SECONDS
            )
        self.inside += 1
        loop = asyncio.get_running_loop()
        started = perf_counter()
        future = loop.run_in_executor(self._executor, work)

        def ended(_: Any) -> None:
            self.inside -= 1
            self._mean_s += _WEIGHT * (perf_counter() - started - self._mean_s)

        future.add_done_callback(ended)
        return future

    def close(self) -> None:
        """Take no more work; what runs goes on."""
        self._executor.shutdown(wait=False, cancel_futures=False)


class WriteAdmission:
    """Per-actor bounds on writes in flight: how many, and of how many bytes."""

    def __init__(self, inflight_max: int, bytes_max: int) -> None:
        self._inflight_max = inflight_max
        self._bytes_max = bytes_max
        self._inflight: Counter[str | None] = Counter()
        self._bytes: Counter[str | None] = Counter()
        self._lock = threading.Lock()

    @contextmanager
    def admitted(self, actor: str | None, size: int) -> Iterator[None]:
        """A write of an actor while it is in flight, or 429."""
        with self._lock:
            if self._inflight[actor] >= self._inflight_max:
                raise overloaded("this actor has too many writes in flight", seconds=_ACTOR_SECONDS)
            if self._bytes[actor] + size > self._bytes_max:
                raise overloaded("this actor has too many bytes in flight", seconds=_ACTOR_SECONDS)
            self._inflight[actor] += 1
            self._bytes[actor] += size
        try:
            yield
        finally:
            with self._lock:
                self._inflight[actor] -= 1
                self._bytes[actor] -= size
                if not self._inflight[actor]:
                    del self._inflight[actor], self._bytes[actor]
