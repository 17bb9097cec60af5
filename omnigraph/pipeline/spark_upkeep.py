"""Upkeep on Spark: tasks on executors, one commit by the driver.

Invariant: a task gets a small value and gives one back: what to rewrite, index, reclaim or look at,
and what came of it. What a task wrote counts only through the result that Spark delivers once, so a
task that ran twice leaves nothing but files that nobody names. No rows pass through the JVM.
"""

import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from omnigraph.errors import StorageFailed
from omnigraph.pipeline.session import session
from omnigraph.storage.cleanup import LineTask, TableCleanup
from omnigraph.storage.compaction import Outcome, Task
from omnigraph.storage.repair import Look, TableRepair
from omnigraph.storage.store import Store, open_store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Item = TypeVar("Item")
Done = TypeVar("Done")


@dataclass(frozen=True, slots=True)
class Where:
    """The graph, as a task is told it."""

    uri: str
    storage_options: dict[str, str] | None

    def open(self) -> Store:
        """The graph, for a task that moves no head."""
        return open_store(self.uri, read_only=True, storage_options=self.storage_options)


class OnSpark:
    """Runs the tasks of upkeep in the session given, the active one, or a new one."""

    def __init__(self, store: Store, spark: "SparkSession | None" = None) -> None:
        self._spark = spark or session("bulk")
        self._where = Where(store.where.uri, store.where.storage_options)

    @property
    def parallelism(self) -> int:
        return int(self._spark.sparkContext.defaultParallelism)

    def optimize(self, tasks: Sequence[Task]) -> Sequence[Outcome]:
        """Rewrite fragments and build segments of indexes."""
        return self._map(_optimize, tasks)

    def reclaim(self, tasks: Sequence[LineTask]) -> Sequence[TableCleanup]:
        """Remove or count versions."""
        return self._map(_reclaim, tasks)

    def look(self, looks: Sequence[Look]) -> Sequence[TableRepair]:
        """Classify drift."""
        return self._map(_look, looks)

    def _map(self, work: Callable[[Where, Item], Done], items: Sequence[Item]) -> list[Done]:
        """One task an item; the results in the order of the items."""
        packed = [pickle.dumps(item) for item in items]
        if not packed:
            return []
        task = partial(_task, work, self._where)
        try:
            found = self._spark.sparkContext.parallelize(packed, len(packed)).map(task).collect()
        except Exception as error:
            if not type(error).__module__.startswith(("py4j", "pyspark")):
                raise
            raise StorageFailed("ran upkeep on Spark", _reason(error)) from error
        return [pickle.loads(each) for each in found]


def _task(work: Callable[[Where, Any], Any], where: Where, packed: bytes) -> bytes:
    return pickle.dumps(work(where, pickle.loads(packed)))


def _optimize(where: Where, task: Task) -> Outcome:
    return where.open().compactor.run(task)


def _reclaim(where: Where, task: LineTask) -> TableCleanup:
    return where.open().reclaimer.run(task)


def _look(where: Where, look: Look) -> TableRepair:
    return where.open().repairer.look(look)


def _reason(error: Exception) -> str:
    lines = [line for line in str(error).splitlines() if "Error" in line or "Failed" in line]
    return (lines or [type(error).__name__])[-1].strip()
