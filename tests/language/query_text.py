"""Query trees as canonical text, to test the parser with.

Invariant: `parse_queries(format_queries(file)) == file`, for every tree the parser makes.
"""

from types import UnionType
from typing import assert_never

from omnigraph.language.moments import format_date, format_datetime
from omnigraph.language.query import ast
from omnigraph.language.reader import quote
from omnigraph.types import Scalar

_INDENT = "  "


def format_queries(file: ast.QueryFile) -> str:
    """The whole file, one blank line between queries."""
    return "\n".join(_query(query) for query in file.queries)


def _query(query: ast.Query) -> str:
    parameters = ", ".join(f"${p.name}: {p.type}" for p in query.parameters)
    notes = "".join(
        f" @{name}({quote(text)})"
        for name, text in (("description", query.description), ("instruction", query.instruction))
        if text is not None
    )
    match query.body:
        case ast.Read() as read:
            body = _read(read)
        case ast.Mutation(statements=statements):
            body = [line for statement in statements for line in _statement(statement)]
        case _:
            assert_never(query.body)
    lines = "\n".join(f"{_INDENT}{line}" for line in body)
    return f"query {query.name}({parameters}){notes} {{\n{lines}\n}}\n"


def _read(read: ast.Read) -> list[str]:
    distinct = "distinct " if read.distinct else ""
    projections = ", ".join(map(_projection, read.projections))
    lines = [*_block("match", read.clauses), f"return {distinct}{{ {projections} }}"]
    if read.orderings:
        lines.append(f"order {{ {', '.join(map(_ordering, read.orderings))} }}")
    if read.limit is not None:
        lines.append(f"limit {read.limit}")
    if read.offset is not None:
        lines.append(f"offset {read.offset}")
    return lines


def _block(head: str, clauses: tuple[ast.Clause, ...]) -> list[str]:
    inner = [f"{_INDENT}{line}" for clause in clauses for line in _clause(clause)]
    return [f"{head} {{", *inner, "}"]


def _clause(clause: ast.Clause) -> list[str]:
    match clause:
        case ast.Binding(variable=variable, type_name=type_name, properties=properties):
            listed = ", ".join(f"{p.property}: {_expression(p.value)}" for p in properties)
            return [f"${variable.name}: {type_name}" + (f" {{ {listed} }}" if listed else "")]
        case ast.Traversal():
            return [_traversal(clause)]
        case ast.Negation(clauses=clauses):
            return _block("not", clauses)
        case ast.OptionalBlock(clauses=clauses):
            return _block("optional", clauses)
        case ast.Filter(condition=condition):
            return [_condition(condition)]
        case _:
            assert_never(clause)


def _traversal(traversal: ast.Traversal) -> str:
    edge = f"<{traversal.edge}>" if traversal.undirected else str(traversal.edge)
    if traversal.edge_variable is not None:
        edge = f"${traversal.edge_variable.name}:{edge}"
    hops = ""
    if traversal.hops is not None:
        high = "" if traversal.hops.high is None else traversal.hops.high
        hops = f"{{{traversal.hops.low},{high}}}"
    return f"${traversal.left.name} {edge}{hops} ${traversal.right.name}"


def _condition(condition: ast.Condition) -> str:
    match condition:
        case ast.Comparison(left=left, comparator=comparator, right=right):
            return f"{_expression(left)} {comparator} {_expression(right)}"
        case ast.IsNull(subject=subject, negated=negated):
            return f"{_expression(subject)} is {'not ' if negated else ''}null"
        case ast.Membership(subject=subject, collection=collection):
            return f"{_expression(subject)} in {_expression(collection)}"
        case ast.TextCondition(call=call):
            return _expression(call)
        case ast.Exists(clauses=clauses):
            return _inline_block("exists", clauses)
        case ast.Not(condition=inner):
            return f"not {_grouped(inner, ast.And | ast.Or | ast.Not)}"
        case ast.And(conditions=conditions):
            return " and ".join(_grouped(part, ast.Or) for part in conditions)
        case ast.Or(conditions=conditions):
            return " or ".join(map(_condition, conditions))
        case _:
            assert_never(condition)


def _grouped(condition: ast.Condition, kinds: type | UnionType) -> str:
    """In parentheses when it is one of `kinds`, or where `not` must have them."""
    text = _condition(condition)
    return f"({text})" if isinstance(condition, kinds) or _is_own(condition) else text


def _is_own(condition: ast.Condition) -> bool:
    """Whether it tests an entity's own property, as in `where`."""
    match condition:
        case ast.Comparison(left=ast.OwnProperty()):
            return True
        case ast.IsNull(subject=ast.OwnProperty()) | ast.Membership(subject=ast.OwnProperty()):
            return True
        case _:
            return False


def _inline_block(head: str, clauses: tuple[ast.Clause, ...]) -> str:
    inner = " ".join(line for clause in clauses for line in _clause(clause))
    return f"{head} {{ {inner} }}"


def _expression(expression: ast.Expr) -> str:
    match expression:
        case ast.Literal():
            return _literal(expression)
        case ast.ListLiteral(items=items):
            return f"[{', '.join(map(_literal, items))}]"
        case ast.Now():
            return "now()"
        case ast.Variable(name=name):
            return f"${name}"
        case ast.PropertyRef(variable=variable, property=name):
            return f"${variable.name}.{name}"
        case ast.OwnProperty(property=name):
            return str(name)
        case ast.Alias(name=alias):
            return alias
        case ast.TextCall(function=function, subject=subject, query=query, edits=edits):
            return _call(str(function), subject, query, edits)
        case ast.Nearest(subject=subject, query=query):
            return _call("nearest", subject, query)
        case ast.Bm25(subject=subject, query=query):
            return _call("bm25", subject, query)
        case ast.Rrf(first=first, second=second, k=k):
            return _call("rrf", first, second, k)
        case ast.Aggregate(function=function, argument=argument, distinct=distinct):
            return f"{function}({'distinct ' if distinct else ''}{_expression(argument)})"
        case ast.CountBlock(clauses=clauses):
            return _inline_block("count", clauses)
        case _:
            assert_never(expression)


def _call(function: str, *arguments: ast.Expr | None) -> str:
    return f"{function}({', '.join(_expression(a) for a in arguments if a is not None)})"


def _literal(literal: ast.Literal) -> str:
    value = literal.value
    match literal.scalar:
        case None:
            return "null"
        case Scalar.BOOL:
            return "true" if value else "false"
        case Scalar.STRING:
            return quote(str(value))
        case Scalar.DATE:
            return f'date("{format_date(int(value or 0))}")'
        case Scalar.DATETIME:
            return f'datetime("{format_datetime(int(value or 0))}")'
        case Scalar.F64:
            return _float(float(value or 0))
        case _:
            return str(value)


def _float(value: float) -> str:
    """Without an exponent, which the language does not have."""
    digits = f"{value:f}" if float(f"{value:f}") == value else f"{value:.1100f}".rstrip("0")
    return f"{digits}0" if digits.endswith(".") else digits


def _projection(projection: ast.Projection) -> str:
    text = _expression(projection.expression)
    return text if projection.alias is None else f"{text} as {projection.alias}"


def _ordering(ordering: ast.Ordering) -> str:
    return _expression(ordering.expression) + (" desc" if ordering.descending else "")


def _statement(statement: ast.Statement) -> list[str]:
    match statement:
        case ast.Upsert(type_name=name, assignments=assignments):
            return [f"upsert {name} {{ {_assignments(assignments)} }}"]
        case ast.Insert(type_name=name, assignments=assignments):
            return [f"insert {name} {{ {_assignments(assignments)} }}"]
        case ast.Update(type_name=name, assignments=assignments, where=where):
            values = _assignments(assignments)
            return [f"update {name} set {{ {values} }} where {_condition(where)}"]
        case ast.Delete(type_name=name, where=where):
            return [f"delete {name} where {_condition(where)}"]
        case _:
            assert_never(statement)


def _assignments(assignments: tuple[ast.Assignment, ...]) -> str:
    return ", ".join(f"{a.property}: {_expression(a.value)}" for a in assignments)
