"""Revert: the inverse of a commit, or of a range of commits, as one new commit.

A three-way merge whose base is the commit, whose source is the commit before it and whose target is
the branch head: what the commit changed is taken back where nobody changed it since, and is a
conflict where somebody did.

Invariant: only entities that the commit changed are taken back. A merge commit is reverted against
its first parent; a range is reverted as one change, from the commit before it to its last.
"""

from dataclasses import dataclass

from omnigraph.catalog.model import Catalog, Type
from omnigraph.catalog.schema_diff import steps_between
from omnigraph.errors import BadRequest, NotRevertible, SchemaDiffers
from omnigraph.exec.changes.diff import Filters, changes_between
from omnigraph.exec.merge.ancestry import lookup_in
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
from omnigraph.storage.names import MAIN
from omnigraph.storage.protocol.intent import WriterKind
from omnigraph.storage.records import Commit, Snapshot, TablePin
from omnigraph.storage.store import Store

REVERTED, NOTHING_TO_REVERT = "reverted", "nothing_to_revert"
_HINT = "change the branch, or answer with resolve=, and revert again"


@dataclass(frozen=True, slots=True)
class CommitRange:
    """The commits to revert: those after `since`, its first parent by default, up to `last`."""

    last: Commit
    since: Commit | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The commit, or the two ends of the range."""
        return (self.last.id,) if self.since is None else (self.since.id, self.last.id)

    def message(self) -> str:
        """The message of a revert that is given none."""
        if self.since is not None:
            return f"Revert {self.since.id}..{self.last.id}"
        return f'Revert "{self.last.message or self.last.id}"'


def run_revert(
    store: Store, schemas: Schemas, catalog: Catalog, commits: CommitRange, asked: UndoRequest
) -> UndoOutcome:
    """Revert, or raise with nothing of it visible."""
    first = _before(store, commits)
    with not_reclaimed(first.id):
        before = store.history.snapshot_at(first)
    with not_reclaimed(commits.last.id):
        after = store.history.snapshot_at(commits.last)
        _require_same_schema(schemas, commits, before, after)
        _require_types(schemas, commits, before, after, catalog)
        then = stored_then(store, schemas, after, catalog, asked.branch)
        undo = _undo(store, schemas, commits, before, after, catalog, then)
        return run_undo(store, catalog, asked, lambda ours: undo)


def _before(store: Store, commits: CommitRange) -> Commit:
    """The commit whose content comes back: the one before the first that is reverted."""
    last, since = commits.last, commits.since
    if last.parent is None:
        raise NotRevertible(last.id, "genesis")
    lookup = lookup_in(store.history, last.branch or MAIN)
    if since is None:
        return lookup(last.parent) or store.history.get(last.parent)
    step = last
    while step.id != since.id:
        parent = None if step.parent is None else lookup(step.parent)
        if parent is None:
            raise BadRequest(
                f"commit {since.id} is not before {last.id} on its line of first parents",
                "name an earlier commit of the same branch first: EARLIER..LATER",
            )
        step = parent
    if since.id == last.id:
        raise BadRequest("the range is empty", "it holds the commits after the first one named")
    return since


def _require_same_schema(
    schemas: Schemas, commits: CommitRange, before: Snapshot, after: Snapshot
) -> None:
    """A revert changes data alone; a change of the schema is undone by another one. Two schemas may
    say the same in other words."""
    old, new = schemas.of(before), schemas.of(after)
    steps = () if old.id == new.id else steps_between(new.catalog, old.catalog)
    if steps:
        raise NotRevertible(
            commits.last.id, "schema_change", tuple(map(str, steps)), before.commit_id
        )


def _require_types(
    schemas: Schemas, commits: CommitRange, before: Snapshot, after: Snapshot, catalog: Catalog
) -> None:
    """Every type that the commits changed is still declared, with the same key."""
    today = {(owner.kind, owner.id): owner for owner in catalog.types}
    changed = [
        owner
        for owner in schemas.of(after).catalog.types
        if before.tables.get(owner.table) != after.tables.get(owner.table)
    ]
    for owner in changed:
        if (owner.kind, owner.id) in today:
            require_same_key(commits.last.id, owner, today[owner.kind, owner.id])
    gone = [owner.name for owner in changed if (owner.kind, owner.id) not in today]
    if gone:
        raise SchemaDiffers(
            commits.last.id,
            tuple(gone),
            "what it changed there went with the type, which was dropped since",
            "restore or change the other types by hand",
        )


@dataclass(frozen=True, slots=True)
class _OneCommit:
    """One commit as the base of every type."""

    store: Store
    snapshot: Snapshot
    stored_as: StoredAs

    def of(self, owner: Type, source: TablePin, target: TablePin) -> Base:
        """The type at the commit."""
        pin = self.snapshot.tables[owner.table]
        return CommitBase(
            self.store,
            owner,
            pin,
            source=source,
            target=target,
            stored_as=self.stored_as(owner),
            is_between=True,
        )


def _undo(
    store: Store,
    schemas: Schemas,
    commits: CommitRange,
    before: Snapshot,
    after: Snapshot,
    catalog: Catalog,
    then: StoredAs,
) -> Undo:
    source, base = (seen_today(schemas, each, catalog) for each in (before, after))

    def why_nothing() -> str:
        changes = changes_between(store, schemas, before, after, Filters())
        what = "the range" if commits.since else f"commit {commits.last.id}"
        if next(iter(changes), None) is None:
            return f"{what} changed no entity"
        return f"nothing that {what} changed is left on the branch"

    return Undo(
        WriterKind.REVERT,
        REVERTED,
        NOTHING_TO_REVERT,
        commits.names,
        source,
        then,
        _OneCommit(store, base, then),
        {key for key, pin in source.tables.items() if base.tables.get(key) != pin},
        changed_types(schemas, before, catalog),
        _HINT,
        why_nothing,
    )
