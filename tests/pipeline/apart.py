"""Loads of every kind on a cluster whose machines share nothing but the object store of the graph.

Run as a program with a graph, its storage options, the address of a folder of input files, a folder
of the driver's own and a master, it loads files and DataFrames, writes through the data source and
a stream, follows the changes, asks, exports and optimises. It kills an executor in every kind of
stage of these, and a whole worker between the map and the reduce stage of the last load; then it
prints what it killed and what it saw. Called with a graph on one machine, `same` does the same
loads there, in one process.
"""

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.errors import StreamingQueryException

import omnigraph as og
from omnigraph.costs import COSTS
from omnigraph.graph import Graph
from omnigraph.pipeline.shuffle_exchange import ShuffleExchange
from tests.exec.bulk import edge, lines, node, person

PEOPLE = 400
BATCHES, BATCH_ROWS = 2, 7
EXECUTOR, WORKER = "CoarseGrainedExecutorBackend", "deploy.worker.Worker"


def people_and_edges() -> bytes:
    """A file to append: people, notes, and edges with and without ids of their own."""
    return lines(
        *(person(f"p{n}", age=n % 100, email=f"p{n}@b") for n in range(PEOPLE)),
        *(edge("Knows", f"p{n}", f"p{n // 2}", id=f"e{n}") for n in range(1, PEOPLE)),
        *(node("Log", text="t", id=f"l{n}") for n in range(20)),
        *(edge("Wrote", f"p{n}", f"l{n % 20}", weight=n) for n in range(40)),
    )


def older_people() -> bytes:
    """A file to merge: people who are there and people who are not, some of them twice."""
    return lines(*(person(f"p{n % 150 + 350}", age=n % 70, email=None) for n in range(200)))


def other_counts() -> bytes:
    """A file that takes the place of all counts."""
    return lines(*(node("Count", n=n) for n in range(40, 300)))


FILES = {
    "append.jsonl": people_and_edges,
    "merge.jsonl": older_people,
    "overwrite.jsonl": other_counts,
}
COUNTS = list(range(200))
MERGED = [(f"p{n % 350 + 200}", n % 90, n) for n in range(500)]
"""Rows of a merge, some of one key: the last by the third column counts."""

REPLACED = [(f"e{n}", f"p{n}", "p0") for n in range(1, 300)]
WRITTEN = [(f"w{n}", n % 50) for n in range(60)]
WRITTEN_OVER = [(f"w{n}", 77) for n in range(30, 90)]
TICKETS = [("a", n) for n in range(30)]
LAST = [(f"p{n}", 33) for n in range(0, 600, 2)]
KNOWN = (
    "query q() { match { $p: Person $p knows $q } "
    "return { $q.name, $p.age as age, count($p) as n } order { n desc, age, $q.name } }"
)


def same(graph: Graph, streamed: int) -> None:
    """The same loads in one process."""
    graph.load(people_and_edges(), "append", engine="local")
    graph.load([{"n": n} for n in COUNTS], "append", type="Count", engine="local")
    graph.load(older_people(), "merge", engine="local")
    graph.load(other_counts(), "overwrite", engine="local")
    last = {name: age for name, age, _ in sorted(MERGED, key=lambda row: row[2])}
    people = [{"name": name, "age": age} for name, age in last.items()]
    graph.load(people, "merge", type="Person", engine="local")
    edges = [{"id": i, "from": source, "to": target} for i, source, target in REPLACED]
    graph.load(edges, "overwrite", edge="Knows", engine="local")
    for rows in (WRITTEN, WRITTEN_OVER):
        new = [{"name": name, "age": age} for name, age in rows]
        graph.load(new, "merge", type="Person", engine="local")
    tickets = [{"tenant": tenant, "number": number} for tenant, number in TICKETS]
    graph.load(tickets, "overwrite", type="Ticket", engine="local")
    texts = [{"text": f"s{n}"} for n in range(streamed)]
    graph.load(texts, "append", type="Log", engine="local")
    graph.load([{"name": n, "age": a} for n, a in LAST], "merge", type="Person", engine="local")


def processes(*words: str) -> list[int]:
    """The processes whose command line has all these words, the oldest first."""
    matching = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            command = (folder / "cmdline").read_bytes().split(b"\0")
            text = " ".join(part.decode(errors="replace") for part in command)
            if command[0].endswith(b"java") and all(word in text for word in words):
                started = (folder / "stat").read_text().rpartition(")")[2].split()[19]
                matching.append((int(started), int(folder.name)))
    return [pid for _, pid in sorted(matching)]


def slowly(work: Callable[..., Any], *args: Any) -> Any:
    """A task that takes long enough to be killed."""
    time.sleep(1)
    return work(*args)


class Killer:
    """Kills an executor during the first call of each method of the exchange that it is armed
    for, or during a block; or a whole worker after a method."""

    def __init__(self, spark: Any, master: str) -> None:
        self._context = spark.sparkContext
        self._master = master
        self._armed: set[str] = set()
        self.killed: list[str] = []
        for name in ("put", "put_frame", "read", "forward"):
            setattr(ShuffleExchange, name, self._around(name, getattr(ShuffleExchange, name)))

    @contextmanager
    def armed(self, *names: str) -> Iterator[None]:
        """Kill during each of these methods, in the load of this block."""
        self._armed = set(names)
        before = len(self.killed)
        yield
        assert not self._armed, f"never came to {self._armed}"
        assert len(self.killed) == before + len(names)

    @contextmanager
    def during(self, name: str) -> Iterator[None]:
        """Kill while tasks of this block run."""
        killing = threading.Thread(target=self._kill_executor, args=(name,))
        killing.start()
        yield
        killing.join()
        assert self.killed[-1] == name, f"no task ran during {name}"

    def _around(self, name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        def called(exchange: Any, *args: Any) -> Any:
            if name in self._armed:
                self._armed.discard(name)
                killing = threading.Thread(target=self._kill_executor, args=(name,))
                killing.start()
                work, *rest = args
                if isinstance(work, list):
                    result = method(exchange, [partial(slowly, each) for each in work], *rest)
                else:
                    result = method(exchange, partial(slowly, work), *rest)
                killing.join()
                return result
            result = method(exchange, *args)
            if f"worker after {name}" in self._armed:
                self._armed.discard(f"worker after {name}")
                self._kill_worker()
            return result

        return called

    def _alive(self) -> list[int]:
        return processes(EXECUTOR, f"--app-id {self._context.applicationId}")

    def _kill_executor(self, name: str) -> None:
        """End one of the executors as soon as tasks run."""
        tracker = self._context.statusTracker()
        until = time.monotonic() + 600
        while time.monotonic() < until:
            stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
            is_busy = any(stage is not None and stage.numActiveTasks for stage in stages)
            if is_busy and (alive := self._alive()):
                os.kill(alive[0], signal.SIGKILL)
                self.killed.append(name)
                return
            time.sleep(0.005)

    def _kill_worker(self) -> None:
        """End a worker, so that nobody starts its executor again, and that executor."""
        worker = processes(WORKER, self._master)[0]
        theirs = [pid for pid in self._alive() if parent_of(pid) == worker]
        for pid in (worker, *theirs):
            os.kill(pid, signal.SIGKILL)
        self.killed.append("worker")


def parent_of(pid: int) -> int:
    """The process that started another one."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def main() -> None:
    uri, options_text, source, folder, master = sys.argv[1:]
    options = json.loads(options_text)
    COSTS.spark_part_bytes_min = 4_000
    COSTS.upsert_rows_max = COSTS.committed_keys_max = 0  # every merge is a large one
    COSTS.mentioned_keys_max = -1
    from omnigraph import spark as ogs  # noqa: PLC0415

    spark = ogs.session(
        master=master,
        config={
            "spark.executor.memory": "512m",
            "spark.cores.max": "2",
            "spark.executorEnv.PYTHONPATH": os.environ["PYTHONPATH"],
            "spark.driver.host": "127.0.0.1",
            "spark.network.timeout": "300s",
            "spark.shuffle.io.retryWait": "500ms",
            "spark.ui.liveUpdate.period": "0",  # the killer sees tasks as they start
        },
    )
    killer = Killer(spark, master)
    graph = og.open(uri, storage_options=options)
    load_all(graph, spark, killer, source)
    written = written_through_the_source(spark, killer, uri, options_text, folder)
    streamed = sum(row["text"].startswith("s") for row in _logs(uri, options))
    with killer.armed("worker after put_frame"):
        frame = spark.createDataFrame(LAST, "name string, age int").repartition(3)
        graph.load(frame, "merge", type="Person")
    with killer.during("follow"):
        changes = changes_of(spark, uri, options_text, folder)
    with killer.during("optimize"):
        graph.optimize(engine="spark", spark=spark)
    with killer.during("export"):
        graph.export(f"{source}/out", "jsonl", engine="spark", spark=spark)
    with killer.during("query"):
        known = graph.query(KNOWN, engine="spark", spark=spark).rows
    answer = {
        "killed": killer.killed,
        "streamed": streamed,
        "written": written,
        "changes": changes,
        "known": known,
    }
    sys.stdout.write(json.dumps(answer))
    sys.stdout.flush()
    spark.stop()


def load_all(graph: Graph, spark: Any, killer: Killer, source: str) -> None:
    """Append, merge and overwrite, from files and from DataFrames."""
    with killer.armed("put", "read"):
        loaded = graph.load(f"{source}/append.jsonl", "append", engine="spark", spark=spark)
    assert (loaded.engine, loaded.nodes["Person"]) == ("spark", PEOPLE)
    counts = spark.createDataFrame([(n,) for n in COUNTS], "n long").repartition(2)
    graph.load(counts, "append", type="Count")
    with killer.armed("forward"):
        graph.load(f"{source}/merge.jsonl", "merge", engine="spark", spark=spark)
    graph.load(f"{source}/overwrite.jsonl", "overwrite", engine="spark", spark=spark)
    merged = spark.createDataFrame(MERGED, "name string, age int, step int").repartition(3)
    with killer.armed("put_frame"):
        graph.load(merged, "merge", type="Person", order_by="step")
    replaced = spark.createDataFrame(REPLACED, "id string, `from` string, to string")
    graph.load(replaced, "overwrite", edge="Knows")


def written_through_the_source(
    spark: Any, killer: Killer, uri: str, options_text: str, folder: str
) -> list[list[Any]]:
    """Write through the format, in every mode, and by a stream; rows that the format reads."""
    writing = {"type": "Person", "storage_options": options_text}
    for rows, how in ((WRITTEN, "append"), (WRITTEN_OVER, "merge")):
        frame = spark.createDataFrame(rows, "name string, age int").repartition(3)
        with killer.during(f"write {how}"):
            frame.write.format("omnigraph").options(**writing, mode=how).mode("append").save(uri)
    tickets = spark.createDataFrame(TICKETS, "tenant string, number long").repartition(2)
    asked = tickets.write.format("omnigraph").options(type="Ticket", storage_options=options_text)
    asked.mode("overwrite").save(uri)

    stream = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", BATCH_ROWS).load()
    writer = (
        stream.selectExpr("concat('s', value) as text")
        .writeStream.format("omnigraph")
        .options(type="Log", storage_options=options_text)
        .option("checkpointLocation", f"{folder}/checkpoint")
    )
    with killer.during("stream"):
        query = writer.start(uri)
        until = time.monotonic() + 600
        while len(query.recentProgress) < BATCHES and time.monotonic() < until:
            assert query.exception() is None, query.exception()
            time.sleep(0.2)
        query.stop()
    read = spark.read.format("omnigraph").options(type="Ticket", storage_options=options_text)
    with killer.during("scan"):
        rows = read.load(uri).select("tenant", "number").collect()
    return sorted(list(row) for row in rows)


def changes_of(spark: Any, uri: str, options_text: str, folder: str) -> list[list[Any]]:
    """The changes of all people, as a stream gives them."""
    seen: dict[int, list[list[Any]]] = {}

    def note(frame: Any, epoch: int) -> None:
        rows = frame.select("number", "position", "op", "id", "after.age").collect()
        seen[epoch] = [list(row) for row in rows]

    changes = spark.readStream.format("omnigraph").options(storage_options=options_text)
    typed = changes.options(type="Person", changes="true", maxCommitsPerTrigger="5").load(uri)
    writer = typed.writeStream.option("checkpointLocation", f"{folder}/changes")
    following = writer.foreachBatch(note).trigger(availableNow=True)
    for last in (*[False] * 7, True):
        try:
            following.start().awaitTermination()
            break
        except StreamingQueryException as error:
            # Spark waits ten seconds for a process of Python to come up, and no longer.
            if last or "connect back" not in str(error):
                raise
    return sorted(row for rows in seen.values() for row in rows)


def _logs(uri: str, options: dict[str, str]) -> list[dict[str, Any]]:
    text = "query q() { match { $l: Log } return { $l.text as text } }"
    return og.open(uri, storage_options=options).query(text).rows


if __name__ == "__main__":
    main()
