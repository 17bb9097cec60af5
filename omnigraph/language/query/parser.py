"""Parser of `.gq` files: text to syntax tree.

Invariant: `parse_queries` returns a tree or raises `ParseError`. A mutation that mixes inserts or
updates with deletes is refused here, before anything else can look at it.
"""

import math
from collections.abc import Iterable
from typing import Any

from lark import Token, Transformer

from omnigraph.language.query import ast
from omnigraph.language.query.literals import (
    base_type,
    integer,
    moment,
    require_one_type,
    vector_dimension,
)
from omnigraph.language.reader import Fault, GrammarReader, token_span, unquote
from omnigraph.types import Scalar, Span, ValueType

RESERVED_PARAMETER = "__nanograph_now"

_TERMINALS = {
    "$END": "the end of the text",
    "AT": "'@'",
    "BANG": "'!'",
    "COLON": "':'",
    "COMMA": "','",
    "DOT": "'.'",
    "EQUAL": "'='",
    "FLOAT": "a number",
    "IDENT": "a name",
    "INT": "a number",
    "LBRACE": "'{'",
    "LESS": "'<'",
    "LESSTHAN": "'<'",
    "LIST_END": "']'",
    "LIST_START": "'['",
    "LPAR": "'('",
    "LSQB": "'['",
    "MINUS": "'-'",
    "MORETHAN": "'>'",
    "OPTIONAL_MARK": "'?'",
    "RBRACE": "'}'",
    "RPAR": "')'",
    "RSQB": "']'",
    "STRING": "a string",
    "TYPE": "a type name",
    "VAR": "a $variable",
    "__ANON_0": "'!='",
    "__ANON_1": "'>='",
    "__ANON_2": "'<='",
}


def parse_queries(source: str) -> ast.QueryFile:
    """The queries of a file, in order."""
    queries = _READER.read(source)
    return ast.QueryFile(queries=queries, source=source)


def _span(parts: Iterable[Any]) -> Span:
    """From the first part that has a place to the last one."""
    spans = [
        token_span(part) if isinstance(part, Token) else part.span
        for part in parts
        if part is not None
    ]
    return spans[0].to(spans[-1])


def _name(token: Token) -> ast.Name:
    return ast.Name(str(token), span=token_span(token))


def _edge(token: Token) -> ast.Name:
    if str(token) == "not":
        raise Fault(token_span(token), "an edge cannot be called 'not'", hint="write not { … }")
    return _name(token)


def _variable(token: Token) -> ast.Variable:
    return ast.Variable(str(token)[1:], span=token_span(token))


class _QueryBuilder(Transformer[Token, tuple[ast.Query, ...]]):
    """Builds the tree while the parser reduces. One method a grammar rule."""

    def start(self, queries: list[ast.Query]) -> tuple[ast.Query, ...]:
        return tuple(queries)

    def query(self, parts: list[Any]) -> ast.Query:
        keyword, name, parameters, *notes, body = parts
        texts = _notes(notes)
        if isinstance(body, ast.Mutation):
            _require_one_mode(str(name), body)
        return ast.Query(
            name=_name(name),
            parameters=parameters,
            body=body,
            description=texts.get("description"),
            instruction=texts.get("instruction"),
            span=_span((keyword, body)),
        )

    def params(self, parts: list[ast.Parameter | None]) -> tuple[ast.Parameter, ...]:
        parameters = tuple(part for part in parts if part is not None)
        seen = set[str]()
        for parameter in parameters:
            if parameter.name in seen:
                raise Fault(
                    parameter.span,
                    f"parameter ${parameter.name} is declared twice",
                    code="duplicate-parameter",
                    hint="give each parameter its own name",
                )
            seen.add(parameter.name)
        return parameters

    def param(self, parts: list[Any]) -> ast.Parameter:
        variable, value_type = parts
        name = str(variable)[1:]
        if name == RESERVED_PARAMETER:
            raise Fault(
                token_span(variable),
                f"parameter name ${RESERVED_PARAMETER} is reserved",
                code="reserved-parameter",
                hint="choose another name",
            )
        return ast.Parameter(name, value_type, span=token_span(variable))

    def scalar_type(self, parts: list[Token | None]) -> ValueType:
        name, dimension, mark = parts
        assert name is not None
        nullable = mark is not None
        if str(name) == Scalar.VECTOR and dimension is not None:
            return ValueType(Scalar.VECTOR, nullable, dimension=vector_dimension(dimension))
        if dimension is not None:
            raise Fault(token_span(dimension), f"type {name} takes no size", code="bad-type")
        return ValueType(base_type(name), nullable)

    def list_type(self, parts: list[Token | None]) -> ValueType:
        name, mark = parts
        assert name is not None
        return ValueType(base_type(name), nullable=mark is not None, is_list=True)

    def note(self, parts: list[Token]) -> tuple[Token, str]:
        name, text = parts
        return name, unquote(text)

    # Reads

    def read(self, parts: list[Any]) -> ast.Read:
        *rest, order, bounds = parts
        limit, offset = bounds or (None, None)
        clauses = tuple(part for part in rest if isinstance(part, ast.Clause))
        projections = tuple(part for part in rest if isinstance(part, ast.Projection))
        return ast.Read(
            clauses=clauses,
            projections=projections,
            distinct=any(isinstance(part, Token) for part in rest),
            orderings=order or (),
            limit=limit,
            offset=offset,
            span=_span((clauses[0], projections[-1])),
        )

    def binding(self, parts: list[Any]) -> ast.Binding:
        variable, type_name, *properties = parts
        matches = tuple(part for part in properties if part is not None)
        return ast.Binding(
            _variable(variable), _name(type_name), matches, span=_span((variable, type_name))
        )

    def prop_match(self, parts: list[Any]) -> ast.PropertyMatch:
        name, value = parts
        return ast.PropertyMatch(_name(name), value, span=_span(parts))

    def hops(self, parts: list[Token | None]) -> ast.Hops:
        low, high = parts
        assert low is not None
        return ast.Hops(integer(low), None if high is None else integer(high), span=_span(parts))

    def traverse(self, parts: list[Any]) -> ast.Traversal:
        left, edge, hops, right = parts
        return ast.Traversal(
            _variable(left), _edge(edge), _variable(right), hops=hops, span=_span(parts)
        )

    def traverse_undirected(self, parts: list[Any]) -> ast.Traversal:
        left, *_, edge, hops, right = parts
        return ast.Traversal(
            _variable(left),
            _edge(edge),
            _variable(right),
            undirected=True,
            hops=hops,
            span=_span(parts),
        )

    def traverse_bound(self, parts: list[Any]) -> ast.Traversal:
        return self._bound(parts, undirected=False)

    def traverse_bound_undirected(self, parts: list[Any]) -> ast.Traversal:
        return self._bound(parts, undirected=True)

    def _bound(self, parts: list[Any], *, undirected: bool) -> ast.Traversal:
        left, edge_variable, *_, edge, hops, right = parts
        return ast.Traversal(
            _variable(left),
            _edge(edge),
            _variable(right),
            edge_variable=_variable(edge_variable),
            undirected=undirected,
            hops=hops,
            span=_span(parts),
        )

    def negation(self, parts: list[Any]) -> ast.Negation:
        return ast.Negation(tuple(parts[1:]), span=_span(parts))

    def optional_block(self, parts: list[Any]) -> ast.OptionalBlock:
        return ast.OptionalBlock(tuple(parts[1:]), span=_span(parts))

    def filter(self, parts: list[ast.Condition]) -> ast.Filter:
        (condition,) = parts
        return ast.Filter(condition, span=condition.span)

    def projection(self, parts: list[Any]) -> ast.Projection:
        expression, alias = parts
        return ast.Projection(
            expression, None if alias is None else _name(alias), span=_span(parts)
        )

    def order(self, parts: list[ast.Ordering]) -> tuple[ast.Ordering, ...]:
        return tuple(parts)

    def ordering(self, parts: list[Any]) -> ast.Ordering:
        expression, direction = parts
        if isinstance(expression, ast.Nearest) and direction is not None:
            raise Fault(
                token_span(direction),
                f"nearest takes no direction, found '{direction}'",
                hint="nearest always puts the closest first",
            )
        return ast.Ordering(expression, direction == "desc", span=_span(parts))

    def limit_offset(self, parts: list[Token | None]) -> tuple[int | None, int | None]:
        limit, offset = (None if part is None else integer(part) for part in parts)
        return limit, offset

    def offset_limit(self, parts: list[Token | None]) -> tuple[int | None, int | None]:
        limit, offset = self.limit_offset(parts[::-1])
        return limit, offset

    # Conditions

    def disjunction(self, parts: list[ast.Condition]) -> ast.Condition:
        return parts[0] if len(parts) == 1 else ast.Or(_flat(ast.Or, parts), span=_span(parts))

    def conjunction(self, parts: list[ast.Condition]) -> ast.Condition:
        return parts[0] if len(parts) == 1 else ast.And(_flat(ast.And, parts), span=_span(parts))

    def negated(self, parts: list[Any]) -> ast.Not:
        return ast.Not(parts[1], span=_span(parts))

    def comparison(self, parts: list[Any]) -> ast.Comparison:
        left, comparator, right = parts
        return ast.Comparison(left, ast.Comparator(str(comparator)), right, span=_span(parts))

    def variable_comparison(self, parts: list[Any]) -> ast.Comparison:
        variable, comparator, right = parts
        return self.comparison([_variable(variable), comparator, right])

    def text_condition(self, parts: list[ast.TextCall]) -> ast.TextCondition:
        return ast.TextCondition(parts[0], span=parts[0].span)

    def exists(self, parts: list[Any]) -> ast.Exists:
        return ast.Exists(tuple(parts[1:]), span=_span(parts))

    def is_null(self, parts: list[Any]) -> ast.IsNull:
        subject, negation = parts
        return ast.IsNull(subject, negation is not None, span=_span(parts))

    def variable_is_null(self, parts: list[Any]) -> ast.IsNull:
        variable, negation = parts
        return self.is_null([_variable(variable), negation])

    def membership(self, parts: list[Any]) -> ast.Membership:
        subject, collection = parts
        return ast.Membership(subject, collection, span=_span(parts))

    def variable_membership(self, parts: list[Any]) -> ast.Membership:
        variable, collection = parts
        return self.membership([_variable(variable), collection])

    # Expressions

    def variable(self, parts: list[Token]) -> ast.Variable:
        return _variable(parts[0])

    def alias(self, parts: list[Token]) -> ast.Alias:
        return ast.Alias(str(parts[0]), span=token_span(parts[0]))

    def own_property(self, parts: list[Token]) -> ast.OwnProperty:
        return ast.OwnProperty(_name(parts[0]), span=token_span(parts[0]))

    def property_ref(self, parts: list[Token]) -> ast.PropertyRef:
        variable, name = parts
        return ast.PropertyRef(_variable(variable), _name(name), span=_span(parts))

    def count_block(self, parts: list[Any]) -> ast.CountBlock:
        return ast.CountBlock(tuple(parts[1:]), span=_span(parts))

    def text_call(self, parts: list[Any]) -> ast.TextCall:
        function, subject, query, *edits = parts
        return ast.TextCall(
            ast.TextFunction(str(function)),
            subject,
            query,
            edits[0] if edits else None,
            span=_span(parts),
        )

    def nearest(self, parts: list[Any]) -> ast.Nearest:
        _, variable, name, query = parts
        return ast.Nearest(self.property_ref([variable, name]), query, span=_span(parts))

    def bm25(self, parts: list[Any]) -> ast.Bm25:
        _, subject, query = parts
        return ast.Bm25(subject, query, span=_span(parts))

    def rrf(self, parts: list[Any]) -> ast.Rrf:
        _, first, second, k = parts
        return ast.Rrf(first, second, k, span=_span(parts))

    def aggregate(self, parts: list[Any]) -> ast.Aggregate:
        function, argument = parts
        return ast.Aggregate(
            ast.AggregateFunction(str(function)), argument, False, span=_span(parts)
        )

    def count_distinct(self, parts: list[Any]) -> ast.Aggregate:
        return ast.Aggregate(ast.AggregateFunction.COUNT, parts[-1], True, span=_span(parts))

    # Literals

    def null_literal(self, parts: list[Token]) -> ast.Literal:
        return ast.Literal(None, None, span=token_span(parts[0]))

    def true_literal(self, parts: list[Token]) -> ast.Literal:
        return ast.Literal(True, Scalar.BOOL, span=token_span(parts[0]))

    def false_literal(self, parts: list[Token]) -> ast.Literal:
        return ast.Literal(False, Scalar.BOOL, span=token_span(parts[0]))

    def string_literal(self, parts: list[Token]) -> ast.Literal:
        return ast.Literal(unquote(parts[0]), Scalar.STRING, span=token_span(parts[0]))

    def int_literal(self, parts: list[Any]) -> ast.Literal:
        sign, digits = parts
        return ast.Literal(integer(digits, sign), Scalar.I64, span=_span(parts))

    def float_literal(self, parts: list[Any]) -> ast.Literal:
        sign, digits = parts
        value = float(str(digits))
        if math.isinf(value):
            raise Fault(
                token_span(digits), "the number does not fit a 64-bit float", code="float-too-large"
            )
        return ast.Literal(-value if sign is not None else value, Scalar.F64, span=_span(parts))

    def date_literal(self, parts: list[Token]) -> ast.Literal:
        return moment(parts, Scalar.DATE)

    def datetime_literal(self, parts: list[Token]) -> ast.Literal:
        return moment(parts, Scalar.DATETIME)

    def list_literal(self, parts: list[Any]) -> ast.ListLiteral:
        start, *items, end = parts
        literals = tuple(item for item in items if item is not None)
        for item in literals:
            if isinstance(item, ast.ListLiteral):
                raise Fault(item.span, "lists cannot be nested", code="bad-list")
        require_one_type(literals)
        return ast.ListLiteral(literals, span=_span((start, end)))

    def now(self, parts: list[Token]) -> ast.Now:
        return ast.Now(span=token_span(parts[0]))

    # Mutations

    def mutation(self, parts: list[ast.Statement]) -> ast.Mutation:
        return ast.Mutation(tuple(parts), span=_span(parts))

    def assign(self, parts: list[Any]) -> ast.Assignment:
        name, value = parts
        return ast.Assignment(_name(name), value, span=_span(parts))

    def insert(self, parts: list[Any]) -> ast.Insert:
        _, type_name, *assignments = parts
        return ast.Insert(_name(type_name), tuple(assignments), span=_span(parts))

    def upsert(self, parts: list[Any]) -> ast.Upsert:
        _, type_name, *assignments = parts
        return ast.Upsert(_name(type_name), tuple(assignments), span=_span(parts))

    def update(self, parts: list[Any]) -> ast.Update:
        _, type_name, *assignments, where = parts
        return ast.Update(_name(type_name), tuple(assignments), where, span=_span(parts))

    def delete(self, parts: list[Any]) -> ast.Delete:
        _, type_name, where = parts
        return ast.Delete(_name(type_name), where, span=_span(parts))


def _flat(kind: type[ast.And] | type[ast.Or], parts: list[ast.Condition]) -> tuple[Any, ...]:
    """`a and (b and c)` is `a and b and c`."""
    flat = list[ast.Condition]()
    for part in parts:
        flat.extend(part.conditions if isinstance(part, kind) else (part,))
    return tuple(flat)


def _notes(notes: list[tuple[Token, str]]) -> dict[str, str]:
    texts = dict[str, str]()
    for name, text in notes:
        if str(name) not in ("description", "instruction"):
            raise Fault(
                token_span(name),
                f"unknown annotation @{name} on a query",
                code="bad-annotation",
                hint="use @description or @instruction",
            )
        if str(name) in texts:
            raise Fault(token_span(name), f"@{name} appears twice", code="bad-annotation")
        texts[str(name)] = text
    return texts


def _require_one_mode(name: str, mutation: ast.Mutation) -> None:
    """D₂: inserts and updates, or deletes."""
    first = mutation.statements[0]
    deletes = isinstance(first, ast.Delete)
    for statement in mutation.statements:
        if isinstance(statement, ast.Delete) != deletes:
            raise Fault(
                statement.span,
                f"mutation '{name}' on the same query mixes inserts/updates and deletes; split "
                "into separate mutations: (1) inserts and updates, then (2) deletes",
                code="D2",
                hint="or run both on a branch and merge it, which is one commit",
            )


_READER: GrammarReader[tuple[ast.Query, ...]] = GrammarReader(
    package="omnigraph.language.query", start="start", builder=_QueryBuilder, terminals=_TERMINALS
)
