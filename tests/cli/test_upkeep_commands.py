"""Looking after a graph from a terminal."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lance
import pytest

import omnigraph as og
from omnigraph.errors import RecoveryRequired
from omnigraph.graph import Graph
from omnigraph.storage import failpoints
from omnigraph.storage.manifest import manifest
from tests.cli.program import run
from tests.exec.upkeep_world import PERSON, add, foreign_append, fragments, made


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody counts versions here, so that cleanup need not wait."""
    monkeypatch.setattr(manifest, "RECLAIM_AGE_S", 0.0)


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[Graph]:
    with made(tmp_path / "g.omni", 4) as graph:
        yield graph


def told(*arguments: str, status: int = 0) -> dict[str, Any]:
    done = run(*arguments, "--json")
    assert done.returncode == status, done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def dataset(document: dict[str, Any], key: str = PERSON) -> dict[str, Any]:
    found: dict[str, Any] = next(d for d in document["datasets"] if d["type_key"] == key)
    return found


def test_optimize_tells_what_it_did(graph: Graph) -> None:
    done = run("optimize", graph.uri, "--as", "act-me")
    assert done.returncode == 0, done.stderr
    assert f"omnigraph optimize → {graph.uri} (direct, local)" in done.stderr
    assert "node:Person: 4 -> 1 fragment(s)" in done.stdout
    assert "node:Place: in order, 0 fragment(s)" in done.stdout
    assert done.stdout.splitlines()[-1] == f"committed {graph.commits.list()[0].id}"
    assert graph.commits.list()[0].actor == "act-me"
    assert "nothing to commit" in run("optimize", "--store", graph.uri).stdout


def test_optimize_as_json(graph: Graph) -> None:
    document = told("optimize", graph.uri)
    assert document["uri"] == graph.uri
    person = dataset(document)
    assert (person["fragments_removed"], person["fragments_added"]) == (4, 1)
    assert (person["committed"], person["skipped"]) == (True, None)
    assert person["published_dataset_version"] == person["lance_head_version"]
    assert {
        "property": "face",
        "reason": "240 of the 256 vectors that make an index worth training",
    } in (person["pending_indexes"])
    assert dataset(document, "__manifest")["fragments_added"] == 1
    assert fragments(graph) == 1


def test_repair_shows_a_write_that_stopped_half_way_and_changes_nothing(graph: Graph) -> None:
    with failpoints.armed("publish.before"), pytest.raises(RecoveryRequired):
        add(graph, 1_000, 1_005)
    graph.close()
    for _ in range(2):  # looking settles nothing
        person = dataset(told("repair", graph.uri))
        assert (person["classification"], person["action"]) == ("pending", "recover")
        assert person["lance_head_version"] > person["published_dataset_version"]
    done = run("repair", graph.uri)
    assert done.returncode == 0
    assert "pending: would recover: recovery required for operation " in done.stdout
    assert "pass --confirm" in done.stderr
    assert dataset(told("repair", graph.uri, "--confirm"))["action"] == "none"
    assert "no drift" in run("repair", graph.uri).stdout


def test_repair_previews_and_exits_with_what_it_refuses(graph: Graph) -> None:
    assert "no drift" in run("repair", graph.uri).stdout
    foreign_append(graph, 1000, 1001)
    document = told("repair", graph.uri, status=1)
    person = dataset(document)
    assert (person["classification"], person["action"]) == ("suspicious", "refused")
    assert person["operations"] == ["Append"]
    assert (document["confirm"], document["force"]) == (False, False)
    assert document["graph_manifest_version"] == graph.snapshot().manifest_version
    done = run("repair", graph.uri, "--force")
    assert done.returncode == 0
    assert "suspicious: would undo" in done.stdout
    assert "nothing was changed" in done.stderr
    assert dataset(told("repair", graph.uri, "--confirm", "--force"))["action"] == "undo"
    lance.dataset(
        f"{graph.uri}/{graph.snapshot().tables[PERSON].location}"
    ).optimize.compact_files()
    assert "verified_maintenance: heal" in run("repair", graph.uri, "--confirm").stdout
    add(graph, 2000, 2001)


def test_repair_moves_a_deletion_file_that_check_finds_misplaced(graph: Graph) -> None:
    graph.branches.create("b")
    graph.mutate("query q() { delete Person where age >= 1 }", branch="b")
    before = graph.query("query q() { match { $p: Person } return { count(*) as n } }", branch="b")
    [right, *others] = sorted(Path(graph.uri).glob("nodes/*/tree/b/_deletions/*"))
    for path in (right, *others):
        wrong = path.parents[3] / "_deletions" / path.name
        wrong.parent.mkdir(exist_ok=True)
        path.rename(wrong)
    graph.close()
    done = run("check", graph.uri)
    assert done.returncode == 1
    assert "ERROR deletion-misplaced node:Person: version " in done.stdout
    assert "help: run `omnigraph repair`" in done.stdout
    preview = run("repair", graph.uri)
    assert preview.returncode == 0
    assert f"misplaced_file: would move: {right.relative_to(graph.uri)}" in preview.stdout
    assert "nothing was changed" in preview.stderr
    document = told("repair", graph.uri, "--confirm")
    [moved] = [d for d in document["datasets"] if (d["branch"], d["type_key"]) == ("b", PERSON)]
    assert (moved["classification"], moved["action"]) == ("misplaced_file", "move")
    assert moved["files"] == [str(path.relative_to(graph.uri)) for path in (right, *others)]
    assert document["commits"] == []
    assert run("check", graph.uri).returncode == 0
    with og.open(graph.uri) as again:
        text = "query q() { match { $p: Person } return { count(*) as n } }"
        assert again.query(text, branch="b").rows == before.rows


def test_cleanup_needs_a_policy_and_a_yes(graph: Graph) -> None:
    assert run("cleanup", graph.uri).returncode == 2
    preview = run("cleanup", graph.uri, "--keep", "2", "--grace", "0s")
    assert (preview.returncode, preview.stdout) == (0, "")
    assert "policy: keep the newest 2 commit(s) of each branch" in preview.stderr
    assert "2 commit(s) stay, 3 go" in preview.stderr
    assert "nothing was removed" in preview.stderr
    document = told("cleanup", graph.uri, "--keep", "2", "--grace", "0s", "--confirm")
    assert (document["keep_versions"], document["older_than_secs"]) == (2, None)
    assert dataset(document)["old_versions_removed"] == 3
    assert dataset(document)["bytes_removed"] > 0
    assert dataset(document)["error"] is None
    again = told("cleanup", graph.uri, "--older-than", "7d", "--confirm")
    assert again["older_than_secs"] == 604_800
    assert told("cleanup", graph.uri, "--keep", "9", "--older-than", "90")["older_than_secs"] == 90


def test_cleanup_of_a_remote_graph_asks(graph: Graph) -> None:
    done = run("cleanup", "s3://bucket/g.omni", "--keep", "1", "--confirm")
    assert done.returncode == 1
    assert "pass --yes" in done.stderr


def test_check_exits_with_what_it_finds(graph: Graph) -> None:
    done = run("check", graph.uri)
    assert done.returncode == 0, done.stdout
    assert done.stdout == "OK    1 branch(es), 3 table(s), 480 row(s), 0 finding(s)\n"
    foreign_append(graph, 1000, 1001)
    done = run("check", graph.uri)
    assert done.returncode == 1
    assert done.stdout.startswith("ERROR head-ahead node:Person: its head 6 on main")
    assert "help: run `omnigraph repair`" in done.stdout
    document = told("check", "--store", graph.uri, status=1)
    assert not document["ok"]
    [finding] = document["findings"]
    assert finding["code"] == "head-ahead"
    assert finding["facts"] == {"branch": "main", "published": 5, "head": 6}


def test_check_of_a_graph_that_cannot_be_opened(graph: Graph) -> None:
    (Path(graph.uri) / "_schema.ir.json").unlink()
    done = run("check", graph.uri)
    assert done.returncode == 1
    assert "ERROR schema the schema" in done.stdout


def test_check_with_a_query_is_still_the_older_lint(tmp_path: Path) -> None:
    schema, query = tmp_path / "s.pg", tmp_path / "q.gq"
    schema.write_text("node A { name: String @key }")
    query.write_text("query q() { match { $a: A } return { $a.name } }")
    done = run("check", "--schema", str(schema), "--query", str(query))
    assert done.returncode == 0
    assert "is now 'omnigraph lint'" in done.stderr


@pytest.mark.parametrize("verb", ["optimize", "repair", "cleanup", "check"])
def test_help_says_what_a_command_does(verb: str) -> None:
    done = run(verb, "--help")
    assert done.returncode == 0
    assert "--json" in done.stdout


def test_a_preview_of_cleanup_says_why_each_commit_stays(graph: Graph) -> None:
    graph.branches.create("side")
    point = graph.snapshot().commit_id
    for number in range(6):
        add(graph, 1000 + number, 1001 + number)
    head, oldest = graph.snapshot().commit_id, graph.commits.list()[5].id
    done = run("cleanup", graph.uri, "--keep", "6", "--grace", "0")
    assert done.returncode == 0, done.stderr
    lines = done.stderr.splitlines()
    (first,) = (line for line in lines if line.startswith(f"stays {head} "))
    assert first.endswith(" main  head of main; among the newest of main")
    (forked,) = (line for line in lines if line.startswith(f"stays {point} "))
    assert "branch point of side" in forked
    assert "merge base of main and side" in forked
    assert any(f"… and 4 older ones, down to {oldest} " in line for line in lines), "grouped"
    document = told("cleanup", graph.uri, "--keep", "6", "--grace", "0")
    kept = {each["graph_commit_id"]: each for each in document["kept"]}
    assert len(kept) == document["commits_kept"]
    assert [each["reason"] for each in kept[head]["reasons"]] == ["head", "keep"]
    named = [each["names"] for each in kept[point]["reasons"] if each["reason"] == "merge_base"]
    assert named == [["main", "side"]]
    assert document["consumers_lapsed"] == []


def test_a_feed_consumer_from_registration_to_lapse(graph: Graph) -> None:
    uri = graph.uri
    assert run("changes", "consumer", "add", "mirror", uri).returncode == 2, "a lag is needed"
    added = run("changes", "consumer", "add", "mirror", uri, "--max-lag-commits", "2")
    assert added.stdout.startswith("registered feed consumer mirror on main at "), added.stderr
    assert run("changes", "consumer", "add", "mirror", uri, "--max-lag", "7d").returncode == 1
    first = add(graph, 1000, 1001)
    document = told("changes", "poll", uri, "--consumer", "mirror")
    assert [b["cause"]["graph_commit_id"] for b in document["blocks"]] == [first]
    (shown,) = told("changes", "consumer", "list", uri)["consumers"]
    assert (shown["name"], shown["behind_commits"], shown["state"]) == ("mirror", 1, "active")
    strange = run("changes", "consumer", "ack", "mirror", "--cursor", "-abc", uri)
    assert "change cursor rejected" in strange.stderr, "a cursor may begin with a dash"
    acked = run("changes", "consumer", "ack", "mirror", "--cursor", document["cursor"], uri)
    assert f"acknowledged {first}" in acked.stdout, acked.stderr
    second = add(graph, 1001, 1002)
    shown_again = run("changes", "poll", uri, "--consumer", "mirror", "--ack")
    assert second in shown_again.stdout
    assert "(no new commits)" in run("changes", "poll", uri, "--consumer", "mirror").stdout
    for number in range(3):
        add(graph, 1010 + number, 1011 + number)
    done = run("cleanup", uri, "--keep", "1", "--grace", "0", "--confirm", "--yes")
    assert "feed consumer mirror lost its claim" in done.stderr
    lapsed = run("changes", "poll", uri, "--consumer", "mirror")
    assert lapsed.returncode == 1
    assert "changes baseline --consumer mirror" in lapsed.stderr
    out = str(Path(uri).parent / "all.jsonl")
    taken = told("changes", "baseline", uri, "--consumer", "mirror", "--out", out)
    again = run("changes", "consumer", "ack", "mirror", "--cursor", taken["resume_cursor"], uri)
    assert again.returncode == 0, again.stderr
    assert "active" in run("changes", "consumer", "list", uri).stdout
    assert run("changes", "consumer", "remove", "mirror", uri).returncode == 0
    assert run("changes", "consumer", "list", uri).stdout == "(no feed consumers)\n"
    assert run("changes", "poll", uri, "--ack").returncode == 2


def test_a_backup_from_a_terminal(graph: Graph, tmp_path: Path) -> None:
    graph.branches.create("side")
    add(graph, 1000, 1003, branch="side")
    target = str(tmp_path / "copy.omni")
    preview = told("backup", graph.uri, target, "--dry-run")
    assert (preview["dry_run"], preview["files_reused"], preview["findings"]) == (True, 0, None)
    assert not Path(target).exists()
    done = run("backup", graph.uri, target)
    assert done.returncode == 0, done.stderr
    assert f"omnigraph backup → {target} (direct, local)" in done.stderr
    files = preview["files_copied"]
    first, last = done.stdout.splitlines()
    assert first.startswith(f"copied {files} file(s), {preview['bytes_copied']} bytes; 0 file(s)")
    assert last == f"OK    {target}: 2 branch(es) checked"
    again = told("backup", graph.uri, target, "--no-check", "--quiet")
    assert (again["files_copied"], again["files_reused"]) == (0, files)
    assert set(again["heads"]) == {"main", "side"}
    assert "was not checked" in run("backup", graph.uri, target, "--no-check").stdout
    refused = run("backup", target, graph.uri)
    assert refused.returncode == 1
    assert "it is no backup" in refused.stderr
