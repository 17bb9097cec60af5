"""Conditions of one scan: each sees what those before it left, however it is worked out."""

from pathlib import Path

import pytest

import omnigraph as og
from omnigraph.graph import Graph
from tests.exec.world import graph_of

SCHEMA = "node V { k: I64 @key  i: I64  j: I64  s: String? }"
ROWS = [{"k": n, "i": n * 3, "j": n % 10, "s": f"t{n % 7}"} for n in range(200)]


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    graph = graph_of(Path(tmp_path_factory.mktemp("conjuncts")) / "g", SCHEMA, {"V": ROWS})
    for _ in range(3):  # a table that is read again and again is kept in memory
        keys(graph, "$v.i >= 0")
    return graph


def keys(graph: Graph, *conditions: str) -> list[int]:
    text = f"query q() {{ match {{ $v: V  {'  '.join(conditions)} }} return {{ $v.k as k }} }}"
    return sorted(row["k"] for row in graph.query(text))


def test_a_row_that_is_left_out_does_not_fail_what_comes_after(graph: Graph) -> None:
    expected = [row["k"] for row in ROWS if row["j"] and row["i"] % row["j"] == 0]
    assert keys(graph, "$v.j != 0", "$v.i % $v.j = 0") == expected
    with pytest.raises(og.ExpressionFailed, match="division by zero"):
        keys(graph, "$v.j >= 0", "$v.i % $v.j = 0")


@pytest.mark.parametrize("least", [0, 1, 40, 60, 199, 200])
def test_conjuncts_are_a_conjunction_whether_few_or_most_rows_stay(
    graph: Graph, least: int
) -> None:
    found = keys(graph, f"$v.k >= {least}", '$v.s != "t3"', "$v.i * 2 + $v.j > 30", "$v.j < 9")
    assert found == [
        row["k"]
        for row in ROWS
        if row["k"] >= least and row["s"] != "t3" and row["i"] * 2 + row["j"] > 30 and row["j"] < 9
    ]


def test_sums_and_choices_over_one_group(graph: Graph) -> None:
    text = """query q() { match { $v: V  $v.j >= 0 } return {
      sum(case when $v.i % 2 = 0 then $v.i else 0 end) as even, sum($v.i) as all, count(*) as n,
      avg($v.j) as mean, sum(case when $v.i > 30 then $v.j end) as some, count($v.s) as texts
    } }"""
    (row,) = graph.query(text).rows
    assert row == {
        "even": sum(r["i"] for r in ROWS if r["i"] % 2 == 0),
        "all": sum(r["i"] for r in ROWS),
        "n": 200,
        "mean": 4.5,
        "some": sum(r["j"] for r in ROWS if r["i"] > 30),
        "texts": 200,
    }
