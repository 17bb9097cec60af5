"""Entity history: every commit that inserted, updated or deleted one entity, newest first.

    row ─▶ the version that wrote it ─▶ the commit that published that ─▶ the row before ─▶ …

Invariant: exactly the changes of this entity that the commits on the line of first parents list. A
row knows the table version that last wrote it, so the commits since are not looked at; while the
entity is missing, those are that may have deleted rows. The cost follows the commits that touched
the table, and how far back the caller reads, not the rows.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa

from omnigraph.catalog.model import Type
from omnigraph.errors import ChangeFeedGap
from omnigraph.exec.changes.diff import Change, Filters, commit_changes, readable
from omnigraph.exec.changes.feed import cause_document
from omnigraph.exec.schemas import Schemas
from omnigraph.exec.values.pushdown import ids_filter
from omnigraph.storage.records import Commit, CommitId, Snapshot, TablePin
from omnigraph.storage.store import Store

_WINDOW_VERSIONS = 64  # of the manifest, in the first read
_COMMITS_A_READ = 64


@dataclass(frozen=True, slots=True)
class EntityRevision:
    """One commit that changed an entity, and how."""

    cause: Commit
    change: Change

    def to_json(self) -> dict[str, Any]:
        """The revision as a server sends it."""
        return {"cause": cause_document(self.cause), "change": self.change.to_json()}


class _StoredRow(NamedTuple):
    """Where an entity lies in a table version."""

    row_id: int
    written: int  # the table version that last wrote it


class EntityHistory:
    """The revisions of one entity up to a snapshot, read while they are iterated over.

    Where cleanup removed what an older revision needs, the iteration ends, and `unreadable` names
    the first commit that cannot be compared with the one before it.
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

    def __iter__(self) -> Iterator[EntityRevision]:
        self.unreadable = None
        pin = self._snapshot.tables.get(self._owner.table)
        if pin is None:
            return
        line = _TableLine(self._store, self._snapshot.branch, pin.location, self._end)
        try:
            yield from self._revisions(line)
        except ChangeFeedGap as gap:
            self.unreadable = CommitId(gap.first_unreadable_commit_id)

    def _revisions(self, line: "_TableLine") -> Iterator[EntityRevision]:
        if line.pin(0) is None:
            return
        with readable(line.commit(0).id):
            index, row = 0, self._row(line, 0)
        while (pin := line.pin(index)) is not None:
            if row is not None:
                index = line.oldest_since(index, row.written)
            elif not _may_delete(line.commit(index), pin):
                index += 1  # the entity was missing before it too
                continue
            commit = line.commit(index)
            with readable(commit.id):
                earlier = self._row(line, index + 1)
            change = self._change(commit, earlier, row)
            if change is not None:
                yield EntityRevision(commit, change)
            index, row = index + 1, earlier

    def _row(self, line: "_TableLine", index: int) -> _StoredRow | None:
        pin = line.pin(index)
        if pin is None:
            return None
        reader = self._store.tables.reader(pin)
        if reader.lacks(pa.array([self._entity])):
            return None
        rows = reader.last_written(ids_filter([self._entity]))
        return _StoredRow(*rows[0]) if rows else None

    def _change(
        self, commit: Commit, before: _StoredRow | None, after: _StoredRow | None
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


def _may_delete(commit: Commit, pin: TablePin) -> bool:
    """Whether a commit may have deleted rows of a table; one that counted its rows says so."""
    counts = commit.counts.get(pin.table_key)
    return counts is None or counts.deleted > 0


class _TableLine:
    """The versions of one table that a branch showed before a manifest version, newest first, with
    their commits; read from the manifest in windows that widen."""

    def __init__(self, store: Store, branch: str, location: str, end: int) -> None:
        self._queries = store.queries
        self._state = store.manifest.state(branch)
        self._location = location
        self._end = end
        self._width = _WINDOW_VERSIONS
        self._pins: list[tuple[int, TablePin]] = []
        self._commits: dict[int, Commit] = {}

    def pin(self, index: int) -> TablePin | None:
        """A version by its age; None beyond the oldest."""
        while len(self._pins) <= index and self._end > 0:
            window = range(max(0, self._end - self._width), self._end)
            self._pins += self._queries.versions_of_table(self._state, self._location, window)
            self._end, self._width = window.start, self._width * 4
        return self._pins[index][1] if index < len(self._pins) else None

    def oldest_since(self, index: int, version: int) -> int:
        """The index of the oldest version from one on that is not older than a table version. It
        stays on one Lance branch, where versions count up."""
        newest = self.pin(index)
        while (older := self.pin(index + 1)) is not None and newest is not None:
            same_line = (older.branch, older.fork) == (newest.branch, newest.fork)
            if not same_line or older.version < version:
                break
            index += 1
        return index

    def commit(self, index: int) -> Commit:
        """The commit that showed a version."""
        created = self._pins[index][0]
        if created not in self._commits:
            ahead = [each for each, _ in self._pins[index : index + _COMMITS_A_READ]]
            for commit in self._queries.commits_at(self._state, ahead):
                self._commits[commit.manifest_version] = commit
        return self._commits[created]
