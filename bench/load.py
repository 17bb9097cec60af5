"""How fast bulk data enters: both engines, beside DuckDB with the same checks.

    python bench/load.py                    one million edges, in one process
    python bench/load.py --edges 5000000 --spark

Each run is a process of its own, so that its peak memory is its own. CPU seconds say more than wall
time on a machine with other work to do.
"""

import argparse
import importlib.util
import json
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import omnigraph as og
from omnigraph.pipeline.session import session

SCHEMA = """
node Person { name: String @key  age: I32?  @range(age, 0..150) }
edge Knows: Person -> Person { since: I32? }
"""


def main() -> None:
    """Make the input, then run each engine over it."""
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("--edges", type=int, default=1_000_000)
    words.add_argument("--spark", action="store_true", help="also on Spark")
    words.add_argument("--run", help=argparse.SUPPRESS)
    words.add_argument("--folder", help=argparse.SUPPRESS)
    asked = words.parse_args()
    if asked.run:
        print(json.dumps(RUNS[asked.run](Path(asked.folder))))
        return
    runs = ["append", "merge"]
    runs += ["spark"] if asked.spark else []
    runs += ["duckdb"] if importlib.util.find_spec("duckdb") else []
    with tempfile.TemporaryDirectory() as folder:
        rows = make_input(Path(folder), asked.edges)
        size = os.path.getsize(f"{folder}/in.jsonl") >> 20
        print(f"{rows:,} rows, {size} MiB of NDJSON, load average {os.getloadavg()[0]:.1f}")
        print("| run | wall s | CPU s | rows/s | rows/CPU s | peak MiB |")
        print("|---|---|---|---|---|---|")
        for run in runs:
            print(_measured(run, folder))


def _measured(run: str, folder: str) -> str:
    command = [sys.executable, __file__, "--run", run, "--folder", folder]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        return f"| {run} | failed: {done.stderr.strip().splitlines()[-1]} |"
    found = json.loads(done.stdout.splitlines()[-1])
    rows, wall, cpu = found["rows"], found["wall"], found["cpu"]
    rates = f"{int(rows / wall):,} | {int(rows / cpu):,}"
    return f"| {run} | {wall:.2f} | {cpu:.2f} | {rates} | {found['peak']} |"


def make_input(folder: Path, edges: int) -> int:
    """People, and edges between random ones: the same for the same size."""
    people, dice = max(1, edges // 5), random.Random(7)
    with (folder / "in.jsonl").open("w") as out:
        for n in range(people):
            out.write(f'{{"type":"Person","data":{{"name":"p{n}","age":{n % 100}}}}}\n')
        for n in range(edges):
            ends = f'"from":"p{dice.randrange(people)}","to":"p{dice.randrange(people)}"'
            out.write(f'{{"edge":"Knows",{ends},"data":{{"since":{n % 50}}}}}\n')
    with (folder / "few.jsonl").open("w") as out:
        for n in range(0, people, 2):
            out.write(f'{{"type":"Person","data":{{"name":"p{n}","age":1}}}}\n')
    return people + edges


def _timed(folder: Path, mode: str, engine: str, file: str = "in.jsonl") -> dict[str, float]:
    path = folder / f"{engine}.omni"
    graph = og.open(path) if path.exists() else og.init(path, SCHEMA)
    before, started = _cpu(), time.monotonic()
    done = graph.load(folder / file, mode, engine=engine)
    wall = time.monotonic() - started
    return {"rows": done.total_entities, "wall": wall, "cpu": _cpu() - before, "peak": _peak()}


def _append(folder: Path) -> dict[str, float]:
    return _timed(folder, "append", "local")


def _merge(folder: Path) -> dict[str, float]:
    """Half of the people again, into the graph that the first run made."""
    return _timed(folder, "merge", "local", "few.jsonl")


def _spark(folder: Path) -> dict[str, float]:
    spark = session("bulk")
    spark.sparkContext.parallelize(range(4), 4).map(abs).collect()  # workers are up
    try:
        return _timed(folder, "append", "spark")
    finally:
        spark.stop()


def _duckdb(folder: Path) -> dict[str, float]:
    """The same rows with duplicate keys, ranges and endpoints checked in SQL."""
    import duckdb  # noqa: PLC0415  (only some have it)

    before, started = _cpu(), time.monotonic()
    base = duckdb.connect(str(folder / "duck.db"))
    base.execute(
        "CREATE TABLE person(name VARCHAR PRIMARY KEY, age INT CHECK (age BETWEEN 0 AND 150))"
    )
    base.execute("CREATE TABLE knows(src VARCHAR, dst VARCHAR, since INT)")
    columns = (
        "{type: 'VARCHAR', edge: 'VARCHAR', 'from': 'VARCHAR', 'to': 'VARCHAR', "
        "data: 'STRUCT(name VARCHAR, age INT, since INT)'}"
    )
    read = f"read_json('{folder}/in.jsonl', format='newline_delimited', columns={columns})"
    base.execute(f"CREATE TEMP TABLE every AS SELECT * FROM {read}")
    base.execute("INSERT INTO person SELECT data.name, data.age FROM every WHERE type = 'Person'")
    base.execute(
        'INSERT INTO knows SELECT "from", "to", data.since FROM every WHERE edge IS NOT NULL'
    )
    for end in ("src", "dst"):
        missing = f"SELECT count(*) FROM knows WHERE {end} NOT IN (SELECT name FROM person)"
        assert base.execute(missing).fetchone() == (0,)
    base.execute("CHECKPOINT")
    (rows,) = base.execute("SELECT count(*) FROM every").fetchone() or (0,)
    wall = time.monotonic() - started
    return {"rows": rows, "wall": wall, "cpu": _cpu() - before, "peak": _peak()}


def _cpu() -> float:
    """Of this process and of the children that have ended."""
    own, children = (
        resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    )
    return own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10


RUNS = {"append": _append, "merge": _merge, "spark": _spark, "duckdb": _duckdb}

if __name__ == "__main__":
    main()
