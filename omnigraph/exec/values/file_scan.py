"""Fast path of: a filtered scan by Lance — a condition over whole columns of the data files.

Lance's scan of one column of a million rows takes ten times as long as reading the column from its
file, and longer still once rows were deleted. Here the columns of a condition are read from the
files and compared in Arrow, which gives the row ids of candidates: deleted rows and rows that were
written again are among them.

Reference: `selection.select_committed`, which gives the condition to Lance as a filter.
Held equal by: `test_conditions_over_files_select_what_lance_selects`.
Falls back: for small tables and small fragments, conditions other than comparisons of properties
with constants, columns with an index, many candidates, and where `DirectReader` cannot read.

Invariant: no false negatives. Each live row lies in a file, so a row that is no candidate does not
meet the condition. The caller reads the candidates of its version and checks the condition again.
"""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from omnigraph.costs import COSTS
from omnigraph.exec.values.columns import ColumnNames
from omnigraph.exec.values.compare import compare_constant, flags
from omnigraph.exec.values.constants import CONSTANTS, Given, mirrored
from omnigraph.light_dataclass import dataclass
from omnigraph.plan import ir
from omnigraph.storage.lance.direct_read import UnreadableFile
from omnigraph.storage.lance.reader import TableReader, columns_in_files
from omnigraph.types import ValueType


@dataclass(frozen=True, slots=True)
class Candidates:
    """Row ids that may meet a condition, and the columns that it is about."""

    row_ids: np.ndarray
    columns: tuple[str, ...]


def row_id_candidates(reader: TableReader, where: ir.Expr, given: Given) -> Candidates | None:
    """Candidates for a condition; None when Lance should search."""
    rows = reader.pin.row_count
    comparisons = None if rows < COSTS.file_scan_rows_min else _comparisons(where, given, reader)
    if comparisons is None or reader.fragment_count() * COSTS.file_scan_rows_min > rows:
        return None
    columns = tuple(dict.fromkeys(each.column for each in comparisons))
    files = None
    if not any(index.column in columns for index in reader.indexes()):
        files = columns_in_files(reader, columns)
    if files is None:
        return None
    parts: list[np.ndarray] = []
    try:
        for row_ids, batches in files:
            offsets = np.fromiter(_matching(batches, comparisons), np.intp)
            if len(offsets) + sum(map(len, parts)) > COSTS.file_scan_candidates_max:
                return None
            parts.append(row_ids.row_ids_at(offsets))
    except UnreadableFile:
        return None
    return Candidates(np.unique(np.concatenate(parts)), columns)


@dataclass(frozen=True, slots=True)
class _Comparison:
    """A property compared with a constant."""

    op: ir.CompareOp
    column: str
    type: ValueType  # of the constant
    value: ir.Constant

    def mask(self, batch: pa.RecordBatch) -> np.ndarray:
        values = batch.column(batch.schema.get_field_index(self.column))
        return flags(compare_constant(self.op, values, self.value, self.type))


def _comparisons(
    where: ir.Expr, given: Given, reader: TableReader
) -> tuple[_Comparison, ...] | None:
    """The parts of a condition; None when one of them is something else."""
    name_of = ColumnNames(reader.schema).name_of
    parts: list[_Comparison] = []
    for part in where.parts if isinstance(where, ir.And) else (where,):
        if not isinstance(part, ir.Compare):
            return None
        op, left, right = part.op, part.left, part.right
        if isinstance(left, CONSTANTS):
            op, left, right = mirrored(op), right, left
        if not isinstance(left, ir.Column) or not isinstance(right, CONSTANTS):
            return None
        name = name_of(left)
        if name is None:
            return None
        parts.append(_Comparison(op, name, right.type, given.of(right)))
    return tuple(parts)


def _matching(
    batches: Iterable[pa.RecordBatch], comparisons: Sequence[_Comparison]
) -> Iterator[int]:
    """The offsets of rows that meet all comparisons, a few more than may be used at most."""
    first = matches = 0
    for batch in batches:
        mask = comparisons[0].mask(batch)
        for each in comparisons[1:]:
            mask = mask & each.mask(batch)
        offsets = np.flatnonzero(mask)
        yield from (offsets + first).tolist()
        first, matches = first + batch.num_rows, matches + len(offsets)
        if matches > COSTS.file_scan_candidates_max:
            return
