"""Spark tasks from plain functions: one task an item, pickled in and out.

Invariant: a task's effect counts only through the result that Spark delivers once, so running it
twice changes nothing. No rows of a table pass through the JVM but those of a result. Spark's errors
become `StorageFailed`.
"""

import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from omnigraph.errors import StorageFailed
from omnigraph.pipeline.classic_session import require_classic
from omnigraph.storage.opening import open_store
from omnigraph.storage.store import Store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Item = TypeVar("Item")
Done = TypeVar("Done")

_DESCRIPTION = "spark.job.description"


def run_tasks(
    spark: "SparkSession", work: Callable[[Item], Done], items: Iterable[Item], *, doing: str
) -> list[Done]:
    """One task an item; the results in the order of the items."""
    require_classic(spark, doing)
    pickled = [pickle.dumps(item) for item in items]
    if not pickled:
        return []
    with spark_errors(doing):
        spread = spark.sparkContext.parallelize(pickled, len(pickled))
        results = spread.map(partial(pickled_task, work)).collect()
    return [pickle.loads(result) for result in results]


def pickled_task(work: Callable[[Any], Any], item: bytes) -> bytes:
    """The work on an item that is pickled, as is its result."""
    return pickle.dumps(work(pickle.loads(item)))


@contextmanager
def job_described(spark: "SparkSession", description: str) -> Iterator[None]:
    """Name the jobs of a block, as Spark's pages and listeners show them. A group that the caller
    set stays, so that cancelling it cancels these jobs too."""
    context = spark.sparkContext
    before = context.getLocalProperty(_DESCRIPTION)
    context.setLocalProperty(_DESCRIPTION, description)
    try:
        yield
    finally:
        context.setLocalProperty(_DESCRIPTION, before)  # type: ignore[arg-type]


@contextmanager
def spark_errors(doing: str) -> Iterator[None]:
    """Turn what Spark raises into `StorageFailed`, with the line of its text that says why."""
    try:
        yield
    except Exception as error:
        if not type(error).__module__.startswith(("py4j", "pyspark")):
            raise
        lines = str(error).splitlines() or [type(error).__name__]
        if any("cancelled" in line for line in lines[:3]):
            raise StorageFailed(f"{doing} on Spark", "its jobs were cancelled") from error
        if any("No module named 'omnigraph'" in line for line in lines):
            raise StorageFailed(
                f"{doing} on Spark",
                "the executors have no OmniGraph: build an archive with `omnigraph spark package` "
                "and give it to ogs.session(archive=…) or to spark-submit",
            ) from error
        telling = [line for line in lines if "Error" in line or "Failed" in line]
        reason = telling[-1] if telling else lines[0]
        raise StorageFailed(f"{doing} on Spark", reason.strip()) from error


@dataclass(frozen=True, slots=True)
class Where:
    """The address of a graph, as tasks get it."""

    uri: str
    storage_options: dict[str, str] | None

    def open(self) -> Store:
        """The graph, read-only: a task moves no head."""
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
        """One task an item, which is given the graph too."""
        return run_tasks(self._spark, partial(work, self._where), items, doing=self._doing)
