"""Arrow schema of each type's table: the columns, their Arrow types and field metadata.

Invariant: a table has `id` (edges also `src` and `dst`), then the properties in order of their ids.
Each property's field carries its id, so a renamed column is still known.
"""

from collections.abc import Iterable
from typing import assert_never

import pyarrow as pa

from omnigraph.catalog.model import EdgeType, Property, Type
from omnigraph.types import BLOB_EXTENSION, PropertyId, Scalar, ValueType

PROPERTY_ID = "omnigraph:property_id"
"""Field metadata: the property's identity, in decimal."""

_PROPERTY_KEY = PROPERTY_ID.encode()

_PRIMARY_KEY = {"lance-schema:unenforced-primary-key": "true"}
_BLOB = {"ARROW:extension:name": BLOB_EXTENSION, "ARROW:extension:metadata": ""}

# The layout of Lance's own blob type. The field's metadata makes it one, so that a schema can be
# built without Lance.
_BLOB_LAYOUT = pa.struct(
    [
        pa.field("data", pa.large_binary()),
        pa.field("uri", pa.utf8()),
        pa.field("position", pa.uint64()),
        pa.field("size", pa.uint64()),
    ]
)


def _stored_type(scalar: Scalar) -> pa.DataType:
    """The Arrow type of one value; for vectors, of one of their numbers."""
    match scalar:
        case Scalar.STRING:
            return pa.utf8()
        case Scalar.BLOB:
            return _BLOB_LAYOUT
        case Scalar.BOOL:
            return pa.bool_()
        case Scalar.I32:
            return pa.int32()
        case Scalar.I64:
            return pa.int64()
        case Scalar.U32:
            return pa.uint32()
        case Scalar.U64:
            return pa.uint64()
        case Scalar.F32 | Scalar.VECTOR:
            return pa.float32()
        case Scalar.F64:
            return pa.float64()
        case Scalar.DATE:
            return pa.date32()
        case Scalar.DATETIME:
            return pa.timestamp("ms", tz="UTC")
        case _:
            assert_never(scalar)


_STORED = {scalar: _stored_type(scalar) for scalar in Scalar}
_SCALARS = {stored: scalar for scalar, stored in _STORED.items() if scalar is not Scalar.VECTOR}


def table_schema(owner: Type) -> pa.Schema:
    """The columns of a type's table: callers say `owner.schema`."""
    names = ("src", "dst") if isinstance(owner, EdgeType) else ()
    ends = (pa.field(name, pa.utf8(), nullable=False) for name in names)
    return pa.schema([_id_field(), *ends, *_property_fields(owner.properties)])


def property_field(prop: Property) -> pa.Field:
    """The column of a property."""
    metadata = {PROPERTY_ID: str(prop.id), **(_BLOB if prop.type.is_blob else {})}
    return pa.field(prop.name, arrow_type(prop.type), prop.type.nullable, metadata)


def property_columns(schema: pa.Schema) -> dict[PropertyId, str]:
    """The columns of a table version by the ids of their properties, under their names of then."""
    return {
        PropertyId(int(field.metadata[_PROPERTY_KEY])): field.name
        for field in schema
        if field.metadata and _PROPERTY_KEY in field.metadata
    }


def arrow_type(value_type: ValueType) -> pa.DataType:
    """The Arrow type that stores a value type. Elements of lists are never null."""
    item = _STORED[value_type.scalar]
    if value_type.is_vector:
        return pa.list_(item, value_type.dimension)
    return pa.list_(pa.field("item", item, nullable=False)) if value_type.is_list else item


def scalar_of(stored: pa.DataType) -> Scalar | None:
    """The scalar whose single values a column of this Arrow type holds; None for other types."""
    return _SCALARS.get(stored)


def _id_field() -> pa.Field:
    return pa.field("id", pa.utf8(), nullable=False, metadata=_PRIMARY_KEY)


def _property_fields(properties: Iterable[Property]) -> Iterable[pa.Field]:
    return map(property_field, sorted(properties, key=lambda prop: prop.id))


def blob_bytes(cells: pa.ChunkedArray) -> pa.ChunkedArray:
    """The bytes of blobs that are about to be written."""
    return cells.flatten()[_BLOB_LAYOUT.get_field_index("data")]
