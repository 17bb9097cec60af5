"""Properties with `@hot`: their column files are there before the first read."""

from pathlib import Path

import pyarrow as pa
import pytest

import omnigraph
from omnigraph.costs import COSTS
from omnigraph.graph import Graph
from tests.exec.topology.test_topology_builders import forget

SCHEMA = "node Person { name: String @key  age: I32? @hot  city: String? @hot  note: String? }"
ONE = """query q($n: String) { match { $p: Person { name: $n } }
  return { $p.age as age, $p.city as city } }"""


@pytest.fixture(autouse=True)
def _tables_of_ten_rows_are_large(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("OMNIGRAPH_TOPOLOGY_ROWS_MIN", "10")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def people(first: int, count: int) -> pa.Table:
    numbers = range(first, first + count)
    names = [f"p{n:03d}" for n in numbers]
    cities = [f"c{n % 7}" if n % 5 else None for n in numbers]
    return pa.table({"name": names, "age": pa.array(numbers, pa.int32()), "city": cities})


def loaded(path: Path, schema: str = SCHEMA) -> Graph:
    graph = omnigraph.init(path, schema)
    graph.load(people(0, 40), "append", type="Person", engine="local")
    return graph


def columns_of(path: Path) -> list[str]:
    return sorted(file.name.split("-")[0] for file in (path / "__derived").rglob("column*.og"))


def reads(path: Path, number: int = 23) -> dict[str, object]:
    """The row of a lookup by a handle that has read nothing."""
    with omnigraph.open(path) as graph:
        [row] = graph.query(ONE, {"n": f"p{number:03d}"}).rows
        fetched = {"lance.scan", "lance.rows_by_id"}.intersection(graph.stats().calls)
        assert not fetched, f"{fetched}: the columns are not in a file"
        return row


def test_a_load_leaves_files_of_hot_columns_alone(tmp_path: Path) -> None:
    path = tmp_path / "g"
    with loaded(path) as graph:
        assert len(columns_of(path)) == 2
        assert graph.check().ok
    assert reads(path) == {"age": 23, "city": "c2"}


def test_a_small_table_has_no_files_of_hot_columns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMNIGRAPH_TOPOLOGY_ROWS_MIN", "1000")
    loaded(tmp_path / "g").close()
    assert columns_of(tmp_path / "g") == []


@pytest.mark.parametrize("verb", ["optimize", "ensure_indices"])
def test_upkeep_makes_the_files_of_columns_that_became_hot(tmp_path: Path, verb: str) -> None:
    path = tmp_path / "g"
    with loaded(path, SCHEMA.replace(" @hot", "")) as graph:
        versions = {key: pin.version for key, pin in graph.snapshot().tables.items()}
        graph.schema.apply(SCHEMA)
        assert {key: pin.version for key, pin in graph.snapshot().tables.items()} == versions
        assert columns_of(path) == []
        getattr(graph, verb)()
        assert len(columns_of(path)) == 2
        getattr(graph, verb)()
        assert len(columns_of(path)) == 2
        graph.schema.apply(SCHEMA.replace(" @hot", ""))
        assert graph.query(ONE, {"n": "p023"}).rows == [{"age": 23, "city": "c2"}]
    assert reads(path) == {"age": 23, "city": "c2"}


def test_a_hot_column_that_was_added_or_widened_gets_a_file_of_its_own_version(
    tmp_path: Path,
) -> None:
    path = tmp_path / "g"
    with loaded(path) as graph:
        wide = SCHEMA.replace("age: I32?", "age: I64?")
        graph.schema.apply(wide.replace("note:", "rank: I32 = 7 @hot  note:"))
        graph.ensure_indices()
        assert len(columns_of(path)) == 5, "age and city of both versions, and rank"
        assert graph.check().ok
    assert reads(path) == {"age": 23, "city": "c2"}


def test_a_node_file_that_follows_another_has_its_hot_columns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(COSTS, "commit_file_rows_max", 3)
    path = tmp_path / "g"
    with loaded(path) as graph:
        graph.mutate('query q() { update Person set { city: "x" } where name = "p023" }')
        graph.load(people(40, 10), "append", type="Person", engine="local")
        assert len(columns_of(path)) == 4
        forget(graph)
        assert graph.check().ok
    assert reads(path) == {"age": 23, "city": "x"}
    assert reads(path, 46) == {"age": 46, "city": "c4"}


def test_a_hot_key_needs_no_file_and_a_full_disk_fails_no_load(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "g"
    with loaded(path, "node Person { name: String @key @hot  age: I32?  city: String? }"):
        assert columns_of(path) == []
    monkeypatch.setattr(
        "omnigraph.exec.topology.build_column.column_arrays", lambda values, nodes: _full()
    )
    with loaded(tmp_path / "h") as graph:
        assert graph.query(ONE, {"n": "p023"}).rows == [{"age": 23, "city": "c2"}]
        assert graph.stats().events["derived.unwritten"] >= 1


def _full() -> None:
    raise omnigraph.errors.StorageFailed("wrote a file", "no space is left")
