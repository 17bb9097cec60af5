"""Points in time at a terminal: tags, `main~1`, beginnings of ids, branches that start there."""

from pathlib import Path

import pytest

from tests.cli.program import SCHEMA, document, lines, run

ADD = "query add($n: String) { insert Company { name: $n } }"
NAMES = "query names() { match { $c: Company } return { $c.name } order { $c.name } }"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a graph of three commits after the first."""
    assert lines("init", "--schema", SCHEMA, "g.omni", cwd=tmp_path) == ["initialized g.omni"]
    for name in ("Acme", "Beta", "Zeta"):
        params = f'{{"n": "{name}"}}'
        lines("mutate", "add", "-e", ADD, "--params", params, "--store", "g.omni", cwd=tmp_path)
    return tmp_path


def names(folder: Path, *where: str) -> list[str]:
    rows = document("query", "-e", NAMES, "--store", "g.omni", *where, cwd=folder)["rows"]
    return [row["c.name"] for row in rows]


def test_a_point_is_taken_wherever_something_is_read(folder: Path) -> None:
    commits = document("commit", "list", "g.omni", cwd=folder)["commits"]
    before = commits[1]["graph_commit_id"]
    assert lines("tag", "create", "v1", "main~1", "g.omni", cwd=folder) == [
        f"created tag v1 of {before}"
    ]
    for where in (["--branch", "v1"], ["--snapshot", "main~1"], ["--snapshot", before[:20]]):
        assert names(folder, *where) == ["Acme", "Beta"]
    assert lines("diff", "v1", "main", "g.omni", "--format", "stat", cwd=folder) == [
        "node Company  +1 ~0 -0"
    ]
    assert document("commit", "show", "main~1", "g.omni", cwd=folder)["graph_commit_id"] == before
    shown = document("commit", "list", "g.omni", "--branch", "v1", cwd=folder)["commits"]
    assert [each["graph_commit_id"] for each in shown] == [
        each["graph_commit_id"] for each in commits[1:]
    ]
    assert len(lines("export", "g.omni", "--snapshot", "v1~1", cwd=folder)) == 1
    polled = document("changes", "poll", "g.omni", "--start", "after:v1", cwd=folder)
    assert len(polled["blocks"]) == 1
    entities = document("snapshot", "g.omni", "--branch", "v1", cwd=folder)["datasets"]
    assert sum(each["entity_count"] for each in entities) == 2
    shown = lines("schema", "show", "g.omni", "--branch", "v1", cwd=folder)
    assert shown == lines("schema", "show", "g.omni", "--snapshot", "main~1", cwd=folder)


def test_tags_are_listed_and_deleted(folder: Path) -> None:
    done = run("tag", "create", "v1", "g.omni", cwd=folder)
    assert done.returncode == 0
    assert done.stderr == "omnigraph tag create → g.omni (direct, local)\n"
    head = document("commit", "list", "g.omni", cwd=folder)["commits"][0]
    assert document("tag", "list", "g.omni", cwd=folder) == {
        "tags": [
            {
                "name": "v1",
                "graph_commit_id": head["graph_commit_id"],
                "graph_branch": "main",
                "graph_manifest_version": head["graph_manifest_version"],
            }
        ]
    }
    lines("tag", "create", "release/2", "v1~", "--store", "g.omni", cwd=folder)
    listed = lines("tag", "list", "g.omni", cwd=folder)
    assert [line.split()[0] for line in listed] == ["release/2", "v1"]
    again = run("tag", "create", "v1", "main~1", "g.omni", cwd=folder)
    assert (again.returncode, "delete it first" in again.stderr) == (1, True)
    assert lines("tag", "delete", "v1", "g.omni", cwd=folder) == ["deleted tag v1"]
    gone = run("query", "-e", NAMES, "--store", "g.omni", "--branch", "v1", cwd=folder)
    assert (gone.returncode, gone.stdout) == (1, "")
    assert "branch 'v1' not found" in gone.stderr


def test_a_branch_starts_at_a_point(folder: Path) -> None:
    assert lines("branch", "create", "fix", "g.omni", "--from", "main~2", cwd=folder) == [
        "created branch fix from main~2"
    ]
    assert names(folder, "--branch", "fix") == ["Acme"]
    refused = run(
        "mutate", "-e", ADD, "--params", '{"n": "x"}', "--branch", "main~2", "--store", "g.omni",
        cwd=folder,
    )  # fmt: skip
    assert refused.returncode == 1
    assert "omnigraph branch create NAME --from main~2" in refused.stderr


def test_what_resembles_a_wrong_name_is_said(folder: Path) -> None:
    done = run("diff", "mian", "main", "g.omni", cwd=folder)
    assert done.stderr == "error: branch or commit 'mian' not found; did you mean 'main'?\n"
