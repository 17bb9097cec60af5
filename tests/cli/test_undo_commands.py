"""Revert and restore at a terminal: previews, outcomes, conflicts and their answers."""

import json
from pathlib import Path

import pytest

import omnigraph as og
from tests.cli.program import document, lines, run

SCHEMA = """
node Person { name: String @key  age: I32? }
edge Knows: Person -> Person
"""
SET = 'query q() {{ update Person set {{ age: {} }} where name = "{}" }}'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A graph whose newest commit set Ada's age to 99 and brought Dan."""
    with og.init(tmp_path / "g.omni", SCHEMA) as graph:
        graph.mutate(
            """query q() { insert Person { name: "Ada", age: 36 } insert Person { name: "Bob" }
            insert Knows { from: "Ada", to: "Bob" } }"""
        )
        people = [
            {"type": "Person", "data": {"name": n, "age": a}} for n, a in (("Ada", 99), ("Dan", 1))
        ]
        graph.load(people, "merge")
    return tmp_path


def age(folder: Path, name: str) -> object:
    with og.open(folder / "g.omni", read_only=True) as graph:
        text = "query a($n: String) { match { $p: Person { name: $n } } return { $p.age as a } }"
        return [row["a"] for row in graph.query(text, {"n": name}).rows]


def head(folder: Path) -> str:
    return str(document("commit", "list", "g.omni", cwd=folder)["commits"][0]["graph_commit_id"])


def test_a_revert_is_shown_first_and_then_done(folder: Path) -> None:
    bad = head(folder)
    seen = lines("revert", "main", "g.omni", "--dry-run", cwd=folder)
    assert seen == [f"would revert {bad} on main", "node Person  +0 ~1 -1"]
    assert head(folder) == bad
    done = lines("revert", bad[:12], "g.omni", "-m", "wrong file", "--as", "act-me", cwd=folder)
    assert done == [f"reverted {bad} on main", "node Person  +0 ~1 -1", f"commit {head(folder)}"]
    assert (age(folder, "Ada"), age(folder, "Dan")) == ([36], [])
    with og.open(folder / "g.omni", read_only=True) as graph:
        commit = graph.commits.get(head(folder))
    assert (commit.message, commit.actor) == ("wrong file", "act-me")
    [said] = lines("revert", bad, "g.omni", cwd=folder)
    assert said == f"nothing to revert: nothing that commit {bad} changed is left on the branch"


def test_a_preview_as_json_has_every_entity(folder: Path) -> None:
    seen = document("revert", "main", "g.omni", "--dry-run", cwd=folder)
    assert (seen["outcome"], seen["dry_run"], seen["graph_commit_id"]) == ("reverted", True, None)
    assert seen["changes"] == [
        {"kind": "node", "type_name": "Person", "id": "Ada", "op": "update"},
        {"kind": "node", "type_name": "Person", "id": "Dan", "op": "delete"},
    ]
    assert seen["merge_conflicts"] == []
    seen = document("restore", "main~1", "g.omni", "--types", "Person", "--dry-run", cwd=folder)
    assert (seen["outcome"], len(seen["changes"])) == ("restored", 2)
    done = document("restore", "main~1", "g.omni", cwd=folder)
    assert done["graph_commit_id"] == head(folder)
    assert "changes" not in done


def test_conflicts_of_a_revert_are_shown_and_decided(folder: Path) -> None:
    bad = head(folder)
    with og.open(folder / "g.omni") as graph:
        graph.mutate(SET.format(50, "Ada"))
    for words in (("--dry-run",), ()):
        refused = run("revert", bad, "g.omni", "--quiet", *words, cwd=folder)
        assert refused.returncode == 1
        assert "divergent_update: node Person Ada" in refused.stderr
        assert "1 conflict (1 divergent_update); nothing was reverted" in refused.stderr
        assert "change main and revert again, or decide:" in refused.stderr
    told = run("revert", bad, "g.omni", "--dry-run", "--json", cwd=folder)
    assert told.returncode == 1
    assert json.loads(told.stdout)["outcome"] == "conflicts"
    assert json.loads(told.stdout)["merge_conflicts"][0]["entity_id"] == "Ada"
    lines("revert", bad, "g.omni", "--resolve", 'Person/Ada={"age": 40}', cwd=folder)
    assert age(folder, "Ada") == [40]


def test_a_range_and_what_is_no_range(folder: Path) -> None:
    with og.open(folder / "g.omni") as graph:
        graph.mutate(SET.format(50, "Ada"))
    ids = [
        c["graph_commit_id"] for c in document("commit", "list", "g.omni", cwd=folder)["commits"]
    ]
    done = lines("revert", "main~2..main", "g.omni", cwd=folder)
    assert done[0] == f"reverted {ids[2]}..{ids[0]} on main"
    assert age(folder, "Ada") == [36]
    assert run("revert", "main~2..", "g.omni", cwd=folder).returncode == 2
    assert run("restore", "main", "g.omni", "--types", ",", cwd=folder).returncode == 2


def test_a_restore_of_types_that_breaks_a_rule_says_so(folder: Path) -> None:
    with og.open(folder / "g.omni") as graph:
        graph.mutate('query q() { delete Person where name = "Bob" }')
    refused = run("restore", "main~1", "g.omni", "--types", "Knows", "--quiet", cwd=folder)
    assert refused.returncode == 1
    assert "1 conflict (1 orphan_edge); nothing was restored" in refused.stderr
    assert "restore the types that these belong to as well" in refused.stderr
    lines("restore", "main~1", "g.omni", "--types", "Knows,Person", cwd=folder)
    assert age(folder, "Bob") == [None]


def test_a_schema_change_is_refused_with_the_steps_that_undo_it(folder: Path) -> None:
    (folder / "next.pg").write_text(SCHEMA.replace("age: I32?", "age: I32?  nick: String?"))
    lines("schema", "apply", "--schema", "next.pg", "g.omni", cwd=folder)
    refused = run("revert", "main", "g.omni", "--quiet", cwd=folder)
    assert refused.returncode == 1
    assert "changed the schema" in refused.stderr
    assert "nick" in refused.stderr


def test_a_merge_is_previewed_with_the_edges_that_an_answer_keeps(folder: Path) -> None:
    with og.open(folder / "g.omni") as graph:
        graph.branches.create("b")
        graph.mutate('query q() { delete Person where name = "Bob" }', branch="b")
        graph.mutate(SET.format(7, "Bob"))
    before = head(folder)
    assert run("branch", "merge", "b", "g.omni", "--dry-run", cwd=folder).returncode == 1
    words = ("branch", "merge", "b", "g.omni", "--resolve", "Person/Bob=ours")
    seen = lines(*words, "--dry-run", cwd=folder)
    assert seen[:2] == ["would merge b into main: merged", "no changes"]
    assert seen[2].startswith("keeps edge Knows ")
    assert seen[2].endswith("(Ada -> Bob) with node Person Bob")
    assert head(folder) == before
    assert lines(*words, cwd=folder) == ["merged b into main: merged", seen[2]]
