"""Aggregate calls to typed measures.

Invariant: a measure is over one value a row, of a type its function is defined for.
"""

from typing import assert_never

from omnigraph.language.query import ast
from omnigraph.plan import ir
from omnigraph.plan.expressions import type_of
from omnigraph.plan.operands import COUNT, INTEGER, NUMBER, UNSIGNED, nullable_if
from omnigraph.plan.scope import Scope
from omnigraph.plan.typer import Leaf, Typer
from omnigraph.types import INTEGER_BOUNDS, INTEGERS, ValueType


def measure_of(
    scope: Scope, aggregate: ast.Aggregate, reference: Leaf
) -> tuple[ir.AggregateOp, ir.Expr | None, ValueType]:
    """The function, what it is over (None: rows), and the type of its result."""
    op = ir.AggregateOp(str(aggregate.function))
    if aggregate.argument is None:
        return op, None, COUNT
    operand = _operand(scope, aggregate, aggregate.argument, reference)
    kind = type_of(operand)
    if kind.is_blob:
        raise scope.names.fail(aggregate.span, "a Blob cannot be aggregated", code="T24")
    match op:
        case ir.AggregateOp.COUNT:
            return op, _counted(scope, aggregate, operand), COUNT
        case ir.AggregateOp.SUM:
            _require_numeric_or_text(scope, aggregate, kind, ordered=False)
            return op, operand, _sum_type(kind)
        case ir.AggregateOp.AVG:
            _require_numeric_or_text(scope, aggregate, kind, ordered=False)
            return op, operand, NUMBER
        case ir.AggregateOp.MIN | ir.AggregateOp.MAX:
            _require_numeric_or_text(scope, aggregate, kind, ordered=True)
            return op, operand, nullable_if(kind, True)
        case ir.AggregateOp.SUM_HIGH | ir.AggregateOp.SUM_LOW:
            raise AssertionError("a query asks for whole sums")
        case _:
            assert_never(op)


def _sum_type(summed: ValueType) -> ValueType:
    """The widest type of the same class: a sum of integers is an integer."""
    if summed.scalar not in INTEGERS:
        return NUMBER
    return UNSIGNED if INTEGER_BOUNDS[summed.scalar][0] == 0 else INTEGER


def _operand(
    scope: Scope, aggregate: ast.Aggregate, argument: ast.Expr, reference: Leaf
) -> ir.Expr:
    def argument_reference(expression: ast.Expr) -> ir.Expr:
        if isinstance(expression, ast.PropertyRef | ast.Variable | ast.TextCondition):
            return reference(expression)
        text = f"{aggregate.function} takes $v.property, $v, or an expression of these"
        raise scope.names.fail(expression.span, text, code="T8")

    return Typer(scope.names, argument_reference).value(argument)


def _counted(scope: Scope, aggregate: ast.Aggregate, operand: ir.Expr) -> ir.Expr | None:
    kind = type_of(operand)
    if aggregate.distinct:
        if kind.is_list or kind.is_vector:
            text = f"distinct values of type {kind} cannot be counted"
            raise scope.names.fail(aggregate.span, text, code="T8")
        return operand
    never_null = isinstance(operand, ir.EntityId) and not kind.nullable
    return None if never_null else operand


def _require_numeric_or_text(
    scope: Scope, aggregate: ast.Aggregate, value_type: ValueType, *, ordered: bool
) -> None:
    if value_type.is_numeric or (ordered and not value_type.is_list and not value_type.is_vector):
        return
    expected = "a value that has an order" if ordered else "a number"
    text = f"{aggregate.function} needs {expected}, not {value_type}"
    raise scope.names.fail(aggregate.span, text, code="T8")
