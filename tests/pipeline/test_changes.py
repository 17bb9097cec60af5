"""The change feed as a stream of Spark: whole commits, in order, each once."""

import json
from base64 import b64encode
from datetime import UTC, date, datetime
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxFiles
from pyspark.sql.types import StructType

import omnigraph as og
import omnigraph.spark as ogs
from omnigraph.costs import COSTS
from omnigraph.graph import Graph
from omnigraph.pipeline.source import OmnigraphSource
from omnigraph.pipeline.source_changes import ChangesReader, CommitPartition
from omnigraph.storage.manifest import manifest
from tests.exec.bulk import SCHEMA, edge, lines, new_graph, node, person


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    graph = new_graph(tmp_path)
    graph.load(lines(person("Ada", age=1), person("Bob")), "append", engine="local")
    graph.load(lines(person("Cy")), "append", engine="local", actor="act-bot")
    graph.load(lines(person("Ada", age=2), edge("Knows", "Ada", "Bob", id="k")), "merge")
    graph.mutate('query d() { delete Person where name = "Cy" }')
    return graph


def reader(graph: Graph, **options: str) -> ChangesReader:
    """A reader as Spark gets it."""
    made = OmnigraphSource({"path": graph.uri, **options}).streamReader(StructType())
    assert isinstance(made, ChangesReader)
    return made


def batch(source: ChangesReader, start: Any, end: Any) -> list[dict[str, Any]]:
    """The rows of a batch, in order, each with a place of its own."""
    parts = source.partitions(start, end)
    rows = [row for part in parts for each in source.read(part) for row in each.to_pylist()]
    places = [(row["number"], row["position"]) for row in rows]
    assert len(set(places)) == len(places)
    return sorted(rows, key=lambda row: (row["number"], row["position"]))


def all_there_is(source: ChangesReader) -> list[dict[str, Any]]:
    """The rows from the first offset on, in as many batches as it takes."""
    rows, offset = [], source.initialOffset()
    while (following := source.latestOffset(offset)) != offset:
        rows += batch(source, offset, following)
        offset = following
    return rows


def test_SS1_rows_are_changes_of_whole_commits(graph: Graph) -> None:
    source = reader(graph)
    start = source.initialOffset()
    end = source.latestOffset(start, None)
    rows = batch(source, start, end)
    told = [(row["number"], row["op"], row["kind"], row["type"], row["id"]) for row in rows]
    assert told == [
        (1, "insert", "node", "Person", "Ada"),
        (1, "insert", "node", "Person", "Bob"),
        (2, "insert", "node", "Person", "Cy"),
        (3, "update", "node", "Person", "Ada"),
        (3, "insert", "edge", "Knows", "k"),
        (4, "delete", "node", "Person", "Cy"),
    ]
    assert json.loads(rows[3]["before"])["properties"]["age"] == 1
    assert json.loads(rows[3]["after"])["properties"]["age"] == 2
    assert json.loads(rows[4]["after"])["endpoints"] == {"from": "Ada", "to": "Bob"}
    assert (rows[0]["before"], rows[5]["after"], rows[2]["actor"]) == (None, None, "act-bot")
    assert source.latestOffset(end, None) == end, "nothing is new"
    assert source.partitions(end, end) == []


def test_SS1_a_batch_has_so_many_commits_and_not_those_of_some_actors(graph: Graph) -> None:
    source = reader(graph, maxCommitsPerTrigger="2", skipActors="act-bot, act-other")
    offsets = [source.initialOffset()]
    while (following := source.latestOffset(offsets[-1], None)) != offsets[-1]:
        offsets.append(following)
    assert len(offsets) == 3
    batches = [batch(source, *pair) for pair in pairwise(offsets)]
    assert [[row["number"] for row in rows] for rows in batches] == [[1, 1], [3, 3, 4]]


def test_SS1_a_start_is_exclusive_and_a_gap_is_an_error(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    second = graph.commits.list()[2]
    assert second.actor == "act-bot"
    source = reader(graph, startingCommit=second.id)
    start = source.initialOffset()
    rows = batch(source, start, source.latestOffset(start, None))
    assert [row["number"] for row in rows] == [3, 3, 4]
    monkeypatch.setattr(manifest, "RECLAIM_AGE_S", 0.0)
    graph.cleanup(keep=1, grace=0, confirm=True)
    first = reader(graph)
    parts = first.partitions(first.initialOffset(), start)
    assert isinstance(parts[0], CommitPartition)
    with pytest.raises(og.ChangeFeedGap, match="can no longer be read"):
        list(first.read(parts[0]))


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"maxCommitsPerTrigger": "0"}, "maxCommitsPerTrigger cannot be '0'"),
        ({"startingCommi": "x"}, "unknown option 'startingcommi'"),
        ({"type": "Person"}, "add the option changes=true"),
        ({"type": "Persn", "changes": "true"}, "node type 'Persn' not found"),
        ({"changes": "no"}, "changes cannot be 'no'"),
        ({"startingBaseline": "true", "startingCommit": "main"}, "exclude each other"),
        ({"where": "age > 3"}, "a stream of changes has no option where"),
        ({"branch": "nope"}, "branch 'nope' not found"),
    ],
)
def test_SS1_a_bad_option_of_a_stream_is_told(
    graph: Graph, options: dict[str, str], told: str
) -> None:
    with pytest.raises(og.OmnigraphError, match=told):
        reader(graph, **options)


def test_SS1_with_a_type_images_are_columns(tmp_path: Path) -> None:
    graph = new_graph(tmp_path)
    facts = {"age": 7, "big": 2**64 - 1, "born": "2001-02-03", "seen": "2020-01-01T00:00:00.123Z"}
    facts |= {"tags": ["a", "b"], "face": [0.5, 1.5], "score": 0.25, "ok": True}
    facts |= {"pic": "base64:" + b64encode(b"bytes").decode()}
    graph.load(lines(person("Ada", **facts), person("Bob")), "append", engine="local")
    graph.load(lines(person("Ada", age=8), edge("Knows", "Ada", "Bob", id="k")), "merge")
    graph.mutate('query d() { delete Person where name = "Bob" }')

    typed = reader(graph, type="Person", changes="true")
    rows = all_there_is(typed)
    assert [(row["number"], row["op"], row["id"]) for row in rows] == [
        (1, "insert", "Ada"),
        (1, "insert", "Bob"),
        (2, "update", "Ada"),
        (3, "delete", "Bob"),
    ]
    assert {(row["kind"], row["type"]) for row in rows} == {("node", "Person")}
    ada = rows[0]["after"]
    assert (ada["age"], ada["big"], ada["born"]) == (7, Decimal(2**64 - 1), date(2001, 2, 3))
    assert ada["seen"] == datetime(2020, 1, 1, 0, 0, 0, 123_000, UTC)
    assert (ada["tags"], ada["face"], ada["pic"]) == (["a", "b"], [0.5, 1.5], b"bytes")
    assert (rows[0]["before"], rows[3]["after"], rows[3]["before"]["name"]) == (None, None, "Bob")
    assert (rows[2]["before"], rows[2]["after"]["age"], rows[2]["after"]["pic"]) == (ada, 8, None)
    asked = OmnigraphSource({"path": graph.uri, "edge": "Knows", "maxCommitsPerTrigger": "1"})
    assert asked.schema()["after"].dataType.fieldNames() == ["id", "src", "dst", "since"]
    edges = all_there_is(reader(graph, edge="Knows", maxCommitsPerTrigger="1"))
    assert [(row["op"], row["id"]) for row in edges] == [("insert", "k"), ("delete", "k")]
    assert edges[0]["after"] == {"id": "k", "src": "Ada", "dst": "Bob", "since": None}


@pytest.mark.parametrize("type_", [None, "Person"])
def test_SS1_a_baseline_comes_first_and_then_changes(
    graph: Graph, monkeypatch: pytest.MonkeyPatch, type_: str | None
) -> None:
    monkeypatch.setattr(COSTS, "spark_change_rows", 1)
    options = {"startingBaseline": "true"} | ({} if type_ is None else {"type": type_})
    source = reader(graph, **options)
    start = source.initialOffset()
    end = source.latestOffset(start)
    whole = batch(source, start, end)
    graph.load(lines(person("Dan", age=4)), "append", engine="local")
    # A query that died in its first batch asks for the first offset again.
    again = reader(graph, **options)
    assert batch(again, again.initialOffset(), end) == whole, "of the commit that was noted"
    assert {(row["op"], row["before"], row["number"]) for row in whole} == {("insert", None, 4)}
    people = [row for row in whole if row["type"] == "Person"]
    assert sorted(row["id"] for row in people) == ["Ada", "Bob"]
    assert ("k" in [row["id"] for row in whole]) == (type_ is None)
    image = next(row["after"] for row in people if row["id"] == "Ada")
    assert (json.loads(image)["properties"] if type_ is None else image)["age"] == 2
    (row,) = batch(again, end, again.latestOffset(end))
    assert (row["number"], row["op"], row["id"]) == (5, "insert", "Dan")


ADDED = SCHEMA.replace("ok: Bool?", "ok: Bool?  town: String?") + "node Town { name: String @key }"


def test_SS1_a_schema_that_only_adds_goes_on(graph: Graph) -> None:
    typed, untyped = reader(graph, type="Person", changes="true"), reader(graph)
    graph.schema.apply(ADDED)
    graph.load(lines(person("Eve", town="Oslo"), node("Town", name="Oslo")), "append")
    rows = all_there_is(untyped)
    assert [row["id"] for row in rows[-2:]] in (["Eve", "Oslo"], ["Oslo", "Eve"])
    assert "Oslo" in {json.loads(row["after"])["properties"].get("town") for row in rows[-2:]}
    assert "town" not in all_there_is(typed)[-1]["after"], "of the columns it began with"
    later = all_there_is(reader(graph, type="Person", changes="true"))
    assert [row["after"]["town"] for row in later if row["after"]] == [None] * 4 + ["Oslo"]


RENAMED = SCHEMA.replace("age: I32?", 'years: I32? @rename_from("age")').replace(
    "@range(age,", "@range(years,"
)


@pytest.mark.parametrize("type_", [None, "Person", "Log"])
def test_SS1_a_schema_that_renames_stops_the_stream_at_its_commit(
    graph: Graph, type_: str | None
) -> None:
    options = {} if type_ is None else {"type": type_, "changes": "true"}
    source = reader(graph, **options)
    begun = source.initialOffset()
    graph.load(lines(person("Eve"), node("Log", id="l", text="t")), "append", engine="local")
    graph.schema.apply(RENAMED)
    graph.load(lines(node("Log", id="m", text="t")), "append", engine="local")
    end = source.latestOffset(begun)
    if type_ == "Log":
        assert [row["id"] for row in all_there_is(source)] == ["l", "m"]
        return
    assert batch(source, begun, end)[-1]["number"] == 5, "everything before it was delivered"
    (renaming,) = [c.id for c in graph.commits.list() if not c.counts and c.parent][:1]
    with pytest.raises(og.BadRequest, match=f"stops at commit '{renaming}'.*startingCommit"):
        source.latestOffset(end)
    beyond = reader(graph, **options, startingCommit=renaming)
    assert [row["id"] for row in all_there_is(beyond)] == (["m"] if type_ is None else [])


def test_SS1_a_type_that_was_dropped_is_followed_up_to_there(graph: Graph) -> None:
    graph.load(lines(node("Ticket", tenant="a", number=1)), "append", engine="local")
    without = SCHEMA.replace(
        "node Ticket { tenant: String  number: I64  @key(tenant, number) }", ""
    )
    graph.schema.apply(without)
    source = reader(graph, type="Ticket", changes="true")
    start = source.initialOffset()
    end = source.latestOffset(start)
    (row,) = batch(source, start, end)
    assert (row["op"], row["after"]["number"]) == ("insert", 1)
    with pytest.raises(og.BadRequest, match="which changed the schema: drop"):
        source.latestOffset(end)


def test_SS1_what_is_there_now_is_followed_to_its_end_and_no_further(graph: Graph) -> None:
    source = reader(graph, maxCommitsPerTrigger="3")
    assert source.getDefaultReadLimit() == ReadMaxFiles(3)
    source.prepareForTriggerAvailableNow()
    graph.load(lines(person("Dan")), "append", engine="local")
    assert max(row["number"] for row in all_there_is(source)) == 4
    start = source.initialOffset()
    at_once = source.latestOffset(start, ReadAllAvailable())
    assert {row["number"] for row in batch(source, start, at_once)} == {1, 2, 3, 4}


@pytest.mark.slow
def test_SS1_a_query_goes_on_from_its_checkpoint(
    spark: SparkSession, graph: Graph, tmp_path: Path
) -> None:
    ogs.register(spark)
    seen: list[list[tuple[int, str]]] = []

    def note(frame: Any, epoch: int) -> None:
        rows = frame.orderBy("number", "position").collect()
        seen.append([(row["number"], row["id"]) for row in rows])

    def follow() -> None:
        changes = spark.readStream.format("omnigraph").option("maxCommitsPerTrigger", "3")
        writer = changes.load(graph.uri).writeStream.foreachBatch(note)
        query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
        query.processAllAvailable()
        query.stop()

    follow()
    assert seen == [[(1, "Ada"), (1, "Bob"), (2, "Cy"), (3, "Ada"), (3, "k")], [(4, "Cy")]]
    graph.load(lines(person("Dan")), "append", engine="local")
    follow()
    assert seen[2:] == [[(5, "Dan")]]
    with pytest.raises(PySparkException, match="say which rows"):
        spark.read.format("omnigraph").load(graph.uri).collect()
