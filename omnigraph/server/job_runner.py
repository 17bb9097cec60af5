"""Background jobs of one worker: a bounded queue, few threads, and a heartbeat in storage.

Invariant: every job that was accepted has a record from before its answer on, and ends as done,
failed, cancelled or interrupted. A worker that stops ends its jobs where they next report progress;
one that is killed leaves records which their next reader settles.
"""

import contextlib
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from typing import Any

import msgspec

from omnigraph.errors import OmnigraphError
from omnigraph.exec.progress import Progress, UpkeepProgress
from omnigraph.graph import Graph
from omnigraph.server.job_kinds import KINDS, JobOrder, committed
from omnigraph.server.job_records import (
    CANCELLED,
    DONE,
    FAILED,
    INTERRUPTED,
    RUNNING,
    JobRecords,
    now_us,
)
from omnigraph.server.refusals import overloaded
from omnigraph.server.request_log import RequestLog
from omnigraph.server.status import error_answer
from omnigraph.server.wire_jobs import JobOutput, JobRecord

TICK_S = 1.0
_BEAT_S = 10.0
_BUSY_SECONDS = 30
_COMMITTED = "done"  # the stage that work reports behind its commit


class JobStopped(Exception):
    """Raised inside a job that somebody cancelled, or whose worker stops."""


@dataclass
class _ActiveJob:
    """A job of this worker that has not ended."""

    record: JobRecord
    records: JobRecords
    graph: Graph
    stopped: threading.Event = field(default_factory=threading.Event)
    saved_at: float = field(default_factory=time.monotonic)
    changed: bool = False
    turn: threading.Lock = field(default_factory=threading.Lock)

    def report(self, progress: Progress | UpkeepProgress) -> None:
        """Note how far the work is; ends it if it was stopped."""
        shown = self.record.shown
        if self.stopped.is_set() and progress.stage != _COMMITTED:
            raise JobStopped
        shown.stage = progress.stage
        if isinstance(progress, UpkeepProgress):
            shown.tasks_done, shown.tasks_total = progress.done, progress.total
        else:
            shown.rows = progress.rows
            if progress.seconds > 0:
                shown.rows_per_second = round(progress.rows / progress.seconds, 1)
        self.changed = True

    def save(self) -> None:
        """Store the record as it is."""
        with self.turn:
            self.changed, self.saved_at = False, time.monotonic()
            self.records.save(self.record)


class JobRunner:
    """Runs the jobs that this worker accepted."""

    def __init__(self, threads: int, queue: int, log: RequestLog) -> None:
        self._executor = ThreadPoolExecutor(threads, "omnigraph-job")
        self._bound = threads + queue
        self._log = log
        self._active: dict[str, _ActiveJob] = {}
        self._futures: set[Future[None]] = set()
        self._ended: Counter[tuple[str, str]] = Counter()
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._ticker: threading.Thread | None = None

    def start(self, graph: Graph, record: JobRecord) -> JobOutput:
        """Queue a job whose record is not stored yet; that of the same id if there is one."""
        records = JobRecords(graph)
        with self._lock:
            if self._closing.is_set() or len(self._active) >= self._bound:
                raise overloaded("too many jobs are waiting", seconds=_BUSY_SECONDS)
            if record.shown.id in self._active or not records.create(record):
                return records.get(record.shown.id).shown
            shown = msgspec.convert(msgspec.to_builtins(record.shown), JobOutput)
            job = self._active[record.shown.id] = _ActiveJob(record, records, graph)
            future = self._executor.submit(self._run, job)
            self._futures.add(future)
            future.add_done_callback(self._futures.discard)
            if self._ticker is None:
                self._ticker = threading.Thread(target=self._tick, daemon=True)
                self._ticker.start()
        return shown

    def cancel(self, graph: Graph, job_id: str) -> JobOutput:
        """Ask for the end of a job of any worker."""
        shown = JobRecords(graph).cancel(job_id)
        job = self._active.get(job_id)
        if job is not None:
            job.stopped.set()
        return shown

    @property
    def running(self) -> int:
        """Jobs of this worker that have not ended."""
        return len(self._active)

    def totals(self) -> dict[str, float]:
        """How many jobs ended, by kind and state."""
        return {
            f'omnigraph_jobs_total{{kind="{kind}",state="{state}"}}': count
            for (kind, state), count in list(self._ended.items())
        }

    def stop(self) -> None:
        """Take no more jobs and end those there are, each where it next reports."""
        self._closing.set()
        for job in list(self._active.values()):
            job.stopped.set()

    def close(self, wait_s: float) -> None:
        """Stop, and wait for the jobs to end."""
        self.stop()
        with self._lock:
            self.stop()  # also one that was being accepted
            futures = list(self._futures)
        self._executor.shutdown(wait=False, cancel_futures=False)
        wait(futures, timeout=wait_s)

    # ---- in threads

    def _run(self, job: _ActiveJob) -> None:
        shown = job.record.shown
        try:
            if job.stopped.is_set():
                raise JobStopped
            shown.state, shown.started_at = RUNNING, now_us()
            self._stored(job, job.save)
            order = JobOrder(
                job.graph, job.record.request, shown.actor_id, job.record.mark, job.report
            )
            self._finish(job, DONE, result=KINDS[shown.kind].run(order))
        except JobStopped:
            result = self._committed(job)
            ended = INTERRUPTED if self._closing.is_set() else CANCELLED
            self._finish(job, ended if result is None else DONE, result=result)
        except Exception as cause:  # noqa: BLE001  every failure is the end of its job
            error = error_answer(cause)
            if error.is_fault:
                self._log.fault(shown.id, cause)
            document = {"status": error.status, **msgspec.to_builtins(error.body)}
            self._finish(job, FAILED, error=document)

    def _committed(self, job: _ActiveJob) -> dict[str, Any] | None:
        with contextlib.suppress(OmnigraphError):
            return committed(job.graph, job.record.request, job.record.mark)
        return None

    def _finish(
        self,
        job: _ActiveJob,
        state: str,
        *,
        result: dict[str, Any] | None = None,
        error: dict[str, Any] | None = None,
    ) -> None:
        shown = job.record.shown
        shown.state, shown.finished_at = state, now_us()
        if result is not None:
            shown.result = result
        if error is not None:
            shown.error = error
        with self._lock:
            self._active.pop(shown.id, None)
            self._ended[shown.kind, state] += 1
        self._stored(job, job.save)
        self._stored(job, lambda: job.records.forget_cancel(shown.id))
        seconds = (now_us() - shown.created_at) / 1e6
        self._log.event(
            "job", job=shown.id, kind=shown.kind, state=state, seconds=round(seconds, 3)
        )

    def _stored(self, job: _ActiveJob, write: Callable[[], None]) -> None:
        """Write to storage; a failure is logged, and the record is settled by a later reader."""
        try:
            write()
        except OmnigraphError as cause:
            self._log.event("job_not_stored", job=job.record.shown.id, cause=str(cause))

    def _tick(self) -> None:
        """Store progress and heartbeats, and see what was cancelled through other workers."""
        while not self._closing.wait(TICK_S):
            for job in list(self._active.values()):
                due = time.monotonic() - job.saved_at > _BEAT_S
                if job.record.shown.id in self._active and (job.changed or due):
                    self._stored(job, job.save)
                with contextlib.suppress(OmnigraphError):
                    if job.records.is_cancelled(job.record.shown.id):
                        job.stopped.set()
