"""Branch merge: one branch into another, as one commit with two parents.

    heads ─▶ bases ─▶ decide ─▶ rules on the ─▶ stage ─▶ commit
    pinned   in the   type by   merged graph    only     parents: target
             DAG      type                      changed  head, source head

Invariant: both heads are pinned at the start. The commit holds only if the target is still there,
and its content is exactly the two pinned heads merged. A target that moved is pinned and
decided on anew, a few times; the source stays pinned where it was. Rows are copied: nothing the
target reads afterwards belongs to the source.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from omnigraph.catalog.model import Catalog, Type
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
from omnigraph.exec.merge.resolve import (
    ENTITY,
    EntityName,
    Resolve,
    Settled,
    check_options,
    require_asked,
    settle,
)
from omnigraph.exec.merge.threeway import Base, CommitBase, ForgottenBase, MergedBase, TypeMerge
from omnigraph.exec.progress import Meter, Progress
from omnigraph.exec.rules.rules import rules_by_table
from omnigraph.storage.locks.turns import Turn
from omnigraph.storage.names import MAIN
from omnigraph.storage.protocol.intent import WriterKind
from omnigraph.storage.protocol.write import Write
from omnigraph.storage.records import NO_NOTE, Commit, CommitId, CommitNote, Snapshot, TablePin
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
    note: CommitNote = NO_NOTE
    delete_source: bool = False
    by: str = ENTITY
    resolve: Resolve = None
    progress: Callable[[Progress], None] | None = None


def run_merge(store: Store, catalog: Catalog, asked: MergeRequest) -> MergeOutcome:
    """Merge, or raise with nothing of it visible."""
    source, target = asked.source.strip(), asked.into.strip()
    if source == target:
        raise BadRequest(f"cannot merge branch '{source}' into itself", "name two branches")
    named = check_options(catalog, asked.by, asked.resolve)
    store.heal()
    theirs = store.snapshot(source)
    meter = Meter(asked.progress)
    kind, commit = store.turns.prepared_again(
        lambda turn: _merge(
            store, catalog, asked, named, theirs, store.snapshot(target), meter, turn
        ),
        budget=MERGE,
        counts=_beside_deletions(),
    )
    meter.add(0, "done")
    deleted, error = _delete_source(store, theirs) if asked.delete_source else (None, None)
    return MergeOutcome(kind, source, target, commit, asked.note.actor, deleted, error)


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


def _merge(
    store: Store,
    catalog: Catalog,
    asked: MergeRequest,
    named: frozenset[EntityName],
    theirs: Snapshot,
    ours: Snapshot,
    meter: Meter,
    turn: Turn,
) -> Done:
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
    parts = _decided(
        store, catalog, asked, named, _Bases(store, lookup, common), theirs, ours, meter
    )
    meter.add(0, "write")
    write = store.begin(
        ours.branch,
        kind=WriterKind.BRANCH_MERGE,
        **asked.note.stated,
        schema=catalog.schema_id,
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


def _require_still(store: Store, ours: Snapshot) -> None:
    """Row ids are staged against the version they were read from: the write began at no other."""
    head = store.snapshot(ours.branch).commit_id
    if head != ours.commit_id:
        raise PreconditionFailed(ours.branch, ours.commit_id, head)


# ---- deciding


def _decided(
    store: Store,
    catalog: Catalog,
    asked: MergeRequest,
    named: frozenset[EntityName],
    bases: "_Bases",
    theirs: Snapshot,
    ours: Snapshot,
    meter: Meter,
) -> dict[TableKey, Merged]:
    """Each type that differs, decided to the end, or every conflict at once."""
    parts, conflicts, answered = {}, [], set[EntityName]()
    for owner in owners(catalog):
        source, target = theirs.tables.get(owner.table), ours.tables.get(owner.table)
        if source is None or target is None or source == target:
            continue
        merge = TypeMerge(store, owner, bases.of(owner, source, target), source, target)
        settled = Settled()
        for undecided in merge.decide(lambda rows: meter.add(rows, COMPARE)):
            settle(merge, undecided, asked.by, asked.resolve, settled)
        conflicts += settled.open
        answered |= settled.asked
        parts[owner.table] = _merged(merge, settled)
    require_asked(named, answered)
    if not conflicts:
        meter.add(0, "check")
        merged = MergedGraph(parts, lambda table_key: store.reader(ours, table_key))
        conflicts = list(violations(merged, rules_by_table(catalog)))
    if conflicts:
        raise MergeConflicts(tuple(sorted(conflicts, key=_order)))
    return parts


def _merged(merge: TypeMerge, settled: Settled) -> Merged:
    source_rows, target_rows = merge.taken.rows()
    nothing = merge.target.reader.schema.empty_table()
    made = pa.concat_tables([nothing, *settled.made])
    made_rows = pa.concat_arrays([pa.array([], pa.uint64()), *settled.made_rows])
    return Merged(merge, source_rows, target_rows, made, made_rows)


def _order(conflict: MergeConflict) -> tuple[bool, str, str, str]:
    is_edge = conflict.entity_kind == "edge"
    return is_edge, conflict.type_name, conflict.entity_id or "", conflict.message


_Sides = tuple[TablePin, TablePin]
"""The source's version of a table, and the target's."""


class _Bases:
    """The merge base of each type: of one commit, or of several merged with each other."""

    def __init__(self, store: Store, lookup: Lookup, common: Meeting) -> None:
        self._store = store
        self._lookup = lookup
        self._meeting = common
        self._snapshots: dict[CommitId, Snapshot] = {}

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
        if commit.id not in self._snapshots:
            self._snapshots[commit.id] = self._store.history.snapshot_at(commit)
        pin = self._snapshots[commit.id].tables.get(owner.table)
        if pin is None:
            raise NotFound("table", owner.table, f"commit {commit.id} does not have it")
        source, target = sides
        return CommitBase(self._store, owner, pin, source=source, target=target)


# ---- staging


def _stage(write: Write, table_key: TableKey, part: Merged) -> None:
    """Stage the changes of one table, as one version."""
    leaving, taken = part.leaving(), part.source_rows.drop_null()
    if not len(leaving) and not len(taken) and not part.made.num_rows:
        return
    added = pa.concat_tables([part.merge.incoming(), part.made])
    write.patch(
        table_key,
        removed=leaving,
        added=added,
        updated=part.updated_count(),
        addresses=part.addresses(),
    )


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
