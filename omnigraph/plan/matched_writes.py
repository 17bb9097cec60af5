"""Type checking of statements that write what a pattern finds (`insert … match { … }`).

The values that a row gives are the columns of a read; in the statement they are parameters called
`match.0`, `match.1` …, which no query can declare.

Invariant: a match sees the graph as it was before its query. One that reads a table which an
earlier statement of the query writes is refused, since it would not see those writes.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from omnigraph.catalog.model import Catalog, EdgeType, Type
from omnigraph.catalog.near_names import did_you_mean
from omnigraph.errors import TypeCheckError
from omnigraph.language.query import ast
from omnigraph.language.query.expression_builder import rewritten
from omnigraph.plan import mutation_ir
from omnigraph.plan.facts import tables_read, tables_written
from omnigraph.plan.family_writes import member_of_ends
from omnigraph.plan.scope import EdgeVar, Names, NodeVar, Scope
from omnigraph.plan.statements import check_statement
from omnigraph.types import Scalar, Span, TableKey, parse_table_key

if TYPE_CHECKING:
    from omnigraph.plan.check import TypedRead

MatchedStatement = ast.Insert | ast.Upsert | ast.UpdateMatched | ast.DeleteMatched
Checked = Callable[[Names, ast.Read], "tuple[TypedRead, Scope]"]
"""Checks a read; returns it with the scope of its last part."""

_READS_ROW = (
    ast.PropertyRef | ast.Aggregate | ast.CountBlock | ast.Exists | ast.OwnProperty | ast.Rank
)


def check_matched(
    names: Names, statement: MatchedStatement, rows: ast.Matched, checked: Checked
) -> "tuple[TypedRead, mutation_ir.PlainStatement]":
    """The read that gives the rows, and the statement that is done for each."""
    values = _RowValues(names)
    variable = getattr(statement, "variable", None)
    if variable is not None:
        if variable.name in names.parameters:
            text = f"${variable.name} is a parameter, and not what match binds"
            raise names.fail(variable.span, text, code="T14", hint="give the variable another name")
        values.taken(ast.PropertyRef(variable, ast.Name("id"), span=variable.span))
    given = getattr(statement, "assignments", ())
    assignments = tuple(_with_row_value(values, each, variable) for each in given)
    read = ast.Read(rows.clauses, values.projections, stages=rows.stages, span=rows.span)
    typed, scope = checked(names, read)
    columns = typed.returns.columns
    types = {values.name(n): column.type for n, column in enumerate(columns)}
    inner = replace(names, parameters={**names.parameters, **types})
    if isinstance(statement, ast.Insert | ast.Upsert):
        statement = member_of_ends(scope, statement)
        _require_ends(scope, statement)
        return typed, check_statement(inner, replace(statement, assignments=assignments, rows=None))
    target = _target(scope, statement.variable)
    name = ast.Name(target.name, span=statement.variable.span)
    own_id = ast.OwnProperty(ast.Name("id"))
    where = ast.Comparison(own_id, ast.Comparator.EQ, ast.Variable(values.name(0)))
    if isinstance(statement, ast.UpdateMatched):
        update = ast.Update(name, assignments, where, span=statement.span)
        return typed, check_statement(inner, update, target)
    return typed, check_statement(inner, ast.Delete(name, where, span=statement.span), target)


class _RowValues:
    """The expressions that rows give values to, as columns of a read."""

    def __init__(self, names: Names) -> None:
        self._names = names
        self._columns: dict[ast.Expr, str] = {}
        self._expressions = list[ast.Expr]()

    def taken(self, expression: ast.Expr) -> ast.Variable:
        """The parameter of an expression."""
        known = self._columns.get(expression)
        if known is None:
            known = self._columns[expression] = self.name(len(self._expressions))
            self._expressions.append(expression)
        return ast.Variable(known, span=expression.span)

    def name(self, number: int) -> str:
        return f"match.{number}"

    def depends(self, expression: ast.Expr) -> bool:
        """Whether the value of an expression is that of a row."""
        parts = list[ast.Node]()

        def noted(part: ast.Node) -> ast.Node:
            parts.append(part)
            return part

        rewritten(expression, noted)
        return any(
            isinstance(part, _READS_ROW)
            or (isinstance(part, ast.Variable) and part.name not in self._names.parameters)
            for part in parts
        )

    @property
    def projections(self) -> tuple[ast.Projection, ...]:
        """The columns; at least one, so that rows can be counted."""
        columns = self._expressions or [ast.Literal(True, Scalar.BOOL)]
        named = enumerate(columns)
        return tuple(
            ast.Projection(value, ast.Name(self.name(n)), span=value.span) for n, value in named
        )


def _with_row_value(
    values: _RowValues, assignment: ast.Assignment, variable: ast.Variable | None
) -> ast.Assignment:
    """An assignment that reads a row, as one that reads a parameter. In an update, bare words are
    properties of what is updated."""

    def owned(part: Any) -> Any:
        if variable is None or not isinstance(part, ast.OwnProperty):
            return part
        return ast.PropertyRef(variable, part.property, span=part.span)

    value: ast.Expr = rewritten(assignment.value, owned)
    if isinstance(value, ast.OwnProperty) or not values.depends(value):
        return replace(assignment, value=value)
    return replace(assignment, value=values.taken(value))


def _target(scope: Scope, variable: ast.Variable) -> Type:
    """The type of what a variable is bound to; one type, which is no interface."""
    names, bound = scope.names, scope.find(variable.name)
    if bound is None:
        text = f"variable ${variable.name} is not bound"
        hint = did_you_mean(variable.name, scope.own, listed=False) or "match binds it"
        raise names.fail(variable.span, text, code="T6", hint=hint)
    if isinstance(bound, EdgeVar):
        return bound.edge
    if names.is_interface(bound.node):
        every = ", ".join(each.name for each in names.types_of(bound.node))
        text = f"${variable.name} is of the interface {bound.node.name}; one type is written"
        raise names.fail(
            variable.span, text, code="T10", hint=f"write a statement for each: {every}"
        )
    return bound.node


def _require_ends(scope: Scope, statement: ast.Insert | ast.Upsert) -> None:
    """T5 for an end of an edge that is a node of another type."""
    names = scope.names
    if names.catalog.node(statement.type_name.text) is not None:
        return
    edge = names.catalog.edge(statement.type_name.text)
    if not isinstance(edge, EdgeType):
        return
    for assignment in statement.assignments:
        value, end = assignment.value, assignment.property.text
        if end not in ("from", "to") or not isinstance(value, ast.Variable):
            continue
        bound = None if value.name in names.parameters else scope.find(value.name)
        declared = edge.source if end == "from" else edge.target
        if isinstance(bound, EdgeVar) or (
            isinstance(bound, NodeVar) and bound.node.name != declared
        ):
            owner = bound.edge if isinstance(bound, EdgeVar) else bound.node
            text = f"'{end}' of {edge.name} is a {declared}, ${value.name} is a {owner.name}"
            raise names.fail(value.span, text, code="T5")


def require_unwritten(
    query: ast.Query, plan: mutation_ir.MutationPlan, catalog: Catalog, source: str
) -> None:
    """D3 for a match that reads what an earlier statement of its query writes."""
    assert isinstance(query.body, ast.Mutation)
    written = dict[TableKey, int]()
    pairs = zip(query.body.statements, plan.statements, strict=True)
    spans = dict[Span, int]()  # an update of a family is several statements of one text
    for statement, op in pairs:
        number = spans.setdefault(statement.span, len(spans) + 1)
        if isinstance(op, mutation_ir.MatchedRows):
            for table in sorted(tables_read(op.read, catalog) & written.keys()):
                _, name = parse_table_key(table)
                text = f"this match reads {name}, which statement {written[table]} writes"
                hint = "put this statement first, or write two queries"
                raise TypeCheckError.at(source, statement.span, text, code="D3", hint=hint)
        for table in tables_written(op):
            written.setdefault(table, number)
