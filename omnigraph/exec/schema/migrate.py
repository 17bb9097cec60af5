"""Schema migration: tables and columns are added, dropped, renamed and backfilled in one commit.

    plan ─▶ archive ─▶ stage ─▶ commit ─▶ reclaim
    steps   both       no data  the one   only drops that
            schemas    files    protocol  may lose data

Invariant: old and new are matched by identity. A type keeps its table and a property its column
under any name, so a change writes data only where the new schema asks for values that were not
there. The commit names the new schema and holds only if no table moved since it was planned.
"""

from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from omnigraph.catalog.additive import narrowing_steps
from omnigraph.catalog.annotations import METADATA
from omnigraph.catalog.arrow import arrow_type, property_field
from omnigraph.catalog.model import Annotation, Catalog, EdgeType, NodeType
from omnigraph.catalog.schema_diff import MigrationPlan, hint_lines
from omnigraph.catalog.steps import Step
from omnigraph.errors import SchemaHeld
from omnigraph.exec.rules.rules import RuleViolations, joined
from omnigraph.exec.schema.backfill import Filling, fillings
from omnigraph.exec.schema.conform import broken, is_rekeyed, new_rules
from omnigraph.exec.schema.rekey import rekeyed_rows
from omnigraph.exec.schemas import Accepted, Schemas, accepted
from omnigraph.exec.search.index_requests import decided
from omnigraph.exec.search.schema_indexes import SchemaIndex, indexes_of
from omnigraph.storage.lance.evolution import Evolution
from omnigraph.storage.lance.index_segments import IndexRequest
from omnigraph.storage.lance.reader import TableReader
from omnigraph.storage.lance.staging import StagedWrite, TableStaging
from omnigraph.storage.locks.turns import Turn
from omnigraph.storage.names import MAIN
from omnigraph.storage.protocol.schema_write import SchemaWrite
from omnigraph.storage.records import NO_NOTE, Commit, CommitNote, WriteBase
from omnigraph.storage.store import Store
from omnigraph.types import PropertyId

Owner = NodeType | EdgeType

_WIDE = "omnigraph wide "  # no name of a property


@dataclass(frozen=True, slots=True)
class SchemaApplied:
    """Result of a schema apply. `commit` is None when there was nothing to do.

    >>> graph.schema.apply(graph.schema.text).applied
    False
    """

    steps: tuple[Step, ...]
    commit: Commit | None
    graph_manifest_version: int
    hints: tuple[str, ...] = ()  # renames that were made as a drop and an add

    supported = True

    def __repr__(self) -> str:
        how = f"applied, {self.commit!r}" if self.applied else "nothing to do"
        steps = (f"- {step}" for step in self.steps)
        return "\n".join((f"SchemaApplied({how})", *steps, *hint_lines(self.hints)))

    @property
    def applied(self) -> bool:
        """Whether anything changed."""
        return self.commit is not None

    def to_json(self) -> dict[str, Any]:
        """The result as JSON, for the command line and the server."""
        return {
            "supported": True,
            "applied": self.applied,
            "step_count": len(self.steps),
            "graph_manifest_version": self.graph_manifest_version,
            "steps": [dict(step.to_json()) for step in self.steps],
        }


def apply_migration(
    store: Store,
    schemas: Schemas,
    plan: MigrationPlan,
    text: str,
    note: CommitNote = NO_NOTE,
    branch: str = MAIN,
) -> SchemaApplied:
    """Apply a migration plan to a branch. The caller holds the lock under which it was planned."""
    plan.require_supported()
    if not plan.steps:
        return SchemaApplied((), None, store.snapshot(branch).manifest_version)
    old, new = schemas.current(branch), accepted(text, plan.catalog)
    others = tuple(name for name in store.branches.list() if name != branch)
    if others and (narrowing := narrowing_steps(plan, old.catalog)):
        raise SchemaHeld(others, str(narrowing[0]))
    schemas.archive(old)
    schemas.archive(new)
    commit = store.turns.prepared_again(
        lambda turn: _Migration(old, new, plan, branch).commit(store, note, turn)
    )
    schemas.current(branch)
    return SchemaApplied(plan.steps, commit, commit.manifest_version, plan.hints)


@dataclass(frozen=True, slots=True)
class _Migration:
    """The change from one accepted schema to another, table by table."""

    old: Accepted
    new: Accepted
    plan: MigrationPlan
    branch: str

    def commit(self, store: Store, note: CommitNote, turn: Turn) -> Commit:
        write = store.begin_schema_change(self.branch, **note.stated, schema=self.old.id, turn=turn)
        before = {owner.id: owner for owner in self.old.catalog.types}
        after = {owner.id: owner for owner in self.new.catalog.types}
        filled = fillings(self.plan, before)
        same = [(before[type_id], owner) for type_id, owner in after.items() if type_id in before]
        every = joined([_violations(write, old, new, filled.get(new.id)) for old, new in same])
        every.named().require_none()
        for type_id, owner in before.items():
            if type_id not in after:
                write.drop_table(owner.table)
                if self.plan.allows_data_loss:
                    write.reclaim(owner.table)
        for old, new in same:
            if self._meaning_changes(old, new):
                change_table(write, old, new, filled.get(new.id), hard=self.plan.allows_data_loss)
        for type_id, owner in after.items():
            if type_id not in before:
                write.create_table(owner.table, owner.schema)
        narrows = bool(narrowing_steps(self.plan, self.old.catalog))
        write.replace_schema(self.new.id, narrows=narrows)
        if self.branch == MAIN:
            for path, data in self.new.files().items():
                write.replace_file(path, data)
        return store.commit(write)

    def _meaning_changes(self, old: Owner, new: Owner) -> bool:
        return meaning_changes(self.old.catalog, old, self.new.catalog, new)


def meaning_changes(before: Catalog, old: Owner, after: Catalog, new: Owner) -> bool:
    """Whether a write planned for the old schema could be wrong for this table: then its version
    moves, so that the write is refused wherever it is on its way."""
    return _meaning(old) != _meaning(new) or _incident(before, old) != _incident(after, new)


def _meaning(owner: Owner) -> Owner:
    """A type without annotations that are documentation only."""
    properties = tuple(replace(p, annotations=_rules(p.annotations)) for p in owner.properties)
    return replace(owner, properties=properties, annotations=_rules(owner.annotations))


def _rules(annotations: tuple[Annotation, ...]) -> tuple[Annotation, ...]:
    return tuple(each for each in annotations if each.name not in METADATA)


def _incident(catalog: Catalog, owner: Owner) -> list[Owner]:
    """The edge types that a delete of this node type cascades to."""
    edges = catalog.edges.values()
    return [_meaning(edge) for edge in edges if owner.name in (edge.source, edge.target)]


def _violations(
    write: SchemaWrite, old: Owner, new: Owner, filling: Filling | None
) -> RuleViolations:
    rules = new_rules(old, new, filling)
    if not rules and filling is None:
        return RuleViolations()
    return broken(write.read(old.table), old, new, filling, rules)


def change_table(
    write: SchemaWrite,
    old: Owner,
    new: Owner,
    filling: Filling | None,
    *,
    hard: bool = False,
    rekeys: bool = True,
) -> None:
    """Stage the change of one table as a new version, even without new columns: the version fences
    writers that planned under the old schema. Rows get the ids of another key if it `rekeys`."""
    change, columns = evolution(old, new), NewColumns(old, new, filling)
    has_rows = bool(write.read(old.table).count())
    if rekeys and is_rekeyed(old, new) and has_rows:
        write.rewrite_rows(old.table, rekeyed_rows(write.read(old.table), old, new))
        if columns:
            fields, read, values = columns.fields, columns.read, columns.values
            write.then(
                old.table, lambda tables, pin: tables.stage_add_columns(pin, fields, read, values)
            )
        rest = columns.then(change)
        write.then(old.table, lambda tables, pin: tables.stage_evolve(pin, rest))
    elif columns and has_rows:
        rest = columns.then(change)
        write.fill_columns(old.table, columns.fields, columns.read, columns.values)
        write.then(old.table, lambda tables, pin: tables.stage_evolve(pin, rest))
    else:
        write.evolve_table(old.table, change)
    if hard and change.drops:
        # Files with a column that is dropped for good are rewritten without it.
        write.then(old.table, lambda tables, pin: tables.stage_rewrite(pin))
        write.reclaim(old.table)
    if indexes := _index_change(old, new):
        write.then(old.table, indexes.staged)
    if old.name != new.name:
        write.rename_table(old.table, new.table)


def widened_columns(old: Owner, new: Owner) -> dict[PropertyId, tuple[str, str]]:
    """The properties whose column gets another Arrow type: their names after and before."""
    before = {prop.id: prop for prop in old.properties}
    return {
        prop.id: (prop.name, before[prop.id].name)
        for prop in new.properties
        if prop.id in before and arrow_type(prop.type) != arrow_type(before[prop.id].type)
    }


@dataclass(frozen=True, slots=True)
class NewColumns:
    """The columns of a type that are written for every row: backfilled ones, and those that are
    cast to a wider type, which have a name of their own until the old column is gone."""

    old: Owner
    new: Owner
    filling: Filling | None

    def __bool__(self) -> bool:
        return self.filling is not None or bool(widened_columns(self.old, self.new))

    @property
    def fields(self) -> list[pa.Field]:
        """The written columns as the table first has them."""
        filled = () if self.filling is None else self.filling.fields
        return [*filled, *(field.with_name(_WIDE + field.name) for field, _ in self._widened())]

    @property
    def read(self) -> list[str]:
        """The columns of the table that the values are made from."""
        if self.filling is not None:
            return list(self.filling.columns)
        return [before for _, before in self._widened()]

    def values(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The written columns for a batch of the table before the change."""
        filled = () if self.filling is None else self.filling.values(batch).columns
        wide = (batch.column(before).cast(field.type) for field, before in self._widened())
        schema = pa.schema([field.with_nullable(True) for field in self.fields])
        return pa.RecordBatch.from_arrays([*filled, *wide], schema=schema)

    def then(self, change: Evolution) -> Evolution:
        """The rest of the change once these columns are there."""
        wide = {field.name for field, _ in self._widened()}
        written = wide if self.filling is None else wide | self.filling.names
        return replace(
            change,
            adds=tuple(field for field in change.adds if field.name not in written),
            renames={**change.renames, **{_WIDE + name: name for name in wide}},
        )

    def _widened(self) -> list[tuple[pa.Field, str]]:
        named = widened_columns(self.old, self.new)
        return [
            (property_field(prop), named[prop.id][1])
            for prop in sorted(self.new.properties, key=lambda prop: prop.id)
            if prop.id in named
        ]


@dataclass(frozen=True, slots=True)
class _IndexChange:
    """Indexes of kept columns that the new schema adds, and names of those it drops."""

    added: tuple[SchemaIndex, ...]
    gone: frozenset[str]

    def __bool__(self) -> bool:
        return bool(self.added or self.gone)

    def requests(self, reader: TableReader) -> tuple[list[IndexRequest], frozenset[str]]:
        """The indexes to build, and the names of existing indexes to drop."""
        answers = (decided(reader, index) for index in self.added)
        existing = {index.name for index in reader.indexes()}
        return [r for r in answers if isinstance(r, IndexRequest)], self.gone & existing

    def staged(self, tables: TableStaging, pin: WriteBase) -> StagedWrite | None:
        """The change as a table version of its own, or None."""
        requests, gone = self.requests(tables.reader(pin))
        return tables.stage_create_indexes(pin, requests, gone) if requests or gone else None


def _index_change(old: Owner, new: Owner) -> _IndexChange:
    """The index changes of kept columns: an added column has no values yet, and a dropped column
    takes its index along."""
    before = {index.name: index for index in indexes_of(old)}
    after = {index.name: index for index in indexes_of(new)}
    were, are = ({prop.id: prop.name for prop in each.properties} for each in (old, new))
    kept = {(were[number], are[number]) for number in were.keys() & are.keys()}
    written = {name for name, _ in widened_columns(old, new).values()}  # and their index is gone
    return _IndexChange(
        tuple(
            w
            for n, w in after.items()
            if (n not in before or w.column in written) and w.column in {b for _, b in kept}
        ),
        frozenset(
            n for n, w in before.items() if n not in after and w.column in {a for a, _ in kept}
        ),
    )


def evolution(old: Owner, new: Owner) -> Evolution:
    """The column renames, drops and additions of a type's table. A column of another Arrow type is
    dropped and added."""
    before = {prop.id: prop for prop in old.properties}
    after = {prop.id: prop for prop in sorted(new.properties, key=lambda prop: prop.id)}
    widened = widened_columns(old, new)
    kept = {number: prop for number, prop in after.items() if number in before.keys() - widened}
    return Evolution(
        renames={
            before[number].name: prop.name
            for number, prop in kept.items()
            if before[number].name != prop.name
        },
        drops=frozenset(prop.name for number, prop in before.items() if number not in kept),
        adds=tuple(property_field(prop) for number, prop in after.items() if number not in kept),
        order=tuple(new.schema.names),
        nullable=frozenset(
            before[number].name
            for number, prop in kept.items()
            if prop.type.nullable and not before[number].type.nullable
        ),
    )
