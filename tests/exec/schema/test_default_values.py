"""Defaults in rows: what a row that leaves a property out gets, on every way in."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import omnigraph as og
from omnigraph.graph import Graph

SCHEMA = """node Item {
  name: String @key
  score: F64 = 1.5
  tags: [String]? = ["x"]
  state: enum(a, b) = b
  due: Date = "2024-01-31"
}
edge Near: Item -> Item { weight: I32 = 3 }
"""
FULL = {"score": 1.5, "tags": ["x"], "state": "b", "due": "2024-01-31"}


def rows(graph: Graph, **options: Any) -> dict[str, dict[str, Any]]:
    done = graph.query(
        "query q() { match { $i: Item } "
        "return { $i.name as name, $i.score as score, $i.tags as tags, $i.state as state, "
        "$i.due as due } }",
        **options,
    )
    return {r.pop("name"): {**r, "due": str(r["due"])} for r in map(dict, done.rows)}


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    return og.init(tmp_path / "g", SCHEMA)


def test_every_way_in_fills_what_is_left_out_and_keeps_what_is_given(
    graph: Graph, tmp_path: Path
) -> None:
    graph.mutate('query m() { insert Item { name: "insert" } }')
    graph.mutate('query m() { insert Item { name: "given", tags: null, score: 2.0 } }')
    graph.load([{"type": "Item", "data": {"name": "record"}}], "append")
    graph.load(pa.table({"name": ["columns"]}), "append", type="Item")
    graph.load(pa.table({"name": ["cell"], "tags": pa.nulls(1)}), "append", type="Item")
    (tmp_path / "plain.jsonl").write_text('{"type":"Item","data":{"name":"line"}}\n')
    graph.load(tmp_path / "plain.jsonl", "merge")
    mixed = [{"name": "without"}, {"name": "null", "tags": None}, {"name": "with", "score": 9.0}]
    text = "".join(json.dumps({"type": "Item", "data": data}) + "\n" for data in mixed)
    (tmp_path / "mixed.jsonl").write_text(text)
    graph.load(tmp_path / "mixed.jsonl", "merge")
    (tmp_path / "c.csv").write_text("name\ncsv\n")
    graph.load(tmp_path / "c.csv", "append", type="Item")

    expected = {name: FULL for name in ("insert", "record", "columns", "line", "without", "csv")}
    expected |= {"given": {**FULL, "tags": None, "score": 2.0}, "with": {**FULL, "score": 9.0}}
    expected |= {name: {**FULL, "tags": None} for name in ("cell", "null")}
    assert rows(graph) == expected


def test_an_edge_has_defaults_too(graph: Graph) -> None:
    graph.load([{"type": "Item", "data": {"name": n}} for n in "ab"], "append")
    graph.mutate('query m() { insert Near { from: "a", to: "b" } }')
    graph.load([{"edge": "Near", "from": "b", "to": "a"}], "append")
    read = "query q() { match { $a: Item  $a $n: near $b } return { $n.weight as w } }"
    assert [row["w"] for row in graph.query(read).rows] == [3, 3]


def test_an_explicit_null_of_a_required_property_is_an_error(graph: Graph) -> None:
    with pytest.raises(og.TypeCheckError):
        graph.mutate('query m() { insert Item { name: "x", score: null } }')
    record = {"type": "Item", "data": {"name": "x", "score": None}}
    with pytest.raises(og.ConstraintViolated):
        graph.load([record], "append")
    with pytest.raises(og.ConstraintViolated):
        graph.load(pa.table({"name": ["x"], "score": pa.nulls(1)}), "append", type="Item")
    assert rows(graph) == {}


def test_a_required_property_with_a_default_is_added_to_rows_and_fills_them(tmp_path: Path) -> None:
    graph = og.init(tmp_path / "g", "node Item { name: String @key }")
    graph.load([{"type": "Item", "data": {"name": n}} for n in "ab"], "append")
    before = graph.commits.list()[0].id
    graph.schema.apply(SCHEMA)
    assert rows(graph) == {"a": FULL, "b": FULL}
    assert graph.check().ok
    names = graph.query("query q() { match { $i: Item } return { $i.name as n } }", snapshot=before)
    assert {row["n"] for row in names.rows} == {"a", "b"}


def test_another_default_touches_no_row(graph: Graph) -> None:
    graph.mutate('query m() { insert Item { name: "old" } }')
    done = graph.schema.apply(SCHEMA.replace("= 1.5", "= 7.0"))
    assert done.commit is not None
    assert not done.commit.counts
    graph.mutate('query m() { insert Item { name: "new" } }')
    assert rows(graph) == {"old": FULL, "new": {**FULL, "score": 7.0}}


def test_widened_columns_keep_values_indexes_and_take_wider_ones(tmp_path: Path) -> None:
    graph = og.init(tmp_path / "g", "node N { k: I32 @key  a: I32 @index  f: F32  s: String }")
    graph.load(
        [{"type": "N", "data": {"k": k, "a": k, "f": 0.5, "s": "x"}} for k in range(3)], "append"
    )
    before = graph.commits.list()[0].id
    graph.schema.apply("node N { k: I64 @key  a: I64? @index  f: F64  s: String? }")
    graph.load([{"type": "N", "data": {"k": 2**40, "f": 0.1, "a": 2**41}}], "append")
    graph.load([{"type": "N", "data": {"k": 1, "f": 0.1, "a": 7, "s": "y"}}], "merge")
    read = "query q() { match { $n: N } return { $n.k as k, $n.a as a, $n.f as f, $n.s as s } }"
    assert sorted(tuple(row.values()) for row in graph.query(read).rows) == [
        (0, 0, 0.5, "x"),
        (1, 7, 0.1, "y"),
        (2, 2, 0.5, "x"),
        (2**40, 2**41, 0.1, None),
    ]
    one = "query q() { match { $n: N { a: 7 } } return { $n.k as k } }"
    assert [row["k"] for row in graph.query(one).rows] == [1]
    assert len(graph.query(read, snapshot=before).rows) == 3
    assert graph.check().ok
