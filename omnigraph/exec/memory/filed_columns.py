"""Fast path of: resident columns (`resident`) — mapped from column files, with the rows since.

Reference: `exec/memory/resident.py`, columns read whole into memory.
Held equal by: `test_TP_reading_with_files_gives_the_rows_of_the_naive_evaluator` and
`test_columns_of_files_are_those_of_the_table_after_any_writes`.
Falls back: for a column without a file, of lists, vectors and blobs, and for rows that were written
since the file; those are fetched by row id.

Invariant: a column file is of the version of the node file, so a number has the value of the file,
unless a row of it was written since.
"""

import pyarrow as pa

from omnigraph.catalog.arrow import property_columns
from omnigraph.exec.memory.version import Source
from omnigraph.exec.topology.build import is_worth_a_file
from omnigraph.exec.topology.build_column import build_column
from omnigraph.storage.derived.column_file import ColumnFile, can_be_filed
from omnigraph.storage.derived.node_file import NodeFile
from omnigraph.storage.records import TablePin
from omnigraph.storage.store import Store


class ColumnFiles:
    """The column files of one node file, found once and shared by the versions that follow."""

    def __init__(self, store: Store, base: TablePin, nodes: NodeFile) -> None:
        self._store = store
        self._base = base
        self._nodes = nodes
        self._known: dict[tuple[int, str], ColumnFile | None] = {}

    def get(self, field: pa.Field, property_id: int, *, build: bool = False) -> ColumnFile | None:
        """The file of a column, if there is one; with `build` it is made where that can be."""
        if not can_be_filed(field.type):
            return None
        key = (property_id, str(field.type))
        if key not in self._known:
            self._known[key] = self._store.derived.column(
                self._base, self._nodes, *key, fetch=build
            )
        if self._known[key] is None and build and is_worth_a_file(self._base):
            self._known[key] = build_column(self._store, self._base, self._nodes, *key)
        return self._known[key]


class NamedColumns:
    """The column files of one table version, by the names of its columns."""

    def __init__(self, source: Source, files: ColumnFiles) -> None:
        self._schema = source.reader.schema
        self._properties = {name: prop for prop, name in property_columns(self._schema).items()}
        self.files = files
        self._opened: dict[str, ColumnFile] = {}

    def get(self, name: str, *, build: bool = False) -> ColumnFile | None:
        """The file of a column."""
        column = self._opened.get(name)
        prop = self._properties.get(name)
        if column is not None or prop is None:
            return column
        column = self.files.get(self._schema.field(name), int(prop), build=build)
        if column is not None:
            self._opened[name] = column
        return column

    def whole(self, name: str, column: ColumnFile) -> pa.Array:
        """All values of a column's file."""
        return column.whole(self._schema.field(name).type)
