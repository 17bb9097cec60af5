"""pandas tables as Arrow columns; a column of objects of several types becomes a dense union.

Invariant: a value that does not fit its column is still the value that was given, so the load names
its row. Columns are converted value by value only where Arrow converts none of them as a whole.
"""

from collections.abc import Iterable
from itertools import accumulate, chain
from typing import Any

import pyarrow as pa

from omnigraph.errors import BadRequest

_NO_FORM = (ValueError, TypeError, OverflowError, pa.ArrowException)
_TYPES_MAX = 127
"""Types of values that a union has room for."""


PANDAS_ADVICE = "give texts (astype(str)), or the dates themselves (.dt.to_timestamp().dt.date)"


def pandas_type(field: pa.Field) -> str | None:
    """A type of pandas' own, whose stored numbers mean something else than ours: a month is counted
    from 1970, and is no day. In a file that pandas wrote it is told by the field."""
    name = (field.metadata or {}).get(b"ARROW:extension:name", b"").decode()
    if isinstance(field.type, pa.BaseExtensionType):
        name = field.type.extension_name
    return name if name.startswith("pandas.") else None


def of_pandas(source: Any) -> pa.Table:
    """The columns of a pandas table, without its index."""
    if len(source) and not len(source.columns):
        text = f"the pandas table has {len(source)} rows and no columns"
        raise BadRequest(text, "reset_index() makes columns of its index")
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
    return any(map(_is_mixed, table.schema.types))


def _is_mixed(kind: pa.DataType) -> bool:
    inner = (kind.field(number).type for number in range(kind.num_fields))
    return pa.types.is_union(kind) or any(map(_is_mixed, inner))


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
    return _union_of(
        None if is_null else value
        for value, is_null in zip(series.tolist(), series.isna().tolist(), strict=True)
    )


def _union_of(cells: Iterable[Any]) -> pa.Array:
    by_type: dict[type, list[Any]] = {}
    type_of_row, position_of_row = [], []
    for value in cells:
        values = by_type.setdefault(type(value), [])
        type_of_row.append(type(value))
        position_of_row.append(len(values))
        values.append(value)
    if len(by_type) > _TYPES_MAX:
        raise ValueError(f"values of {len(by_type)} types")
    numbers = {kind: number for number, kind in enumerate(by_type)}
    return pa.UnionArray.from_dense(
        pa.array([numbers[kind] for kind in type_of_row], pa.int8()),
        pa.array(position_of_row, pa.int32()),
        [_of_one_type(values) for values in by_type.values()],
        [str(number) for number in numbers.values()],
    )


def _of_one_type(values: list[Any]) -> pa.Array:
    """Values of one Python type; lists whose items have several types are lists of unions."""
    try:
        return pa.array(values)
    except _NO_FORM:
        if not isinstance(values[0], list | tuple):
            raise
    ends = accumulate(map(len, values), initial=0)
    items = _union_of(chain.from_iterable(values))
    return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), items)
