"""Stored queries over HTTP: their catalog, and queries run by name."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import omnigraph as og
from omnigraph.server import wire
from omnigraph.server.serve_settings import Access, GraphExtras, ServerSettings
from omnigraph.server.served import ServedGraphs
from omnigraph.server.served_sets import set_of_cluster, set_of_graphs
from tests.cluster.world import TWO_GRAPHS, Cluster
from tests.server.world import ADD, JSON, NAMES, SCHEMA, TOKENS, Served, checked, new_graph, served

QUERIES = (
    'query about($n: String, $big: I64?, $on: Date?, $tags: [String]?) @description("One person.") '
    '@instruction("Ask by name.") { match { $p: Person { name: $n } } '
    "return { $p.name, $p.age } }\n" + NAMES + "\n" + ADD
)
VECTOR = "query near($v: Vector(3)) { match { $p: Person } return { $p.name as name } }"
TEXTS = {name: QUERIES for name in ("about", "names", "add")} | {"near": VECTOR}
IF_COMMIT = "Omnigraph-If-Graph-Commit"
NOT_FOUND = {"error": "stored query not found", "code": "not_found"}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Served]:
    uri = new_graph(tmp_path)
    with served(uri, extras={"people": GraphExtras(queries=TEXTS)}) as running:
        yield running


def test_every_stored_query_is_listed_with_its_parameters(server: Served) -> None:
    catalog: Any = checked(server.get("/queries"), wire.QueryCatalog)
    entries = {each["name"]: each for each in catalog["queries"]}
    assert list(entries) == ["about", "add", "names", "near"]
    assert entries["about"] == {
        "name": "about",
        "tool_name": "about",
        "description": "One person.",
        "instruction": "Ask by name.",
        "mutation": False,
        "params": [
            {"name": "n", "kind": "string", "nullable": False},
            {"name": "big", "kind": "bigint", "nullable": True},
            {"name": "on", "kind": "date", "nullable": True},
            {"name": "tags", "kind": "list", "item_kind": "string", "nullable": True},
        ],
    }
    assert entries["add"]["mutation"] is True
    assert [p["kind"] for p in entries["add"]["params"]] == ["string", "int"]
    assert entries["near"]["params"][0] == {
        "name": "v",
        "kind": "vector",
        "vector_dim": 3,
        "nullable": False,
    }
    assert "description" not in entries["names"]


def test_a_stored_read_answers_as_a_query_does(server: Served) -> None:
    asked = server.answer("/query", {"query": NAMES}, wire.ReadOutput)
    assert server.answer("/queries/names", {}, wire.ReadOutput) == asked
    assert checked(server.client.post(f"{server.base}/queries/names"), wire.ReadOutput) == asked
    big = {"n": "Ada", "big": "9007199254740993", "on": "2026-01-02", "tags": ["x"], "more": 1}
    body = {"params": big, "branch": "main", "expect_mutation": False}
    asked_for = server.answer("/queries/about", body, wire.ReadOutput)
    assert asked_for["rows"] == [{"p.name": "Ada", "p.age": 36}]
    past = server.answer("/queries/names", {"snapshot": asked["graph_commit_id"]}, wire.ReadOutput)
    assert past["target"] == {"branch": None, "snapshot": asked["graph_commit_id"]}


def test_a_stored_read_comes_as_arrow_or_csv_too(server: Served) -> None:
    media = "application/vnd.apache.arrow.stream"
    answer = server.post("/queries/names", {}, headers={"Accept": media})
    assert answer.headers["content-type"] == media
    assert pa.ipc.open_stream(answer.content).read_all().column("name").to_pylist() == [
        "Ada",
        "Bob",
    ]
    assert (
        server.post("/queries/names", {}, headers={"Accept": "text/csv"}).text == "name\nAda\nBob\n"
    )


def test_a_stored_mutation_answers_as_a_mutation_does(server: Served) -> None:
    body = {"params": {"n": "Cid"}, "expect_mutation": True, "message": "Cid comes"}
    done = server.answer("/queries/add", body, wire.ChangeOutput)
    assert (done["query_name"], done["affected_nodes"]) == ("add", 1)
    assert server.graph.commits.get(done["commit"]["graph_commit_id"]).message == "Cid comes"
    assert server.names() == ["Ada", "Bob", "Cid"]
    server.graph.branches.create("draft")
    server.answer("/queries/add", {"params": {"n": "Dee"}, "branch": "draft"}, wire.ChangeOutput)
    assert server.names() == ["Ada", "Bob", "Cid"]
    assert "Dee" in server.names("draft")


@pytest.mark.parametrize(
    ("name", "body", "status", "text"),
    [
        ("nobody", {}, 404, "stored query not found"),
        ("nobody", {"params": 7}, 404, "stored query not found"),
        ("About", {}, 404, "stored query not found"),
        ("about", {}, 400, "parameter 'n' not provided"),
        ("about", {"params": {"n": 7}}, 400, "expected string"),
        ("about", {"params": {"n": "A", "big": "9223372036854775808"}}, 400, "exceeds I64"),
        ("about", {"params": {"n": "A", "on": "soon"}}, 400, "date"),
        ("about", {"params": []}, 400, ""),
        ("names", {"expect_mutation": True}, 400, "'names' is a read — use omnigraph query names"),
        ("add", {"expect_mutation": False}, 400, "'add' is a mutation — use omnigraph mutate add"),
        ("add", {"snapshot": "main"}, 400, "stored mutation cannot target a snapshot"),
        ("names", {"branch": "main", "snapshot": "main"}, 400, "not both"),
        ("names", {"branch": "nowhere"}, 404, "nowhere"),
        ("near", {"params": {"v": [1, 2]}}, 400, "expected 3 numbers"),
    ],
)
def test_what_cannot_be_run_is_refused(
    server: Served, name: str, body: Any, status: int, text: str
) -> None:
    answer = server.post(f"/queries/{name}", body)
    assert answer.status_code == status, answer.text
    assert text in answer.json()["error"]
    assert server.names() == ["Ada", "Bob"]


def test_a_stored_mutation_may_depend_on_the_head(server: Served) -> None:
    head = server.graph.snapshot().commit_id
    path, body = "/queries/add/if-graph-commit", {"params": {"n": "Cid"}}
    assert server.post(path, body).json()["error"].endswith("conditional mutation route")
    assert server.post("/queries/add", body, headers={IF_COMMIT: head}).status_code == 400
    read = server.post("/queries/names/if-graph-commit", {}, headers={IF_COMMIT: head})
    assert read.status_code == 400
    gone = server.post("/queries/gone/if-graph-commit", {}, headers={IF_COMMIT: head})
    assert gone.json() == NOT_FOUND
    done = server.post(path, body, headers={IF_COMMIT: head})
    assert done.status_code == 200
    late = server.post(path, {"params": {"n": "Dee"}}, headers={IF_COMMIT: head})
    assert late.status_code == 412
    assert late.json()["precondition_failure"]["expected"] == head
    assert server.names() == ["Ada", "Bob", "Cid"]


def test_a_key_belongs_to_one_stored_query(server: Served) -> None:
    headers = {"Idempotency-Key": "k1"}
    body = {"params": {"n": "Cid"}}
    first = server.post("/queries/add", body, headers=headers)
    again = server.post("/queries/add", body, headers=headers)
    assert again.headers["idempotent-replay"] == "true"
    assert again.json()["commit"]["graph_commit_id"] == first.json()["commit"]["graph_commit_id"]
    other = server.post("/queries/add", {"params": {"n": "Dee"}}, headers=headers)
    assert other.status_code == 422
    assert server.names() == ["Ada", "Bob", "Cid"]


def test_stored_mutations_count_as_writes_of_an_actor(tmp_path: Path) -> None:
    uri = new_graph(tmp_path)
    extras = {"people": GraphExtras(queries=TEXTS)}
    with served(uri, extras=extras, access=Access.TRUSTED) as running:
        headers = {"Authorization": f"Bearer {TOKENS['act-ada']}", **JSON}
        done = running.post("/queries/add", {"params": {"n": "Cid"}}, headers=headers)
        assert done.json()["actor_id"] == "act-ada"
        assert running.post("/queries/names", {}).status_code == 401


def test_the_client_runs_stored_queries(server: Served) -> None:
    with og.connect(server.url, graph="people") as graph:
        entries = graph.stored_queries.list()
        assert [each.name for each in entries] == ["about", "add", "names", "near"]
        assert entries[1].mutation
        rows = graph.stored_queries.query("about", {"n": "Ada"})
        assert rows.rows == [{"p.name": "Ada", "p.age": 36}]
        done = graph.stored_queries.mutate("add", {"n": "Cid"})
        assert done.affected_nodes == 1
        with pytest.raises(og.NotFound):
            graph.stored_queries.query("gone")
        with pytest.raises(og.BadRequest, match="is a mutation"):
            graph.stored_queries.query("add", {"n": "Dee"})
        with pytest.raises(og.PreconditionFailed):
            graph.stored_queries.mutate("add", {"n": "Dee"}, if_commit=done.commit.parent)
    assert server.names() == ["Ada", "Bob", "Cid"]


def test_a_graph_whose_stored_queries_are_broken_is_not_served(tmp_path: Path) -> None:
    one, two = new_graph(tmp_path, "one"), new_graph(tmp_path, "two")
    broken = {
        "one": GraphExtras(queries={"q": "query q() { match { $p: Nobody } return { $p.x } }"})
    }
    graphs = ServedGraphs({"one": one, "two": two}, broken)
    faults = graphs.open_all(require_all=False)
    assert list(faults) == ["one"]
    assert "stored query 'q'" in faults["one"]
    assert graphs.readiness() == {"one": False, "two": True}
    graphs.close()
    with pytest.raises(og.BadRequest, match="stored query 'q'"):
        ServedGraphs({"one": one, "two": two}, broken).open_all(require_all=True)


def test_a_provider_whose_key_is_missing_quarantines_its_graph(tmp_path: Path) -> None:
    one, two = new_graph(tmp_path, "one"), new_graph(tmp_path, "two")
    profile = {"kind": "openai", "api_key": "${NO_SUCH_KEY_HERE}"}
    graphs = ServedGraphs(
        {"one": one, "two": two}, {"one": GraphExtras(profile=profile)}, {"x": "y"}
    )
    faults = graphs.open_all(require_all=False)
    assert "NO_SUCH_KEY_HERE" in faults["one"]
    assert faults["x"] == "y"
    assert graphs.readiness() == {"one": False, "two": True, "x": False}
    graphs.close()
    with pytest.raises(og.BadRequest, match="'x' cannot be served: y"):
        ServedGraphs({"two": two}, {}, {"x": "y"}).open_all(require_all=True)


def test_a_graph_of_a_cluster_embeds_with_its_own_provider(tmp_path: Path) -> None:
    uri = str(tmp_path / "docs.omni")
    schema = 'node Doc {\n  title: String @key\n  v: Vector(4)? @embed(title, model="m1")\n}\n'
    with og.init(uri, schema) as graph:
        graph.mutate('query a() { insert Doc { title: "x", v: [1, 0, 0, 0] } }')
    near = (
        "query near($q: String) { match { $d: Doc } return { $d.title as t } "
        "order { nearest($d.v, $q) } limit 1 }"
    )
    extras = {"docs": GraphExtras(queries={"near": near}, profile={"kind": "mock", "model": "m1"})}
    with served(uri, extras=extras) as running:
        assert running.post("/queries/near", {"params": {"q": "x"}}).json()["rows"] == [{"t": "x"}]


def test_a_schema_of_a_cluster_is_changed_by_the_cluster(tmp_path: Path) -> None:
    with served(new_graph(tmp_path), cluster=str(tmp_path)) as running:
        answer = running.post("/schema/apply", {"schema_source": SCHEMA})
        assert answer.status_code == 409
        assert answer.json()["code"] == "conflict"
        assert "cluster apply" in answer.json()["error"]


def test_settings_reach_a_worker_whole() -> None:
    extras = {"a": GraphExtras({"q": "t"}, {"kind": "mock"}, ("s3://b/",), "p")}
    settings = ServerSettings({"a": "x"}, extras=extras, quarantined={"b": "why"}, cluster="c")
    again = ServerSettings.from_json(settings.to_json())
    assert again.quarantined == {"b": "why"}
    assert again.extras["a"].queries == {"q": "t"}
    assert tuple(again.extras["a"].blob_bases) == ("s3://b/",)


def test_folders_of_queries_are_given_to_graphs(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "q.gq").write_text(NAMES)
    one, two = str(tmp_path / "one.omni"), str(tmp_path / "two.omni")
    folder, other = str(tmp_path / "a"), str(tmp_path / "b")
    assert set_of_graphs([one], [], [folder]).extras["one"].queries == {"names": NAMES}
    assert set_of_graphs([one], ["x"], [f"x={folder}"]).extras["x"].queries == {"names": NAMES}
    both = set_of_graphs([one, two], [], [f"one={folder}", f"two={other}"])
    assert set(both.extras) == {"one", "two"}
    assert set_of_graphs([one, two], [], [f"one={folder}"]).extras.keys() == {"one"}
    for uris, folders in (
        ([one, two], [folder]),
        ([one, two], [f"three={folder}"]),
        ([one], [folder, other]),
        ([one], [str(tmp_path / "none")]),
    ):
        with pytest.raises(og.BadRequest):
            set_of_graphs(uris, [], folders)


def test_a_cluster_is_made_into_settings(tmp_path: Path) -> None:
    config = TWO_GRAPHS + "  under_score: { schema: knowledge.pg }\n"
    cluster = Cluster(tmp_path, config)
    with pytest.raises(og.BadRequest, match="cluster_state_missing"):
        set_of_cluster(str(tmp_path))
    cluster.applied()
    made = set_of_cluster(str(tmp_path))
    assert made.graphs == {name: cluster.uri(name) for name in ("knowledge", "notes")}
    assert set(made.extras["knowledge"].queries) == {"find", "add"}
    assert list(made.quarantined) == ["under_score"]
    assert made.cluster == str(tmp_path)
    assert not made.has_policy


GRANTS = """\
version: 1
groups: { callers: [act-ada], writers: [act-bob] }
rules:
  - { id: a, allow: { actors: { group: callers }, actions: [invoke_query, read] } }
  - { id: b, allow: { actors: { group: writers }, actions: [read, change] } }
"""


def test_a_policy_hides_stored_queries_from_those_who_may_not_invoke_them(tmp_path: Path) -> None:
    uri = new_graph(tmp_path)
    extras = {"people": GraphExtras(queries=TEXTS, policy=GRANTS)}
    with served(uri, extras=extras, access=Access.READ_ONLY) as running:
        ada, bob = (
            {"Authorization": f"Bearer {TOKENS[a]}", **JSON} for a in ("act-ada", "act-bob")
        )
        body = {"params": {"n": "Cid"}}
        assert running.post("/queries/names", {}, headers=ada).status_code == 200
        denied = running.post("/queries/add", body, headers=ada)
        assert denied.status_code == 403
        assert "'change'" in denied.json()["error"]
        for name in ("names", "add", "gone"):
            assert running.post(f"/queries/{name}", body, headers=bob).json() == NOT_FOUND
            path = f"/queries/{name}/if-graph-commit"
            assert running.post(path, body, headers={**bob, IF_COMMIT: "x"}).json() == NOT_FOUND
        assert running.names() == ["Ada", "Bob"]
        assert running.get("/queries", headers=bob).status_code == 200
