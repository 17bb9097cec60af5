"""Columns of one table version: found by property, read by name, brought into one piece.

Invariant: a property is found by its identity in the field's metadata, so a column that was renamed
since is still the same column. A property the version does not have reads as null.
"""

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.catalog.arrow import PROPERTY_ID, arrow_type
from omnigraph.plan import ir
from omnigraph.storage.lance.reader import TableReader
from omnigraph.types import PropertyId

_METADATA_KEY = PROPERTY_ID.encode()


class ColumnNames:
    """The names of a version's columns by property."""

    def __init__(self, schema: pa.Schema) -> None:
        self._names = {
            PropertyId(int(field.metadata[_METADATA_KEY])): field.name
            for field in schema
            if field.metadata and _METADATA_KEY in field.metadata
        }

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


def absent(column: ir.Column, length: int) -> pa.Array:
    """A property no row has."""
    if column.type.is_blob:
        return pa.nulls(length, pa.bool_())
    return pa.nulls(length, arrow_type(column.type))


def read_column(reader: TableReader, name: str, *, filter: str | None = None) -> pa.Array:
    """One column of the matching rows, in the order of the table."""
    return in_one(reader.rows([name], filter=filter)[name])


def blob_presence(reader: TableReader, name: str) -> pa.Array:
    """True where a blob is there and null where not, in the order of the table; reads no blob."""
    return pc.if_else(reader.has_value(name), True, None)
