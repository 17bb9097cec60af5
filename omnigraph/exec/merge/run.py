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
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from omnigraph.catalog.counterparts import type_counterpart
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
from omnigraph.exec.merge.ancestry import Lookup, Meeting, lookup_in, meeting, merge_bases
from omnigraph.exec.merge.decide import (
    COMPARE,
    Answers,
    Decision,
    decided,
)
from omnigraph.exec.merge.kept_edges import KeptEdge
from omnigraph.exec.merge.merged_models import merged_models
from omnigraph.exec.merge.merged_schema import (
    SCHEMA_HINT,
    MergedSchema,
    lost_writes,
    merged_schema,
    rule_conflicts,
    stage_schema,
)
from omnigraph.exec.merge.planned_changes import PlannedChanges, preview_document
from omnigraph.exec.merge.resolve import ENTITY, Resolve
from omnigraph.exec.merge.threeway import (
    Base,
    CommitBase,
    EmptyBase,
    ForgottenBase,
    MergedBase,
)
from omnigraph.exec.progress import Meter, Progress
from omnigraph.exec.schemas import Schemas
from omnigraph.storage.locks.turns import Turn
from omnigraph.storage.names import MAIN
from omnigraph.storage.protocol.intent import WriterKind
from omnigraph.storage.protocol.once import written_once
from omnigraph.storage.protocol.write import Write
from omnigraph.storage.records import NO_NOTE, Commit, CommitId, CommitNote, Snapshot, TablePin
from omnigraph.storage.retry import MERGE
from omnigraph.storage.store import Store
from omnigraph.types import SchemaStep

ALREADY_UP_TO_DATE, FAST_FORWARD, MERGED = "already_up_to_date", "fast_forward", "merged"
OUTCOME = "omnigraph:outcome"
"""The metadata of a merge `once` that keeps its kind."""

CONFLICTS = "conflicts"
"""The kind of a preview that needs answers."""


class Done(NamedTuple):
    """A finished attempt: its kind, decision and commit, and how the target's schema changes."""

    kind: str
    decision: Decision | None = None
    commit: Commit | None = None
    schema_steps: tuple[SchemaStep, ...] = ()


@dataclass(frozen=True, slots=True)
class MergeOutcome:
    """The outcome of a merge, or its preview. `commit` is None when the target had everything, and
    in a preview, whose kind is `conflicts` when it has some.

    `changes` are the entities that change on the target, `schema_steps` the changes of its schema;
    `kept_edges` those that an answer keeps with their node. `branch_deleted` is None unless
    deleting the source was asked for.

    >>> name = graph.branches.create("draft")
    >>> graph.branches.merge("draft").kind
    'already_up_to_date'
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
    repeated: bool = False  # nothing was done: the commit is that of an earlier merge `once`
    schema_steps: tuple[SchemaStep, ...] = ()

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
        if self.schema_steps:
            shown["schema_steps"] = [step.to_json() for step in self.schema_steps]
        if self.dry_run:
            shown |= preview_document(self.changes, self.conflicts)
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
    dry_run: bool = False
    if_source: str | None = None  # the heads that the caller decided on, if it named them
    if_target: str | None = None
    once: str | None = None  # a name of this merge: a branch has one commit of it at most

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


def run_merge(store: Store, schemas: Schemas, asked: MergeRequest) -> MergeOutcome:
    """Merge, or raise with nothing of it visible."""
    source, target = asked.source.strip(), asked.into.strip()
    if source == target:
        raise BadRequest(f"cannot merge branch '{source}' into itself", "name two branches")
    if not asked.dry_run:
        store.heal()
    once = asked.once
    if once is None:
        return _run_now(store, schemas, asked, source, target)
    return written_once(
        lambda: store.marked(target, once),
        lambda: _run_now(store, schemas, asked, source, target),
        lambda done: _repeated(store, asked, done),
    )


def _repeated(store: Store, asked: MergeRequest, done: Commit) -> MergeOutcome:
    """The outcome of a merge that was made before. Deleting its source is made up for, if the
    first one stopped before it."""
    source, deleted, error = asked.source.strip(), None, None
    if asked.delete_source:
        deleted, error = True, None
        with suppress(NotFound):
            head = store.snapshot(source)
            still = replace(head, commit_id=CommitId(done.merged_parent or ""))
            deleted, error = _delete_source(store, still)
    return MergeOutcome(
        done.metadata.get(OUTCOME, MERGED),
        source,
        asked.into.strip(),
        done,
        asked.note.actor,
        deleted,
        error,
        repeated=True,
    )


def _run_now(
    store: Store, schemas: Schemas, asked: MergeRequest, source: str, target: str
) -> MergeOutcome:
    theirs = store.snapshot(source)
    both = (schemas.of(each).catalog for each in (theirs, store.snapshot(target, recent=True)))
    types = [owner for catalog in both for owner in catalog.types]
    answers = Answers.checked(types, asked.by, asked.resolve)
    meter = Meter(asked.progress)

    def attempts(*, in_schema_turn: bool) -> Done:
        attempt = _Merge(store, schemas, asked, answers, theirs, meter, in_schema_turn)
        return store.turns.prepared_again(
            lambda turn: attempt.run(store.snapshot(target), turn),
            budget=MERGE,
            counts=asked.worth_repeating(),
        )

    try:
        done = attempts(in_schema_turn=False)
    except _ChangesSchema:
        with store.schema_change():
            done = attempts(in_schema_turn=True)
    meter.add(0, "done")
    deletes = asked.delete_source and not asked.dry_run
    deleted, error = _delete_source(store, theirs) if deletes else (None, None)
    outcome = MergeOutcome(
        done.kind,
        source,
        target,
        done.commit,
        asked.note.actor,
        deleted,
        error,
        dry_run=asked.dry_run,
        schema_steps=done.schema_steps,
    )
    if done.decision is None:
        return outcome
    return replace(
        outcome,
        changes=done.decision.changes,
        kept_edges=done.decision.kept_edges,
        conflicts=done.decision.conflicts,
    )


def merge_schema_steps(
    store: Store, schemas: Schemas, source: str, target: str
) -> tuple[SchemaStep, ...]:
    """Return how a merge would change the schema of its target, without comparing rows. Empty
    while the two schemas are in conflict: the preview of the merge lists the conflicts."""
    theirs, ours = store.snapshot(source), store.snapshot(target)
    if theirs.schema == ours.schema:
        return ()
    lookup = lookup_in(store.history, theirs.branch, ours.branch)
    bases = meeting(lookup, ours.commit_id, theirs.commit_id).bases
    if not bases or bases[0].id == theirs.commit_id:
        return ()
    base = store.history.snapshot_at(bases[0])
    try:
        return merged_schema(store, schemas, base, ours, theirs).steps
    except MergeConflicts:
        return ()


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


class _ChangesSchema(Exception):
    """The merge brings the target another schema, which takes the turn of a schema change."""


@dataclass(frozen=True, slots=True)
class _Merge:
    """A merge under way: every attempt pins its target anew."""

    store: Store
    schemas: Schemas
    asked: MergeRequest
    answers: Answers
    theirs: Snapshot
    meter: Meter
    in_schema_turn: bool

    def run(self, ours: Snapshot, turn: Turn) -> Done:
        """One attempt."""
        store, asked, theirs, meter = self.store, self.asked, self.theirs, self.meter
        meter.rows = 0
        meter.add(0, COMPARE)
        asked.require_heads(theirs, ours)
        lookup = lookup_in(store.history, theirs.branch, ours.branch)
        common = meeting(lookup, ours.commit_id, theirs.commit_id)
        bases = common.bases
        if not bases:
            raise NotFound("common ancestor", f"{theirs.branch} and {ours.branch}")
        if bases[0].id == theirs.commit_id:
            return Done(ALREADY_UP_TO_DATE)
        kind = FAST_FORWARD if bases[0].id == ours.commit_id else MERGED
        first = store.history.snapshot_at(bases[0])
        try:
            schema = self._schema(first, ours)
        except MergeConflicts as clash:
            if not asked.dry_run:
                raise
            return Done(CONFLICTS, Decision({}, clash.conflicts, ()))
        sides = schema.sides(theirs, ours)
        models = merged_models(schema.catalog, first, sides.ours, sides.theirs)
        read = _Bases(store, self.schemas, schema.catalog, lookup, common, first)
        decision = decided(store, schema.catalog, self.answers, read, sides, meter)
        if not decision.conflicts and schema.differs:
            broken = tuple(rule_conflicts(store, schema, decision.parts))
            decision = replace(decision, conflicts=broken)
        if asked.dry_run:
            return Done(CONFLICTS if decision.conflicts else kind, decision, None, schema.steps)
        decision.require_settled()
        meter.add(0, "write")
        write = self._staged(schema, decision, ours, turn, self._note(kind))
        write.embeds(models)
        source = lookup(CommitId(theirs.commit_id))
        commit = store.commit(
            write,
            expected_head=ours.commit_id,
            merged_parent=theirs.commit_id,
            merged_from=None if source is None else store.history.origin(source),
            mark=asked.once,
        )
        return Done(kind, decision, commit, schema.steps)

    def _note(self, kind: str) -> CommitNote:
        """What the commit says of itself; of a merge `once`, also the kind, for its repetition."""
        note = self.asked.note
        if self.asked.once is None:
            return note
        return replace(note, metadata={**note.metadata, OUTCOME: kind})

    def _schema(self, base: Snapshot, ours: Snapshot) -> MergedSchema:
        """The schema that rows are merged under, decided before them."""
        schema = merged_schema(self.store, self.schemas, base, ours, self.theirs)
        if schema.differs:
            lost = tuple(lost_writes(self.store, self.schemas, schema, base, ours, self.theirs))
            if lost:
                raise MergeConflicts(lost, hint=SCHEMA_HINT)
        if schema.changes and not (self.in_schema_turn or self.asked.dry_run):
            raise _ChangesSchema
        return schema

    def _staged(
        self,
        schema: MergedSchema,
        decision: Decision,
        ours: Snapshot,
        turn: Turn,
        note: CommitNote,
    ) -> Write:
        """The write of the merge, with everything staged."""
        if not schema.changes:
            write = self.store.begin(
                ours.branch,
                kind=WriterKind.BRANCH_MERGE,
                **note.stated,
                schema=schema.ours.id,
                recent=True,
                healed=True,
                turn=turn,
            )
            # Row ids are those of the rows that were read.
            write.require_head(ours.commit_id, decision.parts)
            decision.stage(write)
            return write
        for each in (schema.ours, schema.merged):
            self.schemas.archive(each)
        changing = self.store.begin_schema_change(
            ours.branch,
            kind=WriterKind.BRANCH_MERGE,
            **note.stated,
            schema=schema.ours.id,
            turn=turn,
        )
        try:
            changing.require_head(ours.commit_id, decision.parts)
            stage_schema(changing, schema, decision.parts)
        except BaseException:
            changing.abandon()
            raise
        return changing


# ---- the base


_Sides = tuple[TablePin, TablePin]
"""The source's version of a table, and the target's."""


class _Bases:
    """The merge base of each type of a catalog: of one commit, or of several merged with each
    other. `first` is the graph at the nearest one, whose schema is that of the schema merge."""

    def __init__(
        self,
        store: Store,
        schemas: Schemas,
        catalog: Catalog,
        lookup: Lookup,
        common: Meeting,
        first: Snapshot,
    ) -> None:
        self._store = store
        self._schemas = schemas
        self._catalog = catalog
        self._lookup = lookup
        self._meeting = common
        self._snapshots = {common.bases[0].id: first}

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
        was = type_counterpart(owner, self._catalog, self._schemas.of(snapshot).catalog)
        pin = None if was is None else snapshot.tables.get(was.table)
        source, target = sides
        if pin is None:
            return EmptyBase(self._store, owner, source=source, target=target)
        return CommitBase(self._store, owner, pin, source=source, target=target, stored_as=was)


# ---- afterwards


def _delete_source(store: Store, source: Snapshot) -> tuple[bool, str | None]:
    """Delete the merged branch, unless it moved meanwhile. A failure here fails no merge."""
    try:
        store.branches.delete(source.branch, expected_head=CommitId(source.commit_id))
    except PreconditionFailed:
        return False, f"branch '{source.branch}' has commits that are not merged"
    except NotFound:  # somebody else has deleted it
        return True, None
    except OmnigraphError as cause:
        return False, str(cause)
    return True, None
