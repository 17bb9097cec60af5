"""Predicate pushdown: conditions of a scan as SQL filters of Lance.

Invariant: a filter is true for exactly the rows for which the condition is; a condition that no
filter expresses exactly stays with `evaluate`. Nothing of a value can end its literal, and
column names stand in backticks, because a quoted name would be a string to Lance.
"""

import math
from collections.abc import Callable
from typing import assert_never

from omnigraph.costs import COSTS
from omnigraph.exec.values.constants import CONSTANTS, Given, fit, holds, mirrored
from omnigraph.exec.values.scalars import SCALARS, quoted
from omnigraph.light_dataclass import dataclass
from omnigraph.plan import ir
from omnigraph.plan.expressions import conjunction, depth_of, terms_in
from omnigraph.query_limits import FILTER_DEPTH_MAX, FILTER_TERMS_MAX
from omnigraph.types import FLOATS, NUMERICS, Scalar, ValueType

NameOf = Callable[[ir.Column], str | None]
"""A property's column in the version that is read, or None."""

_UNKNOWN = "cast(NULL as boolean)"
_NAMED = ir.Column | ir.EntityId | ir.EndpointId
Op = ir.CompareOp


@dataclass(frozen=True, slots=True)
class Pushed:
    """A condition in two halves: the filter for Lance, and the rest to evaluate."""

    filter: str | None
    rest: ir.Expr | None


def push_down(where: ir.Expr | None, given: Given, name_of: NameOf) -> Pushed:
    """As much of the condition as Lance can decide exactly, within its stack.

    Lance follows a filter by recursion: too many alternatives end the process, and nested `NOT`
    takes it exponential time. What exceeds the bounds is evaluated here.
    """
    if where is None:
        return Pushed(None, None)
    writer = _FilterWriter(given, name_of)
    filters, rest, terms = list[str](), list[ir.Expr](), 0
    for part in where.parts if isinstance(where, ir.And) else (where,):
        size = terms_in(part)
        fits = terms + size <= FILTER_TERMS_MAX and depth_of(part) <= FILTER_DEPTH_MAX
        text = writer.condition(part) if fits else None
        if text is None:
            rest.append(part)
        else:
            filters.append(text)
            terms += size
    return Pushed(
        " AND ".join(f"({text})" for text in filters) or None,
        conjunction(rest),
    )


def ids_filter(ids: list[str], column: str = "id") -> str:
    """Rows whose id, or end, is one of these."""
    return f"`{column}` IN ({', '.join(map(quoted, ids))})"


class _FilterWriter:
    """Writes conditions; None for a condition that no filter expresses exactly."""

    def __init__(self, given: Given, name_of: NameOf) -> None:
        self._given = given
        self._name_of = name_of

    def condition(self, expr: ir.Expr) -> str | None:
        match expr:
            case ir.Compare():
                return self._compare(expr)
            case ir.ListContains():
                return self._list_contains(expr)
            case ir.TextContains():
                return self._text_contains(expr)
            case ir.IsNull(operand=operand, negated=negated):
                name = self._column(operand)
                return name and f"{name} IS {'NOT ' if negated else ''}NULL"
            case ir.And(parts=parts):
                return self._joined(" AND ", parts)
            case ir.Or(parts=parts):
                return self._joined(" OR ", parts)
            case ir.Not(part=part):
                inner = self.condition(part)
                return inner and f"NOT ({inner})"
            case _:
                return None

    def _joined(self, word: str, parts: tuple[ir.Expr, ...]) -> str | None:
        written = [self.condition(part) for part in parts]
        if any(text is None for text in written):
            return None
        return word.join(f"({text})" for text in written)

    def _column(self, expr: ir.Expr) -> str | None:
        match expr:
            case ir.EntityId():
                return "`id`"
            case ir.EndpointId(end=end):
                return f"`{end}`"
            case ir.Column():
                name = self._name_of(expr)
                return None if name is None or "`" in name else f"`{name}`"
            case _:
                return None

    def _compare(self, expr: ir.Compare) -> str | None:
        op, left, right = expr.op, expr.left, expr.right
        if isinstance(left, CONSTANTS):
            op, left, right = mirrored(op), right, left
        if not isinstance(right, CONSTANTS):
            return None
        value = self._given.of(right)
        if isinstance(left, CONSTANTS):
            return _constant(holds(op, self._given.of(left), value))
        name = self._column(left)
        if name is None or not isinstance(left, _NAMED):
            return None
        if value is None:
            return _UNKNOWN
        return _comparison(name, op, value, left.type)

    def _list_contains(self, expr: ir.ListContains) -> str | None:
        items, value = expr.items, expr.value
        if isinstance(items, CONSTANTS):
            return self._in_constants(self._given.of(items), value)
        name = self._column(items)
        if name is None or not isinstance(items, ir.Column) or not isinstance(value, CONSTANTS):
            return None
        item = self._given.of(value)
        if items.type.scalar is not Scalar.STRING:
            return None  # numbers in lists would be compared after a cast
        return _UNKNOWN if item is None else f"array_has({name}, {quoted(str(item))})"

    def _in_constants(self, items: ir.Constant, value: ir.Expr) -> str | None:
        name = self._column(value)
        if name is None or not isinstance(value, _NAMED):
            return None
        if items is None:
            return _UNKNOWN
        assert isinstance(items, tuple)
        if value.type.scalar in FLOATS or len(items) > COSTS.filter_items_max:
            return None
        literal = SCALARS[value.type.scalar].literal
        if literal is None:
            return None
        literals = [literal(stored) for item in items for stored in _fitted(item, value.type)]
        if not literals:
            return f"{name} IS NOT NULL AND false OR {name} IS NULL AND {_UNKNOWN}"
        return f"{name} IN ({', '.join(literals)})"

    def _text_contains(self, expr: ir.TextContains) -> str | None:
        name = self._column(expr.text)
        if name is None or not isinstance(expr.part, CONSTANTS):
            return None
        part = self._given.of(expr.part)
        if part is None:
            return _UNKNOWN
        function = "starts_with" if expr.prefix else "contains"
        return f"{function}({name}, {quoted(str(part))})"


def _constant(truth: bool | None) -> str:
    return _UNKNOWN if truth is None else "true" if truth else "false"


def _known(name: str, truth: bool) -> str:
    """One truth value where there is a value, unknown where there is none."""
    return f"({name} IS NOT NULL OR {_UNKNOWN})" if truth else f"({name} IS NULL AND {_UNKNOWN})"


def _comparison(name: str, op: Op, value: ir.Constant, type_: ValueType) -> str | None:
    literal = SCALARS[type_.scalar].literal
    if literal is None:
        return None
    if type_.scalar not in NUMERICS:
        return f"{name} {op} {literal(value)}"
    assert isinstance(value, int | float)
    fitted = fit(op, value, type_.scalar)
    if isinstance(fitted, bool):
        return None if type_.scalar in FLOATS else _known(name, fitted)
    op, number = fitted
    if type_.scalar in FLOATS:
        return _float_comparison(name, op, float(number))
    return f"{name} {op} {literal(number)}"


def _float_comparison(name: str, op: Op, number: float) -> str | None:
    """NaN follows every number, also one with its sign set, which Lance puts first."""
    if not math.isfinite(number) or number == 0:
        return None  # an index may tell the zeros apart
    text = f"{name} {op} {number!r}"
    match op:
        case Op.GT | Op.GE:
            return f"({text} OR isnan({name}))"
        case Op.LT | Op.LE:
            return f"({text} AND NOT isnan({name}))"
        case Op.EQ | Op.NE:
            return text
        case _:
            assert_never(op)


def _fitted(item: ir.Constant, type_: ValueType) -> tuple[ir.Constant, ...]:
    """The constant as the column holds it; nothing for a number that it cannot hold."""
    if type_.scalar not in NUMERICS:
        return (item,)
    assert isinstance(item, int | float)
    fitted = fit(Op.EQ, item, type_.scalar)
    return () if isinstance(fitted, bool) else (fitted[1],)
