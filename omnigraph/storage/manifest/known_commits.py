"""Commits in memory: by the files of the manifest's fragments that hold them.

Invariant: a commit is one object, however many branches and folded fragments show it.
"""

from collections.abc import Iterable

from omnigraph.costs import COSTS
from omnigraph.lru import Lru
from omnigraph.storage.records import Commit, CommitId

FragmentFiles = tuple[str, ...]


class KnownCommits:
    """The commits that a process has read or published. Safe to share between threads."""

    def __init__(self) -> None:
        self._by_files: Lru[FragmentFiles, dict[CommitId, Commit]] = Lru(
            COSTS.known_references_max, len
        )
        self._commits: Lru[CommitId, Commit] = Lru(COSTS.known_commits_max)

    def get(self, files: FragmentFiles) -> dict[CommitId, Commit] | None:
        """The commits of a fragment, if it was read before."""
        return self._by_files.get(files)

    def put(self, files: FragmentFiles, commits: Iterable[Commit]) -> dict[CommitId, Commit]:
        """Keep the commits of a fragment, by their ids."""
        known = {commit.id: self._only(commit) for commit in commits}
        if known:
            self._by_files.put(files, known)
        return known

    def _only(self, commit: Commit) -> Commit:
        """The one object of a commit."""
        same = self._commits.get(commit.id)
        if same == commit:
            return same
        self._commits.put(commit.id, commit)
        return commit

    def clear(self) -> None:
        """Drop everything."""
        self._by_files.clear()
        self._commits.clear()
