"""A planned schema change, made: tables and columns come, go and get other names in one commit.

    plan ─▶ archive ─▶ stage ─▶ commit ─▶ reclaim
    steps   both       no data  the one   only drops that
            schemas    files    protocol  may lose data

Invariant: old and new are matched by identity. A type keeps its table and a property its column
under any name, so a change writes data only where the new schema asks for values that were not
there. The commit names the new schema and holds only if no table moved since it was planned.
"""

from dataclasses import dataclass, replace
from typing import Any

from omnigraph.catalog.annotations import METADATA
from omnigraph.catalog.arrow import property_field
from omnigraph.catalog.diff import MigrationPlan
from omnigraph.catalog.model import Annotation, EdgeType, NodeType
from omnigraph.catalog.steps import Step
from omnigraph.errors import SchemaHeld
from omnigraph.exec.indexes import Wanted, decided, indexes_of
from omnigraph.exec.schemas import Accepted, Schemas, accepted, table_schema
from omnigraph.storage.evolution import Evolution
from omnigraph.storage.indexing import IndexRequest
from omnigraph.storage.names import MAIN
from omnigraph.storage.records import Commit, TablePin
from omnigraph.storage.store import Store
from omnigraph.storage.tables import StagedWrite, TableReader, Tables
from omnigraph.storage.write import Write, prepared_again

WRITER_KIND = "schema_apply"

Owner = NodeType | EdgeType


@dataclass(frozen=True, slots=True)
class SchemaApplied:
    """What an apply did. `commit` is None when there was nothing to do."""

    steps: tuple[Step, ...]
    commit: Commit | None
    graph_manifest_version: int

    supported = True

    @property
    def applied(self) -> bool:
        return self.commit is not None

    def to_json(self) -> dict[str, Any]:
        """The outcome as the command and the server tell it."""
        return {
            "supported": True,
            "applied": self.applied,
            "step_count": len(self.steps),
            "graph_manifest_version": self.graph_manifest_version,
            "steps": [dict(step.to_json()) for step in self.steps],
        }


def apply_migration(
    store: Store, schemas: Schemas, plan: MigrationPlan, text: str, actor: str | None
) -> SchemaApplied:
    """Make a planned change, inside the turn that it was planned in."""
    plan.require_supported()
    if not plan.steps:
        return SchemaApplied((), None, store.snapshot().manifest_version)
    others = tuple(name for name in store.branches.list() if name != MAIN)
    if others:
        raise SchemaHeld(others)
    old, new = schemas.current(), accepted(text, plan.catalog)
    schemas.archive(old)
    schemas.archive(new)
    commit = prepared_again(lambda: _Change(old, new).commit(store, actor))
    schemas.current()
    return SchemaApplied(plan.steps, commit, commit.manifest_version)


@dataclass(frozen=True, slots=True)
class _Change:
    """The way from one schema to another, table by table."""

    old: Accepted
    new: Accepted

    def commit(self, store: Store, actor: str | None) -> Commit:
        write = store.begin(MAIN, kind=WRITER_KIND, actor=actor, schema=self.old.id)
        before = {owner.id: owner for owner in self.old.catalog.types}
        after = {owner.id: owner for owner in self.new.catalog.types}
        for type_id, owner in before.items():
            if type_id not in after:
                write.drop_table(owner.table)
        for type_id, owner in after.items():
            if type_id in before and self._meaning_changes(before[type_id], owner):
                _change_table(write, before[type_id], owner)
        for type_id, owner in after.items():
            if type_id not in before:
                write.create_table(owner.table, table_schema(owner))
        write.replace_schema(self.new.id)
        for path, data in self.new.files().items():
            write.replace_file(path, data)
        return write.commit()

    def _meaning_changes(self, old: Owner, new: Owner) -> bool:
        """Whether a write planned for the old schema could be wrong for this table: then its
        version moves, so that the write is refused wherever it is on its way."""
        return _meaning(old) != _meaning(new) or _incident(self.old, old) != _incident(
            self.new, new
        )


def _meaning(owner: Owner) -> Owner:
    """A type without what only people read."""
    properties = tuple(replace(p, annotations=_rules(p.annotations)) for p in owner.properties)
    return replace(owner, properties=properties, annotations=_rules(owner.annotations))


def _rules(annotations: tuple[Annotation, ...]) -> tuple[Annotation, ...]:
    return tuple(each for each in annotations if each.name not in METADATA)


def _incident(schema: Accepted, owner: Owner) -> list[Owner]:
    """The edges that go with a node when it is deleted."""
    edges = schema.catalog.edges.values()
    return [_meaning(edge) for edge in edges if owner.name in (edge.source, edge.target)]


def _change_table(write: Write, old: Owner, new: Owner) -> None:
    write.evolve_table(old.table, evolution(old, new))
    indexes = _new_indexes(old, new)
    if indexes:
        write.then(old.table, lambda tables, pin: _indexed(tables, pin, indexes))
    if old.name != new.name:
        write.rename_table(old.table, new.table)


def _new_indexes(old: Owner, new: Owner) -> tuple[Wanted, ...]:
    """Indexes of columns that were there. What is all null needs none yet."""
    known = {wanted.name for wanted in indexes_of(old)}
    there = {prop.id for prop in old.properties}
    names = {prop.name for prop in new.properties if prop.id in there}
    return tuple(
        wanted for wanted in indexes_of(new) if wanted.name not in known and wanted.column in names
    )


def evolution(old: Owner, new: Owner) -> Evolution:
    """What happens to the columns of a type's table."""
    before = {prop.id: prop for prop in old.properties}
    after = {prop.id: prop for prop in sorted(new.properties, key=lambda prop: prop.id)}
    return Evolution(
        renames={
            before[number].name: prop.name
            for number, prop in after.items()
            if number in before and before[number].name != prop.name
        },
        drops=frozenset(prop.name for number, prop in before.items() if number not in after),
        adds=tuple(property_field(prop) for number, prop in after.items() if number not in before),
    )


def _requests(reader: TableReader, indexes: tuple[Wanted, ...]) -> list[IndexRequest]:
    found = (decided(reader, wanted) for wanted in indexes)
    return [request for request in found if isinstance(request, IndexRequest)]


def _indexed(tables: Tables, pin: TablePin, indexes: tuple[Wanted, ...]) -> StagedWrite | None:
    requests = _requests(tables.reader(pin), indexes)
    return tables.stage_create_indexes(pin, requests) if requests else None
