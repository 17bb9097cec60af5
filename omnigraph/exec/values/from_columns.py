"""Arrow columns of any type to columns of a property's type (casts, vectorised where exact).

Invariant: a value means here what `from_input.stored` says it means. A column is cast as a whole
where Arrow gives the same for every value (`column_casts`), and otherwise read value by value.
Formats with types of their own may also bring dates, timestamps and bytes, whole numbers as
floats, and dates as timestamps at midnight. Timestamps finer than a millisecond are refused: a
column says its unit, so cutting it is for its owner to ask for.
"""

import json
import math
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime, time
from decimal import Decimal
from typing import Any, assert_never

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.costs import COSTS
from omnigraph.exec.values.arrow_json import NotSure
from omnigraph.exec.values.column_casts import Spelling, cast_column
from omnigraph.exec.values.from_input import Unfit, column, no_external, stored
from omnigraph.exec.values.scalars import Moment, ReadExternal
from omnigraph.language.moments import cut_count
from omnigraph.types import INTEGERS, Scalar, ValueType

_WHOLE_NUMBER = re.compile(r"-?[0-9]{1,20}", re.ASCII)

_FINER = (
    "is finer than a millisecond: cut the column first, with date_trunc('millisecond', t) "
    "of Spark and SQL or dt.floor('ms') of pandas"
)


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
    unlisted: Counter[str] = field(default_factory=Counter)
    """Further values that do not fit, by the rule that they break."""
    unlisted_rows: list[int] = field(default_factory=list)


def converted(
    values: pa.Array,
    value_type: ValueType,
    read: ReadExternal = no_external,
    *,
    is_text: bool = False,
    bad_max: int | None = None,
) -> Converted:
    """The column as the property stores it. The cells of a format without types are text, and
    `is_text` says so. Values that are not cast at once are read one by one, with their neighbours
    and no others. At most `bad_max` values that do not fit are listed; all are counted."""
    whole = _cast(values, value_type, is_text)
    if whole is not None:
        return Converted(whole, [])
    cut = _without_finer(values, value_type, read, bad_max)
    if cut is not None:
        return cut
    parts: list[pa.Array] = []
    bad: list[BadCell] = []
    rounded, unlisted = 0, Counter[str]()
    rows: list[int] = []
    for start in range(0, max(1, len(values)), COSTS.cast_rows_together):
        part = values[start : start + COSTS.cast_rows_together]
        cells = _cast(part, value_type, is_text)
        if cells is None:
            done = _one_by_one(part, value_type, read, is_text)
            cells, rounded = done.cells, rounded + done.rounded
            room = len(done.bad) if bad_max is None else max(0, bad_max - len(bad))
            bad += [replace(cell, row=cell.row + start) for cell in done.bad[:room]]
            unlisted.update(cell.unfit.rule for cell in done.bad[room:])
            rows += [cell.row + start for cell in done.bad[room:]]
        parts.append(cells)
    return Converted(pa.concat_arrays(parts), bad, rounded, unlisted, rows)


def _without_finer(
    values: pa.Array, value_type: ValueType, read: ReadExternal, bad_max: int | None
) -> Converted | None:
    """A column of timestamps of which some are finer than a millisecond, and nothing else is wrong:
    found by arithmetic on the column, since there may be as many as rows."""
    if value_type.scalar is not Scalar.DATETIME or value_type.is_list:
        return None
    finer = finer_rows(values)
    if not len(finer):
        return None
    marks = np.zeros(len(values), np.bool_)
    marks[finer] = True
    cells = _cast(pc.if_else(pa.array(marks), None, values), value_type, is_text=False)
    if cells is None:
        return None
    listed = finer[:bad_max]
    found = _one_by_one(values.take(pa.array(listed)), value_type, read, is_text=False).bad
    bad = [replace(cell, row=int(listed[cell.row])) for cell in found]
    rest = finer[len(listed) :].tolist()
    unlisted = Counter({bad[0].unfit.rule: len(rest)} if rest else {})
    return Converted(cells, bad, 0, unlisted, rest)


def finer_rows(values: pa.Array) -> np.ndarray:
    """The rows of a column of timestamps that are finer than a millisecond; none of another one."""
    parts = {"us": 1_000, "ns": 1_000_000}
    unit = values.type.unit if pa.types.is_timestamp(values.type) else ""
    if unit not in parts:
        return np.empty(0, np.int64)
    numbers = pc.fill_null(values.cast(pa.int64()), 0).to_numpy(zero_copy_only=False)
    return np.flatnonzero(numbers % parts[unit])


def _cast(values: pa.Array, value_type: ValueType, is_text: bool) -> pa.Array | None:
    try:
        return cast_column(values, value_type, Spelling.TEXT if is_text else Spelling.TYPED)
    except (NotSure, pa.ArrowException):
        return None


def _one_by_one(
    values: pa.Array, value_type: ValueType, read: ReadExternal, is_text: bool
) -> Converted:
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
    if value_type.scalar in INTEGERS:
        return lambda value: whole_numbers(value, value_type)
    if value_type.scalar is Scalar.DATETIME:
        return whole_moment
    if value_type.scalar is Scalar.DATE:
        return whole_day
    return lambda value: value


def whole_day(value: Any) -> Any:
    """A moment without a zone at midnight, or one in a list, as its date; any other value as it
    is."""
    if isinstance(value, list):
        return [whole_day(item) for item in value]
    is_midnight = (
        isinstance(value, datetime)
        and value.tzinfo is None
        and value.time() == time.min
        and not getattr(value, "nanosecond", 0)
    )
    return value.date() if is_midnight else value


def whole_numbers(value: Any, value_type: ValueType) -> Any:
    """A value, or the items of a list, with whole floats as the integers that a property holds."""
    if value_type.scalar not in INTEGERS:
        return value
    if value_type.is_list and isinstance(value, list):
        return [_whole_number(item) for item in value]
    return value if value_type.is_list else _whole_number(value)


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
        case Scalar.I32 | Scalar.I64 | Scalar.U32 | Scalar.U64:
            return _integer_text
        case Scalar.F32 | Scalar.F64:
            return _json_text
        case _:
            assert_never(value_type.scalar)


def _integer_text(value: str | None) -> Any:
    """A whole number may have a point, as 3.0 has that pandas wrote beside an empty cell."""
    number = _json_text(value)
    if not isinstance(number, float) or value is None or not math.isfinite(number):
        return number
    whole = _whole_number(Decimal(value.strip()))
    return whole if isinstance(whole, int) else number


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
