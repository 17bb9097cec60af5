"""Builders of delta and column files killed (`kill -9`): a file is whole or not there."""

import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import omnigraph
from omnigraph.costs import COSTS
from omnigraph.exec.topology import build
from omnigraph.graph import Graph
from omnigraph.storage import failpoints
from omnigraph.storage.derived.edge_delta_file import EDGE_DELTAS
from tests.exec.topology.test_edge_delta_files import befriend
from tests.exec.topology.test_topology_builders import (
    PERSON,
    STEPS,
    answers,
    child_of_large_tables,
    expected,
    filed,
)
from tests.forked import KILLED, context, run

KINDS = (EDGE_DELTAS, "column")


@pytest.fixture(autouse=True)
def _every_table_is_large(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("OMNIGRAPH_TOPOLOGY_ROWS_MIN", "0")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(COSTS, "commit_file_rows_max", 5)


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[Graph]:
    """A graph with a node file, an edge file, a delta over it and a column file."""
    with filed(tmp_path / "g") as made:
        befriend(made, 20, 1)
        built(made)
        assert {kind for kind in KINDS if files(tmp_path / "g", kind)} == set(KINDS)
        yield made


def built(graph: Graph) -> None:
    store = graph._store
    age = graph.schema.catalog.nodes["Person"].property("age")
    assert age is not None
    build.build_topology(store, store.snapshot(), STEPS, [PERSON], hot={PERSON: (age.id,)})


def files(path: Path, kind: str) -> list[Path]:
    return sorted((path / "__derived").rglob(f"{kind}*.og"))


def removed(path: Path, kind: str) -> None:
    for file in files(path, kind):
        file.unlink(missing_ok=True)


def build_in_child(path: str, place: str) -> None:
    child_of_large_tables()
    COSTS.commit_file_rows_max = 5
    failpoints.arm(place, "kill")
    with omnigraph.open(path) as graph:
        built(graph)


@pytest.mark.parametrize("kind", KINDS)
def test_TP3_a_builder_of_a_delta_or_column_killed_at_any_step_leaves_it_whole_or_not_at_all(
    graph: Graph, kind: str
) -> None:
    path = Path(graph.uri)
    right = expected(path)
    for place in failpoints.DERIVED:
        removed(path, kind)
        assert run(build_in_child, str(path), place) == KILLED, "the only file that is missing"
        assert bool(files(path, kind)) == (place == "derived.renamed")
        with omnigraph.open(path) as other:
            assert answers(other) == right
            built(other)
            assert "derived.rejected" not in other.stats().events
            assert other.check().ok
        assert files(path, kind)
        assert not list((path / "__derived").glob("aside-*"))


def build_again_and_again(path: str) -> None:
    child_of_large_tables()
    COSTS.commit_file_rows_max = 5
    with omnigraph.open(path) as graph:
        while True:
            for kind in KINDS:
                removed(Path(path), kind)
            graph._store.forget()
            built(graph)


def test_TP3_builders_of_deltas_and_columns_killed_at_random_moments_change_no_answer(
    graph: Graph,
) -> None:
    path = Path(graph.uri)
    right, rng = expected(path), random.Random(7)
    for _ in range(3):
        child = context().Process(target=build_again_and_again, args=(str(path),))
        child.start()
        time.sleep(0.1 + rng.random() / 3)
        child.kill()
        child.join()
        with omnigraph.open(path) as other:
            assert answers(other) == right
            assert "derived.rejected" not in other.stats().events
