"""Rows of the function table, and result types: what a call gives for arguments of these types.

Invariant: pure; None means that the function does not take such arguments.
"""

from collections.abc import Callable, Sequence
from dataclasses import field
from enum import StrEnum

from omnigraph.light_dataclass import dataclass
from omnigraph.types import FLOATS, INTEGER_BOUNDS, INTEGERS, Scalar, ValueType

Types = Sequence[ValueType]
Result = Callable[[Types], ValueType | None]
"""The type of a call's result; None for arguments that the function does not take."""


class Topic(StrEnum):
    """The sections of the reference."""

    NUMBERS = "Numbers"
    TEXT = "Text"
    LISTS = "Lists"
    MOMENTS = "Dates and moments"
    NULLS = "Nulls"
    CASTS = "Casts"
    VECTORS = "Vectors"


@dataclass(frozen=True, slots=True)
class Function:
    """One row of the table. `least` and `most` bound the number of arguments."""

    name: str
    signature: str
    about: str
    topic: Topic
    result: Result
    least: int
    most: int
    null_safe: bool = False  # a null argument does not make the result null
    units: tuple[str, ...] = ()  # words that the last argument may be
    fails: str = ""  # when it is an error, in words
    example: tuple[str, str] = field(default=("", ""))  # an expression and its value

    @property
    def takes(self) -> str:
        """How many arguments, in words."""
        if self.least == self.most:
            return f"{self.least} argument{'' if self.least == 1 else 's'}"
        if self.most >= MANY:
            return f"{self.least} or more arguments"
        return f"{self.least} or {self.most} arguments"


MANY = 64

_I64 = ValueType(Scalar.I64)
_F64 = ValueType(Scalar.F64)
_TEXT = ValueType(Scalar.STRING)
_BOOL = ValueType(Scalar.BOOL)


def is_integer(kind: ValueType) -> bool:
    return kind.scalar in INTEGERS and not kind.is_list


def is_moment(kind: ValueType) -> bool:
    return kind.scalar in (Scalar.DATE, Scalar.DATETIME) and not kind.is_list


def arithmetic_type(left: ValueType, right: ValueType) -> ValueType | None:
    """The type of `+ - * %`: the widest of the class of its operands."""
    if not left.is_numeric or not right.is_numeric:
        return None
    if left.scalar in FLOATS or right.scalar in FLOATS:
        return _F64
    unsigned = all(INTEGER_BOUNDS[kind.scalar][0] == 0 for kind in (left, right))
    return ValueType(Scalar.U64) if unsigned else _I64


def common_type(types: Types) -> ValueType | None:
    """The one type that values of all these types have, numbers widened; None if there is none."""
    first = types[0]
    if all(_plain(kind) == _plain(first) for kind in types):
        return _plain(first)
    if all(kind.is_numeric for kind in types):
        common = first
        for kind in types[1:]:
            widest = arithmetic_type(common, kind)
            assert widest is not None
            common = widest
        return common
    if all(map(is_moment, types)):
        return ValueType(Scalar.DATETIME)
    return None


def _plain(kind: ValueType) -> ValueType:
    return ValueType(kind.scalar, is_list=kind.is_list, dimension=kind.dimension)


def _texts(types: Types) -> bool:
    return all(kind.is_text for kind in types)


def when_types(holds: Callable[[Types], bool], kind: ValueType) -> Result:
    return lambda types: kind if holds(types) else None


def text_to(kind: ValueType) -> Result:
    return when_types(_texts, kind)


def highlighted(types: Types) -> ValueType | None:
    """Texts: two, or four with both marks."""
    return ValueType(Scalar.STRING) if len(types) != 3 and _texts(types) else None


def numbers_to(kind: ValueType) -> Result:
    return when_types(lambda types: all(t.is_numeric for t in types), kind)


def same_number(types: Types) -> ValueType | None:
    """Integers stay integers of 64 bits, floats are F64."""
    return arithmetic_type(types[0], types[0])


def rounded(types: Types) -> ValueType | None:
    if len(types) == 2 and not is_integer(types[1]):
        return None
    return same_number(types)


def divided(types: Types) -> ValueType | None:
    return arithmetic_type(*types) if all(map(is_integer, types)) else None


def is_listed(types: Types) -> bool:
    return types[0].is_list


def element_of(types: Types) -> ValueType | None:
    if not types[0].is_list or not is_integer(types[1]):
        return None
    return ValueType(types[0].scalar, nullable=True)


def overlapping(types: Types) -> ValueType | None:
    left, right = types
    if not left.is_list or not right.is_list:
        return None
    scalars = {left.scalar, right.scalar}
    alike = len(scalars) == 1 or scalars <= FLOATS or scalars <= INTEGERS - {Scalar.U64}
    return _BOOL if alike else None


def joined(types: Types) -> ValueType | None:
    texts = types[0].is_list and types[0].scalar is Scalar.STRING and types[1].is_text
    return _TEXT if texts else None


def substring(types: Types) -> ValueType | None:
    return _TEXT if types[0].is_text and all(map(is_integer, types[1:])) else None


def part_of_moment(types: Types) -> ValueType | None:
    return _I64 if is_moment(types[0]) else None


def part_of_clock(types: Types) -> ValueType | None:
    return _I64 if types[0].scalar is Scalar.DATETIME and not types[0].is_list else None


def truncated(types: Types) -> ValueType | None:
    return _plain(types[0]) if is_moment(types[0]) and types[1].is_text else None


def days_added(types: Types) -> ValueType | None:
    return _plain(types[0]) if is_moment(types[0]) and is_integer(types[1]) else None


def seconds_added(types: Types) -> ValueType | None:
    moment = types[0].scalar is Scalar.DATETIME and not types[0].is_list
    return _plain(types[0]) if moment and is_integer(types[1]) else None


def of_vectors(types: Types) -> ValueType | None:
    left, right = types
    alike = left.is_vector and right.is_vector and left.dimension == right.dimension
    return ValueType(Scalar.F64, nullable=True) if alike else None


_FROM: dict[Scalar, frozenset[Scalar]] = {
    Scalar.BOOL: frozenset({Scalar.BOOL, Scalar.STRING}),
    Scalar.DATE: frozenset({Scalar.DATE, Scalar.DATETIME, Scalar.STRING}),
    Scalar.DATETIME: frozenset({Scalar.DATE, Scalar.DATETIME, Scalar.STRING}),
    Scalar.STRING: frozenset(Scalar) - {Scalar.BLOB, Scalar.VECTOR},
}


def cast_to(scalar: Scalar) -> Result:
    numbers = INTEGERS | FLOATS | {Scalar.STRING, Scalar.BOOL}
    sources = _FROM.get(scalar, numbers)

    def result(types: Types) -> ValueType | None:
        return None if types[0].is_list or types[0].scalar not in sources else ValueType(scalar)

    return result
