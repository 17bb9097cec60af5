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
from threading import get_ident
from time import perf_counter
from typing import Any, TypeVar

from omnigraph.server.refusals import overloaded

R = TypeVar("R")
_PoolJob = tuple["asyncio.Future[Any]", Callable[[], Any]]
_Outcome = tuple["asyncio.Future[Any]", Any, BaseException | None]
_OUTCOMES_MAX = 32
_NO_THREAD_S = 0.1
PATIENCE_S = 0.002
"""Reads: a hundred times what waking a thread costs, and nothing that a person would notice."""

_WEIGHT = 0.1
_BUSY_SECONDS = 1
_ACTOR_SECONDS = 60


class BoundedPool:
    """Threads for one kind of work, with a bounded number of waiting jobs.

    A future of the event loop is all that a job has: the executor of the standard library makes a
    second one with a lock and a condition, which costs more than a point lookup.

    With `patience_s`, jobs of one turn of the event loop go to one thread, and their outcomes come
    back together: to wake a thread, and to pass it the interpreter's lock, costs more than a point
    lookup as well. While jobs wait, a look every `patience_s` brings what has ended, and wakes one
    more thread if no job was taken since the last look: what waits behind a long job waits for
    about as many looks as there are long ones. Without it each job wakes a thread.
    """

    def __init__(self, name: str, threads: int, queue: int, patience_s: float = 0.0) -> None:
        self.name = name
        self._threads = threads
        self._bound = threads + queue
        self._patience_s = patience_s
        self._jobs: deque[_PoolJob] = deque()
        self._outcomes: deque[_Outcome] = deque()
        self._wakes: SimpleQueue[bool] = SimpleQueue()
        self._lock = threading.Lock()  # of `_awake`
        self._awake = 0  # threads that take jobs, woken ones included
        self._started = 0
        self._taken = 0  # jobs; a race of two threads may lose one, which wakes one too many
        self._taken_at_look = 0
        self._is_handing = self._is_looking = self._is_lacking = False
        self._mean_s = 0.0
        self._begun: dict[int, float] = {}  # when each busy thread began its job
        self.inside = 0  # running and waiting; touched by the event loop alone

    @property
    def waiting(self) -> int:
        """Jobs that have no thread yet."""
        return max(0, self.inside - self._threads)

    def stuck_s(self) -> float:
        """How long every thread has been busy with the job it has now; 0 if one is free.

        A job that its request gave up counts until its thread is free again.
        """
        begun = list(self._begun.values())
        return perf_counter() - max(begun) if len(begun) >= self._threads else 0.0

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
        job: _PoolJob = future, work
        started = perf_counter()

        def ended(_: Any) -> None:
            self.inside -= 1
            self._mean_s += _WEIGHT * (perf_counter() - started - self._mean_s)
            if future.cancelled():
                with contextlib.suppress(ValueError):  # a thread has it
                    self._jobs.remove(job)

        future.add_done_callback(ended)
        self._jobs.append(job)
        if not self._patience_s:
            self._wake(1)
        elif not self._is_handing:
            self._is_handing = True
            self._loop.call_soon(self._hand_over)
        return future

    @cached_property
    def _loop(self) -> asyncio.AbstractEventLoop:
        """The event loop, asked for once: each time costs a call of the system."""
        return asyncio.get_running_loop()

    # ---- in the event loop

    def _hand_over(self) -> None:
        """Give the jobs of this turn to the thread that is awake, or wake one."""
        self._is_handing = False
        if self._jobs and not self._awake:
            self._wake(1)
        self._look_later()

    def _look_later(self) -> None:
        # A thread that is awake may have taken all jobs of a turn before the turn ended: what it
        # has done then waits behind a job that may be long.
        if (self._jobs or self._outcomes) and not self._is_looking:
            self._is_looking = True
            self._taken_at_look = self._taken
            self._loop.call_later(self._patience_s, self._look)

    def _look(self) -> None:
        """Bring what has ended; wake threads for what waits behind a long job."""
        self._is_looking = False
        self._settle_outcomes()
        if self._jobs and self._taken == self._taken_at_look:
            self._wake(1)
        self._look_later()

    def _wake(self, number: int) -> None:
        with self._lock:
            number = min(number, self._threads - self._awake)
            self._awake += number
            missing = self._awake - self._started
        for started in range(missing):
            name = f"omnigraph-{self.name}_{self._started + 1}"
            try:
                threading.Thread(target=self._serve, name=name, daemon=True).start()
            except RuntimeError:  # the system has no thread left: jobs wait until it has
                lacking = missing - started
                with self._lock:
                    self._awake -= lacking
                number -= lacking
                self._wake_later()
                break
            self._started += 1
        for _ in range(number):
            self._wakes.put(True)

    def _wake_later(self) -> None:
        if not self._is_lacking:  # one timer, however many threads are missing
            self._is_lacking = True
            self._loop.call_later(_NO_THREAD_S, self._wake_again)

    def _wake_again(self) -> None:
        self._is_lacking = False
        self._wake(len(self._jobs))

    def _settle_outcomes(self) -> None:
        while self._outcomes:
            _settle(*self._outcomes.popleft())

    # ---- in a thread

    def _serve(self) -> None:
        """Take jobs whenever the thread is woken."""
        while self._wakes.get():
            while self._jobs_taken():
                pass

    def _jobs_taken(self) -> bool:
        """Work at one job after the other until none waits; whether to begin anew."""
        while self._jobs:
            try:
                future, work = self._jobs.popleft()
            except IndexError:  # another thread was faster
                break
            self._taken += 1
            if not future.cancelled():
                self._begun[get_ident()] = perf_counter()
                self._outcomes.append((future, *_outcome_of(work)))
                self._begun.pop(get_ident(), None)
                if not self._patience_s or len(self._outcomes) >= _OUTCOMES_MAX:
                    self._bring()
            del future, work  # a thread that waits keeps no answer
        if self._outcomes:
            self._bring()
        with self._lock:
            self._awake -= 1
            # A job that came before this was not handed to a thread, as one was awake.
            is_left = bool(self._jobs)
            self._awake += is_left
        return is_left

    def _bring(self) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._settle_outcomes)

    def close(self) -> None:
        """Take no more work; what runs goes on."""
        for _ in range(self._started):
            self._wakes.put(False)


def _outcome_of(work: Callable[[], Any]) -> tuple[Any, BaseException | None]:
    try:
        return work(), None
    except BaseException as cause:  # noqa: BLE001  it is the outcome of the job
        return None, cause


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
