"""Hours of writers, readers, merges and upkeep, with kills: nothing grows without bound.

The long form writes what it measured to `soak.jsonl` in the folder of the run, a line a round, and
a plot of it beside that.
"""

import json
import random
import statistics
import time
from pathlib import Path

import pytest

import omnigraph as og
from omnigraph.storage.manifest import manifest
from tests import campaign, soak
from tests.forked import context
from tests.soak_plot import plot

# Rows of commits stay in the manifest, whatever is cleaned up: a few hundred bytes each.
BYTES_A_COMMIT = 1024
# A killed writer leaves files that no version names; they go once they are older than any write.
FILES_A_KILL, BYTES_A_KILL = 4, 16_384


def bounded(rounds: list[dict[str, int]], commits: list[int]) -> None:
    """Files and bytes of the last rounds are those of the first."""
    third = max(2, len(rounds) // 3)
    for name in {key for sizes in rounds for key in sizes}:
        series = [sizes.get(name, 0) for sizes in rounds]
        if name == "bytes":
            series = [size - BYTES_A_COMMIT * n for size, n in zip(series, commits, strict=True)]
        first, last = (statistics.median(part) for part in (series[:third], series[-third:]))
        slack = 200_000 if name == "bytes" else 40
        assert last <= 1.5 * first + slack, f"{name} grows: {series}"


def at_rest(uri: str) -> None:
    """Nothing of those who died is left once somebody opened the graph."""
    with og.open(uri) as graph:
        graph.cleanup(keep=1, grace=0, confirm=True)
        assert [b for b in graph.branches.list() if b.startswith("tx/")] == []
        assert {finding.code for finding in graph.check().findings} <= {"fork-orphan"}
        assert graph.snapshot().tables
    left = soak.sizes(uri)
    assert left.get("files __recovery", 0) == 0
    assert left.get("files __staged", 0) == 0


def few(left: dict[str, int], kills: int, commits: int) -> None:
    """What is left at rest follows commits and kills, at so much each, and nothing else."""
    assert left["bytes"] <= 1_000_000 + BYTES_A_COMMIT * commits + BYTES_A_KILL * kills
    assert left["files _schemas"] <= 2, "one commit is kept"
    assert left["files __locks"] <= 20
    assert left["files _graph_commit_recoveries.lance"] <= 100
    assert left["files"] <= 200 + FILES_A_KILL * kills
    assert left["files __manifest"] <= 100


def test_a_short_soak_grows_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manifest, "RECLAIM_AGE_S", 0.0)  # nobody else looks at these versions
    uri = str(tmp_path / "graph.omni")
    soak.create(uri)
    rounds, commits = [], []
    with og.open(uri) as graph:
        soaking = soak.Soaking(graph, random.randrange(2**32))
        for _ in range(6):
            soaking.go_on(8)
            soak.upkeep(graph)
            rounds.append(soak.sizes(uri))
            commits.append(len(graph.commits.list()))
    bounded(rounds, commits)
    at_rest(uri)


@pytest.mark.slow
def test_a_soak_of_an_hour_grows_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Versions younger than this stay for those who look at them, so a short run needs less.
    monkeypatch.setattr(manifest, "RECLAIM_AGE_S", min(120.0, campaign.seconds(3600) / 20))
    uri = str(tmp_path / "graph.omni")
    soak.create(uri)
    chance = random.Random()
    rounds, commits, lines, kills = [], [], [], 0

    def start() -> object:
        process = context().Process(target=soak.work, args=(uri, chance.randrange(2**32)))
        process.daemon = True
        process.start()
        return process

    crowd = [start() for _ in range(2)]
    deadline = time.monotonic() + campaign.seconds(3600)
    with og.open(uri) as graph:
        soaking = soak.Soaking(graph, 0)
        try:
            while time.monotonic() < deadline:
                soaking.times.clear()
                soaking.go_on(10)
                number = chance.randrange(len(crowd))
                crowd[number].kill()  # type: ignore[attr-defined]
                crowd[number].join()  # type: ignore[attr-defined]
                soak.bury(graph, crowd[number].pid)  # type: ignore[attr-defined]
                crowd[number] = start()
                kills += 1
                soak.upkeep(graph)
                rounds.append(soak.sizes(uri))
                commits.append(len(graph.commits.list()))
                rounds[-1]["branches"] = len(graph.branches.list())
                line = {**rounds[-1], "commits": commits[-1], **soak.latency(soaking.times)}
                line["seconds"] = round(time.monotonic() - deadline + campaign.seconds(3600))
                lines.append(json.dumps(line))
        finally:
            for process in crowd:
                process.kill()  # type: ignore[attr-defined]
                process.join()  # type: ignore[attr-defined]
    (tmp_path / "soak.jsonl").write_text("\n".join(lines))
    (tmp_path / "soak.svg").write_text(plot([json.loads(line) for line in lines]))
    print(f"{kills} kills, {commits[-1]} commits, {len(rounds)} rounds")  # noqa: T201
    print(lines[len(lines) // 3], lines[-1], sep="\n")  # noqa: T201
    monkeypatch.setattr(manifest, "RECLAIM_AGE_S", 0.0)  # nobody is left who looks at versions
    at_rest(uri)
    left = soak.sizes(uri)
    print(json.dumps(left))  # noqa: T201
    few(left, kills, commits[-1])
