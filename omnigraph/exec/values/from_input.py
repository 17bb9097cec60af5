"""Values as a file or a caller writes them, turned into what a table stores.

Invariant: `stored` gives a value that the column takes as it is, or raises `Unfit`. It is the
meaning of every input format: a faster way to read one may only be used where it agrees.
"""

import base64
import binascii
import math
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa

from omnigraph.catalog.arrow import arrow_type
from omnigraph.errors import ExternalBlobDenied, ExternalBlobUnreadable
from omnigraph.language.moments import days_of, milliseconds_of, parse_date, parse_datetime
from omnigraph.types import FLOATS, INTEGER_BOUNDS, Scalar, ValueType

BLOB_PREFIX = "base64:"
DAYS = (parse_date("0001-01-01"), parse_date("9999-12-31"))
MILLISECONDS = (parse_datetime("0001-01-01"), parse_datetime("9999-12-31T23:59:59.999Z"))


ReadExternal = Callable[[str], bytes]
"""The bytes at an address outside the graph, or a refusal."""

_COPY: ContextVar[ReadExternal | None] = ContextVar("copy", default=None)


@contextmanager
def copying(read: ReadExternal) -> Iterator[None]:
    """Blobs that are given by their addresses are copied in with `read`, in this thread."""
    before = _COPY.set(read)
    try:
        yield
    finally:
        _COPY.reset(before)


class Unfit(ValueError):
    """A value that its property cannot hold. `rule` names the kind of fault."""

    def __init__(self, rule: str, text: str) -> None:
        super().__init__(text)
        self.rule = rule
        self.text = text


def stored(value: Any, value_type: ValueType) -> Any:
    """What the column keeps of a value; None stays None."""
    if value is None:
        return None
    if value_type.is_vector:
        return _vector(value, value_type.dimension or 0)
    if value_type.is_list:
        return _list(value, _READERS[value_type.scalar])
    return _READERS[value_type.scalar](value)


def column(values: Sequence[Any], value_type: ValueType) -> pa.Array:
    """Stored values as a column of the type's own Arrow type."""
    target = arrow_type(value_type)
    if value_type.is_blob:
        return pa.array([None if v is None else {"data": v} for v in values], target)
    if value_type.scalar is Scalar.DATE:
        return _through(values, pa.int32(), value_type.is_list, target)
    if value_type.scalar is Scalar.DATETIME:
        return _through(values, pa.int64(), value_type.is_list, target)
    return pa.array(values, target)


def _through(values: Sequence[Any], number: pa.DataType, is_list: bool, to: pa.DataType) -> Any:
    source = pa.list_(pa.field("item", number, nullable=False)) if is_list else number
    return pa.array(values, source).cast(to)


def kind_of(value: Any) -> str:
    """A value's type in JSON's words."""
    match value:
        case None:
            return "null"
        case bool():
            return "a boolean"
        case int():
            return "an integer"
        case float():
            return "a number"
        case str():
            return "a string"
        case dict():
            return "an object"
        case list() | tuple():
            return "an array"
        case _:
            return f"a {type(value).__name__}"


def _wrong(expected: str, value: Any) -> Unfit:
    return Unfit("type", f"must be {expected}, not {kind_of(value)}")


def _string(value: Any) -> str:
    if not isinstance(value, str):
        raise _wrong("a string", value)
    if not writable(value):
        raise Unfit("text", "holds half of a surrogate pair, which is no character")
    return value


def writable(text: str) -> bool:
    """Whether UTF-8 can write the text: JSON escapes can spell half a surrogate pair."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _bool(value: Any) -> bool:
    if not isinstance(value, bool):
        raise _wrong("a boolean", value)
    return value


def _integer(scalar: Scalar) -> Callable[[Any], int]:
    low, high = INTEGER_BOUNDS[scalar]

    def read(value: Any) -> int:
        if not isinstance(value, int) or isinstance(value, bool):
            raise _wrong("an integer", value)
        if not low <= value <= high:
            raise Unfit("out_of_range", f"must lie between {low} and {high} ({scalar})")
        return value

    return read


def _float(scalar: Scalar) -> Callable[[Any], float]:
    def read(value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
            raise _wrong("a number", value)
        try:
            number = float(value)
            if scalar is Scalar.F32:
                number = struct.unpack("<f", struct.pack("<f", number))[0]
        except OverflowError:
            number = math.inf
        if not math.isfinite(number):
            raise Unfit("out_of_range", f"must be a finite number that fits {scalar}")
        return number + 0.0  # one zero

    return read


def _date(value: Any) -> int:
    if isinstance(value, datetime):
        raise _wrong("a date like 2024-01-31 or a number of days", value)
    if isinstance(value, date):
        return days_of(value)
    return _moment(value, parse_date, DAYS, "a date like 2024-01-31 or a number of days")


def _datetime(value: Any) -> int:
    if isinstance(value, datetime):
        return milliseconds_of(value)
    if isinstance(value, date):
        return milliseconds_of(datetime(value.year, value.month, value.day))
    expected = "a moment like 2024-01-31T10:00:00Z or a number of milliseconds"
    return _moment(value, parse_datetime, MILLISECONDS, expected)


def _moment(value: Any, parse: Callable[[str], int], bounds: tuple[int, int], expected: str) -> int:
    if isinstance(value, str):
        try:
            return parse(value)
        except ValueError as cause:
            raise Unfit("date", str(cause)) from None
    if isinstance(value, bool) or not isinstance(value, int):
        raise _wrong(expected, value)
    if not bounds[0] <= value <= bounds[1]:
        raise Unfit("date", f"{value} lies outside the years 1 to 9999")
    return value


def _blob(value: Any) -> bytes:
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    if not isinstance(value, str):
        raise _wrong("a string", value)
    if not value.startswith(BLOB_PREFIX):
        return _copied(value)
    try:
        return base64.b64decode(value[len(BLOB_PREFIX) :], validate=True)
    except (binascii.Error, ValueError) as cause:
        raise Unfit("blob", f"is not base64 ({cause})") from None


def _copied(uri: str) -> bytes:
    read = _COPY.get()
    try:
        if read is None:
            raise ExternalBlobDenied(uri)
        return read(uri)
    except ExternalBlobDenied:
        text = "names an external URI, which no configured base allows; send base64:<data>"
        raise Unfit("blob", text) from None
    except ExternalBlobUnreadable as cause:
        raise Unfit("blob", f"names an external URI that cannot be read: {cause.reason}") from None


def _list(value: Any, read: Callable[[Any], Any]) -> list[Any]:
    if not isinstance(value, list | tuple):
        raise _wrong("an array", value)
    if any(item is None for item in value):
        raise Unfit("list", "holds a null: the items of a list cannot be null")
    return [read(item) for item in value]


def _vector(value: Any, numbers: int) -> list[float]:
    items = _list(value, _READERS[Scalar.F32])
    if len(items) != numbers:
        raise Unfit("vector", f"needs {numbers} numbers, not {len(items)}")
    return items


_READERS: dict[Scalar, Callable[[Any], Any]] = {
    Scalar.STRING: _string,
    Scalar.BOOL: _bool,
    **{scalar: _integer(scalar) for scalar in INTEGER_BOUNDS},
    **{scalar: _float(scalar) for scalar in FLOATS},
    Scalar.DATE: _date,
    Scalar.DATETIME: _datetime,
    Scalar.BLOB: _blob,
}
