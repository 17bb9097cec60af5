"""Merges of many rows: which committed rows are replaced, and the files that replace them.

    fragments of the table ─▶ ids, row ids, addresses ─▶ rows whose ids come again are taken out
    buckets of new rows    ─▶ a row that replaces one keeps its row id, the others are new

Invariant: of the committed table only ids, row ids and addresses are read. A job owns its fragments
or its bucket, so jobs can run anywhere and in any order, and together they make one version of the
table. What a bucket wrote stays good as long as it replaces the same rows.
"""

import hashlib
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.exec.load.checks import id_keys
from omnigraph.exec.load.records import Owner, schema_of
from omnigraph.exec.load.spill import AT, KeyFile, KeySet, Spill, read_keys
from omnigraph.exec.values.buckets import bucket_numbers
from omnigraph.storage.lance.tables import Fragments, Tables
from omnigraph.storage.protocol.write import Write
from omnigraph.storage.records import TablePin
from omnigraph.storage.store import Store, open_store
from omnigraph.types import TableKey

ROW_ID = "_rowid"
_AT_ONCE = 2
FRAGMENTS_ROWS = 1 << 20
"""Fragments that one job looks at hold about this many rows."""

Each = Callable[[Callable[[Any], Any], Sequence[Any]], list[Any]]
Item = TypeVar("Item")


def at_hand(work: Callable[[Item], Any], items: Sequence[Item]) -> list[Any]:
    """Every job in this process, two at a time; the results in the order of the items."""
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return list(pool.map(work, items))


def row_keys(table: TableKey) -> KeySet:
    """Whole rows of the input, by id."""
    return KeySet(f"{table}#rows", (), ("id",))


def replaced_keys(table: TableKey) -> KeySet:
    """Committed rows that a row of the input replaces."""
    return KeySet(f"{table}@replaced", ("id", ROW_ID), ("id",))


# Jobs


@dataclass(frozen=True, slots=True)
class FindJob:
    """Some fragments, and where the ids of the input are."""

    uri: str
    storage_options: dict[str, str] | None
    pin: TablePin
    fragments: tuple[int, ...]
    ids: tuple[KeyFile, ...]
    folder: str
    buckets: int


@dataclass(frozen=True, slots=True)
class TakenOut:
    """What is left of some fragments, and where the rows are noted that were taken out of them."""

    left: Fragments = ()
    gone: tuple[int, ...] = ()
    replaced: tuple[KeyFile, ...] = ()


def take_out(job: FindJob) -> TakenOut:
    """Find the rows whose ids come again, and take them out of their fragments."""
    tables = _tables(job.uri, job.storage_options)
    found = tables.reader(job.pin).addresses(job.fragments)
    numbers = bucket_numbers(found, ["id"], job.buckets) if job.buckets > 1 else None
    met = []
    for bucket in range(job.buckets):
        ids = read_keys(job.ids, id_keys(job.pin.table_key).name, bucket)
        if ids is not None:
            here = found if numbers is None else found.filter(pa.array(numbers == bucket))
            met.append(here.filter(pc.is_in(here["id"], value_set=ids["id"].combine_chunks())))
    rows = pa.concat_tables([found.slice(0, 0), *met])
    if not rows.num_rows:
        return TakenOut()
    left, gone = tables.without_rows(job.pin, rows["_rowaddr"].combine_chunks())
    noted = Spill(Path(job.folder), job.buckets)
    noted.add(replaced_keys(job.pin.table_key), rows.select(["id", ROW_ID]))
    noted.flush()
    return TakenOut(left, gone, tuple(noted.files))


@dataclass(frozen=True, slots=True)
class BucketDone:
    """The files of one bucket, and which rows they replace."""

    replaces: str
    fragments: Fragments


@dataclass(frozen=True, slots=True)
class WriteJob:
    """The rows of one bucket, and what is known of those they replace."""

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
    """Write the rows of one bucket, unless an earlier attempt wrote the same."""
    table = job.owner.table
    replaced = read_keys(job.replaced, replaced_keys(table).name, job.bucket)
    named = _digest(replaced)
    if job.before is not None and job.before.replaces == named:
        return job.before
    tables = _tables(job.uri, job.storage_options)
    rows = kept_rows(job.owner, read_keys(job.rows, row_keys(table).name, job.bucket), job.losers)
    stage = partial(tables.write_fragments, job.pin, replacing=False)
    if replaced is None:
        return BucketDone(named, stage(rows) if rows.num_rows else ())
    places = pc.index_in(rows["id"].combine_chunks(), replaced["id"].combine_chunks())
    old, new = rows.filter(places.is_valid()), rows.filter(places.is_null())
    row_ids = replaced[ROW_ID].combine_chunks().take(places.drop_null())
    fresh = stage(new) if new.num_rows else ()
    return BucketDone(named, (*stage(old, row_ids=row_ids), *fresh))


def kept_rows(owner: Owner, rows: pa.Table | None, losers: pa.Array | None) -> pa.Table:
    """Rows of a merge, without those that a later row of the same id replaces."""
    schema = schema_of(owner)
    if rows is None:
        return schema.empty_table()
    if losers is not None:
        rows = rows.filter(pc.invert(pc.is_in(rows.column(AT), value_set=losers)))
    return rows.select(schema.names).cast(schema)


def _digest(replaced: pa.Table | None) -> str:
    if replaced is None:
        return ""
    rows = replaced.sort_by("id")
    told = hashlib.sha256()
    for name in ("id", ROW_ID):
        for buffer in rows[name].combine_chunks().buffers():
            told.update(b"" if buffer is None else memoryview(buffer))
    return told.hexdigest()


def _tables(uri: str, storage_options: dict[str, str] | None) -> Tables:
    return open_store(uri, read_only=True, storage_options=storage_options).tables


# The whole


@dataclass(slots=True)
class Upsert:
    """The merges of one load, over its attempts."""

    store: Store
    folder: Path
    each: Each
    _done: dict[tuple[TableKey, int], BucketDone] = field(default_factory=dict)

    def stage(
        self, write: Write, owner: Owner, ids: Spill, rows: Spill, losers: pa.Array | None
    ) -> None:
        """Stage one table's merge as one version."""
        base = write.base(owner.table)
        where = self.store.where
        ids.flush()
        rows.flush()
        stated = tuple(f for f in ids.files if f.name == id_keys(owner.table).name)
        groups = grouped(write.read(owner.table).fragments(), FRAGMENTS_ROWS)
        find = [
            FindJob(
                where.uri, where.storage_options, base, g, stated, str(self.folder), rows.buckets
            )
            for g in groups
        ]
        taken: list[TakenOut] = self.each(take_out, find if stated else [])
        replaced = tuple(file for each in taken for file in each.replaced)
        brought = tuple(f for f in rows.files if f.name == row_keys(owner.table).name)
        buckets = sorted({file.bucket for file in brought})
        jobs = [
            WriteJob(
                where.uri,
                where.storage_options,
                base,
                owner,
                bucket,
                tuple(f for f in brought if f.bucket == bucket),
                losers,
                tuple(f for f in replaced if f.bucket == bucket),
                self._done.get((owner.table, bucket)),
            )
            for bucket in buckets
        ]
        done: list[BucketDone] = self.each(write_bucket, jobs)
        self._done |= {(owner.table, b): d for b, d in zip(buckets, done, strict=True)}
        added = tuple(fragment for each in done for fragment in each.fragments)
        left = tuple(fragment for each in taken for fragment in each.left)
        gone = tuple(fragment for each in taken for fragment in each.gone)
        if left or gone:
            updated = sum(file.rows for file in replaced)
            write.replace_rows(owner.table, left=left, gone=gone, added=added, updated=updated)
        else:
            write.fragments(owner.table, added)


def grouped(fragments: dict[int, int], rows_max: int) -> list[tuple[int, ...]]:
    """Fragments in groups of about so many rows, in their order. There is one group at least."""
    groups: list[list[int]] = [[]]
    rows = 0
    for fragment, count in fragments.items():
        if groups[-1] and rows + count > rows_max:
            groups.append([])
            rows = 0
        groups[-1].append(fragment)
        rows += count
    return [tuple(group) for group in groups]
