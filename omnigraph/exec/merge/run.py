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
from dataclasses import dataclass, field, replace
from typing import Any

from omnigraph.catalog.model import Catalog, Type
from omnigraph.errors import (
    BadRequest,
    MergeConflict,
    NotFound,
    OmnigraphError,
    PreconditionFailed,
    Reclaimed,
)
from omnigraph.exec.merge.ancestry import Lookup, Meeting, lookup_in, meeting, merge_bases
from omnigraph.exec.merge.decide import (
    COMPARE,
    Answers,
    Decision,
    Sides,
    decided,
    require_still,
)
from omnigraph.exec.merge.kept_edges import KeptEdge
from omnigraph.exec.merge.planned_changes import PlannedChanges, preview_document
from omnigraph.exec.merge.resolve import ENTITY, Resolve
from omnigraph.exec.merge.threeway import Base, CommitBase, ForgottenBase, MergedBase
from omnigraph.exec.progress import Meter, Progress
from omnigraph.storage.locks.turns import Turn
from omnigraph.storage.names import MAIN
from omnigraph.storage.protocol.intent import WriterKind
from omnigraph.storage.records import Commit, CommitId, Snapshot, TablePin
from omnigraph.storage.retry import MERGE
from omnigraph.storage.store import Store

ALREADY_UP_TO_DATE, FAST_FORWARD, MERGED = "already_up_to_date", "fast_forward", "merged"
CONFLICTS = "conflicts"
"""The kind of a preview that needs answers."""

Done = tuple[str, Decision | None, Commit | None]
"""The kind of a merge, its decision and its commit."""


@dataclass(frozen=True, slots=True)
class MergeOutcome:
    """The outcome of a merge, or its preview. `commit` is None when the target had everything, and
    in a preview, whose kind is `conflicts` when it has some.

    `changes` are the entities that change on the target; `kept_edges` those that an answer keeps
    with their node. `branch_deleted` is None unless deleting the source was asked for.
    """

    kind: str
    source: str
    target: str
    commit: Commit | None = None
    actor: str | None = None
    branch_deleted: bool | None = None
    branch_delete_error: str | None = None
    changes: PlannedChanges = field(default_factory=PlannedChanges, compare=False)
    kept_edges: tuple[KeptEdge, ...] = ()
    conflicts: tuple[MergeConflict, ...] = ()
    dry_run: bool = False

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
        if self.kept_edges:
            shown["kept_edges"] = [edge.to_json() for edge in self.kept_edges]
        if self.dry_run:
            shown |= preview_document(self.changes, self.conflicts)
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
    dry_run: bool = False
    if_source: str | None = None  # the heads that the caller decided on, if it named them
    if_target: str | None = None

    def require_heads(self, theirs: Snapshot, ours: Snapshot) -> None:
        """Raise `PreconditionFailed` unless both heads are the ones that were named."""
        for named, head in ((self.if_source, theirs), (self.if_target, ours)):
            if named is not None and head.commit_id != named:
                raise PreconditionFailed(head.branch, named, head.commit_id)

    def worth_repeating(self) -> Callable[[Exception], bool]:
        """Whether a loss is worth another attempt; a head that was named never comes back."""
        worth = beside_deletions()
        named = (self.if_source, self.if_target)

        def counts(loss: Exception) -> bool:
            lost = isinstance(loss, PreconditionFailed) and loss.expected in named
            return not lost and worth(loss)

        return counts


def run_merge(store: Store, catalog: Catalog, asked: MergeRequest) -> MergeOutcome:
    """Merge, or raise with nothing of it visible."""
    source, target = asked.source.strip(), asked.into.strip()
    if source == target:
        raise BadRequest(f"cannot merge branch '{source}' into itself", "name two branches")
    answers = Answers.checked(catalog, asked.by, asked.resolve)
    if not asked.dry_run:
        store.heal()
    theirs = store.snapshot(source)
    meter = Meter(asked.progress)
    kind, decision, commit = store.turns.prepared_again(
        lambda turn: _merge(
            store, catalog, asked, answers, theirs, store.snapshot(target), meter, turn
        ),
        budget=MERGE,
        counts=asked.worth_repeating(),
    )
    meter.add(0, "done")
    deletes = asked.delete_source and not asked.dry_run
    deleted, error = _delete_source(store, theirs) if deletes else (None, None)
    outcome = MergeOutcome(
        kind, source, target, commit, asked.actor, deleted, error, dry_run=asked.dry_run
    )
    if decision is None:
        return outcome
    return replace(
        outcome,
        changes=decision.changes,
        kept_edges=decision.kept_edges,
        conflicts=decision.conflicts,
    )


def beside_deletions() -> Callable[[Exception], bool]:
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
    answers: Answers,
    theirs: Snapshot,
    ours: Snapshot,
    meter: Meter,
    turn: Turn,
) -> Done:
    meter.rows = 0
    meter.add(0, COMPARE)
    asked.require_heads(theirs, ours)
    lookup = lookup_in(store.history, theirs.branch, ours.branch)
    common = meeting(lookup, ours.commit_id, theirs.commit_id)
    bases = common.bases
    if not bases:
        raise NotFound("common ancestor", f"{theirs.branch} and {ours.branch}")
    if bases[0].id == theirs.commit_id:
        return ALREADY_UP_TO_DATE, None, None
    kind = FAST_FORWARD if bases[0].id == ours.commit_id else MERGED
    decision = decided(
        store, catalog, answers, _Bases(store, lookup, common), Sides(theirs, ours), meter
    )
    if asked.dry_run:
        return CONFLICTS if decision.conflicts else kind, decision, None
    decision.require_settled()
    meter.add(0, "write")
    write = store.begin(
        ours.branch,
        kind=WriterKind.BRANCH_MERGE,
        actor=asked.actor,
        schema=catalog.schema_id,
        turn=turn,
    )
    require_still(store, ours)
    decision.stage(write)
    source = lookup(CommitId(theirs.commit_id))
    commit = store.commit(
        write,
        expected_head=ours.commit_id,
        merged_parent=theirs.commit_id,
        merged_from=None if source is None else store.history.origin(source),
    )
    return kind, decision, commit


# ---- the base


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
