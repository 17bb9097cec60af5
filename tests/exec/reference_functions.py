"""The functions of the query language, one value at a time in plain Python.

Written from the table of `omnigraph.plan.functions`; it shares no code with
`omnigraph.exec`, but for the terms of a text, which are compared with those of Lance.
"""

import math
import re
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from fractions import Fraction
from itertools import groupby
from typing import Any

import numpy as np

from omnigraph.exec.values.analyse import terms
from omnigraph.plan import ir
from omnigraph.types import INTEGER_BOUNDS, Scalar, ValueType

EPOCH = date(1970, 1, 1)
DAY_MS = 86_400_000


class NoValue(Exception):
    """An expression has no value for a row."""


def called(
    function: str, values: Sequence[Any], arguments: Sequence[ir.Expr], type_: ValueType
) -> Any:
    """The value of a call; null where an argument is, but for `coalesce`."""
    if function == "coalesce":
        return next((v for v in [as_common(v, type_) for v in values] if v is not None), None)
    if any(value is None for value in values):
        return None
    kinds = [_type_of(argument) for argument in arguments]
    if function in _NUMBERS or function in ("negate", "div"):
        return _number(function, values, type_)
    return _OTHERS[function](*values, kinds=kinds, type_=type_)


def _type_of(expr: ir.Expr) -> ValueType:
    return expr.type if isinstance(expr, ir.Operand) else ValueType(Scalar.BOOL)


def as_common(value: Any, type_: ValueType) -> Any:
    """A value as the type that it shares with others."""
    if isinstance(value, bool) or not isinstance(value, int) or type_.is_list:
        return value
    if type_.scalar in (Scalar.F32, Scalar.F64):
        return float(value)
    low, high = INTEGER_BOUNDS.get(type_.scalar, (value, value))
    if not low <= value <= high:
        raise NoValue("overflow")
    return value


# ---- numbers


def _number(function: str, values: Sequence[Any], type_: ValueType) -> Any:
    if type_.scalar in INTEGER_BOUNDS:
        whole = _INTEGERS[function](*values)
        low, high = INTEGER_BOUNDS[type_.scalar]
        if not low <= whole <= high:
            raise NoValue("overflow")
        return whole
    floats = [float(value) for value in values]
    with np.errstate(all="ignore"):
        result = float(_NUMBERS[function](*map(np.float64, floats)))
    if math.isinf(result) and all(map(math.isfinite, floats)):
        raise NoValue("overflow")
    return result


def _cut_divide(x: int, y: int) -> int:
    if y == 0:
        raise NoValue("zero")
    return abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1)


def _cut_remainder(x: int, y: int) -> int:
    return x - y * _cut_divide(x, y)


def _round_integer(x: int, digits: int = 0) -> int:
    if digits >= 0:
        return x
    unit = 10 ** min(-digits, 40)
    whole = (abs(x) * 2 + unit) // (2 * unit) * unit
    return whole if x >= 0 else -whole


_INTEGERS: dict[str, Any] = {
    "add": lambda x, y: x + y,
    "subtract": lambda x, y: x - y,
    "multiply": lambda x, y: x * y,
    "remainder": _cut_remainder,
    "div": _cut_divide,
    "negate": lambda x: -x,
    "abs": abs,
    "floor": lambda x: x,
    "ceil": lambda x: x,
    "round": _round_integer,
    "sign": lambda x: (x > 0) - (x < 0),
}


def _nonzero(y: Any) -> Any:
    if y == 0:
        raise NoValue("zero")
    return y


def _round_float(x: Any, digits: Any = 0.0) -> float:
    if not math.isfinite(x):
        return float(x)
    exact = Fraction(float(x)) * Fraction(10) ** int(digits)
    whole = math.floor(abs(exact) + Fraction(1, 2))
    return math.copysign(float(Fraction(whole) / Fraction(10) ** int(digits)), x)


def _root(x: Any) -> Any:
    if x < 0:
        raise NoValue("root")
    return np.sqrt(x)


_NUMBERS: dict[str, Any] = {
    "add": lambda x, y: x + y,
    "subtract": lambda x, y: x - y,
    "multiply": lambda x, y: x * y,
    "divide": lambda x, y: x / _nonzero(y),
    "remainder": lambda x, y: np.fmod(x, _nonzero(y)),
    "negate": lambda x: -x,
    "abs": abs,
    "floor": np.floor,
    "ceil": np.ceil,
    "round": _round_float,
    "sqrt": _root,
    "sign": np.sign,
}


# ---- text, lists, moments


def _substring(text: str, start: int, count: int | None = None, **_: Any) -> str:
    if count is not None and count < 0:
        raise NoValue("count")
    tail = text[start:] if start >= 0 or -start <= len(text) else text
    return tail if count is None else tail[:count]


def _element(items: Sequence[Any], nth: int, **_: Any) -> Any:
    nth = nth if nth >= 0 else len(items) + nth
    return items[nth] if 0 <= nth < len(items) else None


def _day(value: int, kind: ValueType) -> date:
    return EPOCH + timedelta(days=value if kind.scalar is Scalar.DATE else value // DAY_MS)


def _truncate(value: int, unit: str, *, kinds: Sequence[ValueType], type_: ValueType) -> int:
    day = _day(value, kinds[0])
    match unit:
        case "year":
            day = day.replace(month=1, day=1)
        case "quarter":
            day = day.replace(month=(day.month - 1) // 3 * 3 + 1, day=1)
        case "month":
            day = day.replace(day=1)
        case "week":
            day -= timedelta(days=day.weekday())
        case "hour" | "minute" | "second" if kinds[0].scalar is Scalar.DATETIME:
            step = {"hour": 3_600_000, "minute": 60_000, "second": 1000}[unit]
            return value // step * step
    days = (day - EPOCH).days
    return days if kinds[0].scalar is Scalar.DATE else days * DAY_MS


def _shift(value: int, count: int, step: int, scalar: Scalar) -> int:
    moved = value + count * step
    low, high = (date.min - EPOCH).days, (date.max - EPOCH).days
    if scalar is Scalar.DATETIME:
        low, high = low * DAY_MS, high * DAY_MS + DAY_MS - 1
    if not low <= moved <= high:
        raise NoValue("years")
    return moved


def _add_days(value: int, count: int, *, type_: ValueType, **_: Any) -> int:
    return _shift(value, count, 1 if type_.scalar is Scalar.DATE else DAY_MS, type_.scalar)


def _text(value: Any, *, kinds: Sequence[ValueType], **_: Any) -> str:
    match kinds[0].scalar:
        case Scalar.BOOL:
            return "true" if value else "false"
        case Scalar.DATE:
            return _day(value, kinds[0]).isoformat()
        case Scalar.DATETIME:
            moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=value)
            return moment.strftime("%Y-%m-%dT%H:%M:%S") + f".{value % 1000:03d}Z"
        case _:
            return str(value)


def _to_integer(value: Any, *, type_: ValueType, **_: Any) -> int:
    if isinstance(value, float) and not math.isfinite(value):
        raise NoValue("cast")
    if isinstance(value, str) and not re.fullmatch("[+-]?[0-9]+", value, re.ASCII):
        raise NoValue("cast")
    low, high = INTEGER_BOUNDS[type_.scalar]
    if not low <= int(value) <= high:
        raise NoValue("cast")
    return int(value)


def _highlighted(text: str, query: str, before: str = "**", after: str = "**", **_: Any) -> str:
    pieces = ["".join(letters) for _, letters in groupby(text, str.isalnum)]
    wanted = terms(query)
    return "".join(before + p + after if set(terms(p)) & set(wanted) else p for p in pieces)


def _extreme(sign: int) -> Any:
    def extreme(*values: Any, type_: ValueType, **_: Any) -> Any:
        from tests.exec.reference import order_of  # noqa: PLC0415  it imports this module

        best, *others = [as_common(value, type_) for value in values]
        for value in others:
            best = value if order_of(value, best) == sign else best
        return best

    return extreme


def _clock(step: int, count: int) -> Any:
    return lambda value, **_: value // step % count


_OTHERS: dict[str, Any] = {
    "concat": lambda a, b, **_: a + b,
    "lower": lambda text, **_: text.lower(),
    "upper": lambda text, **_: text.upper(),
    "trim": lambda text, **_: text.strip(),
    "length": lambda text, **_: len(text),
    "substring": _substring,
    "highlight": _highlighted,
    "replace": lambda text, part, other, **_: text.replace(part, other) if part else text,
    "split": lambda text, part, **_: text.split(part) if part else [text],
    "ends_with": lambda text, part, **_: text.endswith(part),
    "matches": lambda text, pattern, **_: re.search(pattern, text) is not None,
    "size": lambda items, **_: len(items),
    "element": _element,
    "overlaps": lambda a, b, **_: any(x == y for x in a for y in b),
    "join": lambda items, part, **_: part.join(items),
    "year": lambda v, kinds, **_: _day(v, kinds[0]).year,
    "month": lambda v, kinds, **_: _day(v, kinds[0]).month,
    "day": lambda v, kinds, **_: _day(v, kinds[0]).day,
    "weekday": lambda v, kinds, **_: _day(v, kinds[0]).isoweekday(),
    "hour": _clock(3_600_000, 24),
    "minute": _clock(60_000, 60),
    "second": _clock(1000, 60),
    "truncate": _truncate,
    "add_days": _add_days,
    "add_seconds": lambda v, n, **_: _shift(v, n, 1000, Scalar.DATETIME),
    "add_ms": lambda v, n, **_: _shift(v, n, 1, Scalar.DATETIME),
    "date_add": lambda v, n, **_: _shift(v, n, 1, Scalar.DATE),
    "days_between": lambda a, b, **_: a - b,
    "ms_between": lambda a, b, **_: a - b,
    "date": lambda v, kinds, **_: v if kinds[0].scalar is Scalar.DATE else v // DAY_MS,
    "datetime": lambda v, kinds, **_: v * DAY_MS if kinds[0].scalar is Scalar.DATE else v,
    "least": _extreme(-1),
    "greatest": _extreme(1),
    "String": _text,
    "I64": _to_integer,
    "I32": _to_integer,
    "U64": _to_integer,
    "F64": lambda v, **_: float(v),
}
