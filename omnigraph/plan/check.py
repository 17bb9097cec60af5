"""Type checking: queries to typed trees, every name resolved, or the first fault.

Invariant: a typed tree can be lowered without asking the catalog or the source again.
"""

from dataclasses import dataclass, replace

from omnigraph.catalog.model import Catalog
from omnigraph.language.query import ast
from omnigraph.plan import ir, mutation_ir
from omnigraph.plan.expressions import substituted
from omnigraph.plan.fixed_values import fixed_value
from omnigraph.plan.operands import as_type
from omnigraph.plan.patterns import check_pattern, inner_matches
from omnigraph.plan.returns import TypedReturn, check_return
from omnigraph.plan.scope import Names, Scope
from omnigraph.plan.statements import check_statement
from omnigraph.plan.typed import TypedPattern
from omnigraph.types import Span


@dataclass(frozen=True, slots=True)
class TypedRead:
    """A checked read."""

    pattern: TypedPattern
    returns: TypedReturn
    distinct: bool
    limit: int | None
    offset: int
    parameters: tuple[ir.Parameter, ...]
    computed: tuple[ir.Computed, ...]


@dataclass(frozen=True, slots=True)
class TypedMutation:
    """A checked mutation. Its statements need no further lowering."""

    statements: tuple[mutation_ir.StatementOp, ...]
    parameters: tuple[ir.Parameter, ...]
    computed: tuple[ir.Computed, ...]


def check_query(query: ast.Query, catalog: Catalog, source: str) -> TypedRead | TypedMutation:
    """The typed query, or `TypeCheckError`."""
    names = Names(catalog, source, {p.name: p.type for p in query.parameters})
    parameters = tuple(_parameter(catalog, source, p) for p in query.parameters)
    body = query.body
    if isinstance(body, ast.Mutation):
        statements = tuple(check_statement(names, s) for s in body.statements)
        return TypedMutation(statements, parameters, tuple(names.computed.values()))
    scope = Scope(names)
    pattern = check_pattern(scope, body.clauses)
    matches = list(pattern.matches)

    def inner(clauses: tuple[ast.Clause, ...], span: Span, exists: bool) -> ir.Slot:
        matches.append(inner_matches(scope, clauses, span, exists))
        return matches[-1].slot

    returns = check_return(scope, body, inner)
    pattern = replace(pattern, matches=tuple(matches))
    computed = tuple(names.computed.values())
    return TypedRead(
        pattern, returns, body.distinct, body.limit, body.offset or 0, parameters, computed
    )


def _parameter(catalog: Catalog, source: str, declared: ast.Parameter) -> ir.Parameter:
    """A declared parameter with its default, which sees no other parameter."""
    given, names = declared.default, Names(catalog, source, {})
    if given is None:
        return ir.Parameter(declared.name, declared.type)
    what = f"${declared.name}"
    if isinstance(given, ast.Literal | ast.ListLiteral):
        value: ir.Expr = as_type(names, given, declared.type, what)
    else:
        value = fixed_value(names, given, declared.type, what)
        value = _unfolded(value, tuple(names.computed.values()))
    return ir.Parameter(declared.name, declared.type, value)


def _unfolded(value: ir.Expr, computed: tuple[ir.Computed, ...]) -> ir.Expr:
    """The expression itself, in the place of the parameters that would hold its parts."""
    parts = dict[str, ir.Expr]()

    def known(part: object) -> ir.Expr | None:
        return parts.get(part.name) if isinstance(part, ir.Param) else None

    for each in computed:
        parts[each.name] = substituted(each.value, known)
    whole: ir.Expr = substituted(value, known)
    return whole
