"""The flat routes of the 0.3-era client, with the old keys beside the new ones."""

from pathlib import Path

import pytest

from tests.server.world import ADD, AGE, NAMES, PEOPLE, SCHEMA, Served, new_graph, refused, served


def test_flat_reads_have_the_old_keys(server: Served) -> None:
    client = server.client
    snapshot = client.get("/snapshot", params={"branch": "main"}).json()
    assert snapshot["branch"] == snapshot["graph_branch"] == "main"
    assert snapshot["manifest_version"] == snapshot["graph_manifest_version"]
    person = next(t for t in snapshot["tables"] if t["table_key"] == "node:Person")
    assert person.keys() == {
        "table_key",
        "table_path",
        "table_version",
        "table_branch",
        "row_count",
    }
    commits = client.get("/commits").json()["commits"]
    for commit in [*commits, client.get(f"/commits/{commits[0]['graph_commit_id']}").json()]:
        assert commit["manifest_branch"] == commit["graph_branch"]
        assert commit["manifest_version"] == commit["graph_manifest_version"]
    assert client.get("/branches").json() == {"branches": list(server.graph.branches.list())}
    assert client.get("/schema").json() == {"schema_source": server.graph.schema.text}
    read = client.post("/read", json={"query_source": NAMES})
    assert read.json()["row_count"] == 2
    assert read.headers["deprecation"] == "true"
    current = client.post("/query", json={"query": NAMES})
    assert current.json()["rows"] == read.json()["rows"]
    assert "deprecation" not in current.headers
    export = client.post("/export", json={"table_keys": ["node:Person"]})
    assert len(export.text.splitlines()) == 2
    for key in ("edge:Person", "Person", "node:Nobody"):
        unknown = refused(client.post("/export", json={"table_keys": [key]}), 400, "bad_request")
        assert unknown["error"].startswith(f"unknown export type '{key}'")


def test_flat_writes_have_the_old_keys(tmp_path: Path) -> None:
    with served(new_graph(tmp_path)) as server:
        client = server.client
        assert client.post("/branches", json={"name": "a/b"}).json()["name"] == "a/b"
        done = client.post("/ingest", json={"data": PEOPLE, "branch": "a/b"}).json()
        assert done["base_branch"] == "main"
        assert {"table_key": "edge:Knows", "rows_loaded": 1} in done["tables"]
        body = {"query_source": ADD, "params": {"n": "Cy"}, "branch": "a/b"}
        commit = client.post("/change", json=body).json()["commit"]
        assert commit["manifest_branch"] == "a/b"
        body = {"query": ADD, "params": {"n": "Di"}, "branch": "a/b"}
        assert client.post("/mutate", json=body).json()["affected_nodes"] == 1
        merged = client.post("/branches/merge", json={"source": "a/b"}).json()
        assert merged["commit"]["manifest_version"] == merged["commit"]["graph_manifest_version"]
        server.graph.mutate(AGE, {"n": "Ada", "a": 1}, branch="a/b")
        server.graph.mutate(AGE, {"n": "Ada", "a": 2})
        refusal = client.post("/branches/merge", json={"source": "a/b"})
        document = refused(refusal, 409, "conflict", "merge_conflicts")
        assert document["merge_conflicts"][0]["table_key"] == "node:Person"
        assert document["merge_conflicts"][0]["row_id"] == "Ada"
        assert client.delete("/branches/a%2Fb").json()["name"] == "a/b"
        applied = client.post("/schema/apply", json={"schema_source": SCHEMA}).json()
        assert applied["manifest_version"] == applied["graph_manifest_version"]


def test_nested_routes_have_no_old_keys(server: Served) -> None:
    assert "tables" not in server.get("/snapshot").json()
    assert "manifest_version" not in server.get("/commits").json()["commits"][0]
    refused(server.post("/export", {"table_keys": ["node:Person"]}), 400, "bad_request")


@pytest.mark.parametrize("path", ["/runs", "/runs/1", "/load", "/blob"])
def test_what_the_older_server_did_not_have_is_404(path: str, server: Served) -> None:
    refused(server.client.get(path), 404, "not_found")


def test_several_graphs_have_no_flat_routes_unless_one_is_the_default(tmp_path: Path) -> None:
    uris = [new_graph(tmp_path, "one"), new_graph(tmp_path, "two")]
    with served(uris) as server:
        refused(server.client.get("/snapshot"), 404, "not_found")
        for name in ("one", "two"):
            answer = server.client.get(f"/graphs/{name}/snapshot")
            assert answer.json()["graph_branch"] == "main"
        listed = server.client.get("/graphs").json()["graphs"]
        assert [graph["graph_id"] for graph in listed] == ["one", "two"]
    with served(uris, default_graph="two") as server:
        server.graphs.get("two").mutate(ADD, {"n": "Cy"})
        body = {"query_source": NAMES}
        assert server.client.post("/read", json=body).json()["row_count"] == 3
