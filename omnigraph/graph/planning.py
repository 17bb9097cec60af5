"""Compilation of a query against the schema of the snapshot that it reads (schema evolution).

Invariant: at an earlier commit a query means what it meant then; one that only today's schema
understands sees the old data under today's names.
"""

from typing import TYPE_CHECKING

from omnigraph.catalog.model import Catalog
from omnigraph.errors import NotFound, TypeCheckError
from omnigraph.exec.schemas import Schemas, seen_under
from omnigraph.graph.later_rooms import compile_query, tables_read
from omnigraph.storage.records import Snapshot

if TYPE_CHECKING:
    from omnigraph.plan.mutation_ir import Plan


def planned(
    schemas: Schemas, text: str, name: str | None, pinned: Snapshot, *, is_head: bool
) -> "tuple[Plan, Snapshot]":
    """A query as the schema of its snapshot reads it, and the snapshot under the names it uses."""
    schema = schemas.of(pinned)
    try:
        return compile_query(text, schema.catalog, name), pinned
    except TypeCheckError:
        today = schemas.current()
        if is_head or today.id == schema.id:
            raise
        try:
            plan = compile_query(text, today.catalog, name)
        except TypeCheckError:
            plan = None
        if plan is None:
            raise
        seen = seen_under(pinned, schema.catalog, today.catalog)
        _require_types(plan, today.catalog, seen)
        return plan, seen


def _require_types(plan: "Plan", catalog: Catalog, seen: Snapshot) -> None:
    """Refuse a query over a type that is younger than what it reads."""
    for table in sorted(tables_read(plan, catalog) - seen.tables.keys()):
        owner = catalog.of(table)
        raise NotFound(f"{owner.kind} type", owner.name, "the snapshot does not have it yet")
