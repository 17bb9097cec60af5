"""A point lookup by id gives the row of the walk, and takes none of its parts."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import omnigraph as og
from omnigraph.exec.limits import Stop
from omnigraph.exec.read import reading
from omnigraph.graph import Graph

SCHEMA = """
node T { k: String @key  t: String? @hot  i: I64? @hot  f: F32? @hot  b: Bool? @hot  d: Date?
  cold: I32? }
"""
RETURNED = ("$x.k", "$x.t", "$x.i", "$x.f", "$x.b", "$x.cold", "$x.d", "$x", "$x.id")
KEYS = ("a", "b", "c", "é", "雪", "", "long " * 30)
VALUES = {"t": ("", "x", "ü"), "i": (0, -(2**60)), "f": (0.5, -1.0), "b": (True, False)}

keys = st.sampled_from(KEYS)
rows = st.fixed_dictionaries(
    {name: st.none() | st.sampled_from(each) for name, each in VALUES.items()}
)
asked = st.lists(st.sampled_from(RETURNED), min_size=1, max_size=4)
tails = st.sampled_from(("", " order { $x.k }", " limit 1", " limit 3 offset 0", " limit 0"))
steps = st.one_of(
    st.tuples(st.just("put"), keys, rows),
    st.tuples(st.just("drop"), keys, st.none()),
    st.tuples(st.just("ask"), keys, st.tuples(asked, tails)),
    st.tuples(st.just("ask"), keys, st.tuples(asked, tails)),
)


@pytest.fixture(autouse=True)
def _files_of_small_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMNIGRAPH_TOPOLOGY_ROWS_MIN", "0")


def record(key: str, row: dict[str, Any]) -> dict[str, Any]:
    return {"type": "T", "data": {"k": key, **row}}


def query_of(columns: list[str], tail: str = "") -> str:
    shown = ", ".join(f"{column} as c{n}" for n, column in enumerate(columns))
    return f"query q($k: String) {{ match {{ $x: T {{ k: $k }} }} return {{ {shown} }}{tail} }}"


def answer(graph: Graph, text: str, key: str | None, few_rows_max: int) -> Any:
    graph._reading.few_rows_max = few_rows_max
    result = graph.query(text, {"k": key})
    return result.columns, result.rows, result.to_arrow().schema, result.commit_id


@settings(
    max_examples=12,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(first=st.dictionaries(keys, rows, min_size=1), then=st.lists(steps, max_size=12))
def test_a_point_lookup_gives_the_row_of_the_walk(
    tmp_path_factory: pytest.TempPathFactory,
    first: dict[str, dict[str, Any]],
    then: list[tuple[str, str, Any]],
) -> None:
    with og.init(tmp_path_factory.mktemp("lookup") / "g", SCHEMA) as graph:
        graph.load([record(*each) for each in first.items()], "append")
        asks: list[tuple[str, str]] = []
        for verb, key, what in then:
            if verb == "put":
                graph.load([record(key, what)], "merge")
            elif verb == "drop":
                graph.mutate("query q($k: String) { delete T where k = $k }", {"k": key})
            else:
                asks.append((query_of(*what), key))
            for text, each in asks:
                expected = answer(graph, text, each, 0)
                for _ in range(3):
                    assert answer(graph, text, each, 128) == expected, f"{text} {each!r}"


def looked_up(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on a query runs no walk and no operator."""

    def refused(*_: object, **__: object) -> None:
        raise AssertionError("more than a lookup ran")

    monkeypatch.setattr(reading.Reading, "_running", refused)


def graph_of_three(path: Path) -> Graph:
    graph = og.init(path, SCHEMA)
    graph.load([record(key, {"t": key.upper(), "i": 7}) for key in "abc"], "append")
    return graph


def test_a_lookup_that_was_asked_before_runs_no_walk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph, text = graph_of_three(tmp_path / "g"), query_of(["$x.k", "$x.t", "$x.i", "$x.b"])
    for key in "ab":
        graph.query(text, {"k": key})
    looked_up(graph, monkeypatch)
    assert graph.query(text, {"k": "c"}).tuples() == [("c", "C", 7, None)]
    assert graph.query(text, {"k": "none"}).rows == []
    shown = graph.query(text, {"k": "a"}).explain()
    assert shown.count("1 rows") == 3, shown


def test_a_lookup_of_a_node_that_was_written_since_is_left_to_the_walk(tmp_path: Path) -> None:
    graph, text = graph_of_three(tmp_path / "g"), query_of(["$x.t"])
    for key in "abc":
        graph.query(text, {"k": key})
    graph.mutate('query q() { update T set { t: "new" } where k = "b" }')
    graph.mutate('query q() { delete T where k = "c" }')
    graph.mutate('query q() { insert T { k: "d", t: "D" } }')
    for _ in range(3):
        found = {key: graph.query(text, {"k": key}).tuples() for key in "abcd"}
        assert found == {"a": [("A",)], "b": [("new",)], "c": [], "d": [("D",)]}


def test_a_damaged_file_is_left_out_of_a_lookup(tmp_path: Path) -> None:
    graph, text = graph_of_three(tmp_path / "g"), query_of(["$x.t"])
    graph.query(text, {"k": "a"})
    graph.query(text, {"k": "a"})
    [column] = [
        nodes.columns.get("t")
        for view in graph._reading._views.values()
        for nodes in view._nodes.values()
    ]
    column.file._blocks.compared[:] = bytes(len(column.file._blocks.compared))
    column.file._blocks.left = len(column.file._blocks.compared)
    column.file._blocks.sums = bytes(len(column.file._blocks.sums))
    assert graph.query(text, {"k": "b"}).tuples() == [("B",)]
    assert graph.query(text, {"k": "c"}).tuples() == [("C",)]


def test_a_lookup_that_was_cancelled_says_so(tmp_path: Path) -> None:
    graph, text = graph_of_three(tmp_path / "g"), query_of(["$x.t"])
    for key in "ab":
        graph.query(text, {"k": key})
    stop = Stop(1000)
    stop.cancel()
    with pytest.raises(og.OmnigraphError):
        graph.query(text, {"k": "a"}, stop=stop)
