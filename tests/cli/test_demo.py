"""The demo does what it says, and leaves a graph behind."""

import subprocess
import sys
from pathlib import Path

import pytest

from omnigraph.cli import demo, demo_data
from omnigraph.cli.app import main
from tests.cli import warm
from tests.cli.program import PROGRAM, document, run


def walked(shown: list[str]) -> None:
    assert [line.split(". ", 1)[1] for line in shown if line.startswith("== ")] == [
        "Some data",
        "A graph",
        "A bulk load",
        "Questions",
        "A branch: work that nobody sees yet",
        "The difference, then the merge",
        "A writer is killed half-way",
        "Back in time",
        "A history to look at",
    ]
    assert "~ node Person Ada Ash 0" in shown
    assert "main → review/hire: 2 inserted, 1 updated" in shown
    assert "merged review/hire into main: merged" in shown
    assert any("RolledBack of mutation by act-unlucky" in line for line in shown)
    assert "Ada Ash 0 | 20    | Bergen" in shown
    assert sum(line.startswith("Try: ") for line in shown) >= 6


def test_the_demo_on_a_small_graph(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "demo"
    monkeypatch.setattr(demo, "_PROGRAM", (warm.program(),))
    monkeypatch.setattr(
        sys, "argv", [*["omnigraph", "demo", "--edges", "500", "--engine", "local"], str(folder)]
    )
    with pytest.raises(SystemExit) as end:
        main()
    out, err = capfd.readouterr()
    assert end.value.code == 0, out + err
    walked(out.splitlines())
    assert "omnigraph ui graph.omni" in out.rpartition("Done in ")[2]
    (review,) = document("review", "list", "graph.omni", cwd=folder)["reviews"]
    assert (review["source"], review["state"]) == ("review/relocation", "open")
    assert "review/relocation" in document("branch", "list", "graph.omni", cwd=folder)["branches"]
    counts = document("snapshot", "graph.omni", cwd=folder)["datasets"]
    size = demo_data.size_of(500)
    entities = {one["type_name"]: one["entity_count"] for one in counts}
    assert entities["Knows"] == size.friendships
    assert entities["Person"] == size.people + 26, "two were hired, and 24 came later"
    lint = run("lint", "graph.omni", "--query", "queries.gq", cwd=folder)
    assert "0 error(s), 0 warning(s)" in lint.stdout

    again = run("demo", str(folder))
    assert again.returncode == 1
    assert "is not empty; name another folder" in again.stderr


@pytest.mark.slow
def test_the_demo_as_it_is_run_from_make(tmp_path: Path) -> None:
    done = subprocess.run(
        [*PROGRAM, "demo", str(tmp_path / "demo")], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    walked(done.stdout.splitlines())
    assert "on Spark" in done.stdout


def test_the_same_size_gives_the_same_data(tmp_path: Path) -> None:
    size = demo_data.size_of(300)
    one, other = demo_data.write(tmp_path / "a", size), demo_data.write(tmp_path / "b", size)
    assert one.read_bytes() == other.read_bytes()
