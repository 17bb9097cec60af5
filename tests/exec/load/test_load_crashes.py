"""A load that is killed leaves the graph before it or after it, and the next one works."""

from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph.exec.load import finish
from omnigraph.storage import failpoints
from tests.exec.bulk import contents, edge, lines, new_graph, person
from tests.forked import KILLED, run

SOURCES = {
    "append": lines(person("Cy"), edge("Knows", "Cy", "Ada", id="c")),
    "merge": lines(person("Ada", age=1), person("Cy"), edge("Knows", "Ada", "Cy", id="k")),
    "patch": lines(person("Ada", age=1), person("Cy", score=0.5), person("Cy", age=2)),
    "overwrite": lines(person("Ada"), person("Zoe"), edge("Knows", "Zoe", "Zoe", id="z")),
}
STAGES = ("_check", "_stage")


def load_and_die(uri: str, mode: str, place: str, nth: int) -> None:
    """Load, killed at a failpoint or before a stage of the load."""
    graph = og.open(uri)
    if place in STAGES:
        _die_before(place)
    else:
        failpoints.arm(place, "kill", nth)
    graph.load(SOURCES[mode], mode)


def _die_before(stage: str) -> None:
    failpoints.arm("commit.locked", "kill")

    def dying(*_: Any) -> None:
        failpoints.hit("commit.locked")

    setattr(finish.Finish, stage, dying)


# The protocol has no modes, so the other two are stopped only where they differ.
PLACES = [
    *(("append", place) for place in failpoints.COMMIT),
    *((mode, "_stage") for mode in SOURCES),
    ("append", "_check"),
    ("merge", "commit.table_after"),
    ("merge", "publish.before"),
    ("patch", "commit.table_after"),
    ("patch", "publish.before"),
    ("overwrite", "commit.table_after"),
    ("overwrite", "publish.before"),
]


@pytest.mark.parametrize(("mode", "place"), PLACES)
def test_LD6_a_killed_load_is_whole_or_not_there(tmp_path: Path, mode: str, place: str) -> None:
    graph = new_graph(tmp_path)
    graph.load(lines(person("Ada"), person("Bob"), edge("Knows", "Ada", "Ada", id="k")), "append")
    before = contents(graph)
    graph.branches.create("after")
    graph.load(SOURCES[mode], mode, branch="after")
    after = contents(graph, "after")
    graph.close()

    assert run(load_and_die, graph.uri, mode, place, 1) == KILLED

    found = contents(og.open(graph.uri))
    assert found in (before, after)
    if place in STAGES or place in ("commit.locked", "commit.checked", "sidecar.put"):
        assert found == before
    again = og.open(graph.uri)
    again.load(SOURCES[mode], "merge" if mode == "append" else mode)
    assert contents(again) == after
    assert not again._store.sidecars.pending()
