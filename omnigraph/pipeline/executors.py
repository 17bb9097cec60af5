"""Tasks on executors: a small value in, a small value out.

Invariant: what a task did counts only through the result that Spark delivers once, so a task that
ran twice changes nothing. No rows of a table pass through the JVM but those that are the result.
"""

import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from omnigraph.errors import StorageFailed
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


class Executors:
    """The executors of a session, for tasks about one graph."""

    def __init__(self, store: Store, spark: "SparkSession", doing: str) -> None:
        self._spark = spark
        self._where = Where(store.where.uri, store.where.storage_options)
        self._doing = doing

    @property
    def parallelism(self) -> int:
        """How many tasks run at once."""
        return int(self._spark.sparkContext.defaultParallelism)

    def map(self, work: Callable[[Where, Item], Done], items: Sequence[Item]) -> list[Done]:
        """One task an item; the results in the order of the items."""
        packed = [pickle.dumps(item) for item in items]
        if not packed:
            return []
        task = partial(_task, work, self._where)
        try:
            results = self._spark.sparkContext.parallelize(packed, len(packed)).map(task).collect()
        except Exception as error:
            if not type(error).__module__.startswith(("py4j", "pyspark")):
                raise
            raise StorageFailed(f"{self._doing} on Spark", _reason(error)) from error
        return [pickle.loads(each) for each in results]


def _task(work: Callable[[Where, Any], Any], where: Where, packed: bytes) -> bytes:
    return pickle.dumps(work(where, pickle.loads(packed)))


def _reason(error: Exception) -> str:
    lines = [line for line in str(error).splitlines() if "Error" in line or "Failed" in line]
    return (lines or [type(error).__name__])[-1].strip()
