"""Topological order of commits: newest first, and what leads to a head.

Invariant: a commit stands above its parents.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from omnigraph.storage.records import Commit


def reachable(commits: Mapping[str, Commit], heads: Iterable[str]) -> dict[str, Commit]:
    """The commits that lead to the heads, merged ones included."""
    kept: dict[str, Commit] = {}
    waiting = [head for head in heads if head in commits]
    while waiting:
        commit = commits[waiting.pop()]
        if commit.id not in kept:
            kept[commit.id] = commit
            waiting += [parent for parent in commit.parents if parent in commits]
    return kept


def in_order(commits: Mapping[str, Commit]) -> list[Commit]:
    """Newest first, but never a parent above its child."""
    children = dict.fromkeys(commits, 0)
    for commit in commits.values():
        for parent in set(commit.parents) & commits.keys():
            children[parent] += 1
    ready = [
        (-c.created_at, -c.manifest_version, c.id) for c in commits.values() if not children[c.id]
    ]
    heapq.heapify(ready)
    order = []
    while ready:
        commit = commits[heapq.heappop(ready)[2]]
        order.append(commit)
        for parent in set(commit.parents) & commits.keys():
            children[parent] -= 1
            if not children[parent]:
                below = commits[parent]
                heapq.heappush(ready, (-below.created_at, -below.manifest_version, below.id))
    return order
