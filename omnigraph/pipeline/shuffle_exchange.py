"""Exchange of a load through Spark's shuffle, where tasks share no disk.

    map task     ─▶ its blocks, each to the partition of its lane and bucket, and its result
    reduce task  ─▶ one bucket, or several small ones as one, of everything that was put

A block is Arrow IPC bytes, opaque to the JVM. The result of a map task (fragment metadata, counts)
travels as one more block, in a partition of its own that the driver reads first: it and the blocks
are the output of one attempt. Spark keeps this output for later jobs, and runs a map task again
when an executor took its output along.

Invariant: a map task that ran again gave the same blocks, or what was read of them is not used: its
result carries a digest of all its blocks, which the driver compares again after every read
(`InputChanged`). A reduce task sees blocks in the order of the tasks that put them, not in that of
their arrival, so it too gives the same when it runs again. The driver holds a digest and a result
for each map task, and nothing for each bucket.
"""

import hashlib
import pickle
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import uuid4

import pyarrow as pa

from omnigraph.costs import COSTS
from omnigraph.exec.load.block_files import block_bytes, read_block
from omnigraph.exec.load.exchange import Blocks, Lane, ReadKeys, lane_of
from omnigraph.exec.load.scratch import scratch_folder
from omnigraph.exec.load.spill import Spill
from omnigraph.pipeline.executors import job_described, spark_errors
from omnigraph.pipeline.worker_garbage import spare_what_is_loaded

if TYPE_CHECKING:
    from pyspark import RDD
    from pyspark.sql import DataFrame, SparkSession

Item = TypeVar("Item")
Done = TypeVar("Done")
PutBatches = Callable[[Iterator[pa.RecordBatch], Spill], Done]
Order = tuple[int, int, int]
"""Place of a block among all: the call that put it, the map task of that call, its number there."""

Block = tuple[str, int, Order, bytes]
"""A block in the shuffle: its key set, its bucket, its place, and Arrow IPC bytes."""

_PARTITIONER = 0  # what Spark compares: all shuffles of one size have the same
_FRAME_FIELDS = "index long, block binary"


class InputChanged(Exception):
    """A map task that had to run again gave other rows: nothing that was read can be used."""


@dataclass(slots=True)
class ShuffledBlocks:
    """What one call has put: a shuffle whose output Spark keeps."""

    exchange: "ShuffleExchange"
    pairs: Any  # JavaPairRDD
    digests: dict[int, bytes]
    counts: Counter[str]
    bytes: int

    def rows(self, name: str) -> int:
        return self.counts[name]

    def every(self, name: str) -> pa.Table | None:
        if not self.counts[name]:
            return None
        (tables,) = self.exchange.read([partial(_whole, name)], [self], lane_of(name))
        present = [table for table in tables if table is not None]
        return pa.concat_tables(present) if present else None


def _whole(name: str, bucket: int, read: ReadKeys) -> pa.Table | None:
    return read(name)


@dataclass(slots=True)
class ShuffleExchange:
    """Tasks that meet in shuffles of one session. `scratch` is a folder that each machine has for
    itself; None is its temporary one."""

    spark: "SparkSession"
    buckets: int
    doing: str
    scratch: str | None = None
    title: str = "omnigraph load"
    _put_so_far: list[ShuffledBlocks] = field(default_factory=list)

    @property
    def is_shared(self) -> bool:
        return False

    def put(
        self, work: Callable[[Item, Spill], Done], items: Sequence[Item]
    ) -> tuple[list[Done], Blocks]:
        if not items:
            return [], self._nothing()
        pickled = [pickle.dumps(each) for each in enumerate(items)]
        spread = self.spark.sparkContext.parallelize(pickled, len(pickled))
        task = partial(_item_task, work, self._outlet())
        return self._shuffled(spread.mapPartitionsWithIndex(task, preservesPartitioning=True))

    def put_frame(self, work: PutBatches[Done], frame: "DataFrame") -> tuple[list[Done], Blocks]:
        """Run a job a partition of a DataFrame."""
        task = partial(_frame_task, work, self._outlet())
        with spark_errors(self.doing):
            rows = frame.mapInArrow(task, _FRAME_FIELDS).rdd
        return self._shuffled(rows.mapPartitionsWithIndex(_frame_pairs, preservesPartitioning=True))

    def read(
        self,
        works: Sequence[Callable[[int, ReadKeys], Done]],
        blocks: Sequence[Blocks],
        lane: Lane = "keys",
    ) -> list[list[Done]]:
        shuffled = _nonempty(blocks)
        if not shuffled:
            return [[] for _ in works]
        task = partial(_read_task, works, self.scratch)
        text = f"{self.title}: check {lane}, {self.buckets} buckets"
        with spark_errors(self.doing), job_described(self.spark, text):
            taken = self._lane(shuffled, lane).mapPartitionsWithIndex(task).collect()
        self._verify(shuffled)
        by_bucket = sorted((pickle.loads(each) for each in taken), key=lambda pair: pair[0])
        return [[results[n] for _, results in by_bucket] for n in range(len(works))]

    def forward(
        self,
        works: Sequence[Callable[[int, ReadKeys, Spill], Done]],
        blocks: Sequence[Blocks],
        lane: Lane = "keys",
    ) -> tuple[list[list[Done]], Blocks]:
        shuffled = _nonempty(blocks)
        if not shuffled:
            return [[] for _ in works], self._nothing()
        task = partial(_forward_task, works, self._outlet())
        read = self._lane(shuffled, lane).mapPartitionsWithIndex(task, preservesPartitioning=True)
        done, put = self._shuffled(read)
        self._verify(shuffled)
        by_bucket = sorted((pair for group in done for pair in group), key=lambda pair: pair[0])
        return [[results[n] for _, results in by_bucket] for n in range(len(works))], put

    def close(self) -> None:
        """Let Spark remove the shuffles. Those of a session that is gone are gone."""
        for each in self._put_so_far:
            try:
                each.pairs.rdd().cleanShuffleDependencies(False)
            except Exception as error:
                if not type(error).__module__.startswith("py4j"):
                    raise
        self._put_so_far.clear()

    # Spark

    def _outlet(self) -> "Outlet":
        return Outlet(len(self._put_so_far), self.buckets, self.scratch)

    def _nothing(self) -> ShuffledBlocks:
        return ShuffledBlocks(self, None, {}, Counter(), 0)

    def _shuffled(self, keyed: "RDD[bytes]") -> tuple[list[Any], ShuffledBlocks]:
        """Shuffle the pairs that tasks give, and wait for their results."""
        context = self.spark.sparkContext
        jvm: Any = context._jvm
        keyed._bypass_serializer = True  # type: ignore[attr-defined]
        text = f"{self.title}: exchange {len(self._put_so_far) + 1}, {self.buckets} buckets"
        with spark_errors(self.doing), job_described(self.spark, text):
            pairs = jvm.PairwiseRDD(keyed._jrdd.rdd()).asJavaPairRDD()
            partitioner = jvm.PythonPartitioner(self._results_index + 1, _PARTITIONER)
            made = ShuffledBlocks(self, pairs.partitionBy(partitioner), {}, Counter(), 0)
            self._put_so_far.append(made)
            results = context.runJob(self._rdd([made]), list, [self._results_index])
        done: list[tuple[int, Any]] = []
        for number, digest, result, counts, size in results:
            made.digests[number] = digest
            made.counts.update(counts)
            made.bytes += size
            done.append((number, pickle.loads(result)))
        return [result for _, result in sorted(done, key=lambda pair: pair[0])], made

    @property
    def _results_index(self) -> int:
        """The partition after those of the two lanes."""
        return 2 * self.buckets

    def _rdd(self, blocks: Sequence[ShuffledBlocks], indexes: range | None = None) -> "RDD[Any]":
        """The records of several shuffles, partition by partition; of all partitions or of some."""
        from pyspark import RDD  # noqa: PLC0415

        serializers: Any = import_module("pyspark.serializers")
        context = self.spark.sparkContext
        jvm: Any = context._jvm
        pairs = blocks[0].pairs
        if len(blocks) > 1:
            every = context._gateway.new_array(  # type: ignore[union-attr]
                jvm.org.apache.spark.api.java.JavaPairRDD, len(blocks)
            )
            for index, each in enumerate(blocks):
                every[index] = each.pairs
            # Of one partitioner, so that partition n of the union is partition n of each.
            pairs = context._jsc.union(every)
        values = jvm.PythonRDD.valueOfPair(pairs)
        if indexes is not None:
            # A set of numbers is a function from numbers to truth, to Scala.
            chosen = jvm.PythonUtils.toSeq(list(indexes)).toSet()
            pruned = jvm.org.apache.spark.rdd.PartitionPruningRDD.create(values.rdd(), chosen)
            values = pruned.toJavaRDD()
        return RDD(values, context, serializers.BatchedSerializer(serializers.CPickleSerializer()))

    def _lane(self, blocks: Sequence[ShuffledBlocks], lane: Lane) -> "RDD[Any]":
        """One lane of several shuffles, in about as many tasks as its bytes need."""
        first = 0 if lane == "keys" else self.buckets
        rdd = self._rdd(blocks, range(first, first + self.buckets))
        size = sum(each.bytes for each in blocks)
        tasks = max(1, min(self.buckets, -(-size // COSTS.shuffle_task_bytes)))
        return rdd.coalesce(tasks) if tasks < self.buckets else rdd

    def _verify(self, blocks: Sequence[ShuffledBlocks]) -> None:
        """Raise if a map task of these ran again and gave other blocks."""
        text = f"{self.title}: compare digests"
        with spark_errors(self.doing), job_described(self.spark, text):
            seen = self.spark.sparkContext.runJob(
                self._rdd(blocks), _digests, [self._results_index]
            )
        if Counter(seen) != Counter(pair for each in blocks for pair in each.digests.items()):
            raise InputChanged


def _nonempty(blocks: Sequence[Blocks]) -> list[ShuffledBlocks]:
    shuffled = [each for each in blocks if isinstance(each, ShuffledBlocks) and each.digests]
    # The keys and the rows of a load may be one.
    return [each for n, each in enumerate(shuffled) if all(each is not o for o in shuffled[:n])]


def _digests(records: Iterable[Any]) -> list[tuple[int, bytes]]:
    return [(number, digest) for number, digest, *_ in records]


# Tasks: pairs of a partition and a record, as Spark's pairs of bytes


@dataclass(frozen=True, slots=True)
class Outlet:
    """Where the map tasks of one call put their blocks."""

    call: int
    buckets: int
    scratch: str | None

    def records(self, number: int, job: Callable[[Spill], Any]) -> Iterator[tuple[int, bytes]]:
        """What a map task puts, each record with its partition; the result is the last."""
        with scratch_folder(None if self.scratch is None else Path(self.scratch)) as folder:
            out = Spill(folder, self.buckets, COSTS.shuffle_block_bytes)
            done = job(out)
            out.flush()
            digest = hashlib.blake2b(digest_size=16)
            blocks = (block for file in out.files for block in block_bytes(file))
            for count, (name, bucket, data) in enumerate(blocks):
                digest.update(f"{name} {bucket} {data.size} ".encode())
                digest.update(data)
                index = bucket if lane_of(name) == "keys" else self.buckets + bucket
                block: Block = (name, bucket, (self.call, number, count), data.to_pybytes())
                yield index, pickle.dumps([block])
            counts, size = out.counts(), out.bytes
        result = (number, digest.digest(), pickle.dumps(done), counts, size)
        yield 2 * self.buckets, pickle.dumps([result])


def _pairs(records: Iterable[tuple[int, bytes]]) -> Iterator[bytes]:
    serializers: Any = import_module("pyspark.serializers")
    for index, record in records:
        yield serializers.pack_long(index)
        yield record


def _item_task(
    work: Callable[[Any, Spill], Any], outlet: Outlet, partition: int, items: Iterable[bytes]
) -> Iterator[bytes]:
    for pickled in items:
        number, item = pickle.loads(pickled)
        yield from _pairs(outlet.records(number, partial(work, item)))
    spare_what_is_loaded()


def _frame_task(
    work: PutBatches[Any], outlet: Outlet, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    from pyspark import TaskContext  # noqa: PLC0415

    context = TaskContext.get()
    number = 0 if context is None else int(context.partitionId())
    for index, record in outlet.records(number, partial(work, batches)):
        yield pa.RecordBatch.from_arrays(
            [pa.array([index], pa.int64()), pa.array([record], pa.binary())], ["index", "block"]
        )
    spare_what_is_loaded()


def _frame_pairs(partition: int, rows: Iterable[Any]) -> Iterator[bytes]:
    return _pairs((row[0], bytes(row[1])) for row in rows)


def _read_task(
    works: Sequence[Callable[[int, ReadKeys], Any]],
    scratch: str | None,
    partition: int,
    records: Iterable[Block],
) -> Iterator[bytes]:
    with scratch_folder(None if scratch is None else Path(scratch)) as folder:
        inbox = Inbox(folder)
        inbox.take(records)
        if inbox.number is not None:
            results = [work(inbox.number, inbox.read) for work in works]
            yield pickle.dumps((inbox.number, results))
    spare_what_is_loaded()


def _forward_task(
    works: Sequence[Callable[[int, ReadKeys, Spill], Any]],
    outlet: Outlet,
    partition: int,
    records: Iterable[Block],
) -> Iterator[bytes]:
    with scratch_folder(None if outlet.scratch is None else Path(outlet.scratch)) as folder:
        inbox = Inbox(folder)
        inbox.take(records)

        def job(out: Spill) -> list[tuple[int, list[Any]]]:
            if inbox.number is None:
                return []
            return [(inbox.number, [work(inbox.number, inbox.read, out) for work in works])]

        yield from _pairs(outlet.records(partition, job))
    spare_what_is_loaded()


class Inbox:
    """Blocks of the buckets of a task, which are as good as one: equal keys are in it together. In
    memory while they are few, else in files that are mapped."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._in_memory: list[tuple[str, Order, bytes]] = []
        self._blocks: dict[str, list[tuple[Order, pa.Buffer]]] = {}
        self._buckets: set[int] = set()

    def take(self, records: Iterable[Block]) -> None:
        """Take all blocks of a task."""
        size = 0
        for name, bucket, order, data in records:
            self._buckets.add(bucket)
            self._in_memory.append((name, order, data))
            size += len(data)
            if size > COSTS.shuffle_inbox_bytes_max:
                self._spill()
                size = 0
        for name, order, data in self._in_memory:
            self._blocks.setdefault(name, []).append((order, pa.py_buffer(data)))
        for blocks in self._blocks.values():
            blocks.sort(key=lambda block: block[0])

    def _spill(self) -> None:
        path = str(self._folder / uuid4().hex)
        with pa.OSFile(path, "wb") as file:
            for _, _, data in self._in_memory:
                file.write(data)
        mapped = pa.memory_map(path)
        for name, order, data in self._in_memory:
            self._blocks.setdefault(name, []).append((order, mapped.read_buffer(len(data))))
        self._in_memory.clear()

    @property
    def number(self) -> int | None:
        """A number for the buckets that have rows, the same for the same buckets; None for none."""
        if not self._buckets:
            return None
        named = repr(sorted(self._buckets)).encode()
        return int.from_bytes(hashlib.blake2b(named, digest_size=7).digest(), "big")

    def read(self, name: str) -> pa.Table | None:
        """A key set of these buckets."""
        blocks = self._blocks.get(name)
        if blocks is None:
            return None
        return pa.concat_tables([read_block(each) for _, each in blocks])
