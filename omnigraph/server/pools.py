"""Bounded thread pools with bounded queues, and per-actor admission of writes.

Invariant: work that finds its queue full is refused with 429 and `Retry-After` at once; the backlog
of a pool never exceeds its queue. What was admitted is released exactly once.
"""

import asyncio
import contextlib
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from queue import SimpleQueue
from time import perf_counter
from typing import Any, TypeVar

from omnigraph.server.refusals import overloaded

R = TypeVar("R")
_PoolJob = tuple["asyncio.Future[Any]", Callable[[], Any]]
_Outcome = tuple["asyncio.Future[Any]", Any, BaseException | None]
_LONG_S = 0.01  # a job that takes longer keeps no other waiting
_WEIGHT = 0.1
_BUSY_SECONDS = 1
_ACTOR_SECONDS = 60


class BoundedPool:
    """Threads for one kind of work, with a bounded number of waiting jobs.

    Where jobs are short, `short_threads` do them: the interpreter runs one at a time, and each
    thread more that wakes for one costs as much as the job. Beside a job that proves long another
    thread goes on, up to `threads`.

    A future of the event loop is all that a job has: the executor of the standard library makes a
    second one with a lock and a condition, which costs more than a point lookup.
    """

    def __init__(
        self, name: str, threads: int, queue: int, short_threads: int | None = None
    ) -> None:
        self.name = name
        self._threads = threads
        self._short_threads = threads if short_threads is None else short_threads
        self._bound = threads + queue
        self._jobs: deque[_PoolJob] = deque()
        self._done: deque[_Outcome] = deque()
        self._workers = [_PoolThread() for _ in range(threads)]
        self._lock = threading.Lock()
        self._is_closed = False
        self._is_told = False  # the event loop will look at what is done
        self._is_watched = False  # the event loop will look for jobs that take long
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
        future: asyncio.Future[R] = self._loop.create_future()
        started = perf_counter()

        def ended(_: Any) -> None:
            self.inside -= 1
            self._mean_s += _WEIGHT * (perf_counter() - started - self._mean_s)

        future.add_done_callback(ended)
        with self._lock:
            self._jobs.append((future, work))
            self._staff()
        if not self._is_watched and self._jobs:
            self._is_watched = True
            self._loop.call_later(_LONG_S, self._watch)
        return future

    @cached_property
    def _loop(self) -> asyncio.AbstractEventLoop:
        """The event loop, asked for once: each time costs a call of the system."""
        return asyncio.get_running_loop()

    def _staff(self) -> None:
        """Wake a thread, unless as many as do short jobs are at one that has not proved long.
        Needs the lock."""
        now = perf_counter()
        short, idle = 0, None
        for thread in self._workers:
            if thread.since is None:
                idle = idle or thread
            elif thread.since > now - _LONG_S:
                short += 1
        if idle is None or short >= self._short_threads:
            return
        idle.since = now
        if idle.is_started:
            idle.wake.put(None)
            return
        idle.is_started = True
        name = f"omnigraph-{self.name}_{self._workers.index(idle) + 1}"
        threading.Thread(target=self._serve, args=(idle,), name=name, daemon=True).start()

    def _watch(self) -> None:
        """Wake threads for jobs that wait behind long ones."""
        with self._lock:
            for _ in range(min(len(self._jobs), self._short_threads)):
                self._staff()
            self._is_watched = bool(self._jobs)
        if self._is_watched:
            self._loop.call_later(_LONG_S, self._watch)

    def _serve(self, thread: "_PoolThread") -> None:
        """Work at one job after the other, in a thread."""
        while not self._is_closed:
            with self._lock:
                job = self._jobs.popleft() if self._jobs else None
                thread.since = None if job is None else perf_counter()
            if job is None:
                thread.wake.get()
            elif not job[0].cancelled():
                self._run(*job)
            del job  # a thread that waits keeps no answer

    def _run(self, future: "asyncio.Future[Any]", work: Callable[[], Any]) -> None:
        try:
            self._done.append((future, work(), None))
        except BaseException as cause:  # noqa: BLE001  it is the outcome of the job
            self._done.append((future, None, cause))
        if not self._is_told:
            self._is_told = True
            with contextlib.suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(self._settle)

    def _settle(self) -> None:
        """Give the outcomes to those who wait for them."""
        self._is_told = False  # first: what is done from now on is told again
        while self._done:
            _settle(*self._done.popleft())

    def close(self) -> None:
        """Take no more work; what runs goes on."""
        self._is_closed = True
        for thread in self._workers:
            thread.wake.put(None)


class _PoolThread:
    """A thread of a pool, and since when it is at its job; None while it waits for one."""

    __slots__ = ("is_started", "since", "wake")

    def __init__(self) -> None:
        self.is_started = False
        self.since: float | None = None
        self.wake: SimpleQueue[None] = SimpleQueue()


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
