"""Entity ids derived from key values: canonical text of one key, JSON array of several.

Invariant: equal keys have equal ids and different keys different ones, whichever way a value came
in, and an id never changes while its key does not.
"""

import json
import math
import struct
from collections.abc import Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from fractions import Fraction
from typing import Any, assert_never

from omnigraph.catalog.model import Type
from omnigraph.catalog.numbers import at_width
from omnigraph.catalog.plain_values import plain_item
from omnigraph.errors import BadRequest
from omnigraph.language.moments import DAYS, MILLISECONDS, days_of, milliseconds_of
from omnigraph.types import ID_TYPE, INTEGER_BOUNDS, Scalar, ValueType

KeyValue = str | bool | int | float | date | datetime


NamedKey = str | bool | int | float | date | list[Any] | tuple[Any, ...]
"""An id, the value of a key, or an array of its several values."""


def key_text(key: NamedKey) -> str:
    """An id, or a key, as a text that names its node; `BadRequest` for what is neither."""
    text = _part_text(key)
    try:
        text.encode()
    except UnicodeEncodeError:
        raise BadRequest("an id cannot be written as UTF-8") from None
    return text


def _part_text(key: Any) -> str:
    """The text of one value of a key, or of an array of them."""
    match plain_item(key):
        case str(text):
            return str(text)
        case list() | tuple() as parts:
            return json.dumps(
                list(map(_part_text, parts)), ensure_ascii=False, separators=(",", ":")
            )
        case bool(truth):
            return "true" if truth else "false"
        case date() as moment:
            return moment.isoformat()
        case int() | float() as number:
            return _number_text(number)
        case other if hasattr(other, "__index__"):
            return _number_text(other.__index__())
        case other:
            kind = "null" if other is None else f"a {type(other).__name__}"
            hint = "give texts, numbers, true or false, dates, or a list of them"
            raise BadRequest(f"{kind} is no id and no value of a key", hint)


def _number_text(number: float) -> str:
    try:
        return str(number)
    except ValueError:  # Python refuses to write thousands of digits
        raise BadRequest("a number of thousands of digits is no id", "give the id itself") from None


def entity_id(owner: Type, values: Mapping[str, KeyValue | None]) -> str | None:
    """The id of a node or an edge with these values, or None for a type without key. The ends of an
    edge are `src` and `dst`."""
    texts = []
    for name in owner.key:
        prop = owner.property(name)
        value = values.get(name)
        if value is None:
            raise BadRequest(
                f"{owner.name}.{name} is part of the key and has no value", "give it a value"
            )
        value_type = ID_TYPE if prop is None else prop.type
        texts.append(canonical_text(value_type, value, what=f"{owner.name}.{name}"))
    if not texts:
        return None
    if len(texts) == 1:
        return texts[0]
    return json.dumps(texts, ensure_ascii=False, separators=(",", ":"))


def id_form(type_name: str, key: Sequence[str]) -> str:
    """What an id looks like that several properties make, as the end of a sentence about another
    id; nothing where one property is the key."""
    if len(key) < 2:
        return ""
    form = json.dumps([f"<{name}>" for name in key], separators=(",", ":"))
    return f": an id of {type_name} is the array of its key's values, like {form}"


def other_order(given: str, derived: str) -> str:
    """What to do about an id that has a key's values in another order, as the end of a sentence
    about the two; nothing where it has others."""
    try:
        values = json.loads(given)
        is_same = isinstance(values, list) and sorted(values) == sorted(json.loads(derived))
    except (ValueError, TypeError, RecursionError):
        is_same = False
    if not is_same:
        return ""
    return (
        ": a property of the key was renamed in the graph that it comes from, and a new graph "
        "orders the key by today's names; make the new graph with the schema from before and "
        "apply the rename, or copy the graph with `omnigraph backup`"
    )


def canonical_text(value_type: ValueType, value: KeyValue, *, what: str = "the key") -> str:
    """The one text of a key value. `what` names the property in errors."""
    text = _text_of(value_type.scalar, value, what)
    if text is None:
        raise BadRequest(f"{what} is {value_type} and cannot be {value!r}")
    return text


def _text_of(scalar: Scalar, value: KeyValue, what: str) -> str | None:
    """The text of a value of the type; None for a value of another type."""
    number = value if isinstance(value, int | float) and not isinstance(value, bool) else None
    match scalar:
        case Scalar.STRING:
            return value if isinstance(value, str) else None
        case Scalar.BOOL:
            return ("true" if value else "false") if isinstance(value, bool) else None
        case Scalar.I32 | Scalar.I64 | Scalar.U32 | Scalar.U64:
            return _integer_text(number, INTEGER_BOUNDS[scalar])
        case Scalar.F32 | Scalar.F64:
            return None if number is None else _float_text(scalar, number, what)
        case Scalar.DATE:
            if isinstance(value, date) and not isinstance(value, datetime):
                return str(days_of(value))
            return _integer_text(number, DAYS)
        case Scalar.DATETIME:
            if isinstance(value, datetime):
                return _moment_text(value)
            return _integer_text(number, MILLISECONDS)
        case Scalar.BLOB | Scalar.VECTOR:
            return None
        case _:
            assert_never(scalar)


def _integer_text(number: float | None, bounds: tuple[int, int]) -> str | None:
    is_inside = isinstance(number, int) and bounds[0] <= number <= bounds[1]
    return str(number) if is_inside else None


def _moment_text(moment: datetime) -> str | None:
    try:
        return str(milliseconds_of(moment))
    except ValueError:
        return None


def _float_text(scalar: Scalar, value: float, what: str) -> str:
    stored = at_width(value, scalar)
    if not math.isfinite(stored):
        raise BadRequest(f"{what} is part of a key and cannot be {value}", "use a finite number")
    if stored == 0:
        return "0"
    digits = _shortest_f32(stored) if scalar is Scalar.F32 else Decimal(repr(stored))
    text = format(digits, "f")
    return text.rstrip("0").rstrip(".") if "." in text else text


_F32_DIGITS_MAX = 9


def _shortest_f32(value: float) -> Decimal:
    """The decimal with the fewest digits that no other float32 is nearer to."""
    exact = Decimal(value)
    for digits in range(1, _F32_DIGITS_MAX + 1):
        unit = Decimal(1).scaleb(exact.adjusted() - digits + 1)
        exact_units = Fraction(exact) / Fraction(unit)
        towards_zero = int(exact_units)
        away = towards_zero + (1 if value > 0 else -1)
        # The nearer one first, the even one of two that are equally near.
        nearest = sorted(
            (towards_zero, away),
            key=lambda count: (abs(count - exact_units), count % 2),
        )
        for count in nearest:
            if _rounds_to(count * unit, value):
                return count * unit
    return exact


def _rounds_to(candidate: Decimal, value: float) -> bool:
    """Whether a decimal read as float32 is `value`, decided without rounding twice."""
    bits: int = struct.unpack("<I", struct.pack("<f", abs(value)))[0]
    below = _from_bits(bits - 1)
    # The neighbour above the greatest float32 would be 2**128.
    above = Fraction(2) ** 128 if bits == 0x7F7FFFFF else Fraction(_from_bits(bits + 1))
    middle = Fraction(abs(value))
    low, high = (Fraction(below) + middle) / 2, (middle + above) / 2
    size = abs(Fraction(candidate))
    ties_to_even = bits % 2 == 0
    return low <= size <= high if ties_to_even else low < size < high


def _from_bits(bits: int) -> float:
    return float(struct.unpack("<f", struct.pack("<I", bits))[0])
