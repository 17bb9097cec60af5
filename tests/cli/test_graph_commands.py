"""The commands that open a graph: made, branched, looked at."""

import json
import re
from pathlib import Path

import pytest

from omnigraph.storage.names import MAIN
from tests.cli.program import SCHEMA, document, lines, run


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a graph in it."""
    assert lines("init", "--schema", SCHEMA, "g.omni", cwd=tmp_path) == ["initialized g.omni"]
    return tmp_path


def test_init_does_not_touch_a_graph_that_is_there(folder: Path) -> None:
    before = document("commit", "list", "g.omni", cwd=folder)
    done = run("init", "--schema", SCHEMA, "g.omni", cwd=folder)

    assert done.returncode == 1
    assert "already exists" in done.stderr
    assert document("commit", "list", "g.omni", cwd=folder) == before


def test_a_place_without_a_graph_is_one_sentence(tmp_path: Path) -> None:
    for command in (["snapshot"], ["commit", "list"], ["branch", "list"], ["recoveries"]):
        done = run(*command, "none.omni", cwd=tmp_path)
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr.startswith("error: ")
        assert "Traceback" not in done.stderr


def test_a_graph_can_be_named_in_four_ways(folder: Path) -> None:
    for arguments in (
        ["branch", "list", "g.omni"],
        ["branch", "list", "--uri", "g.omni"],
        ["branch", "list", "--store", "g.omni"],
        ["--store", "g.omni", "branch", "list"],
    ):
        assert [line.split()[0] for line in lines(*arguments, cwd=folder)] == [MAIN]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("snapshot",), "name a graph"),
        (("snapshot", "g.omni", "--store", "g.omni"), "mutually exclusive"),
        (("snapshot", "http://localhost:1", "--store", "g.omni"), "mutually exclusive"),
    ],
)
def test_a_graph_is_named_exactly_once(
    arguments: tuple[str, ...], message: str, folder: Path
) -> None:
    done = run(*arguments, cwd=folder)

    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr


def test_a_branch_is_forked_listed_and_dropped(folder: Path) -> None:
    done = run("branch", "create", "--from", "main", "review/x", "./g.omni", cwd=folder)
    assert done.stdout == "created branch review/x from main\n"
    assert done.stderr == "omnigraph branch create → ./g.omni (direct, local)\n"
    assert document("branch", "create", "review", "g.omni", "--quiet", cwd=folder) == {
        "uri": "g.omni",
        "from": "main",
        "name": "review",
        "actor_id": None,
    }
    listed = document("branch", "list", "g.omni", cwd=folder)
    assert listed["branches"] == ["main", "review", "review/x"]
    assert lines("branch", "delete", "review/x", "g.omni", cwd=folder) == [
        "deleted branch review/x"
    ]
    shown = lines("branch", "list", "g.omni", cwd=folder)
    assert [line.split()[0] for line in shown] == ["main", "review"]


def test_branches_are_listed_with_their_heads_and_distances(folder: Path) -> None:
    add = 'query add() { insert Company { name: "%s" } }'
    run("branch", "create", "fix", "g.omni", cwd=folder)
    for name in ("Dee", "Eve"):
        words = ("-e", add % name, "--branch", "fix", "--as", "act-a")
        assert run("mutate", "g.omni", *words, cwd=folder).returncode == 0
    assert run("mutate", "g.omni", "-e", add % "Fay", cwd=folder).returncode == 0
    details = document("branch", "list", "g.omni", cwd=folder)["details"]
    heads = {
        name: document("commit", "show", name, "g.omni", cwd=folder) for name in ("fix", "main")
    }
    assert details == [
        {
            "name": name,
            "graph_commit_id": heads[name]["graph_commit_id"],
            "created_at": heads[name]["created_at"],
            "actor_id": heads[name]["actor_id"],
            "ahead": ahead,
            "behind": behind,
        }
        for name, ahead, behind in (("fix", 2, 1), ("main", 0, 0))
    ]
    fix, main = lines("branch", "list", "g.omni", cwd=folder)
    assert re.split(" {2,}", fix) == [
        "fix",
        heads["fix"]["graph_commit_id"][:10],
        "just now",
        "act-a",
        "2 ahead, 1 behind",
    ]
    assert main.split() == ["main", heads["main"]["graph_commit_id"][:10], "just", "now", "-"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("create", "main"), "cannot create branch 'main'"),
        (("create", " "), "branch name cannot be empty"),
        (("create", "x", "--from", "nowhere"), "branch 'nowhere' not found"),
        (("delete", "main"), "cannot delete branch 'main'"),
        (("delete", "nowhere"), "branch 'nowhere' not found"),
    ],
)
def test_a_branch_that_cannot_be_is_refused(
    arguments: tuple[str, ...], message: str, folder: Path
) -> None:
    done = run("branch", *arguments, "--store", "g.omni", "--quiet", cwd=folder)

    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"error: {message}")


def test_the_history_starts_with_one_commit(folder: Path) -> None:
    (commit,) = document("commit", "list", "g.omni", cwd=folder)["commits"]

    assert list(commit) == [
        "graph_commit_id",
        "graph_branch",
        "graph_manifest_version",
        "parent_commit_id",
        "merged_parent_commit_id",
        "actor_id",
        "created_at",
        "message",
        "metadata",
        "counts",
    ]
    identity = commit["graph_commit_id"]
    assert lines("commit", "list", "g.omni", "--verbose", cwd=folder) == [
        f"{identity} graph_branch=main graph_manifest_version=1"
    ]
    (line,) = lines("commit", "list", "g.omni", cwd=folder)
    assert re.fullmatch(rf"{identity[:10]}  [-\d]+ [:\d]+Z  -  \(main\)", line)
    show = ("commit", "show", identity, "g.omni")
    assert document(*show, cwd=folder) == commit
    assert f"graph_commit_id: {identity}" in lines(*show, "--verbose", cwd=folder)
    assert lines(*show, cwd=folder)[:2] == [f"commit: {identity}", "names: main"]
    nobody = document("commit", "list", "g.omni", "--filter", "actor=nobody", cwd=folder)
    assert nobody == {"commits": []}


def test_a_snapshot_names_every_type(folder: Path) -> None:
    snapshot = document("snapshot", "g.omni", cwd=folder)

    assert snapshot["internal_schema_version"] == 4
    assert [(d["entity_kind"], d["type_name"]) for d in snapshot["datasets"]] == [
        ("edge", "Knows"),
        ("edge", "WorksAt"),
        ("edge", "Wrote"),
        ("node", "Company"),
        ("node", "Doc"),
        ("node", "Person"),
    ]
    assert (
        "node type 'Person' published_dataset_version=1 native_dataset_branch=main entities=0"
        in (lines("snapshot", "g.omni", cwd=folder))
    )


def test_recoveries_are_empty_at_rest(folder: Path) -> None:
    assert document("recoveries", "g.omni", cwd=folder) == {"recoveries": []}
    assert lines("recoveries", "g.omni", cwd=folder) == []


def test_the_schema_can_be_shown_and_a_change_planned(folder: Path) -> None:
    text = Path(SCHEMA).read_text("utf-8")
    assert document("schema", "show", "g.omni", cwd=folder) == {"schema_source": text}
    assert document("schema", "get", "g.omni", cwd=folder) == {"schema_source": text}
    (folder / "next.pg").write_text(text + "\nnode Extra { note: String }\n", "utf-8")

    plan = document("schema", "plan", "g.omni", "--schema", "next.pg", cwd=folder)
    assert list(plan) == ["uri", "supported", "step_count", "steps"]
    assert (plan["supported"], plan["step_count"]) == (True, 1)
    assert lines("schema", "plan", "g.omni", "--schema", "next.pg", cwd=folder) == [
        "schema plan for g.omni",
        "supported: yes",
        "- add node type 'Extra'",
    ]


def test_a_schema_is_applied_as_one_commit(folder: Path) -> None:
    text = Path(SCHEMA).read_text("utf-8") + "\nnode Extra { note: String }\n"
    (folder / "next.pg").write_text(text, "utf-8")
    apply = ("schema", "apply", "g.omni", "--schema", "next.pg")
    commits = document("commit", "list", "g.omni", cwd=folder)["commits"]
    done = run(*apply, "--as", "act-a", cwd=folder)
    assert done.returncode == 0
    assert done.stdout.splitlines() == [
        "schema apply for g.omni",
        "supported: yes",
        "applied: yes",
        "graph_manifest_version: 2",
        "- add node type 'Extra'",
    ]
    assert done.stderr == "omnigraph schema apply → g.omni (direct, local)\n"
    assert lines("schema", "get", "g.omni", cwd=folder) == text.rstrip("\n").split("\n")
    after = document("commit", "list", "g.omni", cwd=folder)["commits"]
    assert len(after) == len(commits) + 1
    assert after[0]["actor_id"] == "act-a"
    newest, oldest = lines("commit", "list", "g.omni", cwd=folder)
    assert newest.endswith("act-a  (main)  [schema: add node type 'Extra']")
    assert "[schema" not in oldest
    assert lines("commit", "list", "g.omni", "--limit", "1", cwd=folder) == [newest]
    assert "schema: add node type 'Extra'" in lines("commit", "show", "main", "g.omni", cwd=folder)
    drawn = lines("commit", "list", "--graph", "g.omni", cwd=folder)[0]
    assert drawn.endswith("[schema: add node type 'Extra']")
    step = {
        "kind": "add_type",
        "type_kind": "node",
        "name": "Extra",
        "text": "add node type 'Extra'",
    }
    assert after[0]["schema_steps"] == [step]
    assert "schema_steps" not in after[1]
    assert document("commit", "show", "main", "g.omni", cwd=folder)["schema_steps"] == [step]
    assert lines(*apply, cwd=folder)[2:] == [
        "applied: no",
        "graph_manifest_version: 2",
        "no schema changes",
    ]
    assert document(*apply, "--quiet", cwd=folder) == {
        "uri": "g.omni",
        "supported": True,
        "applied": False,
        "step_count": 0,
        "graph_manifest_version": 2,
        "steps": [],
    }


def test_a_schema_that_cannot_be_applied_is_one_sentence(folder: Path) -> None:
    text = Path(SCHEMA).read_text("utf-8")
    (folder / "next.pg").write_text(text.replace("age: I32?", "age: U32?"), "utf-8")
    apply = ("schema", "apply", "g.omni", "--schema", "next.pg", "--quiet")
    done = run(*apply, cwd=folder)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("error: [OG-MF-106] node:Person.age: ")
    plan = document("schema", "plan", "g.omni", "--schema", "next.pg", cwd=folder)
    assert (plan["supported"], plan["steps"][0]["code"]) == (False, "OG-MF-106")
    narrower = text.replace("@range(age, 0..150)", "@range(age, 0..99)")
    (folder / "next.pg").write_text(narrower, "utf-8")
    lines("branch", "create", "review", "g.omni", cwd=folder)
    done = run(*apply, cwd=folder)
    assert (done.returncode, done.stdout) == (1, "")
    assert "there is 'review'" in done.stderr


def test_queries_are_checked_against_a_graph(folder: Path) -> None:
    (folder / "q.gq").write_text("query q() { match { $c: Company } return { $c.name } }", "utf-8")
    for graph in (["g.omni"], ["--store", "g.omni"]):
        report = document("lint", "--query", "q.gq", *graph, cwd=folder)
        assert report["schema_source"] == {"kind": "graph", "uri": "g.omni"}
        assert (report["status"], report["queries_processed"]) == ("ok", 1)

    plan = lines("explain", "--query", "q.gq", "--store", "g.omni", cwd=folder)
    assert plan == lines("explain", "--query", "q.gq", "--schema", SCHEMA, cwd=folder)

    (folder / "q.gq").write_text("query q() { match { $c: Robot } return { $c } }", "utf-8")
    done = run("lint", "--query", "q.gq", "g.omni", cwd=folder)
    assert done.returncode == 1
    assert "T1: unknown node type 'Robot'" in done.stdout


def test_a_schema_is_shown_planned_applied_and_compared_on_a_branch(folder: Path) -> None:
    text = document("schema", "show", "g.omni", cwd=folder)["schema_source"]
    wider = text + "\nnode Topic { key: String @key  size: I32 = 1 }\n"
    (folder / "next.pg").write_text(wider)
    lines("branch", "create", "b", "g.omni", "--quiet", cwd=folder)
    on = ("g.omni", "--schema", "next.pg", "--branch", "b")
    assert lines("schema", "plan", *on, cwd=folder)[-1] == "- add node type 'Topic'"
    applied = document("schema", "apply", *on, "--quiet", cwd=folder)
    assert applied["applied"] is True
    shown = document("schema", "show", "g.omni", "--branch", "b", cwd=folder)
    assert shown == {"schema_source": wider}
    assert document("schema", "show", "g.omni", cwd=folder) == {"schema_source": text}
    assert lines("schema", "diff", "g.omni", "--branch", "b", cwd=folder) == [
        "- add node type 'Topic'"
    ]
    assert lines("schema", "diff", "main", "b", "g.omni", cwd=folder) == ["- add node type 'Topic'"]
    assert lines("schema", "diff", "b", "main", "g.omni", cwd=folder) == [
        "- drop node type 'Topic'"
    ]
    assert lines("schema", "diff", "main", "main", "g.omni", cwd=folder) == ["no schema changes"]
    alone = run("schema", "diff", "b", cwd=folder)
    assert (alone.returncode, "BEFORE AFTER" in alone.stderr) == (2, True)
    told = document("schema", "diff", "g.omni", "--branch", "b", "--against", "b", cwd=folder)
    assert (told["from"], told["to"], told["step_count"]) == ("b", "b", 0)
    lines("branch", "merge", "b", "g.omni", "--quiet", cwd=folder)
    assert document("schema", "show", "g.omni", cwd=folder) == {"schema_source": wider}


def test_a_check_is_against_one_schema(folder: Path) -> None:
    (folder / "q.gq").write_text("query q() { match { $c: Company } return { $c } }", "utf-8")
    neither = run("lint", "--query", "q.gq", cwd=folder)
    both = run("lint", "--query", "q.gq", "--schema", SCHEMA, "g.omni", cwd=folder)

    assert (neither.returncode, both.returncode) == (2, 2)
    assert "pass --schema FILE, or name a graph" in neither.stderr
    assert "mutually exclusive" in both.stderr


def test_a_required_property_is_applied_with_values(folder: Path) -> None:
    text = Path(SCHEMA).read_text("utf-8").replace("age: I32?", "age: I32?  handle: String")
    (folder / "next.pg").write_text(text, "utf-8")
    to = ("g.omni", "--schema", "next.pg")
    assert lines("schema", "plan", *to, cwd=folder)[1] == "supported: no"
    filled = (*to, "--backfill", "Person.handle='@' || name")
    (step,) = document("schema", "plan", *filled, cwd=folder)["steps"]
    assert (step["kind"], step["backfill"]) == ("add_property", "'@' || name")
    done = run("schema", "apply", *to, "--backfill", "handle", cwd=folder)
    assert (done.returncode, done.stdout) == (2, "")
    assert "TYPE.PROPERTY=EXPR" in done.stderr
    assert lines("schema", "apply", *filled, "--quiet", cwd=folder)[-1] == (
        "- add property 'Person.handle' (String) on node 'Person' filled with '@' || name"
    )


def test_a_schema_change_of_a_branch_is_in_its_diff_and_in_the_preview_of_its_merge(
    folder: Path,
) -> None:
    text = Path(SCHEMA).read_text("utf-8") + "\nnode Extra { note: String }\n"
    (folder / "next.pg").write_text(text, "utf-8")
    run("branch", "create", "wider", "g.omni", cwd=folder)
    applied = ("schema", "apply", "g.omni", "--schema", "next.pg", "--branch", "wider")
    assert run(*applied, cwd=folder).returncode == 0
    line = "schema: add node type 'Extra'"
    assert lines("diff", "main", "wider", "g.omni", cwd=folder) == [
        line,
        "main → wider: 1 schema step",
    ]
    assert lines("diff", "main", "wider", "g.omni", "--format", "stat", cwd=folder) == [line]
    steps = document("diff", "main", "wider", "g.omni", cwd=folder)["schema_steps"]
    assert [step["text"] for step in steps] == ["add node type 'Extra'"]
    [record] = lines("diff", "main", "wider", "g.omni", "--format", "jsonl", cwd=folder)
    assert json.loads(record) == {"kind": "schema", "step": steps[0]}
    merge = ("branch", "merge", "wider", "g.omni", "--dry-run")
    assert lines(*merge, cwd=folder)[1:] == [line]
    assert document(*merge, cwd=folder)["schema_steps"] == steps
    changes = ("commit", "changes", "wider", "g.omni")
    assert line in lines(*changes, cwd=folder)
    assert document(*changes, cwd=folder)["cause"]["schema_steps"] == steps
    opened = document("review", "open", "wider", "g.omni", "--title", "Extra", cwd=folder)
    assert opened["schema_steps"] == steps
    assert line in lines("review", "show", opened["id"], "g.omni", cwd=folder)
    assert line in lines("branch", "merge", "wider", "g.omni", cwd=folder)
