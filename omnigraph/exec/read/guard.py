"""Worker threads for queries, so that a caller can leave one at its timeout or on an interrupt.

Invariant: `run` returns the result of the work, or raises soon after the watch's deadline or at
once on an interrupt, whatever the work is doing. One call into Arrow or numpy may last long and
cannot be cancelled, so the work runs in another thread than its caller's; left alone, it ends where
it next looks at its watch, and its result is dropped.
"""

import os
import threading
from collections.abc import Callable
from queue import SimpleQueue
from time import perf_counter
from typing import Any, TypeVar

from omnigraph.exec.limits import Watch, watched_by

Done = TypeVar("Done")

_GRACE_S = 0.05
"""The time that work gets beyond its deadline to raise by itself, naming its operator."""

_IDLE_MAX = 16
_WAIT_MAX_S = 3600.0


class _Job:
    """One piece of work, and its result or error."""

    __slots__ = ("ended", "error", "result", "watch", "work")

    def __init__(self, watch: Watch, work: Callable[[], Any]) -> None:
        self.watch = watch
        self.work = work
        self.ended = threading.Lock()
        self.ended.acquire()
        self.result: Any = None
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            with watched_by(self.watch):
                self.result = self.work()
        except BaseException as error:  # noqa: BLE001  the caller raises it
            self.error = error
        self.ended.release()


class _Worker:
    """A thread that takes one piece of work after the other."""

    def __init__(self) -> None:
        self.jobs: SimpleQueue[_Job] = SimpleQueue()
        threading.Thread(target=self._serve, name="omnigraph-query", daemon=True).start()

    def _serve(self) -> None:
        while True:
            self.jobs.get().run()
            if len(_idle) >= _IDLE_MAX:
                return
            _idle.append(self)


_idle: list[_Worker] = []
os.register_at_fork(after_in_child=_idle.clear)  # a child has none of its parent's threads


def run(watch: Watch, work: Callable[[], Done]) -> Done:
    """The result of the work, within the time of its watch."""
    job = _Job(watch, work)
    try:
        worker = _idle.pop()
    except IndexError:
        worker = _Worker()
    worker.jobs.put(job)
    try:
        _wait(job)
    except BaseException:
        watch.cancel()
        raise
    if job.error is not None:
        raise job.error
    result: Done = job.result
    return result


def _wait(job: _Job) -> None:
    left = job.watch.deadline + _GRACE_S - perf_counter()
    while not job.ended.acquire(timeout=max(0.0, min(left, _WAIT_MAX_S))):
        left = job.watch.deadline + _GRACE_S - perf_counter()
        if left <= 0:
            job.watch.tick()
