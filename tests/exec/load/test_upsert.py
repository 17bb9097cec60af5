"""Merges of many rows: the same rows as a small one leaves, with the row ids they had."""

import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import omnigraph as og
from omnigraph.costs import COSTS
from omnigraph.exec.load import exchange, finish
from omnigraph.exec.threads import in_order
from omnigraph.graph import Graph
from omnigraph.storage.lance.reader import TableReader
from omnigraph.storage.lance.tables import Tables
from omnigraph.storage.locks import turns
from tests.exec.bulk import by_name, contents, edge, lines, new_graph, person

pytestmark = pytest.mark.consistent

NAMES = [f"p{n}" for n in range(40)]


@pytest.fixture(autouse=True)
def every_merge_is_big(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(COSTS, "upsert_rows_max", 0)
    monkeypatch.setattr(COSTS, "key_bucket_bytes", 250)
    monkeypatch.setattr(COSTS, "upsert_job_rows", 10)


def filled(folder: Path) -> Graph:
    """A graph of several fragments, some of them with rows taken out already."""
    graph = og.init(folder / "graph.omni", SCHEMA_TEXT, fold=False)
    for start in range(0, 40, 14):
        people = [person(name, age=1) for name in NAMES[start : start + 14]]
        graph.load(lines(*people), "append", engine="local")
    graph.load(lines(edge("Knows", "p0", "p1", id="k")), "append", engine="local")
    graph.mutate('query d() { delete Person where name = "p9" }')
    return graph


SCHEMA_TEXT = """
node Person { name: String @key  age: I32?  email: String? @unique  pic: Blob? }
edge Knows: Person -> Person
"""


def row_ids(graph: Graph, table: str = "node:Person") -> dict[str, int]:
    snapshot = graph.snapshot()
    key = next(key for key in snapshot.tables if key == table)
    reader = graph._store.reader(snapshot, key)
    found = reader.addresses(tuple(reader.fragments()))
    return dict(zip(found["id"].to_pylist(), found["_rowid"].to_pylist(), strict=True))


@settings(
    max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    chosen=st.lists(st.sampled_from([*NAMES, "new1", "new2"]), min_size=1, unique=True),
    edges=st.lists(st.sampled_from(["k", "m", "n"]), max_size=4),
)
def test_LD4_a_big_merge_leaves_what_a_small_one_does(chosen: list[str], edges: list[str]) -> None:
    source = lines(
        *(person(name, age=7, pic="base64:aGk=") for name in chosen),
        *(edge("Knows", "p0", f"p{n}", id=id) for n, id in enumerate(edges, 1)),
    )
    with tempfile.TemporaryDirectory() as folder:
        graph = filled(Path(folder))
        before = row_ids(graph)
        graph.branches.create("small")
        big = graph.load(source, "merge", engine="local")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(COSTS, "upsert_rows_max", 10_000)
            graph.load(source, "merge", engine="local", branch="small")
        assert contents(graph) == contents(graph, "small")
        after = row_ids(graph)
        assert {n: after[n] for n in before} == before, "replaced rows keep their row ids"
        assert len(set(after.values())) == len(after)
        changed = {(c.op, c.id) for c in graph.commits.changes(big.commit.id) if c.type == "Person"}
        inserted = {("insert", name) for name in chosen if name not in before}
        assert changed == inserted | {("update", name) for name in chosen if name in before}


def test_LD4_a_fragment_whose_rows_are_all_replaced_goes(tmp_path: Path) -> None:
    graph = filled(tmp_path)
    graph.load(lines(*(person(name, age=2) for name in NAMES)), "merge", engine="local")
    people = by_name(graph, "node:Person")
    assert set(people) == set(NAMES)
    assert {row["age"] for row in people.values()} == {2}
    graph.load(lines(*(person(name, age=3) for name in NAMES[:3])), "merge", engine="local")
    assert sum(row["age"] == 3 for row in by_name(graph, "node:Person").values()) == 3


def test_LD4_only_ids_and_addresses_are_read(tmp_path: Path, monkeypatch: Any) -> None:
    graph = filled(tmp_path)
    asked: list[Any] = []
    rows, batches = TableReader.rows, TableReader.batches

    def noted_rows(self: Any, columns: Any = None, **options: Any) -> Any:
        asked.append(columns)
        return rows(self, columns, **options)

    def noted_batches(self: Any, columns: Any = None, **options: Any) -> Any:
        asked.append(columns)
        return batches(self, columns, **options)

    monkeypatch.setattr(TableReader, "rows", noted_rows)
    monkeypatch.setattr(TableReader, "batches", noted_batches)
    table = pa.table({"name": NAMES[:20], "age": [5] * 20})
    graph.load(table, "merge", type="Person", engine="local")
    assert asked
    assert {name for columns in asked for name in columns} <= {"id", "email"}, "email is unique"
    monkeypatch.undo()
    assert by_name(graph, "node:Person")["p4"]["age"] == 5


def test_C2_a_merge_that_lost_the_race_writes_again_only_what_changed(
    tmp_path: Path, monkeypatch: Any
) -> None:
    graph = filled(tmp_path)
    other = og.open(graph.uri)
    stage = finish.Finish._stage
    left = [
        lambda: other.mutate('query a() { insert Person { name: "other" } }'),
        lambda: other.mutate('query d() { delete Person where name = "p30" }'),
    ]
    written: list[int] = []
    write_fragments = Tables.write_fragments

    def counting(self: Tables, *args: Any, **options: Any) -> Any:
        written.append(1)
        return write_fragments(self, *args, **options)

    def racing(self: Any, write: Any) -> None:
        stage(self, write)
        rounds.append(len(written))
        if left:
            left.pop()()

    rounds: list[int] = []
    monkeypatch.setattr(Tables, "write_fragments", counting)
    monkeypatch.setattr(finish.Finish, "_stage", racing)
    monkeypatch.setattr(turns, "FREE_ATTEMPTS", 3)  # before its turn, which nobody could disturb
    graph.load(lines(*(person(name, age=9) for name in NAMES[10:])), "merge", engine="local")
    assert len(rounds) == 3
    assert rounds[0] > 3, "several buckets"
    assert rounds[1] - rounds[0] <= 2, "the bucket of the removed row alone"
    assert rounds[2] == rounds[1], "a row that is new to both changes no bucket"
    people = by_name(graph, "node:Person")
    assert "other" in people
    assert all(people[name]["age"] == 9 for name in NAMES[10:])


def test_new_graphs_merge_too(tmp_path: Path) -> None:
    graph = new_graph(tmp_path)
    graph.load(lines(*(person(name) for name in NAMES)), "merge", engine="local")
    assert set(by_name(graph, "node:Person")) == set(NAMES)


@pytest.mark.parametrize(("value", "at_once"), [("1", 1), ("2", 2)])
def test_a_merge_writes_as_many_files_at_once_as_it_may(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: str, at_once: int
) -> None:
    graph = filled(tmp_path)
    monkeypatch.setenv("OMNIGRAPH_LOAD_CONCURRENCY", value)
    pools: list[int] = []

    def noted(work: Any, items: Any, *, threads: int, **options: Any) -> Any:
        pools.append(threads)
        return in_order(work, items, threads=threads, **options)

    monkeypatch.setattr(exchange, "in_order", noted)
    monkeypatch.setattr(exchange, "THREADS", at_once)
    graph.load(lines(*(person(f"New {n}") for n in range(40))), "merge", engine="local")
    assert set(pools) == {at_once}
