"""Spark Connect: a remote session loads, asks, exports and optimises as a session here does."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import omnigraph as og
from omnigraph.pipeline.java import find_java
from tests.exec.bulk import contents, edge, lines, new_graph, person
from tests.pipeline import connect
from tests.pipeline.ports import free_port, wait_until_it_listens

ROOT = Path(__file__).parents[2]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    """A server of Spark Connect on a free port."""
    from pyspark.find_spark_home import _find_spark_home  # noqa: PLC0415

    home, port = _find_spark_home(), free_port()
    environment = {
        **os.environ,
        "JAVA_HOME": str(find_java().home),
        "SPARK_HOME": home,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": str(ROOT),
    }
    command = [f"{home}/bin/spark-submit", "--master", "local[2]"]
    command += ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer"]
    for name, value in {
        "spark.connect.grpc.binding.port": port,
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": 2,
        "spark.sql.warehouse.dir": tmp_path / "warehouse",
        "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
    }.items():
        command += ["--conf", f"{name}={value}"]
    with (tmp_path / "server.log").open("wb") as log:
        process = subprocess.Popen(
            [*command, "spark-internal"], env=environment, stdout=log, stderr=log, cwd=tmp_path
        )
    try:
        wait_until_it_listens(port)
        yield f"sc://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


@pytest.mark.slow
def test_SC1_a_remote_session_does_what_one_here_does(tmp_path: Path, server: str) -> None:
    people = [person(f"p{n}", age=n) for n in range(40)]
    knows = [edge("Knows", f"p{n}", f"p{n % 3}", id=f"e{n}") for n in range(40)]
    file = tmp_path / "in.jsonl"
    file.write_bytes(lines(*people, *knows))
    graph = new_graph(tmp_path)
    command = [sys.executable, "-m", "tests.pipeline.connect", server, graph.uri, str(file)]
    (tmp_path / "client").mkdir()
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path / "client")}
    ran = subprocess.run(
        [*command, str(tmp_path / "client")],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=1_800,
    )
    log = (tmp_path / "server.log").read_text()[-2_000:]
    assert ran.returncode == 0, ran.stderr[-3_000:] + log
    told = json.loads(ran.stdout)

    (tmp_path / "alone").mkdir()
    alone = new_graph(tmp_path / "alone")
    alone.load(file, "append", engine="local")
    last = {name: age for name, age, _ in connect.ROWS}
    ages = [{"name": name, "age": age} for name, age in (last | {"w": 5}).items()]
    alone.load(ages, "merge", type="Person", engine="local")
    logs = [{"id": f"l{n}", "text": "t"} for n in range(3)]
    alone.load(logs, "append", type="Log", engine="local")
    again = og.open(graph.uri)
    here, there = contents(alone), contents(again)
    streamed = [row["text"] for row in there["node:Log"] if row["text"] != "t"]
    assert sorted(streamed) == connect.STREAMED
    there["node:Log"] = [row for row in there["node:Log"] if row["text"] == "t"]
    assert there == here
    marks = [commit.mark for commit in again.commits.list() if commit.mark is not None]
    assert sorted(marks) == ["connected/0", "connected/1", "connected/2"]
    assert not again.check().findings

    assert told["engine"] == "spark"
    assert told["grouped"] == alone.query(connect.GROUPED).rows
    assert told["frame"] == len(told["grouped"])
    assert told["sql"] == sorted([row["q.name"], row["n"]] for row in told["grouped"])
    assert told["read"] == sorted(row["name"] for row in here["node:Person"])
    assert "give it a name: query=" in told["nameless"]
    exported = tmp_path / "client" / "out"
    (tmp_path / "again").mkdir()
    loaded = new_graph(tmp_path / "again")
    for kind in ("nodes", "edges"):
        loaded.load(exported / kind, "append", engine="local")
    assert contents(loaded) == contents(again)
    assert not list((Path(graph.uri) / "__scratch").glob("*"))
