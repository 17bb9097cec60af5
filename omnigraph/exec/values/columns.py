"""Column lookup by property id, and reading of one column of a table version.

Invariant: a column belongs to the property whose id its field metadata carries, so a rename changes
nothing. A property the version does not have reads as null.
"""

from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.catalog.arrow import arrow_type, property_columns
from omnigraph.plan import ir
from omnigraph.storage.lance.reader import TableReader


class ColumnNames:
    """The names of a version's columns by property."""

    def __init__(self, schema: pa.Schema) -> None:
        self._names = property_columns(schema)

    def name_of(self, column: ir.Column) -> str | None:
        """The column of a property, or None when this version has none."""
        return self._names.get(column.property_id)


def in_one(values: pa.ChunkedArray) -> pa.Array:
    """A column in one piece."""
    if values.num_chunks == 1:
        return values.chunk(0)
    if values.nbytes > 2**30 and pa.types.is_string(values.type):
        values = values.cast(pa.large_string())  # 32-bit offsets end at two gigabytes
    combined = values.combine_chunks()
    return combined if isinstance(combined, pa.Array) else pa.concat_arrays(combined.chunks)


def with_columns(rows: pa.Table, columns: Mapping[str, pa.Array | pa.ChunkedArray]) -> pa.Table:
    """The rows with other values in these columns."""
    arrays = [
        columns.get(name, values)
        for name, values in zip(rows.column_names, rows.columns, strict=True)
    ]
    return pa.table(arrays, schema=rows.schema)


def absent(column: ir.Column, length: int) -> pa.Array:
    """A property no row has."""
    if column.type.is_blob:
        return pa.nulls(length, pa.bool_())
    return pa.nulls(length, arrow_type(column.type))


def read_column(reader: TableReader, name: str, *, filter: str | None = None) -> pa.Array:
    """One column of the matching rows, in the order of the table."""
    return in_one(reader.rows([name], filter=filter)[name])


def blob_presence(reader: TableReader, name: str) -> pa.Array:
    """True where the row has a blob and null elsewhere, in table order; reads no blob."""
    return pc.if_else(reader.has_value(name), True, None)
