"""What goes beyond 0.10: formats, tags, undo, transactions, previews, waiting and columns."""

import io
import json
import threading

import httpx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from omnigraph.server import wire, wire_beyond, wire_changes
from omnigraph.server.request_log import RequestLog
from tests.server.world import ADD, AGE, NAMES, Served, checked, refused

ARROW = "application/vnd.apache.arrow.stream"
PARQUET = "application/vnd.apache.parquet"
ALL = (
    "query all() { match { $p: Person } return { $p.name as name, $p.age as age } order { name } }"
)


def branched(server: Served, name: str) -> str:
    server.graph.branches.create(name)
    return name


# ---- SV7


def test_SV7_arrow_has_the_same_columns_and_rows(server: Served) -> None:
    response = server.post("/query", {"query": ALL}, headers={"Accept": ARROW})
    assert response.headers["content-type"] == ARROW
    table = pa.ipc.open_stream(response.content).read_all()
    assert table.to_pylist() == server.post("/query", {"query": ALL}).json()["rows"]
    assert table.schema.field("age").type == pa.int32()
    assert response.headers["omnigraph-snapshot-id"] == server.graph.snapshot().commit_id
    wrong = server.post("/query", {"query": "nonsense"}, headers={"Accept": ARROW})
    refused(wrong, 400, "bad_request", "diagnostic")


def test_SV7_csv_quotes_what_it_must(server: Served) -> None:
    branch = branched(server, "csv")
    for name in ('a "b", c', "x\ny"):
        server.graph.mutate(ADD, {"n": name}, branch=branch)
    body = {"query": ALL, "branch": branch}
    response = server.post("/query", body, headers={"Accept": "text/csv"})
    assert response.headers["content-type"] == "text/csv"
    assert response.text == 'name,age\nAda,36\nBob,25\n"a ""b"", c",\n"x\ny",\n'


@pytest.mark.parametrize("accept", ["*/*", "application/json", f"application/json, {ARROW}", ""])
def test_json_is_what_everybody_gets(accept: str, server: Served) -> None:
    response = server.post("/query", {"query": NAMES}, headers={"Accept": accept})
    checked(response, wire.ReadOutput)


# ---- SV6a


def test_SV6a_tags_name_points_that_reads_take(server: Served) -> None:
    head = server.graph.snapshot().commit_id
    made = server.answer("/tags", {"name": "v1"}, wire_beyond.TagOutput)
    assert made["graph_commit_id"] == head
    listed = checked(server.get("/tags"), wire_beyond.TagList)
    assert [tag["name"] for tag in listed["tags"]] == ["v1"]
    rows = server.answer("/query", {"query": NAMES, "snapshot": "v1"}, wire.ReadOutput)
    assert rows["graph_commit_id"] == head
    gone = server.client.delete(f"{server.base}/tags/v1")
    assert checked(gone, wire_beyond.TagDeleteOutput) == {"name": "v1", "actor_id": None}
    refused(server.client.delete(f"{server.base}/tags/v1"), 404, "not_found")
    refused(server.post("/tags", {"name": "x", "point": "nope"}), 404, "not_found")


def test_SV6a_a_commit_is_reverted_and_a_point_restored(server: Served) -> None:
    branch = branched(server, "undo")
    server.graph.mutate(AGE, {"n": "Ada", "a": 50}, branch=branch)
    body = {"commit": branch, "branch": branch}
    preview = server.answer("/revert", {**body, "dry_run": True}, wire_beyond.UndoOutput)
    assert preview["dry_run"] is True
    assert preview["graph_commit_id"] is None
    done = server.answer("/revert", {**body, "message": "oops"}, wire_beyond.UndoOutput)
    assert done["outcome"] == "reverted"
    assert done["commit"]["message"] == "oops"
    back = {"point": f"{branch}~1", "branch": branch}
    restored = server.answer("/restore", back, wire_beyond.UndoOutput)
    assert restored["outcome"] == "restored"
    refused(server.post("/restore", {"point": "nope", "branch": branch}), 404, "not_found")


def test_SV6a_a_patch_keeps_what_it_does_not_name(server: Served) -> None:
    branch = branched(server, "patch")
    line = '{"type":"Person","data":{"name":"Ada","joined":"2020-01-01T00:00:00Z"}}\n'
    body = {"data": line, "mode": "patch", "branch": branch}
    server.answer("/load", body, wire.IngestOutput)
    rows = server.graph.query(ALL, branch=branch).rows
    assert rows[0] == {"name": "Ada", "age": 36}


# ---- SV9


def test_SV9_a_transaction_is_one_commit_and_its_reads_see_it(server: Served) -> None:
    branch = branched(server, "transact")
    before = server.graph.snapshot(branch).commit_id
    statements = [
        {"query": ADD, "params": {"n": "Cy"}},
        {"query": NAMES},
        {"query": AGE, "params": {"n": "Cy", "a": 4}},
    ]
    document = server.answer(
        "/transactions", {"branch": branch, "statements": statements}, wire_beyond.TransactionOutput
    )
    added, read, updated = document["results"]
    assert added["affected_nodes"] == updated["affected_nodes"] == 1
    assert [row["name"] for row in read["rows"]] == ["Ada", "Bob", "Cy"]
    head = server.graph.snapshot(branch).commit_id
    assert document["commit"]["graph_commit_id"] == head
    assert document["commit"]["parent_commit_id"] == before
    assert not any(name.startswith("tx/") for name in server.graph.branches.list())


def test_SV9_a_transaction_that_fails_writes_nothing(server: Served) -> None:
    branch = branched(server, "failing")
    head = server.graph.snapshot(branch).commit_id
    good, bad = {"query": ADD, "params": {"n": "X"}}, {"query": ADD, "params": {"n": "Y", "a": 999}}
    body = {"branch": branch, "statements": [good, bad]}
    refused(server.post("/transactions", body), 400, "bad_request")
    refused(server.post("/transactions", {"statements": []}), 400, "bad_request")
    assert server.graph.snapshot(branch).commit_id == head
    assert not any(name.startswith("tx/") for name in server.graph.branches.list())


def test_SV9_a_conditional_transaction_needs_its_head(server: Served) -> None:
    branch = branched(server, "headed")
    head = server.graph.snapshot(branch).commit_id
    body = {
        "branch": branch,
        "statements": [{"query": ADD, "params": {"n": "X"}}],
        "if_commit": head,
    }
    server.answer("/transactions", body, wire_beyond.TransactionOutput)
    lost = server.post("/transactions", body)
    refused(lost, 412, None, "precondition_failure")


# ---- SV10


def test_SV10_a_poll_waits_for_a_commit(server: Served) -> None:
    branch = branched(server, "waited")
    params = {"branch": branch, "start": "now", "wait_ms": 30_000}
    writing = threading.Timer(0.3, lambda: server.graph.mutate(ADD, {"n": "Late"}, branch=branch))
    writing.start()
    document = checked(server.get("/changes", params=params), wire_changes.ChangeFeedOutput)
    writing.join()
    (block,) = document["blocks"]
    assert block["changes"][0]["id"] == "Late"
    nothing = server.get("/changes", params={**params, "wait_ms": 50}).json()
    assert nothing["blocks"] == []
    assert nothing["caught_up"] is True


def test_a_stream_whose_branch_goes_breaks_off_and_is_no_fault_of_the_server(
    server: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    faults: list[object] = []
    monkeypatch.setattr(RequestLog, "fault", lambda *cause: faults.append(cause))
    branch = branched(server, "short-lived")
    path, params = f"{server.base}/changes/stream", {"branch": branch, "start": "now"}
    with server.client.stream("GET", path, params=params) as response:
        lines = response.iter_lines()
        assert next(lines) == "retry: 1000"
        server.graph.branches.delete(branch)
        with pytest.raises(httpx.RemoteProtocolError):
            list(lines)
    assert faults == []


def test_SV10_the_feed_is_a_stream_of_events(server: Served) -> None:
    branch = branched(server, "streamed")
    path, params = f"{server.base}/changes/stream", {"branch": branch, "start": "now"}

    def events(headers: dict[str, str], count: int) -> list[dict[str, str]]:
        seen: list[dict[str, str]] = []
        with server.client.stream("GET", path, params=params, headers=headers) as response:
            assert response.headers["content-type"] == "text/event-stream"
            for write in writes:
                if write.ident is None:  # the stream has begun: it shows what comes from here on
                    write.start()
            event: dict[str, str] = {}
            for line in response.iter_lines():
                name, _, value = line.partition(": ")
                if line:
                    event[name] = value
                elif "data" in event:
                    seen.append(event)
                    event = {}
                    if len(seen) == count:
                        return seen
                else:
                    event = {}
        return seen

    writes = [
        threading.Timer(
            0.4 * n, lambda n=n: server.graph.mutate(ADD, {"n": f"e{n}"}, branch=branch)
        )
        for n in (1, 2)
    ]
    first, *_ = events({}, 1)
    ids = [c["id"] for b in json.loads(first["data"])["blocks"] for c in b["changes"]]
    assert ids[0] == "e1"
    for write in writes:
        write.join()
    if ids == ["e1"]:
        (second,) = events({"Last-Event-ID": first["id"]}, 1)
        assert json.loads(second["data"])["blocks"][0]["changes"][0]["id"] == "e2"
    refused(server.client.get(path, params={"branch": "nope"}), 404, "not_found")


# ---- SV11


def test_SV11_columns_of_one_type_are_loaded(server: Served) -> None:
    branch = branched(server, "columns")
    table = pa.table({"name": ["P", "Q"], "age": pa.array([1, 2], pa.int32())})
    parquet, arrow = io.BytesIO(), io.BytesIO()
    pq.write_table(table, parquet)
    with pa.ipc.new_stream(arrow, table.schema) as writer:
        writer.write_table(table)
    path, where = f"{server.base}/load", {"branch": branch, "type": "Person"}
    for media, body in ((PARQUET, parquet.getvalue()), (ARROW, arrow.getvalue())):
        headers = {"Content-Type": media}
        response = server.client.post(path, content=body, params=where, headers=headers)
        assert checked(response, wire.IngestOutput)["total_entities"] == 2
        refused(server.client.post(path, content=body, headers=headers), 400, "bad_request")
        torn = server.client.post(path, content=b"rubbish", params=where, headers=headers)
        refused(torn, 400, "bad_request")
    assert server.names(branch) == ["Ada", "Bob", "P", "Q"]


# ---- SV12


def test_SV12_a_merge_is_previewed_decided_and_conditional(server: Served) -> None:
    ours, theirs = branched(server, "left"), branched(server, "right")
    server.graph.mutate(AGE, {"n": "Ada", "a": 1}, branch=ours)
    server.graph.mutate(AGE, {"n": "Ada", "a": 2}, branch=theirs)
    body = {"source": theirs, "target": ours}
    before = server.graph.snapshot(ours).commit_id
    preview = server.answer("/branches/merge", {**body, "dry_run": True}, wire.BranchMergeOutput)
    assert preview["outcome"] == "conflicts"
    assert preview["merge_conflicts"][0]["entity_id"] == "Ada"
    assert server.graph.snapshot(ours).commit_id == before
    moved = server.post("/branches/merge", {**body, "if_target_commit": "other"})
    refused(moved, 412, None, "precondition_failure")
    moved = server.post("/branches/merge", {**body, "if_source_commit": "other"})
    refused(moved, 412, None, "precondition_failure")
    take = {"type_name": "Person", "entity_id": "Ada", "take": "sideways"}
    refused(server.post("/branches/merge", {**body, "resolutions": [take]}), 400, "bad_request")
    take["take"] = "source"
    document = server.answer(
        "/branches/merge",
        {**body, "resolutions": [take], "if_target_commit": before},
        wire.BranchMergeOutput,
    )
    assert document["commit"]["merged_parent_commit_id"] is not None
    assert server.graph.query(ALL, branch=ours).rows[0]["age"] == 2


def test_SV12_a_diff_is_paged_between_two_points(server: Served) -> None:
    branch = branched(server, "differing")
    for name in ("M", "N"):
        server.graph.mutate(ADD, {"n": name}, branch=branch)
    params = {"from": "main", "to": branch}
    document = checked(server.get("/diff", params=params), wire_changes.DiffOutput)
    assert [change["id"] for change in document["changes"]] == ["M", "N"]
    one = server.get("/diff", params={**params, "limit": 1}).json()
    two = server.get("/diff", params={**params, "page_token": one["next_page_token"]}).json()
    assert one["changes"] + two["changes"] == document["changes"]
    refused(server.get("/diff", params={"from": "main"}), 400, "bad_request")
    refused(server.get("/diff", params={"from": "main", "to": "nope"}), 404, "not_found")


def test_SV12_texts_are_checked_and_explained(server: Served) -> None:
    document = server.answer("/lint", {"query": NAMES}, wire_beyond.LintOutput)
    assert document["status"] == "ok"
    wrong = server.answer("/lint", {"query": "query q() { match"}, wire_beyond.LintOutput)
    assert wrong["errors"] == 1
    plan = server.answer("/explain", {"query": NAMES}, wire_beyond.ExplainOutput)
    assert plan["query_name"] == "names"
    assert plan["plan"]
    refused(server.post("/explain", {"query": "no"}), 400, "bad_request", "diagnostic")


# ---- SV10a


def test_SV10a_writes_say_what_they_are_about(server: Served) -> None:
    branch = branched(server, "noted")
    note = {"message": "because", "metadata": {"ticket": "7"}}
    body = {"query": ADD, "params": {"n": "Gus"}, "branch": branch, **note}
    changed = server.answer("/mutate", body, wire.ChangeOutput)["commit"]
    line = '{"type":"Note","data":{"text":"x"}}'
    load = {"data": line, "branch": branch, "mode": "append", **note}
    loaded = server.answer("/load", load, wire.IngestOutput)["commit"]
    into = branched(server, "noted-into")
    merge = {"source": branch, "target": into, **note}
    merged = server.answer("/branches/merge", merge, wire.BranchMergeOutput)["commit"]
    statements = [{"query": ADD, "params": {"n": "Hal"}}]
    done = server.answer(
        "/transactions",
        {"branch": into, "statements": statements, **note},
        wire_beyond.TransactionOutput,
    )
    for commit in (changed, loaded, merged, done["commit"]):
        assert (commit["message"], commit["metadata"]) == ("because", {"ticket": "7"})
    feed = server.get("/changes", params={"branch": into, "start": "beginning"}).json()
    assert feed["blocks"][-1]["cause"]["message"] == "because"
    long = {**body, "message": "x" * 70_000}
    refused(server.post("/mutate", long), 413, "bad_request", "resource_limit")


# ---- SV8


def test_SV8_a_mutation_that_is_sent_again_answers_the_first_and_writes_nothing(
    server: Served,
) -> None:
    branch, key = branched(server, "idem"), {"Idempotency-Key": "k-1"}
    body = {"query": ADD, "params": {"n": "Ida"}, "branch": branch}
    first = server.post("/mutate", body, headers=key)
    assert "idempotent-replay" not in first.headers
    again = server.post("/mutate", body, headers=key)
    assert again.headers["idempotent-replay"] == "true"
    assert checked(again, wire.ChangeOutput) == checked(first, wire.ChangeOutput)
    assert "metadata" not in first.json()["commit"]
    assert server.graph.snapshot(branch).commit_id == first.json()["commit"]["graph_commit_id"]
    other = server.post("/mutate", {**body, "params": {"n": "Else"}}, headers=key)
    refused(other, 422, None)
    where = {"branch": branch}
    state = checked(server.get("/operations/k-1", params=where), wire_beyond.OperationOutput)
    assert state["state"] == "committed"
    assert state["commit"] == first.json()["commit"]
    assert server.get("/operations/nope", params=where).json()["state"] == "unknown"


def test_SV8_loads_are_sent_again_too(server: Served) -> None:
    branch, key = branched(server, "idem-load"), {"Idempotency-Key": "k-2"}
    body = {"data": '{"type":"Note","data":{"text":"x"}}', "mode": "append", "branch": branch}
    first = checked(server.post("/load", body, headers=key), wire.IngestOutput)
    again = server.post("/load", body, headers=key)
    assert again.headers["idempotent-replay"] == "true"
    assert checked(again, wire.IngestOutput) == first
    path = f"{server.base}/load/ndjson"
    lines = {**key, "Idempotency-Key": "k-3", "Content-Type": "application/x-ndjson"}
    params = {"branch": branch, "mode": "append"}
    data = body["data"].encode()
    once = server.client.post(path, content=data, headers=lines, params=params)
    twice = server.client.post(path, content=data, headers=lines, params=params)
    assert checked(twice, wire.GraphBatchLoadOutput) == once.json()
    assert server.graph.snapshot(branch).tables["node:Note"].row_count == 2  # type: ignore[index]


def test_SV8_one_key_at_a_time(server: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    inside, leave = threading.Event(), threading.Event()
    mutate = server.graph.mutate

    def slow(*args: object, **options: object) -> object:
        inside.set()
        assert leave.wait(30)
        return mutate(*args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(server.graph, "mutate", slow)
    branch, key = branched(server, "idem-race"), {"Idempotency-Key": "k-4"}
    body = {"query": ADD, "params": {"n": "Io"}, "branch": branch}
    answers: list[int] = []
    first = threading.Thread(
        target=lambda: answers.append(server.post("/mutate", body, headers=key).status_code)
    )
    first.start()
    assert inside.wait(30)
    second = server.post("/mutate", body, headers=key)
    refused(second, 409, "conflict")
    assert second.headers["retry-after"] == "1"
    running = server.get("/operations/k-4", params={"branch": branch})
    assert running.json()["state"] == "running"
    leave.set()
    first.join(30)
    assert answers == [200]
    for wrong in ("", "x" * 300):
        bad = server.post("/mutate", body, headers={"Idempotency-Key": wrong})
        refused(bad, 400, "bad_request")


def test_SV8_a_merge_that_is_sent_again_is_made_once(server: Served) -> None:
    source, into = branched(server, "idem-from"), branched(server, "idem-into")
    server.graph.mutate(ADD, {"n": "Ina"}, branch=source)
    key = {"Idempotency-Key": "m-1"}
    body = {"source": source, "target": into, "delete_branch": True, "metadata": {"why": "x"}}
    first = checked(server.post("/branches/merge", body, headers=key), wire.BranchMergeOutput)
    assert (first["outcome"], first["branch_deleted"]) == ("fast_forward", True)
    assert first["commit"]["metadata"] == {"why": "x"}
    again = server.post("/branches/merge", body, headers=key)  # though its source is gone
    assert again.headers["idempotent-replay"] == "true"
    assert checked(again, wire.BranchMergeOutput) == first
    assert server.graph.snapshot(into).commit_id == first["commit"]["graph_commit_id"]
    other = server.post("/branches/merge", {**body, "message": "y"}, headers=key)
    refused(other, 422, None)
    state = server.get("/operations/m-1", params={"branch": into}).json()
    assert (state["state"], state["commit"]) == ("committed", first["commit"])
    mine = {**body, "metadata": {"omnigraph:request": "forged"}}
    refused(server.post("/branches/merge", mine), 400, "bad_request")


def test_SV8_a_transaction_that_is_sent_again_has_its_first_answer(server: Served) -> None:
    branch, key = branched(server, "idem-tx"), {"Idempotency-Key": "t-1"}
    add = {"query": ADD, "params": {"n": "Iris"}}
    body = {"branch": branch, "statements": [add, {"query": NAMES}]}
    first = server.post("/transactions", body, headers=key)
    assert "idempotent-replay" not in first.headers
    server.graph.mutate(ADD, {"n": "Later"}, branch=branch)
    head = server.graph.snapshot(branch).commit_id
    again = server.post("/transactions", body, headers=key)
    assert again.headers["idempotent-replay"] == "true"
    assert checked(again, wire_beyond.TransactionOutput) == first.json()
    assert [row["name"] for row in again.json()["results"][1]["rows"]] == ["Ada", "Bob", "Iris"]
    assert server.graph.snapshot(branch).commit_id == head
    refused(server.post("/transactions", {**body, "message": "z"}, headers=key), 422, None)
    assert not [name for name in server.graph.branches.list() if name.startswith("tx/")]
