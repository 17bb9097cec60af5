"""JSON serialization of Python values: which go as they are, and the text of dates, moments, bytes.

Invariant: what `is_json` passes, a reader of JSON gets back as the same value. NaN, the infinities
and integers beyond 64 bits are not passed: an encoder writes null for them, or refuses them.
"""

import math
from datetime import UTC, date, datetime
from typing import Any

from omnigraph.catalog.plain_values import plain_item
from omnigraph.exec.values.scalars import blob_text, writable
from omnigraph.types import INTEGER_BOUNDS, Scalar

_INTEGER_MIN, _INTEGER_MAX = INTEGER_BOUNDS[Scalar.I64][0], INTEGER_BOUNDS[Scalar.U64][1]


def plain_items(value: Any) -> Any:
    """A value without numpy and pandas, and so the items of a list; NaN stays a number."""
    value = plain_item(value)
    return list(map(plain_item, value)) if isinstance(value, list | tuple) else value


def is_json(value: Any) -> bool:
    """Whether JSON says a value as it is: null, truths, texts, finite numbers and lists of them."""
    match value:
        case None | bool():
            return True
        case str():
            return writable(value)
        case int():
            return _INTEGER_MIN <= value <= _INTEGER_MAX
        case float():
            return math.isfinite(value)
        case list() | tuple():
            return all(map(is_json, value))
        case _:
            return False


def json_text(value: Any) -> str | None:
    """The text that a load and a parameter read as this date, moment or bytes; None for others."""
    match value:
        case datetime():
            return _moment_text(value)
        case date():
            return value.isoformat()
        case bytes() | bytearray() | memoryview():
            return blob_text(bytes(value))
        case _:
            return None


def _moment_text(moment: datetime) -> str:
    try:
        # In UTC: readers take offsets of whole minutes, and zones of old had others.
        return (moment if moment.tzinfo is None else moment.astimezone(UTC)).isoformat()
    except (OverflowError, ValueError):
        return moment.isoformat()  # before the year 1, which the reader says
