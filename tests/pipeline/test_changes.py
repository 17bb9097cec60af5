"""The change feed as a stream of Spark: whole commits, in order, each once."""

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import omnigraph as og
import omnigraph.spark as ogs
from omnigraph.graph import Graph
from omnigraph.pipeline.source_changes import ChangesReader, CommitPartition
from omnigraph.pipeline.source_options import change_options
from omnigraph.storage.manifest import manifest
from tests.exec.bulk import edge, lines, new_graph, person


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    graph = new_graph(tmp_path)
    graph.load(lines(person("Ada", age=1), person("Bob")), "append", engine="local")
    graph.load(lines(person("Cy")), "append", engine="local", actor="act-bot")
    graph.load(lines(person("Ada", age=2), edge("Knows", "Ada", "Bob", id="k")), "merge")
    graph.mutate('query d() { delete Person where name = "Cy" }')
    return graph


def reader(graph: Graph, **options: str) -> ChangesReader:
    return ChangesReader(change_options({"path": graph.uri, **options}))


def batch(source: ChangesReader, start: Any, end: Any) -> list[dict[str, Any]]:
    """The rows of a batch, in order."""
    parts = source.partitions(start, end)
    rows = [row for part in parts for each in source.read(part) for row in each.to_pylist()]
    return sorted(rows, key=lambda row: (row["number"], row["position"]))


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
        ({"type": "Person"}, "a stream of changes has no option type"),
        ({"branch": "nope"}, "branch 'nope' not found"),
    ],
)
def test_SS1_a_bad_option_of_a_stream_is_told(
    graph: Graph, options: dict[str, str], told: str
) -> None:
    with pytest.raises(og.OmnigraphError, match=told):
        reader(graph, **options)


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
