"""What upkeep gives back: a graph of many small commits next to one that was just loaded.

    python bench/upkeep.py [--commits 1000]

One row a commit, then `optimize` and `cleanup`. Files, the time to open and the time of a point
read are taken of the graph as it was, as it is, and of a graph with the same rows that was loaded
at once and indexed; opens and reads of all three in turns, each in a graph that was just opened.
Prints lower quartiles and the ratio to the loaded graph, and writes bench/results/upkeep.json.
"""

import argparse
import json
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa

import omnigraph as og
from omnigraph.storage.manifest import manifest

RESULTS = Path(__file__).parent / "results" / "upkeep.json"
SCHEMA = "node Person { name: String @key  age: I32? @index }\nedge Knows: Person -> Person"
RATIO_MAX = 1.5
POINT = "query q($n: String) { match { $p: Person { name: $n } } return { $p.age } }"


def rows(first: int, last: int) -> pa.Table:
    names = [f"p{number:06}" for number in range(first, last)]
    return pa.table({"name": names, "age": pa.array(range(first, last), pa.int32())})


def files(path: Path) -> int:
    return sum(p.is_file() and "__locks" not in p.parts for p in path.rglob("*"))


def typical(times: list[float]) -> float:
    return statistics.quantiles(times, n=4)[0]


def timed(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return (time.perf_counter() - start) * 1000


def aged(path: Path, commits: int) -> og.Graph:
    graph = og.init(path, SCHEMA)
    for number in range(commits):
        graph.mutate(
            "query add($n: String, $a: I32) { insert Person { name: $n, age: $a } }",
            {"n": f"p{number:06}", "a": number},
        )
    return graph


def loaded(path: Path, commits: int) -> og.Graph:
    graph = og.init(path, SCHEMA)
    graph.load(rows(0, commits), "append", type="Person", engine="local")
    graph.ensure_indices()
    return graph


def measured(paths: dict[str, Path], commits: int, rounds: int) -> dict[str, dict[str, float]]:
    """Open and read each graph in turns."""
    opens: dict[str, list[float]] = {name: [] for name in paths}
    firsts: dict[str, list[float]] = {name: [] for name in paths}
    reads: dict[str, list[float]] = {name: [] for name in paths}
    for number in range(rounds):
        for name, path in paths.items():
            start = time.perf_counter()
            graph = og.open(path)
            graph.snapshot()
            opens[name].append((time.perf_counter() - start) * 1000)
            key = f"p{number * 37 % commits:06}"
            firsts[name].append(timed(lambda g=graph, n=key: g.query(POINT, {"n": n})))  # type: ignore[misc]
            for step in range(5):
                other = f"p{(number * 41 + step * 13) % commits:06}"
                reads[name].append(timed(lambda g=graph, n=other: g.query(POINT, {"n": n})))  # type: ignore[misc]
            graph.close()
    return {
        name: {
            "files": files(path),
            "open_ms": round(typical(opens[name]), 3),
            "first_read_ms": round(typical(firsts[name]), 3),
            "point_read_ms": round(typical(reads[name]), 3),
        }
        for name, path in paths.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--commits", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=40)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        paths = {name: Path(folder) / name for name in ("before", "after", "loaded")}
        graph = aged(paths["after"], asked.commits)
        shutil.copytree(paths["after"], paths["before"])
        optimize_ms = timed(graph.optimize)
        manifest.RECLAIM_AGE_S = 0.0  # nobody else has it open, so cleanup need not wait
        cleanup_ms = timed(lambda: graph.cleanup(keep=1, grace=0, confirm=True))
        graph.close()
        loaded(paths["loaded"], asked.commits).close()
        found = measured(paths, asked.commits, asked.rounds)
    ratios = {
        name: round(found["after"][name] / found["loaded"][name], 2) for name in found["loaded"]
    }
    for name, value in ratios.items():
        three = " ".join(f"{each}={found[each][name]:g}" for each in found)
        verdict = "ok" if value <= RATIO_MAX else f"over {RATIO_MAX}"
        print(f"{name:<14} {three}  after/loaded={value:g} {verdict}")
    print(f"optimize {optimize_ms:.0f} ms, cleanup {cleanup_ms:.0f} ms")
    RESULTS.write_text(
        json.dumps(
            {
                "commits": asked.commits,
                "graphs": found,
                "ratios_to_loaded": ratios,
                "optimize_ms": round(optimize_ms),
                "cleanup_ms": round(cleanup_ms),
            },
            indent=2,
        )
        + "\n"
    )


if __name__ == "__main__":
    main()
