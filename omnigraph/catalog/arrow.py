"""The columns of each type.

Invariant: a table has `id` (edges also `src` and `dst`), then the properties in order of their ids.
Each property's field carries its id, so a column is found again after a rename.
"""

from collections.abc import Iterable

import pyarrow as pa

from omnigraph.catalog.model import EdgeType, NodeType, Property
from omnigraph.types import BLOB_EXTENSION, Scalar, ValueType

PROPERTY_ID = "omnigraph:property_id"
"""Field metadata: the property's identity, in decimal."""

_PRIMARY_KEY = {"lance-schema:unenforced-primary-key": "true"}
_BLOB = {"ARROW:extension:name": BLOB_EXTENSION, "ARROW:extension:metadata": ""}

_SCALARS: dict[Scalar, pa.DataType] = {
    Scalar.STRING: pa.utf8(),
    Scalar.BOOL: pa.bool_(),
    Scalar.I32: pa.int32(),
    Scalar.I64: pa.int64(),
    Scalar.U32: pa.uint32(),
    Scalar.U64: pa.uint64(),
    Scalar.F32: pa.float32(),
    Scalar.F64: pa.float64(),
    Scalar.DATE: pa.date32(),
    Scalar.DATETIME: pa.timestamp("ms", tz="UTC"),
    # What Lance's own blob type is made of. The field's metadata makes it one, so that a schema can
    # be built without Lance.
    Scalar.BLOB: pa.struct(
        [
            pa.field("data", pa.large_binary()),
            pa.field("uri", pa.utf8()),
            pa.field("position", pa.uint64()),
            pa.field("size", pa.uint64()),
        ]
    ),
}


def node_schema(node: NodeType) -> pa.Schema:
    """The columns of a node type's table."""
    return pa.schema([_id_field(), *_property_fields(node.properties)])


def edge_schema(edge: EdgeType) -> pa.Schema:
    """The columns of an edge type's table."""
    ends = (pa.field(name, pa.utf8(), nullable=False) for name in ("src", "dst"))
    return pa.schema([_id_field(), *ends, *_property_fields(edge.properties)])


def property_field(prop: Property) -> pa.Field:
    """The column of a property."""
    metadata = {PROPERTY_ID: str(prop.id), **(_BLOB if prop.type.is_blob else {})}
    return pa.field(prop.name, arrow_type(prop.type), prop.type.nullable, metadata)


def arrow_type(value_type: ValueType) -> pa.DataType:
    """The Arrow type that stores a value type. Elements of lists are never null."""
    if value_type.is_vector:
        return pa.list_(pa.float32(), value_type.dimension)
    scalar = _SCALARS[value_type.scalar]
    return pa.list_(pa.field("item", scalar, nullable=False)) if value_type.is_list else scalar


def _id_field() -> pa.Field:
    return pa.field("id", pa.utf8(), nullable=False, metadata=_PRIMARY_KEY)


def _property_fields(properties: Iterable[Property]) -> Iterable[pa.Field]:
    return map(property_field, sorted(properties, key=lambda prop: prop.id))
