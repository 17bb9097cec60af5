"""A streaming query of small files into a graph, to be killed and started again.

Run as a program with the graph, the folder of files, the checkpoint and the way to write, it ends
when every file is in the graph.
"""

import sys
from typing import Any

from omnigraph import spark as ogs


def main() -> None:
    graph, folder, checkpoint, way = sys.argv[1:]
    spark = ogs.session(master="local[2]")
    source = spark.readStream.schema("text string").option("maxFilesPerTrigger", 1).json(folder)
    writer: Any = source.writeStream.option("checkpointLocation", checkpoint)
    writer = writer.trigger(availableNow=True)
    if way == "format":
        query = writer.format("omnigraph").option("type", "Log").start(graph)
    else:
        query = writer.foreachBatch(ogs.foreach_batch(graph, type="Log")).start()
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main()
