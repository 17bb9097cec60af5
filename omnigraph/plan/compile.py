"""Plan cache: query text to plan in one call, kept in an LRU.

Invariant: a plan depends on the text, the query's name and the schema's fingerprint alone, so a
cached one is as good as a new one. Failures are not cached.
"""

from contextlib import nullcontext
from typing import TYPE_CHECKING

from omnigraph.catalog.model import Catalog
from omnigraph.catalog.near_names import did_you_mean
from omnigraph.deferred import deferred, uncollected_trees
from omnigraph.errors import BadRequest, LimitExceeded, SourceError
from omnigraph.language.query import ast
from omnigraph.language.query.parser import parse_queries
from omnigraph.lru import Lru
from omnigraph.plan import ir
from omnigraph.plan.check import check_query
from omnigraph.plan.lower import lower

if TYPE_CHECKING:
    from omnigraph.plan import mutation_ir
    from omnigraph.plan.family_writes import one_each
    from omnigraph.plan.matched_writes import require_unwritten
    from omnigraph.plan.mutation_ir import Plan
else:
    mutation_ir = deferred("omnigraph.plan", "mutation_ir")
    one_each = deferred("omnigraph.plan.family_writes", "one_each")
    require_unwritten = deferred("omnigraph.plan.matched_writes", "require_unwritten")
    Plan = deferred("omnigraph.plan.mutation_ir", "Plan")

_TEXTS_MAX = 2 << 20
"""Characters of the texts whose plans are kept; a plan takes some 30 times the memory."""

_TEXT_LEAST = 2 << 10
"""What a text counts at least, so that no more than 1,024 plans are kept."""

_PAUSE_FROM = 1 << 12  # characters of a text for which garbage collection pauses

_Key = tuple[str, str | None, str]
_plans: Lru[_Key, tuple[Plan, int]] = Lru(_TEXTS_MAX, lambda kept: kept[1])


def compile_query(text: str, catalog: Catalog, name: str | None = None) -> Plan:
    """The plan of the query called `name`, or of the only one there is."""
    key = (text, name, catalog.fingerprint)
    kept = _plans.get(key)
    if kept is not None:
        return kept[0]
    # A tree of a long text has no cycles, and each full collection would walk all of it.
    with uncollected_trees() if len(text) > _PAUSE_FROM else nullcontext():
        plan = _compile(text, catalog, name)
    _plans.put(key, (plan, max(len(text), _TEXT_LEAST)))
    return plan


def _compile(text: str, catalog: Catalog, name: str | None) -> Plan:
    try:
        return _parsed_plan(text, catalog, name)
    except (SourceError, LimitExceeded) as error:
        # The frames hold the tree: it is freed here, before collections go on and walk it.
        error.__context__ = None
        raise error.with_traceback(None) from None


def _parsed_plan(text: str, catalog: Catalog, name: str | None) -> Plan:
    file = parse_queries(text)
    return plan_query(select_query(file, name), catalog, file.source)


def plan_query(query: ast.Query, catalog: Catalog, source: str) -> Plan:
    """Check and lower one parsed query."""
    if catalog.families and isinstance(query.body, ast.Mutation):
        query = one_each(query, catalog)
    plan = lower(query, check_query(query, catalog, source))
    if isinstance(plan, ir.ReadPlan):
        return plan
    if any(isinstance(statement, mutation_ir.MatchedRows) for statement in plan.statements):
        require_unwritten(query, plan, catalog, source)
    return plan


def select_query(file: ast.QueryFile, name: str | None) -> ast.Query:
    """The query of that name, the first if it occurs twice; without a name the only query."""
    if name is None:
        if len(file.queries) != 1:
            several = "query file contains multiple queries"
            raise BadRequest(
                several if file.queries else "query file contains no query", _one(file)
            )
        return file.queries[0]
    for query in file.queries:
        if query.name.text == name:
            return query
    names = [query.name.text for query in file.queries]
    near = did_you_mean(name, names, listed=False)
    known = f"the file has {', '.join(names)}" if names else "the file has no query"
    raise BadRequest(f"query '{name}' not found", near or known)


def _one(file: ast.QueryFile) -> str:
    """How to choose a query of a text."""
    if not file.queries:
        return "write query name() { match { … } return { … } }"
    names = ", ".join(query.name.text for query in file.queries)
    return f"name one with name=, at a terminal as the first word: {names}"
