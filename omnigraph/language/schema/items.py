"""Schema items `@name(…)`: an annotation, a body constraint or a cardinality.

Invariant: a value built here is well formed by itself. Whether it may stand where it does, and
whether the properties it names exist, is for the catalog to say.
"""

import math
from dataclasses import dataclass

from omnigraph.language.reader import Fault, token_span, unquote
from omnigraph.language.schema.ast import (
    Annotation,
    Cardinality,
    CheckConstraint,
    ColumnConstraint,
    Columns,
    Constraint,
    Literal,
    Name,
    RangeConstraint,
)
from omnigraph.language.token import Token
from omnigraph.types import Span

U32_MAX = 2**32 - 1
_I64_MAX = 2**63 - 1
_BOUND_MIN, _BOUND_MAX = -(2**63), 2**64 - 1
_DIGITS_MAX = 20  # of the longest integer that fits; longer ones are not worth converting

CONSTRAINT_NAMES = frozenset({"key", "unique", "index", "range", "check"})
COLUMN_NAMES = frozenset(Columns)
CARD = "card"
KEY = str(Columns.KEY)


@dataclass(frozen=True, slots=True)
class Positional:
    """A literal argument."""

    token: Token


@dataclass(frozen=True, slots=True)
class Word:
    """A bare word argument."""

    token: Token


@dataclass(frozen=True, slots=True)
class Keyword:
    """`key=literal`."""

    key: Token
    token: Token


@dataclass(frozen=True, slots=True)
class Interval:
    """`low..high`; a bound that was not written is None."""

    low: Token | None
    high: Token | None
    span: Span


Argument = Positional | Word | Keyword | Interval


@dataclass(frozen=True, slots=True)
class AtItem:
    """`@name` or `@name(argument, …)`, not yet classified."""

    name: str
    arguments: tuple[Argument, ...] | None
    span: Span

    @property
    def is_constraint(self) -> bool:
        return self.arguments is not None and self.name in CONSTRAINT_NAMES


def argument_span(argument: Argument) -> Span:
    """Position of an argument."""
    match argument:
        case Positional(token=token) | Word(token=token):
            return token_span(token)
        case Keyword(key=key, token=token):
            return token_span(key).to(token_span(token))
        case Interval(span=span):
            return span


# Numbers


def unsigned(token: Token, *, high: int, code: str, what: str) -> int:
    """An unsigned integer no greater than `high`, or a fault in the words of `what`."""
    text = str(token)
    if not text.isdigit():
        raise Fault(token_span(token), f"{what} must be a whole number, not {text}", code=code)
    significant = text.lstrip("0") or "0"
    if len(significant) > _DIGITS_MAX or int(significant) > high:
        raise Fault(token_span(token), f"{what} must be at most {high}", code=code)
    return int(significant)


def _number(token: Token, *, code: str) -> int | float:
    text = str(token)
    if "." in text:
        value = float(text)
        if not math.isfinite(value):
            raise Fault(token_span(token), "the number is too large for a float", code=code)
        return value
    digits = text.lstrip("-").lstrip("0") or "0"
    sign = -1 if text.startswith("-") else 1
    if len(digits) > _DIGITS_MAX or not _BOUND_MIN <= sign * int(digits) <= _BOUND_MAX:
        raise Fault(token_span(token), "the number is too large for any integer type", code=code)
    return sign * int(digits)


def _literal(token: Token) -> Literal:
    match token.type:
        case "STRING":
            return unquote(token)
        case "TRUE" | "FALSE":
            return str(token) == "true"
    value = _number(token, code="bad-annotation")
    if str(token).startswith("-"):
        raise Fault(
            token_span(token),
            "a negative number may only be a bound of @range",
            code="bad-annotation",
            hint="write it as a string",
        )
    if isinstance(value, int) and value > _I64_MAX:
        raise Fault(
            token_span(token), f"the number must be at most {_I64_MAX}", code="bad-annotation"
        )
    return value


def default_literal(token: Token) -> Literal:
    """The value of a literal that stands for a default. Unlike in an annotation it may be
    negative."""
    match token.type:
        case "STRING":
            return unquote(token)
        case "TRUE" | "FALSE":
            return str(token) == "true"
    return _number(token, code="bad-default")


# Annotations


def annotation(item: AtItem) -> Annotation:
    """`@name`, `@name(value)` or `@name(value, key=value)`."""
    if item.arguments is None:
        if item.name in ("range", "check"):
            raise Fault(
                item.span,
                f"@{item.name} needs arguments",
                code="bad-constraint",
                hint=_USAGE[item.name],
            )
        return Annotation(item.name, None, (), item.span)
    first, *rest = item.arguments
    return Annotation(item.name, _value(item, first), _kwargs(item, rest), item.span)


def _value(item: AtItem, argument: Argument) -> Literal:
    match argument:
        case Positional(token=token):
            return _literal(token)
        case Word(token=token):
            return str(token)
        case _:
            raise Fault(
                argument_span(argument),
                f"the first argument of @{item.name} must be a value",
                code="bad-annotation",
                hint=f'write @{item.name}("value") or @{item.name}("value", key="value")',
            )


def _kwargs(item: AtItem, arguments: list[Argument]) -> tuple[tuple[str, Literal], ...]:
    kwargs: dict[str, Literal] = {}
    for argument in arguments:
        if not isinstance(argument, Keyword):
            raise Fault(
                argument_span(argument),
                f"only the first argument of @{item.name} is a plain value",
                code="bad-annotation",
                hint='write further arguments as key="value"',
            )
        if argument.key in kwargs:
            raise Fault(
                argument_span(argument),
                f"@{item.name} has the argument '{argument.key}' twice",
                code="bad-annotation",
            )
        kwargs[str(argument.key)] = _literal(argument.token)
    return tuple(kwargs.items())


# Constraints

_USAGE = {
    "key": "write @key(property) or @key(one, two)",
    "unique": "write @unique(property) or @unique(one, two)",
    "index": "write @index(property) or @index(one, two)",
    "range": "write @range(property, low..high); one of the bounds may be left out",
    "check": 'write @check(property, "regular expression")',
}


def constraint(item: AtItem) -> Constraint:
    """The body constraint of an item that is one."""
    arguments = item.arguments or ()
    if item.name in COLUMN_NAMES:
        return column_constraint(item)
    name = _property_name(arguments[0])
    match item.name, arguments[1:]:
        case "range", (Interval() as interval,) if name is not None:
            return _range(item, name, interval)
        case "check", (Positional(token=token),) if name is not None and token.type == "STRING":
            return CheckConstraint(name, unquote(token), token_span(token), item.span)
    raise Fault(
        argument_span(arguments[-1]),
        f"@{item.name} cannot take these arguments",
        code="bad-constraint",
        hint=_USAGE[item.name],
    )


def column_constraint(item: AtItem) -> ColumnConstraint:
    """`@key(a, b)`, `@unique(a, b)` or `@index(a, b)`."""
    return ColumnConstraint(Columns(item.name), _columns(item, item.arguments or ()), item.span)


def _property_name(argument: Argument) -> Name | None:
    """The property an argument names. `true` and `false` are names here: no word is reserved."""
    match argument:
        case Word(token=token):
            return Name(str(token), token_span(token))
        case Positional(token=token) if token.type in ("TRUE", "FALSE"):
            return Name(str(token), token_span(token))
    return None


def _columns(item: AtItem, arguments: tuple[Argument, ...]) -> tuple[Name, ...]:
    columns: dict[Name, None] = {}
    for argument in arguments:
        name = _property_name(argument)
        if name is None:
            raise Fault(
                argument_span(argument),
                f"@{item.name} takes names of properties",
                code="bad-constraint",
                hint=_USAGE[item.name],
            )
        if name in columns:
            raise Fault(name.span, f"@{item.name} names '{name}' twice", code="bad-constraint")
        columns[name] = None
    return tuple(columns)


def _range(item: AtItem, name: Name, interval: Interval) -> RangeConstraint:
    for token in (interval.low, interval.high):
        if token is not None and token.type == "STAR":
            raise Fault(
                token_span(token),
                "'*' is not a number",
                code="bad-range",
                hint=f"leave the bound out: @range({name}, low..)",
            )
    low = None if interval.low is None else _number(interval.low, code="bad-range")
    high = None if interval.high is None else _number(interval.high, code="bad-range")
    if low is not None and high is not None and low > high:
        raise Fault(
            interval.span,
            f"@range on '{name}' allows nothing: {interval.low} is greater than {interval.high}",
            code="bad-range",
            hint="write the lower bound first",
        )
    return RangeConstraint(name, low, high, item.span)


def cardinality(item: AtItem) -> Cardinality:
    """`@card(low..)` or `@card(low..high)`."""
    arguments = item.arguments or ()
    if len(arguments) != 1 or not isinstance(arguments[0], Interval):
        raise _bad_cardinality(item.span, "@card needs an interval")
    interval = arguments[0]
    if interval.low is None:
        raise _bad_cardinality(interval.span, "@card needs a lower bound")
    if interval.high is not None and interval.high.type == "STAR":
        raise _bad_cardinality(token_span(interval.high), "'*' is not a number")
    low = unsigned(interval.low, high=U32_MAX, code="bad-cardinality", what="a bound of @card")
    if interval.high is None:
        return Cardinality(low, None, item.span)
    high = unsigned(interval.high, high=U32_MAX, code="bad-cardinality", what="a bound of @card")
    if low > high:
        raise _bad_cardinality(interval.span, f"@card allows nothing: {low} is greater than {high}")
    return Cardinality(low, high, item.span)


def _bad_cardinality(span: Span, text: str) -> Fault:
    return Fault(
        span,
        text,
        code="bad-cardinality",
        hint="write @card(0..1), or @card(1..) for no upper bound",
    )
