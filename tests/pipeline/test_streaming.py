"""A streaming query that is killed at any moment loses no row and writes none twice."""

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

import omnigraph as og
from omnigraph import spark as ogs
from omnigraph.graph import Graph
from omnigraph.pipeline.source import OmnigraphSource
from tests.exec.bulk import contents, edge, lines, new_graph, node, person
from tests.pipeline.streaming import follower

ROOT = Path(__file__).parents[2]
ROWS_A_FILE = 3
STANDSTILL_S = 600


def fill(folder: Path, files: int) -> Counter[str]:
    """Files that arrive one after the other, and the rows they hold."""
    folder.mkdir()
    rows: Counter[str] = Counter()
    for number in range(files):
        texts = [f"{number}-{row}" for row in range(ROWS_A_FILE)]
        path = folder / f"{number:05}.json"
        path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
        os.utime(path, (1_000_000_000 + number, 1_000_000_000 + number))
        rows.update(texts)
    return rows


def start(graph: str, folder: Path, way: str) -> "subprocess.Popen[bytes]":
    source = folder / ("in/graph.omni" if way == "changes" else "in")
    command = [sys.executable, "-m", "tests.pipeline.streaming", graph, str(source)]
    command += [str(folder / "checkpoint"), way]
    with (folder / "log").open("ab") as log:
        return subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log, start_new_session=True)


def kill(process: "subprocess.Popen[bytes]", *, whole: bool) -> None:
    """Kill the driver alone, whose JVM lives a little longer, or everything it started."""
    if whole:
        os.killpg(process.pid, signal.SIGKILL)
    else:
        process.kill()
    process.wait()


def commits(uri: str) -> int:
    """Commits of batches; others may write to the graph beside the query."""
    listed = og.open(uri, read_only=True).commits.list()
    return sum(1 for commit in listed if commit.mark is not None)


def wait(process: "subprocess.Popen[bytes]", uri: str, until: int | None = None) -> None:
    """Return when the query has ended or made so many commits; fail if it makes none for long."""
    seen, since = commits(uri), time.monotonic()
    while process.poll() is None and (until is None or seen < until):
        time.sleep(0.1 if until is not None else 2)
        if (now := commits(uri)) > seen:
            seen, since = now, time.monotonic()
        assert time.monotonic() - since < STANDSTILL_S, "the query stands still"


def run_to_its_end(graph: Graph, folder: Path, way: str, kills: int, dice: random.Random) -> int:
    """Start the query again and again, killing it so many times; how often it was killed."""
    killed = 0
    while True:
        process = start(graph.uri, folder, way)
        if killed < kills:
            wait(process, graph.uri, commits(graph.uri) + dice.randrange(1, 4))
            time.sleep(dice.random())
        else:
            wait(process, graph.uri)
        if process.poll() is None:
            kill(process, whole=dice.random() < 0.5)
        elif process.returncode == 0:
            return killed
        else:
            # Spark waits ten seconds for a new worker, on a busy machine too. It ended by itself
            # then, which is no other end than a kill.
            log = (folder / "log").read_text()
            assert "failed to connect back" in log[-20_000:], log[-3_000:]
        killed += 1
        assert killed <= 2 * kills + 5, "it ends again and again"


def require_once(graph: Graph, rows: Counter[str], files: int, kills: int) -> None:
    """Every row once, and a commit for each batch of one query, none left out.

    Spark notes a file before the batch it goes into: a kill in between puts it into the next one.
    """
    again = og.open(graph.uri)
    assert Counter(row["text"] for row in contents(again)["node:Log"]) == rows
    marks = [c.mark for c in reversed(again.commits.list()) if c.mark is not None]
    query = marks[0].partition("/")[0]
    assert marks == [f"{query}/{number}" for number in range(len(marks))]
    assert files - kills <= len(marks) <= files


def test_DS3_a_killed_query_goes_on_where_it_was(tmp_path: Path) -> None:
    graph = new_graph(tmp_path)
    rows = fill(tmp_path / "in", 4)
    assert run_to_its_end(graph, tmp_path, "foreachBatch", 1, random.Random(1)) == 1
    require_once(graph, rows, 4, kills=1)


@pytest.mark.slow
@pytest.mark.parametrize("way", ["format", "foreachBatch"])
def test_DS3_hundreds_of_batches_and_many_kills(tmp_path: Path, way: str) -> None:
    graph = new_graph(tmp_path)
    rows = fill(tmp_path / "in", 200)
    killed = run_to_its_end(graph, tmp_path, way, 12, random.Random(2))
    assert killed > 5
    require_once(graph, rows, 200, killed)


def test_SS1_batches_that_come_again_are_followed_once(spark: SparkSession, tmp_path: Path) -> None:
    """As Spark does it: an offset is noted, the batch runs, the next one begins where it ended."""
    (tmp_path / "in").mkdir()
    source, target = new_graph(tmp_path / "in"), new_graph(tmp_path)
    ada = person("Ada", big=2**64 - 1, born="1815-12-10")
    source.load(lines(ada, person("Bob"), edge("Knows", "Ada", "Bob", id="k")), "append")
    program = follower()
    asked = {"path": source.uri, "startingBaseline": "true", "maxCommitsPerTrigger": "1"}
    spark.sparkContext.setLocalProperty("sql.streaming.queryId", "the-query")

    def deliver(epoch: int, start: Any, end: Any) -> None:
        made = OmnigraphSource(asked)
        reader: Any = made.streamReader(StructType())
        parts = reader.partitions(reader.initialOffset() if start is None else start, end)
        rows = [row for part in parts for each in reader.read(part) for row in each.to_pylist()]
        frame = spark.createDataFrame([tuple(row.values()) for row in rows], made.schema())
        program.apply(frame, epoch, target.uri)

    reader: Any = OmnigraphSource(asked).streamReader(StructType())
    first = reader.latestOffset(reader.initialOffset())
    deliver(0, None, first)
    source.load(lines(person("Ada", age=3), person("Cy")), "merge", engine="local")
    source.mutate('query d() { delete Person where name = "Bob" }')
    deliver(0, None, first)  # the driver died after its commit: the same rows, though more is there
    second = reader.latestOffset(first)
    third = reader.latestOffset(second)
    for epoch, start, end in [(1, first, second), (1, first, second), (2, second, third)]:
        deliver(epoch, start, end)
    deliver(2, second, third)
    spark.sparkContext.setLocalProperty("sql.streaming.queryId", None)  # type: ignore[arg-type]
    again = og.open(target.uri)
    assert contents(again) == contents(source)
    marks = [c.mark for c in reversed(again.commits.list()) if c.mark is not None]
    assert marks == ["the-query/0", "the-query/1", "the-query/2"]


@pytest.mark.slow
def test_SS1_a_follower_that_fails_before_or_after_its_commit_misses_nothing(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ogs.register(spark)
    (tmp_path / "in").mkdir()
    source, target = new_graph(tmp_path / "in"), new_graph(tmp_path)
    source.load(lines(person("Ada", big=2**64 - 1, born="1815-12-10"), person("Bob")), "append")
    source.load(lines(edge("Knows", "Ada", "Bob", id="k"), node("Log", id="l", text="t")), "append")
    program = follower()
    apply, mishaps = program.apply, ["after", "", "before", "", ""]
    batches: list[int] = []

    def unlucky(frame: Any, epoch: int, uri: str) -> None:
        batches.append(epoch)
        mishap = mishaps.pop(0)
        if mishap != "before":
            apply(frame, epoch, uri)
        if mishap:
            raise OSError("the driver is gone")

    monkeypatch.setattr(program, "apply", unlucky)
    for _ in range(12):  # on a busy machine a query may not come up at all
        query = program.follow(spark, source.uri, target.uri, str(tmp_path / "checkpoint"), 1)
        with suppress(StreamingQueryException):
            query.processAllAvailable()
        query.stop()
        if len(mishaps) == 4:
            source.load(lines(person("Ada", age=3), person("Cy")), "merge", engine="local")
            source.mutate('query d() { delete Person where name = "Bob" }')
        if not mishaps:
            break
    assert batches == [0, 0, 1, 1, 2]
    assert contents(og.open(target.uri)) == contents(source)
    marks = [c.mark for c in og.open(target.uri).commits.list() if c.mark is not None]
    assert len(marks) == len(set(marks)) == 3


@pytest.mark.slow
def test_SS1_changes_reach_another_graph_exactly_once_whichever_driver_dies(
    tmp_path: Path,
) -> None:
    feeder, follower_folder = tmp_path / "feeder", tmp_path / "follower"
    for folder in (feeder, follower_folder / "in"):
        folder.mkdir(parents=True)
    source, target = new_graph(follower_folder / "in"), new_graph(tmp_path)
    fill(feeder / "in", 100)
    killed: list[int] = []
    dice = random.Random(3)
    source.load(lines(person("p0")), "append", engine="local")
    run_to_its_end(target, follower_folder, "changes", 0, dice)  # the baseline

    def feed() -> None:
        killed.append(run_to_its_end(source, feeder, "format", 5, random.Random(4)))

    feeding = threading.Thread(target=feed)
    feeding.start()
    for number in range(100):
        names = [f"p{dice.randrange(40)}" for _ in range(2)]
        knows = edge("Knows", *names, id=f"{names[0]} {names[1]}")
        people = [person(name, age=number) for name in names]
        source.load(lines(*people, knows), "merge", engine="local")
        if number % 5 == 4:
            gone = "query d($n: String) { delete Person where name = $n }"
            source.mutate(gone, {"n": names[0]}, retries=9)
    died = run_to_its_end(target, follower_folder, "changes", 5, dice)
    feeding.join(3_000)
    assert killed, "the feeder did not end"
    died += run_to_its_end(target, follower_folder, "changes", 2, dice)
    assert (killed[0] > 2, died > 3) == (True, True)
    again = og.open(target.uri)
    assert contents(again) == contents(source)
    assert len(contents(again)["node:Log"]) == 100 * ROWS_A_FILE
    marks = [c.mark for c in again.commits.list() if c.mark is not None]
    assert len(marks) == len(set(marks))
    assert len(marks) >= 200, "a batch a commit"
