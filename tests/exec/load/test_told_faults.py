"""What a refused load tells: all that is wrong with its rows at once, where, and nothing untrue."""

from pathlib import Path
from typing import Any

import orjson
import pandas as pd
import polars
import pyarrow as pa
import pyarrow.parquet as pq
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
        f"""dst '["NO","Oslo"]' not found in City{form}""",
    }
    graph.load([{"name": "Oslo", "land": "NO"}], "append", type="City")
    assert graph.entity("node", "City", '["NO","Oslo"]').properties["name"] == "Oslo"
    near = [{"from": ["NO", "Oslo"], "to": '["NO","Oslo"]'}]
    assert graph.load(near, "append", edge="Near").edges == {"Near": 1}
    assert "must be a string or a key ([String, String]), not an array" in str(
        refused(graph, [{"from": ["NO"], "to": "a"}], edge="Near")
    )
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


def test_rows_with_different_bad_values_are_told_one_by_one_and_folded_where_they_are_many(
    graph: Graph,
) -> None:
    rows = [{"name": f"p{n}", "role": "guest"} for n in range(10)]
    rows[2]["role"], rows[5]["role"] = "boss", "chef"
    said = str(refused(graph, rows, type="Person"))
    assert said.startswith("row 3: invalid enum value 'boss'")
    assert "; row 6: invalid enum value 'chef'" in said
    for number, role in ((6, "boss"), (7, "cook"), (8, "dean")):
        rows[number]["role"] = role
    error = refused(graph, pa.Table.from_pylist(rows), type="Person")
    texts = [violation.text for violation in error.violations]
    assert [(v.value, v.line) for v in error.violations] == [("boss", 3), ("chef", 6), ("cook", 8)]
    shown = f"{texts[0]} (id 'p2', row 3), {texts[1]} (id 'p5', row 6), {texts[2]} (id 'p7', row 8)"
    assert str(error).startswith(f"5 rows: {shown}, and 2 more; correct")


def test_a_file_loaded_twice_with_append_is_told_once_and_with_what_to_do(graph: Graph) -> None:
    people = lines(person("Ada", email="a@b"), person("Bob", email="b@b"))
    graph.load(people, "append", engine="local")
    with pytest.raises(og.KeyTaken) as caught:
        graph.load(people, "append", engine="local")
    assert str(caught.value) == (
        "node type 'Person' already has id 'Ada'; "
        "load with mode merge to replace it, or use another id"
    )
    error = refused(graph, lines(person("Cy", email="a@b")), "append")
    assert "@unique violation on Person.email: value 'a@b' held by 'Ada' and 'Cy'" in str(error)


def test_a_key_that_comes_twice_is_called_a_key(graph: Graph) -> None:
    twice = lines(person("Ada", email="a@b"), person("Ada", email="a@b"))
    error = refused(graph, twice, "append")
    assert str(error) == (
        "line 2: @key violation on Person.name: value 'Ada' comes twice; "
        "correct the data and write again"
    )
    logs = lines(node("Log", id="l", text="a"), node("Log", id="l", text="b"))
    assert "@unique violation on Log.id: value 'l' comes twice" in str(
        refused(graph, logs, "append")
    )


def test_a_fraction_for_an_integer_is_shown(graph: Graph, tmp_path: Path) -> None:
    (tmp_path / "p.csv").write_text("name,age\nAda,2.5\n")
    for source in (tmp_path / "p.csv", [{"name": "Ada", "age": 2.5}]):
        said = str(refused(graph, source, type="Person"))
        assert "Person.age must be an integer, not 2.5; " in said


def test_whole_numbers_of_a_csv_may_have_a_point(tmp_path: Path) -> None:
    graph = og.init(tmp_path / "g.omni", schema="node Count { name: String @key  n: I64? }")
    whole = {"3.0": 3, "-0.0": 0, "1e3": 1000, "9007199254740993.0": 2**53 + 1, "": None, "7": 7}
    cells = "".join(f"{number},{text}\n" for number, text in enumerate(whole))
    (tmp_path / "c.csv").write_text(f"name,n\n{cells}")
    graph.load(tmp_path / "c.csv", "append", type="Count")
    rows = graph.query("query q() { match { $c: Count } return { $c.n } order { $c.name } }")
    assert [row["c.n"] for row in rows] == list(whole.values())
    for text in ("3.5", "1e30", "1e999", "9223372036854775808.0", "NaN"):
        (tmp_path / "c.csv").write_text(f"name,n\na,{text}\n")
        assert "Count.n" in str(refused(graph, tmp_path / "c.csv", type="Count"))


def test_a_name_that_is_nearly_right_is_answered_with_the_right_one(graph: Graph) -> None:
    for record, said in (
        (node("Preson", name="x"), "unknown node type 'Preson': did you mean 'Person'?"),
        (edge("Knosw", "a", "b"), "unknown edge type 'Knosw': did you mean 'Knows'?"),
        (person("x", aeg=1), "unknown property 'aeg' of Person: did you mean 'age'?"),
        (person("x", zzzz=1), "unknown property 'zzzz' of Person"),
    ):
        assert refused(graph, lines(record)).violations[0].text == said


def test_an_array_of_records_is_told_to_be_one_a_line(graph: Graph, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('[{"name": "a"},\n {"name": "b"}]')
    (tmp_path / "b.json").write_text('[\n{"name": "a"}\n]')
    (tmp_path / "c.json").write_text('[{"name": "a"}, {"name": "b"}]')
    for file in ("a.json", "b.json", "c.json"):
        first = refused(graph, tmp_path / file, type="Person").violations[0]
        assert (first.rule, first.line) == ("json", 1)
        assert "write one record a line" in first.text


def test_a_spreadsheet_is_told_to_be_saved_as_csv(graph: Graph, tmp_path: Path) -> None:
    (tmp_path / "people.xlsx").write_bytes(b"PK")
    with pytest.raises(og.BadRequest, match="save it as CSV"):
        graph.load(tmp_path / "people.xlsx", "merge", type="Person")


def test_rejected_records_have_the_ids_that_their_keys_say(graph: Graph, tmp_path: Path) -> None:
    (tmp_path / "p.csv").write_text("name,age,role\nAda,old,guest\n,1,guest\nBob,1,boss\n")
    (tmp_path / "p.jsonl").write_bytes(
        lines(
            person("Ada", age="old"),
            {"type": "Person", "data": {"age": 1}},
            person("Bob", role="boss"),
            node("Log", text=7, id="l1"),
        )
    )
    for file, options, ids in (
        ("p.csv", {"type": "Person"}, ["Ada", None, "Bob"]),
        ("p.jsonl", {}, ["Ada", None, "Bob", "l1"]),
    ):
        folder = tmp_path / f"rejects of {file}"
        refused(graph, tmp_path / file, rejects=folder, **options)
        entries = map(orjson.loads, (folder / "rejects.jsonl").read_bytes().splitlines())
        assert [entry["id"] for entry in entries] == ids


def test_an_export_whose_key_was_renamed_says_how_it_is_loaded(tmp_path: Path) -> None:
    before = "node S { stage: String  starts: I32  @key(stage, starts) }"
    after = 'node S { stage: String  begins: I32 @rename_from("starts")  @key(stage, begins) }'
    graph = og.init(tmp_path / "g.omni", schema=before)
    graph.load([{"stage": "Main", "starts": 1}], "append", type="S")
    graph.schema.apply(after)
    for name in ("dump.jsonl", "dump/"):
        dump = f"{tmp_path}/{name}"  # of a folder with a slash at its end
        graph.export(dump, format="csv" if name == "dump/" else "jsonl")
        fresh = og.init(tmp_path / f"{name.strip('/')}.omni", schema=after)
        assert "orders the key by today's names" in str(refused(fresh, dump))
        renamed = og.init(tmp_path / f"{name.strip('/')}2.omni", schema=before)
        renamed.schema.apply(after)
        assert renamed.load(dump, "append").nodes == {"S": 1}


def test_columns_without_rows_are_checked_and_an_overwrite_with_them_is_refused(
    graph: Graph, tmp_path: Path
) -> None:
    graph.load(lines(person("Ada"), person("Bob")), "append")
    (tmp_path / "w.csv").write_text("mrn,full_name\n")
    empty = pa.table({"mrn": pa.array([], pa.utf8())})
    pq.write_table(empty, tmp_path / "w.parquet")
    sources = (tmp_path / "w.csv", tmp_path / "w.parquet", empty, pd.DataFrame({"mrn": []}))
    for source in sources:
        modes: tuple[LoadMode, ...] = ("overwrite", "merge")
        for mode in modes:
            said = str(refused(graph, source, mode, type="Person"))
            assert "unknown property 'mrn' of Person" in said
    (tmp_path / "w.csv").write_text("name,age\n")
    right = (tmp_path / "w.csv", pa.table({"name": pa.array([], pa.utf8())}))
    for source in right:
        assert graph.load(source, "merge", type="Person").total_entities == 0
    assert graph.load(right[0], "overwrite", type="Person").total_entities == 0
    assert graph.query("query q() { match { $p: Person } return { $p.name } }").rows == []
