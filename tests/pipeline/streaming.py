"""A streaming query of small files, or of another graph's changes, into a graph, to be killed and
started again.

Run as a program with the graph, the folder of files or the other graph, the checkpoint and the way
to write, it ends when everything is in the graph.
"""

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
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
    """Follow one graph into another as the example does, one commit a batch."""
    query = follower().follow(spark, source, target, checkpoint, commits=1)
    query.processAllAvailable()
    query.stop()


def follower() -> Any:
    """The example that follows the changes of a graph, as a module."""
    path = Path(__file__).parents[2] / "examples" / "follow" / "follow.py"
    spec = spec_from_file_location("follow", path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


if __name__ == "__main__":
    main()
