"""Literals and scalar types of the query language, from tokens to checked values.

Invariant: a value built here fits its type: integers 64 bits, vectors a dimension, dates a day that
exists, lists one type.
"""

from omnigraph.language.moments import parse_date, parse_datetime
from omnigraph.language.query import ast
from omnigraph.language.reader import Fault, token_span
from omnigraph.language.token import Token
from omnigraph.types import VECTOR_DIMENSION_MAX, Scalar, Span

_BASE_TYPES = {str(scalar): scalar for scalar in Scalar if scalar is not Scalar.VECTOR}
_INTEGER_MAX = 2**63 - 1
_INTEGER_DIGITS_MAX = 19


def integer(token: Token, sign: Token | None = None) -> int:
    """A signed 64-bit integer."""
    digits = str(token).lstrip("0") or "0"
    limit = _INTEGER_MAX + (1 if sign is not None else 0)
    if len(digits) > _INTEGER_DIGITS_MAX or int(digits) > limit:
        raise Fault(token_span(token), "the integer does not fit 64 bits", code="integer-too-large")
    return -int(digits) if sign is not None else int(digits)


def base_type(name: Token) -> Scalar:
    """The scalar that a type name stands for."""
    scalar = _BASE_TYPES.get(str(name))
    if scalar is None:
        hint = "write Vector(n)" if str(name) == Scalar.VECTOR else f"use {', '.join(_BASE_TYPES)}"
        raise Fault(
            token_span(name), f"unknown parameter type '{name}'", code="bad-type", hint=hint
        )
    return scalar


def vector_dimension(token: Token) -> int:
    """The size of a vector."""
    dimension = integer(token)
    if not 1 <= dimension <= VECTOR_DIMENSION_MAX:
        raise Fault(
            token_span(token),
            f"Vector dimension must be between 1 and {VECTOR_DIMENSION_MAX}",
            code="bad-type",
        )
    return dimension


def moment(function: Span, text: ast.Literal, scalar: Scalar) -> ast.Literal:
    """`date("…")` or `datetime("…")` as an epoch number."""
    read = parse_date if scalar is Scalar.DATE else parse_datetime
    try:
        value = read(str(text.value))
    except ValueError as cause:
        raise Fault(text.span, str(cause), code="bad-date") from None
    return ast.Literal(value, scalar, span=function.to(text.span))


_UNIT_MS = {
    "ms": 1,
    "s": 1000,
    "m": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
    "w": 7 * 86_400_000,
}


def duration_ms(token: Token) -> int:
    """The milliseconds of `30d` or `2h`."""
    digits = str(token).rstrip("mshdw")
    unit = str(token)[len(digits) :]
    length = int(digits) * _UNIT_MS[unit] if len(digits) <= _INTEGER_DIGITS_MAX else _INTEGER_MAX
    if length >= _INTEGER_MAX:
        text = "the duration does not fit 64 bits of milliseconds"
        raise Fault(token_span(token), text, code="integer-too-large")
    return length


def require_one_type(items: tuple[ast.Literal, ...]) -> None:
    """Elements of a list are of one type; integers and floats mix."""
    families = set[object]()
    for item in items:
        if item.scalar is None:
            raise Fault(item.span, "a list cannot hold null", code="bad-list")
        families.add("number" if item.scalar in (Scalar.I64, Scalar.F64) else item.scalar)
        if len(families) > 1:
            raise Fault(item.span, "the elements of a list must have one type", code="bad-list")
