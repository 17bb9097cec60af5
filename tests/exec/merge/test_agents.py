"""Agents in processes of their own, each on a branch that it makes, fills, merges and deletes."""

import threading
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph.exec.merge import decide as decide_module
from omnigraph.exec.merge import run
from tests.forked import context

SCHEMA = "node Fact {\n    slug: String @key\n    sure: F64?\n}\n"
REMEMBER = "query r($slug: String) { insert Fact { slug: $slug, sure: 0.5 } }"
SLUGS = "query s() { match { $f: Fact } return { $f.slug } order { $f.slug } }"
AGENTS, ROUNDS = 3, 8


def work(uri: str, agent: str) -> None:
    """The same branch again and again, while others delete theirs."""
    with og.open(uri) as graph:
        for number in range(ROUNDS):
            graph.branches.create(f"{agent}/work")
            mine = graph.branch(f"{agent}/work")
            for part in range(2):
                mine.mutate(REMEMBER, {"slug": f"{agent}-{number}-{part}"}, actor=agent)
            outcome = mine.merge_into("main", actor=agent, delete_source=True)
            assert outcome.branch_deleted, outcome.branch_delete_error


def look(uri: str, told: str, stop: str) -> None:
    """Read every branch and every commit; one that is deleted meanwhile is not there, and nothing
    worse."""
    with og.open(uri, read_only=True) as graph, open(told, "w") as log:
        while not Path(stop).exists():
            for branch in graph.branches.list():
                try:
                    graph.query(SLUGS, branch=branch)
                    commits = graph.commits.list(branch)
                    graph.commits.get(commits[0].id)
                    log.write("seen\n")
                except og.Reclaimed:  # its rows, in the middle of a read
                    if branch == "main":
                        raise
                except og.NotFound as missing:
                    if branch == "main" or missing.kind not in ("branch", "commit"):
                        raise


def test_agents_that_merge_and_delete_do_not_disturb_each_other(tmp_path: Path) -> None:
    uri, log, stop = (str(tmp_path / name) for name in ("g.omni", "log", "stop"))
    og.init(uri, schema=SCHEMA).close()
    looking = context().Process(target=look, args=(uri, log, stop))
    agents = [context().Process(target=work, args=(uri, f"a{n}")) for n in range(AGENTS)]
    for process in (looking, *agents):
        process.start()
    for process in agents:
        process.join(120)
    Path(stop).touch()
    looking.join(60)
    assert [process.exitcode for process in (looking, *agents)] == [0] * (AGENTS + 1)
    assert len(Path(log).read_text().splitlines()) > 3
    with og.open(uri) as graph:
        expected = [f"a{n}-{r}-{p}" for n in range(AGENTS) for r in range(ROUNDS) for p in range(2)]
        assert [row["f.slug"] for row in graph.query(SLUGS)] == sorted(expected)
        assert graph.branches.list() == ("main",)
        assert graph.check().findings == ()
        merges = [commit for commit in graph.commits.list() if commit.merged_parent is not None]
        assert len(merges) == AGENTS * ROUNDS


def test_a_merge_whose_target_moves_whenever_it_is_decided_is_made_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uri = tmp_path / "g.omni"
    with og.init(uri, SCHEMA) as graph:
        graph.branches.create("side")
        graph.mutate(REMEMBER, {"slug": "side"}, branch="side")
        writers: list[threading.Thread] = []
        decide = decide_module.decided

        def decided_late(*facts: Any) -> Any:
            decision = decide(*facts)
            name = {"slug": f"more{len(writers)}"}
            writers.append(threading.Thread(target=graph.mutate, args=(REMEMBER, name)))
            writers[-1].start()
            writers[-1].join(1)  # it waits for a merge that keeps the branch where it is
            return decision

        monkeypatch.setattr(run, "decided", decided_late)
        graph.branches.merge("side")
        for writer in writers:
            writer.join(60)
        assert len(writers) <= 3
        names = {row["f.slug"] for row in graph.query(SLUGS).rows}
        assert names == {"side", *(f"more{number}" for number in range(len(writers)))}
