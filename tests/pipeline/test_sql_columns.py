"""SQL over a graph reads the columns that it names, and all where it may need others."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from omnigraph.pipeline.sql_columns import columns_of
from tests.exec.world import graph_of

COLUMNS = ["id", "name", "age", "city"]
SCHEMA = "node Person { name: String @key  age: I32?  city: String? }\nedge Knows: Person -> Person"


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("select name from Person where AGE > 3", ["name", "age"]),
        ("with p as (select city c from Person) select c from p", ["city"]),
        ("select count(*) from Person", ["id"]),
        ("select count( * ), max(age) from Person", ["age"]),
        ("select `city` from Person order by 1", ["city"]),
        ("select * from Person", None),
        ("select p.* from Person p", None),
        ("select age * 2 from Person", None),
        ("select name from Person natural join Other", None),
        ("select name from Person join Other using (id)", None),
        ("select name from Person where age > :least", None),
        ("select {column} from Person", None),
        ("from Person select name", None),
        ("table Person", None),
        ("describe Person", None),
    ],
)
def test_SQ6_columns_of_a_statement(statement: str, expected: list[str] | None) -> None:
    assert columns_of(statement, COLUMNS) == expected


def test_SQ6_sql_gives_the_same_rows_with_few_columns(tmp_path: Path, spark: SparkSession) -> None:
    people = [{"name": n, "age": a, "city": c} for n, a, c in (("a", 1, "x"), ("b", None, "y"))]
    knows = [{"id": "k", "src": "a", "dst": "b"}]
    with graph_of(tmp_path / "g", SCHEMA, {"Person": people}, {"Knows": knows}) as graph:
        joined = graph.spark.sql(
            "select p.city, q.age from Knows k join Person p on p.id = k.src "
            "join Person q on q.id = k.dst",
            spark=spark,
        )
        assert [tuple(row) for row in joined.collect()] == [("x", None)]
        assert graph.spark.sql("select count(*) from Person", spark=spark).first() == (2,)
        assert len(graph.spark.sql("select * from Person", spark=spark).columns) == 4
