"""Jobs: long work in the background, its state in storage, cancellation and what a crash leaves."""

import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from omnigraph.server import job_records, wire_jobs
from omnigraph.server.job_addresses import checked_base, require_below
from omnigraph.server.job_records import JobRecords, new_record, now_us
from omnigraph.server.serve_settings import Access
from tests.server.process import ServerProcess, until
from tests.server.world import ADD, NAMES, TOKENS, Served, checked, new_graph, refused, served

LINE = '{"type":"Person","data":{"name":"%s"}}\n'
OVER = frozenset({"done", "failed", "cancelled", "interrupted"})


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("files")


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory, files: Path) -> Iterator[Served]:
    base = (checked_base(str(files)),)
    graph = new_graph(tmp_path_factory.mktemp("jobs"))
    with served(graph, job_sources=base, job_targets=base) as running:
        yield running


def ended(server: Served, job: str) -> Any:
    """The job, once it is over."""
    deadline = time.monotonic() + 60
    while True:
        document = checked(server.get(f"/jobs/{job}"), wire_jobs.JobOutput)
        if document["state"] in OVER:
            return document
        assert time.monotonic() < deadline, document
        time.sleep(0.02)


def begun(server: Served, **request: Any) -> str:
    return str(server.answer("/jobs", request, wire_jobs.JobOutput)["id"])


def test_SV11_a_load_and_an_export_run_in_the_background(desk: Served, files: Path) -> None:
    (files / "in.jsonl").write_text(LINE % "Joy")
    done = ended(desk, begun(desk, kind="load", source=str(files / "in.jsonl"), message="more"))
    assert done["state"] == "done", done
    assert done["rows"] == 1
    assert done["result"]["nodes"] == [{"name": "Person", "entities_loaded": 1}]
    assert desk.graph.commits.get("main").message == "more"
    assert "Joy" in desk.names()
    out = files / "out.jsonl"
    done = ended(desk, begun(desk, kind="export", target=str(out), types=["Person"]))
    assert done["result"]["nodes"] == {"Person": 3}
    assert len(out.read_text().splitlines()) == 3
    listed = checked(desk.get("/jobs"), wire_jobs.JobList)["jobs"]
    assert [job["kind"] for job in listed[:2]] == ["export", "load"]
    metrics = desk.client.get("/metrics").text
    assert 'omnigraph_jobs_total{kind="load",state="done"} 1' in metrics


def test_SV11_merges_and_upkeep_are_jobs_too(desk: Served) -> None:
    desk.graph.branches.create("side")
    desk.graph.mutate(ADD, {"n": "Sid"}, branch="side")
    done = ended(desk, begun(desk, kind="merge", source="side", delete_branch=True))
    assert done["result"]["branch_deleted"] is True
    assert "Sid" in desk.names()
    done = ended(desk, begun(desk, kind="optimize"))
    assert done["state"] == "done", done
    assert "uri" not in done["result"]
    done = ended(desk, begun(desk, kind="cleanup", keep=1))
    assert done["result"]["confirm"] is False


def test_SV11_records_get_vectors_in_the_background(
    desk: Served, files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMNIGRAPH_EMBED_PROVIDER", "mock")
    (files / "texts.jsonl").write_text('{"type":"Note","data":{"text":"hello"}}\n')
    spec = {"dimension": 4, "types": {"Note": {"target": "vector", "fields": ["text"]}}}
    request = {"kind": "embed", "source": str(files / "texts.jsonl"), "spec": spec}
    done = ended(desk, begun(desk, **request, target=str(files / "vectors.jsonl")))
    assert done["result"]["embedded_records"] == 1, done
    record = json.loads((files / "vectors.jsonl").read_text())
    assert len(record["data"]["vector"]) == 4
    for wrong in ({}, {"target": "/elsewhere"}, {"target": str(files / "x"), "spec": {}}):
        refused(desk.post("/jobs", {**request, **wrong}), 400, "bad_request")


def test_SV11_a_job_that_fails_says_why_as_a_request_would(desk: Served, files: Path) -> None:
    (files / "bad.jsonl").write_text('{"type":"Nobody","data":{}}\n')
    done = ended(desk, begun(desk, kind="load", source=str(files / "bad.jsonl")))
    assert done["state"] == "failed"
    assert done["error"]["status"] in (400, 404)
    assert "Nobody" in done["error"]["error"]
    done = ended(desk, begun(desk, kind="merge", source="nowhere"))
    assert (done["error"]["status"], done["error"]["code"]) == (404, "not_found")


def test_SV11_what_cannot_begin_is_refused_at_once(desk: Served, files: Path) -> None:
    for request in (
        {"kind": "bake"},
        {"kind": "load"},
        {"kind": "export"},
        {"kind": "cleanup"},
        {"kind": "load", "source": "/etc/passwd"},
        {"kind": "load", "source": f"{files}/../x.jsonl"},
        {"kind": "export", "target": "s3://bucket/x.jsonl"},
        {"kind": "optimize", "metadata": {"omnigraph:request": "x"}},
    ):
        refused(desk.post("/jobs", request), 400, "bad_request")
    refused(desk.get("/jobs/nothing"), 404, "not_found")
    refused(desk.get("/jobs/..%2F..%2F_schema.pg"), 404, "not_found")
    refused(desk.client.delete(f"{desk.base}/jobs/nothing"), 404, "not_found")


def test_SV11_a_key_starts_a_job_once(desk: Served) -> None:
    key = {"Idempotency-Key": "job-1"}
    first = desk.post("/jobs", {"kind": "optimize"}, headers=key)
    done = ended(desk, first.json()["id"])
    again = desk.post("/jobs", {"kind": "optimize"}, headers=key)
    assert again.headers["idempotent-replay"] == "true"
    assert checked(again, wire_jobs.JobOutput) == done
    refused(desk.post("/jobs", {"kind": "cleanup", "keep": 3}, headers=key), 422, None)


def test_SV11_a_job_that_is_cancelled_writes_nothing(
    desk: Served, files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (files / "slow.jsonl").write_text(LINE % "Slow")
    inside, leave = threading.Event(), threading.Event()
    load = desk.graph.load

    def slow(*args: Any, progress: Any, **options: Any) -> Any:
        inside.set()
        assert leave.wait(30)
        return load(*args, progress=progress, **options)

    monkeypatch.setattr(desk.graph, "load", slow)
    job = begun(desk, kind="load", source=str(files / "slow.jsonl"))
    assert inside.wait(30)
    asked = checked(desk.client.delete(f"{desk.base}/jobs/{job}"), wire_jobs.JobOutput)
    assert asked["cancel_requested"] is True
    leave.set()
    assert ended(desk, job)["state"] == "cancelled"
    assert "Slow" not in desk.names()
    still = checked(desk.client.delete(f"{desk.base}/jobs/{job}"), wire_jobs.JobOutput)
    assert still["state"] == "cancelled"


def test_SV11_a_record_that_nobody_works_at_is_settled_by_its_reader(
    desk: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = JobRecords(desk.graph)

    def left(job: str, state: str) -> None:
        shown = wire_jobs.JobOutput(
            id=job, kind="load", state=state, actor_id=None, created_at=now_us()
        )
        request = wire_jobs.JobRequest(kind="load", source="/x")
        records.create(new_record(shown, request, f"job:{job}"))

    left("A1", "running")
    assert records.get("A1").shown.state == "running"
    monkeypatch.setattr(job_records, "UNSEEN_S", -1.0)
    assert ended(desk, "A1")["state"] == "interrupted"
    monkeypatch.undo()
    assert ended(desk, "A1")["state"] == "interrupted", "it is stored"
    left("A2", "running")
    done = desk.graph.mutate(ADD, {"n": "Marked"}, once="job:A2").commit
    assert done is not None
    monkeypatch.setattr(job_records, "UNSEEN_S", -1.0)
    settled = ended(desk, "A2")
    assert settled["state"] == "done"
    assert settled["result"]["commit"]["graph_commit_id"] == done.id


def test_SV11_without_the_right_a_job_is_forbidden(tmp_path: Path) -> None:
    with served(new_graph(tmp_path), access=Access.READ_ONLY) as server:
        headers = {"Authorization": f"Bearer {TOKENS['act-ada']}"}
        refused(server.post("/jobs", {"kind": "optimize"}, headers=headers), 403, "forbidden")
        assert server.get("/jobs", headers=headers).json() == {"jobs": []}


@pytest.mark.parametrize(
    "address",
    [
        "relative.jsonl",
        "/outside/x",
        "{base}/../x",
        "{base}/./x",
        "{base}//x",
        "{base}/%2e%2e/x",
        "{base}/link/x",
        "{base}/l*/x",
        "file://{base}/../x",
        "s3://bucket/other/x",
        "s3://bucket/allowed/../x",
        "s3://bucket/allowed/%2e%2e/x",
        "https://host/x",
        "{base}/a\0b",
    ],
)
def test_SV11_no_address_leads_out_of_its_base(tmp_path: Path, address: str) -> None:
    base, outside = tmp_path / "base", tmp_path / "outside"
    for folder in (base, outside):
        folder.mkdir()
    (outside / "x").touch()
    (base / "link").symlink_to(outside)
    bases = (checked_base(str(base)), checked_base("s3://bucket/allowed"))
    with pytest.raises(Exception, match="lies below no base"):
        require_below(address.replace("{base}", str(base)), bases, "source")
    assert require_below(f"{base}/new.jsonl", bases, "target") == f"{base}/new.jsonl"
    assert require_below("s3://bucket/allowed/x", bases, "source") == "s3://bucket/allowed/x"


def test_SV11_a_job_whose_worker_ends_reads_as_interrupted(tmp_path: Path) -> None:
    """A worker is killed in the middle of a load, the next one is told to stop: both loads read as
    interrupted afterwards, and nothing of them is there."""
    uri, source = new_graph(tmp_path), tmp_path / "big.jsonl"
    with source.open("w") as out:
        out.writelines(LINE % f"p{number}" for number in range(300_000))
    options = (uri, "--unauthenticated", "--job-source", str(tmp_path))
    base, request = "/graphs/people", {"kind": "load", "source": str(source)}
    with ServerProcess(*options) as server, server.client() as client:

        def state(job: str) -> str:
            try:
                return str(client.get(f"{base}/jobs/{job}").json()["state"])
            except httpx.HTTPError:
                return ""

        def running() -> str:
            job = str(client.post(f"{base}/jobs", json=request).json()["id"])
            until(lambda: state(job) == "running")
            return job

        killed = running()
        (worker,) = server.workers()
        os.kill(worker, signal.SIGKILL)
        until(lambda: state(killed) in OVER)
        assert state(killed) == "interrupted"
        rows = client.post(f"{base}/query", json={"query": NAMES}).json()
        assert [row["name"] for row in rows["rows"]] == ["Ada", "Bob"]
        stopped = running()
        assert server.stop() == 0
    with served(uri) as after:
        assert ended(after, stopped)["state"] == "interrupted"
        assert after.names() == ["Ada", "Bob"]
