"""Arrow's JSON reader over NDJSON bytes: which Arrow type it reads each property as, and refusals.

Invariant: a column is read as the Arrow type that loses nothing of its JSON, before any cast to the
property's own; what Arrow refuses raises `NotSure`, and is for the reader of single values.
"""

from typing import Any, assert_never

import pyarrow as pa
import pyarrow.json as pj

from omnigraph.catalog.arrow import arrow_type
from omnigraph.costs import COSTS
from omnigraph.types import Scalar, ValueType


class NotSure(Exception):
    """These values have to be read one by one."""


def json_type(value_type: ValueType, seen: Any) -> pa.DataType:
    """The Arrow type that a property is read as; `seen` is a value of it, if one is known."""
    if value_type.is_list and isinstance(seen, list):
        seen = next(iter(seen), None)
    match value_type.scalar:
        case Scalar.DATE | Scalar.DATETIME:
            plain = pa.utf8() if seen is None or isinstance(seen, str) else pa.int64()
        case Scalar.F32 | Scalar.F64 | Scalar.VECTOR:
            # Rounding a decimal to float32 at once, or by way of float64, can differ.
            plain = pa.float64()
        case Scalar.STRING | Scalar.BLOB:
            plain = pa.utf8()
        case Scalar.BOOL | Scalar.I32 | Scalar.I64 | Scalar.U32 | Scalar.U64:
            plain = arrow_type(ValueType(value_type.scalar))
        case _:
            assert_never(value_type.scalar)
    return pa.list_(plain) if value_type.is_list or value_type.is_vector else plain


def parse_lines(schema: pa.Schema, data: bytes | pa.Buffer) -> pa.Table:
    """Lines of one object each, with no members but those of the schema, each in one piece."""
    try:
        return pj.read_json(
            pa.BufferReader(data),
            read_options=pj.ReadOptions(block_size=COSTS.json_block_bytes),
            parse_options=pj.ParseOptions(
                explicit_schema=schema,
                newlines_in_values=False,
                unexpected_field_behavior="error",
            ),
        ).combine_chunks()
    except pa.ArrowException as cause:
        raise NotSure from cause
