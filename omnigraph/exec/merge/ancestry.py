"""Merge bases: the best common ancestors of two heads in the commit DAG.

Invariant: a merge base is an ancestor of both heads, and no other common ancestor descends from it.
There may be several (criss-cross merges): then no single one shows which side made a change, and
the merge reads them together.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from heapq import heappop, heappush

from omnigraph.errors import NotFound
from omnigraph.storage.manifest.history import History
from omnigraph.storage.records import Commit, CommitId, Origin

Lookup = Callable[[CommitId], Commit | None]


@dataclass(frozen=True, slots=True)
class Meeting:
    """The merge bases of two heads.

    `bases` are the best common ancestors: the nearest to both heads first, then the newer.
    `forgotten` are merges on our side of commits that their side has merged too and that went away
    with their branch: what such a merge changed is all that is left of them.
    """

    bases: tuple[Commit, ...]
    forgotten: tuple[Commit, ...] = ()


def meeting(lookup: Lookup, ours: CommitId, theirs: CommitId) -> Meeting:
    """The merge bases of two heads. With a single base, only newer commits are walked."""
    base = _only_base(lookup, ours, theirs)
    return _meeting(lookup, ours, theirs) if base is None else Meeting((base,))


_OURS, _THEIRS, _PASSED = 1, 2, 4
_BOTH = _OURS | _THEIRS


def _only_base(lookup: Lookup, ours: CommitId, theirs: CommitId) -> Commit | None:
    """The one best common ancestor, or None if there may be several or none.

    Walks back from both heads, the newest commit first, and marks each commit with the heads that
    reach it. Ancestors of a common commit need no look, and the walk ends when only such are left.
    The order is only a guess (versions of two branches say little about each other), so a mark that
    comes late to a commit is carried on from there: every best common ancestor is marked by both.
    """
    marks: dict[CommitId, int] = {}
    waiting: list[tuple[int, CommitId]] = []
    open_ids: set[CommitId] = set()  # queued, and not known to be an ancestor of a common commit
    common: dict[CommitId, Commit] = {}

    def reach(commit_id: CommitId, mark: int) -> None:
        before = marks.get(commit_id, 0)
        if before | mark == before:
            return
        marks[commit_id] = before | mark
        commit = lookup(commit_id)
        heappush(waiting, (0 if commit is None else -commit.manifest_version, commit_id))
        (open_ids.discard if (before | mark) & _PASSED else open_ids.add)(commit_id)

    reach(ours, _OURS)
    reach(theirs, _THEIRS)
    while open_ids:
        _, commit_id = heappop(waiting)
        open_ids.discard(commit_id)
        mark, commit = marks[commit_id], lookup(commit_id)
        if mark == _BOTH:
            if commit is None:
                return None  # both merged a commit that is gone
            common[commit_id] = commit
            mark |= _PASSED
        for parent in () if commit is None else parents(commit):
            reach(parent, mark)
    bases = [commit for id_, commit in common.items() if marks[id_] == _BOTH]
    return bases[0] if len(bases) == 1 else None


def _meeting(lookup: Lookup, ours: CommitId, theirs: CommitId) -> Meeting:
    """The same by walking all of history."""
    from_ours, from_theirs = _distances(lookup, ours), _distances(lookup, theirs)
    both = from_ours.keys() & from_theirs.keys()
    common = {commit.id: commit for commit in _existing(lookup, both)}
    passed = {parent for commit in common.values() for parent in parents(commit)}
    gone = both - common.keys() - passed

    def nearness(commit: Commit) -> tuple[int, int, str]:
        distance = from_ours[commit.id] + from_theirs[commit.id]
        return distance, -commit.manifest_version, commit.id

    forgotten = (c for c in _existing(lookup, from_ours) if c.merged_parent in gone)
    return Meeting(
        tuple(sorted((c for c in common.values() if c.id not in passed), key=nearness)),
        tuple(sorted(forgotten, key=lambda commit: commit.id)),
    )


def merge_bases(lookup: Lookup, ours: CommitId, theirs: CommitId) -> tuple[Commit, ...]:
    """The best common ancestors."""
    return meeting(lookup, ours, theirs).bases


def _existing(lookup: Lookup, ids: Iterable[CommitId]) -> Iterator[Commit]:
    return (commit for commit in map(lookup, ids) if commit is not None)


def parents(commit: Commit) -> tuple[CommitId, ...]:
    """The commits a commit was made from."""
    return tuple(p for p in (commit.parent, commit.merged_parent) if p is not None)


def _distances(lookup: Lookup, head: CommitId) -> dict[CommitId, int]:
    """Every ancestor of a commit, itself included, with the fewest steps to it."""
    steps = {head: 0}
    waiting = deque([head])
    while waiting:
        commit_id = waiting.popleft()
        commit = lookup(commit_id)
        for parent in () if commit is None else parents(commit):
            if parent not in steps:
                steps[parent] = steps[commit_id] + 1
                waiting.append(parent)
    return steps


class _Commits:
    """Commit lookup in a few branches, and in others once those do not suffice.

    A merge says where the commit it merged was written: only that branch is asked, and none if it
    is gone, and its commits with it. Where a merge says nothing, or names a branch that lacks the
    commit, every live branch is asked.
    """

    def __init__(self, history: History, branches: Iterable[str]) -> None:
        self._history = history
        self._known: dict[CommitId, Commit] = {}
        self._origins: dict[CommitId, Origin] = {}
        self._is_complete = False
        for branch in branches:
            self._known.update(history.dag(branch, recent=True))

    def __call__(self, commit_id: CommitId) -> Commit | None:
        commit = self._known.get(commit_id) or self._elsewhere(commit_id)
        if (
            commit is not None
            and commit.merged_parent is not None
            and commit.merged_from is not None
        ):
            self._origins[commit.merged_parent] = commit.merged_from
        return commit

    def _elsewhere(self, commit_id: CommitId) -> Commit | None:
        if self._is_complete:
            return None
        origin = self._origins.get(commit_id)
        if origin is not None:
            if not self._history.lives(origin):
                return None
            with suppress(NotFound):  # deleted this moment
                self._known.update(self._history.dag(origin[0]))
        if commit_id not in self._known:
            self._is_complete = True
            self._known.update(self._history.everything())
        return self._known.get(commit_id)


def lookup_in(history: History, *branches: str) -> Lookup:
    """Commits of these branches, and of every other live branch that has some of their history.

    The commits of a deleted branch are gone.
    """
    return _Commits(history, branches)
