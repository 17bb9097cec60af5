"""Table version as the read path sees it: lookups by id, and entities fetched by a filter.

Invariant: only the requested columns are read. A version's key names it for ever: a branch that was
deleted and made again has another.
"""

from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.costs import COSTS
from omnigraph.exec.values.columns import ColumnNames, absent, in_one
from omnigraph.exec.values.pushdown import ids_filter
from omnigraph.exec.values.rows import Positions, gather
from omnigraph.plan import ir
from omnigraph.storage.lance.reader import TableReader
from omnigraph.storage.records import TablePin
from omnigraph.types import TableKey

Line = tuple[str, str, str, str]
"""A table, under one name, on one incarnation of one branch: along it versions only grow."""

VersionKey = tuple[Line, int]


def line_of(pin: TablePin) -> Line:
    """The line a version belongs to."""
    return pin.table_key, pin.location, pin.branch or "", pin.fork


class Source:
    """A table version: its reader, its cache key and the names of its columns."""

    def __init__(self, reader: TableReader) -> None:
        self.reader = reader
        self.pin = reader.pin
        self.line: Line = line_of(reader.pin)
        self.key: VersionKey = (self.line, reader.pin.version)
        self.columns = ColumnNames(reader.schema)

    @property
    def table(self) -> TableKey:
        return self.pin.table_key

    def by_ids(self, ids: pa.Array, names: Sequence[str]) -> pa.Table:
        """Rows of these ids, in any order."""
        listed = ids.to_pylist()
        columns = list(dict.fromkeys(("id", *names)))
        parts = [
            self.reader.rows(
                columns, filter=ids_filter(listed[start : start + COSTS.version_lookup_ids_max])
            )
            for start in range(0, len(listed), COSTS.version_lookup_ids_max)
        ]
        return pa.concat_tables(parts) if parts else self.empty(columns)

    def empty(self, names: Sequence[str]) -> pa.Table:
        """No rows of these columns."""
        schema = self.reader.schema
        return pa.schema([schema.field(name) for name in names]).empty_table()

    def aligned(self, ids: pa.Array, names: Sequence[str]) -> list[pa.Array]:
        """Columns for these distinct ids, in their order."""
        rows = self.by_ids(ids, names)
        indexes = pc.index_in(ids, value_set=in_one(rows["id"]))
        return [in_one(rows[name]).take(indexes) for name in names]


class FetchedEntities:
    """A few entities of a table version, fetched by a filter: the domain of a cold query."""

    def __init__(self, source: Source, rows: pa.Table) -> None:
        self._source = source
        self._columns = {name: in_one(rows[name]) for name in rows.column_names}
        self._ranks: np.ndarray | None = None

    @property
    def table(self) -> TableKey:
        return self._source.table

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def ids(self) -> pa.Array:
        return self._columns["id"]

    def ids_at(self, positions: Positions) -> pa.Array:
        return gather(self.ids, positions)

    def ranks_at(self, positions: Positions) -> np.ndarray:
        if self._ranks is None:
            order = pc.array_sort_indices(self.ids).to_numpy()
            self._ranks = np.empty(len(order) + 1, np.int64)
            self._ranks[order] = np.arange(len(order))
            self._ranks[-1] = -1  # position -1 is null
        return np.take(self._ranks, positions)

    def values_at(self, column: ir.Column, positions: Positions) -> pa.Array:
        name = self._source.columns.name_of(column)
        if name is None:
            return absent(column, len(positions))
        if name not in self._columns:
            self._columns[name] = self._fetched(column, name)
        return gather(self._columns[name], positions)

    def load(self, columns: Iterable[ir.Column]) -> None:
        """Bring columns into memory with one lookup."""
        names = (self._source.columns.name_of(column) for column in columns)
        missing = [name for name in names if name is not None and name not in self._columns]
        if missing:
            fetched = self._source.aligned(self.ids, missing)
            self._columns |= zip(missing, fetched, strict=True)

    def _fetched(self, column: ir.Column, name: str) -> pa.Array:
        if column.type.is_blob:
            return self._blob_presence(name)
        return self._source.aligned(self.ids, [name])[0]

    def _blob_presence(self, name: str) -> pa.Array:
        ids = self.ids.to_pylist()
        if not ids:
            return pa.nulls(0, pa.bool_())
        filter = f"{ids_filter(ids)} AND `{name}` IS NOT NULL"
        rows = self._source.reader.rows(["id"], filter=filter)
        present = pc.is_in(self.ids, value_set=in_one(rows["id"]))
        return pc.if_else(present, True, None)

    def ends_at(self, end: ir.End, positions: Positions) -> pa.Array:
        if end.value not in self._columns:
            [self._columns[end.value]] = self._source.aligned(self.ids, [end.value])
        return gather(self._columns[end.value], positions)
