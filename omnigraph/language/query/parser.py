"""Parser of `.gq` files: text to syntax tree.

Invariant: `parse_queries` returns a tree or raises `ParseError`. A mutation that mixes inserts or
updates with deletes is refused here, before anything else can look at it.
"""

import re
from typing import Any

from omnigraph.language.query import ast
from omnigraph.language.query.expression_builder import (
    ExpressionBuilder,
    as_condition,
    as_edge,
    clauses_of_chain,
    own_properties,
)
from omnigraph.language.query.expression_builder import name_of as _name
from omnigraph.language.query.expression_builder import span_of as _span
from omnigraph.language.query.expression_builder import variable_of as _variable
from omnigraph.language.query.literals import base_type, integer, vector_dimension
from omnigraph.language.query.teaching import end_hint, syntax_hint, word_hint
from omnigraph.language.reader import Fault, GrammarReader, token_span, unquote
from omnigraph.language.token import Token, is_token
from omnigraph.types import Scalar, ValueType

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
    "BOTH_WAYS": "'<'",
    "CAST": "a name",
    "DURATION": "a number",
    "FUNCTION": "a name",
    "KEY": "a name",
    "KEYWORD_NAME": "a name",
    "MINUS": "'-'",
    "OPERATOR_EDGE": "a name",
    "PATH": "a name",
    "PATH_VAR": "a $variable",
    "PERCENT": "'%'",
    "VBAR": "'|'",
    "PLUS": "'+'",
    "SIGN": "'-'",
    "SLASH": "'/'",
    "STAR": "'*'",
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


def _edge(token: Token) -> ast.Name:
    if str(token) == "not":
        raise Fault(token_span(token), "an edge cannot be called 'not'", hint="write not { … }")
    return _name(token)


_EDGE = re.compile(r"/\*.*?\*/|//[^\n]*\n|([A-Za-z0-9_]+)", re.DOTALL)


def _inside(edges: Token) -> tuple[Token, ...]:
    """The names between `<` and `>`."""
    start = token_span(edges).start
    return tuple(
        Token(edges.type, match[1], start_pos=start + match.start(1), end_pos=start + match.end(1))
        for match in _EDGE.finditer(str(edges))
        if match[1]
    )


def _traversal(
    left: Token,
    edges: tuple[Token, ...],
    rest: list[Any],
    *,
    bound: Token | None = None,
    undirected: bool = False,
) -> ast.Traversal:
    hops, right, via, by, where = rest
    edge, *others = map(_edge, edges)
    return ast.Traversal(
        _variable(left),
        edge,
        _variable(right),
        edge_variable=None if bound is None else _variable(bound),
        undirected=undirected,
        hops=hops,
        others=tuple(others),
        via=via,
        by=by,
        where=where,
        span=_span((left, right)),
    )


class _QueryBuilder(ExpressionBuilder):
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
        variable, value_type, default = parts
        name = str(variable)[1:]
        if name == RESERVED_PARAMETER:
            raise Fault(
                token_span(variable),
                f"parameter name ${RESERVED_PARAMETER} is reserved",
                code="reserved-parameter",
                hint="choose another name",
            )
        return ast.Parameter(name, value_type, default, span=token_span(variable))

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
        *rest, having, order, bounds = parts
        limit, offset = bounds or (None, None)
        clauses = tuple(part for part in rest if isinstance(part, ast.Clause))
        projections = tuple(part for part in rest if isinstance(part, ast.Projection))
        return ast.Read(
            clauses=clauses,
            projections=projections,
            distinct=any(is_token(part) for part in rest),
            having=having,
            orderings=order or (),
            limit=limit,
            offset=offset,
            stages=tuple(part for part in rest if isinstance(part, ast.Read)),
            span=_span((clauses[0], projections[-1])),
        )

    def stage(self, parts: list[Any]) -> ast.Read:
        return self.read(parts)

    def union(self, parts: list[Any]) -> ast.Union:
        reads = tuple(part for part in parts if isinstance(part, ast.Read))
        keeps = tuple(part is not None for part in parts[2::3])
        return ast.Union(reads, keeps, span=_span((reads[0], reads[-1])))

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

    def exact_hops(self, parts: list[Token]) -> ast.Hops:
        count = integer(parts[0])
        return ast.Hops(count, count, span=_span(parts))

    def any_hops(self, parts: list[Token]) -> ast.Hops:
        return ast.Hops(1, None, span=_span(parts))

    def edges(self, parts: list[Token]) -> tuple[Token, ...]:
        return tuple(parts)

    def traverse(self, parts: list[Any]) -> ast.Traversal:
        left, edges, *rest = parts
        return _traversal(left, edges, rest)

    def traverse_undirected(self, parts: list[Any]) -> ast.Traversal:
        left, edges, *rest = parts
        return _traversal(left, _inside(edges), rest, undirected=True)

    def traverse_bound(self, parts: list[Any]) -> ast.Traversal:
        left, edge_variable, edges, *rest = parts
        return _traversal(left, edges, rest, bound=edge_variable)

    def traverse_bound_undirected(self, parts: list[Any]) -> ast.Traversal:
        left, edge_variable, edges, *rest = parts
        return _traversal(left, _inside(edges), rest, bound=edge_variable, undirected=True)

    def via(self, parts: list[Token]) -> ast.Variable:
        return _variable(parts[1])

    def by(self, parts: list[Any]) -> ast.Expr:
        weight: ast.Expr = parts[1]
        return weight

    def where(self, parts: list[ast.Expr]) -> ast.Expr:
        return as_condition(parts[0])

    def path(self, parts: list[Any]) -> ast.Path:
        variable, kind, traversal = parts
        text = "path" if kind is None else str(kind)
        words = " ".join(_EDGE.sub(lambda match: f" {match[1] or ''} ", text).split())
        return ast.Path(
            _variable(variable), ast.PathKind(words), traversal, span=_span((variable, traversal))
        )

    def negation(self, parts: list[Any]) -> ast.Negation:
        return ast.Negation(tuple(parts[1:]), span=_span(parts))

    def optional_block(self, parts: list[Any]) -> ast.OptionalBlock:
        return ast.OptionalBlock(tuple(parts[1:]), span=_span(parts))

    def unwind(self, parts: list[Any]) -> ast.Unwind:
        _, items, _, name = parts
        return ast.Unwind(items, _name(name), span=_span(parts))

    def filter(self, parts: list[ast.Expr]) -> ast.Filter | ast.Traversal:
        condition = as_condition(parts[0])
        if isinstance(condition, ast.Alias):
            hint = word_hint(condition.name)
            raise Fault(condition.span, f"unexpected '{condition.name}'", hint=hint)
        return as_edge(condition) or ast.Filter(condition, span=condition.span)

    def chain(self, parts: list[Any]) -> ast.And:
        return clauses_of_chain(parts)

    def projection(self, parts: list[Any]) -> ast.Projection:
        expression, _, alias, fields = parts
        name = None if alias is None else _name(alias)
        if fields is not None and not isinstance(expression, ast.Variable):
            hint = "write $p as person { name, age }"
            raise Fault(expression.span, "an object is made of a variable", hint=hint)
        span = _span((expression, alias))
        return ast.Projection(expression, name, fields or (), span=span)

    def object(self, parts: list[ast.ObjectField]) -> tuple[ast.ObjectField, ...]:
        return tuple(parts)

    def named_field(self, parts: list[Token]) -> ast.ObjectField:
        return ast.ObjectField(_name(parts[0]), span=_span(parts))

    def valued_field(self, parts: list[Any]) -> ast.ObjectField:
        name, value = parts
        return ast.ObjectField(_name(name), value, span=_span(parts))

    def every_field(self, parts: list[Token]) -> ast.ObjectField:
        return ast.ObjectField(None, span=_span(parts))

    def having(self, parts: list[ast.Expr]) -> ast.Expr:
        return as_condition(parts[0])

    def order(self, parts: list[ast.Ordering]) -> tuple[ast.Ordering, ...]:
        return tuple(parts)

    def ordering(self, parts: list[Any]) -> ast.Ordering:
        expression, direction = parts
        if isinstance(expression, ast.Literal) and expression.scalar is None:
            expression = ast.Alias("null", span=expression.span)
        if isinstance(expression, ast.Nearest) and direction is not None:
            raise Fault(
                token_span(direction),
                f"nearest takes no direction, found '{direction}'",
                hint="nearest always puts the closest first",
            )
        return ast.Ordering(expression, direction == "desc", span=_span(parts))

    def limit_offset(self, parts: list[Any]) -> tuple[Any, Any]:
        limit, offset = parts
        return limit, offset

    def offset_limit(self, parts: list[Any]) -> tuple[Any, Any]:
        offset, limit = parts
        return limit, offset

    def fixed_count(self, parts: list[Token]) -> int:
        return integer(parts[0])

    def every_property(self, parts: list[Token]) -> ast.Projection:
        star = ast.EveryProperty(_variable(parts[0]), span=_span(parts))
        return ast.Projection(star, span=star.span)

    # Mutations

    def mutation(self, parts: list[ast.Statement]) -> ast.Mutation:
        return ast.Mutation(tuple(parts), span=_span(parts))

    def assign(self, parts: list[Any]) -> ast.Assignment:
        name, value = parts[0], own_properties(parts[1])
        return ast.Assignment(_name(name), value, span=_span(parts))

    def insert(self, parts: list[Any]) -> ast.Insert:
        _, type_name, *assignments, rows = parts
        return ast.Insert(_name(type_name), tuple(assignments), rows, span=_span(parts))

    def upsert(self, parts: list[Any]) -> ast.Upsert:
        _, type_name, *assignments, rows = parts
        return ast.Upsert(_name(type_name), tuple(assignments), rows, span=_span(parts))

    def update(self, parts: list[Any]) -> ast.Update:
        _, type_name, *assignments, condition = parts
        where = own_properties(as_condition(condition))
        return ast.Update(_name(type_name), tuple(assignments), where, span=_span(parts))

    def delete(self, parts: list[Any]) -> ast.Delete:
        _, type_name, condition = parts
        where = own_properties(as_condition(condition))
        return ast.Delete(_name(type_name), where, span=_span(parts))

    def rows(self, parts: list[Any]) -> ast.Matched:
        clauses = tuple(part for part in parts if isinstance(part, ast.Clause))
        stages = tuple(part for part in parts if isinstance(part, ast.Read))
        return ast.Matched(clauses, stages, span=_span(parts))

    def update_matched(self, parts: list[Any]) -> ast.UpdateMatched:
        _, variable, *assignments, rows = parts
        return ast.UpdateMatched(_variable(variable), tuple(assignments), rows, span=_span(parts))

    def delete_matched(self, parts: list[Any]) -> ast.DeleteMatched:
        _, variable, rows = parts
        return ast.DeleteMatched(_variable(variable), rows, span=_span(parts))


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
    deletes = isinstance(mutation.statements[0], ast.Delete | ast.DeleteMatched)
    for statement in mutation.statements:
        if isinstance(statement, ast.Delete | ast.DeleteMatched) != deletes:
            raise Fault(
                statement.span,
                f"mutation '{name}' on the same query mixes inserts/updates and deletes; split "
                "into separate mutations: (1) inserts and updates, then (2) deletes",
                code="D2",
                hint="or run both on a branch and merge it, which is one commit",
            )


_READER: GrammarReader[tuple[ast.Query, ...]] = GrammarReader(
    package="omnigraph.language.query",
    start="start",
    builder=_QueryBuilder,
    terminals=_TERMINALS,
    hint=syntax_hint,
    end_hint=end_hint,
)
