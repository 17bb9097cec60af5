"""Upserts on a fork: rows are found by the derived files that it shares with its base."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import omnigraph
from omnigraph.graph import Graph
from omnigraph.types import TableKey

SCHEMA = "node Person { name: String @key  age: I32? }\n"
PERSON = TableKey("node:Person")
NAMES = st.sets(st.integers(0, 39), min_size=1, max_size=12)
STEPS = st.lists(
    st.tuples(st.sampled_from(["fork", "fork", "main", "delete", "open"]), NAMES),
    min_size=2,
    max_size=4,
)


@pytest.fixture(autouse=True)
def _every_table_is_large() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMNIGRAPH_TOPOLOGY_ROWS_MIN", "0")
        yield


def put(graph: Graph, names: Any, age: int, branch: str = "main") -> None:
    rows = pa.table(
        {"name": [f"p{n}" for n in names], "age": pa.array([age] * len(names), pa.int32())}
    )
    graph.load(rows, "merge", type="Person", branch=branch, engine="local")


def content(graph: Graph, branch: str) -> dict[str, int]:
    """The rows of the table itself: a query would show one row of an id that has two."""
    store = graph._store
    rows = store.tables.reader(store.snapshot(branch).tables[PERSON]).rows(["id", "age"])
    assert rows.num_rows == len(set(rows["id"].to_pylist()))
    return dict(zip(rows["id"].to_pylist(), rows["age"].to_pylist(), strict=True))


@settings(max_examples=4, deadline=None)
@given(steps=STEPS)
def test_an_upsert_on_a_fork_replaces_exactly_the_rows_of_its_ids(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, set[int]]]
) -> None:
    path = tmp_path_factory.mktemp("fork") / "g"
    graph = omnigraph.init(path, SCHEMA, durability="os")
    put(graph, range(30), 0)
    graph.branches.create("fork")
    models = {branch: {f"p{n}": 0 for n in range(30)} for branch in ("main", "fork")}
    for age, (step, numbers) in enumerate(steps, start=1):
        names = {f"p{n}" for n in numbers}
        match step:
            case "delete":
                text = "query q($n: [String]) { delete Person where name in $n }"
                graph.mutate(text, {"n": sorted(names)}, branch="fork")
                models["fork"] = {n: a for n, a in models["fork"].items() if n not in names}
            case "open":
                graph.close()
                graph = omnigraph.open(path)
            case branch:
                put(graph, sorted(numbers), age, branch)
                models[branch] |= dict.fromkeys(names, age)
        for branch, model in models.items():
            assert content(graph, branch) == model
    graph.close()


def test_an_upsert_on_a_fresh_fork_searches_no_table(tmp_path: Path) -> None:
    with omnigraph.init(tmp_path / "g", SCHEMA) as graph:
        put(graph, range(200), 0)
        graph.branches.create("fork")
    with omnigraph.open(tmp_path / "g") as graph:
        before = graph._store.stats.view()
        put(graph, [3, 5, 900], 1, "fork")
        made = graph._store.stats.view().since(before).calls
        assert made["lance.stage_replace"] == 1
        assert "lance.stage_merge_insert" not in made
        put(graph, [901], 1, "fork")
        expected = {f"p{n}": 0 for n in range(200)} | {f"p{n}": 1 for n in (3, 5, 900, 901)}
        assert content(graph, "fork") == expected
