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
    parameters = ", ".join(map(_parameter, query.parameters))
    notes = "".join(
        f" @{name}({quote(text)})"
        for name, text in (("description", query.description), ("instruction", query.instruction))
        if text is not None
    )
    match query.body:
        case ast.Read() as read:
            body = _read(read)
        case ast.Union(reads=reads, keeps_equal=keeps):
            body = _read(reads[0])
            for read, every in zip(reads[1:], keeps, strict=True):
                body += ["union all" if every else "union", *_read(read)]
        case ast.Mutation(statements=statements):
            body = [line for statement in statements for line in _statement(statement)]
        case _:
            assert_never(query.body)
    lines = "\n".join(f"{_INDENT}{line}" for line in body)
    return f"query {query.name}({parameters}){notes} {{\n{lines}\n}}\n"


def _parameter(parameter: ast.Parameter) -> str:
    default = "" if parameter.default is None else f" = {_expression(parameter.default)}"
    return f"${parameter.name}: {parameter.type}{default}"


def _read(read: ast.Read, word: str = "return") -> list[str]:
    distinct = "distinct " if read.distinct else ""
    projections = ", ".join(map(_projection, read.projections))
    lines = [line for stage in read.stages for line in _read(stage, "with")]
    lines += [*_block("match", read.clauses), f"{word} {distinct}{{ {projections} }}"]
    if read.having is not None:
        lines.append(f"having {{ {_condition(read.having)} }}")
    if read.orderings:
        lines.append(f"order {{ {', '.join(map(_ordering, read.orderings))} }}")
    if read.limit is not None:
        lines.append(f"limit {_count(read.limit)}")
    if read.offset is not None:
        lines.append(f"offset {_count(read.offset)}")
    return lines


def _count(count: int | ast.Variable) -> str:
    return f"${count.name}" if isinstance(count, ast.Variable) else str(count)


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
        case ast.Path(variable=variable, kind=kind, traversal=traversal):
            return [f"${variable.name} = {kind} {_traversal(traversal)}"]
        case ast.Negation(clauses=clauses):
            return _block("not", clauses)
        case ast.OptionalBlock(clauses=clauses):
            return _block("optional", clauses)
        case ast.Unwind(items=items, name=name):
            return [f"unwind {_expression(items)} as {name}"]
        case ast.Filter(condition=condition):
            return [_condition(condition)]
        case _:
            assert_never(clause)


def _traversal(traversal: ast.Traversal) -> str:
    edge = "|".join(map(str, traversal.edges))
    edge = f"<{edge}>" if traversal.undirected else edge
    if traversal.edge_variable is not None:
        edge = f"${traversal.edge_variable.name}:{edge}"
    hops = ""
    if traversal.hops is not None:
        high = "" if traversal.hops.high is None else traversal.hops.high
        hops = f"{{{traversal.hops.low},{high}}}"
    via = "" if traversal.via is None else f" via ${traversal.via.name}"
    by = "" if traversal.by is None else f" by {_side(traversal.by)}"
    where = "" if traversal.where is None else f" where {_condition(traversal.where)}"
    return f"${traversal.left.name} {edge}{hops} ${traversal.right.name}{via}{by}{where}"


def _condition(condition: ast.Expr) -> str:
    """A condition where a clause may stand: one that begins with a sign is no subtraction."""
    text = _expression(condition)
    starts_with_sign = text.startswith("-")
    lone = isinstance(condition, ast.Variable) or _is_traversal(condition)
    return f"({text})" if starts_with_sign or lone else text


def _is_traversal(condition: ast.Expr) -> bool:
    match condition:
        case ast.Comparison(ast.Variable(), comparator, ast.Variable()):
            return str(comparator).isidentifier()
        case ast.Membership(ast.Variable(), ast.Variable()):
            return True
        case _:
            return False


_BOOLEAN = ast.And | ast.Or | ast.Not
_COMPARED = ast.Comparison | ast.IsNull | ast.Membership | ast.Exists
_SUM = (ast.ArithmeticOperator.ADD, ast.ArithmeticOperator.SUBTRACT)


def _side(expression: ast.Expr) -> str:
    """One side of a comparison."""
    text = _expression(expression)
    return f"({text})" if isinstance(expression, _BOOLEAN | _COMPARED) else text


def _joined(expression: ast.Expr, kinds: type | UnionType) -> str:
    """A part of `and`, `or` or `not`."""
    text = _expression(expression)
    grouped = isinstance(expression, kinds | ast.Variable) or _is_own(expression)
    return f"({text})" if grouped else text


def _is_own(condition: ast.Expr) -> bool:
    """Whether it tests an entity's own property, as in `where`."""
    match condition:
        case ast.Comparison(left=ast.OwnProperty()):
            return True
        case ast.IsNull(subject=ast.OwnProperty()) | ast.Membership(subject=ast.OwnProperty()):
            return True
        case _:
            return False


def _arithmetic(expression: ast.Arithmetic) -> str:
    left, right = _side(expression.left), _side(expression.right)
    if expression.operator not in _SUM and _is_sum(expression.left):
        left = f"({left})"
    if isinstance(expression.right, ast.Arithmetic) and (
        expression.operator not in _SUM or _is_sum(expression.right)
    ):
        right = f"({right})"
    return f"{left} {expression.operator} {right}"


def _is_sum(expression: ast.Expr) -> bool:
    return isinstance(expression, ast.Arithmetic) and expression.operator in _SUM


def _case(expression: ast.Case) -> str:
    whens = [
        f"when {_expression(w.condition)} then {_expression(w.value)}" for w in expression.branches
    ]
    if expression.otherwise is not None:
        whens.append(f"else {_expression(expression.otherwise)}")
    return f"case {' '.join(whens)} end"


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
        case ast.Nearest(subject=subject, query=query, metric=metric):
            return _call("nearest", subject, query, *([] if metric is None else [metric]))
        case ast.Bm25(subject=subject, query=query):
            return _call("bm25", subject, query)
        case ast.Rrf(first=first, second=second, k=k):
            return _call("rrf", first, second, k)
        case ast.Aggregate(function=function, argument=None):
            return f"{function}(*)"
        case ast.Aggregate(function=function, argument=argument, fraction=fraction) if fraction:
            return _call(str(function), argument, fraction)
        case ast.Aggregate(function=function, argument=argument, distinct=distinct):
            return f"{function}({'distinct ' if distinct else ''}{_expression(argument)})"  # type: ignore[arg-type]
        case ast.Arithmetic():
            return _arithmetic(expression)
        case ast.Negative(operand=operand):
            grouped = isinstance(operand, ast.Arithmetic | ast.Literal)
            return f"-({_expression(operand)})" if grouped else f"-{_side(operand)}"
        case ast.Duration(milliseconds=milliseconds):
            return f"{milliseconds}ms"
        case ast.Call(function=function, arguments=arguments):
            return _call(str(function), *arguments)
        case ast.Case():
            return _case(expression)
        case ast.Comparison(left=left, comparator=comparator, right=right):
            return f"{_side(left)} {comparator} {_side(right)}"
        case ast.IsNull(subject=subject, negated=negated):
            return f"{_side(subject)} is {'not ' if negated else ''}null"
        case ast.Membership(subject=subject, collection=collection):
            return f"{_side(subject)} in {_side(collection)}"
        case ast.TextCondition(call=call):
            return _expression(call)
        case ast.Exists(clauses=clauses):
            return _inline_block("exists", clauses)
        case ast.Not(condition=inner):
            return f"not {_joined(inner, ast.And | ast.Or | ast.Not)}"
        case ast.And(conditions=conditions):
            return " and ".join(_joined(part, ast.Or) for part in conditions)
        case ast.Or(conditions=conditions):
            return " or ".join(_joined(part, ast.Or) for part in conditions)
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
    if isinstance(projection.expression, ast.EveryProperty):
        return f"${projection.expression.variable.name}.*"
    text = _expression(projection.expression)
    text = text if projection.alias is None else f"{text} as {projection.alias}"
    if not projection.object_fields:
        return text
    return f"{text} {{ {', '.join(map(_object_field, projection.object_fields))} }}"


def _object_field(field: ast.ObjectField) -> str:
    if field.name is None:
        return "*"
    return f"{field.name}" if field.value is None else f"{field.name}: {_expression(field.value)}"


def _ordering(ordering: ast.Ordering) -> str:
    return _expression(ordering.expression) + (" desc" if ordering.descending else "")


def _statement(statement: ast.Statement) -> list[str]:
    match statement:
        case ast.Upsert(type_name=name, assignments=assignments):
            rows = _rows(statement.rows)
            return [f"upsert {name} {{ {_assignments(assignments)} }}", *rows]
        case ast.Insert(type_name=name, assignments=assignments):
            rows = _rows(statement.rows)
            return [f"insert {name} {{ {_assignments(assignments)} }}", *rows]
        case ast.Update(type_name=name, assignments=assignments, where=where):
            values = _assignments(assignments)
            return [f"update {name} set {{ {values} }} where {_condition(where)}"]
        case ast.Delete(type_name=name, where=where):
            return [f"delete {name} where {_condition(where)}"]
        case ast.UpdateMatched(variable=variable, assignments=assignments, rows=matched):
            values = _assignments(assignments)
            return [f"update ${variable.name} set {{ {values} }}", *_rows(matched)]
        case ast.DeleteMatched(variable=variable, rows=matched):
            return [f"delete ${variable.name}", *_rows(matched)]
        case _:
            assert_never(statement)


def _rows(rows: ast.Matched | None) -> list[str]:
    if rows is None:
        return []
    stages = [line for stage in rows.stages for line in _read(stage, "with")]
    return [*stages, *_block("match", rows.clauses)]


def _assignments(assignments: tuple[ast.Assignment, ...]) -> str:
    return ", ".join(f"{a.property}: {_expression(a.value)}" for a in assignments)
