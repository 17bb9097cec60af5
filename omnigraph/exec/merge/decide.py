"""Decision of a three-way merge over all types: rows to take, conflicts, and what is staged.

    source ─┐
    base   ─┼─▶ decide, ─▶ settle ─▶ keep edges ─▶ rules on the ─▶ stage
    target ─┘   by type    answers   with nodes    merged graph    only changed

A branch merge, a revert and a restore differ in the three versions they compare and in nothing
after.

Invariant: what is staged is the target with the decided changes and nothing else, and only a
decision without conflicts is staged.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import pyarrow as pa

from omnigraph.catalog.model import Catalog, EdgeType, Type
from omnigraph.errors import MergeConflict, MergeConflicts
from omnigraph.exec.changes.diff import owners
from omnigraph.exec.merge.crosscheck import Merged, MergedGraph, violations
from omnigraph.exec.merge.kept_edges import EdgeKeeper, KeptEdge
from omnigraph.exec.merge.planned_changes import PlannedChanges
from omnigraph.exec.merge.resolve import (
    ENTITY,
    EntityName,
    Resolve,
    Settled,
    by_ids,
    check_options,
    no_answer,
    require_asked,
    settle,
)
from omnigraph.exec.merge.threeway import Base, EmptyBase, TakenRows, TypeMerge
from omnigraph.exec.progress import Meter
from omnigraph.exec.rules.rules import rules_by_table
from omnigraph.storage.protocol.write import Write
from omnigraph.storage.records import Snapshot, TablePin
from omnigraph.storage.store import Store
from omnigraph.types import TableKey

COMPARE = "compare"


class Bases(Protocol):
    """The base of each type."""

    def of(self, owner: Type, source: TablePin, target: TablePin) -> Base:
        """The base of one type, read relative to the two sides' versions."""


@dataclass(frozen=True, slots=True)
class Answers:
    """How conflicts are settled, and the entities that answers are given for."""

    by: str = ENTITY
    resolve: Resolve = None
    named: frozenset[EntityName] = frozenset()

    @classmethod
    def checked(cls, types: Iterable[Type], by: str, resolve: Resolve) -> "Answers":
        """Answers that mean something for these types."""
        of_both = tuple(types)
        check_options(of_both, by, resolve)
        answers = by_ids(of_both, resolve)
        return cls(by, answers, frozenset(answers if isinstance(answers, Mapping) else ()))


@dataclass(frozen=True, slots=True)
class Sides:
    """The two versions of a graph that are merged, with tables under the catalog's names.
    `compared` leaves types out that cannot matter; `rechecked` are tables whose source rows were
    written under other rules than today's, and `keeps_new` lets such rows keep the target's values
    of properties that are younger. `stored_as` gives a type as source and target have it, where
    the catalog is that of neither."""

    theirs: Snapshot
    ours: Snapshot
    compared: Callable[[Type], bool] = lambda owner: True
    rechecked: Collection[TableKey] = ()
    keeps_new: bool = False
    stored_as: Callable[[Type], tuple[Type | None, Type | None]] = lambda owner: (None, None)


@dataclass(frozen=True, slots=True)
class Decision:
    """Every type that differs, decided to the end, or every conflict at once."""

    parts: dict[TableKey, Merged]
    conflicts: tuple[MergeConflict, ...]
    kept_edges: tuple[KeptEdge, ...]

    @property
    def changes(self) -> PlannedChanges:
        """The entities that change, for a preview and a result."""
        return PlannedChanges(self.parts)

    def require_settled(self, of: str = "merge", hint: str = "") -> None:
        """Pass only without conflicts."""
        if self.conflicts:
            raise MergeConflicts(self.conflicts, of, hint)

    def stage(self, write: Write) -> None:
        """Stage the changes of each table, as one version."""
        for table_key, part in self.parts.items():
            stage_part(write, table_key, part)


def decided(
    store: Store, catalog: Catalog, answers: Answers, bases: Bases, sides: Sides, meter: Meter
) -> Decision:
    """Compare, settle and check; nothing is staged."""
    parts: dict[TableKey, Merged] = {}
    conflicts: list[MergeConflict] = []
    answered: set[EntityName] = set()
    target_only: list[EdgeType] = []
    keeper = EdgeKeeper(parts)
    for owner in filter(sides.compared, owners(catalog)):
        source, target = (each.tables.get(owner.table) for each in (sides.theirs, sides.ours))
        if source == target:
            continue
        if source is None:
            target_only += [owner] if isinstance(owner, EdgeType) else []
            continue
        # A type that the target lacks is one that the source added.
        base: Base
        if target is None:
            base = EmptyBase(store, owner, source=source)
        else:
            base = bases.of(owner, source, target)
        merge = TypeMerge(
            store,
            owner,
            base,
            source,
            target,
            keeps_new=sides.keeps_new,
            stored_as=sides.stored_as(owner),
        )
        settled = _settled(merge, answers, keeper, meter)
        if owner.table in sides.rechecked:
            _recheck(merge, settled)
        conflicts += settled.open
        answered |= settled.asked
        parts[owner.table] = _merged(merge, settled)
    require_asked(answers.named, answered)
    if not conflicts:
        meter.add(0, "check")
        merged = MergedGraph(parts, partial(store.reader, sides.ours), target_only)
        conflicts = list(violations(merged, rules_by_table(catalog)))
    return Decision(parts, tuple(sorted(conflicts, key=_order)), tuple(keeper.kept))


def _settled(merge: TypeMerge, answers: Answers, keeper: EdgeKeeper, meter: Meter) -> Settled:
    owner, settled = merge.owner, Settled()
    edge = owner if isinstance(owner, EdgeType) else None
    unanswered = no_answer if edge is None else partial(keeper.answer, edge)
    for undecided in merge.decide(lambda rows: meter.add(rows, COMPARE)):
        settle(merge, undecided, answers.by, answers.resolve, settled, unanswered)
    if edge is None:
        keeper.note(owner.name, settled)
    else:
        keeper.keep(edge, merge, settled)
    return settled


def _recheck(merge: TypeMerge, settled: Settled) -> None:
    """Treat the rows that are taken as rows that neither side has: no rule of today's schema has
    looked at them."""
    source_rows, target_rows = merge.taken.rows()
    comes = source_rows.is_valid()
    replaced = target_rows.filter(comes)
    settled.add(merge.with_new_values(merge.incoming(), replaced), replaced)
    goes = source_rows.is_null()
    merge.taken = TakenRows()
    merge.taken.add(source_rows.filter(goes), target_rows.filter(goes))


def _merged(merge: TypeMerge, settled: Settled) -> Merged:
    source_rows, target_rows = merge.taken.rows()
    nothing = merge.owner.schema.empty_table()
    made = pa.concat_tables(settled.made) if settled.made else nothing
    made_rows = pa.concat_arrays([pa.array([], pa.uint64()), *settled.made_rows])
    return Merged(merge, source_rows, target_rows, made, made_rows)


def _order(conflict: MergeConflict) -> tuple[bool, str, str, str]:
    is_edge = conflict.entity_kind == "edge"
    return is_edge, conflict.type_name, conflict.entity_id or "", conflict.message


# ---- staging


def stage_part(write: Write, table_key: TableKey, part: Merged) -> None:
    """Stage the changes of one table, as one version."""
    if not part.changes_rows:
        return
    write.patch(
        table_key,
        removed=part.leaving(),
        added=part.added(part.merge.target),
        updated=part.updated_count(),
        addresses=part.addresses(),
    )
