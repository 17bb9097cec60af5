"""Bulk upsert: a partitioned join of new rows with committed ids, staged as fragments.

    fragments of the table ─▶ ids, row ids, addresses ─▶ deletion vectors for replaced rows
    buckets of new rows    ─▶ a replacing row keeps the row id, the others are new

Invariant: of the committed table only ids, row ids and addresses are read. A job owns its fragments
or its bucket, so jobs can run in any process and in any order, and together they make one version
of the table. The fragments of a bucket are reused by a later attempt that replaces the same rows.
"""

import hashlib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph import environment
from omnigraph.exec.load.checks import id_keys
from omnigraph.exec.load.ndjson import Owner
from omnigraph.exec.load.spill import ORIGIN, KeyFile, KeySet, Spill, read_keys
from omnigraph.exec.threads import in_order
from omnigraph.exec.values.buckets import bucket_numbers
from omnigraph.storage.lance.columns import ADDRESS, ROW_ID
from omnigraph.storage.lance.staging import Fragments, TableStaging
from omnigraph.storage.opening import open_store
from omnigraph.storage.protocol.write import Write
from omnigraph.storage.records import TablePin
from omnigraph.storage.store import Store
from omnigraph.types import TableKey

FRAGMENTS_ROWS = 1 << 20
"""Rows, roughly, in the fragments of one job."""

RunJobs = Callable[[Callable[[Any], Any], Sequence[Any]], list[Any]]
"""Runs a function over jobs, in this process or on Spark; the results in the order of the jobs."""

Item = TypeVar("Item")


def write_threads() -> int:
    """How many files a load in this process writes at once: encoding them is work for a core."""
    return min(environment.LOAD_CONCURRENCY.read(), max(2, os.cpu_count() or 1))


def in_process(work: Callable[[Item], Any], items: Sequence[Item]) -> list[Any]:
    """Run every job in threads of this process; the results in the order of the items."""
    return list(in_order(work, items, threads=write_threads()))


def row_keys(table: TableKey) -> KeySet:
    """Whole rows of the input, by id."""
    return KeySet(f"{table}#rows", (), ("id",))


def replaced_keys(table: TableKey) -> KeySet:
    """Committed rows that a row of the input replaces."""
    return KeySet(f"{table}@replaced", ("id", ROW_ID), ("id",))


# Jobs


@dataclass(frozen=True, slots=True)
class FindJob:
    """Fragments to search for the ids of the input, which are in spill files."""

    uri: str
    storage_options: dict[str, str] | None
    pin: TablePin
    fragments: tuple[int, ...]
    ids: tuple[KeyFile, ...]
    folder: str
    buckets: int


@dataclass(frozen=True, slots=True)
class TakenOut:
    """Fragments without their replaced rows, and spill files with the row ids of those."""

    left: Fragments = ()
    gone: tuple[int, ...] = ()
    replaced: tuple[KeyFile, ...] = ()


def take_out(job: FindJob) -> TakenOut:
    """Find the rows whose ids are in the input, and delete them from their fragments."""
    tables = job_tables(job.uri, job.storage_options)
    rows = _matching(job, tables)
    if not rows.num_rows:
        return TakenOut()
    left, gone = tables.without_rows(job.pin, rows[ADDRESS].combine_chunks())
    return TakenOut(left, gone, _noted(job, rows))


def note_rows(job: FindJob) -> tuple[KeyFile, ...]:
    """Find the rows whose ids are in the input, and write their row ids to spill files."""
    return _noted(job, _matching(job, job_tables(job.uri, job.storage_options)))


def _noted(job: FindJob, rows: pa.Table) -> tuple[KeyFile, ...]:
    noted = Spill(Path(job.folder), job.buckets)
    noted.add(replaced_keys(job.pin.table_key), rows.select(["id", ROW_ID]))
    noted.flush()
    return tuple(noted.files)


def _matching(job: FindJob, tables: TableStaging) -> pa.Table:
    """The ids, row ids and addresses of the rows whose ids are in the input."""
    committed = tables.reader(job.pin).addresses(job.fragments)
    numbers = bucket_numbers(committed, ["id"], job.buckets) if job.buckets > 1 else None
    matches = []
    for bucket in range(job.buckets):
        ids = read_keys(job.ids, id_keys(job.pin.table_key).name, bucket)
        if ids is not None:
            of_bucket = (
                committed if numbers is None else committed.filter(pa.array(numbers == bucket))
            )
            matches.append(
                of_bucket.filter(pc.is_in(of_bucket["id"], value_set=ids["id"].combine_chunks()))
            )
    return pa.concat_tables([committed.slice(0, 0), *matches])


@dataclass(frozen=True, slots=True)
class BucketDone:
    """The fragments of one bucket, and a digest of the rows they replace."""

    replaces: str
    fragments: Fragments


@dataclass(frozen=True, slots=True)
class WriteJob:
    """The rows of one bucket, and the row ids of the committed rows they replace."""

    uri: str
    storage_options: dict[str, str] | None
    pin: TablePin
    owner: Owner
    bucket: int
    rows: tuple[KeyFile, ...]
    losers: pa.Array | None
    replaced: tuple[KeyFile, ...]
    before: BucketDone | None


def write_bucket(job: WriteJob) -> BucketDone:
    """Write the rows of one bucket. Idempotent: reuses what an earlier attempt wrote."""
    table = job.owner.table
    replaced = read_keys(job.replaced, replaced_keys(table).name, job.bucket)
    named = _digest(replaced)
    if job.before is not None and job.before.replaces == named:
        return job.before
    tables = job_tables(job.uri, job.storage_options)
    rows = kept_rows(job.owner, read_keys(job.rows, row_keys(table).name, job.bucket), job.losers)
    stage = partial(tables.write_fragments, job.pin, replacing=False)
    if replaced is None:
        return BucketDone(named, stage(rows) if rows.num_rows else ())
    positions = pc.index_in(rows["id"].combine_chunks(), replaced["id"].combine_chunks())
    old, new = rows.filter(positions.is_valid()), rows.filter(positions.is_null())
    row_ids = replaced[ROW_ID].combine_chunks().take(positions.drop_null())
    fresh = stage(new) if new.num_rows else ()
    return BucketDone(named, (*stage(old, row_ids=row_ids), *fresh))


def kept_rows(owner: Owner, rows: pa.Table | None, losers: pa.Array | None) -> pa.Table:
    """Rows of a merge, without those that a later row of the same id replaces."""
    schema = owner.schema
    if rows is None:
        return schema.empty_table()
    if losers is not None:
        rows = rows.filter(pc.invert(pc.is_in(rows.column(ORIGIN), value_set=losers)))
    return rows.select(schema.names).cast(schema)


def _digest(replaced: pa.Table | None) -> str:
    if replaced is None:
        return ""
    rows = replaced.sort_by("id")
    digest = hashlib.sha256()
    for name in ("id", ROW_ID):
        for buffer in rows[name].combine_chunks().buffers():
            digest.update(b"" if buffer is None else memoryview(buffer))
    return digest.hexdigest()


def job_tables(uri: str, storage_options: dict[str, str] | None) -> TableStaging:
    """The tables of the graph, for a job that may run in another process."""
    return open_store(uri, read_only=True, storage_options=storage_options).tables


# One table


@dataclass(slots=True)
class Upsert:
    """Upserts of one load; remembers the fragments of buckets between attempts."""

    store: Store
    folder: Path
    run_jobs: RunJobs
    _done: dict[tuple[TableKey, int], BucketDone] = field(default_factory=dict)

    def stage(
        self, write: Write, owner: Owner, ids: Spill, rows: Spill, losers: pa.Array | None
    ) -> None:
        """Stage one table's merge as one version."""
        ids.flush()
        rows.flush()
        taken: list[TakenOut] = self.run_jobs(take_out, self._find_jobs(write, owner, ids))
        replaced = tuple(file for each in taken for file in each.replaced)
        jobs = self._write_jobs(write, owner, rows, losers, replaced)
        done: list[BucketDone] = self.run_jobs(write_bucket, jobs)
        self._done |= {(owner.table, j.bucket): d for j, d in zip(jobs, done, strict=True)}
        added = tuple(fragment for each in done for fragment in each.fragments)
        left = tuple(fragment for each in taken for fragment in each.left)
        gone = tuple(fragment for each in taken for fragment in each.gone)
        if left or gone:
            updated = sum(file.rows for file in replaced)
            write.replace_rows(owner.table, left=left, gone=gone, added=added, updated=updated)
        else:
            write.fragments(owner.table, added)

    def _find_jobs(self, write: Write, owner: Owner, ids: Spill) -> list[FindJob]:
        """A job a group of fragments; none when every id of the input was minted for it."""
        stated = tuple(f for f in ids.files if f.name == id_keys(owner.table).name)
        base, where, folder = write.base(owner.table), self.store.where, str(self.folder)
        groups = grouped(write.read(owner.table).fragments(), FRAGMENTS_ROWS) if stated else []
        return [
            FindJob(where.uri, where.storage_options, base, group, stated, folder, ids.buckets)
            for group in groups
        ]

    def _write_jobs(
        self,
        write: Write,
        owner: Owner,
        rows: Spill,
        losers: pa.Array | None,
        replaced: tuple[KeyFile, ...],
    ) -> list[WriteJob]:
        """A job a bucket that has rows, in order of buckets."""
        files = tuple(f for f in rows.files if f.name == row_keys(owner.table).name)
        base, where = write.base(owner.table), self.store.where
        return [
            WriteJob(
                where.uri,
                where.storage_options,
                base,
                owner,
                bucket,
                tuple(f for f in files if f.bucket == bucket),
                losers,
                tuple(f for f in replaced if f.bucket == bucket),
                self._done.get((owner.table, bucket)),
            )
            for bucket in sorted({file.bucket for file in files})
        ]


def grouped(fragments: dict[int, int], rows_max: int) -> list[tuple[int, ...]]:
    """Fragments in groups of about `rows_max` rows, in their order; at least one group."""
    groups: list[list[int]] = [[]]
    rows = 0
    for fragment, count in fragments.items():
        if groups[-1] and rows + count > rows_max:
            groups.append([])
            rows = 0
        groups[-1].append(fragment)
        rows += count
    return [tuple(group) for group in groups]
