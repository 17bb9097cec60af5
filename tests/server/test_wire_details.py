"""Details of the wire: deprecation, old keys, early denials, diagnostics, ranges, origins."""

from pathlib import Path

import pytest

import omnigraph as og
from omnigraph.exec.load.request import LoadIndexes
from omnigraph.server import wire
from omnigraph.server.serve_settings import Access
from tests.server.world import (
    ADD,
    JSON,
    NAMES,
    NDJSON,
    SCHEMA,
    TOKENS,
    Served,
    checked,
    new_graph,
    refused,
    served,
)

ADA = {"Authorization": f"Bearer {TOKENS['act-ada']}"}
ORIGIN = "https://app.example"
PHOTO = {"entity": "node", "type": "Person", "id": "Ada", "property": "photo"}


@pytest.mark.parametrize(
    ("path", "successor"), [("/read", "query"), ("/change", "mutate"), ("/ingest", "load")]
)
def test_a_deprecated_route_says_so_whatever_it_answers(
    path: str, successor: str, server: Served
) -> None:
    wrong = {"query_source": "nope", "query": None, "data": "{"}
    for address in (server.base + path, path):
        for response in (
            server.client.post(address, json=wrong),
            server.client.post(address, content=b"{", headers=JSON),
            server.client.post(address, content=b"x", headers={"Content-Type": "text/plain"}),
        ):
            assert response.status_code in (400, 415)
            assert response.headers["deprecation"] == "true"
            assert response.headers["link"] == f'<{successor}>; rel="successor-version"'
    assert "deprecation" not in server.post("/query", {"query": "nope"}).headers


def test_the_commit_of_a_flat_schema_change_has_the_old_keys(tmp_path: Path) -> None:
    with served(new_graph(tmp_path)) as server:
        body = {"schema_source": f"{SCHEMA}\nnode Extra {{ name: String @key }}\n"}
        commit = server.client.post("/schema/apply", json=body).json()["commit"]
        assert commit["manifest_version"] == commit["graph_manifest_version"]
        assert commit["manifest_branch"] == commit["graph_branch"]


def test_who_may_only_read_is_denied_a_job_before_it_is_looked_at(graph_uri: str) -> None:
    with served(graph_uri, access=Access.READ_ONLY) as server:
        for body in ({"kind": "load"}, {"kind": "export", "target": "/x"}, {"kind": "zzz"}, [1]):
            denied = refused(server.post("/jobs", body, headers=ADA), 403, "forbidden")
            assert denied["error"].endswith("for actor 'act-ada'")
        broken = server.client.post(
            f"{server.base}/jobs", content=b"{" * 3_000_000, headers={**ADA, **JSON}
        )
        refused(broken, 403, "forbidden")
        refused(server.client.delete(f"{server.base}/jobs/nope", headers=ADA), 403, "forbidden")
        assert server.get("/jobs", headers=ADA).json() == {"jobs": []}


def test_a_text_on_the_wrong_route_is_shown_its_own_and_a_client_has_its_usual_error(
    server: Served,
) -> None:
    for path in ("/mutate", "/change"):
        document = refused(server.post(path, {"query": NAMES}), 400, "bad_request")
        assert document["error"] == "'names' is a read; use POST /query for read queries"
    document = refused(server.post("/query", {"query": ADD}), 400, "bad_request")
    assert document["error"] == (
        "query 'add' contains mutations (insert/update/delete); use POST /mutate for write queries"
    )
    with og.connect(server.url) as client:
        for verb, text in (("mutate", NAMES), ("query", ADD)):
            said = []
            for graph in (server.graph, client):
                with pytest.raises(og.BadRequest) as refusal:
                    getattr(graph, verb)(text)
                said.append(str(refusal.value))
            assert said[0] == said[1]


def test_SV15_a_diagnostic_says_what_was_expected(server: Served) -> None:
    def diagnostic(text: str) -> dict[str, object]:
        document = refused(server.post("/query", {"query": text}), 400, "bad_request", "diagnostic")
        shown: dict[str, object] = document["diagnostic"]
        return shown

    assert diagnostic("nope")["expected"] == "'query' or the end of the text"
    assert diagnostic(NAMES.replace("$p.name as", "$p.nome as"))["expected"] is None


@pytest.mark.parametrize(
    ("asked", "bytes_"),
    [
        ("bytes=6-99999999999999999999999", b"world"),
        ("Bytes=0-4", b"hello"),
        ("bytes=-99999999999999999999999", b"hello world"),
    ],
)
def test_a_range_may_end_far_behind_the_blob(asked: str, bytes_: bytes, server: Served) -> None:
    response = server.get("/blob", params=PHOTO, headers={"Range": asked})
    assert (response.status_code, response.content) == (206, bytes_)


def test_a_range_that_begins_far_behind_the_blob_is_416(server: Served) -> None:
    far = server.get("/blob", params=PHOTO, headers={"Range": f"bytes={'9' * 30}-"})
    refused(far, 416, "bad_request", "blob_range")
    assert far.headers["content-range"] == "bytes */11"
    turned = server.get("/blob", params=PHOTO, headers={"Range": f"bytes={'9' * 30}-{'8' * 30}"})
    assert turned.status_code == 200


def test_a_page_of_the_allowed_origin_sends_and_reads_every_header(graph_uri: str) -> None:
    asked = {"Origin": ORIGIN, "Access-Control-Request-Method": "POST"}
    with served(graph_uri, allow_origin=ORIGIN) as server:
        for path in (f"{server.base}/query", "/mcp"):
            preflight = server.client.options(path, headers=asked)
            assert preflight.status_code == 204
            sent = preflight.headers["access-control-allow-headers"].lower().split(", ")
            assert {"omnigraph-http-api", "omnigraph-timeout-ms", "if-match", "range"} <= set(sent)
            assert {"mcp-protocol-version", "mcp-session-id", "last-event-id"} <= set(sent)
        for response in (
            server.get("/blob", params=PHOTO, headers={"Origin": ORIGIN}),
            server.get("/nope", headers={"Origin": ORIGIN}),
            server.client.post("/mcp", json={}, headers={"Origin": ORIGIN}),
        ):
            assert response.headers["access-control-allow-origin"] == ORIGIN
            read = response.headers["access-control-expose-headers"].lower().split(", ")
            assert {"etag", "x-request-id", "idempotent-replay", "retry-after"} <= set(read)
        other = server.client.post("/mcp", json={}, headers={"Origin": "https://evil.example"})
        assert "access-control-allow-origin" not in other.headers


def test_a_stored_query_is_described_with_both_of_its_answers(server: Served) -> None:
    document = server.client.get("/openapi.json").json()
    post = document["paths"]["/graphs/{graph_id}/queries/{name}"]["post"]
    shapes = post["responses"]["200"]["content"]["application/json"]["schema"]["anyOf"]
    names = [shape["$ref"].rpartition("/")[2] for shape in shapes]
    assert names == ["ReadOutput", "ChangeOutput"]
    assert set(names) <= document["components"]["schemas"].keys()


@pytest.mark.parametrize(
    "path", ["/healthz", "/openapi.json", "/graphs/people/branches", "/graphs/people/commits/nope"]
)
def test_head_is_get_without_the_body(path: str, server: Served) -> None:
    get, head = server.client.get(path), server.client.head(path)
    own = {"date", "x-request-id"}
    assert (head.status_code, head.content) == (get.status_code, b"")
    shown = [{k: v for k, v in each.headers.items() if k not in own} for each in (get, head)]
    assert shown[0] == shown[1]


def test_head_of_a_stream_begins_none(server: Served) -> None:
    head = server.client.head(f"{server.base}/changes/stream")
    assert head.status_code == 200
    assert head.headers["content-type"] == "text/event-stream"


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/query", {"query": NAMES, "branch": ""}),
        ("/read", {"query_source": NAMES, "branch": ""}),
        ("/mutate", {"query": ADD, "params": {"n": "X"}, "branch": ""}),
        ("/load", {"data": "", "branch": ""}),
        ("/export", {"branch": ""}),
        ("/changes/baseline", {"branch": ""}),
        ("/branches", {"name": "made", "from": ""}),
        ("/branches/merge", {"source": "main", "target": ""}),
        ("/schema/apply", {"schema_source": SCHEMA, "branch": ""}),
        ("/transactions", {"branch": "", "statements": [{"query": ADD, "params": {"n": "X"}}]}),
    ],
)
def test_an_empty_name_is_no_branch_and_never_means_main(
    path: str, body: dict[str, object], server: Served
) -> None:
    head = server.graph.snapshot().commit_id
    document = refused(server.post(path, body), 404, "not_found")
    assert document["error"].startswith("branch '' not found")
    assert server.graph.snapshot().commit_id == head


def test_an_empty_branch_in_an_address_is_none_either(server: Served) -> None:
    for path in ("/snapshot?branch=", "/commits?branch=", "/changes?branch=", "/schema?branch="):
        refused(server.get(path), 404, "not_found")
    loaded = server.client.post(f"{server.base}/load/ndjson?branch=", headers=NDJSON)
    refused(loaded, 404, "not_found")


@pytest.mark.parametrize("path", ["/mutate", "/change", "/load", "/ingest", "/load/ndjson"])
def test_a_condition_is_never_ignored(path: str, server: Served) -> None:
    head = server.graph.snapshot().commit_id
    is_lines = path.endswith("ndjson")
    content = b"" if is_lines else wire.encoded({"query": ADD, "params": {"n": "X"}, "data": ""})
    headers = {**(NDJSON if is_lines else JSON), "Omnigraph-If-Graph-Commit": "01ABC"}
    response = server.client.post(server.base + path, content=content, headers=headers)
    refused(response, 400, "bad_request")
    assert server.graph.snapshot().commit_id == head


def test_a_baseline_needs_no_body(server: Served) -> None:
    bare = server.client.post(f"{server.base}/changes/baseline")
    assert bare.text == server.post("/changes/baseline", {}).text
    wrong = server.client.post(
        f"{server.base}/changes/baseline", content=b"{}", headers={"Content-Type": "text/plain"}
    )
    refused(wrong, 415, "bad_request")


def test_a_limit_that_is_about_no_body_leaves_the_connection_open(server: Served) -> None:
    far = server.get("/changes?limit=9000")
    refused(far, 413, "bad_request", "resource_limit")
    assert "connection" not in far.headers
    body = b'{"query":"' + b"x" * (1 << 20) + b'"}'
    large = server.client.post(f"{server.base}/query", content=body, headers=JSON)
    refused(large, 413, "bad_request", "resource_limit")
    assert large.headers["connection"] == "close"


def test_SV8_an_operation_is_found_on_whatever_branch_it_wrote(server: Served) -> None:
    server.graph.branches.create("aside")
    body = {"query": ADD, "params": {"n": "Aside"}, "branch": "aside"}
    done = server.post("/mutate", body, headers={"Idempotency-Key": "aside-1"}).json()
    for where in ("/operations/aside-1", "/operations/aside-1?branch=aside"):
        shown = server.get(where).json()
        assert (shown["state"], shown["commit"]) == ("committed", done["commit"])
    assert server.get("/operations/aside-1?branch=main").json()["state"] == "unknown"
    refused(server.get("/operations/aside-1?branch=nowhere"), 404, "not_found")


def test_SV8_a_key_belongs_to_the_branches_that_have_its_commit(server: Served) -> None:
    for name in ("here", "there"):
        server.graph.branches.create(name)
    key = {"Idempotency-Key": "one-key"}
    body = {"query": ADD, "params": {"n": "Twice"}, "branch": "here"}
    here = server.post("/mutate", body, headers=key).json()["commit"]
    there = server.post("/mutate", {**body, "branch": "there"}, headers=key).json()["commit"]
    assert here["graph_commit_id"] != there["graph_commit_id"]
    shown = server.get("/operations/one-key?branch=there").json()
    assert shown["commit"] == there
    server.graph.branches.create("heir", "here")
    refused(server.post("/mutate", {**body, "branch": "heir"}, headers=key), 422, None)


def test_a_load_says_which_indexes_it_built_and_a_client_reads_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMNIGRAPH_INDEX_ROWS_MIN", "20")
    schema = "node Person { name: String @key  age: I32? @index }"
    lines = [f'{{"type":"Person","data":{{"name":"p{n}","age":{n}}}}}\n' for n in range(60)]
    og.init(tmp_path / "wide.omni", schema=schema).close()
    with served(str(tmp_path / "wide.omni")) as server:
        body = {"data": "".join(lines[:30])}
        document = checked(server.post("/load", body), wire.IngestOutput)
        built = document["indexes"]["built"]
        assert {"table": "node:Person", "property": "age", "kind": "ordered"} in built
        newest = server.graph.commits.list()[0]
        assert (
            document["indexes"]["graph_commit_id"]
            == newest.id
            != document["commit"]["graph_commit_id"]
        )
        with og.connect(server.url) as client:
            done = client.load("".join(lines[30:]).encode(), "append")
            assert done.indexes.commit_id == server.graph.commits.list()[0].id
            assert "age" in {note.column for note in done.indexes.built}
            later = client.load(b"", "append")
            assert later.indexes == LoadIndexes()
        assert "indexes" not in server.post("/load", {"data": ""}).json()


def test_a_branch_that_moved_under_a_merge_is_409_and_412_only_where_its_head_was_named(
    server: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost(*facts: object, **named: object) -> None:
        raise og.PreconditionFailed("main", "01AAA", "01BBB")

    monkeypatch.setattr(type(server.graph.branches), "merge", lost)
    moved = server.post("/branches/merge", {"source": "x"})
    document = refused(moved, 409, "conflict", "read_set_conflict")
    shown = {"member": "main", "expected": "01AAA", "actual": "01BBB"}
    assert document["read_set_conflict"] == shown
    body = {"source": "x", "if_target_commit": "01AAA"}
    refused(server.post("/branches/merge", body), 412, None, "precondition_failure")
