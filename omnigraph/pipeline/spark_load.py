"""Bulk load on Spark: splits in, fragment metadata out.

    parts ─▶ a task each: decode, row rules, keys to scratch files, rows to fragments
          ─▶ a task for each rule and bucket of keys
          ─▶ the driver: stage what the tasks wrote, commit once

Invariant: what a task wrote counts only through the result that Spark delivers once, so a task that
ran twice, or died half-way, leaves nothing but files that nobody names. The driver never holds
rows: only fragment metadata, counts, and samples of violations.
"""

import os
import pickle
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from omnigraph.catalog.model import Catalog
from omnigraph.errors import BadRequest, OmnigraphError, StorageFailed
from omnigraph.exec.checks import Check, Outcome, run_check, without_losers
from omnigraph.exec.committed import Planned
from omnigraph.exec.decode import Block
from omnigraph.exec.faults import Faults, merged
from omnigraph.exec.inputs import Input
from omnigraph.exec.intake import FragmentSink, Intake, RowSink
from omnigraph.exec.load import (
    Finish,
    LoadRequest,
    Losers,
    Piece,
    Progress,
    Taken,
    add_outcome,
    bucket_count,
    decode_piece,
    pieces_of_part,
    scratch_folder,
)
from omnigraph.exec.records import Owner
from omnigraph.exec.sources import Part
from omnigraph.exec.spill import KeyFile, Spill, read_keys
from omnigraph.pipeline.session import session
from omnigraph.pipeline.splits import split
from omnigraph.storage.records import Commit, TablePin
from omnigraph.storage.store import Store, open_store
from omnigraph.storage.tables import Fragments
from omnigraph.storage.write import Write
from omnigraph.types import TableKey

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SCRATCH_VARIABLE = "OMNIGRAPH_SCRATCH"
"""A folder that the driver and all workers reach, for keys and spooled rows."""

SCRATCH_AGE_S_MAX = 7 * 24 * 3600


@dataclass(frozen=True, slots=True)
class Job:
    """What every task of a load is told."""

    uri: str
    storage_options: dict[str, str] | None
    catalog: Catalog
    request: LoadRequest
    folder: str
    buckets: int
    pins: dict[TableKey, TablePin]


@dataclass(slots=True)
class PartDone:
    """What a task gives back: no rows, only what it wrote and found."""

    index: int
    lines: int = 0
    counts: Counter[TableKey] = field(default_factory=Counter)
    faults: Faults = field(default_factory=Faults)
    fragments: dict[TableKey, Fragments] = field(default_factory=dict)
    rows: dict[TableKey, list[str]] = field(default_factory=dict)
    keys: list[KeyFile] = field(default_factory=list)
    error: OmnigraphError | None = None


# In a task


def run_part(job: Job, part: Part) -> PartDone:
    """Read one part: the whole work of a task."""
    return run_pieces(job, part.index, pieces_of_part(part))


def run_pieces(job: Job, index: int, pieces: Iterator[Piece]) -> PartDone:
    """Decode and check pieces, and write their rows and keys."""
    done = PartDone(index, faults=Faults(job.request.rejects is not None))
    folder = Path(job.folder)
    sink = _sink(job, folder)
    spill = Spill(folder, job.buckets)
    intake = Intake(spill, sink, done.faults, done.counts)
    try:
        for piece in pieces:
            decoded = decode_piece(job.catalog, job.request, piece)
            done.faults.merge(decoded.faults)
            for rows in decoded.rows:
                intake.take(rows, piece.part, piece.file)
            if isinstance(piece.data, Block):
                done.lines += piece.data.data.count(b"\n")
        sink.finish()
    except StorageFailed:
        raise  # Another attempt may do better.
    except OmnigraphError as error:
        done.error = error
        return done
    spill.flush()
    done.keys = spill.files
    if isinstance(sink, RowSink):
        done.rows = sink.files
    else:
        done.fragments = sink.written
    return done


def _sink(job: Job, folder: Path) -> FragmentSink | RowSink:
    if job.request.mode == "merge":
        return RowSink(folder)
    store = open_store(job.uri, read_only=True, storage_options=job.storage_options)
    replacing = job.request.mode == "overwrite"
    return FragmentSink(store.tables, job.pins.__getitem__, replacing=replacing)


@dataclass(frozen=True, slots=True)
class BucketJob:
    """One rule over one bucket."""

    check: Check
    owner: Owner
    bucket: int
    files: tuple[KeyFile, ...]
    losers: Losers


def run_bucket(job: BucketJob) -> Outcome:
    """Check one rule over one bucket of keys."""
    read = without_losers(partial(read_keys, job.files), job.losers)
    return run_check(job.check, job.owner, job.bucket, read)


# On the driver


def load_spark(
    store: Store,
    catalog: Catalog,
    request: LoadRequest,
    found: Input,
    *,
    frame: "DataFrame | None",
    spark: "SparkSession | None",
) -> tuple[Commit, dict[TableKey, int]]:
    """Load on Spark: in the session given, the active one, or a new one."""
    running = spark or (frame.sparkSession if frame is not None else session("bulk"))
    with scratch_folder(_scratch_parent(store, running)) as folder:
        return SparkLoad(store, catalog, request, running, folder).run(found, frame)


def _scratch_parent(store: Store, spark: "SparkSession") -> Path | None:
    told = os.environ.get(SCRATCH_VARIABLE)
    if told:
        return Path(told)
    if store.where.path is not None:
        parent = store.where.path / "__scratch"
        parent.mkdir(exist_ok=True)
        _forget_dead(parent)
        return parent
    if str(spark.sparkContext.master).startswith("local"):
        return None
    raise BadRequest(
        "a load on a cluster needs a folder that all workers reach",
        f"set {SCRATCH_VARIABLE} to one",
    )


def _forget_dead(parent: Path) -> None:
    """Remove what drivers that were killed long ago left behind."""
    for folder in parent.iterdir():
        if time.time() - folder.stat().st_mtime > SCRATCH_AGE_S_MAX:
            shutil.rmtree(folder, ignore_errors=True)


class SparkLoad:
    """One load on Spark, as its driver sees it."""

    def __init__(
        self,
        store: Store,
        catalog: Catalog,
        request: LoadRequest,
        spark: "SparkSession",
        folder: Path,
    ) -> None:
        self._store = store
        self._catalog = catalog
        self._request = request
        self._spark = spark
        self._folder = folder
        self._started = time.monotonic()

    def run(self, found: Input, frame: "DataFrame | None") -> tuple[Commit, dict[TableKey, int]]:
        """Read everything, check everything, commit once."""
        request = self._request
        schema = self._catalog.schema_id
        write = self._store.begin(request.branch, kind="load", actor=request.actor, schema=schema)
        tasks = int(self._spark.sparkContext.defaultParallelism) * 2
        parts = () if frame is not None else split(found, tasks=tasks, folder=self._folder)
        buckets = bucket_count(sum(part.size for part in parts)) if frame is None else tasks
        job = self._job(write, buckets)
        results = self._read_frame(job, frame) if frame is not None else self._read(job, parts)
        taken, keys = self._gathered(results, buckets)
        self._told("read", sum(taken.counts.values()))
        finish = Finish(
            self._store,
            self._catalog,
            request,
            keys,
            taken,
            self._folder,
            files=[part.label for part in parts],
            first_lines=_first_lines(parts, results),
            run_checks=self._run_checks,
        )
        return finish.commit(write, self._told), taken.counts

    def _job(self, write: Write, buckets: int) -> Job:
        owners: tuple[Owner, ...] = (*self._catalog.nodes.values(), *self._catalog.edges.values())
        # A merge is staged by the driver; the other modes write beside the tables.
        wanted = owners if self._request.mode != "merge" else ()
        return Job(
            uri=self._store.where.uri,
            storage_options=self._store.where.storage_options,
            catalog=self._catalog,
            request=replace(self._request, progress=None),
            folder=str(self._folder),
            buckets=buckets,
            pins={owner.table: write.base(owner.table) for owner in wanted},
        )

    def _read(self, job: Job, parts: tuple[Part, ...]) -> list[PartDone]:
        return self._in_tasks(partial(run_part, job), parts)

    def _read_frame(self, job: Job, frame: "DataFrame") -> list[PartDone]:
        task = partial(_frame_task, job)
        with _told_plainly():
            found = frame.mapInArrow(task, "done binary").collect()
        done: list[PartDone] = [pickle.loads(bytes(row["done"])) for row in found]
        return sorted(done, key=lambda each: each.index)

    def _in_tasks(self, work: Callable[[Any], Any], items: Iterable[Any]) -> list[Any]:
        """One task an item; the results in the order of the items."""
        packed = [pickle.dumps(item) for item in items]
        if not packed:
            return []
        context = self._spark.sparkContext
        with _told_plainly():
            found = context.parallelize(packed, len(packed)).map(partial(_task, work)).collect()
        return [pickle.loads(each) for each in found]

    def _gathered(self, results: list[PartDone], buckets: int) -> tuple[Taken, Spill]:
        for result in results:
            if result.error is not None:
                raise result.error
        keep = self._request.rejects is not None
        taken = Taken({}, merged((r.faults for r in results), keep_rejects=keep))
        counts: Counter[TableKey] = Counter()
        for result in results:
            counts.update(result.counts)
            for table, fragments in result.fragments.items():
                taken.fragments[table] = (*taken.fragments.get(table, ()), *fragments)
            for table, files in result.rows.items():
                taken.files.setdefault(table, []).extend(files)
        taken.counts = dict(counts)
        key_files = [file for result in results for file in result.keys]
        return taken, Spill(self._folder, buckets, files=key_files)

    def _run_checks(
        self, planned: list[Planned], keys: Spill, held: Spill, losers: Losers
    ) -> Faults:
        held.flush()
        files = [*keys.files, *held.files]
        faults = Faults(keep_rejects=True)
        jobs = [
            BucketJob(check, owner, bucket, _of(check, bucket, files), losers)
            for check, owner in planned
            for bucket in range(keys.buckets)
        ]
        wanted = [job for job in jobs if job.files]
        for outcome in self._in_tasks(run_bucket, wanted):
            add_outcome(faults, outcome)
        return faults

    def _told(self, stage: str, rows: int) -> None:
        if self._request.progress is not None:
            self._request.progress(Progress(stage, rows, time.monotonic() - self._started))


def _of(check: Check, bucket: int, files: list[KeyFile]) -> tuple[KeyFile, ...]:
    names = {check.incoming, *check.committed, check.touched, *check.nodes}
    return tuple(file for file in files if file.bucket == bucket and file.name in names)


def _first_lines(parts: tuple[Part, ...], results: list[PartDone]) -> list[int]:
    """How many lines of a part's file lie before it."""
    first: list[int] = []
    before = 0
    for part, result in zip(parts, results, strict=False):
        before = before if part.start else 0
        first.append(before)
        before += result.lines
    return first


def _task(work: Callable[[Any], Any], packed: bytes) -> bytes:
    return pickle.dumps(work(pickle.loads(packed)))


def _frame_task(job: Job, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """A partition of a DataFrame, loaded where it is."""
    index = _partition()

    def pieces() -> Iterator[Piece]:
        row = 1
        for batch in batches:
            yield Piece(index, None, row, pa.Table.from_batches([batch]))
            row += batch.num_rows

    done = pickle.dumps(run_pieces(job, index, pieces()))
    yield pa.RecordBatch.from_arrays([pa.array([done], pa.binary())], ["done"])


def _partition() -> int:
    from pyspark import TaskContext  # noqa: PLC0415

    context = TaskContext.get()
    return 0 if context is None else int(context.partitionId())


class _told_plainly:
    """Turns what Spark raises into one of our errors."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: Any, trace: Any) -> None:
        if kind is None or not kind.__module__.startswith(("py4j", "pyspark")):
            return
        text = str(error)
        reason = next(
            (line for line in reversed(text.splitlines()) if "Error" in line or "Failed" in line),
            text.splitlines()[0] if text else kind.__name__,
        )
        raise StorageFailed("ran the load on Spark", reason.strip()) from error
