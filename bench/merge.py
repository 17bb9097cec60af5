"""What a diff and a merge cost: they must follow what changed, not how much there is.

    python bench/merge.py [--million] [--repeat 3]

For tables of 10,000 and 100,000 rows (with --million also 1,000,000), with and without a
256-dimensional vector in every row: a branch changes 100 or 10,000 rows (most of them updated, some
inserted, some deleted) while main changes ten others. Measured are the first diff of the two
branches, read to its end, and the merge into a branch at main's head, each in a process of its own
that has the graph open: time, processor time (which other programs disturb less) and how much the
process grew.
Prints medians, writes bench/results/merge.json.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa

import omnigraph as og
from omnigraph.graph import Graph
from omnigraph.types import TableKey

RESULTS = Path(__file__).parent / "results" / "merge.json"
WIDTH = 256
PERSON = TableKey("node:Person")
BATCH = 100_000


def schema(vectors: bool) -> str:
    vector = f"    place: Vector({WIDTH})?\n" if vectors else ""
    return f"node Person {{\n    name: String @key\n    age: I64?\n    city: String?\n{vector}}}\n"


def rows(graph: Graph, numbers: np.ndarray, *, ages: int, vectors: bool) -> pa.Table:
    reader = graph._store.reader(graph.snapshot(), PERSON)
    names = pa.array([f"p{number:08}" for number in numbers])
    columns = {
        "id": names,
        "name": names,
        "age": pa.array(numbers % 100 + ages),
        "city": pa.array([f"city {number % 50}" for number in numbers]),
    }
    if vectors:
        chance = np.random.default_rng(ages)
        flat = pa.array(chance.random(len(numbers) * WIDTH, dtype=np.float32))
        columns["place"] = pa.FixedSizeListArray.from_arrays(flat, WIDTH)
    return pa.table({name: columns[name] for name in reader.schema.names}).cast(reader.schema)


def build(folder: Path, size: int, changes: int, vectors: bool) -> None:
    """A graph of one table, a branch with the changes and a main that went on."""
    graph = og.init(folder, schema=schema(vectors))
    for start in range(0, size, BATCH):
        write = graph._store.begin(kind="load")
        numbers = np.arange(start, min(start + BATCH, size))
        write.append(PERSON, rows(graph, numbers, ages=0, vectors=vectors))
        write.commit()
    graph.branches.create("b")
    picked = np.random.default_rng(1).permutation(size)
    updated, deleted = changes * 8 // 10, changes // 10
    write = graph._store.begin("b", kind="mutation")
    new = np.arange(size, size + changes - updated - deleted)
    numbers = np.concatenate([picked[:updated], new])
    write.upsert(PERSON, rows(graph, numbers, ages=1_000, vectors=vectors))
    write.commit()
    write = graph._store.begin("b", kind="mutation")
    gone = ", ".join(f"'p{number:08}'" for number in picked[updated : updated + deleted])
    write.delete(PERSON, f"id IN ({gone})")
    write.commit()
    write = graph._store.begin(kind="mutation")
    write.upsert(PERSON, rows(graph, picked[-10:], ages=2_000, vectors=vectors))
    write.commit()


def memory(field: str) -> float:
    """A line of the process's status, in mebibytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field)) / 1024


def measure(what: str, folder: str, number: str) -> None:
    """In a process of its own: one diff or one merge, in milliseconds and mebibytes."""
    with tempfile.TemporaryDirectory() as other:
        build(Path(other) / "small", 100, 10, vectors=True)  # so that every engine is loaded
        warm = og.open(Path(other) / "small")
        list(warm.diff("main", "b")), warm.branches.merge("b")
    graph = og.open(folder)
    target = graph.branches.create(f"target-{number}")
    graph.snapshot(), graph.snapshot("b"), graph.snapshot(target)
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak so far
    before = memory("VmRSS")
    start, cpu = time.perf_counter(), time.process_time()
    if what == "diff":
        count = sum(1 for _ in graph.diff(target, "b"))
    else:
        count = 1 if graph.branches.merge("b", into=target).kind == "merged" else 0
    took = (time.perf_counter() - start) * 1000
    busy = (time.process_time() - cpu) * 1000
    grown = memory("VmHWM") - before
    print(json.dumps({"ms": took, "cpu_ms": busy, "mib": grown, "count": count}))


def in_a_process(what: str, folder: Path, number: str) -> dict[str, float]:
    done = subprocess.run(
        [sys.executable, __file__, "--measure", what, str(folder), number],
        capture_output=True,
        text=True,
        check=True,
    )
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def case(size: int, changes: int, vectors: bool, repeat: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        built = Path(folder) / "built"
        build(built, size, changes, vectors)
        found: dict[str, list[dict[str, float]]] = {"diff": [], "merge": []}
        for number in range(repeat):
            for what, seen in found.items():
                seen.append(in_a_process(what, built, f"{what}-{number}"))
    assert all(seen["count"] == changes + 10 for seen in found["diff"])
    assert all(seen["count"] == 1 for seen in found["merge"])
    return {
        "size": size,
        "changes": changes,
        "vectors": vectors,
        **{
            f"{what}_{unit}": round(statistics.median(s[unit] for s in seen), 1)
            for what, seen in found.items()
            for unit in ("ms", "cpu_ms", "mib")
        },
    }


def growth(cases: list[dict[str, float]]) -> list[dict[str, float | str]]:
    """How much longer the largest table takes than the smallest, for the same changes."""
    found: list[dict[str, float | str]] = []
    for vectors in (False, True):
        for changes in (100, 10_000):
            same = [c for c in cases if c["vectors"] == vectors and c["changes"] == changes]
            if len(same) < 2:
                continue
            small, large = min(same, key=lambda c: c["size"]), max(same, key=lambda c: c["size"])
            for what in ("diff", "merge"):
                span = f"{small['size']:,} → {large['size']:,}"
                ratios = {
                    unit: round(large[f"{what}_{unit}"] / small[f"{what}_{unit}"], 2)
                    for unit in ("ms", "cpu_ms")
                }
                found.append(
                    {"what": what, "changes": changes, "vectors": vectors, "rows": span, **ratios}
                )
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--million", action="store_true")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--measure", nargs=3)
    asked = parser.parse_args()
    if asked.measure:
        measure(*asked.measure)
        return
    sizes = [10_000, 100_000, *([1_000_000] if asked.million else [])]
    cases: list[dict[str, float]] = []
    print("     rows changes vectors |  diff ms   cpu ms    MiB | merge ms   cpu ms    MiB")
    for vectors in (False, True):
        for changes in (100, 10_000):
            for size in sizes:
                if changes >= size:
                    continue
                one = case(size, changes, vectors, asked.repeat)
                cases.append(one)
                print(
                    f"{size:>9,} {changes:>7,} {'yes' if vectors else 'no':>7} |"
                    f"{one['diff_ms']:>9.1f}{one['diff_cpu_ms']:>9.1f}{one['diff_mib']:>7.1f} |"
                    f"{one['merge_ms']:>9.1f}{one['merge_cpu_ms']:>9.1f}{one['merge_mib']:>7.1f}",
                    flush=True,
                )
                shown = {"cases": cases, "growth": growth(cases)}
                RESULTS.write_text(json.dumps(shown, indent=2) + "\n")
    for each in growth(cases):
        kind = "with vectors" if each["vectors"] else "without vectors"
        print(
            f"{each['what']} of {each['changes']:,} changes {kind}, {each['rows']}: "
            f"× {each['ms']} in time, × {each['cpu_ms']} in processor time"
        )


if __name__ == "__main__":
    main()
