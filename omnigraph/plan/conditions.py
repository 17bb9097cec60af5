"""Conditions of a query to typed predicates.

Invariant: a predicate compares only what can be compared. Inner patterns of a condition become
slots; the pattern checker that is handed in checks them and keeps what fills the slots.
"""

from collections.abc import Callable

from omnigraph.language.query import ast
from omnigraph.language.query.teaching import value_hint
from omnigraph.light_dataclass import dataclass
from omnigraph.plan import ir
from omnigraph.plan.operands import BOOL, COUNT, parameter_operand, property_operand
from omnigraph.plan.scope import EdgeVar, Scope
from omnigraph.plan.search_calls import text_match
from omnigraph.plan.typer import Typer
from omnigraph.types import Scalar, Span, ValueType

InnerPattern = Callable[[Scope, tuple[ast.Clause, ...], Span, bool], ir.Slot]
"""Checks an inner pattern and answers the slot that will hold whether, or how often, it matches."""


def condition_predicate(scope: Scope, condition: ast.Expr, inner_pattern: InnerPattern) -> ir.Expr:
    """The predicate of a condition in `match`."""
    references = _References(scope, inner_pattern)
    typer = Typer(scope.names, references.of, references.entity, scope.path_value)
    return scope.names.with_terms(typer.truth(condition), condition.span)


def expression_value(scope: Scope, value: ast.Expr, inner_pattern: InnerPattern) -> ir.Expr:
    """The value of an expression in `match`."""
    references = _References(scope, inner_pattern)
    return Typer(scope.names, references.of, references.entity, scope.path_value).value(value)


@dataclass(frozen=True, slots=True)
class _References:
    """The meaning of names and calls in `match`."""

    scope: Scope
    inner_pattern: InnerPattern

    def of(self, expression: ast.Expr) -> ir.Expr:
        scope, names = self.scope, self.scope.names
        match expression:
            case ast.PropertyRef():
                return property_operand(scope, expression)
            case ast.Variable():
                return self._variable(expression)
            case ast.CountBlock(clauses=clauses, span=span):
                return ir.SlotRef(self.inner_pattern(scope, clauses, span, False), COUNT)
            case ast.Exists(clauses=clauses, span=span):
                return ir.SlotRef(self.inner_pattern(scope, clauses, span, True), BOOL)
            case ast.TextCondition(call=call):
                return text_match(scope, call)
            case ast.TextCall():
                return text_match(scope, expression)
            case ast.Aggregate():
                raise names.fail(
                    expression.span,
                    f"{expression.function}(…) cannot be used in a filter",
                    code="T7",
                    hint="count { … } counts the solutions of an inner pattern; having { … } "
                    "comes after return",
                )
            case ast.Nearest() | ast.Bm25() | ast.Rrf():
                text = "a ranking cannot be used in a filter"
                raise names.fail(expression.span, text, code="T7", hint="use it in order or return")
            case ast.Alias(name=name):
                text = f"the alias '{name}' has no value in a filter"
                raise names.fail(expression.span, text, code="T7", hint=value_hint(name))
            case _:
                raise AssertionError(f"{expression} is no reference of a pattern")

    def entity(self, variable: ast.Variable) -> ir.Expr | None:
        """What `is null` may ask about besides values: whether an optional variable was bound."""
        if variable.name in self.scope.names.parameters:
            return None
        bound = self.scope.find(variable.name)
        if bound is None:
            return None
        return ir.EntityId(bound.var, ValueType(Scalar.STRING, bound.optional))

    def _variable(self, variable: ast.Variable) -> ir.Expr:
        names = self.scope.names
        parameter = parameter_operand(names, variable)
        if parameter is not None:
            return parameter
        element = self.scope.element(variable.name)
        if element is not None:
            return element
        if self.scope.path(variable.name) is not None:
            raise self.scope.no_value(variable)
        bound = self.scope.find(variable.name)
        if bound is None:
            raise names.unbound(variable.name, variable.span, is_value=True)
        code = "T23" if isinstance(bound, EdgeVar) else "T7"
        text = f"${variable.name} is an entity, not a value"
        hint = f"compare a property, or ${variable.name}.id"
        raise names.fail(variable.span, text, code=code, hint=hint)
