"""Merges done in a process of their own, so that a failpoint can kill it."""

import multiprocessing

import omnigraph as og
from omnigraph.storage import failpoints, fold

KILLED = -9


def run_merge(uri: str, into: str, place: str, nth: int, *, fragments_max: int) -> int:
    """Merge `b` in a child that a failpoint kills; its exit code."""
    made = multiprocessing.get_context("forkserver")
    made.set_forkserver_preload(["tests.exec.child"])
    process = made.Process(target=merge, args=(uri, into, place, nth, fragments_max))
    process.start()
    process.join(60)
    if process.is_alive():
        process.kill()
        raise AssertionError("the child did not end")
    assert process.exitcode is not None
    return process.exitcode


def merge(uri: str, into: str, place: str, nth: int, fragments_max: int) -> None:
    """Merge once, killed at a failpoint."""
    fold.FRAGMENTS_MAX = fragments_max
    graph = og.open(uri)
    failpoints.arm(place, "kill", nth)
    graph.branches.merge("b", into=into, actor="act-crash")
