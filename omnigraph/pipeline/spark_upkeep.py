"""Upkeep on Spark: tasks on executors, one commit by the driver.

Invariant: tasks are idempotent: one that ran twice leaves nothing but files that no table refers
to. A task rewrites, indexes, reclaims or inspects, and returns a report, or numbers. No rows pass
through the JVM.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from omnigraph.exec.topology.end_numbers import Ends
from omnigraph.exec.topology.table_ends import EndsTask, run_task
from omnigraph.pipeline.executors import Executors, Where
from omnigraph.pipeline.session import session
from omnigraph.storage.store import Store
from omnigraph.storage.upkeep.cleanup import LineTask, TableCleanup
from omnigraph.storage.upkeep.compaction import Outcome, Task
from omnigraph.storage.upkeep.repair import Look, TableRepair

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class OnSpark:
    """Runs the tasks of upkeep in the session given, the active one, or a new one."""

    def __init__(self, store: Store, spark: "SparkSession | None" = None) -> None:
        self._executors = Executors(store, spark or session("bulk"), "ran upkeep")

    @property
    def parallelism(self) -> int:
        return self._executors.parallelism

    def optimize(self, tasks: Sequence[Task]) -> Sequence[Outcome]:
        """Rewrite fragments and build segments of indexes."""
        return self._executors.map(_optimize, tasks)

    def number_ends(self, tasks: Sequence[EndsTask]) -> Sequence[Ends | None]:
        """Number the ends of edges by the node files, which the processes of a host share."""
        return self._executors.map(_number_ends, tasks)

    def reclaim(self, tasks: Sequence[LineTask]) -> Sequence[TableCleanup]:
        """Remove or count versions."""
        return self._executors.map(_reclaim, tasks)

    def look(self, looks: Sequence[Look]) -> Sequence[TableRepair]:
        """Classify drift."""
        return self._executors.map(_look, looks)


def _optimize(where: Where, task: Task) -> Outcome:
    return where.open().compactor.run(task)


def _number_ends(where: Where, task: EndsTask) -> Ends | None:
    return run_task(where.open(), task)


def _reclaim(where: Where, task: LineTask) -> TableCleanup:
    return where.open().reclaimer.run(task)


def _look(where: Where, look: Look) -> TableRepair:
    return where.open().repairer.look(look)
