"""Aggregate calls to typed measures.

Invariant: a measure is over one value a row, of a type its function is defined for.
"""

from collections.abc import Callable
from typing import assert_never

from omnigraph.language.query import ast
from omnigraph.plan import ir
from omnigraph.plan.operands import (
    COUNT,
    INTEGER,
    NOW,
    NUMBER,
    UNSIGNED,
    literal_operand,
    nullable_if,
    property_operand,
)
from omnigraph.plan.scope import Scope
from omnigraph.types import INTEGER_BOUNDS, INTEGERS, ValueType

VariableOperand = Callable[[ast.Variable], ir.Operand]


def measure_of(
    scope: Scope, aggregate: ast.Aggregate, variable: VariableOperand
) -> tuple[ir.AggregateOp, ir.Expr | None, ValueType]:
    """The function, what it is over (None: rows), and the type of its result."""
    op = ir.AggregateOp(str(aggregate.function))
    operand = _operand(scope, aggregate, variable)
    if operand.type.is_blob:
        raise scope.names.fail(aggregate.span, "a Blob cannot be aggregated", code="T24")
    match op:
        case ir.AggregateOp.COUNT:
            return op, _counted(scope, aggregate, operand), COUNT
        case ir.AggregateOp.SUM:
            _require_numeric_or_text(scope, aggregate, operand.type, ordered=False)
            return op, operand, _sum_type(operand.type)
        case ir.AggregateOp.AVG:
            _require_numeric_or_text(scope, aggregate, operand.type, ordered=False)
            return op, operand, NUMBER
        case ir.AggregateOp.MIN | ir.AggregateOp.MAX:
            _require_numeric_or_text(scope, aggregate, operand.type, ordered=True)
            return op, operand, nullable_if(operand.type, True)
        case ir.AggregateOp.SUM_HIGH | ir.AggregateOp.SUM_LOW:
            raise AssertionError("a query asks for whole sums")
        case _:
            assert_never(op)


def _sum_type(summed: ValueType) -> ValueType:
    """The widest type of the same class: a sum of integers is an integer."""
    if summed.scalar not in INTEGERS:
        return NUMBER
    return UNSIGNED if INTEGER_BOUNDS[summed.scalar][0] == 0 else INTEGER


def _operand(scope: Scope, aggregate: ast.Aggregate, variable: VariableOperand) -> ir.Operand:
    argument = aggregate.argument
    match argument:
        case ast.PropertyRef():
            return property_operand(scope, argument)
        case ast.Variable():
            return variable(argument)
        case ast.Literal() | ast.ListLiteral():
            return literal_operand(argument)
        case ast.Now():
            return NOW
        case _:
            text = f"{aggregate.function} takes $v.property, $v, a parameter or a literal"
            raise scope.names.fail(argument.span, text, code="T8")


def _counted(scope: Scope, aggregate: ast.Aggregate, operand: ir.Operand) -> ir.Expr | None:
    if aggregate.distinct:
        if operand.type.is_list or operand.type.is_vector:
            text = f"distinct values of type {operand.type} cannot be counted"
            raise scope.names.fail(aggregate.span, text, code="T8")
        return operand
    never_null = isinstance(operand, ir.EntityId) and not operand.type.nullable
    return None if never_null else operand


def _require_numeric_or_text(
    scope: Scope, aggregate: ast.Aggregate, value_type: ValueType, *, ordered: bool
) -> None:
    if value_type.is_numeric or (ordered and value_type.is_text):
        return
    expected = "a number or a String" if ordered else "a number"
    text = f"{aggregate.function} needs {expected}, not {value_type}"
    raise scope.names.fail(aggregate.span, text, code="T8")
