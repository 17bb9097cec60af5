"""Objects of a result are the same of files and over HTTP: JSON, Arrow, CSV and what is printed."""

import io

import pyarrow as pa
import pyarrow.parquet as pq

from omnigraph.server.row_formats import csv_bytes
from tests.remote.both import Maker

SCHEMA = """
node Person { name: String @key, age: I32?, born: Date?, tags: [String]?, size: F64? }
edge Knows: Person -> Person { since: Date? }
"""
DATA = """\
{"type": "Person", "data": {"name": "Ada", "age": 36, "born": "1990-01-02", "tags": ["a", "b"]}}
{"type": "Person", "data": {"name": "Bob", "size": 1.5}}
{"edge": "Knows", "from": "Ada", "to": "Bob", "data": {"since": "2020-01-01"}}
"""
PAIRS = """query q() {
  match { $p: Person  optional { $p $k:knows $f } }
  return { $p as person { *, next: $p.age + 1 }, $f as friend { name, size }, $k { since }, 1 as n }
}"""
ADA = {"name": "Ada", "age": 36, "born": "1990-01-02", "tags": ["a", "b"], "size": None, "next": 37}
BOB = {"name": "Bob", "age": None, "born": None, "tags": None, "size": 1.5, "next": None}
ROWS = [
    {"person": ADA, "friend": {"name": "Bob", "size": 1.5}, "k": {"since": "2020-01-01"}, "n": 1},
    {"person": BOB, "friend": None, "k": None, "n": 1},
]


def test_objects_are_json_objects_and_null_where_their_variable_is(new: Maker) -> None:
    result = new(SCHEMA, DATA).query(PAIRS)
    assert result.columns == ["person", "friend", "k", "n"]
    assert result.rows == ROWS
    assert result[1] == ROWS[1]
    assert '{"name": "Bob", "size": 1.5}' in repr(result)


def test_objects_are_structs_in_arrow_and_keep_their_types_in_parquet(new: Maker) -> None:
    table = new(SCHEMA, DATA).query(PAIRS).to_arrow()
    assert table.schema.field("friend").type == pa.struct([("name", "string"), ("size", "float64")])
    assert table["k"].type == pa.struct([("since", pa.date32())])
    assert table["friend"].to_pylist() == [{"name": "Bob", "size": 1.5}, None]
    assert table["person"].combine_chunks().field("next").to_pylist() == [37, None]
    written = io.BytesIO()
    pq.write_table(table, written)
    assert pq.read_table(written)["friend"].to_pylist() == table["friend"].to_pylist()


def test_a_few_rows_and_no_rows_have_objects_too(new: Maker) -> None:
    graph = new(SCHEMA, DATA)
    one = 'query q() { match { $p: Person { name: "Ada" } } return { $p { name, age } } }'
    for _ in range(2):  # the second time, a plan whose result was small is walked
        assert graph.query(one).rows == [{"p": {"name": "Ada", "age": 36}}]
    none = graph.query(one.replace("Ada", "Zoe"))
    assert (none.rows, none.columns) == ([], ["p"])
    assert none.to_arrow().schema.field("p").type == pa.struct(
        [("name", "string"), ("age", "int32")]
    )


def test_equal_objects_are_one_and_groups_are_by_fields(new: Maker) -> None:
    graph = new(SCHEMA, DATA)
    graph.load([{"type": "Person", "data": {"name": n, "age": 36}} for n in ("Cy", "Dee")], "merge")
    distinct = "query q() { match { $p: Person } return distinct { $p { age } } }"
    assert [row["p"]["age"] for row in graph.query(distinct)] == [None, 36]
    grouped = """query q() {
      match { $p: Person } return { $p { age, heads: count(*) }, max($p.name) as last }
      order { last }
    }"""
    assert graph.query(grouped).rows == [
        {"p": {"age": None, "heads": 1}, "last": "Bob"},
        {"p": {"age": 36, "heads": 3}, "last": "Dee"},
    ]


def test_objects_of_a_union_take_the_name_of_the_first(new: Maker) -> None:
    text = """query q() {
      match { $p: Person  $p.age > 1 } return { $p as x { name } }
      union
      match { $p: Person  optional { $p knows $f } } return { $f as y { name } }
    }"""
    found = new(SCHEMA, DATA).query(text)
    assert found.rows == [{"x": {"name": "Ada"}}, {"x": {"name": "Bob"}}, {"x": None}]


def test_objects_in_csv_are_json(new: Maker) -> None:
    lines = csv_bytes(new(SCHEMA, DATA).query(PAIRS)).decode().splitlines()
    assert lines[0] == "person,friend,k,n"
    assert lines[1].endswith(',"{""name"":""Bob"",""size"":1.5}","{""since"":""2020-01-01""}",1')
    assert lines[2].endswith(",,,1")
