"""Line of a table: its versions on one branch, newest first, each with the commit that showed it.

Invariant: read from the manifest in windows of versions that widen: the cost follows how far back
a caller walks. No version of the table is opened. Threads may share a line.
"""

from threading import Lock

from omnigraph.costs import COSTS
from omnigraph.storage.manifest.queries import Queries
from omnigraph.storage.manifest.state import State
from omnigraph.storage.records import Commit, TablePin


class TableLine:
    """The versions of one table that a branch showed before a manifest version, newest first, with
    their commits; read from the manifest in windows that widen."""

    def __init__(self, queries: Queries, state: State, location: str, end: int) -> None:
        self._queries = queries
        self._state = state
        self._location = location
        self._end = end
        self._width = COSTS.line_window_versions
        self._pins: list[tuple[int, TablePin]] = []
        self._commits: dict[int, Commit] = {}
        self._turn = Lock()

    def pin(self, index: int) -> TablePin | None:
        """A version by its age; None beyond the oldest."""
        if len(self._pins) <= index:
            with self._turn:
                self._read_to(index)
        return self._pins[index][1] if index < len(self._pins) else None

    def _read_to(self, index: int) -> None:
        while len(self._pins) <= index and self._end > 0:
            window = range(max(0, self._end - self._width), self._end)
            self._pins += self._queries.versions_of_table(self._state, self._location, window)
            self._end, self._width = window.start, self._width * 4

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

    def cause(self, index: int) -> Commit:
        """The commit that showed a version."""
        created = self._pins[index][0]
        if created not in self._commits:
            ahead = [each for each, _ in self._pins[index : index + COSTS.line_commits_together]]
            for commit in self._queries.commits_at(self._state, ahead):
                self._commits[commit.manifest_version] = commit
        return self._commits[created]
