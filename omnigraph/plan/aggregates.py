"""Aggregate calls to typed measures.

Invariant: a measure is over one value a row, of a type its function is defined for.
"""

from typing import assert_never

from omnigraph.language.query import ast
from omnigraph.plan import ir
from omnigraph.plan.expressions import type_of
from omnigraph.plan.fixed_values import fixed_expression
from omnigraph.plan.operands import COUNT, INTEGER, NUMBER, UNSIGNED, nullable_if
from omnigraph.plan.scope import Scope
from omnigraph.plan.typer import Leaf, Typer
from omnigraph.types import INTEGER_BOUNDS, INTEGERS, Scalar, ValueType

_OPS = {
    ast.AggregateFunction.ANY: ir.AggregateOp.MAX,  # false before true
    ast.AggregateFunction.ALL: ir.AggregateOp.MIN,
    ast.AggregateFunction.MEDIAN: ir.AggregateOp.PERCENTILE,
}
_TRUTHS = (ast.AggregateFunction.ANY, ast.AggregateFunction.ALL)
_HALF = ir.Const(0.5, ValueType(Scalar.F64))


def fraction_of(scope: Scope, aggregate: ast.Aggregate) -> ir.Expr | None:
    """The fraction of a percentile, which reads no row."""
    given = aggregate.fraction
    if given is None:
        return _HALF if aggregate.function is ast.AggregateFunction.MEDIAN else None
    value = fixed_expression(scope.names, given)
    outside = isinstance(given, ast.Literal) and not 0 <= float(given.value or 0) <= 1
    if not type_of(value).is_numeric or outside:
        text = "the fraction of percentile is a number from 0 to 1"
        raise scope.names.fail(given.span, text, code="T8")
    return value


def measure_of(
    scope: Scope, aggregate: ast.Aggregate, reference: Leaf
) -> tuple[ir.AggregateOp, ir.Expr | None, ValueType]:
    """The function, what it is over (None: rows), and the type of its result."""
    function = aggregate.function
    op = _OPS.get(function) or ir.AggregateOp(str(function))
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
        case ir.AggregateOp.COLLECT:
            if kind.is_list or kind.is_vector:
                text = f"values of type {kind} cannot be collected"
                raise scope.names.fail(aggregate.span, text, code="T8")
            return op, operand, ValueType(kind.scalar, is_list=True)
        case ir.AggregateOp.AVG | ir.AggregateOp.PERCENTILE | ir.AggregateOp.STDDEV:
            _require_numeric_or_text(scope, aggregate, kind, ordered=False)
            return op, operand, NUMBER
        case ir.AggregateOp.MIN | ir.AggregateOp.MAX:
            if function in _TRUTHS and (kind.scalar is not Scalar.BOOL or kind.is_list):
                text = f"{function} needs a condition, not {kind}"
                raise scope.names.fail(aggregate.span, text, code="T8")
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

    return Typer(scope.names, argument_reference, path=scope.path_value).value(argument)


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
