"""Staging: data files and transactions written against one table version. No table head moves.

    add rows       `stage_append`, or `write_fragments` anywhere and `stage_fragments` here
    replace all    `write_fragments(replacing=True)`, then `stage_fragments(replacing=True)`
    remove rows    `stage_patch` by row id, `stage_replace` by address; both may add rows too
    upsert by id   `stage_merge_insert`; for many rows `without_rows` and `stage_update`
    other          `stage_evolve`, `stage_add_columns`, `stage_create_indexes`, `stage_rewrite`,
                   `stage_nothing`

Invariant: a staged write remembers the handle it was staged on, because it is committed through
that handle alone. Files are written through the handle of a `WriteBase`, and a version names only
files in its own folder or in those of its parents. Files that are never committed are garbage,
which cleanup removes.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc
from lance.dataset import Index, LanceOperation, Transaction
from lance.fragment import FragmentMetadata, LanceFragment, write_fragments

from omnigraph.costs import COSTS
from omnigraph.errors import BadRequest, StorageFailed, unpublished
from omnigraph.light_dataclass import dataclass
from omnigraph.storage.derived.node_file import NO_ROW
from omnigraph.storage.lance import index_segments
from omnigraph.storage.lance.columns import ADDRESS, KEY, ROW_ID
from omnigraph.storage.lance.datasets import Datasets, Handle
from omnigraph.storage.lance.direct_read import DirectReader
from omnigraph.storage.lance.evolution import Evolution, evolved
from omnigraph.storage.lance.id_index import IdIndex, IdMatches
from omnigraph.storage.lance.index_segments import IndexRequest, SegmentPlan
from omnigraph.storage.lance.ordered_ids import OrderedIds
from omnigraph.storage.lance.parallel import both, together
from omnigraph.storage.lance.reader import Arriving, RowFinder, TableReader, uncounted
from omnigraph.storage.lance.recent_rows import RecentRows
from omnigraph.storage.lance.row_cache import RowCache
from omnigraph.storage.lance.rowids import (
    field_ids,
    fragments_without,
    fragments_without_addresses,
    give_row_ids,
)
from omnigraph.storage.lance.strict_commit import writer_of
from omnigraph.storage.records import NO_ROWS, Home, RowCounts, TablePin, WriteBase
from omnigraph.types import TableKey


@dataclass(frozen=True, slots=True)
class StagedFragment:
    """A fragment that no version of a table names yet, and the folder that its new files are in. It
    pickles."""

    home: Home
    metadata: FragmentMetadata


Fragments = tuple[StagedFragment, ...]


@dataclass(frozen=True, slots=True)
class StagedWrite:
    """Files written against one version of one table. No head has moved."""

    base: WriteBase
    handle: Handle
    transaction: Transaction
    ids: pa.ChunkedArray | None = None  # of the rows it writes; None when they were not kept
    ordered: bool = False  # whether the rows are written in the order of `ids`
    matches: IdMatches | None = None  # of `ids` in the version it was staged on
    counts: RowCounts = NO_ROWS

    @property
    def table_key(self) -> TableKey:
        return self.base.table_key


class TableStaging:
    """Reads table versions and stages writes against them."""

    def __init__(self, datasets: Datasets, row_cache: RowCache) -> None:
        self._datasets = datasets
        self._row_cache = row_cache
        self._recent_rows = RecentRows()
        self._ordered_ids = OrderedIds()
        self.id_index = IdIndex(self._read_ids)
        self.direct = DirectReader()
        self.finder: RowFinder | None = None

    def _read_ids(
        self, pin: TablePin, handle: Handle, fragments: list[LanceFragment]
    ) -> Iterator[pa.RecordBatch]:
        with self._datasets.lance_call("scan", pin.table_key):
            yield from handle.scanner(columns=[KEY, ADDRESS], fragments=fragments).to_batches()

    def forget(self) -> None:
        """Forget what was read of every table."""
        self.id_index.clear()
        self.direct.clear()
        self._recent_rows.clear()
        self._ordered_ids.clear()

    def reader(self, pin: TablePin, arriving: Arriving = uncounted) -> TableReader:
        """The table at a published version. `arriving` counts what is read of it."""
        handle = self._datasets.handle(pin)
        return TableReader(
            pin,
            handle,
            self._datasets,
            self.id_index,
            self._row_cache,
            self._recent_rows,
            self._ordered_ids,
            self.direct,
            arriving,
            self.finder,
        )

    # Rows

    def stage_append(self, pin: WriteBase, rows: pa.Table) -> StagedWrite:
        """Stage rows to add."""
        handle = self._datasets.handle(pin)
        with self._datasets.lance_call("stage_append", pin.table_key):
            fragments = write_fragments(rows, writer_of(handle), mode="append")
        transaction = Transaction(handle.version, LanceOperation.Append(fragments))
        counts = RowCounts(inserted=rows.num_rows)
        return StagedWrite(pin, handle, transaction, _ids(rows), ordered=True, counts=counts)

    @unpublished()
    def write_fragments(
        self,
        pin: WriteBase,
        rows: pa.Table | pa.RecordBatchReader,
        *,
        replacing: bool,
        row_ids: pa.Array | None = None,
    ) -> Fragments:
        """Write rows beside a table, to be added or to replace all others. They stay good when the
        table moves on, so a write that is prepared again need not write them again. Rows that
        replace others are given the row ids of those."""
        handle = self._datasets.handle(pin)
        handle = handle if replacing else writer_of(handle)
        mode = "overwrite" if replacing else "append"
        with self._datasets.lance_call("write_fragments", pin.table_key):
            written = write_fragments(rows, handle, mode=mode, enable_stable_row_ids=True)
        if row_ids is not None:
            give_row_ids(written, row_ids)
        return _in_home(pin, written)

    @unpublished()
    def without_rows(
        self, pin: WriteBase, addresses: pa.Array
    ) -> tuple[Fragments, tuple[int, ...]]:
        """The fragments that lose the rows at these addresses, and those that lose all of theirs.
        Only files are written that say which rows are gone."""
        handle = self._datasets.handle(pin)
        with self._datasets.lance_call("without_rows", pin.table_key):
            left, gone = fragments_without(handle, addresses, addresses)
        return _in_home(pin, left), tuple(gone)

    def stage_update(
        self,
        pin: WriteBase,
        *,
        left: Fragments,
        gone: Sequence[int],
        added: Fragments,
        updated: int,
    ) -> StagedWrite:
        """Stage what `without_rows` left together with new rows, as one version; `updated` of the
        added rows replace one that was taken out."""
        handle = self._datasets.handle(pin)
        operation = LanceOperation.Update(
            removed_fragment_ids=list(gone),
            updated_fragments=_metadata(pin, left),
            new_fragments=_metadata(pin, added),
            fields_for_preserving_frag_bitmap=field_ids(handle),
            update_mode="rewrite_rows",
        )
        counts = RowCounts(_row_count(added) - updated, updated)
        return StagedWrite(pin, handle, Transaction(handle.version, operation), counts=counts)

    def stage_fragments(
        self, pin: WriteBase, fragments: Fragments, *, replacing: bool
    ) -> StagedWrite:
        """Stage what `write_fragments` wrote, here or in another process."""
        handle = self._datasets.handle(pin)
        written = _metadata(pin, fragments)
        operation = (
            LanceOperation.Overwrite(handle.schema, written)
            if replacing
            else LanceOperation.Append(written)
        )
        counts = RowCounts(_row_count(fragments), deleted=pin.row_count if replacing else 0)
        return StagedWrite(pin, handle, Transaction(handle.version, operation), counts=counts)

    def stage_merge_insert(
        self, pin: WriteBase, rows: pa.Table | pa.RecordBatchReader
    ) -> StagedWrite:
        """Stage rows to add, or to replace those of the same id. A caller that streams them vouches
        that no id comes twice."""
        handle = self._datasets.handle(pin)
        if isinstance(rows, pa.Table):
            addresses = self._addresses_on_fork(pin, handle, rows)
            if addresses is not None:
                _require_distinct(rows, pin)
                if len(addresses):
                    return self.stage_replace(pin, addresses=addresses, added=rows)
                return self.stage_append(pin, rows)
            matches = self.id_index.find(pin, handle, rows.column(KEY))
            if matches is None or not matches.are_distinct:
                _require_distinct(rows, pin)
            if matches is not None and len(matches.addresses):
                addresses = pa.array(matches.addresses)
                staged = self.stage_replace(pin, addresses=addresses, added=rows)
                return replace(staged, matches=matches)
            if matches is not None:
                return replace(self.stage_append(pin, rows), matches=matches)
        with self._datasets.lance_call("stage_merge_insert", pin.table_key):
            upsert = handle.merge_insert(KEY).when_matched_update_all()
            upsert = upsert.when_not_matched_insert_all()
            transaction, merged = upsert.execute_uncommitted(rows)
        counts = RowCounts(merged["num_inserted_rows"], merged["num_updated_rows"])
        return StagedWrite(pin, handle, transaction, _ids(rows), counts=counts)

    def _addresses_on_fork(self, pin: TablePin, handle: Handle, rows: pa.Table) -> pa.Array | None:
        """The addresses of committed rows that have the ids of these, by the derived file that a
        fork shares with its base; None when the id index of the fork is there, or no file tells."""
        if pin.branch is None or self.finder is None or self.id_index.has(pin):
            return None
        row_ids = self.finder.row_ids(pin, rows.column(KEY).combine_chunks())
        if row_ids is None:
            return None
        return self.direct.addresses(handle, pa.array(row_ids[row_ids != NO_ROW]))

    def stage_patch(
        self,
        pin: WriteBase,
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
        handle = self._datasets.handle(pin)
        with self._datasets.lance_call("stage_patch", pin.table_key):
            taken_out = partial(fragments_without, handle, removed, addresses)
            return self._replacing(pin, handle, taken_out, added, updated)

    def stage_replace(self, pin: WriteBase, *, addresses: pa.Array, added: pa.Table) -> StagedWrite:
        """Stage the removal of rows known by their address in this version together with new rows,
        of which there may be none. Every added row replaces one of them as far as they go."""
        handle = self._datasets.handle(pin)
        with self._datasets.lance_call("stage_replace", pin.table_key):
            taken_out = partial(fragments_without_addresses, handle, addresses)
            return self._replacing(pin, handle, taken_out, added)

    def _replacing(
        self,
        pin: WriteBase,
        handle: Handle,
        taken_out: Callable[[], tuple[list[FragmentMetadata], list[int]]],
        added: pa.Table,
        updated: int | None = None,
    ) -> StagedWrite:
        operation: LanceOperation.BaseOperation
        if len(added):
            # New rows get new row ids: keeping them would make the commit search the table.
            (changed, gone), new = both(
                taken_out, lambda: write_fragments(added, writer_of(handle), mode="append")
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

    # Columns, indexes, files

    def stage_evolve(self, pin: WriteBase, evolution: Evolution) -> StagedWrite:
        """Stage columns that are added, dropped and renamed. Writes no data file."""
        handle = self._datasets.handle(pin)
        with self._datasets.lance_call("stage_evolve", pin.table_key):
            operation = LanceOperation.Project(evolved(handle, evolution), True)
        return StagedWrite(pin, handle, Transaction(handle.version, operation))

    def stage_rewrite(self, pin: WriteBase) -> StagedWrite:
        """Stage every row in new files, which hold the columns of today and nothing else."""
        handle, reader = self._datasets.handle(pin), self.reader(pin)
        fragments = handle.get_fragments()

        def batches() -> Iterator[pa.RecordBatch]:
            for batch in reader.batches([], with_row_id=True, batch_size=COSTS.rewrite_batch_rows):
                yield from reader.stageable(batch[ROW_ID]).to_batches()

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
        pin: WriteBase,
        fields: Sequence[pa.Field],
        read: Sequence[str],
        values: Callable[[pa.RecordBatch], pa.RecordBatch],
    ) -> StagedWrite:
        """Stage columns with values made from each row. No other column is written again."""
        handle = self._datasets.handle(pin)
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

    def stage_create_indexes(
        self, pin: WriteBase, requests: Sequence[IndexRequest], gone: Collection[str] = ()
    ) -> StagedWrite:
        """Stage several indexes as one version, and the end of those that are named."""
        handle = self._datasets.handle(pin)
        with self._datasets.lance_call("stage_create_indexes", pin.table_key):
            plan = index_segments.planned(handle, requests, gone=gone)
            builds = [partial(self._built, pin, segment) for segment in plan.segments]
            # Lance builds an index on one core; more than two at once would take too much memory.
            pairs = [together(builds[start : start + 2]) for start in range(0, len(builds), 2)]
            built = [index for pair in pairs for index in pair]
            return StagedWrite(pin, handle, index_segments.staged(handle, plan, built))

    def _built(self, pin: WriteBase, segment: SegmentPlan) -> Index:
        return index_segments.build(self._datasets.own(pin), segment)

    def stage_nothing(self, pin: WriteBase) -> StagedWrite:
        """Stage a version that changes no row and carries the mark of a write, for inline commits
        to follow it."""
        handle = self._datasets.handle(pin)
        return StagedWrite(pin, handle, Transaction(handle.version, LanceOperation.Append([])))


def _ids(rows: pa.Table | pa.RecordBatchReader) -> pa.ChunkedArray | None:
    """The ids of rows that are in memory. The audit's rows have none."""
    return rows.column(KEY) if isinstance(rows, pa.Table) and KEY in rows.schema.names else None


def _in_home(base: WriteBase, written: Iterable[FragmentMetadata]) -> Fragments:
    return tuple(StagedFragment(base.home, fragment) for fragment in written)


def _metadata(base: WriteBase, fragments: Fragments) -> list[FragmentMetadata]:
    """Return the fragments for a transaction on this base; `StorageFailed` if their files lie in
    another folder than the new version, which would not find them."""
    if any(fragment.home != base.home for fragment in fragments):
        raise StorageFailed(
            f"staged rows of {base.table_key}",
            "their files were written for another branch, or for one that was deleted and created "
            "again; prepare the write again",
        )
    return [fragment.metadata for fragment in fragments]


def _row_count(fragments: Fragments) -> int:
    return sum(fragment.metadata.physical_rows for fragment in fragments)


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
