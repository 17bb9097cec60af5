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

import pyarrow as pa

from omnigraph.errors import StorageFailed
from omnigraph.pipeline.connect_session import is_connect, parallelism
from omnigraph.pipeline.worker_garbage import spare_what_is_loaded
from omnigraph.storage.opening import open_store
from omnigraph.storage.store import Store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Item = TypeVar("Item")
Done = TypeVar("Done")

_DESCRIPTION = "spark.job.description"
_RESULT = pa.binary()


def run_tasks(
    spark: "SparkSession", work: Callable[[Item], Done], items: Iterable[Item], *, doing: str
) -> list[Done]:
    """One task an item; the results in the order of the items."""
    pickled = [pickle.dumps(item) for item in items]
    if not pickled:
        return []
    with spark_errors(doing):
        if is_connect(spark):
            results = _run_by_frame(spark, partial(pickled_task, work), pickled)
        else:
            spread = spark.sparkContext.parallelize(pickled, len(pickled))
            results = spread.map(partial(pickled_task, work)).collect()
    return [pickle.loads(result) for result in results]


def _run_by_frame(
    spark: "SparkSession", task: Callable[[bytes], bytes], items: Sequence[bytes]
) -> list[bytes]:
    """The results of tasks that are partitions of a DataFrame with a row each."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                done = [pa.array([number], pa.int64()), pa.array([task(items[number])], _RESULT)]
                yield pa.RecordBatch.from_arrays(done, ["number", "done"])

    numbers = spark.range(0, len(items), 1, len(items))
    rows = numbers.mapInArrow(run, "number long, done binary").toArrow().sort_by("number")
    results: list[bytes] = rows["done"].to_pylist()
    return results


def pickled_task(work: Callable[[Any], Any], item: bytes) -> bytes:
    """The work on an item that is pickled, as is its result."""
    done = pickle.dumps(work(pickle.loads(item)))
    spare_what_is_loaded()
    return done


@contextmanager
def job_described(spark: "SparkSession", description: str) -> Iterator[None]:
    """Name the jobs of a block, as Spark's pages and listeners show them; with Spark Connect by a
    tag. A group that the caller set stays, so that cancelling it cancels these jobs too."""
    if is_connect(spark):
        tag = description.replace(",", "")
        spark.addTag(tag)
        try:
            yield
        finally:
            spark.removeTag(tag)
        return
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
        if not type(error).__module__.startswith(("py4j", "pyspark", "grpc")):
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
        return parallelism(self._spark)

    def map(self, work: Callable[[Where, Item], Done], items: Sequence[Item]) -> list[Done]:
        """One task an item, which is given the graph too."""
        return run_tasks(self._spark, partial(work, self._where), items, doing=self._doing)
