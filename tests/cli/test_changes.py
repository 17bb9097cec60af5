"""Changes and conflicts at a terminal: diffs, feeds, baselines, and merges that need a decision."""

import io
import json
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph.cli import change_text
from tests.cli.program import document, lines, run

SCHEMA = """
node Person {
    name: String @key
    age: I32?
    city: String?
}

edge Knows: Person -> Person {
    since: I32?
}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A graph `g.omni` whose branch `review` and main both went on."""
    graph = og.init(tmp_path / "g.omni", schema=SCHEMA)
    graph.mutate(
        """query q() { insert Person { name: "Ada", age: 36 } insert Person { name: "Bob" }
        insert Knows { from: "Ada", to: "Bob", since: 2010 } }"""
    )
    graph.branches.create("review")
    graph.mutate('query q() { update Person set { age: 37 } where name = "Ada" }', branch="review")
    graph.mutate('query q() { delete Person where name = "Bob" }', branch="review")
    graph.mutate('query q() { insert Person { name: "Cy", city: "Rome\\nX" } }', actor="act-me")
    return tmp_path


def conflicting(folder: Path) -> None:
    graph = og.open(folder / "g.omni")
    graph.mutate('query q() { update Person set { age: 38, city: "Bath" } where name = "Ada" }')
    graph.mutate('query q() { update Person set { age: 1 } where name = "Bob" }')


def edge_id(folder: Path) -> str:
    graph = og.open(folder / "g.omni", read_only=True)
    (edge,) = (r for r in graph.changes.baseline(kinds=["edge"]))
    return str(edge["data"]["id"])


# ---- diff


def test_a_diff_reads_like_a_diff(folder: Path) -> None:
    assert lines("diff", "main", "review", "g.omni", cwd=folder) == [
        "~ node Person Ada",
        "    age: 36 -> 37",
        "- node Person Bob",
        "    - name: Bob",
        "    - age: <null>",
        "    - city: <null>",
        "- node Person Cy",
        "    - name: Cy",
        "    - age: <null>",
        "    - city: Rome\\nX",
        f"- edge Knows {edge_id(folder)}",
        "    Ada -> Bob",
        "    - since: 2010",
        "main → review: 1 updated, 3 deleted",
    ]
    assert lines("diff", "main", "main", "g.omni", cwd=folder) == ["main → main: no changes"]


def test_a_diff_in_other_formats_and_narrowed(folder: Path) -> None:
    asked = ("diff", "main", "review", "--store", "g.omni")
    assert lines(*asked, "--format", "stat", cwd=folder) == [
        "node Person  +0 ~1 -2",
        "edge Knows  +0 ~0 -1",
    ]
    whole = document(*asked, cwd=folder)
    assert list(whole) == ["before", "after", "changes", "statistics"]
    assert whole["statistics"][0] == {
        "kind": "node",
        "type_name": "Person",
        "op": "update",
        "count": 1,
    }
    each = [json.loads(line) for line in lines(*asked, "--format", "jsonl", cwd=folder)]
    assert each == whole["changes"]
    narrow = document(*asked, "--op", "delete", "--kind", "node", "--type", "Person", cwd=folder)
    assert [change["id"] for change in narrow["changes"]] == ["Bob", "Cy"]
    commits = (whole["before"], whole["after"])
    assert document("diff", *commits, "g.omni", cwd=folder) == whole


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def test_only_a_terminal_gets_colours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert change_text.coloured("+ x", "insert", Terminal()) == "\x1b[32m+ x\x1b[0m"
    assert change_text.coloured("+ x", "insert", io.StringIO()) == "+ x"
    monkeypatch.setenv("NO_COLOR", "1")
    assert change_text.coloured("+ x", "insert", Terminal()) == "+ x"


# ---- commits and the feed


def test_the_changes_of_a_commit(folder: Path) -> None:
    commit = document("commit", "list", "g.omni", cwd=folder)["commits"][0]
    asked = ("commit", "changes", commit["graph_commit_id"], "g.omni")
    assert lines(*asked, cwd=folder) == [
        f"commit {commit['graph_commit_id']}",
        "branch: main",
        "actor: act-me",
        "insert node Person Cy",
        "  + name: Cy",
        "  + age: <null>",
        "  + city: Rome\\nX",
    ]
    told = document(*asked, cwd=folder)
    assert list(told) == ["cause", "changes"]
    assert told["cause"]["actor_id"] == "act-me"


def test_a_commit_is_shown_whole_or_a_page_at_a_time(folder: Path) -> None:
    first = document("commit", "list", "g.omni", cwd=folder)["commits"][1]["graph_commit_id"]
    asked = ("commit", "changes", first, "g.omni")
    whole = document(*asked, cwd=folder)
    assert [change["id"] for change in whole["changes"]][:2] == ["Ada", "Bob"]
    assert "next_page_token" not in whole
    page = document(*asked, "--limit", "1", cwd=folder)
    assert page["changes"] == whole["changes"][:1]
    assert "  + name: Ada" in lines(*asked, "--limit", "1", cwd=folder)
    second = document(*asked, "--limit", "1", "--page-token", page["next_page_token"], cwd=folder)
    assert [change["id"] for change in second["changes"]] == ["Bob"]
    rest = document(*asked, "--page-token", second["next_page_token"], cwd=folder)
    assert rest["changes"] == whole["changes"][2:]
    assert "next_page_token" not in rest


def test_a_moved_edge_shows_both_pairs_of_ends() -> None:
    knows = og.ChangedType("edge", "Knows", "2", ("since",))
    change = og.Change(knows, "e", "update", (None, "a", "b"), (1, "a", "d"))
    assert change.moved
    assert change.before == og.Image({"since": None}, ("a", "b"))
    assert list(change_text.change_lines(change)) == [
        "update edge Knows e",
        "  a -> b => a -> d",
        "  since: <null> -> 1",
    ]


def test_a_poll_goes_on_from_its_cursor(folder: Path) -> None:
    everything = document("changes", "poll", "g.omni", "--start", "beginning", cwd=folder)
    assert list(everything) == ["blocks", "cursor", "caught_up"]
    assert [len(block["changes"]) for block in everything["blocks"]] == [3, 1]
    assert everything["caught_up"] is True
    limited = ("changes", "poll", "g.omni", "--limit", "2")
    page = document(*limited, "--start", "beginning", cwd=folder)
    assert [len(block["changes"]) for block in page["blocks"]] == [2]
    assert (page["cursor"], page["caught_up"]) == (None, False)
    rest = document(*limited, "--page-token", page["next_page_token"], cwd=folder)
    assert [len(block["changes"]) for block in rest["blocks"]] == [1, 1]
    assert (rest["cursor"], rest["caught_up"]) == (everything["cursor"], True)
    shown = lines(*limited, "--start", "beginning", cwd=folder)
    assert shown[-2:] == [f"next_page_token: {page['next_page_token']}", "caught_up: false"]
    quiet = lines("changes", "poll", "g.omni", "--cursor", everything["cursor"], cwd=folder)
    assert quiet == ["(no new commits)", f"cursor: {everything['cursor']}", "caught_up: true"]
    conflicting(folder)
    more = lines("changes", "poll", "g.omni", "--cursor", everything["cursor"], cwd=folder)
    assert [line for line in more if line.startswith("update")] == [
        "update node Person Ada",
        "update node Person Bob",
    ]
    assert "  age: 36 -> 38" in more


def test_a_baseline_and_its_cursor(folder: Path) -> None:
    shown = lines("changes", "baseline", "g.omni", "--out", "out/b.jsonl", cwd=folder)
    assert [line.partition(": ")[0] for line in shown] == [
        "snapshot",
        "snapshot_commit_id",
        "resume_cursor",
    ]
    exported = lines("export", "g.omni", cwd=folder)
    assert (folder / "out" / "b.jsonl").read_text().splitlines() == exported
    asked = ("--type", "Person", "--op", "delete")
    taken = document("changes", "baseline", "g.omni", "--out", "b.jsonl", *asked, cwd=folder)
    assert list(taken) == ["snapshot_commit_id", "resume_cursor"]
    assert len((folder / "b.jsonl").read_text().splitlines()) == 3
    cursor = ("--cursor", taken["resume_cursor"])
    assert document("changes", "poll", "g.omni", *cursor, *asked, cwd=folder)["blocks"] == []
    refused = run("changes", "poll", "g.omni", *cursor, cwd=folder)
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "change cursor rejected:" in refused.stderr


@pytest.mark.parametrize(
    ("arguments", "status", "text"),
    [
        (("diff", "main", "nowhere", "g.omni"), 1, "branch or commit 'nowhere' not found"),
        (("diff", "main", "main", "g.omni", "--type", "Nobody"), 1, "type 'Nobody' not found"),
        (("diff", "main", "main", "g.omni", "--kind", "row"), 2, "--kind"),
        (("commit", "changes", "nothing", "g.omni"), 1, "commit 'nothing' not found"),
        (("changes", "poll", "g.omni", "--limit", "0"), 2, "--limit"),
        (("changes", "poll", "g.omni", "--limit", "9000"), 1, "commit_changes_page_changes"),
        (("changes", "poll", "g.omni", "--start", "now", "--cursor", "x"), 2, "exclusive"),
        (("changes", "poll", "g.omni", "--cursor", "x"), 1, "change cursor rejected:"),
        (("changes", "baseline", "g.omni"), 2, "--out"),
        (("branch", "merge", "review", "g.omni", "--resolve", "mine"), 2, "resolves nothing"),
        (("branch", "merge", "review", "g.omni", "--resolve", "a/b=c"), 2, "resolves nothing"),
        (("branch", "merge", "review", "g.omni", "--by", "row"), 2, "--by"),
    ],
)
def test_bad_input_is_one_message(
    folder: Path, arguments: tuple[str, ...], status: int, text: str
) -> None:
    done = run(*arguments, cwd=folder)
    assert (done.returncode, done.stdout) == (status, "")
    assert text in done.stderr
    assert "Traceback" not in done.stderr


# ---- merges that need a decision


def test_conflicts_are_shown_side_by_side_with_the_way_out(folder: Path) -> None:
    conflicting(folder)
    done = run("branch", "merge", "review", "g.omni", "--quiet", cwd=folder)
    assert (done.returncode, done.stdout) == (1, "")
    shown = done.stderr.splitlines()
    assert shown[:12] == [
        "divergent_update: node Person Ada",
        "        base    ours (main)  theirs (review)",
        "  age   36      38           37",
        "  city  <null>  Bath         <null>",
        "",
        "delete_vs_update: node Person Bob",
        "          base     ours (main)  theirs (review)",
        "  entity  (there)  (there)      (not there)",
        "  age     <null>   1",
        "",
        "2 conflicts (1 delete_vs_update, 1 divergent_update); nothing was merged",
        "change one side and merge again, or decide:",
    ]
    assert "--resolve 'Person/Ada=theirs'" in done.stderr
    assert (
        """  --resolve 'Person/Ada={"age": 37}'   set some properties, keep the others""" in shown
    )
    assert not any("--by property" in line for line in shown), "both changed the age"
    assert shown[-1].startswith("error: merge conflicts: node type 'Person', entity id 'Ada'")
    assert max(map(len, shown[:-1])) <= 80


def test_conflicts_as_a_server_tells_them(folder: Path) -> None:
    conflicting(folder)
    done = run("branch", "merge", "review", "g.omni", "--json", cwd=folder)
    told = json.loads(done.stdout)
    assert (done.returncode, list(told)) == (1, ["error", "code", "merge_conflicts"])
    assert told["code"] == "conflict"
    assert told["merge_conflicts"][0] == {
        "entity_kind": "node",
        "type_name": "Person",
        "entity_id": "Ada",
        "kind": "divergent_update",
        "message": "divergent update for id 'Ada'",
        "base": {"properties": {"name": "Ada", "age": 36, "city": None}},
        "source": {"properties": {"name": "Ada", "age": 37, "city": None}},
        "target": {"properties": {"name": "Ada", "age": 38, "city": "Bath"}},
    }
    assert "error: merge conflicts" in done.stderr


def test_conflicts_are_decided_at_the_terminal(folder: Path) -> None:
    conflicting(folder)
    answers = ("--resolve", "ours", "--resolve", 'Person/Ada={"age": 40}')
    done = lines("branch", "merge", "review", "g.omni", "--delete-branch", *answers, cwd=folder)
    merged, kept, deleted = done
    assert (merged, deleted) == ("merged review into main: merged", "deleted branch review")
    assert kept.endswith("(Ada -> Bob) with node Person Bob"), "the edge stays with the node"
    people = {r["data"]["name"]: r["data"] for r in records(folder) if "type" in r}
    assert (people["Ada"]["age"], people["Ada"]["city"], people["Bob"]["age"]) == (40, "Bath", 1)


def test_a_merge_by_property(folder: Path) -> None:
    graph = og.open(folder / "g.omni")
    graph.mutate('query q() { update Person set { city: "Bath" } where name = "Ada" }')
    refused = run("branch", "merge", "review", "g.omni", cwd=folder)
    assert (refused.returncode, "  --by property " in refused.stderr) == (1, True)
    merged = document("branch", "merge", "review", "g.omni", "--by", "property", cwd=folder)
    assert merged == {
        "source": "review",
        "target": "main",
        "outcome": "merged",
        "actor_id": None,
    }
    people = {r["data"]["name"]: r["data"] for r in records(folder) if "type" in r}
    assert (people["Ada"]["age"], people["Ada"]["city"]) == (37, "Bath")


def test_a_conflict_about_a_rule_says_which(folder: Path) -> None:
    graph = og.open(folder / "g.omni")
    graph.mutate('query q() { insert Knows { from: "Cy", to: "Bob" } }')
    done = run("branch", "merge", "review", "g.omni", "--quiet", cwd=folder)
    assert done.stderr.splitlines()[1:-1] == [
        "  dst 'Bob' not found in Person",
        "",
        "1 conflict (1 orphan_edge); nothing was merged",
        "change main or review so that the rule holds, and merge again",
    ]


def records(folder: Path) -> list[Any]:
    return list(og.open(folder / "g.omni", read_only=True).changes.baseline())
