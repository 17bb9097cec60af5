"""`omnigraph cluster`, `queries` and `--cluster` at a terminal: what they print, how they end."""

import json
from pathlib import Path

import pytest

from omnigraph.server.serve_settings import GraphExtras
from tests.cli.program import run
from tests.cluster.world import ONE_GRAPH, QUERIES, SCHEMA, TWO_GRAPHS, WIDER, Cluster
from tests.server.world import ADD, NAMES, new_graph, served


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "home"
    folder.mkdir()
    monkeypatch.setenv("OMNIGRAPH_HOME", str(folder))
    monkeypatch.delenv("OMNIGRAPH_PROFILE", raising=False)
    return folder


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    return Cluster(tmp_path / "c", TWO_GRAPHS)


def test_a_cluster_from_its_file_to_its_deletion(cluster: Cluster) -> None:
    here = ("--config", str(cluster.folder))
    done = run("cluster", "validate", *here)
    assert done.stdout == "cluster config valid: 6 resource(s), 6 dependency edge(s)\n"
    done = run("cluster", "plan", *here)
    first, *rest = done.stdout.splitlines()
    assert first == "cluster plan: 6 change(s), 0 approval gate(s)"
    assert rest[0] == "+ graph.knowledge applied"
    assert rest[-1].startswith("WARN  state_missing ")
    refused = run("cluster", "apply", *here)
    assert refused.returncode == 1
    assert "ERROR state_missing " in refused.stdout
    assert run("cluster", "import", *here).stdout.startswith(
        "cluster state: revision 1, 0 resource"
    )
    done = run("cluster", "apply", *here, "--as", "act-ada")
    assert done.returncode == 0
    assert done.stdout.startswith("cluster apply: 6 applied, 0 deferred/blocked\n")
    assert "converged: yes" in done.stdout
    done = run("cluster", "status", cwd=cluster.folder)
    assert done.stdout.startswith("cluster state: revision 2, 6 resource(s)\napplied  graph.knowl")
    cluster.write("knowledge.pg", WIDER)
    cluster.write("knowledge.pg", "node Person { name: String @key }\nnode Other { n: I64 @key }\n")
    cluster.write("queries/people.gq", "query all() { match { $p: Person } return { $p.name } }")
    planned = run("cluster", "plan", *here).stdout.splitlines()
    assert "    - add node type 'Other'" in planned
    step = "    - drop property 'Person.age' of node 'Person' (soft mode)  [destructive]"
    assert step in planned
    cluster.write("queries/people.gq", QUERIES)
    cluster.write("knowledge.pg", WIDER)
    planned = run("cluster", "plan", *here).stdout
    assert "    1 migration step(s), supported: yes\n    - add " in planned
    cluster.write("cluster.yaml", ONE_GRAPH)
    waiting = run("cluster", "apply", *here)
    assert waiting.returncode == 0
    assert "- graph.notes blocked (approval_required)" in waiting.stdout
    assert "WARN  approval_required graph.notes: " in waiting.stdout
    assert run("cluster", "approve", "graph.notes", *here).returncode == 1
    done = run("cluster", "approve", "graph.notes", *here, "--as", "act-ada")
    assert done.stdout.startswith("cluster approve: delete of graph.notes approved by act-ada (")
    done = run("cluster", "apply", *here, "--json")
    document = json.loads(done.stdout)
    assert document["converged"]
    assert "actor" not in document
    assert run("cluster", "refresh", *here).returncode == 0
    assert run("cluster", "force-unlock", "x", *here).returncode == 1
    cluster.write("cluster.yaml", "version: 2\n")
    done = run("cluster", "validate", *here)
    assert done.returncode == 1
    assert done.stdout.startswith(
        "cluster config invalid\nERROR unsupported_cluster_config_version"
    )


def test_the_operator_of_the_settings_approves(cluster: Cluster, home: Path) -> None:
    (home / "config.yaml").write_text("operator: { actor: act-op }\n")
    cluster.applied()
    cluster.write("cluster.yaml", ONE_GRAPH)
    here = ("--config", str(cluster.folder))
    done = json.loads(run("cluster", "approve", "graph.notes", *here, "--json").stdout)
    assert done["approved_by"] == "act-op"


def test_commands_reach_a_graph_through_its_cluster(cluster: Cluster, home: Path) -> None:
    root = str(cluster.folder)
    (home / "config.yaml").write_text(
        f"clusters: {{ brain: {{ root: {root} }} }}\n"
        "profiles: { b: { cluster: brain, default_graph: notes } }\n"
    )
    missing = run("optimize", "--cluster", root)
    assert missing.returncode == 1
    assert "cluster_state_missing" in missing.stderr
    cluster.applied()
    for words in (
        ("--cluster", root, "--graph", "notes"),
        ("--cluster", "brain", "--graph", "notes"),
        ("--profile", "b"),
        ("--profile", "b", "--graph", "knowledge"),
    ):
        assert run("check", *words).returncode == 0, words
    assert run("branch", "list", "--profile", "b").stdout.startswith("main ")
    ambiguous = run("optimize", "--cluster", root)
    assert ambiguous.returncode == 1
    assert "knowledge, notes" in ambiguous.stderr
    assert run("optimize", cluster.uri(), "--cluster", root).returncode == 2
    assert run("query", "-e", NAMES, "--cluster", root).returncode == 2
    cluster.write("q.gq", "query q() { match { $p: Person } return { $p.name } }")
    query = str(cluster.folder / "q.gq")
    assert run("lint", "--query", query, "--cluster", root, "--graph", "notes").returncode == 0


def test_what_a_cluster_declares_is_not_changed_by_hand(cluster: Cluster) -> None:
    cluster.applied()
    schema = str(cluster.write("next.pg", WIDER))
    for words in (
        ("schema", "apply", "--schema", schema, cluster.uri()),
        ("init", "--schema", schema, cluster.uri("new")),
    ):
        done = run(*words)
        assert done.returncode == 1
        assert "omnigraph cluster apply" in done.stderr
    done = run("init", "--schema", schema, "graphs/new.omni", cwd=cluster.folder)
    assert done.returncode == 1
    assert not Path(cluster.uri("new")).exists()
    assert run("schema", "plan", "--schema", schema, cluster.uri()).returncode == 0


def test_stored_queries_are_listed_and_checked(cluster: Cluster) -> None:
    cluster.write(
        "queries/more.gq",
        'query near($v: Vector(3), $k: I32 = -5) @description("By vector.") '
        "{ match { $p: Person } return { $p.name } }",
    )
    cluster.applied()
    here = ("--cluster", str(cluster.folder), "--graph", "knowledge")
    assert run("queries", "list", *here).stdout == (
        "mutation  add($n: String, $a: I64?) [mcp: add]\n"
        "read  find($n: String) [mcp: find]\n"
        "read  near($v: Vector(3), $k: I32 = -5) [mcp: near]\n"
        "  description: By vector.\n"
    )
    listed = json.loads(run("queries", "list", *here, "--json").stdout)["queries"]
    assert listed[2] == {
        "name": "near",
        "mcp_expose": True,
        "tool_name": "near",
        "mutation": False,
        "description": "By vector.",
        "params": [
            {"name": "v", "type": "Vector(3)", "nullable": False},
            {"name": "k", "type": "I32", "nullable": False, "default": "-5"},
        ],
    }
    done = run("queries", "validate", *here)
    assert done.stdout.endswith("OK  3 stored queries type-check against the schema\n")
    assert "WARN  query 'near'" in done.stdout
    with cluster.graph() as graph:
        graph.schema.apply(SCHEMA.replace("  age: I32?\n", ""))
    broken = run("queries", "validate", *here)
    assert broken.returncode == 1
    assert broken.stdout.startswith("ERROR  query 'find': type error")
    document = json.loads(run("queries", "validate", *here, "--json").stdout)
    assert document["ok"] is False
    assert [each["query"] for each in document["breakages"]] == ["find"]
    assert run("queries", "list", *here).returncode == 1
    folder = ("--queries", str(cluster.folder / "queries"), "--store", cluster.uri("notes"))
    assert run("queries", "validate", *folder).returncode == 0
    assert run("queries", "list", *folder[:2], cluster.uri("notes")).returncode == 0
    assert run("queries", "validate").returncode == 2


def test_stored_queries_of_a_server_are_listed(tmp_path: Path, home: Path) -> None:
    params = "$v: Vector(3), $of: [String]?, $k: I32 = 5"
    near = f"query near({params}) {{ match {{ $p: Person }} return {{ $p }} }}"
    with served(
        new_graph(tmp_path), extras={"people": GraphExtras(queries={"add": ADD, "near": near})}
    ) as server:
        listed = run("queries", "list", "--server", server.url)
        assert listed.stdout == (
            "mutation  add($n: string, $a: int?) [mcp: add]\n"
            "read  near($v: vector(3), $of: [string]?, $k: int?) [mcp: near]\n"
        )
        url = f"{server.url}/graphs/people"
        document = json.loads(run("queries", "list", url, "--json").stdout)
        assert document["queries"][1]["params"][2] == {"name": "k", "type": "int", "nullable": True}
        checked = run("queries", "validate", url)
        assert (checked.returncode, "it checked" in checked.stderr) == (1, True)


def test_stored_queries_run_by_name_and_by_alias(tmp_path: Path, home: Path) -> None:
    extras = {"people": GraphExtras(queries={"names": NAMES, "add": ADD})}
    with served(new_graph(tmp_path), extras=extras) as server:
        where = ("--server", server.url, "--graph", "people")
        done = run("mutate", "add", "--params", '{"n": "Cid"}', "-m", "by name", *where)
        assert done.stdout.startswith("changed main via add: 1 nodes, 0 edges")
        assert server.graph.commits.list()[0].message == "by name"
        done = run("query", "names", "--format", "csv", *where)
        assert done.stdout == "name\nAda\nBob\nCid\n"
        wrong = run("query", "add", *where)
        assert wrong.returncode == 1
        assert "is a mutation" in wrong.stderr
        misspelt = run("query", "nmes", *where)
        assert "stored query 'nmes' not found; did you mean 'names'?" in misspelt.stderr
        assert run("mutate", "names", *where).returncode == 1
        assert run("mutate", "add", "--retry", "3", *where).returncode == 2
        late = run("mutate", "add", "--params", '{"n": "X"}', "--if-commit", "01JZ", *where)
        assert late.returncode == 4
        (home / "config.yaml").write_text(
            f"servers: {{ s: {{ url: {server.url} }} }}\n"
            "aliases: { who: { server: s, graph: people, query: names, format: csv } }\n"
        )
        assert run("alias", "who").stdout == "name\nAda\nBob\nCid\n"


def test_the_policy_of_a_cluster_is_checked_tested_and_explained(tmp_path: Path) -> None:
    bound = (
        "policies:\n  base: { file: base.yaml, applies_to: [knowledge] }\n"
        "  door: { file: door.yaml, applies_to: [cluster] }\n"
    )
    cluster = Cluster(tmp_path / "p", ONE_GRAPH + bound)
    rule = "version: 1\ngroups: {{ all: [act-ada] }}\nrules:\n"
    rule += "  - {{ id: r, allow: {{ actors: {{ group: all }}, actions: [{0}] }} }}\n"
    cluster.write("base.yaml", rule.format("read"))
    cluster.write("door.yaml", rule.format("graph_list"))
    here = ("--cluster", str(cluster.folder))
    missing = run("policy", "validate", *here)
    assert missing.returncode == 1
    assert "cluster_state_missing" in missing.stderr
    cluster.applied()
    for words in (here, (*here, "--graph", "knowledge")):
        done = run("policy", "validate", *words)
        assert (done.returncode, done.stdout) == (0, "policy valid: bundle 'base' [1 actors]\n")
    cases = cluster.folder / "cases.yaml"
    cases.write_text("version: 1\ncases: [{ id: a, actor: act-ada, action: read, expect: deny }]\n")
    tested = run("policy", "test", *here, "--tests", str(cases))
    assert (tested.returncode, "a: expected Deny but got allow" in tested.stdout) == (1, True)
    for action, decision in (("read", "allow"), ("change", "deny"), ("graph-list", "allow")):
        asked = run("policy", "explain", *here, "--actor", "act-ada", "--action", action)
        assert asked.stdout.startswith(f"decision: {decision}\n"), asked.stderr
    assert run("policy", "validate", "base.yaml", *here).returncode == 2
    other = run("policy", "validate", *here, "--graph", "notes")
    assert (other.returncode, "the cluster has: knowledge" in other.stderr) == (1, True)
