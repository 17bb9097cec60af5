"""What was written between two versions of one Lance branch, at the cost of that.

Every row written since the low end of a span lies in a fragment the low end does not have and
carries a newer stamp, and Lance lists the row ids that are gone.

Invariant: an id that is not listed has the same content at both ends, under the same row id. An id
that is listed may still be equal: rows are written again without being changed.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.errors import OmnigraphError
from omnigraph.storage.lance.datasets import Datasets, Handle, files_of
from omnigraph.storage.lance.direct_read import InPlace
from omnigraph.storage.lance.row_cache import ADDRESS, ROW_ID
from omnigraph.storage.lance.rowids import rows_by_id
from omnigraph.storage.lance.tables import KEY
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

_CREATED, _UPDATED = "_row_created_at_version", "_row_last_updated_at_version"

Columns = Sequence[str] | None
"""The columns of rows that are wanted, beside the id; None: only ids and row ids."""

_FEW_BYTES = 4 << 20
"""What is read with every column on the way, so that nobody reads it again."""

_COLUMN_BYTES = 64


@dataclass(frozen=True, slots=True)
class Span:
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
class Found:
    """What a span touched, and the rows of either end if they were wanted and are few: `old` those
    of the low end that are gone or written again, `new` those of the high end that were written."""

    touched: pa.Table
    old: pa.Table | None = None
    new: pa.Table | None = None
    rows_bytes: int = 0

    @property
    def has_rows(self) -> bool:
        """Whether the rows were read too."""
        return self.old is not None and self.new is not None


@dataclass(frozen=True, slots=True)
class Ends:
    """The two versions of a span, open. `wrote` and `lost` are asked first, in any order; `found`
    makes of them what was touched."""

    datasets: Datasets
    in_place: InPlace
    table: str
    low: Handle
    high: Handle

    def wrote(self, columns: Columns) -> pa.Table:
        """Rows of the high end written after the low one: id, row id and the version they were
        created at, and if they are few their address and the columns that are wanted."""
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

    def found(self, gone: pa.Array, written: pa.Table, columns: Columns) -> Found:
        """What was touched, after a read of the low end's rows that are gone, and of those written
        again if they are wanted too and few."""
        kept = pc.less_equal(written[_CREATED], int(self.low.version))
        before = pc.if_else(kept, written[ROW_ID], pa.scalar(None, pa.uint64())).combine_chunks()
        again = before.drop_null()
        if columns is None or not self._is_carried(written, len(gone) + len(again)):
            lost = self._read(gone, [KEY, ROW_ID])
            return Found(_joined(_table(written[KEY], before, written[ROW_ID]), lost))
        old = self._read(pa.concat_arrays([gone, again]), [KEY, *columns, ROW_ID, ADDRESS])
        lost = old.filter(pc.is_in(old[ROW_ID], value_set=gone))
        touched = _joined(_table(written[KEY], before, written[ROW_ID]), lost)
        return Found(touched, old, written, old.nbytes + written.nbytes)

    def _is_carried(self, written: pa.Table, rows: int) -> bool:
        return ADDRESS in written.column_names and _is_few(self.low, rows)

    def _read(self, row_ids: pa.Array, names: list[str]) -> pa.Table:
        with self.datasets.lance_call("rows_by_id", self.table):
            found, others = self.in_place.rows(self.low, row_ids, names)
            if len(others) or not found:
                found.append(rows_by_id(self.low, others, names, ordered=False))
            return pa.concat_tables(found)


def _is_few(handle: Handle, rows: int) -> bool:
    """Whether so many rows may be held with all their columns."""
    widths = (_COLUMN_BYTES + 4 * getattr(field.type, "list_size", 0) for field in handle.schema)
    return bool(rows * sum(widths) <= _FEW_BYTES)


def _written(low: Handle, high: Handle, columns: Columns) -> pa.Table:
    known = {files_of(fragment) for fragment in low.get_fragments()}
    fresh = [fragment for fragment in high.get_fragments() if files_of(fragment) not in known]
    few = _is_few(high, sum(fragment.physical_rows for fragment in fresh))
    stamps = [KEY, ROW_ID, _CREATED]
    shared = {*low.schema.names} & {*high.schema.names}
    if few and columns is not None and shared.issuperset(columns):
        stamps += [ADDRESS, *columns]
    if not fresh:
        return high.scanner(columns=stamps).projected_schema.empty_table()
    if not few:
        newer = f"{_UPDATED} > {low.version}"
        return high.scanner(columns=stamps, filter=newer, fragments=fresh).to_table()
    # To plan a filter takes longer than to read a few rows more.
    rows = high.scanner(columns=[*stamps, _UPDATED], fragments=fresh).to_table()
    return rows.filter(pc.greater(rows[_UPDATED], int(low.version)))


def _gone(low: Handle, high: Handle) -> pa.Array:
    if low.count_rows() == 0:
        return pa.array([], pa.uint64())
    delta = high.delta(compared_against=int(low.version))
    return delta.get_deleted_row_ids().read_all()[ROW_ID].combine_chunks().cast(pa.uint64())


def _missing(low: Handle, high: Handle) -> pa.Array:
    """The same by reading every row id of both."""
    ours, theirs = (
        each.scanner(columns=[], with_row_id=True).to_table()[ROW_ID].combine_chunks()
        for each in (low, high)
    )
    return ours.filter(pc.invert(pc.is_in(ours, value_set=theirs)))


def _joined(written: pa.Table, gone: pa.Table) -> pa.Table:
    """One line an id. A row deleted and inserted again under its id is one line, not two."""
    if gone.num_rows == 0:
        return written
    lost = _table(gone[KEY], gone[ROW_ID], pa.nulls(gone.num_rows, pa.uint64()))
    if written.num_rows == 0:
        return lost
    places, rest = matched(written, lost)
    before = pc.coalesce(written[BEFORE], lost[BEFORE].take(places))
    return pa.concat_tables([_table(written[KEY], before, written[AFTER]), rest])


def composed(first: pa.Table, second: pa.Table) -> pa.Table:
    """Two steps as one: an id only one of them lists kept its row in the other."""
    if first.num_rows == 0 or second.num_rows == 0:
        return second if first.num_rows == 0 else first
    places, rest = matched(first, second)
    after = pc.if_else(places.is_valid(), second[AFTER].take(places), first[AFTER])
    return pa.concat_tables([_table(first[KEY], first[BEFORE], after), rest])


def reversed_(touched: pa.Table) -> pa.Table:
    """The same step taken backwards."""
    return _table(touched[KEY], touched[AFTER], touched[BEFORE])


def matched(one: pa.Table, other: pa.Table) -> tuple[pa.Array, pa.Table]:
    """For each id of `one` its place in `other`, or null; and the lines of `other` without one."""
    mine, theirs = (table[KEY].combine_chunks() for table in (one, other))
    rest = other.filter(pc.invert(pc.is_in(theirs, value_set=mine)))
    return pc.index_in(mine, value_set=theirs), rest


def _table(ids: pa.ChunkedArray, before: Iterable[int], after: Iterable[int]) -> pa.Table:
    return pa.table([ids, before, after], schema=TOUCHED)
