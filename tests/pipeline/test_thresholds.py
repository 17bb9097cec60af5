"""Thresholds of the driver reach Python workers of a Spark session, and leave them again."""

from pathlib import Path

from pyspark.sql import SparkSession

import omnigraph as og
from omnigraph import spark as ogs
from omnigraph.costs import COSTS, THRESHOLDS
from omnigraph.pipeline.executors import run_tasks
from omnigraph.testing import lower_thresholds


def _value(name: str) -> int:
    return int(getattr(COSTS, name))


def test_tasks_have_the_thresholds_of_the_driver(spark: SparkSession) -> None:
    usual = THRESHOLDS["upsert_rows_max"].value

    def of_tasks() -> list[int]:
        return run_tasks(spark, _value, ["upsert_rows_max"] * 3, doing="looked")

    assert of_tasks() == [usual] * 3
    with lower_thresholds(None, values={"upsert_rows_max": 3}):
        assert of_tasks() == [3] * 3
    assert of_tasks() == [usual] * 3


def test_reads_of_the_format_are_planned_with_the_thresholds_of_the_driver(
    spark: SparkSession, tmp_path: Path
) -> None:
    ogs.register(spark)
    graph = og.init(tmp_path / "g", "node P { name: String @key }")
    for number in range(3):
        graph.load([{"type": "P", "data": {"name": str(number)}}], mode="append")

    def partitions() -> int:
        read = spark.read.format("omnigraph").option("type", "P")
        return read.load(graph.uri).rdd.getNumPartitions()

    assert partitions() == 1
    with lower_thresholds(None, values={"spark_partition_rows": 1}):
        assert partitions() == 3
    assert partitions() == 1
