"""Progress of work on Spark: the tasks that have ended, looked up while the driver waits for a job.

Invariant: the listener is called at the beginning of the work, at each stage and about twice a
second in between. An error of the listener is raised when the job that it ran beside has ended.
"""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from omnigraph.exec.progress import OnProgress, Progress
from omnigraph.pipeline.connect_session import is_connect

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOOK_S = 0.5


class TaskProgress:
    """The stage of the work and its rows so far, told to a listener."""

    def __init__(self, tell: OnProgress | None) -> None:
        self._tell = tell
        self._started = time.monotonic()
        self._stage, self._rows = "read", 0
        self._failure: BaseException | None = None

    def report(self, stage: str, rows: int) -> None:
        """Tell that a stage has so many rows."""
        self._stage, self._rows = stage, rows
        self._said(stage)

    def _said(self, text: str) -> None:
        if self._tell is not None:
            self._tell(Progress(text, self._rows, time.monotonic() - self._started))

    @contextmanager
    def following(self, spark: "SparkSession") -> Iterator[None]:
        """Tell the ended tasks of the session's running jobs while the block runs."""
        if self._tell is None:
            yield
            return
        ended = threading.Event()
        thread = threading.Thread(target=self._follow, args=(spark, ended), daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()
        if self._failure is not None:
            raise self._failure

    def _follow(self, spark: "SparkSession", ended: threading.Event) -> None:
        try:
            while not ended.wait(LOOK_S):
                done, total = tasks_of(spark)
                self._said(f"{self._stage} {done}/{total} tasks" if total else self._stage)
        except BaseException as failure:  # noqa: BLE001  raised where the work is
            self._failure = failure


def tasks_of(spark: "SparkSession") -> tuple[int, int]:
    """How many tasks of the running jobs have ended, of how many. Spark Connect does not say."""
    if is_connect(spark):
        return 0, 0
    tracker = spark.sparkContext.statusTracker()
    done = total = 0
    for job_id in tracker.getActiveJobsIds():
        job = tracker.getJobInfo(job_id)
        for stage_id in () if job is None else job.stageIds:
            stage = tracker.getStageInfo(stage_id)
            if stage is not None:
                done, total = done + stage.numCompletedTasks, total + stage.numTasks
    return done, total
