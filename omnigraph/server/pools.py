"""Bounded thread pools with bounded queues, and per-actor admission of writes.

Invariant: work that finds its queue full is refused with 429 and `Retry-After` at once; the backlog
of a pool never exceeds its queue. What was admitted is released exactly once.
"""

import asyncio
import contextlib
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from queue import SimpleQueue
from time import perf_counter
from typing import Any, TypeVar

from omnigraph.server.refusals import overloaded

R = TypeVar("R")
_PoolJob = tuple[asyncio.AbstractEventLoop, "asyncio.Future[Any]", Callable[[], Any]]
_WEIGHT = 0.1
_BUSY_SECONDS = 1
_ACTOR_SECONDS = 60


class BoundedPool:
    """Threads for one kind of work, with a bounded number of waiting jobs.

    A future of the event loop is all that a job has: the executor of the standard library makes a
    second one with a lock and a condition, which costs more than a point lookup.
    """

    def __init__(self, name: str, threads: int, queue: int) -> None:
        self.name = name
        self._threads = threads
        self._bound = threads + queue
        self._jobs: SimpleQueue[_PoolJob | None] = SimpleQueue()
        self._started = 0
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
        if self.inside > self._started and self._started < self._threads:
            self._started += 1
            name = f"omnigraph-{self.name}_{self._started}"
            threading.Thread(target=self._serve, name=name, daemon=True).start()
        loop = self._loop
        future: asyncio.Future[R] = loop.create_future()
        started = perf_counter()

        def ended(_: Any) -> None:
            self.inside -= 1
            self._mean_s += _WEIGHT * (perf_counter() - started - self._mean_s)

        future.add_done_callback(ended)
        self._jobs.put((loop, future, work))
        return future

    @cached_property
    def _loop(self) -> asyncio.AbstractEventLoop:
        """The event loop, asked for once: each time costs a call of the system."""
        return asyncio.get_running_loop()

    def _serve(self) -> None:
        """Work at one job after the other, in a thread."""
        while (job := self._jobs.get()) is not None:
            loop, future, work = job
            if future.cancelled():
                continue
            try:
                done: tuple[Any, BaseException | None] = work(), None
            except BaseException as cause:  # noqa: BLE001  it is the outcome of the job
                done = None, cause
            with contextlib.suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(_settle, future, *done)
            del job, loop, future, work, done  # a thread that waits keeps no answer

    def close(self) -> None:
        """Take no more work; what runs goes on."""
        for _ in range(self._started):
            self._jobs.put(None)


def _settle(future: "asyncio.Future[Any]", result: Any, cause: BaseException | None) -> None:
    if future.done():  # its request was given up
        return
    if cause is None:
        future.set_result(result)
    elif isinstance(cause, StopIteration):
        future.set_exception(RuntimeError("a job ended with StopIteration"))
    else:
        future.set_exception(cause)


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
