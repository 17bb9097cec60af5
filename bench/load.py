"""How fast bulk data enters: both engines beside Ladybug's COPY and DuckDB with the same checks.

    python bench/load.py                               one million edges, every run
    python bench/load.py --edges 5000000 --runs local spark ladybug --keep /var/tmp/graphs
    python bench/load.py --runs cold                   a small file at the terminal
    python bench/load.py --matrix --save               shapes of columns by formats: load_matrix.py

Each run is a process of its own. Memory is the highest sum over the process and all it started,
pages they share counted once, and the process's own. CPU seconds say more than wall time on a
machine with other work to do. Peers are measured where they are installed (the group `bench`).
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import load_data
import load_matrix
import load_peers
from load_data import timed

import omnigraph as og
from omnigraph.pipeline.session import session

MERGED = 100_000
COLD_ROUNDS = 3
RESULTS = Path(__file__).parent / "results" / "load.json"
Run = Callable[[Path, int], tuple[int, float]]
"""From the files and the number of edges to the rows that were loaded and the seconds it took."""


def _fresh() -> og.Graph:
    return og.init(Path(tempfile.mkdtemp()) / "graph.omni", load_data.SCHEMA)


def _lines(engine: str, files: Path) -> tuple[int, float]:
    graph = _fresh()
    return timed(lambda: graph.load(files / "in.jsonl", "append", engine=engine).total_entities)


def _parquet(engine: str, files: Path, *, indexed: bool = False) -> tuple[int, float]:
    graph = _fresh()

    def both() -> int:
        people = graph.load(files / "people.parquet", "append", type="Person", engine=engine)
        knows = graph.load(files / "knows.parquet", "append", edge="Knows", engine=engine)
        if indexed:
            graph.ensure_indices()
        return people.total_entities + knows.total_entities

    return timed(both)


def _warm() -> None:
    """A session whose workers have loaded what they need."""
    spark = session("bulk")
    graph = og.init(Path(tempfile.mkdtemp()) / "warm.omni", load_data.SCHEMA)
    graph.load([{"type": "Person", "data": {"name": "a"}}], "merge", engine="spark", spark=spark)


def local_jsonl(files: Path, edges: int) -> tuple[int, float]:
    return _lines("local", files)


def local_parquet(files: Path, edges: int) -> tuple[int, float]:
    return _parquet("local", files)


def local_indexed(files: Path, edges: int) -> tuple[int, float]:
    """The load and then every index: a reader needs none, but COPY leaves one of the keys too."""
    return _parquet("local", files, indexed=True)


def spark_jsonl(files: Path, edges: int) -> tuple[int, float]:
    _warm()
    return _lines("spark", files)


def spark_parquet(files: Path, edges: int) -> tuple[int, float]:
    _warm()
    return _parquet("spark", files)


def _into_many(mode: str, engine: str, files: Path, edges: int) -> tuple[int, float]:
    """A hundred thousand rows into a table of as many rows as the graph has edges."""
    path = files / "many.omni"
    if not path.exists():
        graph = og.init(path, load_data.SCHEMA)
        tables = (
            load_data.people_table(first, min(500_000, edges - first))
            for first in range(0, edges, 500_000)
        )
        graph.load(_reader(tables), "append", type="Person", engine="local")
    graph = og.open(path)
    if engine == "spark":
        _warm()
    some = (
        load_data.people_table(graph.snapshot().tables[_PERSON].row_count, MERGED)
        if mode == "append"
        else load_data.scattered_people(MERGED, edges, age=9)
    )
    return timed(lambda: graph.load(some, mode, type="Person", engine=engine).total_entities)


_PERSON: Any = "node:Person"


def _reader(tables: Any) -> Any:
    import pyarrow as pa  # noqa: PLC0415

    first = next(tables)
    batches = (batch for table in (first, *tables) for batch in table.to_batches())
    return pa.RecordBatchReader.from_batches(first.schema, batches)


def cold(files: Path, edges: int, engine: str = "spark") -> tuple[int, float]:
    """The whole command for a small file, from the start of the process to its end: the least of
    a few, after one that leaves behind what an installed program has."""
    graph = _fresh()
    small = Path(tempfile.mkdtemp()) / "small.jsonl"
    people = (f'{{"type":"Person","data":{{"name":"p{n}","age":1}}}}\n' for n in range(1_000))
    small.write_text("".join(people))
    command = [str(Path(sys.executable).with_name("omnigraph")), "load", graph.uri]
    command += ["--data", str(small), "--mode", "merge", "--engine", engine]
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}

    def whole() -> int:
        subprocess.run(command, check=True, capture_output=True, env=environment)
        return 1_000

    whole()  # leaves compiled programs and Spark's archive of classes behind
    return min((timed(whole) for _ in range(COLD_ROUNDS)), key=lambda found: found[1])


RUNS: dict[str, Run] = {
    "local-jsonl": local_jsonl,
    "local-parquet": local_parquet,
    "indexed-local-parquet": local_indexed,
    "spark-jsonl": spark_jsonl,
    "spark-parquet": spark_parquet,
    "ladybug-parquet": load_peers.ladybug_parquet,
    "duckdb-parquet": load_peers.duckdb_parquet,
    "duckdb-jsonl": load_peers.duckdb_jsonl,
    "plain-spark-jsonl": load_peers.plain_spark,
    "local-append-100k": lambda f, n: _into_many("append", "local", f, n),
    "local-merge-100k": lambda f, n: _into_many("merge", "local", f, n),
    "spark-append-100k": lambda f, n: _into_many("append", "spark", f, n),
    "spark-merge-100k": lambda f, n: _into_many("merge", "spark", f, n),
    "cold-spark": cold,
    "cold-auto": lambda f, n: cold(f, n, "auto"),
}


# Measuring


def main() -> None:
    """Make the input, then run each engine over it."""
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("--edges", type=int, default=1_000_000)
    words.add_argument("--runs", nargs="*", default=list(RUNS), help="names, or how they begin")
    words.add_argument("--keep", help="a folder for the input, used again")
    words.add_argument("--save", action="store_true", help="keep the figures in results/load.json")
    words.add_argument("--run", help=argparse.SUPPRESS)
    words.add_argument("--matrix", action="store_true", help="every shape from every format")
    words.add_argument("--rows", type=int, default=100_000, help="of a shape of the matrix")
    words.add_argument("--shapes", nargs="*", default=[], help="how their names begin")
    words.add_argument(
        "--formats", nargs="*", default=[f for f in load_matrix.FORMATS if f != "spark"]
    )
    asked = words.parse_args()
    if asked.matrix:
        load_matrix.run(asked.rows, asked.shapes, asked.formats, save=asked.save)
        return
    folder = Path(asked.keep or tempfile.mkdtemp())
    files = load_data.make(folder, asked.edges)
    if asked.run:
        before = time.process_time()
        rows, wall = RUNS[asked.run](files, asked.edges)
        print(json.dumps({"rows": rows, "wall": wall, "cpu": time.process_time() - before}))
        return
    size = os.path.getsize(files / "in.jsonl") >> 20
    print(f"{asked.edges:,} edges, {size} MiB of NDJSON, load average {os.getloadavg()[0]:.1f}\n")
    print("| run | rows | wall s | rows/s | CPU s | peak MiB, all | peak MiB, driver |")
    print("|---|---|---|---|---|---|---|")
    for run in RUNS:
        if any(run.startswith(begin) for begin in asked.runs):
            found = _measured(run, folder, asked.edges)
            print(_line(run, found), flush=True)
            if asked.save:
                _save(run, asked.edges, found)


def _line(run: str, found: dict[str, Any]) -> str:
    if "failed" in found:
        return f"| {run} | failed: {found['failed']} |"
    rates = f"{found['rows']:,} | {found['wall_s']} | {found['rows_a_second']:,} | {found['cpu_s']}"
    return f"| {run} | {rates} | {found['peak_mib_all']} | {found['peak_mib_driver']} |"


def _save(run: str, edges: int, found: dict[str, Any]) -> None:
    kept = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    kept.setdefault(str(edges), {})[run] = found
    RESULTS.write_text(json.dumps(kept, indent=2) + "\n")


def _measured(run: str, folder: Path, edges: int) -> dict[str, Any]:
    command = [sys.executable, __file__, "--run", run, "--edges", str(edges)]
    with tempfile.TemporaryDirectory(dir=folder) as own:
        environment = {**os.environ, "TMPDIR": own}
        process = subprocess.Popen(
            [*command, "--keep", str(folder)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )
        memory = _Memory(process.pid)
        out, error = process.communicate()
        memory.stop()
    if process.returncode:
        return {"failed": (error.strip().splitlines() or ["?"])[-1]}
    found = json.loads(out.splitlines()[-1])
    rows, wall = found["rows"], found["wall"]
    return {
        "rows": rows,
        "wall_s": round(wall, 2),
        "rows_a_second": int(rows / wall),
        "cpu_s": round(memory.cpu, 1),
        "peak_mib_all": memory.peak_all >> 10,
        "peak_mib_driver": memory.peak_own >> 10,
    }


class _Memory:
    """Watches a process and all it started: KiB, pages that they share counted once."""

    def __init__(self, pid: int) -> None:
        self.pid, self.peak_all, self.peak_own, self.cpu = pid, 0, 0, 0.0
        self._seen: dict[int, float] = {}
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._ended.wait(0.25):
            sizes = {pid: _pss(pid) for pid in _tree(self.pid)}
            self.peak_all = max(self.peak_all, sum(sizes.values()))
            self.peak_own = max(self.peak_own, sizes.get(self.pid, 0))
            self._seen.update({pid: _cpu(pid) for pid in sizes if _cpu(pid)})
            self.cpu = sum(self._seen.values())


def _tree(root: int) -> list[int]:
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            continue
        children.setdefault(parent, []).append(int(entry.name))
    found, waiting = [], [root]
    while waiting:
        found.append(waiting.pop())
        waiting += children.get(found[-1], [])
    return found


def _pss(pid: int) -> int:
    try:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1])
    except OSError:
        pass
    return 0


def _cpu(pid: int) -> float:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    main()
