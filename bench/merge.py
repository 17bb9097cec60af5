"""What a diff and a merge cost: they must follow what changed, not how much there is.

    python bench/merge.py [--million] [--repeat 3]
                          [--only vectors|plain|peers] [--size ROWS] [--changes ROWS]

For tables of 10,000 and 100,000 rows (with --million also 1,000,000), with and without a
256-dimensional vector in every row: a branch changes 100 or 10,000 rows (most of them updated, some
inserted, some deleted) while main changes ten others. Measured are the first diff of the two
branches, read to its end, and the merge into a branch at main's head, each in a process of its own
that has the graph open: time, processor time (which other programs disturb less) and how much the
process grew.

Then, in the same run, the same rounds here and in doltlite (`uv sync --group bench`) on a table of
100,000 rows: create a branch, commit one row on it, and with 1,000 rows changed there and ten on
main, diff the two and merge into main.

Prints medians, writes bench/results/merge.json. `--only`, `--size` and `--changes` run a part and
keep the other parts of the file as they are.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from merge_engines import ENGINES, Changed, Engine
from own_memory import memory_mib

import omnigraph as og
from omnigraph.graph import Graph
from omnigraph.storage.protocol.intent import WriterKind
from omnigraph.types import TableKey

RESULTS = Path(__file__).parent / "results" / "merge.json"
WIDTH = 256
PERSON = TableKey("node:Person")
BATCH = 100_000
PEER_CHANGES = 1_000


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
        write = graph._store.begin(kind=WriterKind.LOAD)
        numbers = np.arange(start, min(start + BATCH, size))
        write.append(PERSON, rows(graph, numbers, ages=0, vectors=vectors))
        graph._store.commit(write)
    graph.branches.create("b")
    picked = np.random.default_rng(1).permutation(size)
    updated, deleted = changes * 8 // 10, changes // 10
    write = graph._store.begin("b", kind=WriterKind.MUTATION)
    new = np.arange(size, size + changes - updated - deleted)
    numbers = np.concatenate([picked[:updated], new])
    write.upsert(PERSON, rows(graph, numbers, ages=1_000, vectors=vectors))
    graph._store.commit(write)
    write = graph._store.begin("b", kind=WriterKind.MUTATION)
    gone = ", ".join(f"'p{number:08}'" for number in picked[updated : updated + deleted])
    reader = graph._store.tables.reader(write.base(PERSON))
    removed = reader.row_ids(f"id IN ({gone})").combine_chunks()
    write.patch(PERSON, removed=removed, added=reader.schema.empty_table(), updated=0)
    graph._store.commit(write)
    write = graph._store.begin(kind=WriterKind.MUTATION)
    write.upsert(PERSON, rows(graph, picked[-10:], ages=2_000, vectors=vectors))
    graph._store.commit(write)


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
    before = memory_mib("VmRSS")
    start, cpu = time.perf_counter(), time.process_time()
    if what == "diff":
        count = sum(1 for _ in graph.diff(target, "b"))
    else:
        count = 1 if graph.branches.merge("b", into=target).kind == "merged" else 0
    took = (time.perf_counter() - start) * 1000
    busy = (time.process_time() - cpu) * 1000
    grown = memory_mib("VmHWM") - before
    print(json.dumps({"ms": took, "cpu_ms": busy, "mib": grown, "count": count}))


def in_a_process(*words: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, __file__, *words], capture_output=True, text=True, check=True
    )
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def case(size: int, changes: int, vectors: bool, repeat: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        built = Path(folder) / "built"
        build(built, size, changes, vectors)
        found: dict[str, list[dict[str, float]]] = {"diff": [], "merge": []}
        for number in range(repeat):
            for what, seen in found.items():
                seen.append(in_a_process("--measure", what, str(built), f"{what}-{number}"))
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


@dataclass
class Rounds:
    """The same work again and again in one engine, each time on a branch and rows of its own."""

    engine: Engine
    size: int
    times: dict[str, list[float]] = field(default_factory=dict)

    def run(self, count: int) -> dict[str, list[float]]:
        """Milliseconds by what was done. A first round loads the engine and does not count."""
        self.engine.fill(self.size)
        people = np.random.default_rng(1).permutation(self.size).tolist()
        for number in range(count + 1):
            start = number * (PEER_CHANGES + 10)
            self._round(number, people[start : start + PEER_CHANGES + 10])
        return {what: times[1:] for what, times in self.times.items()}

    def _round(self, number: int, people: list[int]) -> None:
        engine, branch = self.engine, f"b{number}"
        self._timed("branch", engine.create_branch, branch)
        engine.switch(branch)
        self._timed("commit", engine.change_one, branch, people[0], 5_000 + number)
        new = [self.size + number * 1_000 + place for place in range(PEER_CHANGES - 900)]
        ages = 10_000 * (number + 1)  # no round writes what another wrote
        engine.change_many(branch, Changed(people[1:801] + new, ages, people[801:900]))
        engine.change_many("main", Changed(people[PEER_CHANGES:], ages + 1_000))
        found = self._timed("diff", engine.diff, "main", branch)
        assert found == PEER_CHANGES + 10, found
        self._timed("merge", engine.merge, branch, "main")
        assert engine.diff(branch, "main") == 10

    def _timed(self, what: str, run: Callable[..., object], *given: object) -> object:
        start = time.perf_counter()
        result = run(*given)
        self.times.setdefault(what, []).append((time.perf_counter() - start) * 1000)
        return result


def peer(name: str, size: str, count: str) -> None:
    """In a process of its own: the rounds of one engine."""
    make = next(engine for engine in ENGINES if engine.name == name)
    with tempfile.TemporaryDirectory() as folder:
        print(json.dumps(Rounds(make(Path(folder)), int(size)).run(int(count))))


def peers(size: int, count: int) -> list[dict[str, object]]:
    """Every engine in turn, each in a process of its own."""
    found: list[dict[str, object]] = []
    for make in ENGINES:
        times = in_a_process("--peer", make.name, str(size), str(count))
        shown: dict[str, object] = {"engine": make.name, "rows": size, "changes": PEER_CHANGES}
        for what, each in times.items():
            shown[f"{what}_ms"] = round(statistics.median(each), 2)
            shown[f"{what}_least_ms"] = round(min(each), 2)
        found.append(shown)
        print("  ".join(f"{key} {value}" for key, value in shown.items()), flush=True)
    return found


def kept() -> dict[str, list[dict[str, float]]]:
    """What earlier parts found."""
    return json.loads(RESULTS.read_text()) if RESULTS.exists() else {}


def keep(cases: list[dict[str, float]], others: list[dict[str, object]] | None = None) -> None:
    """Write what was found beside what an earlier part found about something else."""
    before = kept()
    known = {(c["vectors"], c["changes"], c["size"]): c for c in before.get("cases", [])}
    known |= {(c["vectors"], c["changes"], c["size"]): c for c in cases}
    every = [known[key] for key in sorted(known)]
    shown = {
        "cases": every,
        "growth": growth(every),
        "peers": before.get("peers", []) if others is None else others,
    }
    RESULTS.write_text(json.dumps(shown, indent=2) + "\n")


def scaling(sizes: list[int], kinds: list[bool], counts: list[int], repeat: int) -> None:
    """Every size with the same changes."""
    print("     rows changes vectors |  diff ms   cpu ms    MiB | merge ms   cpu ms    MiB")
    for vectors in kinds:
        for changes in counts:
            for size in sizes:
                if changes >= size:
                    continue
                one = case(size, changes, vectors, repeat)
                print(
                    f"{size:>9,} {changes:>7,} {'yes' if vectors else 'no':>7} |"
                    f"{one['diff_ms']:>9.1f}{one['diff_cpu_ms']:>9.1f}{one['diff_mib']:>7.1f} |"
                    f"{one['merge_ms']:>9.1f}{one['merge_cpu_ms']:>9.1f}{one['merge_mib']:>7.1f}",
                    flush=True,
                )
                keep([one])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--million", action="store_true")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--only", choices=["plain", "vectors", "peers"])
    parser.add_argument("--size", type=int)
    parser.add_argument("--changes", type=int)
    parser.add_argument("--measure", nargs=3)
    parser.add_argument("--peer", nargs=3)
    asked = parser.parse_args()
    if asked.measure:
        measure(*asked.measure)
        return
    if asked.peer:
        peer(*asked.peer)
        return
    sizes = [10_000, 100_000, *([1_000_000] if asked.million else [])]
    if asked.size is not None:
        sizes = [asked.size]
    words = {False: "plain", True: "vectors"}
    kinds = [vectors for vectors, word in words.items() if asked.only in (None, word)]
    counts = [100, 10_000] if asked.changes is None else [asked.changes]
    scaling(sizes, kinds, counts, asked.repeat)
    if asked.only in (None, "peers"):
        keep([], peers(asked.size or 100_000, max(asked.repeat, 7)))
    for each in kept()["growth"]:
        kind = "with vectors" if each["vectors"] else "without vectors"
        print(
            f"{each['what']} of {each['changes']:,} changes {kind}, {each['rows']}: "
            f"× {each['ms']} in time, × {each['cpu_ms']} in processor time"
        )


if __name__ == "__main__":
    main()
