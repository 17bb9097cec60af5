"""Merged schema of a branch merge: decided before any row, applied to the tables with the rows.

    three-way schema merge ─▶ rows decided under the ─▶ tables come, evolve and take
    conflicts end here        merged schema             their rows, in one commit

Invariant: a merge whose schemas are equal, or whose result is the target's own schema, changes no
schema and takes no schema lock. Any other runs in the turn of a schema change, and its commit names
the merged schema, which is archived before.
"""

import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.catalog.accept import admit
from omnigraph.catalog.counterparts import property_counterparts, type_counterpart
from omnigraph.catalog.draft import AnyType
from omnigraph.catalog.identity import numbered_above
from omnigraph.catalog.model import Catalog, Type
from omnigraph.catalog.schema_diff import plan_migration
from omnigraph.catalog.schema_merge import SCHEMA_CONFLICT, merge_schemas, same_definition
from omnigraph.catalog.schema_steps import schema_steps
from omnigraph.catalog.schema_text import Written, schema_text, type_text, written_declarations
from omnigraph.costs import COSTS
from omnigraph.errors import MergeConflict, MergeConflicts, OmnigraphError, ParseError
from omnigraph.exec.changes.diff import ChangedRows, Filters, changes_between
from omnigraph.exec.changes.entities import Entities, Mask, differ_in, mask_of, present
from omnigraph.exec.merge.crosscheck import Merged, conflict_of
from omnigraph.exec.merge.decide import Sides, stage_part
from omnigraph.exec.rules.rules import RuleViolations
from omnigraph.exec.schema.backfill import filling_of
from omnigraph.exec.schema.conform import NewRules, broken_by, is_rekeyed, new_rules
from omnigraph.exec.schema.migrate import change_table, meaning_changes
from omnigraph.exec.schemas import Accepted, Schemas, accepted
from omnigraph.storage.lance.staging import StagedWrite, TableStaging
from omnigraph.storage.names import MAIN
from omnigraph.storage.protocol.schema_write import SchemaWrite
from omnigraph.storage.records import CommitId, Snapshot, WriteBase
from omnigraph.storage.store import Store
from omnigraph.types import Kind, PropertyId, SchemaStep, TableKey, TypeId

SCHEMA_HINT = "change one of the two schemas with `schema apply`, and merge again"


@dataclass(frozen=True, slots=True)
class MergedSchema:
    """The schema of a merge, and those of its two sides."""

    merged: Accepted
    ours: Accepted
    theirs: Accepted

    @property
    def catalog(self) -> Catalog:
        return self.merged.catalog

    @property
    def differs(self) -> bool:
        """Whether the two sides have different schemas."""
        return self.ours.id != self.theirs.id

    @property
    def changes(self) -> bool:
        """Whether the target gets another schema."""
        return self.merged.id != self.ours.id

    @property
    def steps(self) -> tuple[SchemaStep, ...]:
        """The changes of the target's schema."""
        return schema_steps(self.ours.catalog, self.merged.catalog) if self.changes else ()

    def in_ours(self, owner: Type) -> Type | None:
        """A type of the merged schema as the target has it."""
        return type_counterpart(owner, self.catalog, self.ours.catalog)

    def in_theirs(self, owner: Type) -> Type | None:
        """A type of the merged schema as the source has it."""
        return type_counterpart(owner, self.catalog, self.theirs.catalog)

    def sides(self, theirs: Snapshot, ours: Snapshot) -> Sides:
        """The two versions of the graph, with their tables under the names of this schema."""
        if not self.differs:
            return Sides(theirs, ours)
        return Sides(
            self._named(theirs, self.in_theirs),
            self._named(ours, self.in_ours),
            stored_as=lambda owner: (self.in_theirs(owner), self.in_ours(owner)),
        )

    def _named(self, snapshot: Snapshot, own: Callable[[Type], Type | None]) -> Snapshot:
        pairs = ((owner.table, own(owner)) for owner in self.catalog.types)
        tables = {
            name: replace(snapshot.tables[each.table], table_key=name)
            for name, each in pairs
            if each is not None and each.table in snapshot.tables
        }
        return replace(snapshot, tables=tables)


def merged_schema(
    store: Store, schemas: Schemas, base: Snapshot, ours: Snapshot, theirs: Snapshot
) -> MergedSchema:
    """The schema of the merge, or `MergeConflicts` with what both sides changed."""
    origin, own, other = (schemas.of(each) for each in (base, ours, theirs))
    if own.id == other.id or other.id == origin.id:
        return MergedSchema(own, own, other)
    if own.id == origin.id and _same_identities(own.catalog, other.catalog):
        return MergedSchema(other, own, other)
    branches = (store.snapshot(name) for name in store.branches.list())
    catalogs = (schemas.of(each).catalog for each in branches)
    result = merge_schemas(origin.catalog, numbered_above(own.catalog, catalogs), other.catalog)
    if result.conflicts:
        raise MergeConflicts(result.conflicts, hint=SCHEMA_HINT)
    for side in (own, other):
        if result.catalog.fingerprint == side.catalog.fingerprint:
            return MergedSchema(side, own, other)
    return MergedSchema(accepted(_text(result.catalog, own, other), result.catalog), own, other)


def _same_identities(ours: Catalog, theirs: Catalog) -> bool:
    """Whether what the two schemas have in common has one identity: the target's tables are known
    by the target's, so a schema that gave others to it cannot be taken as it is."""
    for other in theirs.types:
        own = type_counterpart(other, theirs, ours)
        if own is None:
            continue
        pairs = property_counterparts(other, own)
        if own.id != other.id or any(
            prop.name in pairs and pairs[prop.name].id != prop.id for prop in other.properties
        ):
            return False
    return True


def _text(catalog: Catalog, ours: Accepted, theirs: Accepted) -> str:
    """The text of a merged schema: each declaration as the side that has it wrote it, and anew
    where both changed it. A conflict if what the sides added does not make one schema."""
    written: Written = {}
    for side in (theirs, ours):
        for name, source in written_declarations(side.text).items():
            kind, word = name
            declared, merged = (
                _declaration(side.catalog, kind, word),
                _declaration(catalog, kind, word),
            )
            if declared is None or merged is None:
                continue
            comment = source[0]
            if same_definition(declared, merged):
                written[name] = source
            elif side is ours:
                written[name] = comment, written.get(name, ("", None))[1]
            else:
                written[name] = comment, None
    text = schema_text(catalog, written)
    with suppress(OmnigraphError):
        if not plan_migration(catalog, text).steps:
            return text
    text = schema_text(catalog, {})
    try:
        admit(text, catalog)
    except ParseError as fault:
        raise MergeConflicts((_invalid(text, fault, ours, theirs),), hint=SCHEMA_HINT) from fault
    return text


_DECLARATION = re.compile(rf"^({'|'.join(Kind)}) (\w+)", re.MULTILINE)


def _invalid(text: str, fault: ParseError, ours: Accepted, theirs: Accepted) -> MergeConflict:
    """A fault of a merged schema as a conflict of the declaration that has it."""
    until = "\n".join(text.split("\n")[: fault.line])
    kind, name = _DECLARATION.findall(until)[-1]
    sides = (_shown(side.catalog, Kind(kind), name) for side in (ours, theirs))
    message = f"both sides together make no schema: {fault.headline}"
    return MergeConflict(kind, name, None, SCHEMA_CONFLICT, message, None, *sides)


def _shown(catalog: Catalog, kind: Kind, name: str) -> dict[str, Any] | None:
    declared = _declaration(catalog, kind, name)
    return None if declared is None else {"property": None, "definition": type_text(declared)}


def _declaration(catalog: Catalog, kind: Kind, name: str) -> AnyType | None:
    """A declaration of a schema's text; that of a family is none of its types."""
    if kind is Kind.EDGE:
        return next((edge for edge in catalog.edges_declared if edge.name == name), None)
    return catalog.declared(kind).get(name)


def lost_writes(
    store: Store,
    schemas: Schemas,
    schema: MergedSchema,
    base: Snapshot,
    ours: Snapshot,
    theirs: Snapshot,
) -> Iterator[MergeConflict]:
    """What one side wrote since, and the merged schema has no place for: entities of a type and
    values of a property that the other side removed, and ids that follow from another key."""
    before = schemas.of(base).catalog
    for side, snapshot, other, other_snapshot in (
        (schema.ours, ours, schema.theirs, theirs),
        (schema.theirs, theirs, schema.ours, ours),
    ):
        writes = _Writes(store, schemas, base, snapshot)
        for owner in side.catalog.types:
            same = type_counterpart(owner, side.catalog, other.catalog)
            for name in () if same is None else _replaced(owner, same, before):
                # Else both added it: an identity of its own is all that a branch keeps.
                comes_from_base = CommitId(base.commit_id) in store.history.dag(
                    other_snapshot.branch
                )
                which = None if name is None else partial(_valued, name)
                if comes_from_base and writes.any(owner, which):
                    what = owner.name if name is None else f"{owner.name}.{name}"
                    yield _lost(owner, f"{what} {_REPLACED}")
            kept = type_counterpart(owner, side.catalog, schema.catalog)
            if kept is None:
                if writes.any(owner):
                    yield _lost(owner, f"{owner.name} {_LOST}")
                continue
            if is_rekeyed(_under(kept, owner), kept) and writes.any(owner):
                text = f"{owner.name} has another @key on one side, and was written to on the other"
                yield _lost(owner, f"{text}; write that again once the key is there")
            still = property_counterparts(owner, kept)
            for prop in owner.properties:
                if prop.name not in still and writes.any(owner, partial(_changed, prop.name)):
                    yield _lost(owner, f"{owner.name}.{prop.name} {_LOST}")


_LOST = (
    "was removed on one side and written to on the other; add it again, or undo what was written"
)


_REPLACED = (
    "was dropped and added again on one side, and the other wrote entities that have it: what has "
    "the name now is another one; undo what was written, or write it again after the merge"
)


def _replaced(owner: Type, same: Type, base: Catalog) -> Iterator[str | None]:
    """What a side has from the base and the other side by its name alone, for it was dropped and
    added again there: the type itself, as None, or properties."""
    was = next((each for each in base.types if _identity(each) == _identity(owner)), None)
    if was is None:
        return
    if same.id != owner.id:
        if all(_identity(each) != _identity(same) for each in base.types):
            yield None
        return
    known = {prop.id for prop in was.properties}
    for name, prop in property_counterparts(owner, same).items():
        own = owner.property(name)
        if own is not None and own.id in known and prop.id not in known:
            yield name


def _identity(owner: Type) -> tuple[Kind, TypeId]:
    return owner.kind, owner.id


def _lost(owner: Type, text: str) -> MergeConflict:
    return MergeConflict(str(owner.kind), owner.name, None, SCHEMA_CONFLICT, text)


@dataclass(frozen=True, slots=True)
class _Writes:
    """What a side wrote since the base, by content."""

    store: Store
    schemas: Schemas
    base: Snapshot
    side: Snapshot

    def any(self, owner: Type, which: Callable[[ChangedRows], Mask] | None = None) -> bool:
        """Whether an entity of a type that is there now has other values than in the base; with
        `which`, one of those that it chooses."""
        only = Filters(types=(owner.id,))
        changes = changes_between(self.store, self.schemas, self.base, self.side, only)
        return any(
            bool((present(rows.now) if which is None else present(rows.now) & which(rows)).any())
            for rows in changes.columns(owner.id)
        )


def _changed(prop: str, rows: ChangedRows) -> Mask:
    """Where rows that differ do so in a property."""
    return differ_in(rows.was, rows.now, prop)


def _valued(prop: str, rows: ChangedRows) -> Mask:
    """Where rows that differ have a value of a property."""
    return mask_of(rows.now.rows[prop].combine_chunks().is_valid())


# ---- tables


def stage_schema(write: SchemaWrite, schema: MergedSchema, parts: dict[TableKey, Merged]) -> None:
    """Stage every table under the merged schema, with the rows that it takes, and the schema."""
    for gone in schema.ours.catalog.types:
        if type_counterpart(gone, schema.ours.catalog, schema.catalog) is None:
            write.drop_table(gone.table)
    new = []
    for owner in schema.catalog.types:
        own, part = schema.in_ours(owner), parts.get(owner.table)
        if own is None:
            new.append(owner)
        elif own.name != owner.name or meaning_changes(
            schema.ours.catalog, own, schema.catalog, owner
        ):
            # Rows with ids by another key are all replaced, else they are a conflict.
            change_table(write, own, owner, filling_of(own, owner, {}), rekeys=False)
            if part is not None and part.changes_rows:
                write.then(own.table, _patch(part))
                write.count_rows(own.table, **part.counts)
        elif part is not None and part.changes_rows:
            stage_part(write, own.table, part)
    for owner in new:  # last, because a rename may have left a name to it
        reader, part = write.create_table(owner.table, owner.schema), parts.get(owner.table)
        if part is not None and part.changes_rows:
            write.fill_table(owner.table, part.added(Entities(owner, reader)))
    # Both sides had their turn: whatever narrows was accepted on one of them.
    write.replace_schema(schema.merged.id, narrows=False)
    if write.state.branch == MAIN:
        for path, data in schema.merged.files().items():
            write.replace_file(path, data)


def _patch(part: Merged) -> Callable[[TableStaging, WriteBase], StagedWrite | None]:
    def staged(tables: TableStaging, pin: WriteBase) -> StagedWrite:
        target = Entities(part.merge.owner, tables.reader(pin), defaults=True)
        return tables.stage_patch(
            pin,
            removed=part.leaving(),
            added=part.added(target),
            updated=part.updated_count(),
        )

    return staged


# ---- rules


def rule_conflicts(
    store: Store, schema: MergedSchema, parts: dict[TableKey, Merged]
) -> Iterator[MergeConflict]:
    """Violations of rules that one of the sides did not have, over all rows of the type."""
    for part in parts.values():
        owner = part.merge.owner
        sides = (schema.in_ours(owner), schema.in_theirs(owner))
        stricter = [_stricter(_under(owner, side), owner) for side in sides if side]
        if any(stricter):
            for violation in _violations(store, part, stricter).violations:
                yield conflict_of(owner, violation)


def _stricter(was: Type, owner: Type) -> NewRules:
    """The rules that a side's rows were not held to. A default fits the row rules of its property,
    and yet rows that all get it are not unique."""
    filled = new_rules(was, owner, filling_of(was, owner, {}))
    return replace(new_rules(was, owner, None), uniques=filled.uniques)


def _under(owner: Type, side: Type) -> Type:
    """A side's type with the identities of the merged one."""
    ids = {
        prop.name: same.id
        for prop in side.properties
        for same in [property_counterparts(side, owner).get(prop.name)]
        if same is not None
    }
    properties = tuple(
        replace(prop, id=ids.get(prop.name, PropertyId(-1 - number)))
        for number, prop in enumerate(side.properties)
    )
    return replace(side, properties=properties)


def _violations(store: Store, part: Merged, stricter: list[NewRules]) -> RuleViolations:
    rules = NewRules(
        tuple(dict.fromkeys(rule for each in stricter for rule in each.rows)),
        tuple(dict.fromkeys(rule for each in stricter for rule in each.uniques)),
        next((each.cardinality for each in stricter if each.cardinality), None),
    )
    columns = sorted({"id"} | rules.columns)
    pin = part.merge.target.reader.pin
    rows = store.deltas.listed(pin)["after"].combine_chunks()
    staying = rows.filter(pc.invert(pc.is_in(rows, value_set=part.leaving())))

    def tables() -> Iterator[pa.Table]:
        yield part.incoming(columns)
        for start in range(0, len(staying), COSTS.schema_merge_chunk_rows):
            yield part.merge.target.columns(
                staying.slice(start, COSTS.schema_merge_chunk_rows), columns
            )

    return broken_by(part.merge.owner, rules, pin.row_count, tables())
