"""Reclaimed commits: the error for a commit whose data cleanup removed, wherever it is noticed.

Invariant: data of a commit that is gone is `Reclaimed` with the commit, its branch and the oldest
commit there that can still be read, never a failure of the files under it. Looking for that commit
costs something only when data is gone.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice

from omnigraph.errors import ChangeFeedGap, NotFound, OmnigraphError, Reclaimed
from omnigraph.storage.lance.datasets import Datasets, has_version
from omnigraph.storage.lance.old_versions import versions_of
from omnigraph.storage.manifest.manifest import Manifest
from omnigraph.storage.manifest.state import LOCATION
from omnigraph.storage.names import MAIN
from omnigraph.storage.records import DATASET, Commit, CommitId, Snapshot

_TRIES_MAX = 64


class LostCommits:
    """Names what is gone from the history of one graph, and what is not."""

    def __init__(
        self,
        datasets: Datasets,
        manifest: Manifest,
        commits: Callable[[str], Sequence[Commit]],
    ) -> None:
        self._datasets = datasets
        self._manifest = manifest
        self._commits = commits  # of a branch, newest first

    @contextmanager
    def reading(self, subject: Snapshot | Commit) -> Iterator[None]:
        """Raise `Reclaimed` for a commit when data that a read of it needs is gone, also in the
        middle of the read."""
        commit_id = subject.commit_id if isinstance(subject, Snapshot) else subject.id
        try:
            yield
        except ChangeFeedGap:
            raise
        except Reclaimed as gone:
            if gone.kind == "commit" and gone.branch is not None:
                raise  # it says more
            lost = CommitId(gone.name) if gone.kind == "commit" else commit_id
            raise self.reclaimed(lost, subject.branch or MAIN) from gone
        except NotFound as missing:
            if missing.kind != DATASET:
                raise
            raise self.reclaimed(commit_id, subject.branch or MAIN) from missing

    def reclaimed(self, commit_id: CommitId, branch: str) -> Reclaimed:
        """The error for a commit whose data was removed: it names what can still be read."""
        try:
            oldest = self._oldest_readable(branch, commit_id)
        except OmnigraphError:
            oldest = None  # the loss itself is the news
        return Reclaimed("commit", commit_id, branch, oldest)

    def require_readable(self, commits: Iterable[Commit]) -> None:
        """Pass if the manifest versions of all these commits are there, else `Reclaimed`."""
        is_there = self.presence()
        for commit in commits:
            if not is_there(commit):
                raise self.reclaimed(commit.id, commit.branch or MAIN)

    def presence(self) -> Callable[[Commit], bool]:
        """Whether the manifest version of a commit of a live branch is there, by one listing a
        branch."""
        versions: dict[str | None, set[int]] = {}

        def is_there(commit: Commit) -> bool:
            if commit.branch not in versions:
                listed = versions_of(self._datasets, LOCATION, commit.branch)
                versions[commit.branch] = set(listed)
            return commit.manifest_version in versions[commit.branch]

        return is_there

    def _oldest_readable(self, branch: str, lost: CommitId) -> CommitId | None:
        """The oldest commit of a branch whose manifest and tables are there."""
        is_there = self.presence()
        candidates = (c for c in self._commits(branch)[::-1] if c.id != lost and is_there(c))
        for commit in islice(candidates, _TRIES_MAX):
            pins = self._manifest.at_commit(commit).tables.values()
            if all(has_version(self._datasets, pin) for pin in pins):
                return commit.id
        return None
