"""Drivers on Spark that are killed: the graph is as before the load, or as after it."""

import subprocess
import sys
from pathlib import Path

import pytest

import omnigraph as og
from omnigraph.costs import COSTS
from tests.exec.bulk import contents, edge, lines, new_graph, person

ROOT = Path(__file__).parents[2]
PLACES = [
    ("append", "read"),
    ("append", "check"),
    ("append", "stage"),
    ("append", "commit.sidecar_written"),
    ("append", "commit.table_after"),
    ("append", "publish.after"),
    ("merge", "stage"),
    ("merge", "commit.tables_done"),
    ("overwrite", "commit.table_after"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("mode", "place"), PLACES)
def test_LD6_a_driver_killed_in_any_stage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str, place: str
) -> None:
    graph = new_graph(tmp_path)
    graph.load(lines(person("Ada"), person("Bob")), "append", engine="local")
    before = contents(graph)
    people = [person(name, age=5) for name in ("Ada", "Bob", "Cy")]
    source = lines(
        *(people[2:] if mode == "append" else people), edge("Knows", "Cy", "Ada", id="k")
    )
    file = tmp_path / "in.jsonl"
    file.write_bytes(source)
    monkeypatch.setattr(COSTS, "upsert_rows_max", 0)
    graph.branches.create("after")
    graph.load(file, mode, branch="after", engine="local")
    after = contents(graph, "after")
    graph.close()

    command = [sys.executable, "-m", "tests.pipeline.dying", graph.uri, str(file), mode, place]
    died = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert died.returncode == -9, died.stderr[-2_000:]

    again = og.open(graph.uri)
    found = contents(again)
    assert found == (after if place in ("commit.tables_done", "publish.after") else before)
    again.load(file, "merge" if mode == "append" else mode, engine="local")
    assert contents(again) == after
    assert not again._store.sidecars.pending()
