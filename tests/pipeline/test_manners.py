"""Manners on a cluster: names of jobs, cancelling, sessions without a context, archives, private
parts."""

import gc
import pickle
import threading
import time
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import pyspark
import pytest
from pyspark import RDD, TaskContext
from pyspark.sql import SparkSession

import omnigraph as og
from omnigraph import spark as ogs
from omnigraph.costs import COSTS
from omnigraph.exec.load.sources import Part
from omnigraph.exec.load.spill import Spill
from omnigraph.pipeline import executors, spark_load
from omnigraph.pipeline.executors import pickled_task, run_tasks, spark_errors
from omnigraph.pipeline.folder_exchange import FolderExchange
from omnigraph.pipeline.shuffle_exchange import ShuffleExchange
from omnigraph.pipeline.spark_load import _title
from tests.exec.bulk import by_name, lines, new_graph, person

TRIED = "4.3.0"
"""The PySpark whose private parts the shuffle exchange was tried with."""


def tenfold(number: int) -> int:
    """A task."""
    return number * 10


def test_SC1_without_a_context_tasks_run_by_way_of_a_frame(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = new_graph(tmp_path)
    graph.load(lines(person("Ada", age=1), person("Bob")), "append", engine="local")
    for module in (executors, spark_load):
        monkeypatch.setattr(module, "is_connect", lambda spark: True)
    assert run_tasks(spark, tenfold, [3, 1, 2], doing="tried it") == [30, 10, 20]
    assert run_tasks(spark, tenfold, [], doing="tried it") == []
    monkeypatch.setattr(COSTS, "upsert_rows_max", 0)
    graph.load(lines(person("Ada", age=2), person("Cy")), "merge", engine="spark", spark=spark)
    assert {name: row["age"] for name, row in by_name(graph, "node:Person").items()} == {
        "Ada": 2,
        "Bob": None,
        "Cy": None,
    }
    assert not list((Path(graph.uri) / "__scratch").iterdir())
    assert not spark.getTags()


def spared(_: int) -> int:
    return gc.get_freeze_count()


def test_a_worker_looks_for_garbage_among_what_came_after_its_first_task(
    spark: SparkSession,
) -> None:
    run_tasks(spark, tenfold, list(range(8)), doing="tried it")
    later = run_tasks(spark, spared, list(range(8)), doing="tried it")
    # A worker that was started for these tasks alone has spared nothing when its first one begins.
    assert max(later) > 10_000


def test_tasks_that_run_here_leave_the_garbage_collector_alone() -> None:
    before = gc.get_freeze_count()
    pickle.loads(pickled_task(tenfold, pickle.dumps(3)))
    assert gc.get_freeze_count() == before


def described(number: int, out: Spill) -> str | None:
    """A job that tells what Spark calls it."""
    context = TaskContext.get()
    return None if context is None else context.getLocalProperty("spark.job.description")


@pytest.mark.parametrize("way", ["folder", "shuffle"])
def test_SC2_jobs_say_which_load_they_belong_to(
    spark: SparkSession, tmp_path: Path, way: str
) -> None:
    title = _title((Part(0, "/in/a.jsonl", "json", 3, label="a.jsonl"),) * 2)
    assert title == "omnigraph load a.jsonl"
    exchange: Any = ShuffleExchange(spark, 2, "tried it", None, title)
    if way == "folder":
        exchange = FolderExchange(spark, tmp_path, 2, "tried it", title)
    (name,), _ = exchange.put(described, [1])
    assert name is not None
    assert name.startswith("omnigraph load a.jsonl: ")
    assert spark.sparkContext.getLocalProperty("spark.job.description") is None


def sleeps(number: int) -> None:
    time.sleep(120)


def test_SC2_cancelling_a_group_cancels_what_runs_in_it(spark: SparkSession) -> None:
    context = spark.sparkContext
    context.setJobGroup("ours", "of the caller", interruptOnCancel=True)

    def cancel() -> None:
        until = time.monotonic() + 100
        while not context.statusTracker().getActiveStageIds() and time.monotonic() < until:
            time.sleep(0.05)
        context.cancelJobGroup("ours")

    cancelling = threading.Thread(target=cancel)
    cancelling.start()
    try:
        with pytest.raises(og.StorageFailed, match="its jobs were cancelled"):
            run_tasks(spark, sleeps, [1], doing="ran the load")
    finally:
        cancelling.join()
        for name in ("spark.jobGroup.id", "spark.job.description", "spark.job.interruptOnCancel"):
            context.setLocalProperty(name, None)  # type: ignore[arg-type]


def test_SC3_an_executor_without_the_package_says_how_to_bring_it() -> None:
    error = type("PythonException", (Exception,), {"__module__": "pyspark.errors"})
    with pytest.raises(og.StorageFailed, match="omnigraph spark package"), spark_errors("ran it"):
        raise error("Traceback\nModuleNotFoundError: No module named 'omnigraph'\n")


def test_SC3_a_wrong_archive_fails_at_once(tmp_path: Path) -> None:
    with pytest.raises(og.NotFound, match="omnigraph spark package"):
        ogs.session(archive=str(tmp_path / "none.tar.gz"))
    (tmp_path / "text").write_text("no archive")
    with pytest.raises(og.BadRequest, match="is no archive of OmniGraph"):
        ogs.session(archive=str(tmp_path / "text"))


def test_SX1_the_private_parts_of_pyspark_are_those_that_were_tried(spark: SparkSession) -> None:
    assert pyspark.__version__ == TRIED, (
        "another PySpark: run tests/pipeline with it, the slow ones too, and then change TRIED"
    )
    jvm: Any = spark.sparkContext._jvm
    spread = spark.sparkContext.parallelize([1], 1).map(partial(max, 0))
    assert hasattr(spread, "_jrdd")
    assert isinstance(RDD(spread._jrdd, spark.sparkContext), RDD)
    for name in ("PairwiseRDD", "PythonPartitioner", "PythonRDD", "PythonUtils"):
        assert type(getattr(jvm, name)).__name__ == "JavaClass", name
    assert jvm.PythonPartitioner(3, 0).numPartitions() == 3
    serializers = import_module("pyspark.serializers")
    assert serializers.pack_long(1) == (1).to_bytes(8, "big")
    assert "_bypass_serializer" in Path(import_module("pyspark.core.rdd").__file__).read_text()
