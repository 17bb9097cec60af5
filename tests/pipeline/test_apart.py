"""A cluster whose machines share no folder: the graph in an object store, all loads, kills."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import lance
import pytest

import omnigraph as og
from omnigraph.graph import Graph
from omnigraph.pipeline.java import find_java
from omnigraph.storage.manifest import manifest
from omnigraph.storage.upkeep import cleanup
from tests.exec.bulk import SCHEMA, contents, new_graph
from tests.pipeline import apart
from tests.pipeline.ports import free_port, wait_until_it_listens
from tests.storage.s3 import BUCKET, Server, serve

ROOT = Path(__file__).parents[2]
MADE_UP = re.compile("0[0-9A-Z]{25}")


@pytest.fixture
def objects() -> Iterator[Server]:
    with serve() as server:
        yield server


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[str]:
    """A master and two workers, each with a temporary folder that nobody else sees: mounted for it
    alone where this process may, else another name."""
    from pyspark.find_spark_home import _find_spark_home  # noqa: PLC0415

    home = _find_spark_home()
    base = {
        **os.environ,
        "JAVA_HOME": str(find_java().home),
        "SPARK_HOME": home,
        "SPARK_NO_DAEMONIZE": "1",
        "PYSPARK_PYTHON": sys.executable,
    }
    can_hide = (
        not ROOT.is_relative_to("/tmp")
        and not subprocess.run(
            ["unshare", "-m", "mount", "-t", "tmpfs", "tmpfs", "/tmp"],
            check=False,
            capture_output=True,
        ).returncode
    )
    started = []

    def launch(what: str, host: str, words: list[str], *, apart: bool) -> None:
        command = [f"{home}/bin/spark-class", f"org.apache.spark.deploy.{what}", "--host", host]
        command += ["--webui-port", "0", *words]
        own = {**base, "SPARK_LOCAL_IP": host}
        if apart and can_hide:
            script = 'mount -t tmpfs -o size=1g tmpfs /tmp && exec "$@"'
            command = ["unshare", "-m", "sh", "-c", script, "sh", *command]
            own["SPARK_WORKER_DIR"] = "/tmp/work"
        elif apart:
            private = tmp_path / f"machine-{host}"
            (private / "tmp").mkdir(parents=True)
            own |= {"TMPDIR": str(private / "tmp"), "SPARK_WORKER_DIR": str(private / "work")}
            own["SPARK_LOCAL_DIRS"] = str(private / "local")
        with (tmp_path / f"{what}-{host}.log").open("wb") as log:
            started.append(subprocess.Popen(command, env=own, stdout=log, stderr=log))

    port = free_port()
    master = f"spark://127.0.0.1:{port}"
    try:
        launch("master.Master", "127.0.0.1", ["--port", str(port)], apart=False)
        wait_until_it_listens(port)
        for number in (1, 2):
            words = ["--cores", "1", "--memory", "1g", master]
            launch("worker.Worker", f"127.0.0.{number}", words, apart=True)
        yield master
    finally:
        for process in started:
            process.kill()
            process.wait()


def rows_of(graph: Graph) -> dict[str, list[str]]:
    """Every row of every table, without the ids that each load makes up."""
    return {
        table: sorted(MADE_UP.sub("…", repr(sorted(row.items()))) for row in rows)
        for table, rows in contents(graph).items()
    }


def scratch_in(*folders: Path) -> list[Path]:
    """What loads left in temporary folders. Marks of processes stay: whoever waits for a lease of
    one that died asks its mark."""
    found = [each for folder in folders for each in folder.glob("omnigraph-*")]
    return [each for each in found if not each.name.startswith("omnigraph-processes-")]


def temporary_folder_of(process: int) -> Path:
    """The temporary folder of a process, which another may not see by that name."""
    environment = Path(f"/proc/{process}/environ").read_bytes().split(b"\0")
    named = [os.fsdecode(each[7:]) for each in environment if each.startswith(b"TMPDIR=")]
    return Path(f"/proc/{process}/root{named[0] if named else '/tmp'}")


def changes_of_people(graph: Graph) -> list[list[Any]]:
    """The changes of all people, as comparisons of one commit with the next show them."""
    commits = sorted(graph.commits.list(), key=lambda commit: commit.created_at)
    return [
        [number, position, each.op, each.id, each.after and each.after.properties["age"]]
        for number, commit in enumerate(commits)
        if commit.parent is not None
        for position, each in enumerate(graph.diff(commit.parent, commit.id, types=["Person"]))
    ]


KILLED = [
    *("put", "read", "forward", "put_frame"),
    *("write append", "write merge", "stream", "scan", "worker"),
    *("follow", "optimize", "export", "query"),
]
"""What was running when an executor was killed; of the worker, between two stages of a load."""


def loads_of(graph: Graph) -> int:
    """The commits that wrote rows."""
    return sum(bool(commit.counts) for commit in graph.commits.list())


def unnamed_files(graph: Graph, names: list[str]) -> set[str]:
    """Data files of tables, by their names in the object store, that no table has any more."""
    named = {
        Path(file.path).name
        for pin in graph.snapshot().tables.values()
        for fragment in lance.dataset(
            f"{graph.uri}/{pin.location}",
            version=pin.version,
            storage_options=graph._store.where.storage_options,
        ).get_fragments()
        for file in fragment.data_files()
    }
    stored = {Path(name).name for name in names if re.search("/(nodes|edges)/.*/data/", name)}
    assert named <= stored
    return stored - named


@pytest.mark.slow
def test_SX2_machines_that_share_no_folder_load_write_and_stream(
    tmp_path: Path, objects: Server, machines: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = objects.place()
    options: dict[str, str] = objects.options
    og.init(where.uri, SCHEMA, storage_options=options).close()
    client = boto3.client(
        "s3",
        endpoint_url=options["aws_endpoint"],
        aws_access_key_id=options["aws_access_key_id"],
        aws_secret_access_key=options["aws_secret_access_key"],
        region_name=options["aws_region"],
    )
    for name, content in apart.FILES.items():
        client.put_object(Bucket=BUCKET, Key=f"in/{name}", Body=content())
    command = [sys.executable, "-m", "tests.pipeline.apart", where.uri, json.dumps(options)]
    command += [f"s3://{BUCKET}/in", str(tmp_path), machines]
    (tmp_path / "driver").mkdir()
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "PYSPARK_PYTHON": sys.executable,
        "TMPDIR": str(tmp_path / "driver"),
    }
    ran = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=3_000
    )
    assert ran.returncode == 0, ran.stderr[-4_000:]
    told: dict[str, Any] = json.loads(ran.stdout)
    assert told["killed"] == KILLED
    assert told["streamed"] >= apart.BATCHES * apart.BATCH_ROWS
    assert told["streamed"] % apart.BATCH_ROWS == 0
    assert told["written"] == [list(ticket) for ticket in apart.TICKETS]

    graph = og.open(where.uri, storage_options=options)
    alone = new_graph(tmp_path)
    apart.same(alone, told["streamed"])
    assert rows_of(graph) == rows_of(alone)
    # One commit a load, of which the stream had one for each batch.
    batches = told["streamed"] // apart.BATCH_ROWS
    assert loads_of(graph) == loads_of(alone) - 1 + batches
    assert told["known"] == alone.query(apart.KNOWN).rows
    assert told["changes"] == changes_of_people(graph)
    report = graph.check()
    assert not report.findings, report

    listed = client.list_objects_v2(Bucket=BUCKET, Prefix="in/out/")["Contents"]
    exported = [client.get_object(Bucket=BUCKET, Key=each["Key"])["Body"].read() for each in listed]
    (tmp_path / "again").mkdir()
    again = new_graph(tmp_path / "again")
    # Edges after the nodes that they join.
    again.load(b"".join(sorted(exported, key=lambda text: text.startswith(b'{"edge'))), "append")
    assert contents(again) == contents(graph)

    # What attempts that do not count have written is in no table, and goes with old versions.
    monkeypatch.setattr(cleanup, "SAFE_AGE_S", 0)
    monkeypatch.setattr(manifest, "RECLAIM_AGE_S", 0.0)
    graph.cleanup(keep=1, grace=0, confirm=True)
    prefix = where.uri.removeprefix(f"s3://{BUCKET}/")
    pages = client.get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix=prefix)
    names = [each["Key"] for page in pages for each in page.get("Contents", [])]
    assert not [name for name in names if "__scratch" in name and not name.endswith("/")]
    assert not unnamed_files(graph, names)
    assert rows_of(graph) == rows_of(alone)
    assert not scratch_in(tmp_path / "driver")
    (alive,) = apart.processes(apart.WORKER, machines)
    private = temporary_folder_of(alive)
    assert not scratch_in(private, *(each for each in private.iterdir() if each.is_dir()))
