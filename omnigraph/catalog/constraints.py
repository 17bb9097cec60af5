"""Constraint checking: keys, uniques, indexes, ranges and regex checks of a declared type.

Invariant: the `Constraints` of a type name properties that exist and whose type can bear them.
Property-level `@key`, `@unique` and `@index` arrive here as one-column constraints.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import assert_never

from omnigraph.catalog.annotations import Declared
from omnigraph.catalog.model import Check, EdgeType, Range
from omnigraph.catalog.regex import regex_error
from omnigraph.language.reader import Fault
from omnigraph.language.schema import ast
from omnigraph.language.schema.ast import Columns, Name
from omnigraph.types import FLOATS, Kind, Scalar, Span, ValueType

_ENDPOINTS = frozenset({"src", "dst"})


@dataclass(frozen=True, slots=True)
class Owner:
    """The type that carries the constraints."""

    kind: Kind
    name: str
    types: Mapping[str, ValueType]


@dataclass(slots=True)
class Constraints:
    """The constraints of one type, each kept once, in the order they were first written."""

    keys: list[tuple[str, ...]] = field(default_factory=list)
    uniques: dict[frozenset[str], tuple[str, ...]] = field(default_factory=dict)
    indexes: dict[str, None] = field(default_factory=dict)
    ranges: dict[Range, None] = field(default_factory=dict)
    checks: dict[Check, None] = field(default_factory=dict)


def read_constraints(
    owner: Owner, declared: Sequence[Declared], constraints: Sequence[ast.Constraint]
) -> Constraints:
    """Everything the properties and the body of a type demand."""
    gathered = Constraints()
    for item in declared:
        for flag in item.flags:
            name = Name(item.property.name, item.span)
            _add_columns(gathered, owner, flag, (name,), item.span, in_body=False)
    for constraint in constraints:
        match constraint:
            case ast.ColumnConstraint(kind=kind, columns=columns, span=span):
                _add_columns(gathered, owner, kind, columns, span, in_body=True)
            case ast.RangeConstraint():
                _require_node(owner, "range", constraint.span)
                gathered.ranges[_range(owner, constraint)] = None
            case ast.CheckConstraint():
                _require_node(owner, "check", constraint.span)
                gathered.checks[_check(owner, constraint)] = None
            case _:
                assert_never(constraint)
    return gathered


def _require_node(owner: Owner, name: str, span: Span) -> None:
    if owner.kind is Kind.EDGE:
        raise Fault(
            span,
            f"@{name} is not supported on edges",
            code="misplaced",
            hint="edges take @key(src, dst), @unique and @index",
        )


def _add_columns(
    gathered: Constraints,
    owner: Owner,
    kind: Columns,
    columns: Sequence[Name],
    span: Span,
    *,
    in_body: bool,
) -> None:
    if kind is Columns.KEY and owner.kind is Kind.EDGE:
        _require_both_ends(owner, columns, span)
    for column in columns:
        if not (owner.kind is Kind.EDGE and column.text in _ENDPOINTS):
            _check_column(owner, kind, column, in_body=in_body)
    names = tuple(column.text for column in columns)
    match kind:
        case Columns.KEY:
            if gathered.keys and owner.kind is not Kind.INTERFACE:
                raise _multiple_keys(owner, span)
            gathered.keys.append(names)
        case Columns.UNIQUE:
            gathered.uniques.setdefault(frozenset(names), names)
        case Columns.INDEX:
            gathered.indexes.update(dict.fromkeys(names))
        case _:
            assert_never(kind)


def _require_both_ends(owner: Owner, columns: Sequence[Name], span: Span) -> None:
    if not {column.text for column in columns} >= _ENDPOINTS:
        raise Fault(
            span,
            f"@key of edge {owner.name} must name both ends",
            code="misplaced",
            hint="write @key(src, dst), or @key(src, dst, property), after the target type",
        )


def require_countable(declared: ast.Edge, edge: EdgeType, nodes: Collection[str]) -> None:
    """Constraints of an edge with an interface at an end: each must hold for every node type of
    that end alone, since each has an edge type of its own."""
    open_ends = [end for end, name in edge.ends.items() if name not in nodes]
    if "dst" in open_ends and declared.cardinality is not None:
        raise Fault(
            declared.cardinality.span,
            f"@card of edge {edge.name} would count edges to every type of {edge.target}",
            code="misplaced",
            hint=f"leave it out, or declare an edge for each type that implements {edge.target}",
        )
    for columns in edge.uniques:
        if not set(open_ends) <= set(columns):
            written = f"@unique({', '.join(columns)})"
            needed = ", ".join(dict.fromkeys((*open_ends, *columns)))
            raise Fault(
                declared.name.span,
                f"{written} of edge {edge.name} would compare edges of several node types",
                code="misplaced",
                hint=f"an end that is an interface must be in it: @unique({needed})",
            )


def _multiple_keys(owner: Owner, span: Span) -> Fault:
    return Fault(
        span,
        f"{owner.kind} type {owner.name} has multiple @key constraints; only one is supported",
        code="multiple-keys",
        hint="for a key of several properties write one @key(a, b)",
    )


def _type_of(owner: Owner, constraint: str, column: Name) -> ValueType:
    value_type = owner.types.get(column.text)
    if value_type is None:
        raise Fault(
            column.span,
            f"@{constraint} on {owner.name} references unknown property '{column}'",
            code="unknown-property",
            hint=_unknown_hint(owner, column.text),
        )
    return value_type


def _unknown_hint(owner: Owner, name: str) -> str:
    if owner.kind is Kind.EDGE and name in ("from", "to"):
        return "the ends of an edge are called src and dst here"
    known = ", ".join(sorted(owner.types))
    return f"{owner.name} has {known}" if known else f"{owner.name} has no properties"


def _check_column(owner: Owner, kind: Columns, column: Name, *, in_body: bool) -> None:
    value_type = _type_of(owner, kind, column)
    shape = _shape(value_type)
    if shape in _refused_shapes(kind, in_body=in_body):
        raise Fault(
            column.span,
            f"@{kind} is not supported on {shape} property {owner.name}.{column}",
            code="misplaced",
            hint="choose a property that holds one comparable value",
        )
    if kind is Columns.KEY and value_type.nullable:
        raise Fault(
            column.span,
            f"@key property {owner.name}.{column} cannot be nullable",
            code="nullable-key",
            hint=f"remove the '?' of {column}",
        )


def _refused_shapes(kind: Columns, *, in_body: bool) -> frozenset[str]:
    match kind:
        case Columns.KEY | Columns.UNIQUE:
            return frozenset({"list", "Vector", "Blob"})
        case Columns.INDEX:
            return frozenset({"Blob"} if in_body else {"list", "Blob"})
        case _:
            assert_never(kind)


def _shape(value_type: ValueType) -> str:
    """`list`, `Vector` or `Blob`; empty for a type of single, comparable values."""
    if value_type.is_list:
        return "list"
    match value_type.scalar:
        case Scalar.VECTOR | Scalar.BLOB:
            return str(value_type.scalar)
        case Scalar.STRING | Scalar.BOOL | Scalar.DATE | Scalar.DATETIME:
            return ""
        case Scalar.I32 | Scalar.I64 | Scalar.U32 | Scalar.U64 | Scalar.F32 | Scalar.F64:
            return ""
        case _:
            assert_never(value_type.scalar)


def _range(owner: Owner, constraint: ast.RangeConstraint) -> Range:
    name = constraint.property
    value_type = _type_of(owner, "range", name)
    if not value_type.is_numeric:
        raise _wrong_type(owner, "range", name, value_type, "@range needs a number property")
    wants_float = value_type.scalar in FLOATS
    low, high = (_fit(bound, wants_float) for bound in (constraint.low, constraint.high))
    return Range(name.text, low, high)


def _fit(bound: int | float | None, wants_float: bool) -> int | float | None:
    """One spelling for one bound: 0 and 0.0 are the same, in the property's own kind of number."""
    if isinstance(bound, float) and not wants_float and bound.is_integer():
        return int(bound)
    if isinstance(bound, int) and wants_float and float(bound) == bound:
        return float(bound)
    return bound


def _check(owner: Owner, constraint: ast.CheckConstraint) -> Check:
    name = constraint.property
    value_type = _type_of(owner, "check", name)
    if not value_type.is_text:
        raise _wrong_type(owner, "check", name, value_type, "@check needs a String property")
    if problem := regex_error(constraint.pattern):
        raise Fault(
            constraint.pattern_span,
            f"@check on {owner.name}.{name} is not a regular expression: {problem}",
            code="bad-regex",
            hint="use RE2 syntax: no back-references, no look-around",
        )
    return Check(name.text, constraint.pattern)


def _wrong_type(
    owner: Owner, constraint: str, name: Name, value_type: ValueType, hint: str
) -> Fault:
    return Fault(
        name.span,
        f"@{constraint} is not supported on property {owner.name}.{name} of type {value_type}",
        code="misplaced",
        hint=hint,
    )
