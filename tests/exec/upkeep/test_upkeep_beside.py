"""Upkeep beside writers and readers in other processes: nothing is lost, no reader fails."""

import time
from pathlib import Path

import pytest

import omnigraph as og
from omnigraph.graph import Graph
from omnigraph.storage import failpoints
from omnigraph.storage.manifest import manifest
from tests.exec.upkeep_child import RECLAIM_AGE_S, read_on, write_on
from tests.exec.upkeep_world import PERSON, content, made
from tests.forked import context

GRACE_S = 5
"""Longer than any read here takes."""


def test_upkeep_beside_writers_and_readers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manifest, "RECLAIM_AGE_S", RECLAIM_AGE_S)
    graph = made(tmp_path / "g", 3, each=20, fold=True)
    logs = {name: tmp_path / f"{name}.log" for name in ("w0", "w1", "r0", "r1")}
    stop = context().Event()
    work = {"w": write_on, "r": read_on}
    children = [
        context().Process(target=work[name[0]], args=(graph.uri, str(log), name, stop))
        for name, log in logs.items()
    ]
    for child in children:
        child.start()
    optimized, reclaimed = look_after(graph)
    stop.set()
    for child in children:
        child.join(60)
        assert child.exitcode == 0, f"{child.name} failed"
    assert optimized >= 2
    assert reclaimed >= 10
    acknowledged = {
        line for name in ("w0", "w1") for line in logs[name].read_text().splitlines() if line
    }
    assert len(acknowledged) > 10
    there = {row["name"] for row in content(graph)[PERSON]}
    assert acknowledged <= there, "a write was lost"
    reads = [line for name in ("r0", "r1") for line in logs[name].read_text().splitlines()]
    assert len(reads) > 10
    assert [line for line in reads if not line.isdigit()] == []
    assert graph.check().findings == ()


def look_after(graph: Graph) -> tuple[int, int]:
    """Optimize, clean up and repair until all of them had something to do."""
    optimized = reclaimed = 0
    end = time.monotonic() + 240
    while time.monotonic() < end and (optimized < 2 or reclaimed < 10):
        optimized += graph.optimize().commit_id is not None
        report = graph.cleanup(keep=1, grace=GRACE_S, confirm=True)
        assert report.errors == ()
        reclaimed += sum(table.versions for table in report.tables)
        repaired = graph.repair(confirm=True)
        assert {table.classification for table in repaired.tables} == {"none"}
        time.sleep(0.5)
    return optimized, reclaimed


def test_h1_optimize_begins_again_when_a_schema_change_deletes_what_it_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = made(tmp_path / "g", 3, each=20)
    other = og.open(graph.uri)
    lost: list[str] = []

    def hit(name: str) -> None:
        if name == "upkeep.task" and not lost:
            lost.append(name)
            narrower = graph.schema.text.replace("bio: String? @index", "")
            assert narrower != graph.schema.text
            other.schema.apply(narrower, allow_data_loss=True)

    monkeypatch.setattr(failpoints, "hit", hit)
    report = graph.optimize()
    assert lost
    assert report.commit_id is not None
    assert len(content(graph)[PERSON]) == 60
    assert graph.check().findings == ()
