"""Undo: the core of revert and restore, each a three-way merge that becomes one commit.

    revert     base: the commit        source: its first parent    target: the branch head
    restore    base: the branch head   source: the point           target: the branch head

A type that a restore leaves alone has the point as its base, so that nothing of it is taken and it
is still seen by the rules.

Invariant: the commit's content is the head that it was decided on with the decided changes, and it
holds only on that head. A head that moved is decided on anew, a few times. Earlier commits are
read as they were, under the names of today's schema; rows that come from a type which was another
then are checked like rows of a load.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from omnigraph.catalog.model import Catalog, EdgeType, Type, key_ids
from omnigraph.errors import ChangeFeedGap, MergeConflict, Reclaimed, SchemaChanged, SchemaDiffers
from omnigraph.exec.changes.diff import readable
from omnigraph.exec.merge.decide import COMPARE, Answers, Bases, Sides, decided
from omnigraph.exec.merge.kept_edges import KeptEdge
from omnigraph.exec.merge.planned_changes import PlannedChanges, preview_document
from omnigraph.exec.merge.run import CONFLICTS, beside_deletions
from omnigraph.exec.progress import Meter, Progress
from omnigraph.exec.schemas import Schemas, seen_under
from omnigraph.storage.locks.turns import Turn
from omnigraph.storage.protocol.intent import WriterKind
from omnigraph.storage.records import Commit, CommitId, EmbeddedChange, Snapshot
from omnigraph.storage.retry import MERGE
from omnigraph.storage.store import Store
from omnigraph.types import Kind, TableKey, table_key


@dataclass(frozen=True, slots=True)
class UndoOutcome:
    """The outcome of a revert or a restore, or its preview.

    `kind` is `reverted` or `restored`; `nothing_to_revert` or `nothing_to_restore`, without a
    commit; or `conflicts`, in a preview that needs answers. `reason` tells why nothing is left to
    do, or what to do about conflicts. `undone` names the commit that was reverted, the two ends of
    a range, or the commit that was restored.

    >>> outcome = graph.revert("main", dry_run=True)
    >>> outcome.kind, outcome.dry_run
    ('reverted', True)
    """

    kind: str
    branch: str
    undone: tuple[str, ...]
    commit: Commit | None = None
    actor: str | None = None
    message: str | None = None
    changes: PlannedChanges = field(default_factory=PlannedChanges, compare=False)
    kept_edges: tuple[KeptEdge, ...] = ()
    conflicts: tuple[MergeConflict, ...] = ()
    dry_run: bool = False
    reason: str = ""

    def to_json(self) -> dict[str, Any]:
        """The outcome as a command prints it; a preview with every entity."""
        shown: dict[str, Any] = {
            "outcome": self.kind,
            "branch": self.branch,
            "undone": list(self.undone),
            "graph_commit_id": None if self.commit is None else self.commit.id,
            "actor_id": self.actor,
            "message": self.message,
            "dry_run": False,
            "statistics": self.changes.statistics(),
        }
        if self.reason:
            shown["reason"] = self.reason
        if self.kept_edges:
            shown["kept_edges"] = [edge.to_json() for edge in self.kept_edges]
        if self.dry_run:
            shown |= preview_document(self.changes, self.conflicts)
        return shown


@dataclass(frozen=True, slots=True)
class UndoRequest:
    """What a caller asks of a revert or a restore, beside what is undone."""

    branch: str
    answers: Answers
    dry_run: bool = False
    actor: str | None = None
    message: str | None = None
    metadata: Mapping[str, str] | None = None
    progress: Callable[[Progress], None] | None = None


StoredAs = Callable[[Type], Type | None]
"""A type of today as a snapshot of the past has it; None where identities tell all."""


@dataclass(frozen=True, slots=True)
class Undo:
    """One revert or restore under way: what comes from the past, and its names for people."""

    writer: WriterKind
    done: str
    nothing: str
    undone: tuple[str, ...]
    source: Snapshot
    stored_as: StoredAs
    bases: Bases
    changed: Collection[TableKey]
    rechecked: Collection[TableKey]
    hint: str
    why_nothing: Callable[[], str]
    models: EmbeddedChange = field(default_factory=dict)  # records that come with the rows


def run_undo(
    store: Store, catalog: Catalog, asked: UndoRequest, undo: Callable[[Snapshot], Undo]
) -> UndoOutcome:
    """Undo on the head of a branch, as often as it moves meanwhile, or raise with nothing of it
    visible. `undo` says what is undone on that head."""
    if not asked.dry_run:
        store.heal()
    meter = Meter(asked.progress)
    outcome = store.turns.prepared_again(
        lambda turn: _attempt(store, catalog, asked, undo, turn, meter),
        budget=MERGE,
        counts=beside_deletions(),
    )
    meter.add(0, "done")
    return outcome


def _attempt(
    store: Store,
    catalog: Catalog,
    asked: UndoRequest,
    undo: Callable[[Snapshot], Undo],
    turn: Turn,
    meter: Meter,
) -> UndoOutcome:
    meter.rows = 0
    meter.add(0, COMPARE)
    ours = store.snapshot(asked.branch)
    if ours.schema is not None and ours.schema != catalog.schema_id:
        raise SchemaChanged(ours.branch, catalog.schema_id, ours.schema)
    what = undo(ours)
    concerned = _concerned(what.changed, catalog)
    is_revert = what.writer is WriterKind.REVERT
    sides = Sides(
        what.source,
        ours,
        concerned,
        what.rechecked,
        keeps_new=is_revert,
        stored_as=lambda owner: (what.stored_as(owner), None),
    )
    decision = decided(store, catalog, asked.answers, what.bases, sides, meter)

    def outcome(kind: str, commit: Commit | None = None, reason: str = "") -> UndoOutcome:
        return UndoOutcome(
            kind,
            ours.branch,
            what.undone,
            commit,
            asked.actor,
            asked.message,
            decision.changes,
            decision.kept_edges,
            decision.conflicts,
            asked.dry_run,
            reason,
        )

    if asked.dry_run and decision.conflicts:
        return outcome(CONFLICTS, reason=what.hint)
    decision.require_settled(str(what.writer), what.hint)
    if not decision.changes:
        return outcome(what.nothing, reason=what.why_nothing())
    if asked.dry_run:
        return outcome(what.done)
    meter.add(0, "write")
    write = store.begin(
        ours.branch,
        kind=what.writer,
        actor=asked.actor,
        message=asked.message,
        metadata=asked.metadata,
        schema=catalog.schema_id,
        turn=turn,
    )
    # Row ids are those of the rows that were read.
    write.require_head(ours.commit_id, decision.parts)
    decision.stage(write)
    write.embeds(what.models)
    return outcome(what.done, store.commit(write, expected_head=ours.commit_id))


def _concerned(changed: Collection[TableKey], catalog: Catalog) -> Callable[[Type], bool]:
    """Types whose rows change, and those that a rule ties to them: edges and the nodes they join.
    No rule looks at any other type."""
    ends = {
        edge.table: {table_key(Kind.NODE, name) for name in (edge.source, edge.target)}
        for edge in catalog.edges.values()
    }
    joined = {node for edge, nodes in ends.items() if edge in changed for node in nodes}

    def concerned(owner: Type) -> bool:
        if owner.table in changed or owner.table in joined:
            return True
        return isinstance(owner, EdgeType) and any(node in changed for node in ends[owner.table])

    return concerned


# ---- earlier commits under today's schema


def seen_today(schemas: Schemas, snapshot: Snapshot, catalog: Catalog) -> Snapshot:
    """A snapshot of the past with its tables under the names of today's schema."""
    old = schemas.of(snapshot)
    return snapshot if old.id == catalog.schema_id else seen_under(snapshot, old.catalog, catalog)


def stored_then(
    store: Store, schemas: Schemas, snapshot: Snapshot, catalog: Catalog, branch: str
) -> StoredAs:
    """How a snapshot of the past has the types of a branch. One that the branch does not come from
    may have another identity for a property that both added, which then the name tells."""
    if CommitId(snapshot.commit_id) in store.history.dag(branch):
        return lambda owner: None
    old = {(owner.kind, owner.id): owner for owner in schemas.of(snapshot).catalog.types}
    return lambda owner: old.get((owner.kind, owner.id))


def changed_types(schemas: Schemas, snapshot: Snapshot, catalog: Catalog) -> frozenset[TableKey]:
    """The tables of types that were declared otherwise when a snapshot was written."""
    old = {(owner.kind, owner.id): owner for owner in schemas.of(snapshot).catalog.types}
    return frozenset(
        owner.table for owner in catalog.types if old.get((owner.kind, owner.id)) != owner
    )


def require_same_key(commit_id: str, was: Type, owner: Type) -> None:
    """Pass when the ids of a type's rows follow from the same key then and today, or from none."""
    if key_ids(was) != key_ids(owner):
        raise SchemaDiffers(
            commit_id,
            (owner.name,),
            "its key is another since, and the ids of its entities with it",
            "load those entities again, or change the key back first",
        )


@contextmanager
def not_reclaimed(commit_id: str) -> Iterator[None]:
    """Raise `Reclaimed` when cleanup removed data of a commit that is needed."""
    try:
        with readable(commit_id):
            yield
    except ChangeFeedGap as gap:
        raise Reclaimed("commit", commit_id, gap.branch, gap.oldest) from gap
