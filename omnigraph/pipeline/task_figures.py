"""Figures of a query's tasks, brought to the driver by a Spark accumulator.

Invariant: figures are for people; a task that ran twice counts twice, and no answer depends on
them. Spark Connect has no accumulators, and so no figures.
"""

from typing import TYPE_CHECKING

from pyspark import Accumulator
from pyspark.accumulators import AccumulatorParam

from omnigraph.exec.profile import Figures
from omnigraph.pipeline.connect_session import is_connect

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class _Runs(AccumulatorParam[list[Figures]]):
    """A list that tasks extend."""

    def zero(self, value: list[Figures]) -> list[Figures]:
        return []

    def addInPlace(self, value1: list[Figures], value2: list[Figures]) -> list[Figures]:
        return value1 + value2


class TaskFigures:
    """Takes the figures of runs, in tasks, and has them all on the driver."""

    def __init__(self, runs: Accumulator[list[Figures]]) -> None:
        self._runs = runs

    def add(self, figures: Figures) -> None:
        """Note a run."""
        self._runs.add([figures])

    @property
    def value(self) -> list[Figures]:
        return self._runs.value


def task_figures(spark: "SparkSession") -> TaskFigures | None:
    """Figures that tasks of a session can add to; None with a session that has no accumulators."""
    if is_connect(spark):
        return None
    return TaskFigures(spark.sparkContext.accumulator([], _Runs()))
