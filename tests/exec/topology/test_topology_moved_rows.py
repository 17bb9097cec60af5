"""Topology files of rows that upkeep moved: positions of a file are those of its own version."""

from pathlib import Path

import pyarrow as pa
import pytest

import omnigraph as og
from omnigraph.exec.upkeep import optimize
from omnigraph.types import TableKey

SCHEMA = (
    "node Person { name: String @key  age: I32? }\nedge Knows: Person -> Person { since: I32? }"
)
PERSON = TableKey("node:Person")
LARGE = 70_000
ASKED = "query q() { match { $p: Person $p.age < 400 } return { $p.name as n, $p.age as a } }"


@pytest.fixture(autouse=True)
def _every_table_is_large(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("OMNIGRAPH_TOPOLOGY_ROWS_MIN", "0")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def people(first: int, count: int) -> pa.Table:
    numbers = range(first, first + count)
    return pa.table({"name": [f"p{n:06d}" for n in numbers], "age": pa.array(numbers, pa.int32())})


def test_TP1_a_file_from_before_a_compaction_gives_every_row_its_own_values(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two small fragments around a large one become one behind it: no row is touched, and the
    rows lie in another order."""
    with og.init(tmp_path / "g", SCHEMA, fold=False) as graph:
        monkeypatch.setenv("OMNIGRAPH_TOPOLOGY_ROWS_MIN", "1000000")
        for first, count in ((0, 200), (1000, LARGE), (200, 200)):
            graph.load(people(first, count), "append", type="Person", engine="local")
        monkeypatch.setenv("OMNIGRAPH_TOPOLOGY_ROWS_MIN", "0")
        graph.ensure_indices()
        expected = [{"n": f"p{n:06d}", "a": n} for n in range(400)]
        with og.open(tmp_path / "g") as reader:
            assert sorted(reader.query(ASKED).rows, key=lambda row: row["a"]) == expected
            monkeypatch.setattr(optimize, "topology_after", lambda *given, **options: ())
            graph.optimize()
            order = graph._store.reader(graph.snapshot(), PERSON).rows(["age"])["age"][0].as_py()
            assert order == 1000, "the rows were not moved"
            for each in (reader, og.open(tmp_path / "g")):
                assert sorted(each.query(ASKED).rows, key=lambda row: row["a"]) == expected


def test_TP2_optimize_leaves_files_that_few_rows_are_behind(tmp_path: Path) -> None:
    with og.init(tmp_path / "g", SCHEMA) as graph:
        graph.load(people(0, LARGE), "append", type="Person", engine="local")
        edges = pa.table({"src": ["p000001"] * 50, "dst": ["p000002"] * 50})
        graph.load(edges, "append", edge="Knows", engine="local")
        before = sorted((tmp_path / "g" / "__derived").rglob("*.og"))
        for number in range(20):
            graph.mutate(f'query q() {{ insert Person {{ name: "new{number}", age: 1 }} }}')
        report = graph.optimize()
        assert (report.topology, report.commit_id is None) == ((), False)
        assert sorted((tmp_path / "g" / "__derived").rglob("*.og")) == before
        assert graph.snapshot().topology[PERSON].rows_behind == 20
