"""`omnigraph review`, and `branch merge` with checks, as commands."""

import json
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from tests.cli.program import run

SCHEMA = "node Person { name: String @key  age: I32? }"
OLD = "query old() { match { $p: Person  $p.age > 99 } return { $p.name as name } }"
POLICY = """
version: 1
groups: { people: [ada, bob] }
rules:
  - { id: r, allow: { actors: { group: people }, actions: [read, branch_merge, review] } }
required_approvals: { main: 1 }
checks: [{ target: main, query: old }]
"""


@pytest.fixture
def uri(tmp_path: Path) -> str:
    with og.init(tmp_path / "g.omni", schema=SCHEMA) as graph:
        graph.branches.create("work")
        graph.mutate('query a() { insert Person { name: "Old", age: 120 } }', branch="work")
        return graph.uri


def document(*words: str, status: int = 0) -> Any:
    done = run(*words, "--json")
    assert done.returncode == status, done.stderr
    return json.loads(done.stdout)


def test_a_review_from_the_terminal(uri: str) -> None:
    opened = document("review", "open", "work", uri, "--title", "T", "--as", "ada", "--quiet")
    assert (opened["state"], opened["author_id"], opened["target"]) == ("open", "ada", "main")
    name = opened["id"]
    document("review", "comment", name, "why", uri, "--on", "Person/Old", "--as", "bob", "--quiet")
    approved = document("review", "approve", "work", uri, "--as", "bob", "--quiet")
    assert approved["approvals"][0]["is_current"]
    assert approved["comments"][0]["entity_id"] == "Old"
    stale = run("review", "approve", "work", uri, "--as", "bob", "--at", "01ABC", "--quiet")
    assert stale.returncode == 1
    assert "error:" in stale.stderr
    document("review", "open", "work", uri, "--quiet")
    several = run("review", "show", "work", uri)
    assert several.returncode == 1
    assert "several reviews of 'work' are open" in several.stderr
    assert document("review", "close", name, uri, "--quiet")["state"] == "closed"
    listed = document("review", "list", uri, "--state", "open")["reviews"]
    assert [each["title"] for each in listed] == ["Merge work"]
    assert document("review", "merge", "work", uri, "--quiet")["outcome"] == "fast_forward"
    assert document("review", "show", "work", uri)["state"] == "merged"
    for words in (
        ("review", "show", "nope", uri),
        ("review", "comment", name, "x", uri, "--on", "Person"),
        ("review", "comment", name, "x", uri, "--edge"),
        ("review", "merge", name, uri),
    ):
        assert run(*words).returncode in (1, 2)


def test_declared_checks_and_approvals_hold_at_the_terminal(uri: str, tmp_path: Path) -> None:
    policy, folder = tmp_path / "p.yaml", tmp_path / "queries"
    policy.write_text(POLICY)
    folder.mkdir()
    (folder / "q.gq").write_text(OLD)
    as_ada = ("--policy", str(policy), "--as", "ada", "--quiet")
    denied = run("branch", "merge", "work", uri, *as_ada)
    assert denied.returncode == 1
    assert "needs 1 approval(s) and has 0" in denied.stderr
    document("review", "open", "work", uri, *as_ada)
    document("review", "approve", "work", uri, "--policy", str(policy), "--as", "bob", "--quiet")
    missing = run("branch", "merge", "work", uri, *as_ada)
    assert "query 'old', which is not stored" in missing.stderr
    queries = ("--queries", str(folder))
    for words in (("branch", "merge"), ("review", "merge")):
        failed = document(*words, "work", uri, *queries, *as_ada, status=1)
        assert failed["failed_checks"] == [
            {"query": "old", "row_count": 1, "rows": [{"name": "Old"}]}
        ]
        shown = run(*words, "work", uri, *queries, *as_ada)
        assert 'old: {"name": "Old"}' in shown.stderr
        assert "fails its checks: 'old' gives 1 row(s)" in shown.stderr
    (folder / "q.gq").write_text(OLD.replace("99", "199"))
    (tmp_path / "own.gq").write_text(OLD)
    given = ("--check", str(tmp_path / "own.gq"), *queries)
    assert document("review", "merge", "work", uri, *given, *as_ada, status=1)["failed_checks"]
    assert document("review", "merge", "work", uri, *queries, *as_ada)["outcome"] == "fast_forward"
