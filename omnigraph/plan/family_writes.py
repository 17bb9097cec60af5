"""Writes to edges with an interface at an end: statements about one of the edge types they are.

Invariant: which edge type a statement writes follows from its text and the schema alone, never from
where an id is found. So what it means does not change when another node type gets the same id.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from omnigraph.catalog.model import Catalog, EdgeType
from omnigraph.errors import TypeCheckError
from omnigraph.language.query import ast
from omnigraph.plan.scope import Names, NodeVar, Scope


def one_each(query: ast.Query, catalog: Catalog) -> ast.Query:
    """The query with an update or a delete of such an edge as one of each of its edge types."""
    assert isinstance(query.body, ast.Mutation)
    statements = tuple(
        each for statement in query.body.statements for each in _each(statement, catalog)
    )
    return replace(query, body=replace(query.body, statements=statements))


def _each(statement: ast.Statement, catalog: Catalog) -> Iterator[ast.Statement]:
    if not isinstance(statement, ast.Update | ast.Delete):
        yield statement
        return
    name = statement.type_name
    is_known = catalog.node(name.text) is not None or catalog.edge(name.text) is not None
    members = () if is_known else catalog.members(name.text)
    for edge in members:
        yield replace(statement, type_name=ast.Name(edge.name, span=name.span))
    if not members:
        yield statement


def member_of_ends(scope: Scope, statement: ast.Insert | ast.Upsert) -> ast.Insert | ast.Upsert:
    """An insert of what a match finds, into the edge type that the types of its ends name."""
    names, name = scope.names, statement.type_name
    if names.catalog.node(name.text) is not None or not names.is_family(name):
        return statement
    members = names.edges(name, "T10")
    types = dict(_end_types(scope, statement))
    fitting = [edge for edge in members if _fits(edge, types)]
    if len(fitting) == 1:
        return replace(statement, type_name=ast.Name(fitting[0].name, span=name.span))
    raise which_edge(names, name, tuple(fitting) or members)


def _end_types(scope: Scope, statement: ast.Insert | ast.Upsert) -> Iterator[tuple[str, str]]:
    """The node types of the ends that are variables of the match."""
    for assignment in statement.assignments:
        value, end = assignment.value, assignment.property.text
        if end in ("from", "to") and isinstance(value, ast.Variable):
            is_parameter = value.name in scope.names.parameters
            bound = None if is_parameter else scope.find(value.name)
            if isinstance(bound, NodeVar) and not scope.names.is_interface(bound.node):
                yield end, bound.node.name


def _fits(edge: EdgeType, types: Mapping[str, str]) -> bool:
    own = {"from": edge.source, "to": edge.target}
    return all(own[end] == node for end, node in types.items())


def which_edge(names: Names, name: ast.Name, members: tuple[EdgeType, ...]) -> TypeCheckError:
    """T10: an insert that leaves open which of several edge types it writes."""
    declared = names.edge(name, "T10")
    listed = ", ".join(edge.name for edge in members)
    text = (
        f"{declared.name} goes from {declared.source} to {declared.target}; "
        "an insert writes an edge between two node types"
    )
    return names.fail(name.span, text, code="T10", hint=f"write one of {listed}")
