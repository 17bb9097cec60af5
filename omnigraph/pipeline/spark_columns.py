"""Columns of a type as Spark sees them: each with the nearest Arrow type that Spark has.

Invariant: no value is lost on the way. Unsigned 64-bit numbers become decimals, vectors lists.
"""

import pyarrow as pa

from omnigraph.exec.changes.export import column_type
from omnigraph.exec.load.ndjson import Owner


def shown(owner: Owner) -> pa.Schema:
    """The columns of a type, each with the nearest type that Spark has."""
    kinds = {prop.name: column_type(prop) for prop in owner.properties}
    return pa.schema(
        [pa.field(f.name, _nearest(kinds.get(f.name, f.type)), f.nullable) for f in owner.schema]
    )


def _nearest(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_uint32(kind):
        return pa.int64()
    if pa.types.is_uint64(kind):
        return pa.decimal128(20, 0)
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", "UTC")
    if pa.types.is_large_binary(kind):
        return pa.binary()
    if pa.types.is_list(kind) or pa.types.is_fixed_size_list(kind):
        return pa.list_(_nearest(kind.value_type))
    return kind
