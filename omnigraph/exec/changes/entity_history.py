"""Fast path of: changes/diff.py. Entity history: the commits that changed one entity, newest first.

    row ─▶ the version that wrote it ─▶ the commit that published that ─▶ the row before ─▶ …

Reference: `commit_changes` of changes/diff.py, asked of every commit on the line of first parents.
Held equal by: tests/exec/changes/test_entity_history.py,
test_SV12_history_is_what_the_commits_list.
Falls back: never; a missing entity is looked for in each commit that may have deleted rows.

Invariant: exactly the changes of this entity that those commits list. A row knows the table version
that last wrote it, so the commits since are not looked at; where a fold joined the versions of old
rows, it knows a later one, and the walk goes on from there. The cost follows the commits that
touched the table, and how far back the caller reads, not the rows.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from omnigraph.catalog.model import Type
from omnigraph.errors import ChangeFeedGap
from omnigraph.exec.changes.diff import Change, Filters, commit_changes, readable
from omnigraph.exec.changes.entity_view import StoredRow, row_at, stored_row
from omnigraph.exec.changes.feed import cause_document
from omnigraph.exec.schemas import Schemas
from omnigraph.storage.manifest.table_line import TableLine
from omnigraph.storage.records import Commit, CommitId, Snapshot, TablePin
from omnigraph.storage.store import Store


@dataclass(frozen=True, slots=True)
class EntityRevision:
    """One commit that changed an entity, and how.

    >>> newest, *_ = graph.history("node", "Person", "Ada")
    >>> newest.cause.id == graph.commits.get("main").id
    True
    """

    cause: Commit
    change: Change

    def to_json(self, dates: str = "numbers") -> dict[str, Any]:
        """The revision as a server sends it; with `dates="iso"` dates are text."""
        return {"cause": cause_document(self.cause), "change": self.change.to_json(dates)}


class EntityHistory:
    """The revisions of one entity up to a snapshot, read while they are iterated over.

    Where cleanup removed what an older revision needs, the iteration ends, and `unreadable` names
    the first commit that cannot be compared with the one before it.

    >>> newest, *_ = graph.history("node", "Person", "Ada")
    >>> newest.change.op
    'insert'
    """

    def __init__(
        self,
        store: Store,
        schemas: Schemas,
        snapshot: Snapshot,
        owner: Type,
        entity: str,
        before: Commit | None = None,
    ) -> None:
        self._store = store
        self._schemas = schemas
        self._snapshot = snapshot
        self._owner = owner
        self._entity = entity
        self._end = before.manifest_version if before else snapshot.manifest_version + 1
        self.unreadable: CommitId | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        revisions = tuple(self)
        return ListedHistory, (repr(self), revisions, self.unreadable)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, EntityHistory):
            return NotImplemented
        return tuple(self) == tuple(other) and self.unreadable == other.unreadable

    def __hash__(self) -> int:
        return hash(repr(self))

    def __repr__(self) -> str:
        return f"EntityHistory({self._owner.kind} {self._owner.name} {self._entity!r})"

    def __iter__(self) -> Iterator[EntityRevision]:
        self.unreadable = None
        pin = self._snapshot.tables.get(self._owner.table)
        if pin is None:
            return
        line = self._store.history.table_line(self._snapshot.branch, pin.location, self._end)
        try:
            yield from self._revisions(line)
        except ChangeFeedGap as gap:
            self.unreadable = CommitId(gap.first_unreadable_commit_id)

    def _revisions(self, line: TableLine) -> Iterator[EntityRevision]:
        if line.pin(0) is None:
            return
        with readable(line.cause(0).id):
            index, row = 0, self._row(line, 0)
        while (pin := line.pin(index)) is not None:
            if row is not None:
                index = line.oldest_since(index, row.written)
            elif not _may_delete(line.cause(index), pin):
                index += 1  # the entity was missing before it too
                continue
            commit = line.cause(index)
            with readable(commit.id):
                earlier = self._before(line, index, row)
            if _is_older(row, earlier):
                index, row = index + 1, earlier
                continue
            change = self._change(commit, earlier, row)
            if change is not None:
                yield EntityRevision(commit, change)
            index, row = index + 1, earlier

    def _row(self, line: TableLine, index: int) -> StoredRow | None:
        pin = line.pin(index)
        if pin is None:
            return None
        return stored_row(self._store.tables.reader(pin), self._entity)

    def _before(self, line: TableLine, index: int, row: StoredRow | None) -> StoredRow | None:
        """The row before a commit that may have written one. A commit that only inserted has none,
        unless its row was there already and knows a later version than its own."""
        pin, earlier = line.pin(index), line.pin(index + 1)
        if pin is None or earlier is None or row is None:
            return self._row(line, index + 1)
        is_one_line = (pin.branch, pin.fork) == (earlier.branch, earlier.fork)
        if not is_one_line or not _only_inserts(line.cause(index), pin):
            return self._row(line, index + 1)
        return row_at(self._store.tables.reader(earlier), row.row_id, self._entity)

    def _change(
        self, commit: Commit, before: StoredRow | None, after: StoredRow | None
    ) -> Change | None:
        if commit.parent is None or (before is None and after is None):
            return None
        changes = commit_changes(self._store, self._schemas, commit, Filters())
        with readable(commit.id):
            return changes.of_entity(
                self._owner.id,
                self._entity,
                None if before is None else before.row_id,
                None if after is None else after.row_id,
            )


class ListedHistory(EntityHistory):
    """Revisions that were read: a copy without its graph, as pickling makes it."""

    def __init__(
        self, shown: str, revisions: tuple[EntityRevision, ...], unreadable: CommitId | None
    ) -> None:
        self._shown = shown
        self._read = revisions
        self.unreadable = unreadable

    def __repr__(self) -> str:
        return self._shown

    def __iter__(self) -> Iterator[EntityRevision]:
        return iter(self._read)


def _is_older(row: StoredRow | None, earlier: StoredRow | None) -> bool:
    """Whether a row was there before the version that its stamp names, as it is."""
    if row is None or earlier is None:
        return False
    return row.is_first and row.row_id == earlier.row_id


def _only_inserts(commit: Commit, pin: TablePin) -> bool:
    """Whether a commit wrote new entities to a table and no others; one that counted says so."""
    counts = commit.counts.get(pin.table_key)
    return counts is not None and not counts.updated and not counts.deleted


def _may_delete(commit: Commit, pin: TablePin) -> bool:
    """Whether a commit may have deleted rows of a table; one that counted its rows says so."""
    counts = commit.counts.get(pin.table_key)
    return counts is None or counts.deleted > 0
