"""Partial rows of a bulk load (mode patch): completed from committed rows, then merged whole.

    rows of one id ─▶ folded in input order ─▶ absent properties from ─▶ a merge of whole rows
                      (the last value given)   the committed row         (`finish`)

Invariant: a property that is absent keeps its committed value, or in a new row takes its default,
and a null sets null. Rules see whole rows alone. Committed rows are read at the version that the
commit is fenced to, so every attempt completes anew. A job owns one bucket of ids, in any process.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.catalog.model import Catalog
from omnigraph.exec.load.checks import KeyCheck, id_keys
from omnigraph.exec.load.exchange import Blocks, Exchange, ReadKeys
from omnigraph.exec.load.finish import (
    NO_ORDER,
    Finish,
    IntakeResult,
    Report,
    publish_load,
    raise_faults,
    run_all,
)
from omnigraph.exec.load.intake import RowSink, absent_mark, made_ready
from omnigraph.exec.load.ndjson import Owner, TypedRows
from omnigraph.exec.load.request import LoadRequest
from omnigraph.exec.load.spill import ORIGIN, Spill, part_and_line
from omnigraph.exec.load.upsert import IdMatching, job_tables, replaced_keys, row_keys
from omnigraph.exec.rules.faults import Faults, Reject, merged
from omnigraph.exec.rules.rules import rules_of
from omnigraph.exec.values.pushdown import ids_filter
from omnigraph.exec.values.selection import is_few
from omnigraph.storage.lance.columns import ROW_ID
from omnigraph.storage.lance.reader import TableReader
from omnigraph.storage.protocol.write import Write
from omnigraph.storage.records import Commit, TablePin
from omnigraph.storage.store import Store
from omnigraph.types import TableKey

# One bucket


@dataclass(frozen=True, slots=True)
class CompleteJob:
    """A type whose partial rows are completed bucket by bucket. `are_many` says that the row ids of
    the committed rows were put; else they are few enough to be looked up by id."""

    uri: str
    storage_options: dict[str, str] | None
    pin: TablePin
    owner: Owner
    are_many: bool
    keep_rejects: bool


def complete(job: CompleteJob, bucket: int, read: ReadKeys, out: Spill) -> Faults:
    """Fold and complete the rows of one bucket, check their row rules, and put the whole rows and
    their keys; the faults of their row rules."""
    given = read(row_keys(job.owner.table).name)
    if given is None:
        return Faults(job.keep_rejects)
    partial_rows = folded(job.owner, given)
    whole = _whole(job, partial_rows, read)
    lines = partial_rows[ORIGIN].combine_chunks()
    every = pa.repeat(pa.scalar(True), len(lines))
    # Lines are origins here, whose part is in them, so part 0 adds nothing.
    typed = TypedRows(job.owner, whole, lines, every)
    ready = made_ready(typed, 0, None, buckets=out.buckets, keep_rejects=job.keep_rejects)
    faults = _by_part(ready.faults)
    if not faults:
        for each in ready.keys:
            out.take(each)
        RowSink(out).add(typed, 0)
    return faults


def folded(owner: Owner, rows: pa.Table) -> pa.Table:
    """One partial row an id: of each property the last value given, by the order of the input."""
    rows = rows.take(pc.sort_indices(rows[ORIGIN])).combine_chunks()
    encoded = rows["id"].combine_chunks().dictionary_encode()
    count = len(encoded.dictionary)
    if count == rows.num_rows:
        return rows
    codes, positions = encoded.indices.to_numpy(), np.arange(rows.num_rows)
    last = np.empty(count, np.int64)
    last[codes] = positions
    newest = rows.take(pa.array(last))
    for prop in owner.properties:
        mark = absent_mark(prop.name)
        gives = np.flatnonzero(~rows[mark].to_numpy())
        chosen = np.full(count, -1)
        chosen[codes[gives]] = positions[gives]
        # A cell that no row gives holds the default.
        newest = _with(
            newest, prop.name, rows[prop.name].take(pa.array(np.where(chosen < 0, last, chosen)))
        )
        newest = _with(newest, mark, pa.array(chosen < 0))
    return newest


def _with(rows: pa.Table, name: str, values: pa.Array | pa.ChunkedArray) -> pa.Table:
    index = rows.column_names.index(name)
    return rows.set_column(index, rows.schema.field(index), values)


def _whole(job: CompleteJob, rows: pa.Table, read: ReadKeys) -> pa.Table:
    """The rows with what is absent filled in from the committed rows of their ids."""
    schema = job.owner.schema
    absent = {p.name: rows[absent_mark(p.name)].to_numpy() for p in job.owner.properties}
    incomplete = [name for name, mask in absent.items() if mask.any()]
    # Not cast: a required property may still be null, which the rules say better.
    whole = pa.Table.from_arrays([rows[name] for name in schema.names], schema=schema)
    if not incomplete:
        return whole
    reader = job_tables(job.uri, job.storage_options).reader(job.pin)
    some_absent = pa.array(np.logical_or.reduce([absent[name] for name in incomplete]))
    ids = rows["id"].filter(some_absent).combine_chunks()
    known = _committed_row_ids(job, reader, ids, read)
    if not known.num_rows:
        return whole
    committed = _read(reader, known[ROW_ID].combine_chunks(), incomplete)
    in_committed = pc.index_in(rows["id"].combine_chunks(), known["id"].combine_chunks())
    others = pc.add(in_committed.cast(pa.int64()), rows.num_rows)
    is_there, own = in_committed.is_valid(), pa.array(np.arange(rows.num_rows))
    for name in incomplete:
        values = [*whole[name].chunks, *committed[name].cast(schema.field(name).type).chunks]
        chosen = pc.if_else(pc.and_(pa.array(absent[name]), is_there), others, own)
        whole = _with(whole, name, pa.chunked_array(values, schema.field(name).type).take(chosen))
    return whole


def _committed_row_ids(
    job: CompleteJob, reader: TableReader, ids: pa.Array, read: ReadKeys
) -> pa.Table:
    """The committed rows among these ids, with their row ids."""
    if job.are_many:
        known = read(replaced_keys(job.owner.table).name)
    elif not job.pin.row_count or reader.lacks(ids):
        known = None
    else:
        known = reader.rows(["id"], filter=ids_filter(ids.to_pylist(), "id"), with_row_id=True)
    if known is None:
        return pa.table({"id": pa.array([], pa.utf8()), ROW_ID: pa.array([], pa.uint64())})
    return known.filter(pc.is_in(known["id"], value_set=ids)).select(["id", ROW_ID])


def _read(reader: TableReader, row_ids: pa.Array, names: Sequence[str]) -> pa.Table:
    has_blobs = any(name in reader.blob_columns for name in names)
    rows = reader.stageable(row_ids) if has_blobs else reader.by_row_id(row_ids, names)
    return rows.select(list(names))


def _by_part(faults: Faults) -> Faults:
    """Faults whose lines are origins, with the part and the line that each stands for."""
    located = Faults(faults.keep_rejects, faults.counts, kinds=faults.kinds)
    for _, violation in faults.listed():
        part, line = part_and_line(violation.line or 0)
        located.offer(part, replace(violation, line=line))
    for reject in faults.rejects:
        part, line = part_and_line(reject.violation.line or 0)
        located.rejects.append(Reject(part, replace(reject.violation, line=line), reject.record))
    return located


# The load


@dataclass(slots=True)
class PatchFinish:
    """Commits the partial rows of an intake. The exchange chooses the engine."""

    store: Store
    catalog: Catalog
    request: LoadRequest
    keys: Blocks
    taken: IntakeResult
    exchange: Exchange
    files: Sequence[str | None] = ()
    first_lines: Sequence[int] = ()

    def commit(self, write: Write, report: Report) -> Commit:
        """Complete the rows, check the rules, stage and publish; again from a new base when another
        writer came first."""
        self._raise(self.taken.faults)
        if self.request.on_duplicate == "refuse":
            self._raise(self._duplicates())

        def prepare(current: Write) -> None:
            keys, taken = self._completed(current)
            finish = Finish(
                self.store,
                self.catalog,
                replace(self.request, mode="merge"),
                keys,
                taken,
                self.exchange,
                self.files,
                self.first_lines,
                _losers={},
            )
            finish.prepare(current, report)

        done = publish_load(self.store, self.catalog, self.request, write, prepare)
        report("done", sum(self.taken.counts.values()))
        return done

    def _raise(self, faults: Faults) -> None:
        raise_faults(self.request, faults, self.files, self.first_lines)

    def _duplicates(self) -> Faults:
        advice = "" if self.request.is_ordered else NO_ORDER
        planned = [
            (KeyCheck(replace(rules_of(owner).distinct, advice=advice), id_keys(table).name), owner)
            for table, owner in self._owners()
        ]
        return run_all(planned, self.exchange, [self.keys], {})

    def _owners(self) -> list[tuple[TableKey, Owner]]:
        return [(table, self.catalog.of(table)) for table in sorted(self.taken.counts)]

    def _completed(self, write: Write) -> tuple[Blocks, IntakeResult]:
        """The whole rows of this attempt and their keys."""
        assert self.taken.rows is not None
        blocks = [self.taken.rows]
        works = []
        for table, owner in self._owners():
            reader = write.read(table)
            are_many = not is_few(self.keys.rows(id_keys(table).name), reader)
            if are_many:
                # The id column is read once, instead of an index being asked for each id.
                blocks.append(IdMatching(self.store, self.exchange).replaced(reader, self.keys))
            works.append(partial(complete, self._job(reader, owner, are_many=are_many)))
        done, put = self.exchange.forward(works, blocks, "rows")
        keep = self.taken.faults.keep_rejects
        faults = merged((each for by_bucket in done for each in by_bucket), keep_rejects=keep)
        taken = IntakeResult(self.taken.counts, faults, rounded=self.taken.rounded)
        taken.rows = put
        return put, taken

    def _job(self, reader: TableReader, owner: Owner, *, are_many: bool) -> CompleteJob:
        where, keep = self.store.where, self.taken.faults.keep_rejects
        return CompleteJob(where.uri, where.storage_options, reader.pin, owner, are_many, keep)
