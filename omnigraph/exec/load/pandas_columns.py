"""pandas tables as Arrow columns; a column of objects of several types becomes a dense union.

Invariant: a value that does not fit its column is still the value that was given, so the load names
its row. Columns are converted value by value only where Arrow converts none of them as a whole.
"""

from typing import Any

import pyarrow as pa

from omnigraph.errors import BadRequest

_NO_FORM = (ValueError, TypeError, OverflowError, pa.ArrowException)
_TYPES_MAX = 127
"""Types of values that a union has room for."""


def of_pandas(source: Any) -> pa.Table:
    """The columns of a pandas table, without its index."""
    try:
        return pa.Table.from_pandas(source, preserve_index=False)
    except _NO_FORM as cause:
        names = [str(name) for name in source.columns]
        if len(set(names)) < len(names):
            raise _no_form(cause) from cause
    arrays = [_column(name, source.iloc[:, index]) for index, name in enumerate(names)]
    return pa.Table.from_arrays(arrays, names)


def is_mixed(table: pa.Table) -> bool:
    """Whether a column has values of several types."""
    return any(pa.types.is_union(each) for each in table.schema.types)


def _no_form(cause: Exception) -> BadRequest:
    return BadRequest(
        f"the pandas table has no Arrow form: {cause}",
        "name each column once, and give a column one type",
    )


def _column(name: str, series: Any) -> pa.Array | pa.ChunkedArray:
    try:
        return pa.Array.from_pandas(series)
    except _NO_FORM:
        pass
    try:
        return _union(series)
    except _NO_FORM as cause:
        raise _no_form(ValueError(f"{cause}, in column '{name}'")) from cause


def _union(series: Any) -> pa.Array:
    """The values of a column by their types, and of each row its type and position."""
    by_type: dict[type, list[Any]] = {}
    type_of_row, position_of_row = [], []
    for value, is_null in zip(series.tolist(), series.isna().tolist(), strict=True):
        kind = type(None) if is_null else type(value)
        values = by_type.setdefault(kind, [])
        type_of_row.append(kind)
        position_of_row.append(len(values))
        values.append(None if is_null else value)
    if len(by_type) > _TYPES_MAX:
        raise ValueError(f"values of {len(by_type)} types")
    numbers = {kind: number for number, kind in enumerate(by_type)}
    return pa.UnionArray.from_dense(
        pa.array([numbers[kind] for kind in type_of_row], pa.int8()),
        pa.array(position_of_row, pa.int32()),
        [pa.array(values) for values in by_type.values()],
        [str(number) for number in numbers.values()],
    )
