"""Bulk upsert: a partitioned join of new rows with committed ids, staged as fragments.

    fragments of the table ─▶ ids, row ids, addresses ─▶ deletion vectors for replaced rows
    buckets of new rows    ─▶ a replacing row keeps the row id, the others are new

Where every job can read every bucket, a job that owns some fragments looks for the ids of the input
among its own. Elsewhere ids of the table and of the input meet by bucket, and addresses of the rows
to take out by fragment.

Invariant: of the committed table only ids, row ids and addresses are read. A job owns its fragments
or its bucket, so jobs can run in any process and in any order, and together they make one version
of the table. The fragments of a bucket are reused by a later attempt that replaces the same rows.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.costs import COSTS
from omnigraph.exec.load.checks import id_keys
from omnigraph.exec.load.exchange import Blocks, Exchange, ReadKeys, spill_of
from omnigraph.exec.load.ndjson import Owner
from omnigraph.exec.load.spill import ORIGIN, KeySet, Spill
from omnigraph.exec.values.buckets import bucket_numbers
from omnigraph.storage.lance.columns import ADDRESS, ROW_ID
from omnigraph.storage.lance.reader import TableReader
from omnigraph.storage.lance.staging import Fragments, TableStaging
from omnigraph.storage.opening import open_store
from omnigraph.storage.protocol.write import Write
from omnigraph.storage.records import Home, TablePin, WriteBase
from omnigraph.storage.store import Store
from omnigraph.types import TableKey


def row_keys(table: TableKey) -> KeySet:
    """Whole rows of the input, by id."""
    return KeySet(f"{table}#rows", (), ("id",))


def replaced_keys(table: TableKey) -> KeySet:
    """Committed rows that a row of the input replaces."""
    return KeySet(f"{table}@replaced", ("id", ROW_ID), ("id",))


def address_keys(table: TableKey) -> KeySet:
    """Committed rows with their row ids and addresses, to meet the ids of the input."""
    return KeySet(f"{table}@address", ("id", ROW_ID, ADDRESS), ("id",))


def gone_keys(table: TableKey) -> KeySet:
    """Addresses of rows to take out, by their fragment, which one job then rewrites."""
    return KeySet(f"{table}@gone", (ADDRESS, _FRAGMENT), (_FRAGMENT,))


_FRAGMENT = "fragment"
_OFFSET_BITS = 32


# Which rows are replaced


@dataclass(frozen=True, slots=True)
class FindJob:
    """Fragments to search for the ids of the input. `ids` has these on disk, where every job can
    read them all; None where ids meet by bucket."""

    uri: str
    storage_options: dict[str, str] | None
    pin: TablePin
    fragments: tuple[int, ...]
    ids: Spill | None


@dataclass(frozen=True, slots=True)
class TakenOut:
    """Fragments without their replaced rows."""

    left: Fragments = ()
    gone: tuple[int, ...] = ()


def take_out(base: WriteBase, job: FindJob, out: Spill) -> TakenOut:
    """Find the rows whose ids are in the input, delete them from their fragments, and put their row
    ids. The files that say so are written beside `base`."""
    tables = job_tables(job.uri, job.storage_options)
    rows = _matching(job, tables)
    if not rows.num_rows:
        return TakenOut()
    out.add(replaced_keys(job.pin.table_key), rows.select(["id", ROW_ID]))
    return TakenOut(*tables.without_rows(base, rows[ADDRESS].combine_chunks()))


def note_rows(job: FindJob, out: Spill) -> None:
    """Find the rows whose ids are in the input, and put their row ids."""
    rows = _matching(job, job_tables(job.uri, job.storage_options))
    out.add(replaced_keys(job.pin.table_key), rows.select(["id", ROW_ID]))


def _matching(job: FindJob, tables: TableStaging) -> pa.Table:
    """The ids, row ids and addresses of the rows whose ids are in the input."""
    assert job.ids is not None
    committed = tables.reader(job.pin).addresses(job.fragments)
    buckets = job.ids.buckets
    numbers = bucket_numbers(committed, ["id"], buckets) if buckets > 1 else None
    matches = []
    for bucket in range(buckets):
        ids = job.ids.read(id_keys(job.pin.table_key).name, bucket)
        if ids is not None:
            of_bucket = (
                committed if numbers is None else committed.filter(pa.array(numbers == bucket))
            )
            matches.append(_among(of_bucket, ids))
    return pa.concat_tables([committed.slice(0, 0), *matches])


def _among(committed: pa.Table, ids: pa.Table) -> pa.Table:
    return committed.filter(pc.is_in(committed["id"], value_set=ids["id"].combine_chunks()))


def put_addresses(job: FindJob, out: Spill) -> None:
    """Put the ids of the fragments of a job, with row ids and addresses."""
    rows = job_tables(job.uri, job.storage_options).reader(job.pin).addresses(job.fragments)
    out.add(address_keys(job.pin.table_key), rows)


def match_bucket(table: TableKey, bucket: int, read: ReadKeys, out: Spill) -> None:
    """In one bucket of ids, find the rows whose ids are in the input: put their row ids by id and
    their addresses by fragment."""
    committed, ids = read(address_keys(table).name), read(id_keys(table).name)
    if committed is None or ids is None:
        return
    rows = _among(committed, ids)
    out.add(replaced_keys(table), rows.select(["id", ROW_ID]))
    fragments = pc.shift_right(rows[ADDRESS], pa.scalar(_OFFSET_BITS, pa.uint64()))
    out.add(gone_keys(table), rows.select([ADDRESS]).append_column(_FRAGMENT, fragments))


@dataclass(frozen=True, slots=True)
class TakeOutJob:
    """A table whose rows to take out meet by fragment; the files that say so are written beside
    `base`."""

    uri: str
    storage_options: dict[str, str] | None
    base: WriteBase


def take_out_bucket(job: TakeOutJob, bucket: int, read: ReadKeys) -> TakenOut:
    """Delete the rows to take out of the fragments of one bucket."""
    rows = read(gone_keys(job.base.table_key).name)
    if rows is None:
        return TakenOut()
    tables = job_tables(job.uri, job.storage_options)
    return TakenOut(*tables.without_rows(job.base, rows[ADDRESS].combine_chunks()))


@dataclass(frozen=True, slots=True)
class IdMatching:
    """Finds the committed rows that the input of a load names by id."""

    store: Store
    exchange: Exchange

    def replaced(self, reader: TableReader, ids: Blocks) -> Blocks:
        """The row ids of these rows, by id."""
        if self.exchange.is_shared:
            return self.exchange.put(note_rows, self._jobs(reader, ids))[1]
        return self._matched(reader, ids)

    def taken_out(self, base: WriteBase, ids: Blocks) -> tuple[list[TakenOut], Blocks]:
        """The fragments of a write's base without these rows, and their row ids."""
        reader = self.store.tables.reader(base)
        if self.exchange.is_shared:
            return self.exchange.put(partial(take_out, base), self._jobs(reader, ids))
        matched = self._matched(reader, ids)
        if not matched.rows(gone_keys(base.table_key).name):
            return [], matched
        where = self.store.where
        job = TakeOutJob(where.uri, where.storage_options, base)
        (taken,) = self.exchange.read([partial(take_out_bucket, job)], [matched])
        return taken, matched

    def _matched(self, reader: TableReader, ids: Blocks) -> Blocks:
        """Ids of the table and of the input meet by bucket."""
        _, committed = self.exchange.put(put_addresses, self._jobs(reader, ids))
        work = partial(match_bucket, reader.pin.table_key)
        return self.exchange.forward([work], [ids, committed])[1]

    def _jobs(self, reader: TableReader, ids: Blocks) -> list[FindJob]:
        """A job a group of fragments; none when every id of the input was minted for it."""
        if not ids.rows(id_keys(reader.pin.table_key).name):
            return []
        shared = spill_of(ids) if self.exchange.is_shared else None
        if shared is not None:
            shared.flush()
        where = self.store.where
        return [
            FindJob(where.uri, where.storage_options, reader.pin, group, shared)
            for group in grouped(reader.fragments(), COSTS.upsert_job_rows)
        ]


# Which rows are written


@dataclass(frozen=True, slots=True)
class BucketDone:
    """The fragments of one bucket, and a digest of the rows they replace."""

    bucket: int
    replaces: str
    fragments: Fragments


@dataclass(frozen=True, slots=True)
class WriteJob:
    """A table whose new rows are written bucket by bucket; `before` is what an earlier attempt
    wrote beside the same base."""

    uri: str
    storage_options: dict[str, str] | None
    base: WriteBase
    owner: Owner
    losers: pa.Array | None
    before: Mapping[int, BucketDone]


def write_bucket(job: WriteJob, bucket: int, read: ReadKeys) -> BucketDone:
    """Write the rows of one bucket. Idempotent: reuses what an earlier attempt wrote."""
    table = job.owner.table
    replaced = read(replaced_keys(table).name)
    named = _digest(replaced)
    before = job.before.get(bucket)
    if before is not None and before.replaces == named:
        return before
    rows = kept_rows(job.owner, read(row_keys(table).name), job.losers)
    if not rows.num_rows:
        return BucketDone(bucket, named, ())
    stage = partial(
        job_tables(job.uri, job.storage_options).write_fragments, job.base, replacing=False
    )
    if replaced is None:
        return BucketDone(bucket, named, stage(rows))
    positions = pc.index_in(rows["id"].combine_chunks(), replaced["id"].combine_chunks())
    old, new = rows.filter(positions.is_valid()), rows.filter(positions.is_null())
    row_ids = replaced[ROW_ID].combine_chunks().take(positions.drop_null())
    fresh = stage(new) if new.num_rows else ()
    return BucketDone(bucket, named, (*stage(old, row_ids=row_ids), *fresh))


@dataclass(frozen=True, slots=True)
class JoinJob:
    """A table whose small parts are written together."""

    uri: str
    storage_options: dict[str, str] | None
    base: WriteBase
    owner: Owner
    replacing: bool


def write_joined(job: JoinJob, bucket: int, read: ReadKeys) -> Fragments:
    """Write the rows of neighbouring parts that were too few for a fragment each."""
    rows = kept_rows(job.owner, read(row_keys(job.owner.table).name), None)
    if not rows.num_rows:
        return ()
    tables = job_tables(job.uri, job.storage_options)
    return tables.write_fragments(job.base, rows, replacing=job.replacing)


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
    exchange: Exchange
    _done: dict[tuple[TableKey, Home], dict[int, BucketDone]] = field(default_factory=dict)

    def stage(
        self, write: Write, owner: Owner, ids: Blocks, rows: Blocks, losers: pa.Array | None
    ) -> None:
        """Stage one table's merge as one version."""
        base = write.base(owner.table)
        taken, replaced = IdMatching(self.store, self.exchange).taken_out(base, ids)
        where, line = self.store.where, (owner.table, base.home)
        job = WriteJob(
            where.uri, where.storage_options, base, owner, losers, self._done.get(line, {})
        )
        (done,) = self.exchange.read([partial(write_bucket, job)], [rows, replaced], "rows")
        self._done[line] = {each.bucket: each for each in done}
        added = tuple(fragment for each in done for fragment in each.fragments)
        left = tuple(fragment for each in taken for fragment in each.left)
        gone = tuple(fragment for each in taken for fragment in each.gone)
        if left or gone:
            updated = replaced.rows(replaced_keys(owner.table).name)
            write.replace_rows(owner.table, left=left, gone=gone, added=added, updated=updated)
        else:
            write.fragments(owner.table, added)


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
