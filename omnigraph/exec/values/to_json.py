"""Arrow columns to JSON values: the one way in which stored values leave as JSON.

Invariant: results, exports and images of changes differ by `JsonForm` alone. A column is converted
at once; a list column by way of its items, a vector column by way of numpy.
"""

from typing import Any

import numpy as np
import pyarrow as pa

from omnigraph.exec.values.columns import in_one
from omnigraph.exec.values.scalars import SCALARS, JsonForm, number_name
from omnigraph.types import ValueType


def json_column(
    values: pa.Array | pa.ChunkedArray, value_type: ValueType, form: JsonForm
) -> list[Any]:
    """A column as JSON values, null as None."""
    column = in_one(values) if isinstance(values, pa.ChunkedArray) else values
    if pa.types.is_null(column.type):
        return [None] * len(column)
    if pa.types.is_fixed_size_list(column.type):
        return _vectors(column, form)
    if value_type.is_list or value_type.is_vector:
        return _lists(column, value_type, form)
    return SCALARS[value_type.scalar].to_json(column, form)


def _vectors(column: pa.FixedSizeListArray, form: JsonForm) -> list[Any]:
    """Vectors as lists of doubles, many times faster than one number at a time."""
    flat = column.flatten().to_numpy(zero_copy_only=False).astype(np.float64)
    vectors = flat.reshape(-1, column.type.list_size).tolist()
    if form is JsonForm.RESULT and not np.isfinite(flat).all():
        vectors = [[n if np.isfinite(n) else number_name(n) for n in each] for each in vectors]
    if not column.null_count:
        return list(vectors)
    present = iter(vectors)  # a null vector has no numbers among the flat ones
    return [next(present) if valid else None for valid in column.is_valid().to_pylist()]


def _lists(column: pa.ListArray, value_type: ValueType, form: JsonForm) -> list[Any]:
    items = SCALARS[value_type.scalar].to_json(column.flatten(), form)
    counts = column.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)
    ends = np.cumsum(counts)
    valid = column.is_valid().to_numpy(zero_copy_only=False)
    spans = zip(valid.tolist(), (ends - counts).tolist(), ends.tolist(), strict=True)
    return [items[start:end] if known else None for known, start, end in spans]
