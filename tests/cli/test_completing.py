"""Completion in a shell: branches, tags, types and queries of the graph that is named."""

import os
import shlex
from pathlib import Path
from unittest import mock

import pytest

import omnigraph as og
from tests.cli.program import run

SCHEMA = "node Person { name: String @key }\nedge Knows: Person -> Person"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A graph `g.omni` with a branch, a tag and a file of queries."""
    with og.init(tmp_path / "g.omni", schema=SCHEMA) as graph:
        graph.branches.create("review/x")
        graph.tags.create("v1")
    queries = "query people() { match { $p: Person } return { $p.name } }"
    (tmp_path / "q.gq").write_text(queries)
    return tmp_path


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("omnigraph query g.omni --branch ", ["main", "review/x", "v1"]),
        ("omnigraph load g.omni --branch r", ["review/x"]),
        ("omnigraph branch merge --store g.omni ", ["main", "review/x"]),
        ("omnigraph tag delete --store g.omni v", ["v1"]),
        ("omnigraph export g.omni --type ", ["Knows", "Person"]),
        ("omnigraph load g.omni --node ", ["Person"]),
        ("omnigraph load g.omni --edge K", ["Knows"]),
        ("omnigraph query --query q.gq p", ["people"]),
        ("omnigraph query missing.omni --branch ", []),
    ],
)
def test_a_shell_completes_names_of_the_graph(folder: Path, typed: str, offered: list[str]) -> None:
    words = len(shlex.split(typed)) - (not typed.endswith(" "))
    asked = {
        "_OMNIGRAPH_COMPLETE": "complete_bash",
        "COMP_WORDS": typed,
        "COMP_CWORD": str(words),
    }
    with mock.patch.dict(os.environ, asked):
        done = run(cwd=folder)
    assert done.stdout.split() == offered
    assert done.stderr == ""
