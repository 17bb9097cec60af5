"""A streaming query of small files, or of another graph's changes, into a graph, to be killed and
started again.

Run as a program with the graph, the folder of files or the other graph, the checkpoint and the way
to write, it ends when everything is in the graph.
"""

import sys
from typing import Any

from omnigraph import spark as ogs


def main() -> None:
    graph, folder, checkpoint, way = sys.argv[1:]
    spark = ogs.session(master="local[2]")
    if way == "changes":
        mirror(spark, folder, graph, checkpoint)
        spark.stop()
        return
    source = spark.readStream.schema("text string").option("maxFilesPerTrigger", 1).json(folder)
    writer: Any = source.writeStream.option("checkpointLocation", checkpoint)
    writer = writer.trigger(availableNow=True)
    if way == "format":
        query = writer.format("omnigraph").option("type", "Log").start(graph)
    else:
        query = writer.foreachBatch(ogs.foreach_batch(graph, type="Log")).start()
    query.awaitTermination()
    spark.stop()


def mirror(spark: Any, source: str, target: str, checkpoint: str) -> None:
    """Follow the notes of one graph into another, two commits a batch."""
    changes = spark.readStream.format("omnigraph").option("maxCommitsPerTrigger", 2).load(source)
    notes = changes.where("type = 'Log'").selectExpr(
        "number",
        "position",
        "id",
        "from_json(after, 'struct<properties: struct<text: string>>').properties.text as text",
    )
    write = ogs.foreach_batch(target, "merge", type="Log", order_by=["number", "position"])
    writer = notes.writeStream.option("checkpointLocation", checkpoint).foreachBatch(write)
    query = writer.start()
    query.processAllAvailable()
    query.stop()


if __name__ == "__main__":
    main()
