"""Progress of a load on Spark: told while tasks run, not only when they have ended."""

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import SparkSession

from omnigraph.exec.progress import Progress
from omnigraph.pipeline import task_progress
from omnigraph.pipeline.task_progress import TaskProgress, tasks_of
from tests.exec.bulk import lines, new_graph, person


def test_a_load_on_spark_tells_its_tasks_while_they_run(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task_progress, "LOOK_S", 0.01)
    told: list[Progress] = []
    graph = new_graph(tmp_path)
    people = (person(f"Person {number}") for number in range(200))
    (tmp_path / "people.jsonl").write_bytes(lines(*people))
    source = str(tmp_path / "people.jsonl")
    graph.load(source, "append", engine="spark", spark=spark, progress=told.append)
    stages = [each.stage for each in told]
    assert stages[:2] == ["start", "read"]
    assert stages[-1] == "done" or "tasks" not in stages[-1]
    assert any(stage.startswith("read ") and stage.endswith(" tasks") for stage in stages)
    assert [each.seconds for each in told] == sorted(each.seconds for each in told)


class Tracker:
    """A status tracker with one job of two stages."""

    def getActiveJobsIds(self) -> list[int]:
        return [7]

    def getJobInfo(self, job_id: int) -> Any:
        return SimpleNamespace(stageIds=[1, 2, 3])

    def getStageInfo(self, stage_id: int) -> Any:
        stages = {1: (4, 4), 2: (1, 6)}
        if stage_id not in stages:
            return None
        done, total = stages[stage_id]
        return SimpleNamespace(numCompletedTasks=done, numTasks=total)


def test_tasks_of_all_stages_of_running_jobs_are_counted() -> None:
    session: Any = SimpleNamespace(sparkContext=SimpleNamespace(statusTracker=Tracker))
    assert tasks_of(session) == (5, 10)


def test_an_error_of_the_listener_is_raised_when_the_work_has_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(task_progress, "LOOK_S", 0.001)
    session: Any = SimpleNamespace(sparkContext=SimpleNamespace(statusTracker=Tracker))
    ended: list[bool] = []

    def refuse(progress: Progress) -> None:
        raise RuntimeError(progress.stage)

    told = TaskProgress(refuse)

    def work() -> None:
        with told.following(session):
            while told._failure is None:
                time.sleep(0.001)
            ended.append(True)

    with pytest.raises(RuntimeError, match="read 5/10 tasks"):
        work()
    assert ended
