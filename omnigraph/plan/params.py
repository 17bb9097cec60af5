"""Parameter binding: JSON values of a request to the typed constants of a plan.

Invariant: after `bind_parameters` every declared parameter has a value of its type, or null where
its type allows that, or is left to its default. Dates are epoch days, DateTimes epoch milliseconds,
lists and vectors tuples.
"""

import base64
import datetime
import math
import re
from collections.abc import Mapping
from typing import Any, assert_never

from omnigraph.catalog.near_names import did_you_mean, nearest
from omnigraph.catalog.numbers import as_float
from omnigraph.catalog.plain_values import date_hint, plain_item
from omnigraph.errors import BadRequest
from omnigraph.language.moments import days_of, milliseconds_of, parse_date, parse_datetime
from omnigraph.plan.ir import Constant, Parameter
from omnigraph.types import INTEGER_BOUNDS, Scalar, ValueType

_NAMES_SHOWN, _NAME_CHARS = 8, 80
_DECIMAL = re.compile(r"[+-]?[0-9]{1,40}", re.ASCII)


def bind_parameters(declared: tuple[Parameter, ...], given: object) -> dict[str, Constant]:
    """The value of each declared parameter, but for those that are left out and have a default.
    Raises `BadRequest` if a given parameter is not declared."""
    if given is None:
        given = {}
    if not isinstance(given, Mapping):
        raise BadRequest("params must be a JSON object")
    _require_declared(declared, given)
    return {
        parameter.name: _bound(parameter, given)
        for parameter in declared
        if parameter.name in given or parameter.default is None
    }


def _require_declared(declared: tuple[Parameter, ...], given: Mapping[Any, Any]) -> None:
    known = [parameter.name for parameter in declared]
    unknown = tuple(str(name) for name in given if name not in known)
    if not unknown:
        return
    word = "parameter" if len(unknown) == 1 else "parameters"
    names = ", ".join(f"'{name[:_NAME_CHARS]}'" for name in unknown[:_NAMES_SHOWN])
    hint = "the query declares none"
    if known:
        near = sorted({near for name in unknown if (near := nearest(name, known)) is not None})
        listed = ", ".join(f"'{name}'" for name in near)
        hint = f"did you mean {listed}?" if near else did_you_mean(unknown[0], known)
    raise BadRequest(f"unknown {word} {names}", hint, unknown)


def _bound(parameter: Parameter, given: Mapping[Any, Any]) -> Constant:
    name, value_type = parameter.name, parameter.type
    if name not in given and not value_type.nullable:
        raise BadRequest(f"parameter '{name}' not provided", _missing(value_type, given))
    value = plain_item(given.get(name))
    if value is None:
        if value_type.nullable:
            return None
        raise BadRequest(f"param '{name}': null is not accepted for non-nullable parameter")
    try:
        return _convert(value, value_type)
    except _Wrong as cause:
        raise BadRequest(f"param '{name}': {cause}") from None


def _missing(value_type: ValueType, given: Mapping[Any, Any]) -> str:
    """What to give; and what was given, which may have another name."""
    names = ", ".join(f"'{name}'" for name in list(given)[:_NAMES_SHOWN])
    others = f"; given are {names}" if names else ""
    return f"give a value of type {value_type}{others}"


class _Wrong(Exception):
    pass


def _convert(value: object, value_type: ValueType) -> Constant:
    if value_type.is_vector:
        return _vector(value, value_type.dimension or 0)
    if value_type.is_list:
        return tuple(_scalar(plain_item(item), value_type.scalar) for item in _items(value))
    return _scalar(value, value_type.scalar)


def _items(value: object) -> list[object]:
    if hasattr(value, "tolist"):  # a Series of pandas
        value = value.tolist()
    if not isinstance(value, list | tuple):
        raise _Wrong(f"expected array, got {_json_type(value)}")
    return list(value)


def _vector(value: object, dimension: int) -> tuple[Constant, ...]:
    items = _items(value)
    if len(items) != dimension:
        raise _Wrong(f"expected {dimension} numbers, got {len(items)}")
    if set(map(type, items)) == {float} and math.isfinite(sum(items)):  # type: ignore[arg-type]
        return tuple(items)  # type: ignore[arg-type]
    return tuple(_float(item, Scalar.VECTOR) for item in items)


def _scalar(value: object, scalar: Scalar) -> Constant:
    match scalar:
        case Scalar.I32 | Scalar.I64 | Scalar.U32 | Scalar.U64:
            return _integer(value, scalar)
        case Scalar.F32 | Scalar.F64 | Scalar.VECTOR:
            return _float(value, scalar)
        case Scalar.STRING | Scalar.BLOB:
            if scalar is Scalar.BLOB and isinstance(value, bytes | bytearray | memoryview):
                return f"base64:{base64.b64encode(value).decode()}"
            return _text(value)
        case Scalar.BOOL:
            if not isinstance(value, bool):
                raise _Wrong(f"expected boolean, got {_json_type(value)}")
            return value
        case Scalar.DATE:
            return _date(value)
        case Scalar.DATETIME:
            return _datetime(value)
        case _:
            assert_never(scalar)


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise _Wrong(f"expected string, got {_json_type(value)}")
    try:
        value.encode()
    except UnicodeEncodeError:
        why = "it holds half of a surrogate pair, which is no character"
        raise _Wrong(f"the text cannot be written as UTF-8: {why}") from None
    return value


def _integer(value: object, scalar: Scalar) -> int:
    if isinstance(value, float) and value.is_integer():
        return _integer(int(value), scalar)
    if isinstance(value, str) and _DECIMAL.fullmatch(value):
        value = int(value)
    elif hasattr(value, "__index__") and not isinstance(value, bool):  # numpy integers
        value = value.__index__()
    if not isinstance(value, int) or isinstance(value, bool):
        raise _Wrong(f"expected integer, got {_json_type(value)}")
    low, high = INTEGER_BOUNDS[scalar]
    if not low <= value <= high:
        raise _Wrong(f"value {_shown(value)} exceeds {scalar}")
    return value


def _float(value: object, scalar: Scalar) -> float:
    """The double of a number; an integer that the type would round is refused."""
    if isinstance(value, bool) or not (isinstance(value, int) or hasattr(value, "__float__")):
        raise _Wrong("expected float")
    try:
        number = float(value)
    except OverflowError:
        raise _Wrong(f"value {_shown(value)} exceeds F64") from None
    if not math.isfinite(number):
        raise _Wrong("expected a finite float")
    if hasattr(value, "__index__"):  # integers, those of numpy too
        width = Scalar.F64 if scalar is Scalar.F64 else Scalar.F32
        if as_float(value.__index__(), width) is None:
            raise _Wrong(f"{width} cannot hold {_shown(value)} exactly")
    return number


def _shown(number: object) -> str:
    try:
        return str(number)
    except ValueError:  # Python refuses to write thousands of digits
        return "of thousands of digits"


def _date(value: object) -> int:
    if isinstance(value, datetime.date) and not isinstance(value, datetime.datetime):
        return days_of(value)
    if not isinstance(value, str):
        hint = date_hint(value, Scalar.DATE)
        raise _Wrong("expected date string" + (f", not the moment {value}; {hint}" if hint else ""))
    try:
        return parse_date(value)
    except ValueError as cause:
        raise _Wrong(f"expected date string: {cause}") from None


def _datetime(value: object) -> int:
    if isinstance(value, datetime.date) and not isinstance(value, datetime.datetime):
        value = datetime.datetime(value.year, value.month, value.day)
    if not isinstance(value, str | datetime.datetime):
        raise _Wrong("expected datetime string")
    try:
        return parse_datetime(value) if isinstance(value, str) else milliseconds_of(value)
    except ValueError as cause:
        raise _Wrong(f"expected datetime string: {cause}") from None


def _json_type(value: object) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int() | float():
            return "number"
        case str():
            return "string"
        case list() | tuple():
            return "array"
        case _:
            return "object" if isinstance(value, Mapping) else type(value).__name__
