"""Mutations that are refused before a graph is opened to write."""

from pathlib import Path

import pytest

import omnigraph as og
from omnigraph.storage import failpoints
from tests.cli.program import run

INSERT = 'insert Person { name: "Zed", role: "guest" }'
DELETE = 'delete Person where name = "Ada"'


@pytest.fixture
def pending(people: Path) -> Path:
    """A graph beside whose tables a dead write left its sidecar."""
    with (
        og.open(people / "g.omni") as graph,
        failpoints.armed("publish.before"),
        pytest.raises(og.RecoveryRequired),
    ):
        graph.mutate(f"query i() {{ {INSERT} }}")
    return people


def sidecars(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "g.omni" / "__recovery").iterdir())


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (f"query m() {{ {INSERT} {DELETE} }}", "mixes inserts/updates and deletes"),
        ("query m() { insert Person {", "parse error"),
        (f"query a() {{ {INSERT} }} query b() {{ {DELETE} }}", "multiple queries"),
    ],
)
def test_a_mutation_that_cannot_run_opens_nothing(pending: Path, text: str, complaint: str) -> None:
    before = sidecars(pending)
    assert before
    done = run("mutate", "g.omni", "-e", text, cwd=pending)
    assert done.returncode == 1
    assert complaint in done.stderr
    assert sidecars(pending) == before
    nowhere = run("mutate", "nowhere.omni", "-e", text, cwd=pending)
    assert complaint in nowhere.stderr
