"""Default values of properties: the literal after `=`, checked against its property's type.

Invariant: a default that is accepted is one that a load would accept for the property, written as
JSON writes it: a moment as its text, a list as a tuple. Equal defaults are equal values: a float
property's is a float.
"""

from typing import TypeVar, assert_never

from omnigraph.catalog.model import Check, Default, Literal, NodeType, Property, Range
from omnigraph.language.moments import parse_date, parse_datetime
from omnigraph.language.reader import Fault
from omnigraph.language.schema import ast
from omnigraph.language.schema.literals import format_default
from omnigraph.types import INTEGER_BOUNDS, Scalar, Span, ValueType

T = TypeVar("T", str, int, bool)

_F32_MAX = 3.4028234663852886e38


def read_default(owner: str, declared: ast.Property) -> Default | None:
    """The default of a declared property, or `Fault` where it does not fit the type."""
    given, value_type = declared.default, declared.type.value
    if given is None:
        return None
    what = f"{owner}.{declared.name}"
    if value_type.is_blob or value_type.is_vector:
        raise _wrong(given.span, f"{what} is {value_type}, which takes no default", "leave it out")
    if given.is_word and value_type.enum_values is None:
        text = f"the default {given.value} of {what} is a bare word"
        raise _wrong(given.span, text, f'write it as a string: "{given.value}"')
    if value_type.is_list != isinstance(given.value, tuple):
        raise _unfit(what, given, value_type)
    try:
        if isinstance(given.value, tuple):
            return tuple(_single(item, value_type) for item in given.value)
        return _single(given.value, value_type)
    except ValueError as cause:
        raise _unfit(what, given, value_type, str(cause)) from None


def _single(value: Literal, value_type: ValueType) -> Literal:
    """One value in its canonical form; ValueError where the type cannot hold it."""
    scalar = value_type.scalar
    match scalar:
        case Scalar.STRING:
            return _text(value, value_type)
        case Scalar.BOOL:
            return _of(value, bool)
        case Scalar.I32 | Scalar.I64 | Scalar.U32 | Scalar.U64:
            low, high = INTEGER_BOUNDS[scalar]
            number = _of(value, int)
            if not low <= number <= high:
                raise ValueError(f"it must lie between {low} and {high}")
            return number
        case Scalar.F32 | Scalar.F64:
            return _float(value, scalar)
        case Scalar.DATE:
            parse_date(_of(value, str))
            return value
        case Scalar.DATETIME:
            parse_datetime(_of(value, str))
            return value
        case Scalar.BLOB | Scalar.VECTOR:
            raise ValueError("it takes no default")
        case _:
            assert_never(scalar)


def _of(value: Literal, kind: type[T]) -> T:
    if type(value) is not kind or not isinstance(value, kind):
        raise ValueError("")
    return value


def _text(value: Literal, value_type: ValueType) -> str:
    text = _of(value, str)
    values = value_type.enum_values
    if values is not None and text not in values:
        raise ValueError(f"it is one of {', '.join(values)}")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError("it cannot be written as UTF-8") from None
    return text


def _float(value: Literal, scalar: Scalar) -> float:
    if isinstance(value, bool | str):
        raise ValueError("")
    number = float(value) + 0.0  # zero has one sign
    if isinstance(value, int) and int(number) != value:
        raise ValueError(f"{scalar} rounds that integer")
    if scalar is Scalar.F32 and abs(number) > _F32_MAX:
        raise ValueError(f"it does not fit {scalar}")
    return number


def require_allowed_defaults(node: NodeType, spans: dict[str, Span]) -> None:
    """`Fault` for a default of a key, or one that the property's own `@range` or `@check`
    refuses."""
    for prop in node.properties:
        if prop.default is None:
            continue
        what = f"{node.name}.{prop.name}"
        if prop.name in node.key:
            text = f"{what} is part of the @key and takes no default"
            raise _wrong(spans[prop.name], text, "leave the default out: ids follow from the key")
        for bounds in node.ranges:
            if bounds.property == prop.name and not _inside(prop, bounds):
                text = f"the default of {what} lies outside its @range"
                raise _wrong(spans[prop.name], text, "change the default or the range")
        for check in node.checks:
            if check.property == prop.name and not _matches(prop, check):
                text = f"the default of {what} does not match its @check"
                raise _wrong(spans[prop.name], text, "change the default or the pattern")


def _inside(prop: Property, bounds: Range) -> bool:
    value = prop.default
    if isinstance(value, bool) or not isinstance(value, int | float):
        return True
    return (bounds.low is None or bounds.low <= value) and (
        bounds.high is None or value <= bounds.high
    )


def _matches(prop: Property, check: Check) -> bool:
    # Loading Arrow takes longer than reading most schemas, and most have no @check.
    import pyarrow as pa  # noqa: PLC0415
    import pyarrow.compute as pc  # noqa: PLC0415

    if not isinstance(prop.default, str):
        return True
    matched = pc.match_substring_regex(pa.array([prop.default]), pattern=check.pattern)
    return bool(matched[0].as_py())


def _unfit(what: str, given: ast.DefaultExpr, value_type: ValueType, why: str = "") -> Fault:
    reason = f": {why}" if why else ""
    text = f"the default {format_default(given.value)} of {what} is no {value_type}{reason}"
    return _wrong(given.span, text, f"write a value of type {value_type}")


def _wrong(span: Span, text: str, hint: str) -> Fault:
    return Fault(span, text, code="bad-default", hint=hint)
