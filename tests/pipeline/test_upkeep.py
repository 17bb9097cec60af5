"""Upkeep on Spark does what it does in one process."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from omnigraph.errors import StorageFailed
from omnigraph.pipeline import executors
from omnigraph.storage.manifest import manifest
from tests.exec.upkeep.test_optimize import answers, indexes
from tests.exec.upkeep_world import KNOWS, PERSON, add, content, foreign_append, fragments, made


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody counts versions here, so that cleanup need not wait."""
    monkeypatch.setattr(manifest, "RECLAIM_AGE_S", 0.0)


def test_optimize_runs_tasks_on_executors_and_commits_once(
    tmp_path: Path, spark: SparkSession
) -> None:
    with made(tmp_path / "g") as graph:
        rows, asked, commits = content(graph), answers(graph), len(graph.commits.list())
        report = graph.optimize(engine="spark", spark=spark)
        assert report.engine == "spark"
        assert len(graph.commits.list()) == commits + 1
        assert [fragments(graph, key) for key in (PERSON, KNOWS)] == [1, 1]
        assert set(indexes(graph).values()) == {(360, True)}
        assert (content(graph), answers(graph)) == (rows, asked)
        assert "lance.rewrite" not in {
            name for name, count in graph.stats().calls.items() if count > 1
        }, "only the manifest is rewritten by the driver"
        assert graph.check().findings == ()
        assert graph.optimize(engine="spark", spark=spark).commit_id is None
        add(graph, 1000, 1010)


def test_cleanup_and_repair_on_executors(tmp_path: Path, spark: SparkSession) -> None:
    with made(tmp_path / "g", 4) as graph:
        before = content(graph)
        local = graph.cleanup(keep=1, grace=0)
        assert graph.cleanup(keep=1, grace=0, engine="spark", spark=spark) == local
        done = graph.cleanup(keep=1, grace=0, confirm=True, engine="spark", spark=spark)
        assert done.tables == local.tables
        assert content(graph) == before
        foreign_append(graph, 1000, 1001)
        assert graph.repair(engine="spark", spark=spark).tables == graph.repair().tables
        forced = graph.repair(confirm=True, force=True, engine="spark", spark=spark)
        assert len(forced.commit_ids) == 1
        assert content(graph) == before


def test_a_task_that_fails_fails_the_run_and_changes_nothing(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    with made(tmp_path / "g", 3) as graph:
        before = graph.snapshot()
        where = executors.Where(f"{graph.uri}/gone", None)
        monkeypatch.setattr(executors, "Where", lambda *_: where)
        with pytest.raises(StorageFailed, match="upkeep on Spark"):
            graph.optimize(engine="spark", spark=spark)
        assert graph.snapshot() == before
        assert graph._store.sidecars.pending() == ()
