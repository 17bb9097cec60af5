"""Cleanup keeps what somebody needs, and says of each commit why."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph.exec.upkeep.cleanup import CleanupReport
from omnigraph.graph import Graph
from omnigraph.storage.manifest import manifest
from tests.exec.upkeep_world import add, content, made


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody counts versions here, so that cleanup need not wait."""
    monkeypatch.setattr(manifest, "RECLAIM_AGE_S", 0.0)


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[Graph]:
    with made(tmp_path / "g", 5, each=4) as graph:
        yield graph


def cleaned(graph: Graph, **policy: Any) -> CleanupReport:
    report = graph.cleanup(**{"keep": 1, "grace": 0, "confirm": True, **policy})
    assert report.errors == ()
    return report


def reasons(report: CleanupReport) -> dict[str, list[str]]:
    return {each.commit.id: list(map(str, each.reasons)) for each in report.kept}


def test_a_preview_gives_the_reasons_of_every_commit_that_stays(graph: Graph) -> None:
    commits = [commit.id for commit in graph.commits.list()]
    preview = graph.cleanup(keep=2, grace=0)
    assert reasons(preview) == {
        commits[0]: ["head of main", "among the newest of main"],
        commits[1]: ["among the newest of main"],
    }
    assert preview.commits_kept == 2
    assert [each.commit.id for each in preview.kept] == commits[:2], "newest first"
    assert cleaned(graph, keep=2).kept == preview.kept
    for kept in preview.kept:
        graph.snapshot(commit=kept.commit.id)


def test_the_part_of_the_policy_that_keeps_a_commit_is_named(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    second = graph.commits.list()[1].id
    assert reasons(graph.cleanup(older_than="1h"))[second] == ["younger than asked for on main"]
    assert reasons(graph.cleanup(keep=1))[second] == ["within the grace of readers on main"]
    monkeypatch.setattr(manifest, "RECLAIM_AGE_S", 120.0)
    assert reasons(graph.cleanup(keep=1, grace=0))[second] == ["just replaced on main"]


def test_a_branch_point_stays_whole(graph: Graph) -> None:
    graph.branches.create("side")
    point = graph.snapshot().commit_id
    seen = content(graph)
    graph.branches.create("deep", "side")  # forks where `side` has no commit of its own
    add(graph, 100, 104)
    add(graph, 110, 114, branch="side")
    add(graph, 115, 119, branch="side")
    add(graph, 120, 124, branch="deep")
    graph.branches.merge("main", into="side")  # the merge base is later than the branch point
    graph.optimize()
    report = cleaned(graph)
    assert {"branch point of side", "branch point of deep"} <= set(reasons(report)[point])
    with og.open(graph.uri) as again:
        assert content(again, commit=point) == seen
        assert again.check().ok


def test_a_tagged_commit_stays_whole_until_its_tag_goes(graph: Graph) -> None:
    graph.branches.create("side")
    tagged = add(graph, 100, 104, branch="side")
    add(graph, 104, 108, branch="side")
    first = graph.commits.list()[2].id
    graph.tags.create("release/1", tagged)
    graph.tags.create("first", first)
    seen = {id_: content(graph, commit=id_) for id_ in (tagged, first)}
    graph.optimize()
    kept = reasons(cleaned(graph))
    assert (kept[tagged], kept[first]) == (["tag release/1"], ["tag first"])
    with og.open(graph.uri) as again:
        for id_, then in seen.items():
            assert content(again, commit=id_) == then
        assert again.check().ok
        again.tags.delete("first")
        assert first not in reasons(cleaned(again))
        with pytest.raises(og.Reclaimed):
            again.snapshot(commit=first)


def test_a_merge_base_stays_while_both_branches_live(graph: Graph) -> None:
    graph.branches.create("side")
    add(graph, 100, 104, branch="side")
    graph.branches.merge("side")
    base = graph.snapshot().commit_id
    add(graph, 110, 114, branch="side")
    add(graph, 120, 124)
    add(graph, 130, 134)
    report = cleaned(graph)
    bases = [id_ for id_, why in reasons(report).items() if "merge base of main and side" in why]
    assert len(bases) == 1
    graph.snapshot(commit=bases[0])
    with og.open(graph.uri) as again:
        again.branches.merge("side", delete_source=True)
        assert len(content(again)["node:Person"]) == 20 + 4 * 4
        assert base not in reasons(cleaned(again)), "nobody merges from it any more"


def test_a_registered_consumer_keeps_what_it_has_not_read(graph: Graph) -> None:
    graph.changes.register("mirror", max_lag_commits=10)
    reached = graph.snapshot().commit_id
    written = [add(graph, 100 + n, 101 + n) for n in range(4)]
    report = cleaned(graph)
    assert all("feed consumer mirror" in reasons(report)[each] for each in (reached, *written))
    page = graph.changes.poll(consumer="mirror")
    assert [block.cause.id for block in page.blocks] == written
    assert page.cursor is not None
    graph.changes.ack("mirror", page.cursor)
    assert list(reasons(cleaned(graph))) == [written[-1]]


def test_what_is_listed_as_kept_is_what_can_be_read(graph: Graph) -> None:
    graph.branches.create("side")
    add(graph, 100, 104)
    add(graph, 110, 114, branch="side")
    graph.branches.create("other", "side")
    add(graph, 120, 124, branch="other")
    graph.branches.merge("side")
    add(graph, 130, 134, branch="side")
    add(graph, 140, 144)
    states = {c.id: content(graph, commit=c.id) for c in graph.commits.list(all_branches=True)}
    kept = reasons(cleaned(graph))
    with og.open(graph.uri) as again:
        for commit, seen in states.items():
            if commit in kept:
                assert content(again, commit=commit) == seen, kept[commit]
            else:
                with pytest.raises(og.Reclaimed) as gone:
                    again.snapshot(commit=commit)
                assert gone.value.oldest in kept


def test_a_branch_made_at_a_tag_can_be_merged_after_a_cleanup(graph: Graph) -> None:
    graph.branches.create("side")
    add(graph, 100, 104, branch="side")
    add(graph, 110, 114)
    graph.branches.merge("main", into="side")
    graph.tags.create("release", "side")
    add(graph, 120, 124)
    graph.branches.merge("main", into="side")
    add(graph, 130, 134)
    cleaned(graph)
    with og.open(graph.uri) as again:
        again.branches.create("fix", "release")
        add(again, 140, 144, branch="fix")
        again.branches.merge("fix")
        assert len(content(again)["node:Person"]) == 20 + 5 * 4
        assert again.check().ok
