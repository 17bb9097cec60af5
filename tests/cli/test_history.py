"""The history as the command line lists it."""

from pathlib import Path

import pytest

import omnigraph as og
from omnigraph.storage import failpoints
from tests.cli.program import document, lines, run

RECOVERY = "omnigraph:recovery"
INSERT = 'query i() { insert Person { name: "Zed", role: "guest" } }'


@pytest.fixture
def recovered(people: Path) -> Path:
    """A graph whose only recovery was on a branch."""
    with og.open(people / "g.omni") as graph:
        graph.branches.create("work")
        with failpoints.armed("publish.before"), pytest.raises(og.RecoveryRequired):
            graph.mutate(INSERT, branch="work")
    with og.open(people / "g.omni") as graph:
        assert len(graph.recoveries.list()) == 1
    return people


def test_recoveries_are_listed_whatever_branch_they_were_on(recovered: Path) -> None:
    listing = ("commit", "list", "g.omni", "--filter", f"actor={RECOVERY}")
    assert document(*listing, cwd=recovered)["commits"] == []
    [commit] = document(*listing, "--all-branches", cwd=recovered)["commits"]
    assert (commit["graph_branch"], commit["actor_id"]) == ("work", RECOVERY)
    [line] = lines(*listing, "--all-branches", "--verbose", cwd=recovered)
    assert "graph_branch=work" in line
    [line] = lines(*listing, "--all-branches", cwd=recovered)
    assert f"{RECOVERY}  (work)  +1 Person" in line
    with og.open(recovered / "g.omni", read_only=True) as graph:
        [same] = graph.commits.list(actor=RECOVERY, all_branches=True)
        assert same.id == commit["graph_commit_id"]
        everything = graph.commits.list(all_branches=True)
        assert {c.id for c in everything} == {
            c.id for name in graph.branches.list() for c in graph.commits.list(name)
        }
        moments = [c.created_at for c in everything]
        assert moments == sorted(moments, reverse=True)
        assert graph.commits.list(all_branches=True, limit=1) == everything[:1]


def test_all_branches_and_one_branch_exclude_each_other(recovered: Path) -> None:
    words = ("commit", "list", "g.omni", "--branch", "work", "--all-branches")
    done = run(*words, cwd=recovered)
    assert done.returncode == 2
    assert "mutually exclusive" in done.stderr
    with (
        og.open(recovered / "g.omni", read_only=True) as graph,
        pytest.raises(og.BadRequest, match="all_branches"),
    ):
        graph.commits.list("work", all_branches=True)
