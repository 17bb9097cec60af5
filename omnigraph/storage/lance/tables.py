"""Tables, read and staged: no method here moves a table head but `commit_staged`.

Invariant: a staged write remembers the handle it was staged on and is committed through that handle
alone, and the version it makes is the staged version + 1. Anything else means another writer moved
the head without holding the table's lock, and raises `CommitRaced` after the fact: the sidecar is
there, and recovery settles it.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from lance.dataset import Index, LanceOperation, Transaction
from lance.fragment import FragmentMetadata, LanceFragment, write_fragments

from omnigraph.errors import BadRequest, StorageFailed
from omnigraph.storage.lance import indexing
from omnigraph.storage.lance.datasets import OPERATION_PROPERTY, CommitRaced, Datasets, Handle
from omnigraph.storage.lance.evolution import Evolution, evolved
from omnigraph.storage.lance.indexing import IndexFacts, IndexRequest, SegmentPlan
from omnigraph.storage.lance.parallel import both, together
from omnigraph.storage.lance.places import Found, Places
from omnigraph.storage.lance.row_cache import Carried
from omnigraph.storage.lance.rowids import (
    blob_cells,
    field_ids,
    fragments_without,
    fragments_without_addresses,
    give_row_ids,
    is_blob,
    rows_by_id,
)
from omnigraph.storage.names import table_location
from omnigraph.storage.records import NO_ROWS, OperationId, RowCounts, TablePin
from omnigraph.types import TableKey

KEY = "id"
ADDRESS = "_rowaddr"
"""The column that tells where a row is, in the version it is read from."""
_REWRITTEN_ROWS = 1024

ARRIVING: ContextVar[Callable[[int], None]] = ContextVar("arriving", default=lambda _: None)
"""Told the bytes of each batch that is read here; what it raises ends the read."""

Fragments = tuple[FragmentMetadata, ...]
"""Files with rows that no version of a table names yet. They pickle."""


@dataclass(frozen=True, slots=True)
class StagedWrite:
    """Files written against one version of one table. No head has moved."""

    base: TablePin
    handle: Handle
    transaction: Transaction
    ids: pa.ChunkedArray | None = None  # of the rows it writes; None when nobody kept them
    ordered: bool = False  # whether the rows are written in the order of `ids`
    found: Found | None = None  # what was known of `ids` in the version it was staged on
    counts: RowCounts = NO_ROWS

    @property
    def table_key(self) -> TableKey:
        return self.base.table_key


@dataclass(frozen=True)
class TableReader:
    """One table as one snapshot sees it. Arrow in and out, never the handle."""

    pin: TablePin
    _handle: Handle
    _datasets: Datasets
    _places: Places
    _carried: Carried

    def lacks(self, ids: pa.Array) -> bool:
        """Whether none of these ids is here; False when that takes a look to tell."""
        return self._places.lacks(self.pin, self._handle, ids)

    @cached_property
    def schema(self) -> pa.Schema:
        return self._handle.schema

    def indexes(self) -> tuple[IndexFacts, ...]:
        """Every index this version has."""
        return indexing.facts(self._handle)

    def fragment_count(self) -> int:
        """How many fragments this version has: every read pays for each."""
        return len(self._handle.get_fragments())

    def count(self, filter: str | None = None) -> int:
        """How many rows match."""
        with self._datasets.lance_call("count", self.pin.table_key):
            return int(self._handle.count_rows(filter))

    def batches(
        self,
        columns: Sequence[str] | None = None,
        *,
        filter: str | None = None,
        limit: int | None = None,
        fragments: Sequence[int] | None = None,
        **options: Any,
    ) -> Iterator[pa.RecordBatch]:
        """Stream the matching rows, of some fragments alone if they are named; `options` are the
        scanner's own (nearest, full text, …)."""
        names = None if columns is None else list(columns)
        with self._datasets.lance_call("scan", self.pin.table_key):
            if fragments is not None:
                options["fragments"] = [self._handle.get_fragment(each) for each in fragments]
            scanner = self._handle.scanner(columns=names, filter=filter, limit=limit, **options)
            told = ARRIVING.get()
            for batch in scanner.to_batches():
                told(0)  # whoever takes it may let go of it
                yield batch

    def rows(
        self,
        columns: Sequence[str] | None = None,
        *,
        filter: str | None = None,
        limit: int | None = None,
        fragments: Sequence[int] | None = None,
        **options: Any,
    ) -> pa.Table:
        """The matching rows at once."""
        names = None if columns is None else list(columns)
        with self._datasets.lance_call("scan", self.pin.table_key):
            if fragments is not None:
                options["fragments"] = [self._handle.get_fragment(each) for each in fragments]
            scanner = self._handle.scanner(columns=names, filter=filter, limit=limit, **options)
            found, told = [], ARRIVING.get()
            stream = scanner.to_reader()
            for batch in stream:
                told(batch.nbytes)
                found.append(batch)
            return pa.Table.from_batches(found, stream.schema)

    def fragments(self) -> dict[int, int]:
        """The fragments of this version, each with the number of its rows."""
        with self._datasets.lance_call("fragments", self.pin.table_key):
            return {each.fragment_id: each.count_rows() for each in self._handle.get_fragments()}

    def addresses(self, fragments: Sequence[int]) -> pa.Table:
        """The ids of some fragments' rows, each with its row id and its address."""
        if not fragments:
            kinds = [(KEY, pa.string()), ("_rowid", pa.uint64()), ("_rowaddr", pa.uint64())]
            return pa.schema(kinds).empty_table()
        return self.rows([KEY], fragments=fragments, with_row_id=True, with_row_address=True)

    def by_row_id(self, row_ids: pa.Array, columns: Sequence[str] | None = None) -> pa.Table:
        """The rows of these row ids in their order; a blob is what describes it, not its bytes."""
        names = self.schema.names if columns is None else columns
        carried = self._carried.find(self.pin, row_ids, names)
        if carried is not None:
            return carried
        with self._datasets.lance_call("rows_by_id", self.pin.table_key):
            return rows_by_id(self._handle, row_ids, names)

    def payloads(self, row_ids: pa.Array, column: str) -> pa.Array:
        """The bytes of a blob column for these rows, in their order."""
        with self._datasets.lance_call("payloads", self.pin.table_key):
            rows = rows_by_id(self._handle, row_ids, [column], blob_handling="all_binary")
        return rows[column].combine_chunks()

    def stageable(self, row_ids: pa.Array) -> pa.Table:
        """The rows of these row ids as a write takes them: blobs with their bytes, or their URI."""
        rows = self.by_row_id(row_ids)
        for index, field in enumerate(self.schema):
            if is_blob(field):
                described = rows[field.name].combine_chunks()
                cells = blob_cells(field, described, partial(self._payloads, row_ids, field.name))
                rows = rows.set_column(index, field, cells)
        return rows.cast(self.schema)

    def _payloads(self, row_ids: pa.Array, column: str, mask: pa.Array) -> pa.Array:
        return self.payloads(row_ids.filter(mask), column)


class Tables:
    """Staged-only storage of a graph's tables."""

    def __init__(self, datasets: Datasets, carried: Carried) -> None:
        self._datasets = datasets
        self._carried = carried
        self.places = Places(self._read_places)

    def _read_places(
        self, pin: TablePin, handle: Handle, fragments: list[LanceFragment]
    ) -> Iterator[pa.RecordBatch]:
        with self._datasets.lance_call("scan", pin.table_key):
            yield from handle.scanner(columns=[KEY, ADDRESS], fragments=fragments).to_batches()

    def reader(self, pin: TablePin) -> TableReader:
        """The table at a published version."""
        return TableReader(pin, self._datasets.at(pin), self._datasets, self.places, self._carried)

    def create(
        self, table_key: TableKey, schema: pa.Schema, location: str | None = None
    ) -> TablePin:
        """A new, empty table with stable row ids and `id` as its key. What a crashed attempt left
        in its place is replaced: no manifest row names it."""
        location = location or table_location(table_key)
        handle = self._datasets.create_or_replace(location, quick(keyed(schema)).empty_table())
        return TablePin(table_key, location, int(handle.version))

    # Staging

    def stage_append(self, pin: TablePin, rows: pa.Table) -> StagedWrite:
        """Stage rows to add."""
        handle = self._datasets.at(pin)
        with self._datasets.lance_call("stage_append", pin.table_key):
            transaction = write_fragments(rows, handle, mode="append", return_transaction=True)
        counts = RowCounts(inserted=rows.num_rows)
        return StagedWrite(pin, handle, transaction, _ids(rows), ordered=True, counts=counts)

    def write_fragments(
        self,
        pin: TablePin,
        rows: pa.Table | pa.RecordBatchReader,
        *,
        replacing: bool,
        row_ids: pa.Array | None = None,
    ) -> Fragments:
        """Write rows beside a table, to be added or to replace all others. They stay good when the
        table moves on, so a write that is prepared again need not write them again. Rows that take
        the place of others are given the row ids of those."""
        handle = self._datasets.at(pin)
        mode = "overwrite" if replacing else "append"
        with self._datasets.lance_call("write_fragments", pin.table_key):
            written = write_fragments(rows, handle, mode=mode, enable_stable_row_ids=True)
        if row_ids is not None:
            give_row_ids(written, row_ids)
        return tuple(written)

    def without_rows(self, pin: TablePin, addresses: pa.Array) -> tuple[Fragments, tuple[int, ...]]:
        """The fragments that lose the rows at these addresses, and those that lose all of theirs.
        Only files are written that say which rows are gone."""
        handle = self._datasets.at(pin)
        with self._datasets.lance_call("without_rows", pin.table_key):
            left, gone = fragments_without(handle, addresses, addresses)
        return tuple(left), tuple(gone)

    def stage_update(
        self,
        pin: TablePin,
        *,
        left: Fragments,
        gone: Sequence[int],
        added: Fragments,
        updated: int,
    ) -> StagedWrite:
        """Stage what `without_rows` left together with rows that were written to take the places,
        as one version; `updated` of the added rows replace one that was taken out."""
        handle = self._datasets.at(pin)
        operation = LanceOperation.Update(
            removed_fragment_ids=list(gone),
            updated_fragments=list(left),
            new_fragments=list(added),
            fields_for_preserving_frag_bitmap=field_ids(handle),
            update_mode="rewrite_rows",
        )
        counts = RowCounts(_row_count(added) - updated, updated)
        return StagedWrite(pin, handle, Transaction(handle.version, operation), counts=counts)

    def stage_fragments(
        self, pin: TablePin, fragments: Fragments, *, replacing: bool
    ) -> StagedWrite:
        """Stage what `write_fragments` wrote, here or in another process."""
        handle = self._datasets.at(pin)
        operation = (
            LanceOperation.Overwrite(handle.schema, list(fragments))
            if replacing
            else LanceOperation.Append(list(fragments))
        )
        counts = RowCounts(_row_count(fragments), deleted=pin.row_count if replacing else 0)
        return StagedWrite(pin, handle, Transaction(handle.version, operation), counts=counts)

    def stage_merge_insert(
        self, pin: TablePin, rows: pa.Table | pa.RecordBatchReader
    ) -> StagedWrite:
        """Stage rows to add, or to replace those of the same id. Who streams them has made sure
        that no id comes twice."""
        handle = self._datasets.at(pin)
        if isinstance(rows, pa.Table):
            found = self.places.find(pin, handle, rows.column(KEY))
            if found is None or not found.are_distinct:
                _require_distinct(rows, pin)
            if found is not None and len(found.at):
                staged = self.stage_replace(pin, at=pa.array(found.at), added=rows)
                return replace(staged, found=found)
            if found is not None:
                return replace(self.stage_append(pin, rows), found=found)
        with self._datasets.lance_call("stage_merge_insert", pin.table_key):
            upsert = handle.merge_insert(KEY).when_matched_update_all()
            upsert = upsert.when_not_matched_insert_all()
            transaction, merged = upsert.execute_uncommitted(rows)
        counts = RowCounts(merged["num_inserted_rows"], merged["num_updated_rows"])
        return StagedWrite(pin, handle, transaction, _ids(rows), counts=counts)

    def stage_overwrite(self, pin: TablePin, rows: pa.Table) -> StagedWrite:
        """Stage rows that replace all others. No rows is a table of no fragments."""
        handle = self._datasets.at(pin)
        with self._datasets.lance_call("stage_overwrite", pin.table_key):
            fragments = (
                write_fragments(rows, handle, mode="overwrite", enable_stable_row_ids=True)
                if rows.num_rows
                else []
            )
            operation = LanceOperation.Overwrite(handle.schema, fragments)
        return StagedWrite(pin, handle, Transaction(handle.version, operation))

    def stage_delete(self, pin: TablePin, predicate: str) -> StagedWrite | None:
        """Stage the removal of matching rows; None when nothing matches."""
        handle = self._datasets.at(pin)
        changed, gone = [], []
        with self._datasets.lance_call("stage_delete", pin.table_key):
            for fragment in handle.get_fragments():
                after = fragment.delete(predicate)
                if after is None:
                    gone.append(fragment.fragment_id)
                elif after.num_deletions != fragment.num_deletions:
                    changed.append(after)
        if not changed and not gone:
            return None
        operation = LanceOperation.Delete(changed, gone, predicate)
        ids = pa.chunked_array([], pa.string())
        return StagedWrite(pin, handle, Transaction(handle.version, operation), ids)

    def stage_patch(
        self,
        pin: TablePin,
        *,
        removed: pa.Array,
        added: pa.Table,
        updated: int,
        addresses: pa.Array | None = None,
    ) -> StagedWrite:
        """Stage the removal of rows known by row id together with new rows, without a search.

        A row is replaced by removing it and adding one of the same id. The caller vouches that no
        other row has the id of an added one, for how many of the added ones replace a removed row,
        and for the addresses of the removed ones if it gives them.
        """
        handle = self._datasets.at(pin)
        with self._datasets.lance_call("stage_patch", pin.table_key):
            taken_out = partial(fragments_without, handle, removed, addresses)
            return self._replacing(pin, handle, taken_out, added, updated)

    def stage_replace(self, pin: TablePin, *, at: pa.Array, added: pa.Table) -> StagedWrite:
        """The same for rows known by their address in this version. Every added row replaces one of
        them as far as they go; none may be added."""
        handle = self._datasets.at(pin)
        with self._datasets.lance_call("stage_replace", pin.table_key):
            taken_out = partial(fragments_without_addresses, handle, at)
            return self._replacing(pin, handle, taken_out, added)

    def _replacing(
        self,
        pin: TablePin,
        handle: Handle,
        taken_out: Callable[[], tuple[list[FragmentMetadata], list[int]]],
        added: pa.Table,
        updated: int | None = None,
    ) -> StagedWrite:
        operation: LanceOperation.BaseOperation
        if len(added):
            # New rows get new row ids: keeping them would make the commit search the table.
            (changed, gone), new = both(
                taken_out, lambda: write_fragments(added, handle, mode="append")
            )
            operation = LanceOperation.Update(
                removed_fragment_ids=gone,
                updated_fragments=changed,
                new_fragments=new,
                fields_for_preserving_frag_bitmap=field_ids(handle),
                update_mode="rewrite_rows",
            )
        else:
            changed, gone = taken_out()
            operation = LanceOperation.Delete(changed, gone, "")
        transaction = Transaction(handle.version, operation)
        removed = _removed_count(handle, changed, gone)
        updated = min(removed, len(added)) if updated is None else updated
        counts = RowCounts(len(added) - updated, updated, removed - updated)
        return StagedWrite(pin, handle, transaction, _ids(added), ordered=True, counts=counts)

    def stage_evolve(self, pin: TablePin, evolution: Evolution) -> StagedWrite:
        """Stage columns that come, go and get other names. Writes no data file."""
        handle = self._datasets.at(pin)
        with self._datasets.lance_call("stage_evolve", pin.table_key):
            operation = LanceOperation.Project(evolved(handle, evolution), True)
        return StagedWrite(pin, handle, Transaction(handle.version, operation))

    def stage_rewrite(self, pin: TablePin) -> StagedWrite:
        """Stage every row in new files, which hold the columns of today and nothing else."""
        handle, reader = self._datasets.at(pin), self.reader(pin)
        fragments = handle.get_fragments()

        def batches() -> Iterator[pa.RecordBatch]:
            for batch in reader.batches([], with_row_id=True, batch_size=_REWRITTEN_ROWS):
                yield from reader.stageable(batch["_rowid"]).to_batches()

        rows = pa.RecordBatchReader.from_batches(handle.schema, batches())
        with self._datasets.lance_call("stage_rewrite", pin.table_key):
            operation = LanceOperation.Update(
                removed_fragment_ids=[fragment.fragment_id for fragment in fragments],
                updated_fragments=[],
                new_fragments=write_fragments(rows, handle, mode="append") if fragments else [],
                fields_for_preserving_frag_bitmap=field_ids(handle),
                update_mode="rewrite_rows",
            )
        return StagedWrite(pin, handle, Transaction(handle.version, operation))

    def stage_add_columns(
        self,
        pin: TablePin,
        fields: Sequence[pa.Field],
        read: Sequence[str],
        values: Callable[[pa.RecordBatch], pa.RecordBatch],
    ) -> StagedWrite:
        """Stage columns with values made from each row. No other column is written again."""
        handle = self._datasets.at(pin)
        schema = pa.schema(fields)

        def filled(batch: pa.RecordBatch) -> pa.RecordBatch:
            return pa.RecordBatch.from_arrays(values(batch).columns, schema=schema)

        fragments = []
        with self._datasets.lance_call("stage_add_columns", pin.table_key):
            for fragment in handle.get_fragments():
                after, columns = fragment.merge_columns(filled, columns=list(read))
                fragments.append(after)
        # Lance numbers new fields above all that the dataset ever had.
        operation = LanceOperation.Merge(fragments, columns)
        return StagedWrite(pin, handle, Transaction(handle.version, operation))

    def stage_create_index(
        self, pin: TablePin, column: str, index_type: str, *, name: str, **parameters: Any
    ) -> StagedWrite:
        """Stage an index over every fragment, replacing one of the same name."""
        return self.stage_create_indexes(
            pin, [IndexRequest(column, index_type, name, parameters, anew=True)]
        )

    def stage_create_indexes(
        self, pin: TablePin, requests: Sequence[IndexRequest], gone: Collection[str] = ()
    ) -> StagedWrite:
        """Stage several indexes as one version, and the end of those that are named."""
        handle = self._datasets.at(pin)
        with self._datasets.lance_call("stage_create_indexes", pin.table_key):
            plan = indexing.planned(handle, requests, gone=gone)
            builds = [partial(self._built, pin, segment) for segment in plan.segments]
            # Lance builds an index on one core; more than two at once would take too much memory.
            pairs = [together(builds[at : at + 2]) for at in range(0, len(builds), 2)]
            built = [index for pair in pairs for index in pair]
            return StagedWrite(pin, handle, indexing.staged(handle, plan, built))

    def _built(self, pin: TablePin, segment: SegmentPlan) -> Index:
        return indexing.build(self._datasets.own(pin), segment)

    # Upkeep

    def stage_nothing(self, pin: TablePin) -> StagedWrite:
        """Stage a version that changes no row, so that what follows it is known as a write's."""
        handle = self._datasets.at(pin)
        return StagedWrite(pin, handle, Transaction(handle.version, LanceOperation.Append([])))

    # Committing

    def commit_staged(self, staged: StagedWrite, operation: OperationId) -> TablePin:
        """Advance one table head by exactly one version, marked as this operation's."""
        transaction = staged.transaction
        transaction.transaction_properties = {OPERATION_PROPERTY: operation}
        handle = self._datasets.commit(staged.handle, transaction)
        if handle.version != staged.base.version + 1:
            raise CommitRaced(
                f"{staged.table_key} went from {staged.base.version} to {handle.version} "
                "under this writer's lock"
            )
        return self.pinned(staged.base, handle)

    def published(self, staged: StagedWrite, pin: TablePin) -> None:
        """Learn from a write that was published, and maybe folded, where its rows are."""
        if staged.ids is not None:
            handle = self._datasets.at(pin)
            self.places.published(
                staged.base, pin, handle, staged.ids, ordered=staged.ordered, found=staged.found
            )

    def pinned(self, base: TablePin, handle: Handle) -> TablePin:
        """The pin of a handle that follows `base` on the same branch."""
        pin = replace(base, version=int(handle.version), row_count=int(handle.count_rows()))
        self._datasets.keep(pin, handle)
        return pin

    def head(self, pin: TablePin) -> int:
        """The table head on the branch a pin belongs to."""
        return self._datasets.latest_version(pin.location, pin.branch, pin.version)


def keyed(schema: pa.Schema) -> pa.Schema:
    """The schema with `id` declared as Lance's unenforced primary key."""
    index = schema.get_field_index(KEY)
    if index < 0:
        raise BadRequest("a table needs an `id` column")
    field = schema.field(index).with_nullable(False)
    metadata = {**(field.metadata or {}), b"lance-schema:unenforced-primary-key": b"true"}
    return schema.set(index, field.with_metadata(metadata))


def quick(schema: pa.Schema) -> pa.Schema:
    """The schema with texts in a compression that needs no training: that of Lance's own choice
    takes longer than all else in a write of a few thousand rows, and saves a twentieth more."""
    for index, field in enumerate(schema):
        if pa.types.is_string(field.type):
            metadata = {b"lance-encoding:compression": b"lz4", **(field.metadata or {})}
            schema = schema.set(index, field.with_metadata(metadata))
    return schema


def _ids(rows: pa.Table | pa.RecordBatchReader) -> pa.ChunkedArray | None:
    """The ids of rows that are at hand. The audit's rows have none."""
    return rows.column(KEY) if isinstance(rows, pa.Table) and KEY in rows.schema.names else None


def _row_count(fragments: Fragments) -> int:
    return sum(fragment.physical_rows for fragment in fragments)


def _removed_count(handle: Handle, changed: Sequence[FragmentMetadata], gone: Sequence[int]) -> int:
    """How many live rows a change takes out of the fragments it touches."""
    before = sum(_live(handle, f) for f in (*gone, *(after.id for after in changed)))
    return before - sum(after.physical_rows - after.num_deletions for after in changed)


def _live(handle: Handle, fragment_id: int) -> int:
    fragment = handle.get_fragment(fragment_id)
    if fragment is None:
        raise StorageFailed("counted removed rows", f"fragment {fragment_id} is gone")
    return int(fragment.physical_rows - fragment.num_deletions)


def _require_distinct(rows: pa.Table, pin: TablePin) -> None:
    # Lance inserts both rows of a new id that comes twice.
    ids = rows.column(KEY)
    if pc.count_distinct(ids).as_py() != len(ids):
        raise BadRequest(f"rows for {pin.table_key} hold one id twice", "keep the last of each id")
