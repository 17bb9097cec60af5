"""Tags: names of commits that do not move, kept as Lance tags of `__manifest`.

Invariant: a tag is the manifest version of one commit, on the line (the branch) that the commit was
written on. While it is there, cleanup keeps its commit whole and that branch cannot be deleted.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from omnigraph.deferred import deferred
from omnigraph.errors import AlreadyExists, UnknownPoint
from omnigraph.light_dataclass import dataclass
from omnigraph.storage.lance.datasets import Datasets
from omnigraph.storage.lance.refs import TagRef
from omnigraph.storage.lance.tag_refs import TagRefs
from omnigraph.storage.locks.locks import Locks, hold
from omnigraph.storage.manifest.branches import BRANCHES_LOCK, RETENTION_LOCK
from omnigraph.storage.manifest.manifest import Manifest
from omnigraph.storage.manifest.queries import Queries
from omnigraph.storage.manifest.state import LOCATION
from omnigraph.storage.names import MAIN, POINT_MARKS, checked_tag, decode
from omnigraph.storage.records import Commit
from omnigraph.storage.stats import Stats

if TYPE_CHECKING:
    from difflib import get_close_matches
else:
    get_close_matches = deferred("difflib", "get_close_matches")


@dataclass(frozen=True, slots=True)
class Tag:
    """The name of a commit. `branch` is the line it was written on, `manifest_version` the version
    that shows it there.

    >>> graph.tags.create("v1").name
    'v1'
    """

    name: str
    branch: str
    manifest_version: int
    commit_id: str


class Tags:
    """The tags of one graph."""

    def __init__(
        self,
        refs: TagRefs,
        datasets: Datasets,
        manifest: Manifest,
        queries: Queries,
        locks: Locks,
        stats: Stats,
        require_writable: Callable[[], None],
    ) -> None:
        self._refs = refs
        self._datasets = datasets
        self._manifest = manifest
        self._queries = queries
        self._locks = locks
        self._stats = stats
        self._require_writable = require_writable

    def create(self, name: str, commit: Commit) -> Tag:
        """Name a commit of a live branch. To name the same commit again changes nothing.

        No cleanup runs meanwhile, so a commit that can be read now stays: the tag keeps it.
        """
        name = checked_tag(name)
        self._require_writable()
        tag = Tag(name, commit.branch or MAIN, commit.manifest_version, commit.id)
        with hold(self._locks, [RETENTION_LOCK, BRANCHES_LOCK]):
            known = self.target(name)
            if known is not None and known.id == commit.id:
                return tag
            if known is not None:
                raise AlreadyExists("tag", name, f"it names commit {known.id}; delete it first")
            if self._datasets.ref(LOCATION, name) is not None:
                raise AlreadyExists("branch", name, "a branch would hide a tag of its name")
            self._manifest.require_whole(commit)
            self._refs.create(LOCATION, name, branch=commit.branch, version=commit.manifest_version)
        self._stats.event("tag.created", tag=name, commit=commit.id)
        return tag

    def delete(self, name: str) -> None:
        """Remove a tag. Its commit is kept no longer than others of its age."""
        name = name.strip()
        self._require_writable()
        with hold(self._locks, [BRANCHES_LOCK]):
            if self._refs.get(LOCATION, name) is None:
                raise self._unknown(name)
            self._refs.delete(LOCATION, name)
        self._stats.event("tag.deleted", tag=name)

    def get(self, name: str) -> Tag:
        """One tag, or `UnknownPoint` with the names that resemble it."""
        commit = self.target(name)
        if commit is None:
            raise self._unknown(name)
        return Tag(name, commit.branch or MAIN, commit.manifest_version, commit.id)

    def _unknown(self, name: str) -> UnknownPoint:
        near = get_close_matches(name, self._refs.every(LOCATION), n=3)
        return UnknownPoint("tag", name, "", tuple(near))

    def target(self, name: str) -> Commit | None:
        """The commit that a tag names, or None if there is no such tag."""
        if any(mark in name for mark in POINT_MARKS):
            return None
        ref = self._refs.get(LOCATION, name)
        if ref is None:
            return None
        return self._commits(_line(ref), [ref.version]).get(ref.version)

    def list(self) -> dict[str, Tag]:
        """Every tag by its name, sorted."""
        refs = self._refs.every(LOCATION)
        versions: defaultdict[str, list[int]] = defaultdict(list)
        for ref in refs.values():
            versions[_line(ref)].append(ref.version)
        commits = {line: self._commits(line, of_line) for line, of_line in versions.items()}
        return {
            name: Tag(name, _line(ref), ref.version, commits[_line(ref)][ref.version].id)
            for name, ref in sorted(refs.items())
            if ref.version in commits[_line(ref)]
        }

    def _commits(self, line: str, versions: Iterable[int]) -> dict[int, Commit]:
        state = self._manifest.state(line)
        return {c.manifest_version: c for c in self._queries.commits_at(state, versions)}


def _line(ref: TagRef) -> str:
    return MAIN if ref.branch is None else decode(ref.branch)
