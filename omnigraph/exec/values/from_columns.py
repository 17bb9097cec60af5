"""Arrow columns of any type to columns of a property's type (casts, vectorised where exact).

Invariant: a value means here what `from_input.stored` says it means. A column is cast as a whole
where Arrow gives the same for every value, and otherwise read value by value. Formats with types of
their own may also bring dates, timestamps and bytes, and whole numbers as floats. Timestamps finer
than a millisecond are refused: a column says its unit, so cutting it is for its owner to ask for.
"""

import json
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any, assert_never

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.catalog.arrow import arrow_type
from omnigraph.exec.values.from_input import Unfit, column, no_external, stored
from omnigraph.exec.values.scalars import Moment, ReadExternal
from omnigraph.language.moments import DAYS, MILLISECONDS, cut_count
from omnigraph.types import FLOATS, INTEGERS, Scalar, ValueType

_WHOLE_NUMBER = re.compile(r"-?[0-9]{1,20}", re.ASCII)


_INTEGERS_EXACT_BELOW = float(2**53)
"""A double of this size or more may have been another integer in its text."""

_FINER = (
    "is finer than a millisecond: cut the column first, with date_trunc('millisecond', t) "
    "of Spark and SQL or dt.floor('ms') of pandas"
)


class NotSure(Exception):
    """These values have to be read one by one."""


@dataclass(frozen=True, slots=True)
class BadCell:
    """A value that the property cannot hold, by its row."""

    row: int
    value: Any
    unfit: Unfit


@dataclass(frozen=True, slots=True)
class Converted:
    """A column as the property stores it, null where a value does not fit, and those values."""

    cells: pa.Array
    bad: list[BadCell]
    rounded: int = 0
    """Texts of moments that were cut to the millisecond."""


def converted(
    values: pa.Array,
    value_type: ValueType,
    read: ReadExternal = no_external,
    *,
    is_text: bool = False,
) -> Converted:
    """The column as the property stores it. The cells of a format without types are text, and
    `is_text` says so."""
    try:
        return Converted(_whole(values, value_type, is_text), [])
    except (NotSure, pa.ArrowException):
        pass
    spelled = _text_reader(value_type) if is_text else _value_reader(value_type)
    kept: list[Any] = []
    bad: list[BadCell] = []
    for row, value in enumerate(_cells(values)):
        try:
            kept.append(stored(spelled(value), value_type, read))
        except Unfit as unfit:
            kept.append(None)
            bad.append(BadCell(row, value, unfit))
    return Converted(column(kept, value_type), bad, cut_count(kept))


def is_string(kind: pa.DataType) -> bool:
    """Whether Arrow values of the type are texts."""
    return bool(
        pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
    )


# Whole columns


def _whole(values: pa.Array, value_type: ValueType, is_text: bool) -> pa.Array:
    """The column cast at once, where that gives what `stored` gives for every value."""
    target = arrow_type(value_type)
    scalar, source = value_type.scalar, values.type
    if pa.types.is_dictionary(source):
        return _whole(values.dictionary_decode(), value_type, is_text)
    if pa.types.is_null(source):
        return pa.nulls(len(values), target)
    if value_type.is_blob or value_type.is_vector or value_type.is_list:
        raise NotSure
    if scalar is Scalar.STRING and is_string(source):
        return values.cast(target)
    if scalar is Scalar.BOOL and pa.types.is_boolean(source):
        return values
    numeric = pa.types.is_integer(source) or pa.types.is_floating(source)
    if scalar in INTEGERS and (numeric or (is_text and is_string(source))):
        return values.cast(target)
    if scalar in FLOATS and (numeric or (is_text and is_string(source))):
        numbers = values.cast(pa.float64())  # fails for integers beyond 2**53
        return floats(numbers, target, are_floats=pa.types.is_floating(source))
    if scalar is Scalar.DATE and pa.types.is_date(source):
        return _inside(values.cast(target), pa.int32(), DAYS)
    if scalar is Scalar.DATETIME and pa.types.is_timestamp(source):
        return _inside(_milliseconds(values), pa.int64(), MILLISECONDS).cast(target)
    raise NotSure


def floats(values: pa.Array, target: pa.DataType, *, are_floats: bool) -> pa.Array:
    """Doubles at a column's width: finite ones, with one zero. Where they may have been integers,
    those that the column cannot hold exactly are left to the reader of single values."""
    numbers = values.cast(target, safe=False)
    if not _all(pc.is_finite(numbers)):
        raise NotSure
    if not are_floats and not _all(_exact(values, numbers)):
        raise NotSure
    return pc.add(numbers, pa.scalar(0, target))


def _exact(values: pa.Array, numbers: pa.Array) -> pa.BooleanArray:
    """Where a double is a fraction, or an integer that was not rounded on the way."""
    is_fraction = pc.not_equal(values, pc.trunc(values))
    is_safe = pc.less(pc.abs(values), _INTEGERS_EXACT_BELOW)
    is_kept = pc.equal(numbers.cast(pa.float64()), values)
    return pc.or_(is_fraction, pc.and_(is_safe, is_kept))


def _all(mask: pa.BooleanArray) -> bool:
    return pc.all(mask).as_py() in (True, None)


def _milliseconds(values: pa.Array) -> pa.Array:
    """Timestamps of any unit as milliseconds: a safe cast, which fails for parts of one. A column
    without a zone is UTC."""
    return values.cast(pa.timestamp("ms", values.type.tz))


def _inside(values: pa.Array, number: pa.DataType, bounds: tuple[int, int]) -> pa.Array:
    numbers = values.view(number)
    least, most = pc.min_max(numbers).values()
    if least.is_valid and not bounds[0] <= least.as_py() <= most.as_py() <= bounds[1]:
        raise NotSure
    return values


# Values one by one


def _cells(values: pa.Array) -> list[Any]:
    """The values as Python has them, and `Moment` for those that it cannot have."""
    try:
        return list(values.to_pylist())
    except (ValueError, OverflowError, pa.ArrowException):
        return [_cell(value) for value in values]


def _cell(value: pa.Scalar) -> Any:
    try:
        return value.as_py()
    except (ValueError, OverflowError, pa.ArrowException):
        if isinstance(value, pa.ListScalar):
            return [_cell(item) for item in value.values]
        is_nanoseconds = pa.types.is_timestamp(value.type) and value.type.unit == "ns"
        why = _FINER if is_nanoseconds else "lies outside the years 1 to 9999"
        return Moment(_spelled(value), why)


def whole_moment(value: Any) -> Any:
    """A cell of a column of timestamps, and `Moment` for what is finer than a millisecond."""
    if isinstance(value, list):
        return [whole_moment(item) for item in value]
    if not isinstance(value, datetime):
        return value
    is_finer = value.microsecond % 1_000 or getattr(value, "nanosecond", 0)
    return Moment(str(value), _FINER) if is_finer else value


def _spelled(value: pa.Scalar) -> str:
    try:
        return str(value.cast(pa.utf8()).as_py())
    except pa.ArrowException:
        return f"{getattr(value, 'value', '?')} ({value.type})"


def _value_reader(value_type: ValueType) -> Callable[[Any], Any]:
    if value_type.scalar in INTEGERS and not value_type.is_list:
        return _whole_number
    if value_type.scalar is Scalar.DATETIME:
        return whole_moment
    return lambda value: value


def _whole_number(value: Any) -> Any:
    is_fraction = isinstance(value, float | Decimal) and math.isfinite(value)
    return int(value) if is_fraction and value == int(value) else value


def _text_reader(value_type: ValueType) -> Callable[[Any], Any]:
    """Reader for cells of a format without types (CSV): numbers and lists are JSON in the text."""
    if value_type.is_list:
        return _json_text
    match value_type.scalar:
        case Scalar.STRING | Scalar.BLOB:
            return lambda value: value
        case Scalar.DATE | Scalar.DATETIME:
            return _number_or_text
        case Scalar.BOOL | Scalar.VECTOR:
            return _json_text
        case Scalar.I32 | Scalar.I64 | Scalar.U32 | Scalar.U64 | Scalar.F32 | Scalar.F64:
            return _json_text
        case _:
            assert_never(value_type.scalar)


def _number_or_text(value: str | None) -> Any:
    if value is not None and _WHOLE_NUMBER.fullmatch(value):
        return int(value)
    return value


def _json_text(value: str | None) -> Any:
    if value is None:
        return None
    try:
        return json.loads(value.lower() if value.lower() in ("true", "false") else value)
    except (ValueError, RecursionError):
        return value
