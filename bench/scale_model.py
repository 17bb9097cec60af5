"""What graphs of billions of edges would cost: a model whose constants the other benches measured.

    python bench/scale_model.py                  1, 10 and 100 billion edges
    python bench/scale_model.py --edges 5e9 --executors 20 --cores 8

Constants come from results/load.json (CPU of an edge, between 5M and 20M edges on Spark),
results/spark.json (how much more the shuffle takes; bytes of tables, topology and exchange),
results/s3_calls.json (requests of a commit) and results/scale-1000000.json (first hop). Everything
that grows is taken to grow with rows, beside a fixed start; the last table compares that with what
other runs measured, and says how far off it is.
"""

import argparse
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"
NODES_AN_EDGE = 0.2  # of the benches' graphs
ROWS_AN_EDGE = 1 + NODES_AN_EDGE
FRAGMENT_BYTES, UPLOAD_BYTES = 96 << 20, 8 << 20
PRICE_PUT, PRICE_GET, PRICE_GB_MONTH = 5e-6, 4e-7, 0.023  # dollars, S3 standard, us-east-1
DISK_BYTES_S = 500e6  # an object store to the local cache of one host
BUSY = 0.7  # share of the cores' time that tasks use: stragglers, waiting, retries


@dataclass(frozen=True)
class Constants:
    """What an edge costs, its share of nodes included."""

    cpu_s: float
    cpu_fixed_s: float
    exchanged: float
    tables: float
    topology: float
    calls_a_commit: int
    call_ms: float
    first_hop_ms: float


def measured() -> Constants:
    """The constants, each from the largest run that has it."""
    small, large = (_json("load.json")[size]["spark-parquet"] for size in ("5000000", "20000000"))
    cpu = (large["cpu_s"] - small["cpu_s"]) / 15e6
    runs = [run for run in _json("spark.json")["runs"] if run["mode"] == "append"]
    by_folder, by_shuffle = (
        max((run for run in runs if run["exchange"] == way), key=lambda run: run["edges"])
        for way in ("folder", "shuffle")
    )
    edges = by_shuffle["edges"]
    dearer = max(1.0, by_shuffle["CPU s"] / by_folder["CPU s"])
    calls, hop = _json("s3_calls.json"), _json("scale-1000000.json")["engines"]["omnigraph"]
    return Constants(
        cpu_s=cpu * dearer,
        cpu_fixed_s=small["cpu_s"] - cpu * 5e6,
        exchanged=by_shuffle["exchanged"] / edges,
        tables=by_shuffle["bytes"]["tables"] / edges,
        topology=by_shuffle["bytes"]["topology"] / edges,
        calls_a_commit=calls["verbs"]["insert"]["calls"],
        call_ms=calls["delay ms"],
        first_hop_ms=hop["open"] + hop["first hop"],
    )


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
    return each.cpu_fixed_s + edges * each.cpu_s


def _uploads(each: Constants, edges: float) -> float:
    return edges * (each.tables + each.topology) / UPLOAD_BYTES


def compared(each: Constants) -> list[str]:
    """What runs measured, beside what the model says of their size."""
    lines = ["| what | edges | measured | model | model ÷ measured |", "|---|---|---|---|---|"]
    for size, runs in _json("load.json").items():
        if "spark-parquet" in runs:
            edges = int(size.partition(",")[0])
            name = "load by folder, CPU s with the start" + size.partition(",")[1]
            name += size.partition(",")[2]
            lines.append(_compared(name, edges, runs["spark-parquet"]["cpu_s"], _cpu(each, edges)))
    for run in _json("spark.json")["runs"]:
        if (run["mode"], run["exchange"]) == ("append", "shuffle"):
            edges, sizes = run["edges"], run["bytes"]
            said = edges * each.cpu_s
            lines.append(_compared("load by shuffle, warm, CPU s", edges, run["CPU s"], said))
            for part, an_edge in (("tables", each.tables), ("topology", each.topology)):
                lines.append(
                    _compared(f"{part}, MB", edges, sizes[part] / 1e6, edges * an_edge / 1e6)
                )
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
