"""Merges and mutations done in a process of their own, so that a failpoint can kill it."""

from typing import Any

import omnigraph as og
from omnigraph.costs import COSTS
from omnigraph.storage import failpoints
from tests.forked import run


def run_merge(uri: str, into: str, place: str, nth: int, *, fragments_max: int) -> int:
    """Merge `b` in a child that a failpoint kills; its exit code."""
    return run(merge, uri, into, place, nth, fragments_max)


def mutate(
    uri: str, changes: list[tuple[str, dict[str, Any]]], branch: str | None, place: str, nth: int
) -> None:
    """Mutate a branch, or main through one transaction, killed at the n-th pass of a failpoint."""
    graph = og.open(uri)
    failpoints.arm(place, "kill", nth)
    try:
        if branch is not None:
            for text, params in changes:
                graph.mutate(text, params, branch=branch)
            return
        with graph.transaction() as block:
            for text, params in changes:
                block.mutate(text, params)
    except og.OmnigraphError:
        return  # refused: nothing of it may be there


def merge(uri: str, into: str, place: str, nth: int, fragments_max: int) -> None:
    """Merge once, killed at a failpoint."""
    COSTS.fold_fragments_min = fragments_max
    graph = og.open(uri)
    failpoints.arm(place, "kill", nth)
    graph.branches.merge("b", into=into, actor="act-crash")
