"""Fast path of: `ancestry.meeting`, for many commits at once: the merge bases of all their pairs.

The pairs are not walked one by one: each commit is marked with the set of those that descend from
it, once, from the newest to the oldest. A commit is a merge base of two that descend from it when
no child of it is an ancestor of both.

Invariant: the commits are those that `ancestry.meeting`, the reference, gives for all pairs.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from operator import or_

from omnigraph.exec.merge.ancestry import parents
from omnigraph.storage.records import Commit, CommitId


@dataclass(frozen=True, slots=True)
class SharedBase:
    """A commit that a merge of two commits, `ours` and `theirs`, starts from, its children that
    lead to any of the asked ones, and whether the history still has it."""

    id: CommitId
    ours: CommitId
    theirs: CommitId
    children: tuple[CommitId, ...]
    is_gone: bool


@dataclass(slots=True)
class _Node:
    """A commit, and which of the asked commits descend from it, as bits."""

    children: list[CommitId] = field(default_factory=list)
    descendants: int = 0


def shared_bases(
    commits: Mapping[CommitId, Commit], points: Iterable[CommitId]
) -> Iterator[SharedBase]:
    """The merge bases of every two of the points, each with the first pair it is one of."""
    order = tuple(dict.fromkeys(points))
    own = {point: 1 << number for number, point in enumerate(order)}
    nodes = _reached(commits, order)
    for commit_id in _children_first(commits, nodes):
        node = nodes[commit_id]
        below = tuple({nodes[child].descendants for child in node.children})
        node.descendants = reduce(or_, below, own.get(commit_id, 0))
        pair = _pair(own.get(commit_id, 0), below, node.descendants)
        if pair is not None:
            ours, theirs = sorted(pair)
            yield SharedBase(
                commit_id,
                order[ours],
                order[theirs],
                tuple(node.children),
                commit_id not in commits,
            )


def _pair(own: int, below: Sequence[int], descendants: int) -> tuple[int, int] | None:
    """Two descendants, by number, that have no child of the commit in common; it is its own."""
    if own:
        others = descendants ^ own
        return (_lowest(own), _lowest(others)) if others else None
    if len(below) < 2 or descendants in below:
        return None
    rest = descendants
    while rest:
        ours = rest & -rest
        beside = descendants & ~reduce(or_, (each for each in below if each & ours))
        if beside:
            return _lowest(ours), _lowest(beside)
        rest ^= ours
    return None


def _lowest(bits: int) -> int:
    return (bits & -bits).bit_length() - 1


def _reached(
    commits: Mapping[CommitId, Commit], points: Sequence[CommitId]
) -> dict[CommitId, _Node]:
    """The points and their ancestors, with their children among them."""
    nodes = {point: _Node() for point in points}
    waiting = list(points)
    while waiting:
        commit_id = waiting.pop()
        for parent in _parents(commits, commit_id):
            if parent not in nodes:
                nodes[parent] = _Node()
                waiting.append(parent)
            nodes[parent].children.append(commit_id)
    return nodes


def _children_first(
    commits: Mapping[CommitId, Commit], nodes: Mapping[CommitId, _Node]
) -> Iterator[CommitId]:
    """Every commit after its children."""
    left = {commit_id: len(node.children) for commit_id, node in nodes.items()}
    ready = [commit_id for commit_id, count in left.items() if not count]
    while ready:
        commit_id = ready.pop()
        yield commit_id
        for parent in _parents(commits, commit_id):
            left[parent] -= 1
            if not left[parent]:
                ready.append(parent)


def _parents(commits: Mapping[CommitId, Commit], commit_id: CommitId) -> tuple[CommitId, ...]:
    commit = commits.get(commit_id)
    return () if commit is None else tuple(dict.fromkeys(parents(commit)))
