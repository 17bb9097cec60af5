"""A power cut at any moment loses nothing that was acknowledged.

The file operations of a run are recorded, a disk is cut off after some of them, and the graph that
such a disk may have is opened: everything acknowledged is there, the step under way is there or
not, `check` is clean, and the next write works.
"""

import json
import os
import random
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph.storage.locks import process_mark
from tests import campaign
from tests import power_cut_work as work
from tests.power_cuts import Op, lay_out, states, traced, watching


def cut_off(ops: list[Op], root: Path, views: list[Any], count: int, seed: int) -> None:
    """Open the graphs that so many cuts may leave."""
    chance = random.Random(seed)
    for number, (acks, files, folders) in enumerate(states(ops, count, chance)):
        shutil.rmtree(root, ignore_errors=True)
        lay_out(root, files, folders)
        allowed = [views[acks - 1] if acks else None, *views[acks : acks + 1]]
        try:
            opened(root, allowed, number % 3 == 0)
        except (og.OmnigraphError, AssertionError) as cause:
            said = f"cut {number} of seed {seed} after {acks} steps: {cause}"
            raise AssertionError(said) from cause


def opened(root: Path, allowed: list[Any], reads_first: bool) -> None:
    """The graph in a folder is one of the allowed ones, whole, and goes on."""
    if reads_first and None not in allowed:
        assert work.view(str(root)) in allowed
    try:
        graph = og.open(root, durability="fsync")
    except og.NotFound:
        assert None in allowed, "an acknowledged graph is gone"
        return
    with graph:
        assert work.seen(graph) in allowed
        # A fork that a deleted branch left behind is nobody's: cleanup takes it.
        assert {finding.code for finding in graph.check().findings} <= {"fork-orphan"}
        graph.mutate(work.INSERT, {"n": "after"})
        assert graph.query(work.PEOPLE).rows


@pytest.fixture(autouse=True)
def _restarted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each open comes after a restart of the machine, as one after a power cut does."""
    boots = iter(range(10**9))
    monkeypatch.setattr(process_mark, "_boot", lambda: f"boot {next(boots)}")


def watched(root: Path, singles: int, patch: pytest.MonkeyPatch) -> tuple[list[Op], list[Any]]:
    """The work, recorded inside this process."""
    views = []
    with watching(root, patch) as seen:
        for step in work.steps(str(root), singles):
            step()
            seen.ack()
            views.append(work.view(str(root)))
    return seen.ops, views


def test_C4_a_power_cut_loses_nothing_acknowledged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "graph.omni"
    ops, views = watched(root, 3, monkeypatch)
    cut_off(ops, root, views, 25, 1)


@pytest.mark.slow
def test_C4_many_power_cuts_lose_nothing_acknowledged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "graph.omni"
    ops, views = watched(root, 25, monkeypatch)
    cut_off(ops, root, views, campaign.count(300), random.randrange(2**32))


@pytest.mark.skipif(shutil.which("strace") is None, reason="needs strace to see every operation")
@pytest.mark.slow
def test_C4_power_cuts_between_any_two_operations_lose_nothing_acknowledged(tmp_path: Path) -> None:
    root, views = tmp_path / "graph.omni", tmp_path / "views"
    command = [sys.executable, "-m", "tests.power_cut_work", str(root), "25", str(views)]
    ops = traced(command, root, tmp_path / "trace", dict(os.environ))
    lines = [json.loads(line) for line in views.read_text().splitlines()]
    cut_off(ops, root, lines, campaign.count(300), random.randrange(2**32))


def test_the_recorder_and_the_model_see_a_commit_that_is_not_flushed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same cuts over a graph that leaves flushing to the system do lose commits."""
    monkeypatch.setattr("omnigraph.storage.flushing.Flusher.is_on", False)
    root = tmp_path / "graph.omni"
    ops, views = watched(root, 1, monkeypatch)
    with pytest.raises(AssertionError):
        cut_off(ops, root, views, 60, 1)


def test_C4_the_name_of_a_deleted_branch_is_gone_for_good_before_its_files_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "graph.omni"
    with og.init(root, work.SCHEMA, durability="fsync") as graph:
        graph.branches.create("side")
        graph.mutate(work.PAIR, {"a": "a", "b": "b"}, branch="side")
        with watching(root, monkeypatch) as seen:
            seen.look()
            seen.ops.clear()
            graph.branches.delete("side")
            seen.look()
    named: set[str] = set()
    for op in seen.ops:
        folder, _, rest = op.path.partition("/tree/side")
        if op.kind == "unlink" and op.path.endswith("_refs/branches/side.json"):
            named.add(op.path.removesuffix("/side.json"))
        elif op.kind == "fsync":
            named.discard(op.path)
        elif op.kind == "unlink" and rest:
            assert f"{folder}/_refs/branches" not in named, f"{op.path} went first"
    assert not named
    assert sum("/tree/side" in op.path for op in seen.ops) > 6


@pytest.mark.parametrize("read_only", [True, False])
def test_C4_a_branch_or_a_tag_that_a_power_cut_tore_was_never_made(
    tmp_path: Path, read_only: bool
) -> None:
    root = tmp_path / "graph.omni"
    with og.init(root, work.SCHEMA, durability="fsync") as graph:
        for name in ("whole", "torn", "bare"):
            graph.branches.create(name)
        graph.tags.create("kept")
        graph.tags.create("cut")
    refs = root / "__manifest" / "_refs"
    (refs / "branches" / "torn.json").write_bytes(b"")
    (refs / "tags" / "cut.json").write_bytes(b"\0" * 64)
    shutil.rmtree(root / "__manifest" / "tree" / "bare")
    with og.open(root, read_only=read_only) as graph:
        assert list(graph.branches.list()) == ["main", "whole"]
        assert [tag.name for tag in graph.tags.list()] == ["kept"]
        with pytest.raises(og.NotFound):
            graph.query(work.PEOPLE, branch="torn")
