"""Bulk load on Spark: splits in, fragment metadata out.

    parts ─▶ a task each: decode, row rules, keys to the exchange, rows to fragments
          ─▶ tasks for buckets of keys: rules
          ─▶ the driver: stage what the tasks wrote, commit once

Invariant: tasks are idempotent: what one wrote counts only through the result that Spark delivers
once, so one that ran twice, or died half-way, leaves only files that no table refers to. The driver
never holds rows: only fragment metadata, counts, and samples of violations.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from omnigraph import environment
from omnigraph.catalog.model import Catalog
from omnigraph.costs import COSTS
from omnigraph.errors import StorageFailed
from omnigraph.exec.load.exchange import Blocks
from omnigraph.exec.load.finish import Finish, IntakeResult
from omnigraph.exec.load.inputs import Input
from omnigraph.exec.load.load_write import LoadWrite
from omnigraph.exec.load.local import bucket_count
from omnigraph.exec.load.ndjson import Owner
from omnigraph.exec.load.patch import PatchFinish
from omnigraph.exec.load.pieces import Piece
from omnigraph.exec.load.request import BY_ID, LoadRequest
from omnigraph.exec.load.scratch import scratch_folder
from omnigraph.exec.load.sources import Part
from omnigraph.pipeline.connect_session import is_connect, parallelism
from omnigraph.pipeline.folder_exchange import FolderExchange
from omnigraph.pipeline.session import Profile, session
from omnigraph.pipeline.shared_scratch import SharedFolder, scratch_parent
from omnigraph.pipeline.shuffle_exchange import InputChanged, ShuffleExchange
from omnigraph.pipeline.splits import split
from omnigraph.pipeline.task_progress import TaskProgress
from omnigraph.pipeline.tasks import LoadJob, PartDone, gathered, run_batches, run_part
from omnigraph.storage.records import Commit
from omnigraph.storage.store import Store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FRAME_BUCKETS_MAX = 4_096
"""Buckets of a DataFrame, whose size is a guess beforehand: small ones are joined into a task."""

_SIZE_UNKNOWN = 1 << 60

READS_MAX = 3
"""How often a load reads its input when tasks that ran again gave other rows."""

_DOING = "ran the load"
SparkExchange = FolderExchange | ShuffleExchange


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
    told = TaskProgress(request.progress)
    told.report("start", 0)
    running = spark or (frame.sparkSession if frame is not None else session(_profile(input)))
    task_count = parallelism(running) * 2
    with _meeting(store, running) as meeting:
        folder = meeting if isinstance(meeting, Path) else None
        parts = () if frame is not None else split(input, tasks=task_count, folder=folder)
        buckets = _bucket_count(input, parts) if frame is None else frame_buckets(frame)
        for _ in range(READS_MAX):
            with _exchange(running, meeting, buckets, _title(parts)) as exchange:
                loading = SparkLoad(store, catalog, request, exchange, told)
                try:
                    with told.following(running):
                        return loading.run(parts, frame)
                except InputChanged:
                    continue
    raise StorageFailed(
        f"{_DOING} on Spark",
        "executors were lost, and reading their part of the input again gave other rows; cache or "
        "checkpoint a DataFrame that is computed anew each time, and load it again",
    )


@contextmanager
def _meeting(store: Store, spark: "SparkSession") -> "Iterator[Path | SharedFolder | None]":
    """The folder that all tasks share, on their machine or where the graph is; None where they meet
    in the shuffle."""
    if is_connect(spark):
        shared = SharedFolder.beside(store)
        try:
            yield shared
        finally:
            shared.discard()
        return
    chosen = environment.EXCHANGE.read()
    master = str(spark.sparkContext.master)
    is_one_machine = master == "local" or master.startswith("local[")
    if chosen == "shuffle" or (chosen == "auto" and not is_one_machine):
        yield None
        return
    with scratch_folder(Path(scratch_parent(store))) as folder:
        yield folder


@contextmanager
def _exchange(
    spark: "SparkSession", meeting: Path | SharedFolder | None, buckets: int, title: str
) -> "Iterator[SparkExchange]":
    if isinstance(meeting, SharedFolder):
        yield FolderExchange(spark, meeting.uri, buckets, _DOING, title, meeting.options)
        return
    if meeting is not None:
        yield FolderExchange(spark, meeting, buckets, _DOING, title)
        return
    exchange = ShuffleExchange(spark, buckets, _DOING, environment.SCRATCH.read(), title)
    try:
        yield exchange
    finally:
        exchange.close()


def _title(parts: tuple[Part | Piece, ...]) -> str:
    """The name of the load's jobs."""
    labels = dict.fromkeys(part.label for part in parts if isinstance(part, Part))
    first = next((label for label in labels if label), "rows")
    more = f" and {len(labels) - 1} more" if len(labels) > 1 else ""
    return f"omnigraph load {first}{more}"


def _bucket_count(input: Input, parts: tuple[Part | Piece, ...]) -> int:
    size = input.rows_bytes or sum(part.size for part in parts if isinstance(part, Part))
    # A bucket is a task here, and starting one costs more than in this process.
    return max(1, bucket_count(size) // 2)


def frame_buckets(frame: "DataFrame") -> int:
    """Buckets of a DataFrame by the size that Spark's optimiser reckons with, a power of two: more
    than its data needs are joined, fewer would be too large for a task. Spark Connect does not say
    a size."""
    if is_connect(frame.sparkSession):
        return COSTS.spark_buckets_min
    plan = frame._jdf.queryExecution().optimizedPlan()
    size = int(str(plan.stats().sizeInBytes()))
    if size >= _SIZE_UNKNOWN:
        return COSTS.spark_buckets_min
    needed = min(
        FRAME_BUCKETS_MAX, max(COSTS.spark_buckets_min, -(-size // COSTS.spark_bucket_bytes))
    )
    return 1 << (needed - 1).bit_length()


def _profile(input: Input) -> Profile:
    """A small load is over before a session for much data has started."""
    is_small = input.size_bytes is not None and input.size_bytes <= COSTS.spark_small_load_bytes_max
    return "interactive" if is_small else "bulk"


class SparkLoad:
    """One load on Spark, as its driver sees it."""

    def __init__(
        self,
        store: Store,
        catalog: Catalog,
        request: LoadRequest,
        exchange: SparkExchange,
        told: TaskProgress,
    ) -> None:
        self._store = store
        self._catalog = catalog
        self._request = request
        self._exchange = exchange
        self._told = told

    def run(
        self, parts: tuple[Part | Piece, ...], frame: "DataFrame | None"
    ) -> tuple[Commit, IntakeResult]:
        """Read everything, check everything, commit once."""
        request = self._request
        write = LoadWrite(self._store, self._catalog, request)
        job = replace(self._job(write), are_joined=len(parts) != 1)
        self._told.report("read", 0)
        results, blocks = self._read(job, parts, frame)
        taken = gathered(results, keep_rejects=request.rejects is not None)
        taken.rows = blocks
        self._told.report("read", sum(taken.counts.values()))
        finish_kind = PatchFinish if request.mode == "patch" else Finish
        finish = finish_kind(
            self._store,
            self._catalog,
            request,
            blocks,
            taken,
            self._exchange,
            files=[part.label if isinstance(part, Part) else part.file for part in parts],
            first_lines=_first_lines(parts, results),
        )
        return finish.commit(write.current, self._told.report), taken

    def _job(self, write: LoadWrite) -> LoadJob:
        owners: tuple[Owner, ...] = (*self._catalog.nodes.values(), *self._catalog.edges.values())
        # Rows that meet others by id are staged later; other modes write beside the tables.
        written = owners if self._request.mode not in BY_ID else ()
        return LoadJob(
            uri=self._store.where.uri,
            storage_options=self._store.where.storage_options,
            catalog=self._catalog,
            request=replace(self._request, progress=None),
            bases={owner.table: write.base(owner.table) for owner in written},
        )

    def _read(
        self, job: LoadJob, parts: tuple[Part | Piece, ...], frame: "DataFrame | None"
    ) -> tuple[list[PartDone], Blocks]:
        if frame is None:
            return self._exchange.put(partial(run_part, job), parts)
        return self._exchange.put_frame(partial(run_batches, job), _ordered(frame, job.request))


def _first_lines(parts: tuple[Part | Piece, ...], results: list[PartDone]) -> list[int]:
    """Line offset of each part within its file."""
    first: list[int] = []
    before = 0
    for part, result in zip(parts, results, strict=False):
        before = before if isinstance(part, Part) and part.start else 0
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
