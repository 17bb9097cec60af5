"""Restore: a branch's content, or that of certain types, becomes that of an earlier point.

A three-way merge of the point onto the branch head. A type that is restored has the head as its
base, so everything that differs is taken from the point; a type that is left alone has the point as
its base, so nothing is, and the rules still see what is missing between the two.

Invariant: afterwards a restored type is as it was at the point, entity by entity, and no other type
is changed. The changes of the commit are those of a diff from the head to the point.
"""

from collections.abc import Collection
from dataclasses import dataclass

from omnigraph.catalog.added_again import properties_added_again, said_of, types_added_again
from omnigraph.catalog.model import Catalog, Type
from omnigraph.catalog.near_names import did_you_mean
from omnigraph.errors import NotFound, SchemaDiffers
from omnigraph.exec.merge.threeway import Base, CommitBase
from omnigraph.exec.merge.undo import (
    StoredAs,
    Undo,
    UndoOutcome,
    UndoRequest,
    changed_types,
    not_reclaimed,
    require_same_key,
    run_undo,
    seen_today,
    stored_then,
)
from omnigraph.exec.schemas import Schemas
from omnigraph.storage.protocol.intent import WriterKind
from omnigraph.storage.records import EmbeddedBy, Snapshot, TablePin, embedded_property
from omnigraph.storage.store import Store
from omnigraph.types import TableKey

RESTORED, NOTHING_TO_RESTORE = "restored", "nothing_to_restore"
_HINT = "restore the types that these belong to as well, or change the branch first"
_WAY_OUT = "name the types to restore, or change the schema back first"
_NO_VALUE = "give the property a default or make it optional (?) first, or restore other types"


def restore_message(point: Snapshot, types: Collection[str] | None) -> str:
    """The message of a restore that is given none."""
    of = f"{', '.join(sorted(types))} " if types is not None else ""
    return f"Restore {of}to {point.commit_id}"


def run_restore(
    store: Store,
    schemas: Schemas,
    catalog: Catalog,
    point: Snapshot,
    types: Collection[str] | None,
    asked: UndoRequest,
) -> UndoOutcome:
    """Restore, or raise with nothing of it visible."""
    chosen = _chosen(catalog, types)
    with not_reclaimed(point.commit_id):
        source = seen_today(schemas, point, catalog)
        rechecked = changed_types(schemas, point, catalog)
        old = schemas.of(point).catalog
        then = stored_then(store, schemas, point, catalog, asked.branch)

        def undo(ours: Snapshot) -> Undo:
            if old.schema_id != catalog.schema_id:
                _require_types(point, source, ours, old, catalog, chosen, types is None)
            return Undo(
                WriterKind.RESTORE,
                RESTORED,
                NOTHING_TO_RESTORE,
                (point.commit_id,),
                source,
                then,
                _ChosenBases(store, chosen, then),
                chosen,
                rechecked,
                _HINT,
                lambda: _why_nothing(point, old, catalog),
                _models(catalog, chosen, point),
            )

        return run_undo(store, catalog, asked, undo)


def _why_nothing(point: Snapshot, old: Catalog, today: Catalog) -> str:
    again = properties_added_again(old, today)
    if not again:
        return f"the branch is as it was at {point.commit_id}"
    return f"no entity differs from {point.commit_id}; {said_of(again)}"


def _models(
    catalog: Catalog, chosen: frozenset[TableKey], point: Snapshot
) -> dict[str, EmbeddedBy | None]:
    """Return the models of the point for the types that are restored; None where it had none."""
    owners = (owner for owner in catalog.nodes.values() if owner.table in chosen)
    keys = (embedded_property(owner.id, prop.id) for owner in owners for prop in owner.properties)
    return {key: point.embedded.get(key) for key in keys}


def _chosen(catalog: Catalog, types: Collection[str] | None) -> frozenset[TableKey]:
    """The tables of the named types, or of all."""
    if types is None:
        return frozenset(owner.table for owner in catalog.types)
    chosen = set[TableKey]()
    for name in types:
        owners = catalog.called(name)
        if not owners:
            known = {owner.name for owner in catalog.types} | catalog.families.keys()
            raise NotFound("type", name, did_you_mean(name, known))
        chosen |= {owner.table for owner in owners}
    return frozenset(chosen)


@dataclass(frozen=True, slots=True)
class _ChosenBases:
    """The head as the base of a type that is restored, the point as that of any other."""

    store: Store
    chosen: frozenset[TableKey]
    stored_as: StoredAs

    def of(self, owner: Type, source: TablePin, target: TablePin) -> Base:
        """The side that gives way."""
        is_chosen = owner.table in self.chosen
        base, was = (target, None) if is_chosen else (source, self.stored_as(owner))
        return CommitBase(self.store, owner, base, source=source, target=target, stored_as=was)


def _require_types(
    point: Snapshot,
    source: Snapshot,
    ours: Snapshot,
    old: Catalog,
    today: Catalog,
    chosen: frozenset[TableKey],
    is_all: bool,
) -> None:
    """Every entity of the restored types can be told under today's schema."""
    restored = [owner for owner in today.types if owner.table in chosen]
    new = [o.name for o in restored if o.table not in source.tables and _rows(ours, o.table)]
    if new:
        reason = "the point is older than the type, which has entities today"
        way_out = _WAY_OUT if is_all else "leave it out, or change the schema back first"
        raise SchemaDiffers(point.commit_id, tuple(new), reason, way_out)
    again = {each.table for each in types_added_again(old, today)} & chosen
    lost = [o.name for o in old.types if o.table in again and _rows(point, o.table)]
    if lost:
        reason = (
            "the type was dropped and added again since, and its entities then are no part of it"
        )
        way_out = "name other types; `export --snapshot` of the point and `load` bring them back"
        raise SchemaDiffers(point.commit_id, tuple(lost), reason, way_out)
    if is_all:
        kept = {(owner.kind, owner.id) for owner in today.types}
        gone = [o for o in old.types if (o.kind, o.id) not in kept and _rows(point, o.table)]
        if gone:
            reason = "the type had entities at the point and was dropped since"
            names = tuple(owner.name for owner in gone)
            raise SchemaDiffers(point.commit_id, names, reason, _WAY_OUT)
    before = {(owner.kind, owner.id): owner for owner in old.types}
    for owner in restored:
        was = before.get((owner.kind, owner.id))
        if was is not None and source.tables[owner.table] != ours.tables.get(owner.table):
            _require_values(point, was, owner)


def _require_values(point: Snapshot, was: Type, owner: Type) -> None:
    """The ids are those of today's key, and no property that every entity must have is younger than
    the point, unless it has a default."""
    if _rows(point, was.table):
        require_same_key(point.commit_id, was, owner)
    known = {prop.id for prop in was.properties}
    required = (p for p in owner.properties if not p.type.nullable and p.default is None)
    new = [prop.name for prop in required if prop.id not in known]
    if new and _rows(point, was.table):
        reason = f"it has no value for {', '.join(new)}, which was added since and is required"
        raise SchemaDiffers(point.commit_id, (owner.name,), reason, _NO_VALUE)


def _rows(snapshot: Snapshot, table: TableKey) -> int:
    pin = snapshot.tables.get(table)
    return 0 if pin is None else pin.row_count
