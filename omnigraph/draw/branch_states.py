"""Branches with their heads, and how many commits each is ahead of main and behind it.

Invariant: distances follow from the commits that differ, and cost as much.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from omnigraph.storage.records import Commit

_LEFT, _RIGHT = 1, 2


@dataclass(frozen=True, slots=True)
class BranchState:
    """A branch, the commit of its head, and the commits that it or main alone has."""

    name: str
    head: Commit
    ahead: int
    behind: int


def branch_states(
    branches: Iterable[str],
    names: Mapping[str, Collection[str]],
    commits: Mapping[str, Commit],
    main: str,
) -> Iterator[BranchState]:
    """Return the state of each branch. `names` are branches by the id of their head; a branch that
    was deleted since they were read is left out."""
    heads = {
        label: commits[id_] for id_, labels in names.items() if id_ in commits for label in labels
    }
    target = heads.get(main)
    for name in branches:
        head = heads.get(name)
        if head is None or target is None:
            continue
        ahead, behind = (0, 0) if name == main else ahead_behind(commits, head.id, target.id)
        yield BranchState(name, head, ahead, behind)


def ahead_behind(commits: Mapping[str, Commit], left: str, right: str) -> tuple[int, int]:
    """How many commits lead to one commit and not to the other, each way.

    Walks from both, newest first, until all that is left leads to both: the cost follows the
    difference, not the history.
    """
    flags: dict[str, int] = {}
    queue: list[tuple[int, int, str]] = []
    lone = 0  # commits of the queue that lead to one of the two alone, as far as is known

    def mark(commit_id: str, flag: int) -> None:
        nonlocal lone
        commit = commits.get(commit_id)
        if commit is None or flags.get(commit_id, 0) | flag == flags.get(commit_id, 0):
            return
        before, flags[commit_id] = flags.get(commit_id, 0), flags.get(commit_id, 0) | flag
        if commit_id in waiting:
            lone -= before != _LEFT | _RIGHT
        else:
            waiting.add(commit_id)
            heapq.heappush(queue, (-commit.created_at, -commit.manifest_version, commit_id))
        lone += flags[commit_id] != _LEFT | _RIGHT

    waiting: set[str] = set()
    mark(left, _LEFT)
    mark(right, _RIGHT)
    while queue and lone:
        commit_id = heapq.heappop(queue)[2]
        waiting.discard(commit_id)
        lone -= flags[commit_id] != _LEFT | _RIGHT
        for parent in commits[commit_id].parents:
            mark(parent, flags[commit_id])
    sides = list(flags.values())
    return sides.count(_LEFT), sides.count(_RIGHT)
