"""Type checking of search calls: text conditions, BM25, nearest neighbours and rank fusion.

Invariant: a call names a property that can be searched that way and a query value that fits it, so
no executor meets a text search on a number or a vector of another length.
"""

from typing import assert_never

from omnigraph.catalog.indexes import Metric
from omnigraph.catalog.near_names import did_you_mean
from omnigraph.language.query import ast
from omnigraph.plan import ir
from omnigraph.plan.fixed_values import fixed_expression
from omnigraph.plan.operands import (
    literal_operand,
    parameter_operand,
    property_operand,
)
from omnigraph.plan.scope import EdgeVar, NodeVar, Scope
from omnigraph.types import INTEGERS, Scalar, Span, ValueType

FUZZY_EDITS = ir.Const(2, ValueType(Scalar.I64))
RRF_K = ir.Const(60, ValueType(Scalar.I64))


def text_match(scope: Scope, call: ast.TextCall) -> ir.TextMatch:
    """The predicate of `search`, `match_text` or `fuzzy`."""
    code = _text_code(call.function)
    column = _text_column(scope, call.subject, str(call.function), code)
    query = _text_query(scope, call.query, str(call.function), code)
    match call.function:
        case ast.TextFunction.SEARCH | ast.TextFunction.MATCH_TEXT:
            return ir.TextMatch(ir.TextMode.ANY_TOKEN, column, query)
        case ast.TextFunction.FUZZY:
            edits: ir.Expr = FUZZY_EDITS
            if call.edits is not None:
                edits = _integer(scope, call.edits, "the edit distance of fuzzy", code, low=0)
            return ir.TextMatch(ir.TextMode.FUZZY, column, query, edits)
        case _:
            assert_never(call.function)


def _text_code(function: ast.TextFunction) -> str:
    match function:
        case ast.TextFunction.SEARCH | ast.TextFunction.FUZZY:
            return "T19"
        case ast.TextFunction.MATCH_TEXT:
            return "T20"
        case _:
            assert_never(function)


def ranking(scope: Scope, call: ast.Rank, limit: int | None) -> ir.Ranking:
    """The typed ranking. Fusion needs to know how many rows are wanted."""
    match call:
        case ast.Nearest():
            return _nearest(scope, call)
        case ast.Bm25():
            return _bm25(scope, call)
        case ast.Rrf():
            return _rrf(scope, call, limit)
        case _:
            assert_never(call)


def _require_concrete(scope: Scope, subject: ast.PropertyRef, function: str, code: str) -> None:
    bound = scope.find(subject.variable.name)
    if isinstance(bound, NodeVar) and scope.names.is_interface(bound.node):
        text = f"{function} searches one node type, {bound.node.name} is an interface"
        hint = "write a query for each type, or compare with contains"
        raise scope.names.fail(subject.span, text, code=code, hint=hint)


def _text_column(scope: Scope, subject: ast.Expr, function: str, code: str) -> ir.Column:
    names = scope.names
    if not isinstance(subject, ast.PropertyRef):
        text = f"{function} searches a property like $d.title"
        raise names.fail(subject.span, text, code=code)
    _require_node(scope, subject, function)
    _require_concrete(scope, subject, function, code)
    column = property_operand(scope, subject)
    if not isinstance(column, ir.Column) or not column.type.is_text:
        text = f"{function} needs a String property, '{subject.property}' is {column.type}"
        raise names.fail(subject.span, text, code=code)
    return column


def _require_node(scope: Scope, subject: ast.PropertyRef, function: str) -> None:
    if isinstance(scope.find(subject.variable.name), EdgeVar):
        text = f"{function} cannot search the edge ${subject.variable.name}"
        raise scope.names.fail(subject.span, text, code="T23", hint="only nodes can be searched")


def _text_query(scope: Scope, query: ast.Expr, function: str, code: str) -> ir.Expr:
    value = _given(scope, query)
    if value is None or not value.type.is_text:
        actual = "" if value is None else f", not {value.type}"
        text = f"the query of {function} must be a String{actual}"
        hint = "write a string or a String parameter"
        raise scope.names.fail(query.span, text, code=code, hint=hint)
    return value


def _given(scope: Scope, expression: ast.Expr) -> ir.Const | ir.Param | None:
    """A constant or a parameter; nothing that differs from row to row."""
    match expression:
        case ast.Literal() | ast.ListLiteral():
            return literal_operand(expression)
        case ast.Variable():
            return parameter_operand(scope.names, expression)
        case ast.Arithmetic() | ast.Call() | ast.Case():
            value = fixed_expression(scope.names, expression)
            return value if isinstance(value, ir.Const | ir.Param) else None
        case _:
            return None


def _integer(scope: Scope, expression: ast.Expr, what: str, code: str, *, low: int) -> ir.Expr:
    value = _given(scope, expression)
    if value is None or value.type.is_list or value.type.scalar not in INTEGERS:
        raise scope.names.fail(expression.span, f"{what} must be an integer", code=code)
    if isinstance(value, ir.Const) and isinstance(value.value, int) and value.value < low:
        raise scope.names.fail(expression.span, f"{what} must be at least {low}", code=code)
    return value


def _nearest(scope: Scope, call: ast.Nearest) -> ir.Nearest:
    names, subject = scope.names, call.subject
    _require_node(scope, subject, "nearest")
    _require_concrete(scope, subject, "nearest", "T15")
    column = property_operand(scope, subject, code="T15")
    if not isinstance(column, ir.Column) or not column.type.is_vector:
        text = f"nearest needs a Vector property, '{subject.property}' is {column.type}"
        raise names.fail(subject.span, text, code="T15")
    bound = scope.find(subject.variable.name)
    assert isinstance(bound, NodeVar)
    declared = bound.node.property(column.name)
    embed = declared.embed if declared is not None else None
    query = _vector_query(scope, call.query, column.type)
    metric = Metric.L2 if declared is None else declared.metric
    if call.metric is not None:
        metric = _metric(scope, call.metric)
    model = embed.model if embed is not None else None
    return ir.Nearest(column, query, model, metric, bound.node.id)


def _metric(scope: Scope, given: ast.Expr) -> Metric:
    """A metric by its name, as a text or a bare word."""
    name = given.name if isinstance(given, ast.Alias) else None
    if isinstance(given, ast.Literal) and isinstance(given.value, str):
        name = given.value
    if name not in list(Metric):
        text = "nearest has no such metric" if name else "the metric of nearest is a name"
        hint = did_you_mean(name or "", Metric)
        raise scope.names.fail(given.span, text, code="T15", hint=hint)
    return Metric(name)


def _vector_query(scope: Scope, query: ast.Expr, vector: ValueType) -> ir.Expr:
    value = _given(scope, query)
    if isinstance(query, ast.ListLiteral) and isinstance(value, ir.Const):
        value = _vector_constant(query, value)
    if value is not None and (value.type.is_text or value.type.is_vector):
        if value.type.is_text or value.type.dimension == vector.dimension:
            return value
        text = f"the query has {value.type.dimension} numbers, the property {vector.dimension}"
        raise scope.names.fail(query.span, text, code="T15")
    text = f"nearest needs a query of type {vector.scalar}({vector.dimension}) or String"
    hint = "it is a parameter or a constant, the same for every row"
    if isinstance(query, ast.PropertyRef):
        hint += "; compare the vectors of two nodes with cosine(a, b)"
    raise scope.names.fail(query.span, text, code="T15", hint=hint)


def _vector_constant(query: ast.ListLiteral, value: ir.Const) -> ir.Const:
    numbers = [item.value for item in query.items if item.scalar in (Scalar.I64, Scalar.F64)]
    if not numbers or len(numbers) != len(query.items):
        return value
    floats = tuple(float(number) for number in numbers if number is not None)
    return ir.Const(floats, ValueType(Scalar.VECTOR, dimension=len(floats)))


def _bm25(scope: Scope, call: ast.Bm25) -> ir.Bm25:
    column = _text_column(scope, call.subject, "bm25", "T20")
    return ir.Bm25(column, _text_query(scope, call.query, "bm25", "T20"))


def _rrf(scope: Scope, call: ast.Rrf, limit: int | None) -> ir.Rrf:
    if limit is None:
        raise _needs_limit(scope, call.span, "rrf", "T21")
    first, second = (_arm(scope, arm) for arm in (call.first, call.second))
    k: ir.Expr = RRF_K
    if call.k is not None:
        k = _integer(scope, call.k, "the k of rrf", "T21", low=1)
    return ir.Rrf(first, second, k, depth=limit)


def _arm(scope: Scope, arm: ast.Nearest | ast.Bm25) -> ir.Nearest | ir.Bm25:
    return _nearest(scope, arm) if isinstance(arm, ast.Nearest) else _bm25(scope, arm)


def _needs_limit(scope: Scope, span: Span, function: str, code: str) -> Exception:
    text = f"{function} needs a limit"
    return scope.names.fail(span, text, code=code, hint="add limit n after order")


def require_nearest_limit(
    scope: Scope, call: ast.Nearest, limit: int | ast.Variable | None
) -> None:
    """T17: ordering by distance without saying how many."""
    if limit is None:
        raise _needs_limit(scope, call.span, "nearest", "T17")
