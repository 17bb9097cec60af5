"""The door: which snapshot a query reads, what it refuses, what it returns."""

import math
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph.errors import BadRequest, LimitExceeded, NotFound
from omnigraph.exec.limits import Limits
from omnigraph.exec.read.reading import Reading
from omnigraph.graph import Graph
from tests.exec.people import people
from tests.exec.world import graph_of, write

NAMES = "query q() { match { $p: Person } return { $p.name as n } }"
MODES = pytest.mark.parametrize("mode", ["auto", "indexed", "csr"])


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Graph]:
    with people(Path(tmp_path_factory.mktemp("query")) / "g") as made:
        yield made


def names(graph: Graph, **where: Any) -> list[str]:
    return [row["n"] for row in graph.query(NAMES, **where)]


# Which snapshot


def test_a_query_reads_a_branch_or_a_commit(tmp_path: Path) -> None:
    graph = people(tmp_path / "g")
    before = graph.query(NAMES).commit_id
    graph.branches.create("side")
    write(graph, {"Person": [{"name": "Eve"}]}, branch="side")
    after = write(graph, {"Person": [{"name": "Fay"}]}).id
    everyone = ["Ada", "Bob", "Cy", "Dee"]
    assert names(graph) == [*everyone, "Fay"]
    assert names(graph, branch="side") == [*everyone, "Eve"]
    assert names(graph, snapshot=before) == everyone
    assert graph.query(NAMES, snapshot=after).commit_id == after


def test_queries_in_threads_each_see_one_snapshot(tmp_path: Path) -> None:
    """A writer moves a pair of nodes in step; no reader may see one moved and not the other."""
    schema = "node A { k: String @key  n: I64 }\nnode B { k: String @key  n: I64 }\nedge L: A -> B"
    graph = graph_of(
        tmp_path / "g",
        schema,
        {"A": [{"k": "a", "n": 0}], "B": [{"k": "b", "n": 0}]},
        {"L": [{"id": "l0", "src": "a", "dst": "b"}]},
    )
    text = "query q() { match { $a: A  $a $l:l $b } return { $a.n as x, $b.n as y, $l.id as l } }"
    done = threading.Event()
    wrong: list[Any] = []
    seen: set[int] = set()

    def read() -> None:
        while not done.is_set():
            rows = graph.query(text).rows
            steps = {row["x"] for row in rows} | {row["y"] for row in rows}
            if len(steps) != 1 or len(rows) != steps.copy().pop() + 1:
                wrong.append(rows)
            seen.update(steps)

    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    for step in range(1, 9):
        write(
            graph,
            {"A": [{"k": "a", "n": step}], "B": [{"k": "b", "n": step}]},
            {"L": [{"id": f"l{step}", "src": "a", "dst": "b"}]},
        )
    done.set()
    for reader in readers:
        reader.join(timeout=30)
    assert not wrong
    assert len(seen) > 1


@MODES
def test_a_renamed_property_is_found_and_a_new_one_is_null(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    monkeypatch.setenv("OMNIGRAPH_TRAVERSAL_MODE", mode)
    graph = graph_of(
        tmp_path / "g", "node P { k: String @key  a: I32? }", {"P": [{"k": "x", "a": 5}]}
    )
    old = graph.snapshot().commit_id
    graph.schema.apply('node Q @rename_from("P") { k: String @key  b: I32? @rename_from("a") }')
    graph.schema.apply("node Q { k: String @key  b: I32?  a: I32?  tags: [String]? }")
    for commit in (None, old):  # the old commit, too, under names that it did not have
        _sees_columns_by_identity(graph, commit)


def _sees_columns_by_identity(graph: Graph, commit: str | None) -> None:
    query = """query q() { match { $p: Q  $p.b = 5  $p.a is null  not ($p.tags contains "z" ) }
               return { $p.b as b, $p.a as a, $p.tags as t } }"""
    # An unknown list holds nothing, and not nothing either.
    assert graph.query(query, snapshot=commit).rows == []
    query = "query q() { match { $p: Q  $p.b = 5  $p.a is null } return { $p.b, $p.a, $p.tags } }"
    assert graph.query(query, snapshot=commit).rows == [{"p.b": 5, "p.a": None, "p.tags": None}]
    query = "query q() { match { $p: Q { a: 5 } } return { $p } }"
    assert graph.query(query, snapshot=commit).rows == []
    query = "query q() { match { $p: Q } return { max($p.a) as m } }"
    assert graph.query(query, snapshot=commit).rows == [{"m": None}]


# What is refused


def test_a_query_names_one_snapshot_only(graph: Graph) -> None:
    with pytest.raises(BadRequest, match="request may specify branch or snapshot, not both"):
        graph.query(NAMES, branch="main", snapshot="x")
    with pytest.raises(NotFound):
        graph.query(NAMES, branch="nowhere")
    with pytest.raises(NotFound):
        graph.query(NAMES, snapshot="nowhere")


def test_mutations_and_engines_that_are_not_there_are_refused(graph: Graph) -> None:
    mutation = 'query add() { insert Person { name: "X" } }'
    with pytest.raises(BadRequest, match=r"query 'add' contains mutations .*; .* graph\.mutate"):
        graph.query(mutation)
    with pytest.raises(BadRequest, match="'duck' is no engine"):
        graph.query(NAMES, engine="duck")
    with pytest.raises(NotFound, match=r"query file 'nowhere\.gq'"):
        graph.query(Path("nowhere.gq"))


def test_an_unknown_traversal_mode_is_refused(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMNIGRAPH_TRAVERSAL_MODE", "fast")
    with pytest.raises(BadRequest, match="use auto, indexed, csr"):
        graph.query(NAMES)


# Limits


def _limited(graph: Graph, **limits: int) -> Graph:
    other = Graph(graph._store)
    other._reading = Reading(graph._store, Limits(**limits))
    return other


def test_too_much_memory_stops_a_query_and_names_the_operator(graph: Graph) -> None:
    limited = _limited(graph, memory_bytes_max=1000)
    pattern = "$a: Person $b: Person $c: Person $d: Person"
    text = f"query q() {{ match {{ {pattern} }} return {{ count($a) as n }} }}"
    assert limited.query(text).rows == [{"n": 256}], "what is only counted is never held"
    text = f"query q() {{ match {{ {pattern} }} return {{ $a.name, $d.name }} }}"
    with pytest.raises(LimitExceeded, match=r"memory in bytes at `gather`"):
        limited.query(text)
    assert len(graph.query(text)) == 256


def test_too_much_time_stops_a_query_and_names_the_operator(graph: Graph) -> None:
    limited = _limited(graph, time_ms_max=0)
    with pytest.raises(LimitExceeded, match=r"time in ms at `scan node:Person as \$p`"):
        limited.query(NAMES)


def test_limits_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMNIGRAPH_QUERY_TIME_MS_MAX", "5")
    assert Limits.from_environment() == Limits(time_ms_max=5)
    monkeypatch.setenv("OMNIGRAPH_QUERY_TIME_MS_MAX", "soon")
    with pytest.raises(BadRequest, match="OMNIGRAPH_QUERY_TIME_MS_MAX is 'soon'"):
        Limits.from_environment()


def test_ctrl_c_stops_a_query_at_once(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("omnigraph.exec.read.batches.scan", interrupted)
    with pytest.raises(KeyboardInterrupt):
        graph.query(NAMES)
    monkeypatch.undo()
    assert names(graph)


# What is returned


def test_a_result_is_rows_arrow_pandas_and_a_plan_with_figures(graph: Graph) -> None:
    result = graph.query(
        "query q() { match { $p: Person  optional { $p worksAt $c } } "
        "return { $p.name as n, $c } limit 3 }"
    )
    assert result.columns == ["n", "c"]
    assert result.rows == [
        {"n": "Ada", "c": "Acme"},
        {"n": "Bob", "c": "Acme"},
        {"n": "Cy", "c": "Zeta"},
    ]
    assert list(result) == result.rows
    assert len(result) == 3
    assert result.to_arrow().to_pylist() == result.rows
    assert result.to_pandas()["c"].tolist() == ["Acme", "Acme", "Zeta"]
    assert result.to_polars()["c"].to_list() == ["Acme", "Acme", "Zeta"]
    assert result.commit_id == graph.snapshot().commit_id
    twice = graph.query("query q() { match { $p: Person } return { $p.name as n, $p.age as n } }")
    assert twice.to_pandas().columns.tolist() == ["n", "n"]
    with pytest.raises(og.BadRequest, match="two columns called 'n'; name them apart"):
        twice.to_polars()
    lines = result.explain().splitlines()
    assert all(line.endswith(" ms") for line in lines[1:])
    assert "expand $p out edge:WorksAt" in lines[3]
    assert "3 rows" in lines[-1]


def test_values_are_json_ready(tmp_path: Path) -> None:
    schema = """node T { k: String @key  i: I32? l: I64? u: U64? f: F64? g: F32? b: Bool? d: Date?
                         t: DateTime? xs: [F64]? ds: [Date]? v: Vector(2)? }"""
    record = {
        "k": "x",
        "i": -1,
        "l": 2**62,
        "u": 2**64 - 1,
        "f": math.inf,
        "g": 0.5,
        "b": True,
        "d": 19753,
        "t": 1706695200000,
        "xs": [1.5, math.nan, -math.inf],
        "ds": None,
        "v": [0.5, 1.0],
    }
    graph = graph_of(tmp_path / "g", schema, {"T": [record, {"k": "y"}]})
    projected = ", ".join(f"$t.{name} as {name}" for name in record)
    rows = graph.query(f"query q() {{ match {{ $t: T }} return {{ {projected} }} }}").rows
    assert rows[0] == {
        **record,
        "f": "Infinity",
        "d": "2024-01-31",
        "t": "2024-01-31T10:00:00.000Z",
        "xs": [1.5, "NaN", "-Infinity"],
    }
    assert rows[1] == {**dict.fromkeys(record), "k": "y"}


def test_a_count_reads_no_vectors(tmp_path: Path) -> None:
    graph = graph_of(tmp_path / "g", "node T { k: String @key  i: I32?  v: Vector(4)? }")
    write(graph, {"T": [{"k": f"k{n}", "i": n % 3, "v": [1.0] * 4} for n in range(30)]})
    reopened = og.open(graph.uri, read_only=True)
    read: list[list[str]] = []
    reader = type(reopened._store.reader(reopened.snapshot(), "node:T"))
    plain = reader.rows

    def noted(self: Any, columns: Any = None, **options: Any) -> Any:
        read.append(list(columns))
        return plain(self, columns, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reader, "rows", noted)
        everyone = reopened.query("query q() { match { $t: T } return { count($t) as n } }")
        assert read == []
        some = reopened.query("query q() { match { $t: T { i: 1 } } return { count($t) as n } }")
        assert read == []
        kinds = reopened.query("query q() { match { $t: T } return { $t.i as i, count($t) as n } }")
    assert everyone.rows == [{"n": 30}]
    assert some.rows == [{"n": 10}]
    assert kinds.rows == [{"i": i, "n": 10} for i in range(3)]
    assert read
    assert all("v" not in columns for columns in read)


@MODES
def test_blobs_are_told_apart_by_being_there(
    graph: Graph, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    monkeypatch.setenv("OMNIGRAPH_TRAVERSAL_MODE", mode)
    text = "query q() { match { $p: Person  $p.photo is null } return { count($p) as n } }"
    assert graph.query(text).rows == [{"n": 4}]
    text = "query q() { match { $p: Person $p knows $f $f.photo is not null } return { $f } }"
    assert graph.query(text).rows == []


def test_distinct_rows_of_two_columns_with_one_name_keep_the_last(graph: Graph) -> None:
    result = graph.query(
        "query q() { match { $p: Person } return distinct { $p.city as c, 1 as c } }"
    )
    assert result.columns == ["c", "c"]
    with pytest.warns(UserWarning, match="several columns are called 'c'"):
        assert result.rows == [{"c": 1}, {"c": 1}, {"c": 1}]


def test_rows_that_lose_a_column_of_the_same_name_warn(tmp_path: Path) -> None:
    graph = graph_of(
        tmp_path / "g", "node T { k: String @key  p: I64 }", {"T": [{"k": "a", "p": 7}]}
    )
    text = "query q() { match { $t: T } return { min($t.p), max($t.p) } }"
    with pytest.warns(UserWarning, match=r"several columns are called 't\.p'.*tuples\(\)") as told:
        assert graph.query(text).rows == [{"t.p": 7}]
    assert told[0].filename == __file__
    with pytest.warns(UserWarning, match="several columns"):
        graph.query(text).one()
    assert graph.query(text).tuples() == [(7, 7)]


def test_a_product_of_the_largest_integer_warns_of_nothing(tmp_path: Path) -> None:
    graph = graph_of(
        tmp_path / "g", "node T { k: String @key  p: I64 }", {"T": [{"k": "a", "p": 1}]}
    )
    text = f"query q() {{ match {{ $t: T }} return {{ $t.p * {2**63 - 1} as n }} }}"
    assert graph.query(text).rows == [{"n": 2**63 - 1}]
