"""Literals and scalar types of the query language, from tokens to checked values.

Invariant: a value built here fits its type: integers 64 bits, vectors a dimension, dates a day that
exists, lists one type.
"""

from lark import Token

from omnigraph.language.moments import parse_date, parse_datetime
from omnigraph.language.query import ast
from omnigraph.language.reader import Fault, token_span, unquote
from omnigraph.types import VECTOR_DIMENSION_MAX, Scalar

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


def moment(parts: list[Token], scalar: Scalar) -> ast.Literal:
    """`date("…")` or `datetime("…")` as an epoch number."""
    read = parse_date if scalar is Scalar.DATE else parse_datetime
    text = unquote(parts[1])
    try:
        value = read(text)
    except ValueError as cause:
        raise Fault(token_span(parts[1]), str(cause), code="bad-date") from None
    return ast.Literal(value, scalar, span=token_span(parts[0]).to(token_span(parts[1])))


def require_one_type(items: tuple[ast.Literal, ...]) -> None:
    """Elements of a list are of one type; integers and floats mix."""
    families = set[object]()
    for item in items:
        if item.scalar is None:
            raise Fault(item.span, "a list cannot hold null", code="bad-list")
        families.add("number" if item.scalar in (Scalar.I64, Scalar.F64) else item.scalar)
        if len(families) > 1:
            raise Fault(item.span, "the elements of a list must have one type", code="bad-list")
