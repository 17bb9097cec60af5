"""Branch merge: one branch into another, as one commit with two parents.

    heads ─▶ bases ─▶ decide ─▶ rules on the ─▶ stage ─▶ commit
    pinned   in the   type by   merged graph    only     parents: target
             DAG      type                      changed  head, source head

Invariant: both heads are pinned at the start. The commit holds only if the target is still there,
and its content is exactly the two pinned heads merged. A target that moved is pinned and
decided on anew, a few times; the source stays pinned where it was. Rows are copied: nothing the
target reads afterwards belongs to the source.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pyarrow as pa

from omnigraph.catalog.counterparts import type_counterpart
from omnigraph.catalog.model import Type
from omnigraph.errors import (
    BadRequest,
    MergeConflict,
    MergeConflicts,
    NotFound,
    OmnigraphError,
    PreconditionFailed,
    Reclaimed,
)
from omnigraph.exec.changes.diff import owners
from omnigraph.exec.merge.ancestry import Lookup, Meeting, lookup_in, meeting, merge_bases
from omnigraph.exec.merge.crosscheck import Merged, MergedGraph, violations
from omnigraph.exec.merge.merged_schema import (
    MergedSchema,
    create_tables,
    lost_types,
    merged_schema,
    rule_conflicts,
    stage_schema,
)
from omnigraph.exec.merge.resolve import (
    ENTITY,
    EntityName,
    Resolve,
    Settled,
    check_options,
    require_asked,
    settle,
)
from omnigraph.exec.merge.threeway import (
    Base,
    CommitBase,
    EmptyBase,
    ForgottenBase,
    MergedBase,
    TypeMerge,
)
from omnigraph.exec.progress import Meter, Progress
from omnigraph.exec.rules.rules import rules_by_table
from omnigraph.exec.schemas import Schemas
from omnigraph.storage.locks.turns import Turn
from omnigraph.storage.names import MAIN
from omnigraph.storage.protocol.intent import WriterKind
from omnigraph.storage.protocol.schema_write import SchemaWrite
from omnigraph.storage.protocol.write import Write
from omnigraph.storage.records import Commit, CommitId, Snapshot, TablePin
from omnigraph.storage.retry import MERGE
from omnigraph.storage.store import Store
from omnigraph.types import TableKey

ALREADY_UP_TO_DATE, FAST_FORWARD, MERGED = "already_up_to_date", "fast_forward", "merged"
COMPARE = "compare"

Done = tuple[str, Commit | None]
"""The kind of a merge, and its commit."""


@dataclass(frozen=True, slots=True)
class MergeOutcome:
    """The outcome of a merge. `commit` is None when the target had everything.

    `branch_deleted` is None unless deleting the source was asked for.
    """

    kind: str
    source: str
    target: str
    commit: Commit | None = None
    actor: str | None = None
    branch_deleted: bool | None = None
    branch_delete_error: str | None = None

    def to_json(self) -> dict[str, Any]:
        """The outcome as a server sends it."""
        shown: dict[str, Any] = {
            "source": self.source,
            "target": self.target,
            "outcome": self.kind,
            "actor_id": self.actor,
        }
        if self.branch_deleted is not None:
            shown["branch_deleted"] = self.branch_deleted
        if self.branch_delete_error is not None:
            shown["branch_delete_error"] = self.branch_delete_error
        return shown


@dataclass(frozen=True, slots=True)
class MergeRequest:
    """Source and target branch, and how conflicts are settled."""

    source: str
    into: str = MAIN
    actor: str | None = None
    delete_source: bool = False
    by: str = ENTITY
    resolve: Resolve = None
    progress: Callable[[Progress], None] | None = None


def run_merge(store: Store, schemas: Schemas, asked: MergeRequest) -> MergeOutcome:
    """Merge, or raise with nothing of it visible."""
    source, target = asked.source.strip(), asked.into.strip()
    if source == target:
        raise BadRequest(f"cannot merge branch '{source}' into itself", "name two branches")
    store.heal()
    theirs = store.snapshot(source)
    catalogs = [schemas.of(each).catalog for each in (theirs, store.snapshot(target))]
    types = {owner.name for catalog in catalogs for owner in catalog.types}
    named = check_options(types, asked.by, asked.resolve)
    meter = Meter(asked.progress)

    def attempts(*, in_schema_turn: bool) -> Done:
        return store.turns.prepared_again(
            lambda turn: _Merge(store, schemas, asked, named, theirs, meter, in_schema_turn).run(
                store.snapshot(target), turn
            ),
            budget=MERGE,
            counts=_beside_deletions(),
        )

    try:
        kind, commit = attempts(in_schema_turn=False)
    except _ChangesSchema:
        with store.schema_change():
            kind, commit = attempts(in_schema_turn=True)
    meter.add(0, "done")
    deleted, error = _delete_source(store, theirs) if asked.delete_source else (None, None)
    return MergeOutcome(kind, source, target, commit, asked.actor, deleted, error)


def _beside_deletions() -> Callable[[Exception], bool]:
    """Whether a loss is worth another attempt: a branch that history leads to may be deleted while
    it is read, and the next attempt does without it; what is missing twice is missing."""
    missing: set[str] = set()

    def counts(loss: Exception) -> bool:
        if not isinstance(loss, NotFound | Reclaimed):
            return True
        is_new = str(loss) not in missing
        missing.add(str(loss))
        return is_new

    return counts


class _ChangesSchema(Exception):
    """The merge brings the target another schema, which takes the turn of a schema change."""


@dataclass(frozen=True, slots=True)
class _Merge:
    """One attempt of a merge."""

    store: Store
    schemas: Schemas
    asked: MergeRequest
    named: frozenset[EntityName]
    theirs: Snapshot
    meter: Meter
    in_schema_turn: bool

    def run(self, ours: Snapshot, turn: Turn) -> Done:
        store, theirs, meter = self.store, self.theirs, self.meter
        meter.rows = 0
        meter.add(0, COMPARE)
        lookup = lookup_in(store.history, theirs.branch, ours.branch)
        common = meeting(lookup, ours.commit_id, theirs.commit_id)
        bases = common.bases
        if not bases:
            raise NotFound("common ancestor", f"{theirs.branch} and {ours.branch}")
        if bases[0].id == theirs.commit_id:
            return ALREADY_UP_TO_DATE, None
        kind = FAST_FORWARD if bases[0].id == ours.commit_id else MERGED
        read = _Bases(store, self.schemas, lookup, common)
        schema = self._schema(read.first(), ours)
        merge = partial(_decided, self, schema, read, ours)
        write: Write
        if schema.changes:
            write = self._changed(schema, ours, turn, merge)
        else:
            parts = merge({})
            meter.add(0, "write")
            write = store.begin(
                ours.branch,
                kind=WriterKind.BRANCH_MERGE,
                actor=self.asked.actor,
                schema=schema.ours.id,
                turn=turn,
            )
            _require_still(store, ours)
            for table_key, part in parts.items():
                _stage(write, table_key, part)
        source = lookup(CommitId(theirs.commit_id))
        commit = store.commit(
            write,
            expected_head=ours.commit_id,
            merged_parent=theirs.commit_id,
            merged_from=None if source is None else store.history.origin(source),
        )
        return kind, commit

    def _schema(self, base: Snapshot, ours: Snapshot) -> MergedSchema:
        """The schema that rows are merged under, decided before them."""
        schema = merged_schema(self.store, self.schemas, base, ours, self.theirs)
        if schema.ours.id != schema.theirs.id:
            of_base = self.schemas.of(base).catalog
            lost = tuple(lost_types(schema, base, ours, self.theirs, of_base))
            if lost:
                raise MergeConflicts(lost)
        if schema.changes and not self.in_schema_turn:
            raise _ChangesSchema
        return schema

    def _changed(
        self,
        schema: MergedSchema,
        ours: Snapshot,
        turn: Turn,
        decided: Callable[[dict[TableKey, TablePin]], dict[TableKey, Merged]],
    ) -> SchemaWrite:
        """The write of a merge that brings the target another schema."""
        for each in (schema.ours, schema.merged):
            self.schemas.archive(each)
        write = self.store.begin_schema_change(
            ours.branch,
            kind=WriterKind.BRANCH_MERGE,
            actor=self.asked.actor,
            schema=schema.ours.id,
            turn=turn,
        )
        try:
            _require_still(self.store, ours)
            parts = decided(create_tables(write, schema))
            self.meter.add(0, "write")
            stage_schema(write, schema, parts)
        except BaseException:
            write.abandon()
            raise
        return write


# ---- deciding


def _decided(
    attempt: _Merge,
    schema: MergedSchema,
    bases: "_Bases",
    ours: Snapshot,
    new_tables: dict[TableKey, TablePin],
) -> dict[TableKey, Merged]:
    """Each type that differs, decided to the end, or every conflict at once."""
    store, asked, meter = attempt.store, attempt.asked, attempt.meter
    parts, conflicts, answered = {}, [], set[EntityName]()
    targets = dict(_targets(schema, ours, new_tables))
    for owner in owners(schema.catalog):
        other = schema.in_theirs(owner)
        source = None if other is None else attempt.theirs.tables.get(other.table)
        target = targets.get(owner.table)
        if source is None or target is None or _is_same(source, target):
            continue
        stored_as = other, schema.in_ours(owner)
        base = bases.of(owner, source, target)
        merge = TypeMerge(store, owner, base, source, target, stored_as)
        settled = Settled()
        for undecided in merge.decide(lambda rows: meter.add(rows, COMPARE)):
            settle(merge, undecided, asked.by, asked.resolve, settled)
        conflicts += settled.open
        answered |= settled.asked
        parts[owner.table] = _merged(merge, settled)
    require_asked(attempt.named, answered)
    if not conflicts:
        meter.add(0, "check")
        merged = MergedGraph(parts, lambda table_key: store.tables.reader(targets[table_key]))
        conflicts = list(violations(merged, rules_by_table(schema.catalog)))
    if not conflicts and schema.ours.id != schema.theirs.id:
        conflicts = list(rule_conflicts(store, schema, parts))
    if conflicts:
        raise MergeConflicts(tuple(sorted(conflicts, key=_order)))
    return parts


def _targets(
    schema: MergedSchema, ours: Snapshot, new_tables: dict[TableKey, TablePin]
) -> Iterator[tuple[TableKey, TablePin]]:
    """The target's version of each table, by its name in the merged schema."""
    for owner in schema.catalog.types:
        own = schema.in_ours(owner)
        pin = new_tables.get(owner.table) if own is None else ours.tables.get(own.table)
        if pin is not None:
            yield owner.table, pin


def _is_same(source: TablePin, target: TablePin) -> bool:
    """Whether two pins are one version, whatever the table is called."""
    return source == replace(target, table_key=source.table_key)


def _require_still(store: Store, ours: Snapshot) -> None:
    """Row ids are staged against the version they were read from: the write began at no other."""
    head = store.snapshot(ours.branch).commit_id
    if head != ours.commit_id:
        raise PreconditionFailed(ours.branch, ours.commit_id, head)


def _merged(merge: TypeMerge, settled: Settled) -> Merged:
    source_rows, target_rows = merge.taken.rows()
    nothing = merge.owner.schema.empty_table()
    made = pa.concat_tables(settled.made) if settled.made else nothing
    made_rows = pa.concat_arrays([pa.array([], pa.uint64()), *settled.made_rows])
    return Merged(merge, source_rows, target_rows, made, made_rows)


def _order(conflict: MergeConflict) -> tuple[bool, str, str, str]:
    is_edge = conflict.entity_kind == "edge"
    return is_edge, conflict.type_name, conflict.entity_id or "", conflict.message


_Sides = tuple[TablePin, TablePin]
"""The source's version of a table, and the target's."""


class _Bases:
    """The merge base of each type: of one commit, or of several merged with each other."""

    def __init__(self, store: Store, schemas: Schemas, lookup: Lookup, common: Meeting) -> None:
        self._store = store
        self._schemas = schemas
        self._lookup = lookup
        self._meeting = common
        self._snapshots: dict[CommitId, Snapshot] = {}

    def first(self) -> Snapshot:
        """The graph at the nearest base, whose schema is that of the schema merge."""
        return self._snapshot_of(self._meeting.bases[0])

    def _snapshot_of(self, commit: Commit) -> Snapshot:
        if commit.id not in self._snapshots:
            self._snapshots[commit.id] = self._store.history.snapshot_at(commit)
        return self._snapshots[commit.id]

    def of(self, owner: Type, source: TablePin, target: TablePin) -> Base:
        """The base of one type, read relative to the two sides' versions."""
        sides = source, target
        base = self._joined(owner, sides, self._meeting.bases)
        for merge in self._meeting.forgotten:
            before = self._lookup(CommitId(merge.parent or ""))
            if before is not None:
                after = self._one(owner, sides, merge)
                base = ForgottenBase(after, self._one(owner, sides, before), base)
        return base

    def _joined(self, owner: Type, sides: _Sides, commits: tuple[Commit, ...]) -> Base:
        joined = self._one(owner, sides, commits[0])
        for index, commit in enumerate(commits[1:], start=1):
            # The base of the commits so far and the next one: their own merge bases.
            below = merge_bases(self._lookup, commits[index - 1].id, commit.id)
            joined = MergedBase(
                joined, self._one(owner, sides, commit), self._joined(owner, sides, below)
            )
        return joined

    def _one(self, owner: Type, sides: _Sides, commit: Commit) -> Base:
        snapshot = self._snapshot_of(commit)
        was = type_counterpart(owner, self._schemas.of(snapshot).catalog)
        pin = None if was is None else snapshot.tables.get(was.table)
        source, target = sides
        if pin is None:
            return EmptyBase(self._store, owner, source=source, target=target)
        return CommitBase(self._store, owner, pin, source=source, target=target, stored_as=was)


# ---- staging


def _stage(write: Write, table_key: TableKey, part: Merged) -> None:
    """Stage the changes of one table, as one version."""
    if part.changes_rows:
        write.patch(table_key, **part.patch())


# ---- afterwards


def _delete_source(store: Store, source: Snapshot) -> tuple[bool, str | None]:
    """Delete the merged branch, unless it moved meanwhile. A failure here fails no merge."""
    try:
        store.branches.delete(source.branch, expected_head=CommitId(source.commit_id))
    except PreconditionFailed:
        return False, f"branch '{source.branch}' has commits that are not merged"
    except OmnigraphError as cause:
        return False, str(cause)
    return True, None
