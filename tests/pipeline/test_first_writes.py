"""First writes of a branch to a table by Spark: their files lie in the folder of the branch.

Each has more rows than a load looks up by an index, so that ids meet by bucket.
"""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import omnigraph as og
import omnigraph.spark as ogs
from omnigraph.graph import Graph

COUNT, MANY = 13_000, 11_000
SCHEMA = "node P { key: String @key  age: I32  note: String? }"
QUERY = """query q($age: I32) {
  match { $p: P  $p.age = $age } return { count($p) as n, count($p.note) as notes } }"""


def people(count: int, age: int) -> pa.Table:
    keys = np.char.add("p", np.arange(count).astype(str))
    return pa.table({"key": keys, "age": np.full(count, age, "int32"), "note": keys})


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    graph = og.init(tmp_path / "g.omni", SCHEMA)
    graph.load(people(COUNT, 1), "append", type="P", engine="local", indexes="later")
    graph.branches.create("b")
    graph.branches.create("nested", from_="b")
    return graph


def table_files(graph: Graph) -> set[str]:
    root = Path(graph.uri)
    return {str(path.relative_to(root)) for path in (root / "nodes").rglob("*.*")}


@pytest.mark.parametrize("through", ["folder", "shuffle", "frame"])
@pytest.mark.parametrize("mode", ["merge", "patch"])
def test_F1_files_of_a_first_load_lie_in_the_folder_of_its_branch(
    spark: SparkSession, graph: Graph, monkeypatch: pytest.MonkeyPatch, mode: str, through: str
) -> None:
    monkeypatch.setenv("OMNIGRAPH_EXCHANGE", "shuffle" if through == "shuffle" else "folder")
    rows = people(MANY, 7) if mode == "merge" else people(MANY, 7).select(["key", "age"])
    source = spark.createDataFrame(rows) if through == "frame" else rows
    for branch in ("b", "nested"):
        before = table_files(graph)
        done = graph.load(
            source, mode, type="P", branch=branch, engine="spark", spark=spark, indexes="later"
        )
        assert (done.inserted, done.updated) == (0, MANY)
        strays = [path for path in table_files(graph) - before if f"/tree/{branch}/" not in path]
        assert all("/_refs/" in path for path in strays), strays
        for age, count in ((7, MANY), (1, COUNT - MANY)):
            [row] = graph.query(QUERY, {"age": age}, branch=branch).rows
            assert (row["n"], row["notes"]) == (count, count)
    graph.branches.merge("nested", "b")
    graph.branches.merge("b")
    assert graph.query(QUERY, {"age": 7}).rows[0]["n"] == MANY
    assert graph.check().findings == ()


@pytest.mark.parametrize("mode", ["merge", "patch", "append", "overwrite"])
def test_F1_files_of_a_first_write_of_the_data_source_lie_there_too(
    spark: SparkSession, graph: Graph, mode: str
) -> None:
    ogs.register(spark)
    rows = people(MANY, 7)
    if mode == "append":
        rows = rows.set_column(0, "key", [pa.array([f"new{n}" for n in range(MANY)])])
    if mode == "patch":
        rows = rows.select(["key", "age"])
    frame = spark.createDataFrame(rows)
    for branch in ("b", "nested"):
        before = table_files(graph)
        writer = frame.write.format("omnigraph").option("type", "P").option("branch", branch)
        writer.option("mode", mode).mode("overwrite" if mode == "overwrite" else "append").save(
            graph.uri
        )
        strays = [path for path in table_files(graph) - before if f"/tree/{branch}/" not in path]
        assert all("/_refs/" in path for path in strays), strays
        [row] = graph.query(QUERY, {"age": 7}, branch=branch).rows
        assert (row["n"], row["notes"]) == (MANY, MANY)
    assert graph.check().findings == ()
