"""Follow the changes of one graph into another, on Spark, exactly once.

    python examples/follow/follow.py source.omni target.omni CHECKPOINT

The target has the schema of the source. The first batch is everything that is there, the next ones
are what changed, some commits at a time; each becomes one commit of the target, whatever dies on
the way. The query goes on from its checkpoint when the program is started again.
"""

import sys
from collections import defaultdict
from typing import Any

import orjson
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

import omnigraph as og
from omnigraph import spark as ogs

COMMITS = 20
"""Commits of a batch at most: the changes of a batch pass through the driver."""


def follow(
    spark: SparkSession, source: str, target: str, checkpoint: str, commits: int = COMMITS
) -> StreamingQuery:
    """A running query that brings every change of the source to the target."""
    changes = spark.readStream.format("omnigraph").option("startingBaseline", "true")
    rows = changes.option("maxCommitsPerTrigger", commits).load(source)
    writer = rows.writeStream.option("checkpointLocation", checkpoint)
    return writer.foreachBatch(lambda frame, epoch: apply(frame, epoch, target)).start()


def apply(changes: DataFrame, epoch: int, target: str) -> None:
    """Apply a batch of changes as one commit that carries the name of the batch."""
    query = changes.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
    name = f"{query}/{epoch}"
    last: dict[tuple[str, str, str], Any] = {}
    for row in changes.orderBy("number", "position").toLocalIterator():
        last[row["kind"], row["type"], row["id"]] = row
    gone: dict[tuple[str, str], list[str]] = defaultdict(list)
    for (kind, type_, id_), row in last.items():
        if row["op"] == "delete":
            gone[kind, type_].append(id_)
    stay = [record(row) for row in last.values() if row["op"] != "delete"]
    with og.open(target) as graph:
        if not gone:
            graph.load(stay, "merge", engine="local", once=name, indexes="later")
            return
        with graph.transaction(once=name) as tx:
            for (_, type_), ids in sorted(gone.items()):  # edges before nodes
                tx.mutate(
                    f"query d($ids: [String]) {{ delete {type_} where id in $ids }}", {"ids": ids}
                )
            if stay:
                tx.load(stay, "merge", engine="local")


def record(row: Any) -> dict[str, Any]:
    """A change as the record that a load takes."""
    image = orjson.loads(row["after"])
    data = {"id": row["id"], **image["properties"]}
    if row["kind"] == "node":
        return {"type": row["type"], "data": data}
    return {"edge": row["type"], **image["endpoints"], "data": data}


if __name__ == "__main__":
    follow(ogs.session(), *sys.argv[1:4]).awaitTermination()
