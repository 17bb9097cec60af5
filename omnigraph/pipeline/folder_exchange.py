"""Exchange of a load on Spark through block files in a folder that every task reaches: one of the
machine they all run on, or one where the graph is.

Invariant: a task writes its own block files and no other writes there. The driver knows a file for
each task and what it holds by key set, not by bucket.
"""

import pickle
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from omnigraph.exec.load.block_files import BlockFile
from omnigraph.exec.load.exchange import Blocks, Lane, ReadKeys, reader_of, spill_of
from omnigraph.exec.load.files import Options
from omnigraph.exec.load.spill import Spill
from omnigraph.pipeline.executors import job_described, run_tasks, spark_errors
from omnigraph.pipeline.worker_garbage import spare_what_is_loaded

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Item = TypeVar("Item")
Done = TypeVar("Done")
PutBatches = Callable[[Iterator[pa.RecordBatch], Spill], Done]


@dataclass(slots=True)
class FolderExchange:
    """Tasks that write and read block files of one folder."""

    spark: "SparkSession"
    folder: Path | str
    buckets: int
    doing: str
    title: str = "omnigraph load"
    options: Options = ()  # of a folder in an object store

    @property
    def is_shared(self) -> bool:
        return True

    def put(
        self, work: Callable[[Item, Spill], Done], items: Sequence[Item]
    ) -> tuple[list[Done], Blocks]:
        job = partial(_put, work, self._outlet(self.buckets))
        with job_described(self.spark, f"{self.title}: put, {len(items)} parts"):
            done = run_tasks(self.spark, job, items, doing=self.doing)
        return self._delivered(done, self.buckets)

    def put_frame(self, work: PutBatches[Done], frame: "DataFrame") -> tuple[list[Done], Blocks]:
        """Run a job a partition of a DataFrame. From here on there are as many buckets as the data
        needs; the tasks could not know."""
        fine = self.buckets
        task = partial(_frame_task, work, self._outlet(fine))
        text = f"{self.title}: put a DataFrame"
        with spark_errors(self.doing), job_described(self.spark, text):
            rows = frame.mapInArrow(task, "done binary").collect()
        done, blocks = self._delivered([pickle.loads(bytes(row["done"])) for row in rows], fine)
        self.buckets = spill_of(blocks).coarsened()
        return done, blocks

    def read(
        self,
        works: Sequence[Callable[[int, ReadKeys], Done]],
        blocks: Sequence[Blocks],
        lane: Lane = "keys",
    ) -> list[list[Done]]:
        spills = _on_disk(blocks)
        asked = [(work, bucket) for work in works for bucket in range(self.buckets)]
        with job_described(self.spark, f"{self.title}: check {lane}, {self.buckets} buckets"):
            done: list[Done] = run_tasks(
                self.spark, partial(_read, spills), asked, doing=self.doing
            )
        return [done[n : n + self.buckets] for n in range(0, len(done), self.buckets)]

    def forward(
        self,
        works: Sequence[Callable[[int, ReadKeys, Spill], Done]],
        blocks: Sequence[Blocks],
        lane: Lane = "keys",
    ) -> tuple[list[list[Done]], Blocks]:
        asked = [(work, bucket) for work in works for bucket in range(self.buckets)]
        done, put = self.put(partial(_forward, _on_disk(blocks)), asked)
        return [done[n : n + self.buckets] for n in range(0, len(done), self.buckets)], put

    def _delivered(
        self, results: list[tuple[Done, list[BlockFile]]], buckets: int
    ) -> tuple[list[Done], Blocks]:
        files = [file for _, written in results for file in written]
        whole = Spill(self.folder, buckets, files=files, options=self.options)
        return [done for done, _ in results], whole

    def _outlet(self, buckets: int) -> Spill:
        """An empty spill, a copy of which each task fills."""
        return Spill(str(self.folder), buckets, options=self.options)


def _on_disk(blocks: Sequence[Blocks]) -> list[Spill]:
    spills = [spill_of(each) for each in blocks]
    for spill in spills:
        spill.flush()
    return spills


def _put(
    work: Callable[[Any, Spill], Any], outlet: Spill, item: Any
) -> tuple[Any, list[BlockFile]]:
    out = Spill(outlet.folder, outlet.buckets, options=outlet.options)
    done = work(item, out)
    out.flush()
    return done, out.files


def _read(spills: list[Spill], asked: tuple[Callable[[int, ReadKeys], Any], int]) -> Any:
    work, bucket = asked
    return work(bucket, reader_of(spills, bucket))


def _forward(
    spills: list[Spill], asked: tuple[Callable[[int, ReadKeys, Spill], Any], int], out: Spill
) -> Any:
    work, bucket = asked
    return work(bucket, reader_of(spills, bucket), out)


def _frame_task(
    work: PutBatches[Any], outlet: Spill, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    done = pickle.dumps(_put(work, outlet, batches))
    yield pa.RecordBatch.from_arrays([pa.array([done], pa.binary())], ["done"])
    spare_what_is_loaded()
