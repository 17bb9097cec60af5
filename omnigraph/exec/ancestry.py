"""Where two lines of history met last.

Invariant: a merge base is an ancestor of both heads, and no other common ancestor descends from it.
There may be several (each side merged the other): then none alone tells who changed what since, and
the merge reads them together.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from omnigraph.storage.history import History
from omnigraph.storage.records import Commit, CommitId

Lookup = Callable[[CommitId], Commit | None]


@dataclass(frozen=True, slots=True)
class Meeting:
    """Where two heads met last.

    `bases` are the best common ancestors: the nearest to both heads first, then the newer.
    `forgotten` are merges on our side of commits that their side has merged too and that went away
    with their branch: what such a merge changed is all that is left of them.
    """

    bases: tuple[Commit, ...]
    forgotten: tuple[Commit, ...] = ()


def meeting(lookup: Lookup, ours: CommitId, theirs: CommitId) -> Meeting:
    """Where two heads met last."""
    from_ours, from_theirs = _distances(lookup, ours), _distances(lookup, theirs)
    both = from_ours.keys() & from_theirs.keys()
    common = {commit.id: commit for commit in _found(lookup, both)}
    passed = {parent for commit in common.values() for parent in parents(commit)}
    gone = both - common.keys() - passed

    def nearness(commit: Commit) -> tuple[int, int, str]:
        distance = from_ours[commit.id] + from_theirs[commit.id]
        return distance, -commit.manifest_version, commit.id

    forgotten = (c for c in _found(lookup, from_ours) if c.merged_parent in gone)
    return Meeting(
        tuple(sorted((c for c in common.values() if c.id not in passed), key=nearness)),
        tuple(sorted(forgotten, key=lambda commit: commit.id)),
    )


def merge_bases(lookup: Lookup, ours: CommitId, theirs: CommitId) -> tuple[Commit, ...]:
    """The best common ancestors."""
    return meeting(lookup, ours, theirs).bases


def _found(lookup: Lookup, ids: Iterable[CommitId]) -> Iterator[Commit]:
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


def lookup_in(history: History, *branches: str) -> Lookup:
    """Commits of these branches, and of every other live branch once they do not suffice.

    The commits of a deleted branch are gone.
    """
    known: dict[CommitId, Commit] = {}
    for branch in branches:
        known.update(history.dag(branch))
    complete = False

    def lookup(commit_id: CommitId) -> Commit | None:
        nonlocal complete
        if commit_id not in known and not complete:
            complete = True
            known.update(history.everything())
        return known.get(commit_id)

    return lookup
