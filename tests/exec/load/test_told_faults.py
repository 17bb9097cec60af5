"""What a refused load tells: all that is wrong with its rows at once, where, and nothing untrue."""

from pathlib import Path
from typing import Any

import orjson
import pandas as pd
import polars
import pyarrow as pa
import pytest

import omnigraph as og
from omnigraph.graph import Graph
from omnigraph.types import LoadMode
from tests.exec.bulk import edge, lines, new_graph, node, person


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    return new_graph(tmp_path)


def refused(
    graph: Graph, source: Any, mode: LoadMode = "merge", **options: Any
) -> og.ConstraintViolated:
    with pytest.raises(og.ConstraintViolated) as caught:
        graph.load(source, mode, engine="local", **options)
    return caught.value


BAD = {"name": "Ada", "age": "old", "role": "boss", "email": "nowhere"}
TOLD = {("type", "age"), ("enum", "role"), ("check", "email")}


@pytest.mark.parametrize("mode", ["append", "merge", "patch"])
def test_type_faults_and_rule_faults_of_a_row_are_told_together(
    graph: Graph, tmp_path: Path, mode: LoadMode
) -> None:
    (tmp_path / "p.csv").write_text("name,age,role,email\nAda,old,boss,nowhere\nBob,1,guest,a@b\n")
    (tmp_path / "p.jsonl").write_bytes(lines(person(**BAD), person("Bob", age=1)))
    errors = [
        refused(graph, tmp_path / "p.csv", mode, type="Person"),
        refused(graph, tmp_path / "p.jsonl", mode),
        refused(graph, [BAD, {"name": "Bob"}], mode, type="Person"),
        refused(graph, pa.Table.from_pylist([BAD]), mode, type="Person"),
    ]
    for error in errors:
        assert {(v.rule, v.property) for v in error.violations} == TOLD
        assert error.total == 3
    assert {v.line for v in errors[0].violations} == {2}
    assert {v.line for v in errors[1].violations} == {1}


def test_a_value_that_cannot_be_read_is_not_called_missing(graph: Graph, tmp_path: Path) -> None:
    (tmp_path / "l.csv").write_text("from,to,weight\nAda,,heavy\n")
    error = refused(graph, tmp_path / "l.csv", edge="Wrote")
    assert sorted((v.rule, v.property) for v in error.violations) == [
        ("required", "to"),
        ("type", "weight"),
    ]
    error = refused(graph, lines(node("Log", text=7)))
    assert [(v.rule, v.property) for v in error.violations] == [("type", "text")]


def test_an_edge_is_not_blamed_for_a_node_that_was_refused(graph: Graph, tmp_path: Path) -> None:
    (tmp_path / "node-Person.csv").write_text("name,age\nAda,old\nBob,2\n")
    (tmp_path / "edge-Knows.csv").write_text("from,to\nAda,Bob\n")
    files = [tmp_path / "node-Person.csv", tmp_path / "edge-Knows.csv"]
    assert [v.rule for v in refused(graph, files).violations] == ["type"]
    records = lines(person("Ada", age="old"), edge("Knows", "Ada", "Ada"))
    assert [v.rule for v in refused(graph, records).violations] == ["type"]
    count = lines(node("Count", n=1), node("Log", text="t", id="l"))
    graph.load(count, "append")
    owns = lines(edge("Owns", "1", "l", nope=1), edge("Owns", "1", "l", nope=2))
    assert {v.rule for v in refused(graph, owns).violations} == {"property"}


@pytest.mark.parametrize(
    "frame",
    [pa.Table.from_pylist, pd.DataFrame, polars.DataFrame, list],
    ids=["arrow", "pandas", "polars", "records"],
)
def test_faults_of_a_table_in_memory_name_its_row(graph: Graph, frame: Any) -> None:
    rows = [{"name": "Ada", "role": "guest"}, {"name": "Bob", "role": "boss"}]
    error = refused(graph, frame(rows), type="Person")
    assert str(error).startswith("row 2: invalid enum value 'boss'")
    missing = refused(graph, frame([{"from": "Ada", "to": "Bob"}]), edge="Knows")
    assert str(missing.violations[0]) == "row 1: dst 'Bob' not found in Person"
    assert str(refused(graph, b"{oops\n")).startswith("line 1: malformed")


def test_a_missing_end_with_a_key_of_several_values_shows_the_form_of_its_id(
    tmp_path: Path,
) -> None:
    schema = "node City { name: String  land: String  @key(name, land) }\nedge Near: City -> City"
    graph = og.init(tmp_path / "g.omni", schema=schema)
    form = """: an id of City is the array of its key's values, like ["<land>","<name>"]"""
    error = refused(graph, [{"from": "Rome", "to": '["NO","Oslo"]'}], edge="Near")
    assert {v.text for v in error.violations} == {
        f"src 'Rome' not found in City{form}",
        """dst '["NO","Oslo"]' not found in City""",
    }
    graph.load([{"name": "Oslo", "land": "NO"}], "append", type="City")
    assert graph.entity("node", "City", '["NO","Oslo"]').properties["name"] == "Oslo"
    with pytest.raises(og.ConstraintViolated) as caught:
        graph.mutate('query q() { insert Near { from: "Rome", to: "Oslo" } }')
    assert form in str(caught.value)


def test_rejects_hold_the_records_of_text_files_as_they_were_read(
    graph: Graph, tmp_path: Path
) -> None:
    def records(*files: str, **options: Any) -> list[tuple[int, str, str]]:
        refused(graph, [tmp_path / file for file in files], rejects=tmp_path / "r", **options)
        rejects = map(orjson.loads, (tmp_path / "r" / "rejects.jsonl").read_bytes().splitlines())
        return sorted((each["line"], each["rule"], each["record"]) for each in rejects)

    text = 'name,age,role\nAda,1,guest\n"Bo,b\nby",old,guest\n\nCy,2,boss\n'
    (tmp_path / "p.csv").write_text(text)
    assert records("p.csv", type="Person") == [
        (3, "type", '"Bo,b\nby",old,guest'),
        (6, "enum", "Cy,2,boss"),
    ]
    (tmp_path / "k.tsv").write_text("from\tto\nAda\tNobody\n")
    assert (2, "endpoint", "Ada\tNobody") in records("k.tsv", edge="Knows")
    (tmp_path / "p.jsonl").write_text('{"name": "Ada", "role": "boss"}\n')
    assert records("p.jsonl", type="Person") == [(1, "enum", '{"name": "Ada", "role": "boss"}')]
