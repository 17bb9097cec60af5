"""Jobs over HTTP: started once, listed, shown, awaited and cancelled by the client."""

from pathlib import Path

import pytest

import omnigraph as og
from omnigraph.remote.remote_graph import RemoteGraph
from omnigraph.remote.served_jobs import ServedJob
from omnigraph.server.job_addresses import checked_base
from tests.server.world import new_graph, served

LINE = '{"type":"Person","data":{"name":"Joy"}}\n'


def test_RC1_a_client_starts_jobs_and_waits_for_them(tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text(LINE)
    base = (checked_base(str(tmp_path)),)
    with (
        served(new_graph(tmp_path), job_sources=base, job_targets=base) as server,
        og.connect(server.url) as graph,
    ):
        assert isinstance(graph, RemoteGraph)
        assert graph.jobs.list() == ()
        members = {"source": str(tmp_path / "in.jsonl"), "message": "joy"}
        begun = graph.jobs.start("load", members, once="joy")
        done = graph.jobs.wait(begun.id)
        assert (done.state, done.kind, done.rows) == ("done", "load", 1)
        assert done.has_ended
        assert done.result is not None
        assert done.result["total_entities"] == 1
        assert graph.jobs.start("load", members, once="joy").id == begun.id
        assert server.names() == ["Ada", "Bob", "Joy"]
        assert graph.jobs.list() == (done,)
        assert graph.jobs.cancel(done.id) == done

        lost = graph.jobs.wait(graph.jobs.start("merge", {"source": "nowhere"}).id)
        assert lost.state == "failed"
        assert lost.error is not None
        assert "nowhere" in lost.error["error"]
        assert {job.id for job in graph.jobs.list()} == {done.id, lost.id}


def test_a_wait_ends_after_its_time_and_a_queued_job_is_cancelled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with served(new_graph(tmp_path)) as server, og.connect(server.url) as graph:
        assert isinstance(graph, RemoteGraph)
        monkeypatch.setattr(server.app.jobs, "_run", lambda *_: None)
        begun: ServedJob = graph.jobs.start("optimize")
        assert not graph.jobs.wait(begun.id, timeout=0).has_ended
        assert graph.jobs.cancel(begun.id).cancel_requested


def test_jobs_that_are_not_there_or_not_allowed_are_errors_of_the_library(tmp_path: Path) -> None:
    with served(new_graph(tmp_path)) as server:
        with og.connect(server.url) as graph:
            assert isinstance(graph, RemoteGraph)
            for name in ("nope", "", "..", "a/b"):
                with pytest.raises(og.NotFound):
                    graph.jobs.show(name)
                with pytest.raises(og.NotFound):
                    graph.jobs.cancel(name)
            with pytest.raises(og.BadRequest, match="is no kind of job"):
                graph.jobs.start("zzz")
            with pytest.raises(og.BadRequest, match="below no base"):
                graph.jobs.start("load", {"source": "/etc/passwd"})
        with og.connect(server.url, read_only=True) as graph:
            assert isinstance(graph, RemoteGraph)
            with pytest.raises(og.BadRequest, match="read-only"):
                graph.jobs.start("optimize")
