"""Change set of a version span: ids written or deleted between two versions of a Lance branch.

Every row written since the low end of a span lies in a fragment the low end does not have and
carries a newer stamp, and Lance lists the row ids that are gone, so the cost is that of what was
written between. Of a span that is longer than stamps are exact (`row_versions`) the rows of folded
fragments are read as well, and those that are older than the span are left out by their row ids.

Invariant: an id that is not listed has the same content at both ends, under the same row id. An id
that is listed may still be equal: rows are written again without being changed.
"""

from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.costs import COSTS
from omnigraph.errors import OmnigraphError
from omnigraph.light_dataclass import dataclass
from omnigraph.storage.lance.columns import ADDRESS, CREATED, KEY, ROW_ID, UPDATED, updated_after
from omnigraph.storage.lance.datasets import Datasets, Handle, files_of
from omnigraph.storage.lance.direct_read import DirectReader
from omnigraph.storage.lance.row_versions import is_exact, next_row_id
from omnigraph.storage.lance.strict_commit import known_fragments
from omnigraph.storage.records import TablePin

BEFORE, AFTER = "before", "after"
TOUCHED = pa.schema(
    [
        pa.field(KEY, pa.string(), nullable=False),
        pa.field(BEFORE, pa.uint64()),
        pa.field(AFTER, pa.uint64()),
    ]
)
"""An id with its row id at either end; null where that end lacks it."""

Columns = Sequence[str] | None
"""The columns of rows to read beside the id; None: only ids and row ids."""

_COLUMN_BYTES = 64

_ARRAY_BYTES = 1_024
"""About what Arrow keeps of an array beside its values: few rows take more of it than of these."""


@dataclass(frozen=True, slots=True)
class VersionSpan:
    """Two versions of one Lance branch, `low` the older."""

    location: str
    branch: str | None
    fork: str
    low: int
    high: int

    def pin(self, base: TablePin, version: int) -> TablePin:
        """One of its versions."""
        return TablePin(base.table_key, self.location, version, self.branch, self.fork)


@dataclass(frozen=True, slots=True)
class SpanRows:
    """The rows a span touched: `old` those of the low end that are gone or written again, `new`
    those of the high end that were written."""

    old: pa.Table
    new: pa.Table

    @property
    def nbytes(self) -> int:
        return sum(
            int(table.nbytes) + _ARRAY_BYTES * sum(column.num_chunks for column in table.columns)
            for table in (self.old, self.new)
        )


@dataclass(frozen=True, slots=True)
class SpanChanges:
    """The ids a span touched, as `TOUCHED` rows, and the rows if they were requested and are
    few."""

    touched: pa.Table
    rows: SpanRows | None = None

    def kept(self) -> "SpanChanges":
        """The same in few arrays of their own, to be kept: a read has some for every fragment, and
        those of a few rows may be slices of many."""
        rows = self.rows
        if rows is not None:
            rows = SpanRows(rows.old.combine_chunks(), rows.new.combine_chunks())
        return SpanChanges(self.touched.combine_chunks(), rows)


@dataclass(frozen=True, slots=True)
class Ends:
    """The two versions of a span, open. `wrote` and `lost` are read first, in any order; `changes`
    joins them."""

    datasets: Datasets
    direct: DirectReader
    table: str
    low: Handle
    high: Handle

    def wrote(self, columns: Columns) -> pa.Table:
        """Rows of the high end written after the low one: id, row id and the version they were
        created at, and if they are few their address and the requested columns."""
        with self.datasets.lance_call("delta", self.table):
            return _written(self.low, self.high, columns)

    def lost(self) -> pa.Array:
        """The row ids of the low end that the high one lacks."""
        try:
            with self.datasets.lance_call("deleted_row_ids", self.table):
                return _gone(self.low, self.high)
        except OmnigraphError:
            # Lance cannot answer when versions between were reclaimed: compare the row ids.
            with self.datasets.lance_call("compare_row_ids", self.table):
                return _missing(self.low, self.high)

    def changes(self, gone: pa.Array, written: pa.Table, columns: Columns) -> SpanChanges:
        """What was touched, after a read of the low end's rows that are gone, and of those written
        again if rows are requested and few."""
        existed = _existed(self.low, self.high, written)
        before = pc.if_else(existed, written[ROW_ID], pa.scalar(None, pa.uint64())).combine_chunks()
        again = before.drop_null()
        if columns is None or not self._reads_rows(written, len(gone) + len(again)):
            lost = self._read(gone, [KEY, ROW_ID])
            return SpanChanges(_joined(_table(written[KEY], before, written[ROW_ID]), lost))
        old = self._read(pa.concat_arrays([gone, again]), [KEY, *columns, ROW_ID, ADDRESS])
        lost = old.filter(pc.is_in(old[ROW_ID], value_set=gone))
        touched = _joined(_table(written[KEY], before, written[ROW_ID]), lost)
        return SpanChanges(touched, SpanRows(old, written))

    def _reads_rows(self, written: pa.Table, rows: int) -> bool:
        return ADDRESS in written.column_names and _is_few(self.low, rows)

    def _read(self, row_ids: pa.Array, names: list[str]) -> pa.Table:
        with self.datasets.lance_call("rows_by_id", self.table):
            return self.direct.present(self.low, row_ids, names)


def _is_few(handle: Handle, rows: int) -> bool:
    """Whether so many rows may be held with all their columns."""
    widths = (_COLUMN_BYTES + 4 * getattr(field.type, "list_size", 0) for field in handle.schema)
    return bool(rows * sum(widths) <= COSTS.span_columns_bytes_max)


def _written(low: Handle, high: Handle, columns: Columns) -> pa.Table:
    known = {files_of(fragment) for fragment in known_fragments(low)}
    fresh = [fragment for fragment in known_fragments(high) if files_of(fragment) not in known]
    few = _is_few(high, sum(fragment.physical_rows for fragment in fresh))
    stamps = [KEY, ROW_ID, CREATED, UPDATED]
    shared = {*low.schema.names} & {*high.schema.names}
    if few and columns is not None and shared.issuperset(columns):
        stamps += [ADDRESS, *columns]
    if not fresh:
        return high.scanner(columns=stamps).projected_schema.empty_table()
    # Planning a filter takes longer than reading a few rows more.
    newer = None if few else updated_after(int(low.version))
    rows = high.scanner(columns=stamps, filter=newer, fragments=fresh).to_table()
    if few:
        rows = rows.filter(pc.greater(rows[UPDATED], int(low.version)))
    if is_exact(low, high):
        return rows
    # A stamp of old rows is that of the newest of them.
    again = pc.not_equal(rows[CREATED], rows[UPDATED])
    return rows.filter(pc.or_(again, pc.invert(_existed(low, high, rows))))


def _existed(low: Handle, high: Handle, written: pa.Table) -> pa.ChunkedArray:
    """Whether rows of the high end are rows of the low one, written again or not."""
    if is_exact(low, high):
        return pc.less_equal(written[CREATED], int(low.version))
    return pc.less(written[ROW_ID], pa.scalar(next_row_id(low), pa.uint64()))


def _gone(low: Handle, high: Handle) -> pa.Array:
    if low.count_rows() == 0 or _contents(low) <= _contents(high):
        return pa.array([], pa.uint64())
    delta = high.delta(compared_against=int(low.version))
    return delta.get_deleted_row_ids().read_all()[ROW_ID].combine_chunks().cast(pa.uint64())


def _contents(handle: Handle) -> set[tuple[tuple[str, ...], str | None]]:
    """The fragments of a version, each with the file that says which of its rows are gone."""
    return {(files_of(each), each.deletion_file()) for each in known_fragments(handle)}


def _missing(low: Handle, high: Handle) -> pa.Array:
    """The same by reading every row id of both."""
    ours, theirs = (
        each.scanner(columns=[], with_row_id=True).to_table()[ROW_ID].combine_chunks()
        for each in (low, high)
    )
    return ours.filter(pc.invert(pc.is_in(ours, value_set=theirs)))


def _joined(written: pa.Table, gone: pa.Table) -> pa.Table:
    """One row an id. An entity deleted and inserted again under its id is one row, not two."""
    if gone.num_rows == 0:
        return written
    lost = _table(gone[KEY], gone[ROW_ID], pa.nulls(gone.num_rows, pa.uint64()))
    if written.num_rows == 0:
        return lost
    positions, rest = _matched(written, lost)
    before = pc.coalesce(written[BEFORE], lost[BEFORE].take(positions))
    return pa.concat_tables([_table(written[KEY], before, written[AFTER]), rest])


def composed(first: pa.Table, second: pa.Table) -> pa.Table:
    """Two steps composed: an id that only one of them lists kept its row in the other."""
    if first.num_rows == 0 or second.num_rows == 0:
        return second if first.num_rows == 0 else first
    positions, rest = _matched(first, second)
    after = pc.if_else(positions.is_valid(), second[AFTER].take(positions), first[AFTER])
    return pa.concat_tables([_table(first[KEY], first[BEFORE], after), rest])


def reversed_(touched: pa.Table) -> pa.Table:
    """The same step taken backwards."""
    return _table(touched[KEY], touched[AFTER], touched[BEFORE])


def _matched(one: pa.Table, other: pa.Table) -> tuple[pa.Array, pa.Table]:
    """For each id of `one` its position in `other`, or null; and the rows of `other` whose ids
    `one` lacks. Only `other` is hashed: a step of few rows joins many at the cost of their scan."""
    mine, theirs = (table[KEY].combine_chunks() for table in (one, other))
    positions = pc.index_in(mine, value_set=theirs)
    is_rest = np.ones(other.num_rows, np.bool_)
    is_rest[positions.drop_null().to_numpy()] = False
    return positions, other.filter(pa.array(is_rest))


def _table(ids: pa.ChunkedArray, before: Iterable[int], after: Iterable[int]) -> pa.Table:
    return pa.table([ids, before, after], schema=TOUCHED)
