"""The data source: one snapshot a DataFrame, and writes that are loads."""

import datetime as dt
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

import omnigraph as og
from omnigraph import spark as ogs
from omnigraph.exec.load import finish
from omnigraph.exec.load.upsert import grouped
from omnigraph.graph import Graph
from omnigraph.pipeline.source import pin
from omnigraph.pipeline.source_options import read_options
from omnigraph.pipeline.source_write import BatchWriter, StreamWriter
from omnigraph.storage.manifest import manifest
from omnigraph.types import TableKey
from tests.exec.bulk import by_name, contents, edge, lines, new_graph, node, person

FAMILY = lines(
    person(
        "Ada",
        age=36,
        email="a@b",
        score=1.5,
        big=2**64 - 1,
        ok=True,
        born="1815-12-10",
        seen="2020-01-02T03:04:05Z",
        tags=["x", "y"],
        face=[1.0, 2.0],
        pic="base64:aGk=",
    ),
    person("Bob", age=7),
    person("Cy", age=80),
    edge("Knows", "Ada", "Bob", id="k1", since="2020-01-01"),
)


@pytest.fixture
def graph(spark: SparkSession, tmp_path: Path) -> Graph:
    ogs.register(spark)
    graph = new_graph(tmp_path)
    graph.load(FAMILY, "append", engine="local")
    return graph


def read(spark: SparkSession, graph: Graph, **options: str) -> DataFrame:
    return spark.read.format("omnigraph").options(**options).load(graph.uri)


def test_DS1_every_type_of_property_is_read(spark: SparkSession, graph: Graph) -> None:
    people = {row["id"]: row.asDict() for row in read(spark, graph, type="Person").collect()}
    assert set(people) == {"Ada", "Bob", "Cy"}
    ada = people["Ada"]
    assert (ada["name"], ada["age"], ada["score"], ada["ok"]) == ("Ada", 36, 1.5, True)
    assert int(ada["big"]) == 2**64 - 1
    assert ada["born"] == dt.date(1815, 12, 10)
    assert ada["seen"] == dt.datetime(2020, 1, 2, 3, 4, 5)
    assert (ada["tags"], ada["face"], bytes(ada["pic"])) == (["x", "y"], [1.0, 2.0], b"hi")
    assert people["Bob"]["pic"] is None
    (knows,) = read(spark, graph, edge="knows").collect()
    assert (knows["id"], knows["src"], knows["dst"]) == ("k1", "Ada", "Bob")


def test_DS1_columns_and_where_are_pushed_down(spark: SparkSession, graph: Graph) -> None:
    found = read(spark, graph, type="Person", columns="name, age", where="age > 30")
    assert found.columns == ["name", "age"]
    assert {row["name"] for row in found.collect()} == {"Ada", "Cy"}
    own = spark.read.format("omnigraph").schema("age int").option("type", "Person").load(graph.uri)
    assert sorted(row["age"] for row in own.collect()) == [7, 36, 80]
    both = found.union(found.where("age > 50"))
    assert (found.count(), both.count(), found.count()) == (2, 3, 2)


def test_DS1_a_dataframe_reads_the_snapshot_it_was_made_of(
    spark: SparkSession, graph: Graph
) -> None:
    frame = read(spark, graph, type="Person")
    before = graph.snapshot().commit_id
    graph.load(lines(person("Dan")), "append", engine="local")
    assert frame.count() == 3
    assert frame.where("age > 10").union(frame).count() == 5
    assert read(spark, graph, type="Person").count() == 4
    assert read(spark, graph, type="Person", snapshot=before).count() == 3
    graph.branches.create("side")
    graph.load(lines(person("Eve")), "append", engine="local", branch="side")
    assert read(spark, graph, type="Person", branch="side").count() == 5


def test_DS1_a_commit_that_cleanup_removed_is_told(
    spark: SparkSession, graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(manifest, "RECLAIM_AGE_S", 0.0)
    before = graph.snapshot().commit_id
    frame = read(spark, graph, type="Person", snapshot=before)
    assert frame.count() == 3
    graph.load(lines(person("Dan")), "append", engine="local")
    graph.optimize()
    assert graph.cleanup(keep=1, grace=0, confirm=True).errors == ()
    head = graph.snapshot().commit_id
    for read_it in (frame.collect, lambda: read(spark, graph, type="Person", snapshot=before)):
        with pytest.raises(PySparkException, match=f"commit '{before}' was reclaimed") as error:
            read_it()
        assert f"that can be read is '{head}'" in str(error.value)
    with pytest.raises(og.Reclaimed):
        graph.spark.tables(["Person"], snapshot=before, spark=spark)
    with pytest.raises(og.Reclaimed):
        graph.query(
            "query q() { match { $p: Person } return { $p.name } }",
            snapshot=before,
            engine="spark",
            spark=spark,
        )


def test_DS1_a_point_in_time_is_read_and_a_message_is_written(
    spark: SparkSession, graph: Graph
) -> None:
    graph.tags.create("v1")
    added = spark.createDataFrame([("Dan", 5)], "name string, age int")
    options = {"type": "Person", "message": "from Spark", "metadata": '{"job": "j-1"}'}
    added.write.format("omnigraph").options(**options).mode("append").save(graph.uri)
    head = graph.commits.get("main")
    assert (head.message, head.metadata) == ("from Spark", {"job": "j-1"})
    for point in ("v1", "main~1", f"{head.parent}"):
        assert read(spark, graph, type="Person", snapshot=point).count() == 3
        assert read(spark, graph, type="Person", branch=point).count() == 3
    tables = graph.spark.tables(["Person"], snapshot="v1", spark=spark)
    assert tables["Person"].count() == 3
    ask = "query who() { match { $p: Person } return { $p.name } }"
    assert len(graph.query(ask, branch="v1", engine="spark", spark=spark)) == 3
    with pytest.raises(og.BadRequest, match="NUL"):
        read_options({"path": graph.uri, "type": "Person", "message": "\0"})


def test_DS1_partitions_follow_fragments(spark: SparkSession, graph: Graph) -> None:
    assert grouped({1: 10, 2: 90, 3: 1, 4: 200, 5: 1}, 100) == [(1, 2), (3,), (4,), (5,)]
    assert grouped({}, 100) == [()]
    rows = pa.table({"name": [f"p{n}" for n in range(70_000)]})
    for start in (0, 35_000):
        some = rows.slice(start, 35_000)
        graph.load(some, "append", type="Person", engine="local")
    frame = read(spark, graph, type="Person", columns="id")
    assert frame.rdd.getNumPartitions() == 2
    assert frame.distinct().count() == 70_003
    assert read(spark, graph, type="Log").count() == 0


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({}, "say which rows"),
        ({"type": "Person", "edge": "Knows"}, "say which rows"),
        ({"type": "Nope"}, "node type 'Nope' not found"),
        ({"type": "Person", "wher": "x"}, "unknown option 'wher'"),
        ({"type": "Person", "where": "nope ="}, "the option where is no condition"),
        ({"type": "Person", "columns": "name,nope"}, "Person has no column 'nope'"),
        ({"type": "Person", "branch": "nope"}, "branch 'nope' not found"),
    ],
)
def test_DS1_a_bad_option_is_told(graph: Graph, options: dict[str, str], told: str) -> None:
    with pytest.raises(og.OmnigraphError, match=told):
        pin(read_options({"path": graph.uri, **options}))


def test_DS1_a_bad_option_is_told_when_the_dataframe_is_made(
    spark: SparkSession, graph: Graph
) -> None:
    with pytest.raises(AnalysisException, match="node type 'Nope' not found"):
        read(spark, graph, type="Nope")


# Writing


def write(frame: DataFrame, graph: Graph, how: str, **options: str) -> None:
    frame.write.format("omnigraph").options(**options).mode(how).save(graph.uri)


def test_DS2_a_write_is_one_commit(spark: SparkSession, graph: Graph) -> None:
    commits = len(graph.commits.list())
    people = spark.range(0, 1_000, 1, 4).selectExpr("concat('p', id) as full", "id % 90 as age")
    write(people, graph, "append", type="Person", columns='{"full": "name"}', actor="act-me")
    assert len(by_name(graph, "node:Person")) == 1_003
    assert len(graph.commits.list()) == commits + 1
    assert graph.commits.list()[0].actor == "act-me"
    edges = spark.range(10).selectExpr("concat('p', id) as `from`", "'Ada' as to")
    graph.branches.create("side")
    write(edges, graph, "append", edge="Knows", branch="side")
    assert len(contents(graph, "side")["edge:Knows"]) == 11
    assert len(by_name(graph, "edge:Knows")) == 1
    assert not list((Path(graph.uri) / "__scratch").iterdir())


def test_a_large_write_builds_indexes_unless_told_later(spark: SparkSession, graph: Graph) -> None:
    def many(letter: str) -> DataFrame:
        return spark.range(0, 12_000, 1, 4).selectExpr(f"concat('{letter}', id) as name")

    commits = len(graph.commits.list())
    write(many("p"), graph, "append", type="Person", indexes="later")
    assert len(graph.commits.list()) == commits + 1
    done = graph.load(many("q"), "append", type="Person", actor="act-me")
    assert (done.engine, done.indexes.missing) == ("spark", None)
    assert {note.column for note in done.indexes.built} >= {"name"}
    write(many("r"), graph, "append", type="Person")
    newest, loaded, built = graph.commits.list()[:3]
    assert (built.id, built.actor) == (done.indexes.commit_id, "act-me")
    assert loaded.counts.keys() == {"node:Person"}
    assert not newest.counts
    known = graph._store.reader(graph.snapshot(), TableKey("node:Person")).indexes()
    assert {each.behind for each in known} == {0}
    with pytest.raises(og.BadRequest, match="use now or later"):
        read_options({"path": graph.uri, "type": "Person", "indexes": "soon"})


@pytest.mark.parametrize("exchange", ["folder", "shuffle"])
def test_SS2_small_partitions_are_joined(
    spark: SparkSession, graph: Graph, monkeypatch: pytest.MonkeyPatch, exchange: str
) -> None:
    monkeypatch.setenv("OMNIGRAPH_EXCHANGE", exchange)

    def fragments(branch: str) -> int:
        snapshot = graph.snapshot(branch)
        return len(graph._store.reader(snapshot, TableKey("node:Person")).fragments())

    for way in ("load", "write"):
        graph.branches.create(way)
        before = fragments(way)
        people = spark.range(0, 200, 1, 20).selectExpr("concat('p', id) as name")
        if way == "load":
            graph.load(people, "append", type="Person", branch=way)
        elif exchange == "folder":
            write(people, graph, "append", type="Person", branch=way)
        else:
            continue
        assert fragments(way) == before + 1
        assert len(contents(graph, way)["node:Person"]) == 203


def test_DS2_merge_and_overwrite(spark: SparkSession, graph: Graph) -> None:
    some = spark.sql("select * from values ('Ada', 1), ('Dan', 2) as t(name, age)")
    write(some, graph, "append", type="Person", mode="merge")
    people = by_name(graph, "node:Person")
    assert {name: row["age"] for name, row in people.items()} == {
        "Ada": 1,
        "Bob": 7,
        "Cy": 80,
        "Dan": 2,
    }
    assert people["Ada"]["email"] is None, "a merge replaces whole rows"
    write(spark.sql("select 'Ada' as name union select 'Bob'"), graph, "overwrite", type="Person")
    assert set(by_name(graph, "node:Person")) == {"Ada", "Bob"}


def test_SC3_what_a_frame_reads_it_writes(
    spark: SparkSession, graph: Graph, tmp_path: Path
) -> None:
    (tmp_path / "other").mkdir()
    other = new_graph(tmp_path / "other")
    for kind, name in (("type", "Person"), ("edge", "Knows")):
        frame = spark.read.format("omnigraph").option(kind, name).load(graph.uri)
        write(frame, other, "append", **{kind: name})
    there, here = contents(other), contents(graph)
    assert (there["node:Person"], there["edge:Knows"]) == (here["node:Person"], here["edge:Knows"])
    assert any(row["big"] == 2**64 - 1 for row in there["node:Person"]), "decimal(20,0) on the way"


def test_SC3_moments_finer_than_a_millisecond_are_refused(
    spark: SparkSession, graph: Graph
) -> None:
    fine = spark.sql("select 'Eve' as name, timestamp'2020-01-01 00:00:00.000001' as seen")
    with pytest.raises(og.ConstraintViolated, match="millisecond") as refused:
        graph.load(fine, "append", type="Person")
    assert "line" not in str(refused.value)
    with pytest.raises(PySparkException, match="millisecond"):
        write(fine, graph, "append", type="Person")


@pytest.mark.parametrize(
    ("statement", "options", "told"),
    [
        ("select 'Eve' as name, 200 as age", {"type": "Person"}, "value 200 > max 150"),
        ("select 'Ada' as `from`, 'Ghost' as to", {"edge": "Knows"}, "dst 'Ghost' not found"),
    ],
)
def test_DS2_a_write_that_is_refused_leaves_nothing(
    spark: SparkSession, graph: Graph, statement: str, options: dict[str, str], told: str
) -> None:
    before, commits = contents(graph), len(graph.commits.list())
    with pytest.raises(PySparkException, match=told) as refused:
        write(spark.sql(statement), graph, "append", **options)
    assert 'File "' not in str(refused.value), "one sentence, without a traceback"
    assert contents(graph) == before
    assert len(graph.commits.list()) == commits
    scratch = Path(graph.uri) / "__scratch"
    assert not scratch.exists() or not list(scratch.iterdir())


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"mode": "upsert"}, "unknown load mode"),
        ({"snapshot": "x"}, "options of a read"),
        ({"where": "x"}, "options of a read"),
        ({"columns": "name"}, "columns of a write are renamed"),
        ({"columns": "{oops"}, "no JSON object of texts"),
        ({"mode": "merge"}, "contradicts"),
    ],
)
def test_DS2_a_bad_option_of_a_write_is_told(
    graph: Graph, options: dict[str, str], told: str
) -> None:
    with pytest.raises(og.BadRequest, match=told):
        BatchWriter(read_options({"path": graph.uri, "type": "Person", **options}), overwrite=True)


def _dies(batches: Any) -> Any:
    for batch in batches:
        if 5 in batch.column(0).to_pylist():
            raise OSError("a task that fails for good")
        yield batch


def test_DS2_a_task_that_fails_aborts_the_write(spark: SparkSession, graph: Graph) -> None:
    before = contents(graph)
    bad = spark.range(0, 8, 1, 4).mapInArrow(_dies, "id long").selectExpr("cast(id as string) name")
    with pytest.raises(PySparkException, match="a task that fails for good"):
        write(bad, graph, "append", type="Person")
    assert contents(graph) == before
    scratch = Path(graph.uri) / "__scratch"
    assert not scratch.exists() or not list(scratch.iterdir())


# Loads that happen once


def test_DS3_a_load_of_a_name_happens_once(graph: Graph) -> None:
    first = graph.load(lines(person("Dan")), "append", engine="local", once="q/1")
    again = graph.load(lines(person("Dan")), "append", engine="local", once="q/1")
    assert (first.repeated, again.repeated) == (False, True)
    assert again.commit == first.commit
    assert first.commit.mark == "q/1"
    graph.load(lines(person("Eve")), "append", engine="local", once="q/11")
    assert {"Dan", "Eve"} < set(by_name(graph, "node:Person"))
    graph.branches.create("side")
    assert graph.load(lines(), "append", branch="side", once="q/1").repeated
    assert og.open(graph.uri).load(lines(), "append", once="q/11").repeated


def test_DS3_of_two_drivers_with_one_batch_one_writes(graph: Graph, monkeypatch: Any) -> None:
    """The name is looked for under the locks of the commit, not only before."""
    stage = finish.Finish._stage
    left = [lambda: og.open(graph.uri).load(lines(node("Log", text="t")), "append", once="q/1")]

    def racing(self: Any, write: Any) -> None:
        if left:
            left.pop()()
        stage(self, write)

    monkeypatch.setattr(finish.Finish, "_stage", racing)
    late = graph.load(lines(node("Log", text="t")), "append", engine="local", once="q/1")
    assert late.repeated
    assert len(by_name(graph, "node:Log")) == 1


# Streams


def stream(
    spark: SparkSession, folder: Path, start: Callable[[Any], Any], checkpoint: Path
) -> list[int]:
    """Run what is waiting in a folder through a streaming query; the epochs it ran."""
    source = spark.readStream.schema("name string, age int").option("maxFilesPerTrigger", 1)
    query = start(
        source.json(str(folder))
        .writeStream.option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
    )
    query.awaitTermination()
    return [progress["batchId"] for progress in query.recentProgress]


@pytest.mark.parametrize("way", ["format", "foreachBatch"])
def test_DS3_each_micro_batch_is_one_commit_once(
    spark: SparkSession, graph: Graph, tmp_path: Path, way: str
) -> None:
    arriving, checkpoint = tmp_path / "arriving", tmp_path / "checkpoint"
    arriving.mkdir()
    for n in range(2):
        (arriving / f"{n}.json").write_text(f'{{"name": "s{n}", "age": {n}}}\n')

    def start(writer: Any) -> Any:
        if way == "format":
            return writer.format("omnigraph").option("type", "Person").start(graph.uri)
        return writer.foreachBatch(ogs.foreach_batch(graph.uri, type="Person")).start()

    commits = len(graph.commits.list())
    assert len(stream(spark, arriving, start, checkpoint)) == 2
    made = graph.commits.list()[: len(graph.commits.list()) - commits]
    assert len(made) == 2
    assert len({commit.mark for commit in made}) == 2
    # Spark forgets that the last batch was done: what a crash after our commit leaves.
    for file in (checkpoint / "commits").glob("*1*"):
        file.unlink()
    (arriving / "2.json").write_text('{"name": "s2", "age": 2}\n')
    assert 1 in stream(spark, arriving, start, checkpoint)
    assert len(graph.commits.list()) == commits + 3
    people = set(by_name(graph, "node:Person"))
    assert people == {"Ada", "Bob", "Cy", "s0", "s1", "s2"}
    assert not list((Path(graph.uri) / "__scratch").glob("*"))


def test_DS3_a_stream_cannot_overwrite() -> None:
    with pytest.raises(og.BadRequest, match="a stream cannot overwrite"):
        ogs.foreach_batch("graph.omni", "overwrite", type="Person")
    options = read_options({"path": "graph.omni", "type": "Person"})
    with pytest.raises(og.BadRequest, match="a stream cannot overwrite"):
        StreamWriter(options, overwrite=True)


# Tables and SQL


def test_DS4_types_are_tables(spark: SparkSession, graph: Graph) -> None:
    tables = graph.spark.tables()
    assert set(tables) == {"Person", "Ticket", "Count", "Log", "Knows", "Wrote", "Owns"}
    assert tables["Person"].count() == 3
    assert set(graph.spark.tables(["Knows"])) == {"Knows"}
    frame = graph.spark.sql(
        "select p.name, k.dst from person p join Knows k on k.src = p.id where p.age > 30"
    )
    assert [tuple(row) for row in frame.collect()] == [("Ada", "Bob")]
    assert not spark.catalog.tableExists("Person"), "the caller's session is as it was"
    before = graph.snapshot().commit_id
    graph.load(lines(person("Dan")), "append", engine="local")
    count = "select count(*) as n from Person"
    assert graph.spark.sql(count).collect()[0]["n"] == 4
    assert graph.spark.sql(count, snapshot=before).collect()[0]["n"] == 3


# What Spark does that we rely on


class _Leaky(DataSource):
    """A source that takes filters, as the documents of Spark say."""

    @classmethod
    def name(cls) -> str:
        return "leaky"

    def schema(self) -> str:
        return "x int"

    def reader(self, schema: Any) -> DataSourceReader:
        return _LeakyReader()


class _LeakyReader(DataSourceReader):
    low = -1

    def pushFilters(self, filters: Any) -> Any:
        for each in filters:
            if type(each).__name__ == "GreaterThan":
                self.low = each.value
            else:
                yield each

    def read(self, partition: InputPartition) -> Any:
        return ((x,) for x in range(10) if x > self.low)


@pytest.mark.slow
def test_spark_leaks_a_pushed_filter_into_later_scans(spark: SparkSession) -> None:
    """Why `where` is an option. When this fails, Spark has mended it."""
    spark.dataSource.register(_Leaky)
    switch = "spark.sql.python.filterPushdown.enabled"
    spark.conf.set(switch, "true")
    try:
        frame = spark.read.format("leaky").load()
        counts = [frame.count(), frame.where("x > 7").count(), frame.count()]
    finally:
        spark.conf.set(switch, "false")
    assert counts == [10, 2, 2]
