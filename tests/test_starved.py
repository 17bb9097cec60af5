"""A disk that is full, out of files, or read-only from any step of a write on.

Whichever step it is, the write ends with an error of ours or is done, the graph is before it or
after it, and once there is room again it goes on. A read that the disk fails says so.
"""

import os
import random
from pathlib import Path

import pytest

import omnigraph as og
from omnigraph.storage import failpoints
from tests import starved
from tests.forked import run
from tests.power_cut_work import EDGES, INSERT, PEOPLE, SCHEMA

PLACES = ("", *failpoints.COMMIT, *failpoints.CONFIRM, *failpoints.FORK, *failpoints.FOLD)


def starve(folder: Path, place: str, how: str, branch: str, durability: str) -> None:
    """Let a write starve, then look."""
    uri = str(folder / "graph.omni")
    with og.init(uri, SCHEMA, durability="os") as graph:
        for number in range(8):
            graph.mutate(INSERT, {"n": f"p{number}"})
        graph.branches.create("side")
    os.chmod(folder, 0o755)
    ended = run(starved.work, uri, place, how, branch, durability)
    for root, _, _ in os.walk(uri):
        os.chmod(root, 0o755)
    assert ended in (starved.TYPED, starved.DONE), f"the process ended with {ended}"
    with og.open(uri) as graph:
        names = [row["p.name"] for row in graph.query(PEOPLE, branch=branch)]
        kept = {name for name in names if name.startswith("p")}
        assert kept == {f"p{number}" for number in range(8)}, "what was there before"
        assert ("x" in names) == ("y" in names) == bool(graph.query(EDGES, branch=branch).rows)
        assert "x" in names or ended != starved.DONE, "an acknowledged write is lost"
        assert {finding.code for finding in graph.check().findings} <= {"fork-orphan"}
        graph.mutate(INSERT, {"n": "after"}, branch=branch)


CASES = [
    (place, how, branch, durability)
    for place in PLACES
    for how in starved.WAYS
    for branch in ("main", "side")
    for durability in ("fsync", "os")
]


def test_C4_a_disk_that_gives_out_at_a_step_loses_nothing(tmp_path: Path) -> None:
    for number, case in enumerate(random.Random(3).sample(CASES, 4)):
        (tmp_path / str(number)).mkdir()
        starve(tmp_path / str(number), *case)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join(case))
def test_C4_a_disk_that_gives_out_at_any_step_loses_nothing(
    tmp_path: Path, case: tuple[str, str, str, str]
) -> None:
    starve(tmp_path, *case)


@pytest.mark.skipif(not Path("/proc/self/mem").exists(), reason="needs a file that fails reads")
def test_a_read_error_of_the_disk_is_a_storage_failure(tmp_path: Path) -> None:
    """Reading `/proc/self/mem` where nothing is mapped is EIO, as a broken disk says it."""
    uri = tmp_path / "graph.omni"
    with og.init(uri, SCHEMA) as graph:
        # Lance reads a small file as one piece, of the size the disk says it has.
        people = [{"type": "Person", "data": {"name": f"p{n * 7919}"}} for n in range(30_000)]
        graph.load(people, "append", engine="local")
    [data] = (uri / "nodes").glob("*/data/*.lance")
    whole = data.read_bytes()
    data.unlink()
    data.symlink_to("/proc/self/mem")
    with og.open(uri) as graph:
        with pytest.raises(og.StorageFailed, match="Input/output error"):
            graph.query(PEOPLE)
        assert {finding.code for finding in graph.check().findings}, "check reports it"
    data.unlink()
    data.write_bytes(whole)
    with og.open(uri) as graph:
        assert len(graph.query(PEOPLE)) == 30_000
        assert graph.check().ok
