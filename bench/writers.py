"""What several processes that insert without a pause get done, and whether any of them starves.

    python bench/writers.py [--seconds 8] [--writers 1 2 4 8]

Each process has the graph open and inserts one node after another into the same type, every insert
one durable commit. Measured are commits a second of all together, those of the process that got
fewest, the longest that one insert took, and how many inserts were refused after all their
attempts. Beside it SQLite with its write-ahead log, every commit durable: it has neither branches
nor versions, but many processes may write to one file. (doltlite, which has both, did not come to
an end with two processes that commit without a pause.)

Prints a table, writes bench/results/writers.json.
"""

import argparse
import json
import multiprocessing
import sqlite3
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import omnigraph as og

RESULTS = Path(__file__).parent / "results" / "writers.json"
SCHEMA = "node Person {\n    name: String @key\n    age: I64?\n}\n"
INSERT = "query add($name: String) { insert Person { name: $name, age: 7 } }"

Insert = Callable[[str], bool]
"""Insert one; whether it is in."""


def omnigraph(folder: str) -> Insert:
    graph = og.open(f"{folder}/omnigraph")

    def insert(name: str) -> bool:
        try:
            graph.mutate(INSERT, {"name": name})
        except og.VersionMismatch:
            return False
        return True

    return insert


def sqlite(folder: str) -> Insert:
    connection = _connected(folder)

    def insert(name: str) -> bool:
        try:
            connection.execute("INSERT INTO person VALUES (?, 7)", (name,))
        except sqlite3.OperationalError:
            return False
        return True

    return insert


def _connected(folder: str) -> sqlite3.Connection:
    connection = sqlite3.connect(f"{folder}/sqlite.db", isolation_level=None, timeout=60)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    return connection


ENGINES: dict[str, Callable[[str], Insert]] = {"omnigraph": omnigraph, "sqlite": sqlite}


def prepare(engine: str, folder: str) -> None:
    if engine == "omnigraph":
        og.init(f"{folder}/omnigraph", SCHEMA).close()
    else:
        connection = _connected(folder)
        connection.execute("CREATE TABLE person(name TEXT PRIMARY KEY, age INTEGER)")
        connection.close()


def write(engine: str, folder: str, number: int, seconds: float, start: Any, told: Any) -> None:
    """One process: as many inserts as it can."""
    insert = ENGINES[engine](folder)
    start.wait()
    done = refused = 0
    longest = 0.0
    end = time.perf_counter() + seconds
    while (began := time.perf_counter()) < end:
        if insert(f"{number}-{done}"):
            done += 1
        else:
            refused += 1
        longest = max(longest, time.perf_counter() - began)
    told.put((done, refused, longest * 1000))


def measure(engine: str, writers: int, seconds: float) -> dict[str, float | str]:
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder:
        prepare(engine, folder)
        start, told = context.Barrier(writers), context.Queue()
        processes = [
            context.Process(target=write, args=(engine, folder, number, seconds, start, told))
            for number in range(writers)
        ]
        for process in processes:
            process.start()
        found = [told.get() for _ in processes]
        for process in processes:
            process.join()
    counts = [done for done, _, _ in found]
    return {
        "engine": engine,
        "writers": writers,
        "commits_a_second": round(sum(counts) / seconds, 1),
        "least_a_second": round(min(counts) / seconds, 1),
        "longest_ms": round(max(longest for _, _, longest in found), 1),
        "refused": sum(refused for _, refused, _ in found),
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--writers", type=int, nargs="+", default=[1, 2, 4, 8])
    asked = parser.parse_args()
    rows = []
    print("engine     writers | commits/s  the least's  longest ms  refused")
    for writers in asked.writers:
        for engine in ENGINES:
            row = measure(engine, writers, asked.seconds)
            rows.append(row)
            print(
                f"{engine:<10} {writers:>7} | {row['commits_a_second']:>9} "
                f"{row['least_a_second']:>12} {row['longest_ms']:>11} {row['refused']:>8}",
                flush=True,
            )
    RESULTS.write_text(json.dumps(rows, indent=2) + "\n")


if __name__ == "__main__":
    main()
