"""Topology of a load on Spark: its files are there when the load returns, and right."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import omnigraph
from omnigraph.costs import COSTS
from omnigraph.errors import StorageFailed
from omnigraph.exec.topology import table_ends
from omnigraph.graph import Graph
from omnigraph.pipeline.spark_upkeep import OnSpark

SCHEMA = """
node Person { name: String @key  age: I32? @hot }
edge Knows: Person -> Person { since: I32? }
"""
HOP = """query q($n: String) { match { $p: Person { name: $n }  $p knows $f }
  return { $f.name as n, $f.age as a } order { $f.name } }"""
COUNT = 50


@pytest.fixture(autouse=True)
def _tables_of_ten_rows_are_large(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("OMNIGRAPH_TOPOLOGY_ROWS_MIN", "10")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(COSTS, "shared_scan_rows_min", 10)


def person(number: int) -> str:
    return f"p{number % COUNT:02d}"


PAIRS = sorted({(person(n * 7), person(n * n + 1)) for n in range(200)})


@pytest.fixture
def loaded(tmp_path: Path, spark: SparkSession) -> Iterator[Graph]:
    """A graph that Spark loaded in two commits."""
    ages = pa.array(range(COUNT), pa.int32())
    pq.write_table(
        pa.table({"name": [person(n) for n in range(COUNT)], "age": ages}), tmp_path / "people"
    )
    ends = {"src": [a for a, _ in PAIRS], "dst": [b for _, b in PAIRS]}
    pq.write_table(pa.table(ends), tmp_path / "knows")
    with omnigraph.init(tmp_path / "g", SCHEMA) as graph:
        people, knows = (spark.read.parquet(str(tmp_path / n)) for n in ("people", "knows"))
        graph.load(people, "append", type="Person")
        graph.load(knows.repartition(3), "append", edge="Knows")
        yield graph


def answers_without_building(path: str) -> dict[str, list[dict[str, Any]]]:
    with omnigraph.open(path) as graph:
        rows = {person(n): graph.query(HOP, {"n": person(n)}).rows for n in range(0, COUNT, 7)}
        assert "derived.written" not in graph.stats().events, "nothing was left to build"
        assert "lance.scan" not in graph.stats().calls
        return rows


def right() -> dict[str, list[dict[str, Any]]]:
    return {
        person(n): [{"n": b, "a": int(b[1:])} for a, b in PAIRS if a == person(n)]
        for n in range(0, COUNT, 7)
    }


@pytest.fixture
def no_scan_here(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object) -> None:
        raise AssertionError("the driver read the ends of a table")

    monkeypatch.setattr(table_ends, "_scanned", refuse)  # tasks are processes of their own


@pytest.mark.usefixtures("no_scan_here")
def test_TP2_a_load_on_spark_leaves_the_files_of_its_version(loaded: Graph) -> None:
    states = loaded.snapshot().topology
    assert {str(key): state.rows_behind for key, state in states.items()} == {
        "node:Person": 0,
        "edge:Knows": 0,
    }
    assert answers_without_building(loaded.uri) == right()
    assert loaded.check().ok


def test_TP2_a_driver_numbers_ends_itself_when_its_tasks_fail(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, request: Any
) -> None:
    def fail(self: object, tasks: object) -> None:
        raise StorageFailed("ran upkeep on Spark", "its jobs were cancelled")

    monkeypatch.setattr(OnSpark, "number_ends", fail)
    graph = request.getfixturevalue("loaded")
    assert graph.stats().events["derived.unshared"] == 1
    assert answers_without_building(graph.uri) == right()


def test_fragments_are_shared_by_tasks_in_their_order() -> None:
    groups = table_ends._groups({7: 5, 3: 5, 9: 1, 4: 20, 5: 1}, 3)
    assert [each for group in groups for each in group] == [7, 3, 9, 4, 5]
    assert len(groups) <= 3
    assert table_ends._groups({}, 3) == []
