"""A served cluster as a process: its graphs, policies and stored queries, and what stops it."""

import json
import subprocess
from pathlib import Path

import pytest

from tests.cluster.world import ONE_GRAPH, SERVER_POLICY, TWO_GRAPHS, Cluster
from tests.server.process import PROGRAM, ServerProcess

GRANTS = """\
version: 1
groups: { editors: [act-ada], readers: [act-bob] }
protected_branches: [main]
rules:
  - { id: a, allow: { actors: { group: editors }, actions: [read, change, invoke_query] } }
  - { id: b, allow: { actors: { group: readers }, actions: [read, change] } }
"""
POLICIES = (
    "policies:\n  base: { file: base.policy.yaml, applies_to: [knowledge] }\n"
    "  server: { file: server.policy.yaml, applies_to: [cluster] }\n"
)


def start_refused(*arguments: str) -> str:
    """What a server that cannot start says."""
    done = subprocess.run(
        [*PROGRAM, "--bind", "127.0.0.1:0", *arguments],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 1, done.stdout
    assert done.stdout == ""
    return done.stderr


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Cluster:
    made = Cluster(tmp_path_factory.mktemp("cluster"), TWO_GRAPHS + POLICIES)
    made.write("base.policy.yaml", GRANTS)
    made.write("server.policy.yaml", SERVER_POLICY)
    made.write("tokens.json", json.dumps({"act-ada": "ta", "act-bob": "tb", "act-cid": "tc"}))
    made.applied()
    return made


def test_a_cluster_is_served_under_its_policies(cluster: Cluster) -> None:
    tokens = ("--tokens", str(cluster.folder / "tokens.json"))
    with (
        ServerProcess("--cluster", str(cluster.folder), *tokens) as process,
        process.client() as http,
    ):
        ada, bob = ({"Authorization": f"Bearer {token}"} for token in ("ta", "tb"))
        listed = http.get("/graphs", headers=ada).json()["graphs"]
        assert [each["graph_id"] for each in listed] == ["knowledge", "notes"]
        assert http.get("/graphs", headers=bob).status_code == 403
        base = "/graphs/knowledge"
        names = [e["name"] for e in http.get(f"{base}/queries", headers=bob).json()["queries"]]
        assert names == ["add", "find"]
        assert http.get("/graphs/notes/queries", headers=ada).json() == {"queries": []}

        body = {"params": {"n": "Ada", "a": "9007199254740993"}}
        hidden = http.post(f"{base}/queries/add", json=body, headers=bob)
        unknown = http.post(f"{base}/queries/none", json=body, headers=ada)
        assert hidden.status_code == unknown.status_code == 404
        assert hidden.json() == unknown.json()
        assert http.post(f"{base}/queries/find", json={}, headers=bob).json() == unknown.json()
        done = http.post(f"{base}/queries/add", json=body, headers=ada)
        assert done.json()["actor_id"] == "act-ada"
        rows = http.post(f"{base}/queries/find", json={"params": {"n": "Ada"}}, headers=ada).json()
        assert rows["row_count"] == 1, "bob's was not written too"
        commits = http.get(f"{base}/commits", headers=ada).json()["commits"]
        assert len(commits) == 2
        # A graph without a policy lets known actors read.
        assert http.get("/graphs/notes/schema", headers=bob).status_code == 200
        denied = http.post("/graphs/notes/mutate", json={"query": "x"}, headers=ada)
        assert denied.status_code == 403
        assert process.stop() == 0


def test_what_is_wrong_with_a_whole_cluster_stops_the_server(
    cluster: Cluster, tmp_path: Path
) -> None:
    folder = str(cluster.folder)
    assert "there is a policy, and no token" in start_refused(
        "--cluster", folder, "--unauthenticated"
    )
    bare = Cluster(tmp_path, ONE_GRAPH)
    said = start_refused("--cluster", str(bare.folder), "--unauthenticated")
    assert "cluster_state_missing" in said


def test_a_graph_that_cannot_be_served_is_left_out_unless_all_are_required(tmp_path: Path) -> None:
    config = TWO_GRAPHS + "  under_score: { schema: knowledge.pg }\n"
    cluster = Cluster(tmp_path, config)
    cluster.applied()
    with cluster.graph() as graph:
        graph.schema.apply("node Other { x: String @key }\n")  # its stored queries break
    arguments = ("--cluster", f"file://{tmp_path}", "--unauthenticated")
    with ServerProcess(*arguments) as process, process.client() as http:
        ids = [each["graph_id"] for each in http.get("/graphs").json()["graphs"]]
        assert ids == ["notes"]
        gone = http.get("/graphs/knowledge/schema")
        assert (gone.status_code, gone.json()["error"]) == (404, "graph 'knowledge' not found")
        assert http.get("/readyz").status_code == 503
        apply = http.post("/graphs/notes/schema/apply", json={"schema_source": "node A { x: I32 }"})
        assert apply.status_code == 409
        assert "cluster apply" in apply.json()["error"]
        assert process.stop() == 0
    assert "not serving under_score" in "".join(process.log)
    assert "stored query" in "".join(process.log)
    assert "cannot be served" in start_refused(*arguments, "--require-all-graphs")


@pytest.mark.slow
def test_a_graph_is_served_with_the_queries_of_a_folder(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, ONE_GRAPH)
    cluster.applied()
    folder = str(tmp_path / "queries")
    arguments = (cluster.uri(), "--queries", folder, "--unauthenticated")
    with ServerProcess(*arguments) as process, process.client() as http:
        queries = http.get("/graphs/knowledge/queries").json()["queries"]
        assert [each["name"] for each in queries] == ["add", "find"]
        assert http.post("/graphs/knowledge/queries/find", json={"params": {"n": "x"}}).is_success
    assert "cannot read the stored queries" in start_refused(
        cluster.uri(), "--queries", str(tmp_path / "none"), "--unauthenticated"
    )
