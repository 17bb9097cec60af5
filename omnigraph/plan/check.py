"""Type checking: queries to typed trees, every name resolved, or the first fault.

Invariant: a typed tree can be lowered without asking the catalog or the source again.
"""

from dataclasses import dataclass

from omnigraph.catalog.model import Catalog
from omnigraph.language.query import ast
from omnigraph.plan import mutation_ir
from omnigraph.plan.patterns import check_pattern
from omnigraph.plan.returns import TypedReturn, check_return
from omnigraph.plan.scope import Names, Scope
from omnigraph.plan.statements import check_statement
from omnigraph.plan.typed import TypedPattern


@dataclass(frozen=True, slots=True)
class TypedRead:
    """A checked read."""

    pattern: TypedPattern
    returns: TypedReturn
    distinct: bool
    limit: int | None
    offset: int


@dataclass(frozen=True, slots=True)
class TypedMutation:
    """A checked mutation. Its statements need no further lowering."""

    statements: tuple[mutation_ir.StatementOp, ...]


def check_query(query: ast.Query, catalog: Catalog, source: str) -> TypedRead | TypedMutation:
    """The typed query, or `TypeCheckError`."""
    names = Names(catalog, source, {p.name: p.type for p in query.parameters})
    body = query.body
    if isinstance(body, ast.Mutation):
        return TypedMutation(tuple(check_statement(names, s) for s in body.statements))
    scope = Scope(names)
    pattern = check_pattern(scope, body.clauses)
    returns = check_return(scope, body)
    return TypedRead(pattern, returns, body.distinct, body.limit, body.offset or 0)
