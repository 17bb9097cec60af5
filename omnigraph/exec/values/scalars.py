"""Scalar table: for each scalar how a value is read, stored, sorted, filtered by and written.

Invariant: a row is made by a `match` that ends in `assert_never`, so a new scalar fails the type
check here. Two columns of the table live lower because plans need them, and end the same way: the
Arrow type in `catalog.arrow`, and the meaning of a parameter in `plan.params`. Nothing here words a
refusal: `Misfit` carries the reason, and `from_input` and `from_params` say it to their callers.
"""

import base64
import binascii
import math
from collections.abc import Callable
from datetime import date, datetime
from decimal import Decimal
from enum import StrEnum
from typing import Any, assert_never

import numpy as np
import pyarrow as pa

from omnigraph.catalog.numbers import as_float, as_integer, at_width
from omnigraph.language.moments import (
    DAYS,
    MILLISECONDS,
    days_of,
    format_date,
    format_datetime,
    milliseconds_of,
    parse_date,
    parse_datetime,
)
from omnigraph.light_dataclass import dataclass
from omnigraph.plan import ir
from omnigraph.storage.lance.columns import BLOB_SIZE, BLOB_URI
from omnigraph.types import INTEGER_BOUNDS, Scalar

BLOB_PREFIX = "base64:"

ReadExternal = Callable[[str], bytes]
"""The bytes at an address outside the graph, or a refusal."""


class Reason(StrEnum):
    """Why a value does not fit its type, by the name of the rule that it breaks."""

    TYPE = "type"
    TEXT = "text"
    RANGE = "out_of_range"
    INEXACT = "inexact"
    DATE = "date"
    BLOB = "blob"


class Misfit(ValueError):
    """A value that a scalar cannot hold. `detail` is a parser's message, if one has it."""

    def __init__(self, reason: Reason, detail: str = "") -> None:
        super().__init__(reason, detail)
        self.reason = reason
        self.detail = detail


class JsonForm(StrEnum):
    """Which JSON a stored value becomes."""

    RESULT = "result"
    """For people: dates and moments as ISO text, NaN and the infinities by name."""

    RECORD = "record"
    """For a load: dates and moments as the numbers that are stored, floats as they are."""

    ISO = "iso"
    """For a load that a person reads: dates and moments as ISO text, floats as they are."""


@dataclass(frozen=True, slots=True)
class ScalarRow:
    """Every conversion of one scalar. A vector's row is that of one of its numbers."""

    expected: str
    """The demand on an input, in the words of a refusal."""

    from_json: Callable[[Any, ReadExternal], Any]
    """The stored value of a JSON or Python value, or `Misfit`."""

    from_constant: Callable[[ir.Constant, ReadExternal], Any]
    """The stored value of a constant of a compatible type, or `Misfit`."""

    built_as: pa.DataType | None
    """The Arrow type that stored values are built as before a cast; None: as the column's own."""

    to_json: Callable[[pa.Array, JsonForm], list[Any]]
    """A column as JSON values, null as None."""

    order: Callable[[pa.Array], np.ndarray] | None
    """A column as 64-bit integers that sort as its values do, null as any; None: no such number."""

    literal: Callable[[ir.Constant], str] | None
    """A constant in a filter of Lance; None: no filter compares such values."""


# ---- text, truth values, bytes


def writable(text: str) -> bool:
    """Whether UTF-8 can write the text: JSON escapes can spell half a surrogate pair."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def quoted(text: str) -> str:
    """A string literal."""
    return "'" + text.replace("'", "''") + "'"


def _string(value: Any, _read: ReadExternal) -> str:
    if not isinstance(value, str):
        raise Misfit(Reason.TYPE)
    if not writable(value):
        raise Misfit(Reason.TEXT)
    return value


def _bool(value: Any, _read: ReadExternal) -> bool:
    if not isinstance(value, bool):
        raise Misfit(Reason.TYPE)
    return value


def _blob(value: Any, read: ReadExternal) -> bytes:
    """Bytes, or the bytes of `base64:…`; every other text is an address."""
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    if not isinstance(value, str):
        raise Misfit(Reason.TYPE)
    if not value.startswith(BLOB_PREFIX):
        return read(value)
    try:
        return base64.b64decode(value[len(BLOB_PREFIX) :], validate=True)
    except (binascii.Error, ValueError) as cause:
        raise Misfit(Reason.BLOB, str(cause)) from None


def blob_text(data: bytes) -> str:
    """Bytes as the text that is read as them."""
    return BLOB_PREFIX + base64.b64encode(data).decode()


def _unchanged(value: ir.Constant, _read: ReadExternal) -> ir.Constant:
    return value


def _plain(values: pa.Array, _form: JsonForm) -> list[Any]:
    return list(values.to_pylist())


def _blob_texts(values: pa.Array, _form: JsonForm) -> list[Any]:
    """Bytes as `base64:…`; a description of bytes that were not read as their size or address."""
    return [_cell_text(cell) for cell in values.to_pylist()]


def _cell_text(cell: bytes | dict[str, Any] | None) -> str | None:
    match cell:
        case None:
            return None
        case bytes():
            return blob_text(cell)
        case _:
            return cell.get(BLOB_URI) or f"blob:{cell.get(BLOB_SIZE) or 0}"


def _bits(values: pa.Array) -> np.ndarray:
    return _numpy(values.fill_null(False)).astype(np.int64)


# ---- numbers


_SIGN = np.int64(-(2**63))
_REST = np.int64(2**63 - 1)
_SMALLEST_I64 = INTEGER_BOUNDS[Scalar.I64][0]


def _numpy(values: pa.Array) -> np.ndarray:
    numbers: np.ndarray = values.to_numpy(zero_copy_only=False)
    return numbers


def _integer_row(scalar: Scalar) -> ScalarRow:
    low, high = INTEGER_BOUNDS[scalar]

    def from_json(value: Any, _read: ReadExternal) -> int:
        if not isinstance(value, int) or isinstance(value, bool):
            raise Misfit(Reason.TYPE)
        if not low <= value <= high:
            raise Misfit(Reason.RANGE)
        return value

    def from_constant(value: ir.Constant, _read: ReadExternal) -> int:
        assert isinstance(value, int | float)
        number = as_integer(value, scalar)
        if number is None:
            raise Misfit(Reason.RANGE)
        return number

    return ScalarRow(
        expected="an integer",
        from_json=from_json,
        from_constant=from_constant,
        built_as=None,
        to_json=_plain,
        order=_ordered_integers,
        literal=_integer_literal,
    )


def _ordered_integers(values: pa.Array) -> np.ndarray:
    numbers = _numpy(values.fill_null(0))
    if numbers.dtype == np.uint64:
        return np.bitwise_xor(numbers.view(np.int64), _SIGN)
    return numbers.astype(np.int64)


def _integer_literal(value: ir.Constant) -> str:
    # The digits alone are one too many for Lance.
    return f"cast('{value}' as bigint)" if value == _SMALLEST_I64 else str(value)


def _float_row(scalar: Scalar) -> ScalarRow:
    def from_json(value: Any, _read: ReadExternal) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
            raise Misfit(Reason.TYPE)
        if isinstance(value, Decimal):
            value = _of_decimal(value)
        number = at_width(value, scalar)
        if not math.isfinite(number):
            raise Misfit(Reason.RANGE)
        if isinstance(value, int) and number != value:
            raise Misfit(Reason.INEXACT)
        return number + 0.0  # one zero

    def from_constant(value: ir.Constant, _read: ReadExternal) -> float:
        assert isinstance(value, int | float)
        number = as_float(value, scalar)
        if number is None:
            raise Misfit(Reason.RANGE)
        return number + 0.0  # one zero

    return ScalarRow(
        expected="a number",
        from_json=from_json,
        from_constant=from_constant,
        built_as=None,
        to_json=_json_floats,
        order=_ordered_floats,
        literal=repr,
    )


def _of_decimal(value: Decimal) -> int | float:
    """A decimal as the integer that it is, or else as the nearest float."""
    if value.is_nan():
        return math.nan
    number = float(value)
    is_whole = math.isfinite(number) and value == value.to_integral_value()
    return int(value) if is_whole else number


def _json_floats(values: pa.Array, form: JsonForm) -> list[Any]:
    numbers: list[Any] = values.to_pylist()
    if form is not JsonForm.RESULT:
        return numbers
    finite = np.isfinite(_numpy(values.fill_null(0)))
    for position in np.flatnonzero(~finite).tolist():
        numbers[position] = number_name(numbers[position])
    return numbers


def number_name(number: float) -> str:
    """The name of NaN or an infinity, which JSON has no number for."""
    if math.isnan(number):
        return "NaN"
    return "Infinity" if number > 0 else "-Infinity"


def _ordered_floats(values: pa.Array) -> np.ndarray:
    clean = _numpy(values.fill_null(0)).astype(np.float64) + 0.0  # -0.0 becomes 0.0
    clean[np.isnan(clean)] = np.nan  # one NaN, its sign clear
    bits = clean.view(np.int64)
    return bits ^ ((bits >> 63) & _REST)


# ---- dates and moments


@dataclass(frozen=True, slots=True)
class Moment:
    """A date or timestamp of an Arrow column that no Python value can hold, and why."""

    text: str
    why: str

    def __str__(self) -> str:
        return self.text


def _date(value: Any, _read: ReadExternal) -> int:
    if isinstance(value, date) and not isinstance(value, datetime):
        return days_of(value)
    return _moment(value, parse_date, DAYS)


def _datetime(value: Any, _read: ReadExternal) -> int:
    if isinstance(value, datetime):
        return _parsed(value, milliseconds_of)
    if isinstance(value, date):
        return milliseconds_of(datetime(value.year, value.month, value.day))
    return _moment(value, parse_datetime, MILLISECONDS)


def _parsed(value: Any, parse: Callable[[Any], int]) -> int:
    try:
        return parse(value)
    except ValueError as cause:
        raise Misfit(Reason.DATE, str(cause)) from None


def _moment(value: Any, parse: Callable[[str], int], bounds: tuple[int, int]) -> int:
    if isinstance(value, str):
        return _parsed(value, parse)
    if isinstance(value, Moment):
        raise Misfit(Reason.DATE, f"{value} {value.why}")
    if isinstance(value, bool) or not isinstance(value, int):
        raise Misfit(Reason.TYPE)
    if not bounds[0] <= value <= bounds[1]:
        raise Misfit(Reason.DATE, f"{value} lies outside the years 1 to 9999")
    return value


def _moment_row(
    expected: str,
    word: str,
    number: pa.DataType,
    from_json: Callable[[Any, ReadExternal], int],
    text: Callable[[int], str],
) -> ScalarRow:
    def to_json(values: pa.Array, form: JsonForm) -> list[Any]:
        numbers: list[Any] = values.view(number).to_pylist()
        if form is JsonForm.RECORD:
            return numbers
        return [None if each is None else text(each) for each in numbers]

    def order(values: pa.Array) -> np.ndarray:
        return _numpy(values.view(number).fill_null(0)).astype(np.int64, copy=False)

    def literal(value: ir.Constant) -> str:
        assert isinstance(value, int)
        return f"{word} '{text(value)}'"

    return ScalarRow(
        expected=expected,
        from_json=from_json,
        from_constant=_unchanged,
        built_as=number,
        to_json=to_json,
        order=order,
        literal=literal,
    )


# ---- the table


def _row(scalar: Scalar) -> ScalarRow:
    match scalar:
        case Scalar.STRING:
            return ScalarRow(
                expected="a string",
                from_json=_string,
                from_constant=_unchanged,
                built_as=None,
                to_json=_plain,
                order=None,
                literal=lambda value: quoted(str(value)),
            )
        case Scalar.BLOB:
            return ScalarRow(
                expected="a string",
                from_json=_blob,
                from_constant=_blob,
                built_as=None,
                to_json=_blob_texts,
                order=None,
                literal=None,
            )
        case Scalar.BOOL:
            return ScalarRow(
                expected="a boolean",
                from_json=_bool,
                from_constant=_unchanged,
                built_as=None,
                to_json=_plain,
                order=_bits,
                literal=lambda value: "true" if value else "false",
            )
        case Scalar.I32 | Scalar.I64 | Scalar.U32 | Scalar.U64:
            return _integer_row(scalar)
        case Scalar.F32 | Scalar.F64:
            return _float_row(scalar)
        case Scalar.VECTOR:
            return _float_row(Scalar.F32)
        case Scalar.DATE:
            expected = "a date like 2024-01-31 or a number of days"
            return _moment_row(expected, "date", pa.int32(), _date, format_date)
        case Scalar.DATETIME:
            expected = "a moment like 2024-01-31T10:00:00Z or a number of milliseconds"
            return _moment_row(expected, "timestamp", pa.int64(), _datetime, format_datetime)
        case _:
            assert_never(scalar)


SCALARS = {scalar: _row(scalar) for scalar in Scalar}
"""The row of every scalar."""
