"""Columns that callers and files bring: Arrow, pandas, polars, Parquet, CSV, ORC."""

import io
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pandas as pd
import polars
import pyarrow as pa
import pyarrow.orc as orc
import pyarrow.parquet as pq
import pytest

import omnigraph as og
from omnigraph.graph import Graph
from tests.exec.bulk import by_name, contents, new_graph

PEOPLE = pa.table(
    {
        "full_name": ["Ada", "Bob"],
        "age": pa.array([36, None], pa.int64()),
        "score": pa.array([0.5, 1.5]),
        "born": pa.array([date(1815, 12, 10), None]),
        "seen": pa.array([datetime(2024, 1, 31, 10), None], pa.timestamp("us")),
        "tags": pa.array([["x"], None]),
        "face": pa.array([[1.0, 2.0], None]),
        "pic": pa.array([b"hi", None]),
        "role": pa.array(["admin", None]).dictionary_encode(),
    }
)


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    return new_graph(tmp_path)


def refused(graph: Graph, source: Any, **options: Any) -> og.ConstraintViolated:
    with pytest.raises(og.ConstraintViolated) as caught:
        graph.load(source, "append", **options)
    assert contents(graph) == {}
    return caught.value


def test_LD1_arrow_columns_are_named_and_turned(graph: Graph) -> None:
    graph.load(PEOPLE, "append", type="Person", columns={"full_name": "name"})
    ada, bob = (by_name(graph, "node:Person")[name] for name in ("Ada", "Bob"))
    assert (ada["age"], ada["born"], ada["tags"], ada["pic"]) == (
        36,
        date(1815, 12, 10),
        ["x"],
        b"hi",
    )
    assert ada["seen"] == datetime(2024, 1, 31, 10, tzinfo=UTC)
    assert (ada["face"], ada["role"], ada["score"]) == ([1.0, 2.0], "admin", 0.5)
    assert (bob["age"], bob["face"], bob["pic"]) == (None, None, None)


def test_pandas_and_polars_and_streams(graph: Graph) -> None:
    graph.load(pd.DataFrame({"name": ["a", "b"], "age": [1, None]}), "append", type="Person")
    graph.load(polars.DataFrame({"name": ["c"], "age": [3]}), "append", type="Person")
    graph.load(pa.table({"name": ["d"]}).to_reader(), "append", type="Person")
    ages = {i: row["age"] for i, row in by_name(graph, "node:Person").items()}
    assert ages == {"a": 1, "b": None, "c": 3, "d": None}


def test_parquet_and_orc_files(graph: Graph, tmp_path: Path) -> None:
    table = pa.table({"name": [f"p{n}" for n in range(1000)], "age": range(0, 1000, 1)})
    table = table.set_column(1, "age", pa.array([n % 90 for n in range(1000)]))
    pq.write_table(table, tmp_path / "people.parquet", row_group_size=100)
    assert graph.load(tmp_path / "people.parquet", "append", type="Person").nodes["Person"] == 1000
    orc.write_table(pa.table({"from": ["p1"], "to": ["p2"]}), str(tmp_path / "knows.orc"))
    assert graph.load(tmp_path / "knows.orc", "append", edge="knows").edges == {"Knows": 1}


def test_csv_cells_are_text(graph: Graph, tmp_path: Path) -> None:
    (tmp_path / "p.csv").write_text(
        "name,age,height,ok,born,seen,tags,face,email\n"
        'Ada,36,1.5,true,1815-12-10,2024-01-31T10:00:00Z,"[""x"",""y""]","[1,2]",a@b\n'
        "Bob,,,,19000,,,,\n"
        '007,7,,FALSE,,,,,"a,b@c"\n'
    )
    graph.load(tmp_path / "p.csv", "append", type="Person")
    people = by_name(graph, "node:Person")
    assert (people["Ada"]["age"], people["Ada"]["ok"], people["Ada"]["tags"]) == (
        36,
        True,
        ["x", "y"],
    )
    assert (people["Ada"]["face"], people["Ada"]["born"]) == ([1.0, 2.0], date(1815, 12, 10))
    assert (people["Bob"]["age"], people["Bob"]["born"]) == (None, date(2022, 1, 8))
    assert (people["007"]["ok"], people["007"]["email"]) == (False, "a,b@c")


def test_a_column_that_comes_twice_is_refused(graph: Graph, tmp_path: Path) -> None:
    twice = pa.Table.from_arrays(
        [pa.array(["a"]), pa.array([1]), pa.array([2])], ["name", *["age"] * 2]
    )
    error = refused(graph, twice, type="Person")
    assert [(v.rule, v.text) for v in error.violations] == [
        ("property", "two columns fill Person.age")
    ]
    (tmp_path / "p.csv").write_text("name,age,age\nAda,1,2\n")
    assert "two columns fill Person.age" in str(refused(graph, tmp_path / "p.csv", type="Person"))
    pq.write_table(twice, tmp_path / "p.parquet")
    error = refused(graph, tmp_path / "p.parquet", type="Person")
    assert "two columns fill Person.age" in str(error)
    frame = pd.DataFrame([["a", 1, 2]], columns=["name", "age", "age"])
    with pytest.raises(og.BadRequest, match="pandas"):
        graph.load(frame, "append", type="Person")
    reader = pa.RecordBatchReader.from_batches(twice.schema, twice.to_batches())
    assert "two columns fill Person.age" in str(refused(graph, reader, type="Person"))


def test_a_bad_cell_names_its_file_and_line(graph: Graph, tmp_path: Path) -> None:
    (tmp_path / "p.csv").write_text("name,age\nAda,1\nBob,old\nCy,300\n")
    error = refused(graph, tmp_path / "p.csv", type="Person")
    assert [(v.line, v.rule, v.value) for v in error.violations] == [
        (3, "type", "old"),
        (4, "range", "300"),
    ]
    assert str(error.violations[0].file).endswith("p.csv")


def test_flat_json_lines_of_one_type(graph: Graph, tmp_path: Path) -> None:
    (tmp_path / "c.jsonl").write_text('{"number": 1}\n{"number": 2}\n')
    graph.load(tmp_path / "c.jsonl", "append", type="Count", columns={"number": "n"})
    assert set(by_name(graph, "node:Count")) == {"1", "2"}


def test_a_column_that_is_named_with_none_is_left_out(graph: Graph, tmp_path: Path) -> None:
    (tmp_path / "c.jsonl").write_text('{"n": 1, "why": "x"}\n{"n": 2}\n')
    (tmp_path / "c.csv").write_text("n,why\n3,x\n4,\n")
    table = pa.table({"n": [5], "why": ["x"]})
    for source in (tmp_path / "c.jsonl", tmp_path / "c.csv", table, [{"n": 6, "why": 0}]):
        graph.load(source, "append", type="Count", columns={"why": None})
    assert set(by_name(graph, "node:Count")) == set("123456")
    (tmp_path / "c.csv").write_text("n,why\n3,x\n")
    with pytest.raises(og.ConstraintViolated, match="leave it out with columns="):
        graph.load(tmp_path / "c.csv", "merge", type="Count")


def test_a_list_in_a_cell_is_json(graph: Graph, tmp_path: Path) -> None:
    (tmp_path / "p.csv").write_text("name,tags\nAda,a;b\n")
    error = refused(graph, tmp_path / "p.csv", type="Person")
    assert error.violations[0].text.endswith("""not 'a;b'; write a list as JSON, like ["a", "b"]""")


def test_endpoints_are_ids_or_keys(graph: Graph) -> None:
    graph.load(pa.table({"n": [1, 2]}), "append", type="Count")
    graph.load(pa.table({"text": ["t"], "id": ["l"]}), "append", type="Log")
    graph.load(
        pa.table({"a": [1], "b": ["l"]}), "append", edge="Owns", columns={"a": "from", "b": "to"}
    )
    graph.load([{"from": 2, "to": "l"}], "append", edge="Owns")
    assert sorted(e["src"] for e in contents(graph)["edge:Owns"]) == ["1", "2"]


@pytest.mark.parametrize(
    ("columns", "rule"),
    [
        ({"name": ["a"], "nope": [1]}, "property"),
        ({"name": pa.array(["a", None])}, "required"),
        ({"age": [1]}, "required"),
        ({"name": ["a"], "age": [1.5]}, "type"),
        ({"name": ["a"], "age": [2**40]}, "out_of_range"),
        ({"name": ["a"], "height": [float("inf")]}, "out_of_range"),
        ({"name": ["a"], "born": ["someday"]}, "date"),
        ({"name": ["a"], "tags": [["x", None]]}, "list"),
        ({"name": ["a"], "face": [[1.0]]}, "vector"),
        ({"name": ["a"], "id": ["b"]}, "key_id"),
        ({"name": ["a"], "ok": ["yes"]}, "type"),
        ({"name": ["a"], "age": [151]}, "range"),
    ],
)
def test_bad_columns_are_refused(graph: Graph, columns: dict[str, Any], rule: str) -> None:
    assert [name for name, _ in refused(graph, pa.table(columns), type="Person").counts] == [rule]


def test_a_required_column_that_is_missing_is_told_once_as_missing(graph: Graph) -> None:
    (only,) = refused(graph, pd.DataFrame({"age": [1, 2]}), type="Person").violations
    assert only.text == "column `name` is missing: Person needs it and has no default"
    assert (only.rule, only.property, only.line) == ("required", "name", None)


def test_NaN_in_a_vector_is_called_by_its_name(graph: Graph) -> None:
    frame = pd.DataFrame({"name": ["a"], "face": [[1.0, float("nan")]]})
    (only,) = refused(graph, frame, type="Person").violations
    assert "Person.face holds a null or NaN" in only.text


def test_edges_need_both_ends(graph: Graph) -> None:
    assert refused(graph, pa.table({"from": ["a"]}), edge="Knows").counts == (("required", 1),)
    table = pa.table({"from": ["a"], "to": pa.array([None], pa.utf8())})
    assert refused(graph, table, edge="Knows").counts == (("required", 1),)


def test_a_damaged_file_is_refused(graph: Graph, tmp_path: Path) -> None:
    (tmp_path / "p.parquet").write_bytes(b"not parquet")
    with pytest.raises(og.BadRequest, match=r"cannot read .*p.parquet as parquet"):
        graph.load(tmp_path / "p.parquet", "append", type="Person")


@pytest.mark.parametrize("source", [pd.DataFrame(), polars.DataFrame(), pa.table({})])
def test_a_table_without_columns_loads_no_rows(graph: Graph, source: Any) -> None:
    assert graph.load(source, "append", type="Person").inserted == 0
    assert graph.load(source, "append", edge="Knows").inserted == 0
    assert contents(graph) == {}


def test_rows_without_columns_are_refused(graph: Graph) -> None:
    with pytest.raises(og.BadRequest, match="3 rows and no columns; reset_index"):
        graph.load(pd.DataFrame(index=range(3)), "append", type="Person")


def test_edges_of_rows_without_columns_are_refused(graph: Graph) -> None:
    rows = pa.table({"who": ["Ada", "Bob"], "whom": ["Bob", "Ada"]})
    for source, columns in ((rows.select([]), None), (rows, {"who": None, "whom": None})):
        told = str(refused(graph, source, edge="Knows", columns=columns))
        assert told.startswith("Knows needs columns for `from` and `to`; say which column it is")


def test_a_table_of_a_library_that_extends_pandas_or_polars_is_a_table(graph: Graph) -> None:
    class GeoDataFrame(pd.DataFrame):
        pass

    class GeoSeries(pd.Series):
        pass

    class Frame(polars.DataFrame):
        pass

    graph.load(GeoDataFrame({"name": ["Ada"], "age": [36]}), "append", type="Person")
    graph.load(Frame({"name": ["Bob"], "age": [37]}), "append", type="Person")
    ages = {name: row["age"] for name, row in by_name(graph, "node:Person").items()}
    assert ages == {"Ada": 36, "Bob": 37}
    with pytest.raises(og.BadRequest, match="cannot load a Series of pandas; give a DataFrame"):
        graph.load(GeoSeries(["Cy"]), "append", type="Person")


@pytest.mark.parametrize(
    ("source", "told"),
    [
        (pd.Series(["a"], name="name"), "cannot load a Series of pandas; give a DataFrame"),
        (polars.Series("name", ["a"]), "cannot load a Series of polars; give a DataFrame"),
        (pd.DataFrame({"name": ["a"]}).groupby("name"), "cannot load a DataFrameGroupBy"),
        (io.StringIO('{"name": "a"}\n'), "this file gives text; open the file with mode 'rb'"),
    ],
)
def test_what_is_no_table_is_refused_with_what_to_give(
    graph: Graph, source: Any, told: str
) -> None:
    with pytest.raises(og.BadRequest, match=told):
        graph.load(source, "append", type="Person")


def test_months_of_pandas_are_no_days(graph: Graph, tmp_path: Path) -> None:
    frame = pd.DataFrame({"name": ["Ada"], "born": pd.PeriodIndex(["2020-01"], freq="M")})
    frame.to_parquet(tmp_path / "months.parquet")
    for source in (frame, tmp_path / "months.parquet"):
        told = str(refused(graph, source, type="Person"))
        assert "Person.born is a column of pandas.period; give texts" in told


ENDS_OF_THEIRS = (
    "Knows needs columns for `from` and `to`; "
    "say which column it is, like columns={'who': 'from', 'whom': 'to'}, "
    "at a terminal --column who=from --column whom=to"
)


def test_edges_without_ends_say_which_columns_may_be_the_ends(graph: Graph, tmp_path: Path) -> None:
    (tmp_path / "theirs.csv").write_text("who,whom\nAda,Bob\n")
    for source in (pa.table({"who": ["Ada"], "whom": ["Bob"]}), tmp_path / "theirs.csv"):
        assert str(refused(graph, source, edge="Knows")).startswith(ENDS_OF_THEIRS)
    lone = refused(graph, pa.table({"from": ["Ada"]}), edge="Knows")
    assert "needs a column for `to`; say which column it is, like columns={'THEIR_TO'" in str(lone)
    flat = refused(graph, [{"who": "Ada", "to": "Bob"}], edge="Knows")
    assert "needs `from`: an edge is non-nullable at both ends; say which column" in str(flat)
    null = refused(graph, [{"from": None, "to": "Bob"}], edge="Knows")
    assert "say which column" not in str(null)


def test_an_index_that_is_called_like_a_property_is_told_to_become_a_column(graph: Graph) -> None:
    frame = pd.DataFrame({"name": ["Ada"], "age": [36]})
    for index, column in (("name", "name"), ("age", "age")):
        said = str(refused(graph, frame.set_index(index), type="Person"))
        assert f"Person.{column} has no column: '{index}' is the index of the table" in said
        assert "reset_index() makes it a column" in said
    ends = pd.DataFrame({"from": ["Ada"], "to": ["Ada"]}).set_index("from")
    assert "'from' is the index of the table" in str(refused(graph, ends, edge="Knows"))
    graph.load(frame.rename_axis("row"), "append", type="Person")
    graph.load(frame.rename_axis("id"), "merge", type="Person")


def test_lists_of_several_types_among_objects_are_read_value_by_value(graph: Graph) -> None:
    lists = [[1.0, 2], None, ["x"]]
    frame = pd.DataFrame({"name": ["a", "b", "c"], "face": pd.Series(lists, dtype=object)})
    wrong = refused(graph, frame, type="Person").violations
    assert [(each.line, each.property) for each in wrong] == [(3, "face")]
    mixed = pd.Series([["x"], None, [1, "y"]], dtype=object)
    wrong = refused(graph, frame.assign(face=None, tags=mixed), type="Person").violations
    assert [(each.line, each.property) for each in wrong] == [(3, "tags")]
