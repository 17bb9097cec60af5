"""Commit graph as text: a lane for each line of commits, forks and merges between them.

Invariant: a commit stands above its parents, each lane leads to the commit that continues it, and
a parent that is not among the commits ends its lane.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from omnigraph.storage.records import Commit

Lanes = list[str | None]


def drawn(commits: Sequence[Commit]) -> Iterator[tuple[str, Commit | None]]:
    """Lines of the drawing, each with the commit that stands on it, if one does."""
    known = {commit.id for commit in commits}
    lanes: Lanes = []
    for commit in commits:
        awaiting = [lane for lane, awaited in enumerate(lanes) if awaited == commit.id]
        lane = awaiting[0] if awaiting else _free(lanes)
        lanes[lane] = commit.id
        for other in awaiting[1:]:
            yield _joined(lanes, lane, other), None
            lanes[other] = None
        yield _row(lanes, mark=lane), commit
        parents = [parent for parent in commit.parents if parent in known]
        lanes[lane] = parents[0] if parents else None
        for parent in parents[1:]:
            if parent not in lanes:
                lanes[_free(lanes, right_of=lane)] = parent
            yield _parted(lanes, lane, lanes.index(parent)), None
        while lanes and lanes[-1] is None:
            lanes.pop()


def _free(lanes: Lanes, right_of: int = -1) -> int:
    for lane in range(right_of + 1, len(lanes)):
        if lanes[lane] is None:
            return lane
    lanes.append(None)
    return len(lanes) - 1


def _row(lanes: Lanes, mark: int | None = None) -> str:
    signs = ["*" if n == mark else "|" if lane else " " for n, lane in enumerate(lanes)]
    return " ".join(signs).rstrip()


def _joined(lanes: Lanes, left: int, right: int) -> str:
    """A line that ends in one to its left."""
    chars = list(" ".join("|" if lane else " " for lane in lanes))
    for column in range(2 * left + 1, 2 * right - 1):
        chars[column] = "_" if chars[column] == " " else chars[column]
    chars[2 * right - 1], chars[2 * right] = "/", " "
    return "".join(chars).rstrip()


def _parted(lanes: Lanes, start: int, other: int) -> str:
    """A line that starts at another: the parent that was merged."""
    left, right = sorted((start, other))
    chars = list(" ".join("|" if lane or n == start else " " for n, lane in enumerate(lanes)))
    chars[2 * right] = " " if right == other and right == left + 1 else chars[2 * right]
    for middle in range(2 * left + 1, 2 * right - 1):
        chars[middle] = "-" if chars[middle] == " " else chars[middle]
    chars[2 * right - 1] = "\\" if other > start else "/"
    return "".join(chars).rstrip()
