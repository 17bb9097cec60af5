"""Export of a snapshot to files: in one process, or as Spark tasks over fragments.

Invariant: every file is of one snapshot, and all of them together hold each row once. A folder
that is not empty is refused.
"""

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import IO, TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pfs
import pyarrow.parquet as pq

from omnigraph.catalog.model import Catalog, EdgeType
from omnigraph.costs import COSTS
from omnigraph.errors import AlreadyExists, BadRequest, StorageFailed
from omnigraph.exec.changes import export as files_export
from omnigraph.exec.changes.export import (
    ExportResult,
    choose_owners,
    rows_as_now,
    write_lines,
)
from omnigraph.exec.load.exchange import RunJobs, in_process
from omnigraph.exec.load.files import Options, is_remote, opened
from omnigraph.exec.load.ndjson import Owner
from omnigraph.exec.load.type_files import type_folder
from omnigraph.exec.load.upsert import grouped
from omnigraph.exec.points import Points
from omnigraph.exec.progress import Meter, Progress
from omnigraph.exec.schemas import Schemas
from omnigraph.pipeline.executors import run_tasks
from omnigraph.pipeline.session import session
from omnigraph.storage.opening import open_store
from omnigraph.storage.records import Snapshot, TablePin
from omnigraph.storage.store import Store
from omnigraph.types import Kind, counts_of_kind

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ENDINGS = {"jsonl": "jsonl", "parquet": "parquet"}


@dataclass(frozen=True, slots=True)
class ExportOrder:
    """Arguments of an export."""

    target: str | os.PathLike[str] | IO[bytes]
    format: str
    types: Iterable[str] | None
    branch: str
    snapshot: str | None
    engine: str = "local"
    spark: "SparkSession | None" = None
    progress: Callable[[Progress], None] | None = None
    dates: str = "numbers"


def export(store: Store, schemas: Schemas, order: ExportOrder) -> ExportResult:
    """Write a snapshot to a file, a folder (its name ends in a slash, or it exists) or a stream."""
    if order.engine not in ("local", "spark"):
        raise BadRequest(f"unknown engine '{order.engine}'", "use local or spark")
    points = Points(store)
    pinned = points.pinned(order.branch if order.snapshot is None else None, order.snapshot)
    with store.history.lost.reading(pinned):
        return _export(store, schemas.of(pinned).catalog, pinned, order)


def _export(store: Store, catalog: Catalog, pinned: Snapshot, order: ExportOrder) -> ExportResult:
    named = isinstance(order.target, str | os.PathLike)
    if order.engine == "local" and not (named and is_remote(os.fspath(order.target))):  # type: ignore[arg-type]
        return files_export.export(
            store,
            catalog,
            order.target,
            pinned,
            format=order.format,
            types=order.types,
            progress=order.progress,
            dates=order.dates,
        )
    if not named:
        raise BadRequest("a stream is written by one process", "use engine='local'")
    if order.format not in _ENDINGS:
        raise BadRequest(f"unknown export format '{order.format}'", "use jsonl or parquet")
    if order.dates != "numbers":
        raise BadRequest("an export in parts writes dates as numbers", "export to a local path")
    return _in_parts(store, catalog, pinned, order)


def _in_parts(
    store: Store, catalog: Catalog, snapshot: Snapshot, order: ExportOrder
) -> ExportResult:
    folder = os.fspath(order.target).rstrip("/")  # type: ignore[arg-type]
    options = store.where.options
    _require_empty(folder, options)
    jobs = [
        job
        for owner in choose_owners(catalog, order.types)
        for job in _jobs(store, snapshot, owner, order.format, folder)
    ]
    counts = dict.fromkeys((job.owner.table for job in jobs), 0)
    meter = Meter(order.progress)
    for job, rows in zip(jobs, _each(order)(write_part, jobs), strict=True):
        counts[job.owner.table] += rows
        meter.add(rows)
    return ExportResult(
        nodes=counts_of_kind(counts, Kind.NODE),
        edges=counts_of_kind(counts, Kind.EDGE),
        commit_id=snapshot.commit_id,
    )


def _each(order: ExportOrder) -> RunJobs:
    if order.engine == "local":
        return in_process
    return partial(run_tasks, order.spark or session("bulk"), doing="ran the export")


def _require_empty(folder: str, options: Options) -> None:
    files, path = opened(folder, options)
    try:
        if files.get_file_info(path).type == pfs.FileType.NotFound:
            if not is_remote(folder):
                files.create_dir(path)
            return
        if files.get_file_info(pfs.FileSelector(path)):
            raise AlreadyExists("export", folder, "give an empty folder")
    except OSError as cause:
        raise StorageFailed(f"looked at {folder}", str(cause)) from cause


@dataclass(frozen=True, slots=True)
class PartJob:
    """Some fragments of a type, and the file they go to."""

    uri: str
    options: Options
    owner: Owner
    pin: TablePin
    fragments: tuple[int, ...]
    format: str
    file: str


def _jobs(
    store: Store, snapshot: Snapshot, owner: Owner, format: str, folder: str
) -> list[PartJob]:
    if owner.table not in snapshot.tables:
        return []
    pin = snapshot.tables[owner.table]
    groups = grouped(store.tables.reader(pin).fragments(), COSTS.spark_export_rows)
    return [
        PartJob(
            store.where.uri,
            store.where.options,
            owner,
            pin,
            group,
            format,
            f"{folder}/{type_folder(owner)}/part-{number:05}.{_ENDINGS[format]}",
        )
        for number, group in enumerate(groups)
    ]


def write_part(job: PartJob) -> int:
    """Write one file; how many rows it has. A second attempt writes the same again."""
    store = open_store(job.uri, read_only=True, storage_options=dict(job.options) or None)
    reader = store.tables.reader(job.pin)
    batches = rows_as_now(reader, job.owner, fragments=job.fragments)
    rows = pa.Table.from_batches(batches) if job.fragments else _none(job.owner)
    rows = rows.take(pc.sort_indices(rows["id"])) if rows.num_rows else rows
    files, path = opened(job.file, job.options)
    try:
        if not is_remote(job.file):
            files.create_dir(os.path.dirname(path))
        with files.open_output_stream(path) as stream:
            if job.format == "parquet":
                pq.write_table(rows, stream)
            else:
                write_lines(stream, iter(rows.to_batches(max_chunksize=8_192)), job.owner)
    except OSError as cause:
        raise StorageFailed(f"wrote {job.file}", str(cause)) from cause
    return int(rows.num_rows)


def _none(owner: Owner) -> pa.Table:
    """No rows, with the columns of the type."""
    ends = ["src", "dst"] if isinstance(owner, EdgeType) else []
    fields = [(name, pa.utf8()) for name in ("id", *ends)]
    fields += [(prop.name, files_export.column_type(prop)) for prop in owner.properties]
    return pa.schema(fields).empty_table()
