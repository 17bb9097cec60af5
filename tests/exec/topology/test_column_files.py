"""Column files: values by number, mapped; those of the table, whatever is written or damaged."""

import datetime
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import omnigraph
from omnigraph.exec.memory.filed_tables import FiledNodes
from omnigraph.graph import Graph
from omnigraph.storage.derived.column_file import (
    ColumnFile,
    can_be_filed,
    column_arrays,
    is_column_kind,
)
from omnigraph.storage.derived.mapped_file import MappedFile, write_file
from omnigraph.user_cache import cache_folder
from tests.exec.memory.test_resident import SCHEMA as MODEL_SCHEMA
from tests.exec.memory.test_resident import STEPS, Model, P
from tests.exec.topology.test_topology_builders import forget
from tests.exec.topology.test_topology_files import check
from tests.exec.world import graph_of

SCHEMA = """
node Person { name: String @key  age: I32?  city: String?  born: Date?  at: DateTime?  big: I64?
              high: F64?  fits: Bool? }
"""
COUNT = 400
ONE = """query q($n: String) { match { $p: Person { name: $n } } return { $p.age as age,
  $p.city as city, $p.born as born, $p.at as at, $p.big as big, $p.high as high,
  $p.fits as fits, $p.name as name } }"""
ALL = "query q() { match { $p: Person } return { $p.name as n, $p.age as a, $p.city as c } }"


@pytest.fixture(autouse=True)
def _columns_are_bought_at_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("OMNIGRAPH_TOPOLOGY_ROWS_MIN", "0")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(
        "omnigraph.exec.memory.filed_tables._is_fetched", lambda cache, table, name, count: False
    )


def people() -> pa.Table:
    numbers = range(COUNT)
    moment = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    rows: list[dict[str, Any]] = [
        {
            "name": f"p{n:03d}",
            "age": n % 90 if n % 7 else None,
            "city": f"città {n % 50}" if n % 5 else None,
            "born": datetime.date(1990, 1, 1) + datetime.timedelta(n) if n % 3 else None,
            "at": moment + datetime.timedelta(milliseconds=n) if n % 4 else None,
            "big": 2**40 + n if n % 6 else None,
            "high": n / 7 if n % 8 else None,
            "fits": n % 2 == 0 if n % 9 else None,
        }
        for n in numbers
    ]
    kinds = (pa.int32(), pa.string(), pa.date32(), pa.timestamp("ms"), pa.int64(), pa.float64())
    names = ("age", "city", "born", "at", "big", "high")
    columns = {"name": pa.array([row["name"] for row in rows])}
    columns |= {n: pa.array([row[n] for row in rows], k) for n, k in zip(names, kinds, strict=True)}
    return pa.table({**columns, "fits": pa.array([row["fits"] for row in rows], pa.bool_())})


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[Graph]:
    with omnigraph.init(tmp_path / "g", SCHEMA) as made:
        made.load(people(), "append", type="Person", engine="local")
        yield made


def column_files(graph: Graph) -> list[Path]:
    folder = Path(graph.uri) / "__derived"
    return [path for path in sorted(folder.rglob("*.og")) if is_column_kind(path.name)]


def lookups(graph: Graph) -> list[Any]:
    return [graph.query(ONE, {"n": f"p{n:03d}"}).rows for n in range(0, COUNT, 23)]


def without_files(graph: Graph) -> list[Any]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "omnigraph.storage.derived.derived_folder.DerivedFiles.listed", lambda self, pin: []
        )
        patch.setenv("OMNIGRAPH_TOPOLOGY_ROWS_MIN", "1000000")
        with omnigraph.open(graph.uri) as plain:
            return lookups(plain)


def test_a_column_that_is_read_often_gets_a_file_that_others_map(graph: Graph) -> None:
    right = without_files(graph)
    assert lookups(graph) == right
    assert len(column_files(graph)) == 7, "all but the key, which is the id"
    with omnigraph.open(graph.uri, read_only=True) as other:
        assert lookups(other) == right
        calls = other.stats().calls
        assert not any(name in calls for name in ("lance.scan", "lance.rows_by_id"))
        assert "derived.written" not in other.stats().events
        kept = other.cache_bytes
        assert len(other.query(ALL).rows) == COUNT
        assert other.cache_bytes - kept < 64_000, "a whole column is mapped, not kept in memory"
    assert graph.check().ok


def test_a_read_only_graph_keeps_its_columns_in_the_users_cache(
    graph: Graph, tmp_path: Path
) -> None:
    right = without_files(graph)
    with omnigraph.open(graph.uri, read_only=True) as other:
        assert lookups(other) == right
    assert column_files(graph) == []
    assert len([p for p in (tmp_path / "cache").rglob("column*.og") if p.is_file()]) == 7


def test_rows_written_since_a_file_are_not_read_from_it(graph: Graph) -> None:
    lookups(graph)
    graph.mutate('query q() { update Person set { city: "x", age: 1 } where name = "p023" }')
    graph.mutate('query q() { delete Person where name = "p046" }')
    graph.mutate('query q() { insert Person { name: "p046", city: "again" } }')
    graph.mutate('query q() { insert Person { name: "q", age: 3 } }')
    files = column_files(graph)
    for again in (False, True):
        if again:
            forget(graph)
        assert lookups(graph) == without_files(graph)
        assert graph.query(ONE, {"n": "q"}).rows[0]["age"] == 3
        rows = {row["n"]: (row["a"], row["c"]) for row in graph.query(ALL).rows}
        assert (rows["p023"], rows["p046"], rows["q"]) == ((1, "x"), (None, "again"), (3, None))
    assert column_files(graph) == files


def test_TP3_every_byte_range_of_a_column_damaged_changes_no_answer(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    right, rejected = without_files(graph), 0
    lookups(graph)
    monkeypatch.setenv("OMNIGRAPH_TOPOLOGY_ROWS_MIN", "1000000")
    for file in column_files(graph):
        whole = file.read_bytes()
        used = [n for n in range(0, len(whole), 512) if any(whole[n : n + 512])]
        for start in used:
            data = bytearray(whole)
            for index in range(start, min(start + 512, len(data))):
                data[index] ^= 0x5A
            file.unlink(missing_ok=True)
            file.write_bytes(data)
            forget(graph)
            graph._store.derived.files._rejected.clear()
            before = graph.stats()
            assert lookups(graph) == right, f"{file.name} from byte {start}"
            rejected += graph.stats().since(before).events.get("derived.rejected", 0)
        file.unlink(missing_ok=True)
        file.write_bytes(whole)
    assert rejected > 20


def test_TP6_check_tells_a_column_that_differs(graph: Graph) -> None:
    lookups(graph)
    store = graph._store
    pin = store.snapshot().tables[P_PERSON]
    file = store.derived.files.opened(
        next(e for e in store.derived.files.listed(pin) if is_column_kind(e.name.kind))
    )
    assert file is not None
    column = ColumnFile(file)
    values = [column.value(number) for number in range(column.count)]
    other = pa.array(list(reversed(values)), next(t for t in TYPES if str(t) == column.type))
    facts, arrays = column_arrays(other, column.nodes)
    facts |= {"property": file.facts["property"], "fingerprint": file.facts["fingerprint"]}
    store.derived.files.write(str(file.facts["kind"]), pin, facts, arrays)
    findings = graph.check().findings
    assert [finding.code for finding in findings] == ["topology"]
    assert "not that of the table" in findings[0].text


P_PERSON: Any = "node:Person"
TYPES = [
    pa.int32(),
    pa.int64(),
    pa.uint32(),
    pa.uint64(),
    pa.float32(),
    pa.float64(),
    pa.bool_(),
    pa.string(),
    pa.date32(),
    pa.timestamp("ms"),
]


@settings(max_examples=40, deadline=None)
@given(data=st.data(), stored=st.sampled_from(TYPES))
def test_a_column_file_gives_every_value_back(data: st.DataObject, stored: pa.DataType) -> None:
    folder = cache_folder() / "columns"
    folder.mkdir(exist_ok=True)
    path = folder / f"{id(data)}"
    values = pa.array(data.draw(st.lists(st.none() | _values(stored), max_size=40)), stored)
    values = values.slice(data.draw(st.integers(0, 3)))
    facts, arrays = column_arrays(values, "nodes")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("os.fsync", lambda descriptor: None)
        digest, _ = write_file(path, facts, arrays)
    try:
        column = ColumnFile(MappedFile(path, digest))
    finally:
        path.unlink()
    assert column.whole(stored).equals(values)
    plain = {pa.date32(): pa.int32(), pa.timestamp("ms"): pa.int64()}.get(stored, stored)
    listed = values.view(plain).to_pylist() if plain != stored else values.to_pylist()
    read = [column.value(number) for number in range(len(values))]
    assert [_key(each) for each in read] == [_key(each) for each in listed]


def _key(value: Any) -> Any:
    return "NaN" if isinstance(value, float) and math.isnan(value) else (type(value), value)


def _values(stored: pa.DataType) -> st.SearchStrategy[Any]:
    if pa.types.is_string(stored):
        return st.text(max_size=12)
    if pa.types.is_boolean(stored):
        return st.booleans()
    if pa.types.is_floating(stored):
        return st.floats(width=32, allow_nan=True)
    if pa.types.is_date32(stored):
        return st.dates()
    if pa.types.is_timestamp(stored):
        return st.integers(-(2**40), 2**40)
    bounds = np.iinfo(stored.to_pandas_dtype())
    return st.integers(int(bounds.min), int(bounds.max))


def test_lists_and_vectors_have_no_column_file() -> None:
    assert not any(map(can_be_filed, (pa.list_(pa.int32()), pa.list_(pa.float32(), 3))))


# ---- writes, followed


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Graph]:
    with graph_of(Path(tmp_path_factory.mktemp("columns")) / "g", MODEL_SCHEMA) as made:
        yield made


@settings(
    max_examples=8,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(steps=st.lists(STEPS, min_size=2, max_size=6), anew=st.sets(st.integers(0, 5)))
def test_columns_of_files_are_those_of_the_table_after_any_writes(
    written: Graph, steps: list[tuple[Any, ...]], anew: set[int]
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMNIGRAPH_TRAVERSAL_MODE", "csr")
        model = Model(written)
        model.begin_anew()
        check(model)
        for number, (name, *arguments) in enumerate(steps):
            getattr(model, name)(*arguments)
            if number in anew:
                forget(written)
            check(model)
        nodes = written._reading._view(written._store.snapshot()).nodes(P)
        assert isinstance(nodes, FiledNodes)
        assert all(nodes.columns.get(column) is not None for column in ("i", "s"))
