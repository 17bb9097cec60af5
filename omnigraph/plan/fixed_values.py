"""Constant expressions: values that parameters, literals and the moment of the request make up.

Invariant: what comes out reads no row, so it is a constant or a parameter that the request works
out once before anything is read.
"""

from omnigraph.catalog.near_names import did_you_mean
from omnigraph.language.query import ast
from omnigraph.language.query.teaching import value_hint
from omnigraph.plan import ir
from omnigraph.plan.expressions import type_of
from omnigraph.plan.operands import compatible, parameter_operand
from omnigraph.plan.scope import Names
from omnigraph.plan.typer import Typer
from omnigraph.types import ValueType


def fixed_value(names: Names, given: ast.Expr, target: ValueType, what: str) -> ir.Expr:
    """An expression that must have the type of `what`, or T7."""
    value = fixed_expression(names, given)
    kind = type_of(value)
    if not compatible(kind, target):
        text = f"{what} has type {target}, this is {kind}"
        raise names.fail(given.span, text, code="T7")
    return value


def fixed_expression(names: Names, given: ast.Expr) -> ir.Expr:
    """An expression that reads no row."""

    def reference(expression: ast.Expr) -> ir.Expr:
        if isinstance(expression, ast.Variable):
            parameter = parameter_operand(names, expression)
            if parameter is not None:
                return parameter
            text = f"${expression.name} is not a declared parameter"
            hint = did_you_mean(expression.name, names.parameters)
            raise names.fail(expression.span, text, code="T14", hint=hint)
        text = "only parameters and constants have a value here"
        word = expression.name if isinstance(expression, ast.Alias) else None
        hint = "write a parameter as $name" if word is None else value_hint(word)
        raise names.fail(expression.span, text, code="T14", hint=hint)

    return Typer(names, reference).value(given)
