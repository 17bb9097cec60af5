"""What graphs of billions of edges would cost: a model whose constants the other benches measured.

    python bench/scale_model.py                  1, 10 and 100 billion edges
    python bench/scale_model.py --edges 5e9 --executors 20 --cores 8

Constants come from results/spark.json (CPU of an edge: the difference between the two smallest
loads; bytes of tables, topology and exchange: the smallest), results/s3_calls.json (requests of a
commit) and results/scale-1000000.json (first hop). Everything that grows is taken to grow with
rows, beside a fixed start. The last table compares that with runs that gave no constant: larger
loads of results/spark.json, and those of results/load.json, measured at another time.
"""

import argparse
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"
WORKERS = 2
NODES_AN_EDGE = 0.2  # of the benches' graphs
ROWS_AN_EDGE = 1 + NODES_AN_EDGE
FRAGMENT_BYTES, UPLOAD_BYTES = 96 << 20, 8 << 20
PRICE_PUT, PRICE_GET, PRICE_GB_MONTH = 5e-6, 4e-7, 0.023  # dollars, S3 standard, us-east-1
DISK_BYTES_S = 500e6  # an object store to the local cache of one host
BUSY = 0.7  # share of the cores' time that tasks use: stragglers, waiting, retries


@dataclass(frozen=True)
class Cpu:
    """CPU seconds of a load by one exchange: of a warm session, of an edge with its share of nodes,
    and of starting the session."""

    warm_s: float
    edge_s: float
    start_s: float

    def of(self, edges: float) -> float:
        """Of a load in a warm session."""
        return self.warm_s + edges * self.edge_s


@dataclass(frozen=True)
class Constants:
    """What an edge costs, its share of nodes included."""

    by: dict[str, Cpu]
    exchanged: float
    tables: float
    topology: float
    calls_a_commit: int
    call_ms: float
    first_hop_ms: float


def measured() -> Constants:
    """The constants, those of loads from the smallest runs."""
    by = {way: _cpu_of(_appends(way)) for way in ("folder", "shuffle")}
    edges, smallest = _appends("shuffle")[0]
    calls, hop = _json("s3_calls.json"), _json("scale-1000000.json")["engines"]["omnigraph"]
    return Constants(
        by=by,
        exchanged=smallest["exchanged"] / edges,
        tables=smallest["bytes"]["tables"] / edges,
        topology=smallest["bytes"]["topology"] / edges,
        calls_a_commit=calls["verbs"]["insert"]["calls"],
        call_ms=calls["delay ms"],
        first_hop_ms=hop["open"] + hop["first hop"],
    )


def _appends(exchange: str) -> list[tuple[int, dict[str, Any]]]:
    """The loads that appended by an exchange in two tasks, the smallest first."""
    runs = [
        (run["known"]["edges"], run["facts"])
        for run in _json("spark.json")["loads"]
        if (run["known"]["mode"], run["known"]["exchange"]) == ("append", exchange)
        and run["known"]["workers"] == WORKERS
    ]
    return sorted(runs, key=lambda run: run[0])


def _cpu_of(runs: list[tuple[int, dict[str, Any]]]) -> Cpu:
    (few, small), (many, large) = runs[:2]
    edge_s = (large["CPU s"] - small["CPU s"]) / (many - few)
    return Cpu(small["CPU s"] - few * edge_s, edge_s, large["start CPU s"])


def _json(name: str) -> Any:
    return json.loads((RESULTS / name).read_text())


def table(each: Constants, sizes: list[float], executors: int, cores: int) -> list[str]:
    """The model as a table, a column a size."""
    rows = {
        "load, CPU hours": lambda n: f"{_cpu(each, n) / 3600:,.1f}",
        f"load, hours on {executors} executors of {cores} cores": lambda n: (
            f"{_cpu(each, n) / 3600 / (executors * cores * BUSY):,.2f}"
        ),
        f"load, hours on {executors * 10} of them": lambda n: (
            f"{_cpu(each, n) / 3600 / (executors * 10 * cores * BUSY):,.2f}"
        ),
        "shuffled, GB": lambda n: f"{n * each.exchanged / 1e9:,.0f}",
        "tables, GB": lambda n: f"{n * each.tables / 1e9:,.0f}",
        "topology files, GB": lambda n: f"{n * each.topology / 1e9:,.0f}",
        "fragments": lambda n: f"{n * each.tables / FRAGMENT_BYTES:,.0f}",
        "requests of the load": lambda n: f"{_uploads(each, n):,.0f}",
        "the load's requests, dollars": lambda n: f"{_uploads(each, n) * PRICE_PUT:,.2f}",
        "storage a month, dollars": lambda n: (
            f"{n * (each.tables + each.topology) / 1e9 * PRICE_GB_MONTH:,.0f}"
        ),
        "a commit of one row: requests": lambda n: f"{each.calls_a_commit}",
        "a commit of one row, dollars at most": lambda n: f"{each.calls_a_commit * PRICE_PUT:.6f}",
        "first hop, topology on disk, ms": lambda n: f"{each.first_hop_ms:,.0f}",
        "topology fetched first by a host, minutes": lambda n: (
            f"{n * each.topology / DISK_BYTES_S / 60:,.1f}"
        ),
    }
    lines = ["| edges | " + " | ".join(f"{size:,.0f}" for size in sizes) + " |"]
    lines.append("|---|" + "---|" * len(sizes))
    lines += [f"| {name} | " + " | ".join(map(of, sizes)) + " |" for name, of in rows.items()]
    return lines


def _cpu(each: Constants, edges: float) -> float:
    cpu = each.by["shuffle"]
    return cpu.start_s + cpu.of(edges)


def _uploads(each: Constants, edges: float) -> float:
    return edges * (each.tables + each.topology) / UPLOAD_BYTES


def compared(each: Constants) -> list[str]:
    """What runs that gave no constant measured, beside what the model says of their size."""
    lines = ["| what | edges | measured | model | model ÷ measured |", "|---|---|---|---|---|"]
    for size, runs in _json("load.json").items():
        edges, _, note = size.partition(",")
        if "spark-parquet" in runs:
            cpu = each.by["folder"]
            name = "load by folder at another time, CPU s with the start" + (note and f",{note}")
            said = cpu.start_s + cpu.of(int(edges))
            lines.append(_compared(name, int(edges), runs["spark-parquet"]["cpu_s"], said))
    for way, cpu in each.by.items():
        for edges, run in _appends(way)[2:]:
            name = f"load by {way}, warm, CPU s"
            lines.append(_compared(name, edges, run["CPU s"], cpu.of(edges)))
    for edges, run in _appends("shuffle")[1:]:
        sizes = {**run["bytes"], "exchanged": run["exchanged"]}
        for part, size in sizes.items():
            said = edges * getattr(each, part) / 1e6
            lines.append(_compared(f"{part}, MB", edges, size / 1e6, said))
    return lines


def _compared(name: str, edges: int, measured: float, said: float) -> str:
    return f"| {name} | {edges:,} | {measured:.1f} | {said:.1f} | {said / measured:.2f} |"


def main() -> None:
    """Print the model and the comparison."""
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("--edges", type=float, nargs="+", default=[1e9, 1e10, 1e11])
    words.add_argument("--executors", type=int, default=10)
    words.add_argument("--cores", type=int, default=4, help="of an executor")
    asked = words.parse_args()
    each = measured()
    print("\n".join(table(each, asked.edges, asked.executors, asked.cores)))
    print("\n" + "\n".join(compared(each)))


if __name__ == "__main__":
    main()
