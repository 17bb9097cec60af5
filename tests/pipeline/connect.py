"""A client of Spark Connect that does all that a graph can do on Spark.

Run as a program with the address of a server, a graph, a file and a folder, it loads, asks, exports
and optimises with a remote session, and prints what it saw.
"""

import json
import sys
from pathlib import Path
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import omnigraph as og
import omnigraph.spark as ogs

GROUPED = (
    "query q() { match { $p: Person $p knows $q } return { $q.name, count($p) as n } "
    "order { n desc, $q.name } }"
)
ROWS = [("p1", 41, 1), ("x", 1, 1), ("x", 2, 2)]
STREAMED = ["a", "b", "c"]


def main() -> None:
    remote, uri, file, folder = sys.argv[1:]
    spark = SparkSession.builder.remote(remote).getOrCreate()
    ogs.register(spark)
    graph = og.open(uri)
    graph.load(file, "append", engine="spark", spark=spark)
    rows = spark.createDataFrame(ROWS, "name string, age int, step int").repartition(2)
    merged = graph.load(rows, "merge", type="Person", order_by="step")
    records = [{"type": "Log", "data": {"id": f"l{n}", "text": "t"}} for n in range(3)]
    graph.load(records, "append", engine="spark", spark=spark)
    written = spark.createDataFrame([("w", 5)], "name string, age int")
    written.write.format("omnigraph").option("type", "Person").mode("append").save(uri)
    stream(spark, uri, Path(folder))
    graph.optimize(engine="spark", spark=spark)
    graph.export(f"{folder}/out/", "jsonl", engine="spark", spark=spark)
    read = spark.read.format("omnigraph").option("type", "Person").load(uri)
    statement = "select p.name, count(*) n from Knows k join Person p on p.id = k.dst group by 1"
    answer = {
        "engine": merged.engine,
        "grouped": graph.query(GROUPED, engine="spark", spark=spark).rows,
        "frame": graph.spark.query(GROUPED, spark=spark).count(),
        "read": sorted(row["name"] for row in read.select("name").collect()),
        "sql": sorted(list(row) for row in graph.spark.sql(statement, spark=spark).collect()),
        "nameless": nameless(spark, uri),
    }
    sys.stdout.write(json.dumps(answer))
    sys.stdout.flush()
    spark.stop()


def stream(spark: Any, uri: str, folder: Path) -> None:
    """Load small files as micro-batches."""
    (folder / "in").mkdir()
    for number, text in enumerate(STREAMED):
        (folder / "in" / f"{number}.json").write_text(json.dumps({"text": text}) + "\n")
    files = spark.readStream.schema("text string").option("maxFilesPerTrigger", 1)
    writer = files.json(str(folder / "in")).writeStream.trigger(availableNow=True)
    each = ogs.foreach_batch(uri, type="Log", query="connected")
    batches = writer.foreachBatch(each).option("checkpointLocation", str(folder / "seen"))
    for last in (*[False] * 7, True):
        try:
            batches.start().awaitTermination()
            break
        except PySparkException as error:
            # Spark waits ten seconds for a process of Python to come up, and no longer.
            if last or "connect back" not in str(error):
                raise


def nameless(spark: Any, uri: str) -> str:
    """What a micro-batch without a name is told."""
    frame = spark.createDataFrame([("t",)], "text string")
    try:
        ogs.foreach_batch(uri, type="Log")(frame, 0)
    except og.BadRequest as refused:
        return str(refused)
    return ""


if __name__ == "__main__":
    main()
