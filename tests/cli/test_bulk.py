"""`omnigraph load` and `omnigraph export`."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from omnigraph.cli.app import app
from tests.exec.bulk import edge, lines, new_graph, person

runner = CliRunner()


@pytest.fixture
def uri(tmp_path: Path) -> str:
    new_graph(tmp_path)
    (tmp_path / "in.jsonl").write_bytes(lines(person("Ada"), edge("Knows", "Ada", "Ada", id="k")))
    return str(tmp_path / "graph.omni")


def run(*words: str, data: bytes = b"") -> Result:
    return runner.invoke(app, list(words), input=data)


def test_a_load_says_what_it_did(uri: str, tmp_path: Path) -> None:
    file = str(tmp_path / "in.jsonl")
    done = run("load", uri, "--data", file, "--mode", "append", "--engine", "local")
    assert done.exit_code == 0
    text = (
        f"loaded {uri} on branch main with append: 2 entities across 1 node types and 1 edge types"
    )
    assert done.stdout == text + "\n"
    assert "engine" not in done.stderr
    words = ("load", uri, "--data", file, "--mode", "merge", "--engine", "local", "--verbose")
    assert "ran on the local engine" in run(*words).stderr


@pytest.mark.parametrize("typed", [(), ("--type", "Person")])
def test_a_load_into_a_missing_branch_names_the_option_that_creates_it(
    uri: str, tmp_path: Path, typed: tuple[str, ...]
) -> None:
    file = str(tmp_path / "in.jsonl")
    done = run("load", uri, "--data", file, "--mode", "merge", "--branch", "fresh", *typed)
    assert done.exit_code == 1
    assert "branch 'fresh' not found; pass --from to create it" in done.stderr


def test_the_json_of_a_load(uri: str, tmp_path: Path) -> None:
    words = [
        "load",
        "--store",
        uri,
        "--data",
        str(tmp_path / "in.jsonl"),
        "--mode",
        "merge",
        "--json",
    ]
    found = json.loads(run(*words, "--engine", "local").stdout)
    assert list(found) == [
        "uri", "branch", "mode", "branch_created", "nodes", "edges", "total_entities", "commit",
    ]  # fmt: skip
    assert found["nodes"] == [{"name": "Person", "entities_loaded": 1}]
    assert found["commit"]["graph_commit_id"]
    found = json.loads(run(*words, "--branch", "x", "--from", "main", "--engine", "local").stdout)
    assert (found["base_branch"], found["branch_created"]) == ("main", True)


FINE = person("Cy", seen="2024-01-31T10:00:00.123456Z")


def test_a_load_that_cut_moments_says_so(uri: str, tmp_path: Path) -> None:
    file = tmp_path / "fine.jsonl"
    file.write_bytes(lines(FINE, person("Di", seen="1969-12-31T23:59:59.9999Z"), person("Ed")))
    words = ("load", uri, "--data", str(file), "--engine", "local", "--mode", "merge")
    said = run(*words)
    assert said.stdout.splitlines()[1:] == ["rounded 2 values of Person.seen to milliseconds"]
    assert json.loads(run(*words, "--json").stdout)["rounded"] == {"Person.seen": 2}
    file.write_bytes(lines(FINE))
    ingest = ("ingest", uri, "--data", str(file))
    assert run(*ingest).stdout.splitlines()[-1] == "rounded 1 value of Person.seen to milliseconds"
    assert json.loads(run(*ingest, "--json").stdout)["rounded"] == {"Person.seen": 1}


def test_a_mutation_that_cut_a_moment_says_so(uri: str) -> None:
    text = 'query add($t: DateTime) { insert Person { name: "x", seen: $t } }'
    words = ("mutate", "--store", uri, "-e", text, "--params")
    fine, whole = '{"t": "2024-01-31T10:00:00.123456Z"}', '{"t": "2024-01-31T10:00:00.123Z"}'
    said = run(*words, fine).stdout.splitlines()
    assert said[1:] == ["rounded 1 value of Person.seen to milliseconds"]
    assert json.loads(run(*words, fine, "--json").stdout)["rounded"] == {"Person.seen": 1}
    assert len(run(*words, whole).stdout.splitlines()) == 1
    assert "rounded" not in json.loads(run(*words, whole, "--json").stdout)


def test_a_key_that_comes_twice_counts_once_or_is_refused(uri: str, tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_bytes(lines(person("Ada", age=1), person("Ada", age=2)))
    words = ("load", uri, "--data", str(tmp_path / "in.jsonl"), "--engine", "local", "--mode")
    refused = run(*words, "merge", "--on-duplicate", "refuse")
    assert refused.exit_code == 1
    assert "'Ada' comes twice" in refused.stderr
    assert run(*words, "append", "--on-duplicate", "last").exit_code == 1
    assert run(*words, "merge", "--on-duplicate", "first").exit_code == 2
    for more in ((), ("--on-duplicate", "last")):
        assert run(*words, "merge", *more).exit_code == 0
    text = "query q() { match { $p: Person } return { $p.age } }"
    shown = run("query", "--store", uri, "-e", text, "--format", "jsonl").stdout
    assert '"p.age":2' in shown.replace(" ", "")


def test_the_mode_is_required_and_failures_are_plain(uri: str, tmp_path: Path) -> None:
    assert run("load", uri, "--data", "x.jsonl").exit_code == 2
    missing = run("load", uri, "--data", str(tmp_path / "x.jsonl"), "--mode", "append")
    assert (missing.exit_code, missing.stdout) == (1, "")
    assert "input file" in missing.stderr
    words = ("load", uri, "--data", "-", "--mode", "append", "--engine", "local")
    bad = run(*words, data=b"{oops\n")
    assert bad.exit_code == 1
    assert "line 1: malformed JSON" in bad.stderr


def test_an_export_is_what_load_reads(uri: str, tmp_path: Path) -> None:
    words = ("load", uri, "--mode", "overwrite", "--engine", "local", "--data")
    assert run(*words, str(tmp_path / "in.jsonl")).exit_code == 0
    out = run("export", uri)
    assert out.stdout.splitlines()[0] == (
        '{"edge":"Knows","from":"Ada","to":"Ada","data":{"id":"k","since":null}}'
    )
    assert run(*words, "-", data=out.stdout_bytes).exit_code == 0
    assert run("export", uri).stdout == out.stdout
    assert len(run("export", uri, "--type", "Person").stdout.splitlines()) == 1
    unknown = run("export", uri, "--type", "Nope")
    assert unknown.exit_code == 1
    assert "unknown export type 'Nope'" in unknown.stderr


def test_an_ingest_forgives_and_warns(uri: str, tmp_path: Path) -> None:
    file = tmp_path / "old.json"
    file.write_text(
        '{"type": "Person",\n "data": {"name": "Bob", "age": "old", "unknown": 1}}\n'
        '{"edge": "Knows", "from": "Bob", "to": "Bob"}',
        "utf-8",
    )
    done = run("ingest", uri, "--data", str(file), "--branch", "side")
    assert done.exit_code == 0, done.stderr
    assert done.stdout.splitlines() == [
        f"ingested 2 entities from {uri} into branch side from main with merge (branch created)",
        "node type 'Person': 1",
        "edge type 'Knows': 1",
    ]
    assert "warning: 'omnigraph ingest' is now 'omnigraph load'" in done.stderr
    exported = json.loads(run("export", uri, "--branch", "side", "--type", "Person").stdout)
    assert (exported["data"]["name"], exported["data"]["age"]) == ("Bob", None)

    words = ("ingest", "--store", uri, "--data", str(file), "--as", "act-me", "--json")
    found = json.loads(run(*words).stdout)
    assert list(found) == [
        "uri", "branch", "base_branch", "branch_created", "mode", "nodes", "edges",
        "total_entities", "actor_id", "commit",
    ]  # fmt: skip
    assert (found["base_branch"], found["branch_created"]) == ("main", False)
    assert found["actor_id"] == found["commit"]["actor_id"] == "act-me"


def test_a_patch_says_what_was_new(uri: str, tmp_path: Path) -> None:
    file = str(tmp_path / "in.jsonl")
    assert run("load", uri, "--data", file, "--mode", "append", "--engine", "local").exit_code == 0
    (tmp_path / "in.jsonl").write_bytes(lines(person("Ada", age=3), person("Bob")))
    words = ("load", uri, "--data", file, "--mode", "patch", "--engine", "local")
    done = run(*words)
    assert done.stdout.endswith("1 node types and 0 edge types, 1 inserted, 1 updated\n")
    answer = json.loads(run(*words, "--json").stdout)
    assert (answer["mode"], answer["inserted"], answer["updated"]) == ("patch", 0, 2)


def test_edges_beside_equal_ones_are_told(uri: str, tmp_path: Path) -> None:
    file = tmp_path / "w.jsonl"
    file.write_bytes(
        lines(
            person("Cy"),
            {"type": "Log", "data": {"id": "l", "text": "t"}},
            edge("Wrote", "Cy", "l"),
        )
    )
    words = ("load", uri, "--data", str(file), "--mode", "merge", "--engine", "local")
    assert "beside equal" not in run(*words).stdout
    assert "1 Wrote edge was added beside equal ones; a @key(src, dst)" in run(*words).stdout


def test_schema_check_suggests_a_key(tmp_path: Path) -> None:
    file = tmp_path / "s.pg"
    file.write_text("node A { k: String @key }\nedge E: A -> A\n")
    done = run("schema", "check", str(file))
    assert "hint: edge E has no properties and no key: @key(src, dst)" in done.stderr
    answer = json.loads(run("schema", "check", str(file), "--json").stdout)
    assert [each["key"] for each in answer["suggestions"]] == ["@key(src, dst)"]


def test_indexes_of_a_load_are_told_and_can_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMNIGRAPH_INDEX_ROWS_MIN", "1")
    uri = str(new_graph(tmp_path).uri)
    (tmp_path / "in.jsonl").write_bytes(lines(person("Ada")))
    words = ["load", uri, "--data", str(tmp_path / "in.jsonl"), "--engine", "local"]
    later = run(*words, "--mode", "merge", "--indexes", "later")
    assert "indexed" not in later.stdout
    assert run(*words, "--mode", "merge", "--indexes", "soon").exit_code == 2
    now = run(*words, "--mode", "merge")
    assert "\nindexed Person." in now.stdout
    found = json.loads(run(*words, "--mode", "overwrite", "--json").stdout)["indexes"]
    assert found["graph_commit_id"]
    assert {"table": "node:Person", "property": "name", "kind": "ordered"} in found["built"]
