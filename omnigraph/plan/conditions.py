"""Conditions of a query to typed predicates.

Invariant: a predicate compares only what can be compared. Inner patterns of a condition become
slots; the pattern checker that is handed in checks them and keeps what fills the slots.
"""

from collections.abc import Callable
from typing import assert_never

from omnigraph.language.query import ast
from omnigraph.plan import ir
from omnigraph.plan.operands import (
    BOOL,
    COUNT,
    NOW,
    UNTYPED_NULL,
    compatible,
    element,
    literal_operand,
    parameter_operand,
    property_operand,
    require_comparable,
)
from omnigraph.plan.scope import EdgeVar, Scope
from omnigraph.plan.search_calls import text_match
from omnigraph.types import Scalar, Span, ValueType

InnerPattern = Callable[[Scope, tuple[ast.Clause, ...], Span, bool], ir.Slot]
"""Checks an inner pattern and answers the slot that will hold whether, or how often, it matches."""


def condition_predicate(
    scope: Scope, condition: ast.Condition, inner_pattern: InnerPattern
) -> ir.Expr:
    """The predicate of a condition in `match`."""
    match condition:
        case ast.Comparison():
            return _comparison(scope, condition, inner_pattern)
        case ast.IsNull(subject=subject, negated=negated):
            return ir.IsNull(_nullable_subject(scope, subject, inner_pattern), negated)
        case ast.Membership(subject=subject, collection=collection):
            value = operand(scope, subject, inner_pattern)
            return membership(scope, value, collection, subject.span)
        case ast.TextCondition(call=call):
            return text_match(scope, call)
        case ast.Exists(clauses=clauses, span=span):
            return ir.SlotRef(inner_pattern(scope, clauses, span, True), BOOL)
        case ast.Not(condition=inner):
            return ir.Not(condition_predicate(scope, inner, inner_pattern))
        case ast.And(conditions=parts):
            return ir.And(tuple(condition_predicate(scope, p, inner_pattern) for p in parts))
        case ast.Or(conditions=parts):
            return ir.Or(tuple(condition_predicate(scope, p, inner_pattern) for p in parts))
        case _:
            assert_never(condition)


def operand(scope: Scope, expression: ast.Expr, inner_pattern: InnerPattern) -> ir.Operand:
    """One side of a comparison."""
    names = scope.names
    match expression:
        case ast.Literal() | ast.ListLiteral():
            return literal_operand(expression)
        case ast.Now():
            return NOW
        case ast.PropertyRef():
            return property_operand(scope, expression)
        case ast.Variable():
            return _variable(scope, expression)
        case ast.CountBlock(clauses=clauses, span=span):
            return ir.SlotRef(inner_pattern(scope, clauses, span, False), COUNT)
        case ast.Aggregate():
            raise names.fail(
                expression.span,
                f"{expression.function}(…) cannot be used in a filter",
                code="T7",
                hint="count { … } counts the solutions of an inner pattern",
            )
        case ast.Nearest() | ast.Bm25() | ast.Rrf():
            text = "a ranking cannot be used in a filter"
            raise names.fail(expression.span, text, code="T7", hint="use it in order or return")
        case ast.TextCall():
            text = "a text condition can only be compared with = or !="
            raise names.fail(expression.span, text, code="T7")
        case ast.Alias(name=name):
            text = f"the alias '{name}' has no value in a filter"
            hint = f"a variable is written ${name}, a text in quotes"
            raise names.fail(expression.span, text, code="T7", hint=hint)
        case ast.OwnProperty():
            raise AssertionError("the grammar has bare properties in mutations only")
        case _:
            assert_never(expression)


def _variable(scope: Scope, variable: ast.Variable) -> ir.Operand:
    names = scope.names
    parameter = parameter_operand(names, variable)
    if parameter is not None:
        return parameter
    bound = scope.find(variable.name)
    if bound is None:
        raise names.fail(variable.span, f"variable ${variable.name} is not bound")
    code = "T23" if isinstance(bound, EdgeVar) else "T7"
    text = f"${variable.name} is an entity, not a value"
    hint = f"compare a property, or ${variable.name}.id"
    raise names.fail(variable.span, text, code=code, hint=hint)


def _nullable_subject(
    scope: Scope, expression: ast.Expr, inner_pattern: InnerPattern
) -> ir.Operand:
    """What `is null` may ask about: any value, and whether an optional variable was bound."""
    if isinstance(expression, ast.Variable) and expression.name not in scope.names.parameters:
        bound = scope.find(expression.name)
        if bound is not None:
            return ir.EntityId(bound.var, ValueType(Scalar.STRING, bound.optional))
    return operand(scope, expression, inner_pattern)


def _comparison(scope: Scope, comparison: ast.Comparison, inner_pattern: InnerPattern) -> ir.Expr:
    left, right = comparison.left, comparison.right
    if isinstance(left, ast.TextCall) or isinstance(right, ast.TextCall):
        return _text_polarity(scope, comparison)
    return compare(
        scope,
        comparison,
        operand(scope, left, inner_pattern),
        operand(scope, right, inner_pattern),
    )


def _text_polarity(scope: Scope, comparison: ast.Comparison) -> ir.Expr:
    """`search(…) = true`, `search(…) != false` and their opposites."""
    left, right = comparison.left, comparison.right
    call, polarity = (left, right) if isinstance(left, ast.TextCall) else (right, left)
    equal = comparison.comparator is ast.Comparator.EQ
    if (
        not isinstance(call, ast.TextCall)
        or not isinstance(polarity, ast.Literal)
        or polarity.scalar is not Scalar.BOOL
        or comparison.comparator not in (ast.Comparator.EQ, ast.Comparator.NE)
    ):
        raise scope.names.fail(
            comparison.span,
            "a text condition can only be compared with true or false, by = or !=",
            code="T7",
        )
    predicate = text_match(scope, call)
    return predicate if equal == bool(polarity.value) else ir.Not(predicate)


def compare(
    scope: Scope, comparison: ast.Comparison, left: ir.Operand, right: ir.Operand
) -> ir.Expr:
    """The predicate of two operands, or T7."""
    match comparison.comparator:
        case ast.Comparator.CONTAINS:
            return _contains(scope, comparison, left, right)
        case ast.Comparator.STARTS_WITH:
            if not (_is_text(left) and _is_text(right)):
                text = f"starts_with needs two strings, not {left.type} and {right.type}"
                raise scope.names.fail(comparison.span, text, code="T7")
            return ir.TextContains(left, right, prefix=True)
        case (
            ast.Comparator.EQ
            | ast.Comparator.NE
            | ast.Comparator.LT
            | ast.Comparator.LE
            | ast.Comparator.GT
            | ast.Comparator.GE
        ) as comparator:
            left, right = _typed_nulls(left, right)
            require_comparable(scope.names, left, comparison.left.span)
            require_comparable(scope.names, right, comparison.right.span)
            if not compatible(left.type, right.type):
                text = f"cannot compare {left.type} with {right.type}"
                raise scope.names.fail(
                    comparison.span, text, code="T7", hint=_moment_hint(left.type, right.type)
                )
            return ir.Compare(ir.CompareOp(str(comparator)), left, right)
        case _:
            assert_never(comparison.comparator)


def _typed_nulls(left: ir.Operand, right: ir.Operand) -> tuple[ir.Operand, ir.Operand]:
    """A `null` takes the type of the other side."""
    if left is UNTYPED_NULL:
        return ir.Const(None, right.type), right
    if right is UNTYPED_NULL:
        return left, ir.Const(None, left.type)
    return left, right


def _moment_hint(left: ValueType, right: ValueType) -> str:
    scalars = {left.scalar, right.scalar}
    if Scalar.STRING not in scalars:
        return ""
    if Scalar.DATE in scalars:
        return 'write a date as date("2024-01-31")'
    if Scalar.DATETIME in scalars:
        return 'write a moment as datetime("2024-01-31T10:00:00Z")'
    return ""


def _is_text(value: ir.Operand) -> bool:
    return value is UNTYPED_NULL or value.type.is_text


def _contains(
    scope: Scope, comparison: ast.Comparison, left: ir.Operand, right: ir.Operand
) -> ir.Expr:
    if left.type.is_list and not left.type.is_blob:
        if right is UNTYPED_NULL or compatible(element(left.type), right.type):
            return ir.ListContains(left, right)
    elif _is_text(left) and _is_text(right):
        return ir.TextContains(left, right, prefix=False)
    text = f"contains needs a list and an element, or two strings, not {left.type} and {right.type}"
    raise scope.names.fail(comparison.span, text, code="T7")


def membership(
    scope: Scope,
    value: ir.Operand,
    collection: ast.ListLiteral | ast.Variable | ast.PropertyRef,
    span: Span,
) -> ir.Expr:
    """`value in collection`, or T7."""
    names = scope.names
    require_comparable(names, value, span)
    items = _collection(scope, collection)
    if not items.type.is_list:
        text = f"in needs a list, not {items.type}"
        raise names.fail(collection.span, text, code="T7", hint="declare the parameter as [String]")
    empty = isinstance(collection, ast.ListLiteral) and not collection.items
    if value is UNTYPED_NULL or empty:
        return ir.ListContains(items, value)
    if not compatible(element(items.type), value.type):
        text = f"a {value.type} is never in a list of type {items.type}"
        raise names.fail(collection.span, text, code="T7")
    return ir.ListContains(items, value)


def _collection(
    scope: Scope, collection: ast.ListLiteral | ast.Variable | ast.PropertyRef
) -> ir.Operand:
    match collection:
        case ast.ListLiteral():
            return literal_operand(collection)
        case ast.PropertyRef():
            return property_operand(scope, collection)
        case ast.Variable():
            return _variable(scope, collection)
        case _:
            assert_never(collection)
