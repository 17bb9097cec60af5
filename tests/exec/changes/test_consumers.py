"""Registered feed consumers: at least once, within their lag, and told when they lost."""

import json
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

import omnigraph as og
from omnigraph.graph import Graph
from omnigraph.storage.manifest import manifest
from omnigraph.storage.manifest.feed_claims import FOLDER, FeedClaim
from tests.exec.upkeep_world import SCHEMA, add, content, made
from tests.storage.conftest import s3, s3_server
from tests.storage.world import Where

__all__ = ["s3", "s3_server"]


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody counts versions here, so that cleanup need not wait."""
    monkeypatch.setattr(manifest, "RECLAIM_AGE_S", 0.0)


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[Graph]:
    with made(tmp_path / "g", 3, each=4) as graph:
        yield graph


def clean(graph: Graph) -> None:
    assert graph.cleanup(keep=1, grace=0, confirm=True).errors == ()


def delivered(graph: Graph, name: str) -> tuple[list[str], str]:
    page = graph.changes.poll(consumer=name)
    assert page.cursor is not None
    return [block.cause.id for block in page.blocks], page.cursor


def test_what_is_not_acknowledged_comes_again(graph: Graph) -> None:
    registered = graph.changes.register("mirror", max_lag="7d")
    assert (registered.state, registered.behind_commits) == ("active", 0)
    assert delivered(graph, "mirror")[0] == []
    first, second = add(graph, 100, 104), add(graph, 110, 114)
    with og.open(graph.uri, read_only=True) as elsewhere:
        assert delivered(elsewhere, "mirror")[0] == [first, second]
        assert elsewhere.changes.consumers()[0].behind_commits == 2
    ids, cursor = delivered(graph, "mirror")
    assert ids == [first, second], "nothing was acknowledged"
    assert graph.changes.ack("mirror", cursor).acknowledged == second
    assert graph.changes.ack("mirror", cursor).acknowledged == second, "twice is once"
    assert delivered(graph, "mirror")[0] == []


def test_a_consumer_may_begin_in_the_past_with_filters_of_its_own(graph: Graph) -> None:
    start = graph.commits.list()[1].id
    graph.changes.register(
        "edges", max_lag_commits=5, start=f"after:{start}", kinds=["edge"], ops=["insert"]
    )
    graph.changes.register("all", max_lag_commits=5, start="beginning")
    page = graph.changes.poll(consumer="edges")
    assert {change.kind for block in page.blocks for change in block.changes} == {"edge"}
    assert len(page.blocks) == 1
    assert len(graph.changes.poll(consumer="all").blocks) == 3
    assert [consumer.name for consumer in graph.changes.consumers()] == ["all", "edges"]


def test_pages_of_a_consumers_poll_go_on(graph: Graph) -> None:
    graph.changes.register("all", max_lag_commits=9, start="beginning")
    page = graph.changes.poll(consumer="all", limit=5)
    seen = [change.id for block in page.blocks for change in block.changes]
    while page.next_page_token is not None:
        page = graph.changes.poll(consumer="all", limit=5, page_token=page.next_page_token)
        seen += [change.id for block in page.blocks for change in block.changes]
    assert len(seen) == len(set(seen)) == 24
    assert page.cursor is not None
    graph.changes.ack("all", page.cursor)


def test_a_consumer_past_its_lag_is_told_what_it_lost_and_begins_again(graph: Graph) -> None:
    graph.changes.register("mirror", max_lag_commits=2)
    before = graph.snapshot().commit_id
    written = [add(graph, 100 + n, 101 + n) for n in range(3)]
    assert graph.changes.consumers()[0].state == "late"
    assert len(graph.changes.poll(consumer="mirror").blocks) == 3, "nothing is lost yet"
    early = graph.changes.poll(consumer="mirror", commits=1).cursor
    assert early is not None
    preview = graph.cleanup(keep=1, grace=0)
    assert [consumer.name for consumer in preview.consumers_lapsed] == ["mirror"]
    assert graph.changes.consumers()[0].state == "late", "a preview changes nothing"
    clean(graph)
    assert graph.changes.consumers()[0].state == "lapsed"
    with og.open(graph.uri) as again:
        with pytest.raises(og.ConsumerLapsed) as lapsed:
            again.changes.poll(consumer="mirror")
        gone = lapsed.value
        assert (gone.consumer, gone.acknowledged, gone.lost_commits) == ("mirror", before, 3)
        assert gone.first_unreadable_commit_id == written[0]
        assert gone.oldest == written[-1]
        assert isinstance(gone, og.ChangeFeedGap)
        assert "baseline" in str(gone)
        with pytest.raises(og.Reclaimed):
            again.changes.ack("mirror", early)
        baseline = again.changes.baseline(consumer="mirror")
        assert len(list(baseline)) == 2 * len(content(again)["node:Person"])
        assert again.changes.ack("mirror", baseline.cursor).state == "active"
        after = add(again, 200, 204)
        clean(again)
        assert delivered(again, "mirror")[0] == [after]


def test_a_late_consumer_that_loses_nothing_keeps_its_claim(graph: Graph) -> None:
    graph.changes.register("mirror", max_lag_commits=1)
    written = [add(graph, 100 + n, 101 + n) for n in range(2)]
    report = graph.cleanup(keep=5, grace=0, confirm=True)
    assert report.consumers_lapsed == ()
    assert delivered(graph, "mirror")[0] == written


def test_a_lag_is_also_a_time(graph: Graph) -> None:
    graph.changes.register("slow", max_lag=timedelta(0))
    graph.changes.register("patient", max_lag="1h", max_lag_commits=100)
    add(graph, 100, 104)
    time.sleep(1.1)
    assert {c.name: c.state for c in graph.changes.consumers()} == {
        "slow": "late",
        "patient": "active",
    }


def test_an_acknowledgement_only_moves_forward(graph: Graph) -> None:
    graph.changes.register("mirror", max_lag_commits=9, start="beginning")
    early = graph.changes.poll(consumer="mirror", commits=1).cursor
    late = graph.changes.poll(consumer="mirror").cursor
    assert early is not None
    assert late is not None
    graph.changes.ack("mirror", late)
    with pytest.raises(og.BadRequest, match="later commit"):
        graph.changes.ack("mirror", early)
    other = graph.changes.poll(types=["Person"]).cursor
    with pytest.raises(og.BadRequest, match="filter"):
        graph.changes.ack("mirror", other or "")


def test_registering_is_refused_where_it_makes_no_sense(graph: Graph) -> None:
    with pytest.raises(og.BadRequest, match="largest lag"):
        graph.changes.register("mirror")
    with pytest.raises(og.BadRequest, match="at least 1"):
        graph.changes.register("mirror", max_lag_commits=0)
    with pytest.raises(og.BadRequest, match="needs a name"):
        graph.changes.register("  ", max_lag_commits=1)
    with pytest.raises(og.NotFound, match="branch 'none'"):
        graph.changes.register("mirror", "none", max_lag_commits=1)
    with pytest.raises(og.NotFound):
        graph.changes.register("mirror", max_lag_commits=1, start="after:01M0000000000000000000000")
    graph.changes.register("mirror", max_lag_commits=1)
    with pytest.raises(og.AlreadyExists, match="feed consumer 'mirror'"):
        graph.changes.register("mirror", max_lag_commits=1)
    with pytest.raises(og.NotFound, match="there is 'mirror'"):
        graph.changes.poll(consumer="miror")
    with pytest.raises(og.BadRequest, match="its own branch"):
        graph.changes.poll(consumer="mirror", kinds=["node"])
    with og.open(graph.uri, read_only=True) as reader:
        with pytest.raises(og.BadRequest, match="read-only"):
            reader.changes.register("other", max_lag_commits=1)
        with pytest.raises(og.BadRequest, match="read-only"):
            reader.changes.unregister("mirror")
    graph.changes.unregister("mirror")
    assert graph.changes.consumers() == ()


def test_a_commit_that_is_gone_cannot_be_begun_at(graph: Graph) -> None:
    first = graph.commits.list()[-1].id
    clean(graph)
    with pytest.raises(og.Reclaimed):
        graph.changes.register("late", max_lag_commits=9, start="beginning")
    with pytest.raises(og.Reclaimed):
        graph.changes.register("late", max_lag_commits=9, start=f"after:{first}")


def test_a_consumer_of_a_deleted_branch_says_so_and_holds_nothing_up(graph: Graph) -> None:
    graph.branches.create("side")
    graph.changes.register("mirror", "side", max_lag_commits=9)
    add(graph, 100, 104, branch="side")
    graph.branches.delete("side")
    assert graph.changes.consumers()[0].state == "branch gone"
    clean(graph)
    with pytest.raises(og.NotFound, match="branch 'side'"):
        graph.changes.poll(consumer="mirror")
    graph.branches.create("side")
    with pytest.raises(og.NotFound, match="made again"):
        graph.changes.poll(consumer="mirror")


def test_a_claim_is_a_small_file_of_its_own(graph: Graph) -> None:
    graph.changes.register("läuft/1", max_lag_commits=3)
    (path,) = (Path(graph.uri) / FOLDER).iterdir()
    stored = json.loads(path.read_text())
    assert (stored["format"], stored["name"], stored["commit"]) == (
        1,
        "läuft/1",
        graph.snapshot().commit_id,
    )
    path.write_text("{")
    with pytest.raises(og.StorageFailed, match="feed consumer"):
        graph.changes.consumers()
    with pytest.raises(og.StorageFailed):
        graph.cleanup(keep=1, grace=0, confirm=True)


def test_of_two_that_change_a_claim_at_once_one_decides_again(graph: Graph) -> None:
    graph.changes.register("mirror", max_lag_commits=3)
    claims, seen = graph._store.feed_claims, []

    def decide(claim: FeedClaim) -> FeedClaim:
        seen.append(claim.max_commits)
        if len(seen) == 1:
            claims.change("mirror", lambda now: _with_lag(now, 7))
        return _with_lag(claim, (claim.max_commits or 0) + 1)

    assert claims.change("mirror", decide).max_commits == 8
    assert seen == [3, 7]


def _with_lag(claim: FeedClaim, commits: int) -> FeedClaim:
    return replace(claim, max_commits=commits)


def test_consumers_on_s3(s3: Where) -> None:
    with og.init(s3.uri, SCHEMA, storage_options=s3.options) as graph:
        graph.changes.register("mirror", max_lag_commits=2)
        with pytest.raises(og.AlreadyExists):
            graph.changes.register("mirror", max_lag_commits=2)
        first = add(graph, 0, 2)
        ids, cursor = delivered(graph, "mirror")
        assert ids == [first]
        graph.changes.ack("mirror", cursor)
        seen: list[int | None] = []

        def decide(claim: FeedClaim) -> FeedClaim:
            seen.append(claim.max_commits)
            if len(seen) == 1:
                graph._store.feed_claims.change("mirror", lambda now: _with_lag(now, 1))
            return _with_lag(claim, (claim.max_commits or 0) + 1)

        assert graph._store.feed_claims.change("mirror", decide).max_commits == 2
        assert seen == [2, 1]
        for number in range(3):
            add(graph, 10 + number, 11 + number)
        clean(graph)
        with pytest.raises(og.ConsumerLapsed):
            graph.changes.poll(consumer="mirror")
        graph.changes.unregister("mirror")
