"""The wire of reads: queries, stored queries, snapshots, commits, schema and the flat endpoints."""

import pytest

import omnigraph as og
from omnigraph.server import wire
from tests.server.world import ADD, JSON, NAMES, Served, checked, refused


def test_health_says_which_program_answers(server: Served) -> None:
    document = checked(server.client.get("/healthz"), wire.HealthOutput)
    assert document == {
        "status": "ok",
        "version": og.__version__,
        "internal_schema_version": document["internal_schema_version"],
    }


def test_readiness_names_every_graph(server: Served) -> None:
    document = checked(server.client.get("/readyz"), wire.ReadyOutput)
    assert document["ready"] is True
    assert document["graphs"] == [{"graph_id": "people", "open": True}]
    assert [worker["kept"] for worker in document["workers"]] == [[]]


def test_a_server_whose_read_threads_are_stuck_is_not_ready(
    server: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = server.app.reads
    limit = int(server.app._limits.query_seconds * 1000)
    monkeypatch.setattr(pool, "stuck_s", lambda: limit / 1000)
    assert server.client.get("/readyz").status_code == 200
    monkeypatch.setattr(pool, "stuck_s", lambda: limit / 1000 + 1)
    answer = server.client.get("/readyz")
    assert answer.status_code == 503
    assert answer.json()["pools"][0] == {
        "name": "read",
        "stuck_ms": limit + 1000,
        "limit_ms": limit,
    }
    assert server.client.get("/healthz").status_code == 200


def test_graphs_are_listed_by_id(server: Served) -> None:
    document = checked(server.client.get("/graphs"), wire.GraphList)
    assert document == {"graphs": [{"graph_id": "people", "uri": server.graph.uri}]}


def test_a_query_answers_its_rows_its_target_and_its_commit(server: Served) -> None:
    document = server.answer("/query", {"query": NAMES}, wire.ReadOutput)
    head = server.graph.snapshot().commit_id
    assert document == {
        "query_name": "names",
        "target": {"branch": "main", "snapshot": None},
        "row_count": 2,
        "columns": ["name"],
        "rows": [{"name": "Ada"}, {"name": "Bob"}],
        "graph_commit_id": head,
    }
    at = server.answer("/query", {"query": NAMES, "snapshot": head}, wire.ReadOutput)
    assert at["target"] == {"branch": None, "snapshot": head}


def test_a_query_takes_parameters_and_one_of_several_names(server: Served) -> None:
    text = (
        "query a($n: String) { match { $p: Person { name: $n } } return { $p.age as age } }\n"
        + NAMES
    )
    body = {"query": text, "name": "a", "params": {"n": "Ada"}}
    assert server.answer("/query", body, wire.ReadOutput)["rows"] == [{"age": 36}]


@pytest.mark.parametrize(
    ("body", "error"),
    [
        ({"query": ADD, "params": {"n": "x"}}, "use POST /mutate for write queries"),
        (
            {"query": NAMES, "branch": "main", "snapshot": "x"},
            "request may specify branch or snapshot, not both",
        ),
        ({"query": NAMES, "params": [1]}, "params must be a JSON object"),
        ({"query": NAMES + NAMES.replace("names", "b")}, "multiple queries"),
        ({"query": NAMES, "name": "nope"}, "query 'nope' not found"),
        ({"name": "x"}, "missing required field `query`"),
        ({"query": 7}, "Expected `str`"),
    ],
)
def test_a_query_that_makes_no_sense_is_400(
    body: dict[str, object], error: str, server: Served
) -> None:
    assert error in refused(server.post("/query", body), 400, "bad_request")["error"]


def test_SV15_a_text_that_is_wrong_says_where(server: Served) -> None:
    wrong = {"query": "query q() {\n  match { $p: Persn }\n  return { $p } }"}
    document = refused(server.post("/query", wrong), 400, "bad_request", "diagnostic")
    assert document["diagnostic"]["line"] == 2
    assert document["diagnostic"].keys() == {"code", "line", "column", "expected", "suggestion"}
    assert "Persn" in document["error"]


def test_a_branch_that_is_not_there_is_404(server: Served) -> None:
    document = refused(server.post("/query", {"query": NAMES, "branch": "x"}), 404, "not_found")
    assert document["error"] == "branch 'x' not found"
    refused(server.get("/snapshot", params={"branch": "x"}), 404, "not_found")
    refused(server.get("/commits", params={"branch": "x"}), 404, "not_found")


def test_the_older_read_has_no_commit_and_says_what_follows_it(server: Served) -> None:
    response = server.post("/read", {"query_source": NAMES, "query_name": "names"})
    document = checked(response, wire.LegacyReadOutput)
    assert "graph_commit_id" not in document
    assert response.headers["deprecation"] == "true"
    assert response.headers["link"] == '<query>; rel="successor-version"'


def test_no_query_is_stored_without_a_cluster(server: Served) -> None:
    assert checked(server.get("/queries"), wire.QueryCatalog) == {"queries": []}
    for body in ({}, {"params": {"a": 1}, "expect_mutation": True}):
        document = refused(server.post("/queries/find", body), 404, "not_found")
        assert document["error"] == "stored query not found"
    refused(server.client.post(f"{server.base}/queries/find"), 404, "not_found")
    refused(server.post("/queries/find", {"expect_mutation": "yes"}), 400, "bad_request")


def test_a_snapshot_lists_every_type(server: Served) -> None:
    document = checked(server.get("/snapshot", params={"branch": "main"}), wire.SnapshotOutput)
    assert document["graph_branch"] == "main"
    person = next(each for each in document["datasets"] if each["type_name"] == "Person")
    assert person["entity_kind"] == "node"
    assert person["entity_count"] == 2
    assert person["native_dataset_branch"] is None


def test_commits_come_newest_first_and_one_by_its_id(server: Served) -> None:
    document = checked(server.get("/commits"), wire.CommitList)
    ids = [commit["graph_commit_id"] for commit in document["commits"]]
    assert ids == [commit.id for commit in server.graph.commits.list()]
    first = document["commits"][-1]
    assert first["parent_commit_id"] is None
    assert first["actor_id"] is None
    assert checked(server.get(f"/commits/{ids[0]}"), wire.CommitOutput) == document["commits"][0]
    refused(server.get("/commits/01JZ0000000000000000000000"), 404, "not_found")


def test_SV6a_commits_come_in_pages_if_a_limit_is_given(server: Served) -> None:
    whole = server.get("/commits").json()["commits"]
    one = checked(server.get("/commits", params={"limit": 1}), wire.CommitList)
    rest = server.get("/commits", params={"limit": 9, "page_token": one["next_page_token"]}).json()
    assert one["commits"] + rest["commits"] == whole
    assert "next_page_token" not in rest
    for wrong in (
        {"limit": 0},
        {"limit": "x"},
        {"page_token": "x"},
        {"limit": 1, "page_token": "x"},
    ):
        refused(server.get("/commits", params=wrong), 400, "bad_request")
    refused(server.get("/commits", params={"limit": 9000}), 413, "bad_request", "resource_limit")


def test_the_schema_is_as_it_was_written(server: Served) -> None:
    document = checked(server.get("/schema"), wire.SchemaOutput)
    assert document == {"schema_source": server.graph.schema.text}


def test_a_read_has_a_deadline_which_a_request_may_lower(server: Served) -> None:
    body = {"query": NAMES}
    slow = {"Omnigraph-Timeout-Ms": "0"}
    refused(server.post("/query", body, headers=slow), 400, "bad_request")
    assert server.post("/query", body, headers={"Omnigraph-Timeout-Ms": "9000"}).status_code == 200


def test_a_body_that_is_no_json_is_refused_in_json(server: Served) -> None:
    path = f"{server.base}/query"
    for body in (b"", b"{", b"[]", b"\xff\xfe", b'{"query": "\\ud800"}', b"[" * 100_000):
        refused(server.client.post(path, content=body, headers=JSON), 400, "bad_request")
    refused(server.client.post(path, content=b"{}"), 415, "bad_request")
    text = {"Content-Type": "text/plain"}
    refused(server.client.post(path, content=b"{}", headers=text), 415, "bad_request")
