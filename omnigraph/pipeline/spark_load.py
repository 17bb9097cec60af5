"""Bulk load on Spark: splits in, fragment metadata out.

    parts ─▶ a task each: decode, row rules, keys to scratch files, rows to fragments
          ─▶ a task for each rule and bucket of keys
          ─▶ the driver: stage what the tasks wrote, commit once

Invariant: tasks are idempotent: what one wrote counts only through the result that Spark delivers
once, so one that ran twice, or died half-way, leaves only files that no table refers to. The driver
never holds rows: only fragment metadata, counts, and samples of violations.
"""

import pickle
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from omnigraph.catalog.model import Catalog
from omnigraph.exec.load.checks import KeyCheck
from omnigraph.exec.load.committed import Planned
from omnigraph.exec.load.finish import Finish, IntakeResult, Losers, add_outcome
from omnigraph.exec.load.inputs import Input
from omnigraph.exec.load.local import bucket_count
from omnigraph.exec.load.ndjson import Owner
from omnigraph.exec.load.patch import PatchFinish
from omnigraph.exec.load.request import BY_ID, LoadRequest
from omnigraph.exec.load.scratch import scratch_folder
from omnigraph.exec.load.sources import Part
from omnigraph.exec.load.spill import KeyFile, Spill
from omnigraph.exec.progress import Progress
from omnigraph.exec.rules.faults import Faults
from omnigraph.pipeline.executors import run_tasks, spark_errors
from omnigraph.pipeline.session import Profile, session
from omnigraph.pipeline.shared_scratch import scratch_parent
from omnigraph.pipeline.splits import split
from omnigraph.pipeline.tasks import (
    BucketJob,
    LoadJob,
    PartDone,
    gathered,
    run_batches,
    run_bucket,
    run_part,
)
from omnigraph.storage.protocol.intent import WriterKind
from omnigraph.storage.protocol.write import Write
from omnigraph.storage.records import Commit
from omnigraph.storage.store import Store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SMALL_BYTES_MAX = 64 << 20
_DOING = "ran the load"


def load_spark(
    store: Store,
    catalog: Catalog,
    request: LoadRequest,
    input: Input,
    *,
    frame: "DataFrame | None",
    spark: "SparkSession | None",
) -> tuple[Commit, IntakeResult]:
    """Load on Spark: in the session given, the active one, or a new one."""
    running = spark or (frame.sparkSession if frame is not None else session(_profile(input)))
    is_local = str(running.sparkContext.master).startswith("local[")
    with scratch_folder(Path(scratch_parent(store, is_local=is_local))) as folder:
        return SparkLoad(store, catalog, request, running, folder).run(input, frame)


def _profile(input: Input) -> Profile:
    """A small load is over before a session for much data has started."""
    is_small = input.size_bytes is not None and input.size_bytes <= SMALL_BYTES_MAX
    return "interactive" if is_small else "bulk"


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

    def run(self, input: Input, frame: "DataFrame | None") -> tuple[Commit, IntakeResult]:
        """Read everything, check everything, commit once."""
        request = self._request
        schema = self._catalog.schema_id
        write = self._store.begin(
            request.branch, kind=WriterKind.LOAD, **request.note.stated, schema=schema
        )
        task_count = int(self._spark.sparkContext.defaultParallelism) * 2
        parts = () if frame is not None else split(input, tasks=task_count, folder=self._folder)
        size = input.rows_bytes or sum(part.size for part in parts)
        # A bucket is a task here, and starting one costs more than in this process.
        buckets = max(1, bucket_count(size) // 2) if frame is None else task_count
        job = self._job(write, buckets)
        results = self._read_frame(job, frame) if frame is not None else self._read(job, parts)
        keep = request.rejects is not None
        taken, keys = gathered(results, self._folder, buckets, keep_rejects=keep)
        self._progress("read", sum(taken.counts.values()))
        finish_kind = PatchFinish if request.mode == "patch" else Finish
        finish = finish_kind(
            self._store,
            self._catalog,
            request,
            keys,
            taken,
            self._folder,
            files=[part.label for part in parts],
            first_lines=_first_lines(parts, results),
            run_checks=self._run_checks,
            run_jobs=self._in_tasks,
        )
        return finish.commit(write, self._progress), taken

    def _job(self, write: Write, buckets: int) -> LoadJob:
        owners: tuple[Owner, ...] = (*self._catalog.nodes.values(), *self._catalog.edges.values())
        # Rows that meet others by id are staged by the driver; other modes write beside the tables.
        written = owners if self._request.mode not in BY_ID else ()
        return LoadJob(
            uri=self._store.where.uri,
            storage_options=self._store.where.storage_options,
            catalog=self._catalog,
            request=replace(self._request, progress=None),
            folder=str(self._folder),
            buckets=buckets,
            pins={owner.table: write.base(owner.table) for owner in written},
        )

    def _read(self, job: LoadJob, parts: tuple[Part, ...]) -> list[PartDone]:
        return self._in_tasks(partial(run_part, job), parts)

    def _read_frame(self, job: LoadJob, frame: "DataFrame") -> list[PartDone]:
        task = partial(_frame_task, job)
        with spark_errors(_DOING):
            rows = _ordered(frame, job.request).mapInArrow(task, "done binary").collect()
        return [pickle.loads(bytes(row["done"])) for row in rows]

    def _in_tasks(self, work: Callable[[Any], Any], items: Iterable[Any]) -> list[Any]:
        return run_tasks(self._spark, work, items, doing=_DOING)

    def _run_checks(
        self, planned: list[Planned], keys: Spill, committed: Spill, losers: Losers
    ) -> Faults:
        committed.flush()
        files = [*keys.files, *committed.files]
        faults = Faults(keep_rejects=True)
        jobs = [
            BucketJob(check, owner, bucket, _of(check, bucket, files), losers)
            for check, owner in planned
            for bucket in range(keys.buckets)
        ]
        nonempty = [job for job in jobs if job.files]
        for outcome in self._in_tasks(run_bucket, nonempty):
            add_outcome(faults, outcome)
        return faults

    def _progress(self, stage: str, rows: int) -> None:
        if self._request.progress is not None:
            self._request.progress(Progress(stage, rows, time.monotonic() - self._started))


def _of(check: KeyCheck, bucket: int, files: list[KeyFile]) -> tuple[KeyFile, ...]:
    names = {check.incoming, *check.committed, check.touched, *check.nodes}
    return tuple(file for file in files if file.bucket == bucket and file.name in names)


def _first_lines(parts: tuple[Part, ...], results: list[PartDone]) -> list[int]:
    """Line offset of each part within its file."""
    first: list[int] = []
    before = 0
    for part, result in zip(parts, results, strict=False):
        before = before if part.start else 0
        first.append(before)
        before += result.lines
    return first


def _ordered(frame: "DataFrame", request: LoadRequest) -> "DataFrame":
    """The rows in the order that the caller asks for, so that later partitions hold later rows.

    Rows that are equal in that order are put in the order of their other columns: which one is the
    last does not depend on how the rows lie. A column that only orders is not loaded.
    """
    if not request.order_by:
        return frame
    owner = request.owner
    assert owner is not None
    kinds = {field.name: field.dataType.simpleString() for field in frame.schema.fields}
    others = [n for n, k in kinds.items() if "map<" not in k and "variant" not in k]
    ties = [name for name in others if name not in request.order_by]
    names = {"id", "from", "to", "src", "dst", *(prop.name for prop in owner.properties)}
    ordering_only = [n for n in request.order_by if request.columns.get(n, n) not in names]
    quoted = [f"`{name.replace('`', '``')}`" for name in (*request.order_by, *ties)]
    return frame.orderBy(*quoted).drop(*ordering_only)


def _frame_task(job: LoadJob, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    done = pickle.dumps(run_batches(job, batches))
    yield pa.RecordBatch.from_arrays([pa.array([done], pa.binary())], ["done"])
