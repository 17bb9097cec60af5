"""Commit history: the DAG of commits, read from the lineage rows of the manifest.

Invariant: there is no second store of commits. The DAG in memory is a projection of the
`graph_commit` rows a branch's manifest holds, its own and the inherited ones.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from threading import Lock
from typing import TypeVar

from omnigraph.costs import COSTS
from omnigraph.errors import NotFound, Reclaimed
from omnigraph.light_dataclass import dataclass
from omnigraph.lru import Lru
from omnigraph.storage.lance.datasets import Datasets, files_of
from omnigraph.storage.lance.refs import ForkId
from omnigraph.storage.lance.strict_commit import known_fragments
from omnigraph.storage.manifest.known_commits import KnownCommits
from omnigraph.storage.manifest.lost_commits import LostCommits
from omnigraph.storage.manifest.manifest import Manifest
from omnigraph.storage.manifest.queries import Fragment, Queries
from omnigraph.storage.manifest.state import LOCATION, State
from omnigraph.storage.manifest.table_line import TableLine
from omnigraph.storage.names import MAIN, decode
from omnigraph.storage.records import (
    Commit,
    CommitId,
    Origin,
    Snapshot,
)

T = TypeVar("T")

_LineKey = tuple[str, ForkId | None, int, str, int]
"""Branch, its identity, manifest version of its head, table, end of the line."""


@dataclass(frozen=True, slots=True)
class _Lineage:
    identity: ForkId | None
    version: int
    seen: frozenset[int]
    commits: dict[CommitId, Commit]


class History:
    """The commits of one graph."""

    def __init__(self, datasets: Datasets, manifest: Manifest, queries: Queries) -> None:
        self._datasets = datasets
        self._manifest = manifest
        self._queries = queries
        self.lost = LostCommits(datasets, manifest, self.list)
        self._lineages: dict[str, _Lineage] = {}
        self._snapshots: Lru[CommitId, Snapshot] = Lru(COSTS.snapshots_max)
        self._known = KnownCommits()
        self._lines: Lru[_LineKey, TableLine] = Lru(COSTS.lines_max)
        self._turn = Lock()

    def list(
        self, branch: str = MAIN, *, actor: str | None = None, limit: int | None = None
    ) -> tuple[Commit, ...]:
        """The commits a branch has and inherited, newest first."""
        if limit is not None and actor is None:
            newest = self._newest(branch, limit)
            if newest is not None:
                return newest
        return _listed(self.dag(branch).values(), _age, actor, limit)

    def list_all(self, *, actor: str | None = None, limit: int | None = None) -> tuple[Commit, ...]:
        """The commits of every live branch, newest first."""
        return _listed(self.everything().values(), _moment, actor, limit)

    def _newest(self, branch: str, limit: int) -> tuple[Commit, ...] | None:
        """The last commits of a branch, if they are among its last manifest versions: these are
        read without the rest of the history."""
        state = self._manifest.state(branch)
        known = self._lineages.get(branch)
        if known is not None and (known.identity, known.version) == (state.identity, state.version):
            return None  # all of them are in memory
        end = state.version + 1
        last = range(max(0, end - COSTS.exact_versions), end)
        commits = self._queries.commits_of_versions(state, last)
        return _listed(commits, _age, None, limit) if len(commits) >= limit else None

    def dag(self, branch: str, *, recent: bool = False) -> dict[CommitId, Commit]:
        """Every commit a branch can reach, by id; with `recent` as this process saw the branch a
        moment ago."""
        state = self._manifest.recent(branch) if recent else self._manifest.state(branch)
        known = self._lineages.get(branch)
        if known is not None and known.identity != state.identity:
            known = None
        if known is not None and known.version == state.version:
            return known.commits
        seen = frozenset() if known is None else known.seen
        fresh = [f for f in known_fragments(state.handle) if f.fragment_id not in seen]
        commits = dict(known.commits if known else {})
        for read in self._read(state, fresh):
            commits.update(read)
        lineage = _Lineage(state.identity, state.version, state.seen, commits)
        with self._turn:
            # One of a branch that is gone would keep a whole history for each transaction.
            known_ones = (b for b in self._lineages if self._manifest.known(b) is not None)
            self._lineages = {**{b: self._lineages[b] for b in known_ones}, branch: lineage}
        return commits

    def _read(
        self, state: State, fragments: Sequence[Fragment]
    ) -> Sequence[dict[CommitId, Commit]]:
        """The commits in these fragments. A branch shares fragments with its ancestors, and a
        fragment that was read for one of them is not read again."""
        files = {each.fragment_id: files_of(each) for each in fragments}
        known = {each: self._known.get(each) for each in files.values()}
        unread = [each for each in fragments if known[files[each.fragment_id]] is None]
        if unread:
            for number, read in self._queries.commits_by_fragment(state, unread).items():
                known[files[number]] = self._known.put(files[number], read.values())
        return [commits for commits in known.values() if commits]

    def lives(self, origin: Origin) -> bool:
        """Whether a branch that commits came from is still there, and is the same one."""
        branch, identity = origin
        try:
            return (self._manifest.identity(branch) or "") == identity
        except NotFound:
            return False

    def origin(self, commit: Commit) -> Origin | None:
        """The branch that a commit was written on, unless it is gone this moment."""
        branch = commit.branch or MAIN
        try:
            if self._datasets.is_remote:
                return branch, self._manifest.recent(branch).identity or ""
            return branch, self._manifest.identity(branch) or ""
        except NotFound:
            return None

    def get(self, commit_id: str) -> Commit:
        """One commit of any live branch."""
        ids = [CommitId(commit_id)]
        commits = self.find(MAIN, ids)  # first, since it needs no list of branches
        if not commits:
            commits = next(filter(None, self._each(lambda branch: self.find(branch, ids))), ())
        if not commits:
            raise NotFound("commit", commit_id)
        return commits[0]

    def beginning_with(self, prefix: str, limit: int) -> tuple[Commit, ...]:
        """Commits of live branches whose ids begin with a text: `limit` of them, or all."""
        commits: dict[CommitId, Commit] = {}
        for of_branch in self._each(
            lambda branch: self._queries.beginning_with(self._manifest.state(branch), prefix, limit)
        ):
            commits |= {commit.id: commit for commit in of_branch}
            if len(commits) >= limit:
                break
        return tuple(commits[id_] for id_ in sorted(commits)[:limit])

    def first_parents(self, commit: Commit) -> Iterator[Commit]:
        """A commit and the commits before it on its line, newest first.

        Manifest versions grow along a line, so the rows are read from the newest on, in windows of
        versions that widen: what is read follows how far the caller walks, not the history.
        """
        state = self._manifest.state(commit.branch or MAIN)
        read: dict[CommitId, Commit] = {}
        end, width = commit.manifest_version, COSTS.history_window_versions
        yield commit
        while commit.parent is not None:
            while commit.parent not in read and end > 0:
                window = range(max(0, end - width), end)
                of_window = self._queries.commits_of_versions(state, window)
                read |= {each.id: each for each in of_window}
                end, width = window.start, width * 4
            parent = commit.parent
            commit = read.pop(parent) if parent in read else self.get(parent)
            yield commit

    def table_line(self, branch: str, location: str, end: int) -> TableLine:
        """The versions of one table that a branch showed before a manifest version; what was read
        of them is kept until the branch moves."""
        state = self._manifest.state(branch)
        key = branch, state.identity, state.version, location, end
        line = self._lines.get(key)
        if line is None:
            line = TableLine(self._queries, state, location, end)
            self._lines.put(key, line)
        return line

    def everything(self) -> dict[CommitId, Commit]:
        """The commits of every live branch."""
        return {id_: commit for dag in self._each(self.dag) for id_, commit in dag.items()}

    def _each(self, ask: Callable[[str], T]) -> Iterator[T]:
        """What every branch answers; one that is deleted meanwhile has nothing to say."""
        for branch in self.branches():
            try:
                yield ask(branch)
            except NotFound as missing:
                if missing.kind != "branch":
                    raise

    def find(self, branch: str, ids: Iterable[CommitId]) -> tuple[Commit, ...]:
        """Those of the commits that a branch has; looked up in memory where its history is."""
        state, listed = self._manifest.state(branch), list(dict.fromkeys(ids))
        known = self._lineages.get(branch)
        if known is not None and known.identity == state.identity:
            commits = [known.commits[each] for each in listed if each in known.commits]
            if len(commits) == len(listed) or known.version == state.version:
                return tuple(commits)
        return self._queries.find(state, listed)

    def snapshot(self, commit_id: str) -> Snapshot:
        """What a read at a past commit sees."""
        known = self._snapshots.get(CommitId(commit_id))
        return self.snapshot_at(self.get(commit_id)) if known is None else known

    def snapshot_at(self, commit: Commit) -> Snapshot:
        """What a read at a commit of a live branch sees."""
        known = self._snapshots.get(commit.id)
        if known is not None:
            return known
        try:
            snapshot = self._manifest.at_commit(commit)
        except (NotFound, Reclaimed) as cause:
            if commit.branch is not None and self._datasets.ref(LOCATION, commit.branch) is None:
                raise NotFound("commit", commit.id, "its branch was deleted") from cause
            raise self.lost.reclaimed(commit.id, commit.branch or MAIN) from cause
        self.remember(commit, snapshot)
        return snapshot

    def remember(self, commit: Commit, snapshot: Snapshot, published: State | None = None) -> None:
        """Keep what a read at a commit sees. Of the state that this process published last, the
        newest fragment holds the commit."""
        if published is not None:
            newest = max(known_fragments(published.handle), key=lambda each: int(each.fragment_id))
            self._known.put(files_of(newest), [commit])
        if commit.branch is not None:
            return  # a named branch may be deleted, and its commits with it
        self._snapshots.put(commit.id, snapshot)

    def close(self) -> None:
        """Drop everything remembered."""
        with self._turn:
            self._lineages.clear()
            self._known.clear()
            self._snapshots.clear()
            self._lines.clear()

    def branches(self) -> tuple[str, ...]:
        """Every branch that has commits of its own, main first. What is remembered of others is
        let go of."""
        branches = (MAIN, *sorted(map(decode, self._datasets.refs(LOCATION))))
        self._manifest.close(but=branches)
        return branches


def _listed(
    commits: Iterable[Commit],
    key: Callable[[Commit], tuple[int, int, str]],
    actor: str | None,
    limit: int | None,
) -> tuple[Commit, ...]:
    of_actor = (commit for commit in commits if actor is None or commit.actor == actor)
    newest = sorted(of_actor, key=key, reverse=True)
    return tuple(newest if limit is None else newest[:limit])


def _moment(commit: Commit) -> tuple[int, int, str]:
    # Versions of two branches' manifests do not compare.
    return commit.created_at, commit.manifest_version, commit.id


def _age(commit: Commit) -> tuple[int, int, str]:
    return commit.manifest_version, commit.created_at, commit.id
