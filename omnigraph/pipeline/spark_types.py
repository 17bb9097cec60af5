"""Types of Arrow columns on Spark: the nearest type that it has, and back.

Invariant: a value that goes to Spark and back is the same value.
"""

from collections.abc import Sequence

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from omnigraph.catalog.arrow import arrow_type
from omnigraph.plan.ir import ObjectColumn
from omnigraph.types import ValueType


def nearest(kind: pa.DataType) -> pa.DataType:
    """The type a column has on Spark."""
    if pa.types.is_uint32(kind):
        return pa.int64()
    if pa.types.is_uint64(kind):
        return pa.decimal128(20, 0)
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", "UTC")
    if pa.types.is_large_binary(kind):
        return pa.binary()
    if pa.types.is_list(kind) or pa.types.is_fixed_size_list(kind):
        return pa.list_(nearest(kind.value_type))
    return pa.bool_() if pa.types.is_null(kind) else kind


def spark_schema(names: Sequence[str], types: Sequence[ValueType]) -> pa.Schema:
    """The columns of these types, as Spark has them."""
    kinds = (nearest(arrow_type(kind)) for kind in types)
    return pa.schema([pa.field(name, kind) for name, kind in zip(names, kinds, strict=True)])


def struct_of(schema: pa.Schema) -> StructType:
    """The same columns as Spark declares them."""
    struct: StructType = from_arrow_schema(schema)
    return struct


def as_declared(values: pa.Array | pa.ChunkedArray, kind: ValueType) -> pa.Array:
    """A column of Spark's as the type of ours."""
    whole = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    return whole.cast(arrow_type(kind))


def as_struct(shape: ObjectColumn, columns: Sequence[Column]) -> Column:
    """The columns of an object as one, null where the object is."""
    fields = columns[1:] if shape.may_be_null else columns
    struct = F.struct(*(f.alias(name) for f, name in zip(fields, shape.fields, strict=True)))
    return F.when(columns[0], struct) if shape.may_be_null else struct
