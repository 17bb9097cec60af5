"""Scalars of numpy and missing values of pandas as plain Python values.

Invariant: a value means what it means in a column of a pandas table, and a plain value is returned
as it is. Neither library is imported: a type is known by its name.
"""

from collections.abc import Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Any

from omnigraph.types import Scalar

_PLAIN = frozenset({str, int, bool, bytes, date, datetime, type(None), dict})
_PLAIN_ITEMS = _PLAIN | {float, list, tuple, Decimal}
"""Types of the items of a list that stay as they are, NaN among them."""

_MISSING = frozenset({"NAType", "NaTType"})


def plain(value: Any) -> Any:
    """A value without numpy and pandas; None for NaN, NA and NaT."""
    kind = type(value)
    if kind in _PLAIN:
        return value
    if kind is list or kind is tuple:
        return _plain_items(value)
    value = plain_item(value)
    return None if _is_nan(value) else value


def _plain_items(values: Sequence[Any]) -> list[Any]:
    if _PLAIN_ITEMS.issuperset(map(type, values)):
        return list(values)  # vectors have thousands of items
    return [plain_item(item) for item in values]


def plain_item(value: Any) -> Any:
    """An item of a list without numpy and pandas; NaN stays the number that it is."""
    kind = type(value)
    library = kind.__module__.partition(".")[0]
    if library == "numpy":
        return _of_numpy(value)
    return None if library == "pandas" and kind.__name__ in _MISSING else value


def date_hint(value: Any, scalar: Scalar) -> str:
    """What to do with a moment where a date is asked for; empty for every other value."""
    is_moment = isinstance(value, datetime) and scalar is Scalar.DATE
    return "give its date: value.date()" if is_moment else ""


def _is_nan(value: Any) -> bool:
    if isinstance(value, Decimal):
        return value.is_nan()
    return isinstance(value, float) and value != value


def _of_numpy(value: Any) -> Any:
    if not (hasattr(value, "dtype") and hasattr(value, "item")):
        return value  # no value, but a type or a generator of numbers
    kind = value.dtype.kind
    if getattr(value, "ndim", 0):
        return _plain_items(list(value) if kind == "M" else value.tolist())
    if kind == "M":
        return _moment(value)
    return float(value) if kind == "f" else value.item()


def _moment(value: Any) -> date | datetime | str | None:
    """A date, a moment, or its text where Python has no such moment: nanoseconds, other years."""
    if value != value:  # NaT
        return None
    cut = value.astype("datetime64[us]") if value.dtype.name == "datetime64[ns]" else value
    moment = cut.item() if cut == value else None
    return moment if isinstance(moment, date) else str(value)
