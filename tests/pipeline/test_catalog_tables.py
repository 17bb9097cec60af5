"""Tables of Spark's catalog that `CREATE TABLE … USING omnigraph` makes: they can be read."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from omnigraph import spark as ogs
from omnigraph.graph import Graph
from tests.exec.bulk import contents, edge, lines, new_graph, person

TABLES = ("people", "bobs", "friends", "named")


@pytest.fixture
def graph(spark: SparkSession, tmp_path: Path) -> Iterator[Graph]:
    ogs.register(spark)
    folder = tmp_path / "a b é"
    folder.mkdir()
    graph = new_graph(folder)
    family = lines(person("Ada", age=36, big=2**64 - 1), person("Bob"), edge("Knows", "Ada", "Bob"))
    graph.load(family, "append", engine="local")
    yield graph
    for table in TABLES:
        spark.sql(f"drop table if exists {table}")


def test_SC3_a_table_of_the_catalog_reads_the_graph_as_it_is(
    spark: SparkSession, graph: Graph
) -> None:
    def create(table: str, options: str) -> None:
        spark.sql(f"create table {table} using omnigraph options (path '{graph.uri}', {options})")

    create("people", "type 'Person'")
    create("bobs", "type 'Person', columns 'name', where 'name = \"Bob\"'".replace('"', "\\'"))
    spark.sql(
        f"create table friends using omnigraph options (edge 'Knows') location '{graph.uri}' "
        "comment 'who knows whom' tblproperties ('owner_team' = 'x')"
    )
    joined = "select a.name, a.age, a.big from people a join friends f on f.src = a.id"
    assert [tuple(row) for row in spark.sql(joined).collect()] == [("Ada", 36, 2**64 - 1)]
    assert [tuple(row) for row in spark.sql("select * from bobs").collect()] == [("Bob",)]
    graph.load(lines(person("Cy")), "append", engine="local")
    assert spark.sql("select count(*) as n from people").collect()[0]["n"] == 3
    before = contents(graph)
    for table in TABLES[:3]:
        spark.sql(f"drop table {table}")
    assert contents(graph) == before, "the graph is not the table's to remove"


def test_SC3_what_a_table_of_the_catalog_cannot_do_is_said(
    spark: SparkSession, graph: Graph
) -> None:
    spark.sql(
        "create table named (name string) using omnigraph "
        f"options (path '{graph.uri}', type 'Person')"
    )
    with pytest.raises(PySparkException, match="without columns of its own"):
        spark.sql("select * from named").collect()
    spark.sql(f"create table people using omnigraph options (path '{graph.uri}', type 'Person')")
    with pytest.raises(PySparkException, match="not be written to"):
        spark.sql("insert into people select * from people")
    with pytest.raises(PySparkException, match="did you mean 'Person'"):
        spark.sql(f"create table bobs using omnigraph options (path '{graph.uri}', type 'Persn')")
    secret = f"path '{graph.uri}', type 'Person', storage_options '{{}}'"
    with pytest.raises(PySparkException, match="a table keeps no storage_options"):
        spark.sql(f"create table bobs using omnigraph options ({secret})")
    assert {row["name"] for row in contents(graph)["node:Person"]} == {"Ada", "Bob"}
