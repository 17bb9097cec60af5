"""Tree builder for expressions of the query language: operators, calls, literals, conditions.

Invariant: one method a grammar rule, and a rule that only groups leaves no node. What a call means
is decided by its name alone: search, rankings and aggregates have nodes of their own, a date or a
moment with a text is a literal, and every other name is a `Call` that the checker looks up.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import fields, is_dataclass, replace
from typing import Any

from omnigraph.language.query import ast
from omnigraph.language.query.literals import duration_ms, integer, moment, require_one_type
from omnigraph.language.reader import Fault, token_span, unquote
from omnigraph.language.token import Token, is_token
from omnigraph.types import Scalar, Span

_TEXT_FUNCTIONS = frozenset(map(str, ast.TextFunction))
_AGGREGATES = frozenset(map(str, ast.AggregateFunction))
_MOMENTS = {"date": Scalar.DATE, "datetime": Scalar.DATETIME}
_WORD_OPERATORS = (
    ast.Comparator.CONTAINS,
    ast.Comparator.STARTS_WITH,
    ast.Comparator.ENDS_WITH,
    ast.Comparator.MATCHES,
)


def span_of(parts: Iterable[Any]) -> Span:
    """From the first part that has a position to the last one."""
    spans = [
        token_span(part) if is_token(part) else part.span for part in parts if part is not None
    ]
    return spans[0].to(spans[-1])


def name_of(token: Token) -> ast.Name:
    """A word as a name."""
    return ast.Name(str(token), span=token_span(token))


def variable_of(token: Token) -> ast.Variable:
    """A variable without its sigil."""
    return ast.Variable(str(token)[1:], span=token_span(token))


def rewritten(node: Any, change: Callable[[Any], Any]) -> Any:
    """The tree with `change` applied to every node, inner ones first."""
    if isinstance(node, tuple):
        return tuple(rewritten(each, change) for each in node)
    if not isinstance(node, ast.Node) or not is_dataclass(node):
        return node
    members = {
        member.name: rewritten(getattr(node, member.name), change)
        for member in fields(node)
        if member.name != "span"
    }
    return change(replace(node, **members))


def own_properties(node: Any) -> Any:
    """The tree of a mutation: its bare words are properties of the entity that is written."""
    return rewritten(node, _own)


def _own(node: Any) -> Any:
    match node:
        case ast.Alias(name=name, span=span):
            return ast.OwnProperty(ast.Name(name, span=span), span=span)
        case ast.Comparison(left=left):
            return replace(node, left=_own_subject(left))
        case ast.IsNull(subject=subject) | ast.Membership(subject=subject):
            return replace(node, subject=_own_subject(subject))
        case _:
            return node


def _own_subject(subject: ast.Expr) -> ast.Expr:
    """What is tested by itself is a property, also one that is called like a literal."""
    words = {True: "true", False: "false", None: "null"}
    if not isinstance(subject, ast.Literal) or subject.scalar not in (None, Scalar.BOOL):
        return subject
    assert subject.value is None or isinstance(subject.value, bool)
    name = ast.Name(words[subject.value], span=subject.span)
    return ast.OwnProperty(name, span=subject.span)


def as_condition(expression: ast.Expr) -> ast.Expr:
    """An expression where a condition stands."""
    if isinstance(expression, ast.TextCall):
        return ast.TextCondition(expression, span=expression.span)
    return expression


def as_edge(condition: ast.Expr) -> ast.Traversal | None:
    """`$a contains $b` as the traversal that it is: the operator's word names an edge."""
    match condition:
        case ast.Comparison(ast.Variable() as left, operator, ast.Variable() as right):
            word = str(operator) if operator in _WORD_OPERATORS else ""
        case ast.Membership(ast.Variable() as left, ast.Variable() as right):
            word = "in"
        case _:
            return None
    if not word or condition.span.start != left.span.start:  # it stands in parentheses
        return None
    span = Span(left.span.end, right.span.start)
    return ast.Traversal(left, ast.Name(word, span=span), right, span=condition.span)


def clauses_of_chain(parts: list[Any]) -> ast.And:
    """Two clauses or more, of which all but the first begin with a negative number."""
    conditions = list[ast.Expr]()
    left, operator, *rest = parts
    while len(rest) > 1:
        middle = rest[0]
        if not (
            isinstance(middle, ast.Arithmetic)
            and middle.operator is ast.ArithmeticOperator.SUBTRACT
            and isinstance(middle.right, ast.Literal)
            and isinstance(middle.right.value, int | float)
            and not isinstance(middle.right.value, bool)
        ):
            text, hint = f"unexpected '{rest[1]}'", "comparisons do not chain: join them with and"
            raise Fault(token_span(rest[1]), text, hint=hint)
        conditions.append(_compared(left, operator, middle.left))
        left, operator = replace(middle.right, value=-middle.right.value), rest[1]
        rest = rest[2:]
    conditions.append(_compared(left, operator, rest[0]))
    return ast.And(tuple(conditions), span=span_of(parts))


def _compared(left: ast.Expr, operator: Token, right: ast.Expr) -> ast.Expr:
    span = left.span.to(right.span)
    if operator.type == "IN":
        return ast.Membership(left, right, span=span)
    return ast.Comparison(left, ast.Comparator(str(operator)), right, span=span)


class ExpressionBuilder:
    """Builds expressions while the parser reduces. One method a grammar rule."""

    # Conditions

    def disjunction(self, parts: list[Any]) -> ast.Expr:
        return ast.Or(_joined(ast.Or, parts), span=span_of(parts))

    def conjunction(self, parts: list[Any]) -> ast.Expr:
        return ast.And(_joined(ast.And, parts), span=span_of(parts))

    def negated(self, parts: list[Any]) -> ast.Not:
        return ast.Not(as_condition(parts[1]), span=span_of(parts))

    def comparison(self, parts: list[Any]) -> ast.Comparison:
        left, comparator, right = parts
        return ast.Comparison(left, ast.Comparator(str(comparator)), right, span=span_of(parts))

    def exists(self, parts: list[Any]) -> ast.Exists:
        return ast.Exists(tuple(parts[1:]), span=span_of(parts))

    def is_null(self, parts: list[Any]) -> ast.IsNull:
        subject, _, negation = parts
        return ast.IsNull(subject, negation is not None, span=span_of((subject, negation)))

    def membership(self, parts: list[Any]) -> ast.Membership:
        subject, _, collection = parts
        return ast.Membership(subject, collection, span=span_of(parts))

    # Operators

    def arithmetic(self, parts: list[Any]) -> ast.Arithmetic:
        left, operator, right = parts
        kind = ast.ArithmeticOperator(str(operator))
        return ast.Arithmetic(kind, left, right, span=span_of(parts))

    def negative(self, parts: list[Any]) -> ast.Expr:
        sign, operand = parts
        if isinstance(operand, _Opposite):
            return replace(operand.literal, span=span_of((sign, operand.literal)))
        return ast.Negative(operand, span=span_of(parts))

    def negative_int(self, parts: list[Token]) -> "_Opposite":
        value = integer(parts[0], parts[0])
        return _Opposite(ast.Literal(value, Scalar.I64, span=token_span(parts[0])))

    def negative_float(self, parts: list[Token]) -> "_Opposite":
        return _Opposite(replace(self.float_literal(parts), value=-float(str(parts[0]))))

    def grouped(self, parts: list[Any]) -> Any:
        return replace(parts[1], span=span_of(parts))

    def case(self, parts: list[Any]) -> ast.Case:
        branches = tuple(part for part in parts if isinstance(part, ast.When))
        otherwise = parts[-2] if parts[-3] is not None else None
        return ast.Case(branches, otherwise, span=span_of(parts))

    def when(self, parts: list[Any]) -> ast.When:
        _, condition, _, value = parts
        return ast.When(as_condition(condition), value, span=span_of(parts))

    # References

    def variable(self, parts: list[Token]) -> ast.Variable:
        return variable_of(parts[0])

    def alias(self, parts: list[Token]) -> ast.Alias:
        return ast.Alias(str(parts[0]), span=token_span(parts[0]))

    def property_ref(self, parts: list[Token]) -> ast.PropertyRef:
        variable, name = parts
        return ast.PropertyRef(variable_of(variable), name_of(name), span=span_of(parts))

    def count_block(self, parts: list[Any]) -> ast.CountBlock:
        return ast.CountBlock(tuple(parts[1:]), span=span_of(parts))

    # Calls

    def call(self, parts: list[Any]) -> ast.Expr:
        function, *given = parts
        arguments = tuple(each for each in given if each is not None)
        span = span_of(parts)
        name = str(function)
        if name in _AGGREGATES and len(arguments) == (2 if name == "percentile" else 1):
            kind, (argument, *fraction) = ast.AggregateFunction(name), arguments
            return ast.Aggregate(kind, argument, False, *fraction, span=span)
        if name in _TEXT_FUNCTIONS:
            _require_arguments(function, arguments, 2, 3 if name == "fuzzy" else 2)
            return ast.TextCall(ast.TextFunction(name), *arguments, span=span)
        if name in ("nearest", "bm25", "rrf"):
            return _ranking(function, arguments, span)
        if name == "now" and not arguments:
            return ast.Now(span=token_span(function))
        if name in _MOMENTS and len(arguments) == 1 and _is_text(arguments[0]):
            return moment(token_span(function), arguments[0], _MOMENTS[name])
        return ast.Call(name_of(function), arguments, span=span)

    def call_distinct(self, parts: list[Any]) -> ast.Aggregate:
        function, _, argument = parts
        if str(function) not in _AGGREGATES or str(function) == "percentile":
            text = f"{function} takes no distinct"
            hint = "write count(distinct …) or collect(distinct …)"
            raise Fault(token_span(function), text, code="bad-call", hint=hint)
        kind = ast.AggregateFunction(str(function))
        return ast.Aggregate(kind, argument, True, span=span_of(parts))

    def call_rows(self, parts: list[Token]) -> ast.Aggregate:
        function, _ = parts
        if str(function) != ast.AggregateFunction.COUNT:
            text = f"{function}(*) means nothing"
            hint = f"write count(*) to count rows, or {function}($v.property)"
            raise Fault(token_span(function), text, code="bad-call", hint=hint)
        return ast.Aggregate(ast.AggregateFunction.COUNT, None, span=span_of(parts))

    def cast(self, parts: list[Any]) -> ast.Call:
        name, argument = parts
        return ast.Call(name_of(name), (argument,), span=span_of(parts))

    # Literals

    def null_literal(self, parts: list[Token]) -> ast.Literal:
        return ast.Literal(None, None, span=token_span(parts[0]))

    def true_literal(self, parts: list[Token]) -> ast.Literal:
        return ast.Literal(True, Scalar.BOOL, span=token_span(parts[0]))

    def false_literal(self, parts: list[Token]) -> ast.Literal:
        return ast.Literal(False, Scalar.BOOL, span=token_span(parts[0]))

    def string_literal(self, parts: list[Token]) -> ast.Literal:
        return ast.Literal(unquote(parts[0]), Scalar.STRING, span=token_span(parts[0]))

    def int_literal(self, parts: list[Token]) -> ast.Literal:
        return ast.Literal(integer(parts[0]), Scalar.I64, span=token_span(parts[0]))

    def float_literal(self, parts: list[Token]) -> ast.Literal:
        (digits,) = parts
        value = float(str(digits))
        if math.isinf(value):
            text = "the number does not fit a 64-bit float"
            raise Fault(token_span(digits), text, code="float-too-large")
        return ast.Literal(value, Scalar.F64, span=token_span(digits))

    def duration(self, parts: list[Token]) -> ast.Duration:
        return ast.Duration(duration_ms(parts[0]), span=token_span(parts[0]))

    def list_literal(self, parts: list[Any]) -> ast.ListLiteral:
        start, *items, end = parts
        given = tuple(item for item in items if item is not None)
        for item in given:
            if isinstance(item, ast.ListLiteral):
                raise Fault(item.span, "lists cannot be nested", code="bad-list")
            if not isinstance(item, ast.Literal):
                text, hint = "a list holds constants", "pass a list that varies as a parameter"
                if isinstance(item, ast.Alias):
                    name = item.name
                    hint = (
                        f'a text stands in quotes, "{name}"; an edge without an arrow, $a {name} $b'
                    )
                raise Fault(item.span, text, code="bad-list", hint=hint)
        require_one_type(given)
        return ast.ListLiteral(given, span=span_of((start, end)))


class _Opposite:
    """A number with its sign, until the sign is met."""

    def __init__(self, literal: ast.Literal) -> None:
        self.literal = literal
        self.span = literal.span


def _joined(kind: type[ast.And] | type[ast.Or], parts: list[Any]) -> tuple[Any, ...]:
    """`a and (b and c)` is `a and b and c`."""
    flat = list[ast.Expr]()
    for part in parts:
        if is_token(part):
            continue
        flat.extend(part.conditions if isinstance(part, kind) else (as_condition(part),))
    return tuple(flat)


def _is_text(expression: ast.Expr) -> bool:
    return isinstance(expression, ast.Literal) and expression.scalar is Scalar.STRING


def _require_arguments(function: Token, arguments: tuple[Any, ...], low: int, high: int) -> None:
    if low <= len(arguments) <= high:
        return
    count = str(low) if low == high else f"{low} or {high}"
    text = f"{function} takes {count} arguments, not {len(arguments)}"
    raise Fault(token_span(function), text, code="bad-call")


def _ranking(function: Token, arguments: tuple[Any, ...], span: Span) -> ast.Rank:
    name = str(function)
    _require_arguments(function, arguments, 2, 2 if name == "bm25" else 3)
    if name == "bm25":
        return ast.Bm25(*arguments, span=span)
    if name == "nearest":
        if not isinstance(arguments[0], ast.PropertyRef):
            text, hint = "nearest needs a property", "write nearest($v.property, query)"
            raise Fault(arguments[0].span, text, code="bad-call", hint=hint)
        return ast.Nearest(*arguments, span=span)
    for arm in arguments[:2]:
        if not isinstance(arm, ast.Nearest | ast.Bm25):
            text = "rrf fuses two rankings"
            hint = "write rrf(nearest(…), bm25(…))"
            raise Fault(arm.span, text, code="bad-call", hint=hint)
    return ast.Rrf(*arguments, span=span)
