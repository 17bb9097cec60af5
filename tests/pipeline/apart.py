"""Loads of every kind on a cluster whose machines share nothing but the object store of the graph.

Run as a program with a graph, its storage options, the address of input files, a folder of the
driver's own and a master, it loads files and DataFrames, writes through the data source and a
stream, kills an executor between the map and the reduce stage of some of these, and prints how many
were killed and how far the stream came. Called with a graph on one machine, `same` does the same
there, in one process.
"""

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import omnigraph as og
from omnigraph.exec.load import committed, finish
from omnigraph.graph import Graph
from omnigraph.pipeline import splits
from omnigraph.pipeline.shuffle_exchange import ShuffleExchange
from tests.exec.bulk import edge, lines, node, person

PEOPLE = 400
BATCHES, BATCH_ROWS = 3, 7


def people_and_edges() -> bytes:
    """The file: people, notes, and edges with and without ids of their own."""
    return lines(
        *(person(f"p{n}", age=n % 100, email=f"p{n}@b") for n in range(PEOPLE)),
        *(edge("Knows", f"p{n}", f"p{n // 2}", id=f"e{n}") for n in range(1, PEOPLE)),
        *(node("Log", text="t", id=f"l{n}") for n in range(20)),
        *(edge("Wrote", f"p{n}", f"l{n % 20}", weight=n) for n in range(40)),
    )


MERGED = [(f"p{n % 350 + 200}", n % 90, n) for n in range(500)]
"""Rows of a merge, some of one key: the last by the third column counts."""

REPLACED = [(f"e{n}", f"p{n}", "p0") for n in range(1, 300)]
WRITTEN = [(f"w{n}", n % 50) for n in range(60)]
WRITTEN_OVER = [(f"w{n}", 77) for n in range(30, 90)]


def same(graph: Graph, streamed: int) -> None:
    """The same loads in one process."""
    graph.load(people_and_edges(), "append", engine="local")
    last = {name: age for name, age, _ in sorted(MERGED, key=lambda row: row[2])}
    people = [{"name": name, "age": age} for name, age in last.items()]
    graph.load(people, "merge", type="Person", engine="local")
    edges = [{"id": i, "from": source, "to": target} for i, source, target in REPLACED]
    graph.load(edges, "overwrite", edge="Knows", engine="local")
    for rows in (WRITTEN, WRITTEN_OVER):
        new = [{"name": name, "age": age} for name, age in rows]
        graph.load(new, "merge", type="Person", engine="local")
    texts = [{"text": f"s{n}"} for n in range(streamed)]
    graph.load(texts, "append", type="Log", engine="local")


def executor_pid(number: int) -> int:
    """In a task: the process of its executor, the parent of the Python worker's daemon."""
    time.sleep(0.2)  # so that no executor runs all of these tasks
    return int(Path(f"/proc/{os.getppid()}/stat").read_text().rpartition(")")[2].split()[1])


class Killer:
    """Kills an executor after the map stage of a load, each time it is armed."""

    def __init__(self, spark: Any) -> None:
        self._spark = spark
        self.is_armed = False
        self.killed: list[int] = []
        for name in ("put", "put_frame"):
            setattr(ShuffleExchange, name, self._after(getattr(ShuffleExchange, name)))

    def _after(self, put: Callable[..., Any]) -> Callable[..., Any]:
        def putting(exchange: Any, *args: Any) -> Any:
            result = put(exchange, *args)
            if self.is_armed:
                self.is_armed = False
                self._kill()
            return result

        return putting

    def _kill(self) -> None:
        spread = self._spark.sparkContext.parallelize(range(8), 8)
        alive = sorted(set(spread.map(executor_pid).collect()))
        assert len(alive) == 2, alive
        os.kill(alive[0], signal.SIGKILL)
        self.killed.append(alive[0])


def main() -> None:
    uri, options_text, source, folder, master = sys.argv[1:]
    options = json.loads(options_text)
    splits.PART_BYTES_MIN = 4_000
    finish.KEYS_MAX = committed.KEYS_MAX = 0  # every merge is a large one
    committed._LOOKED_UP_MAX = -1
    from omnigraph import spark as ogs  # noqa: PLC0415

    spark = ogs.session(
        master=master,
        config={
            "spark.executor.memory": "512m",
            "spark.cores.max": "2",
            "spark.executorEnv.PYTHONPATH": os.environ["PYTHONPATH"],
            "spark.driver.host": "127.0.0.1",
            "spark.network.timeout": "300s",
        },
    )
    killer = Killer(spark)
    graph = og.open(uri, storage_options=options)

    killer.is_armed = True
    loaded = graph.load(source, "append", engine="spark", spark=spark)
    assert (loaded.engine, loaded.nodes["Person"]) == ("spark", PEOPLE)
    merged = spark.createDataFrame(MERGED, "name string, age int, step int").repartition(3)
    killer.is_armed = True
    graph.load(merged, "merge", type="Person", order_by="step")
    replaced = spark.createDataFrame(REPLACED, "id string, `from` string, to string")
    graph.load(replaced, "overwrite", edge="Knows")

    writing = {"type": "Person", "storage_options": options_text}
    for rows, how in ((WRITTEN, "append"), (WRITTEN_OVER, "merge")):
        frame = spark.createDataFrame(rows, "name string, age int").repartition(3)
        frame.write.format("omnigraph").options(**writing, mode=how).mode("append").save(uri)

    stream = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", BATCH_ROWS).load()
    query = (
        stream.selectExpr("concat('s', value) as text")
        .writeStream.format("omnigraph")
        .options(type="Log", storage_options=options_text)
        .option("checkpointLocation", f"{folder}/checkpoint")
        .start(uri)
    )
    until = time.monotonic() + 300
    while len(query.recentProgress) < BATCHES and time.monotonic() < until:
        assert query.exception() is None, query.exception()
        time.sleep(0.5)
    query.stop()
    streamed = sum(row["text"].startswith("s") for row in _logs(uri, options))
    sys.stdout.write(json.dumps({"killed": len(killer.killed), "streamed": streamed}))
    sys.stdout.flush()
    spark.stop()


def _logs(uri: str, options: dict[str, str]) -> list[dict[str, Any]]:
    text = "query q() { match { $l: Log } return { $l.text as text } }"
    return og.open(uri, storage_options=options).query(text).rows


if __name__ == "__main__":
    main()
