"""What a mutation costs, beside the Lance calls it cannot avoid and beside other databases.

    python bench/write.py [--rounds 60] [--commits 1000] [--rows 1000000] [--no-peers]
                          [--durability fsync|os]

First part: one-row durable writes into a graph of 1,000 people, every engine in turn, so that all
see the same machine. Second part: storage calls of a one-node insert. Third part: 1,000 sequential
one-row commits, the 10th beside the 1,000th, and a point read before and after. Last part, with
indexes: an upsert of 10,000 into a million people, half of them there already, one-row writes, and
an update and a delete of one in a hundred.
With `--durability fsync`, which is the default, the same one-row writes also go to a graph of ours
that leaves flushing to the system (`os`), and to two whose flushes take 1 and 10 ms, by sleeping so
long in each: Ladybug and DuckDB flush each commit, bare Lance does not.
Prints medians and writes bench/results/write.json. Peers come with `uv sync --group bench`.
"""

import argparse
import json
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from write_engines import PEERS, Bare, Engine, OmniGraph

from omnigraph.storage import flushing

RESULTS = Path(__file__).parent / "results" / "write.json"
READ = "query r($n: String) { match { $p: Person { name: $n } } return { $p.age } }"
SHARES = 100
UPSERTED = 10_000
ROUNDS = 5
"""Large writes of a kind after the first, which also reads what an engine keeps in memory."""

NEIGHBOURS = 10
"""Commits around the 10th and the last whose median is compared: a fold falls on some of them."""


def timed(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return (time.perf_counter() - start) * 1000


def one_row(engine: Engine, number: int) -> dict[str, float]:
    """One write of each kind, in milliseconds."""
    return {
        "insert": timed(lambda: engine.insert(f"n{number}")),
        "update": timed(lambda: engine.update(f"p{number}", number + 2)),
        "insert_with_edge": timed(lambda: engine.insert_with_edge(f"e{number}", f"p{number}")),
        "delete": timed(lambda: engine.delete(f"n{number}")),
    }


def compare(engines: list[Engine], rounds: int) -> dict[str, dict[str, float]]:
    """Medians by kind of write and engine."""
    taken: dict[str, dict[str, list[float]]] = {}
    for number in range(rounds):
        for engine in engines:
            for kind, took in one_row(engine, number).items():
                taken.setdefault(kind, {}).setdefault(engine.name, []).append(took)
    warm = rounds // 6
    return {
        kind: {name: round(statistics.median(all_[warm:]), 2) for name, all_ in by_name.items()}
        for kind, by_name in taken.items()
    }


class SlowDisk(OmniGraph):
    """This project on a disk whose flush takes so many milliseconds, as a model."""

    def __init__(self, folder: Path, ms: int) -> None:
        super().__init__(folder, "fsync", f"flush {ms} ms")
        self._ms = ms

    def __getattribute__(self, name: str) -> Any:
        work = super().__getattribute__(name)
        if name not in ("insert", "update", "insert_with_edge", "delete"):
            return work

        def slowly(*arguments: Any) -> None:
            real, flushing.flush_path = flushing.flush_path, lambda _: time.sleep(self._ms / 1000)
            try:
                work(*arguments)
            finally:
                flushing.flush_path = real

        return slowly


def disks(folder: Path, durability: str) -> list[Engine]:
    """Graphs of ours that show what flushing costs."""
    if durability == "os":
        return []
    return [OmniGraph(folder, "os", "page cache"), SlowDisk(folder, 1), SlowDisk(folder, 10)]


def started(
    folder: Path, peers: bool, durability: str = "fsync"
) -> tuple[list[Engine], dict[str, str]]:
    """The engines that are installed, and why others are not."""
    engines: list[Engine] = [OmniGraph(folder, durability), Bare(folder)]
    absent: dict[str, str] = {}
    for kind in PEERS if peers else ():
        try:
            engines.append(kind(folder))
        except Exception as cause:  # noqa: BLE001  a peer that cannot start is only not compared
            absent[kind.name] = str(cause).splitlines()[0]
    return engines, absent


def storage_calls(engine: OmniGraph) -> dict[str, int]:
    """The calls of the cheapest of a few one-node inserts: the others also fold."""
    seen: list[dict[str, int]] = []
    for number in range(12):
        before = engine.graph.stats()
        engine.insert(f"calls{number}")
        seen.append(engine.graph.stats().since(before).calls)
    return min(seen, key=lambda calls: sum(calls.values()))


def history(folder: Path, commits: int) -> dict[str, float]:
    """Commit and read times at the beginning and at the end of a history."""
    engine = OmniGraph(folder)
    commit: list[float] = []
    read: list[float] = []
    for number in range(commits):
        commit.append(timed(lambda n=number: engine.insert(f"h{n}")))
        read.append(timed(lambda n=number: engine.graph.query(READ, {"n": f"p{n % 1000}"})))
    early = slice(NEIGHBOURS // 2, NEIGHBOURS + NEIGHBOURS)
    late = slice(-2 * NEIGHBOURS, None)
    found = {
        "commit_10th_ms": statistics.median(commit[early]),
        f"commit_{commits}th_ms": statistics.median(commit[late]),
        "commit_mean_ms": statistics.fmean(commit),
        "read_after_10_ms": statistics.median(read[early]),
        f"read_after_{commits}_ms": statistics.median(read[late]),
    }
    rounded = {name: round(value, 2) for name, value in found.items()}
    values = list(found.values())
    return rounded | {
        "commit_ratio": round(values[1] / values[0], 2),
        "read_ratio": round(values[4] / values[3], 2),
    }


def large(folder: Path, rows: int, peers: bool) -> dict[str, dict[str, float]]:
    """Writes into many rows: one row, and one row in a hundred."""
    numbers = np.arange(rows)
    people = pa.table(
        {
            "name": pa.array([f"m{n}" for n in range(rows)]),
            "age": pa.array(numbers % SHARES, pa.int32()),
        }
    )
    engines, _ = started(folder, peers)
    taken: dict[str, dict[str, float]] = {}
    batches = [_batch(rows, number) for number in range(1 + ROUNDS)]
    for engine in engines:
        engine.fill(people)
        for kind, work in _large_writes(engine, batches).items():
            first, *others = (timed(lambda w=work, n=n: w(n)) for n in range(1 + ROUNDS))
            taken.setdefault(kind, {})[engine.name] = round(statistics.median(others), 2)
            taken.setdefault(f"{kind}_first", {})[engine.name] = round(first, 2)
    return taken


def _batch(rows: int, number: int) -> pa.Table:
    """People of whom half are there already, spread over all of them; each batch is another one."""
    step = max(1, 2 * rows // UPSERTED)
    old = [f"m{n * step + number}" for n in range(UPSERTED // 2)]
    new = [f"u{number}-{n}" for n in range(UPSERTED - len(old))]
    ages = pa.array([SHARES + number] * UPSERTED, pa.int32())
    return pa.table({"name": pa.array(old + new), "age": ages})


def _large_writes(engine: Engine, batches: list[pa.Table]) -> dict[str, Callable[[int], object]]:
    return {
        "upsert": lambda n: engine.upsert(batches[n]),
        "insert": lambda n: engine.insert(f"l{n}"),
        "insert_with_edge": lambda n: engine.insert_with_edge(f"k{n}", f"m{n}"),
        "update_share": lambda n: engine.update_where(10 + n, 1000 + n),
        "delete_share": lambda n: engine.delete_where(30 + n),
    }


def targets(results: dict[str, Any]) -> dict[str, dict[str, object]]:
    """What was aimed at: the value, what it may be at most, and whether it is."""
    history = results["history"]
    found = {
        "one-row insert, times the bare calls": (results["ratio_to_bare"]["insert"], 1.5),
        "storage calls of a one-node insert": (results["calls"]["total"], 11),
        "last commit, times the 10th": (history["commit_ratio"], 1.5),
        "read after all commits, times before": (history["read_ratio"], 1.5),
    }
    cached = results["one_row_ms"]["insert"].get("page cache")
    if cached:
        own = results["one_row_ms"]["insert"]["omnigraph"]
        found["one-row insert, flushed, times the page cache"] = (round(own / cached, 2), 2.0)
    upserts = dict(results["large_ms"].get("upsert", {}))
    if upserts:
        own = upserts.pop("omnigraph")
        upserts.pop("bare Lance")
        if upserts:
            found["upsert of 10,000 into a million, ms"] = (own, min(upserts.values()))
    return {
        name: {"value": value, "at_most": limit, "met": value <= limit}
        for name, (value, limit) in found.items()
    }


def shown(results: dict[str, Any]) -> None:
    names = list(results["one_row_ms"]["insert"])
    print("durability of omnigraph:", results["durability"])
    print("ms, median".ljust(18), *(name.rjust(11) for name in names))
    for kind, by_name in results["one_row_ms"].items():
        print(kind.ljust(18), *(f"{by_name[name]:11.2f}" for name in names))
    for kind, by_name in results.get("large_ms", {}).items():
        print(f"large {kind}".ljust(26), *(f"{n} {ms:.2f}" for n, ms in by_name.items()))
    for part in ("ratio_to_bare", "calls", "history", "absent"):
        print(part, results[part])
    for name, told in results["targets"].items():
        print("met   " if told["met"] else "MISSED", name, told["value"], "<=", told["at_most"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--commits", type=int, default=1000)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--no-peers", action="store_true")
    parser.add_argument("--durability", choices=("fsync", "os"), default="fsync")
    options = parser.parse_args()
    warnings.filterwarnings("ignore", category=DeprecationWarning)
    with tempfile.TemporaryDirectory() as folder:
        engines, absent = started(Path(folder), not options.no_peers, options.durability)
        engines += disks(Path(folder), options.durability)
        taken = compare(engines, options.rounds)
        calls = storage_calls(engines[0])  # type: ignore[arg-type]
    with tempfile.TemporaryDirectory() as folder:
        long = history(Path(folder), options.commits)
    many: dict[str, Any] = {}
    if options.rows:
        with tempfile.TemporaryDirectory() as folder:
            many = large(Path(folder), options.rows, not options.no_peers)
    results = {
        "durability": options.durability,
        "one_row_ms": taken,
        "large_ms": many,
        "ratio_to_bare": {
            kind: round(by_name["omnigraph"] / by_name["bare Lance"], 2)
            for kind, by_name in taken.items()
        },
        "calls": {
            **calls,
            "total": sum(n for name, n in calls.items() if not name.startswith("disk.")),
        },
        "history": long,
        "absent": absent,
    }
    results["targets"] = targets(results)
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(results, indent=2) + "\n")
    shown(results)


if __name__ == "__main__":
    main()
