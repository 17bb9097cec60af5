"""Syntax tree (AST) of a `.pg` file, nothing resolved.

Invariant: two trees are equal when their canonical texts are. Spans point into the source and take
no part in equality; everything else is a tuple, a string, a number or another node.
"""

from dataclasses import dataclass, field
from enum import StrEnum

from omnigraph.types import Span, ValueType

Literal = str | int | float | bool


@dataclass(frozen=True, slots=True)
class Name:
    """A word and where it stands."""

    text: str
    span: Span = field(compare=False)

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class Annotation:
    """`@name(value, key=value)`. A bare word as value is a string; no value is None."""

    name: str
    value: Literal | None
    kwargs: tuple[tuple[str, Literal], ...]
    span: Span = field(compare=False)


@dataclass(frozen=True, slots=True)
class TypeExpr:
    """A property's type. Enum values are sorted: their order means nothing."""

    value: ValueType
    span: Span = field(compare=False)


@dataclass(frozen=True, slots=True)
class DefaultExpr:
    """`= literal` or `= [literal, …]` after a type. A bare word is a string: a value of an enum."""

    value: Literal | tuple[Literal, ...]
    span: Span = field(compare=False)
    is_word: bool = field(default=False, compare=False)


@dataclass(frozen=True, slots=True)
class Property:
    """`name: type = default @annotation…`."""

    name: Name
    type: TypeExpr
    annotations: tuple[Annotation, ...]
    span: Span = field(compare=False)
    default: DefaultExpr | None = None


class Columns(StrEnum):
    """The constraints that list properties. Without arguments they annotate one property."""

    KEY = "key"
    UNIQUE = "unique"
    INDEX = "index"


@dataclass(frozen=True, slots=True)
class ColumnConstraint:
    """`@key(a, b)`, `@unique(a, b)` or `@index(a, b)`."""

    kind: Columns
    columns: tuple[Name, ...]
    span: Span = field(compare=False)


@dataclass(frozen=True, slots=True)
class RangeConstraint:
    """`@range(property, low..high)`, either bound open."""

    property: Name
    low: int | float | None
    high: int | float | None
    span: Span = field(compare=False)


@dataclass(frozen=True, slots=True)
class CheckConstraint:
    """`@check(property, "pattern")`."""

    property: Name
    pattern: str
    pattern_span: Span = field(compare=False)
    span: Span = field(compare=False)


Constraint = ColumnConstraint | RangeConstraint | CheckConstraint


@dataclass(frozen=True, slots=True)
class Cardinality:
    """`@card(low..high)`; no `high`: unbounded."""

    low: int
    high: int | None
    span: Span = field(compare=False)


@dataclass(frozen=True, slots=True)
class Interface:
    """`interface Name { property… }`."""

    name: Name
    properties: tuple[Property, ...]
    span: Span = field(compare=False)


@dataclass(frozen=True, slots=True)
class Node:
    """`node Name @annotation… implements A, B { … }`."""

    name: Name
    annotations: tuple[Annotation, ...]
    implements: tuple[Name, ...]
    properties: tuple[Property, ...]
    constraints: tuple[Constraint, ...]
    span: Span = field(compare=False)


@dataclass(frozen=True, slots=True)
class Edge:
    """`edge Name: Source -> Target @card(…) @key(src, dst) @annotation… { … }`."""

    name: Name
    source: Name
    target: Name
    cardinality: Cardinality | None
    annotations: tuple[Annotation, ...]
    properties: tuple[Property, ...]
    constraints: tuple[Constraint, ...]
    span: Span = field(compare=False)
    key: ColumnConstraint | None = None  # before the body; one inside is among the constraints


Declaration = Interface | Node | Edge


@dataclass(frozen=True, slots=True)
class Schema:
    """A whole `.pg` file."""

    declarations: tuple[Declaration, ...]
    span: Span = field(compare=False)
