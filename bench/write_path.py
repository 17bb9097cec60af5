"""What a commit costs over the Lance calls it cannot avoid, and that history does not raise it.

    python bench/write_path.py [--commits 1000]

First part: one warm commit of one row to one table and to three, next to the bare Lance calls it
cannot avoid (stage and commit each table; stage and commit the manifest's row change), taken in
turns so that both see the same machine. Second part: storage calls, commit time and point-read time
of graphs of 10, 100 and 1,000 commits of one row, taken in turns as well.
Prints lower quartiles, which other work on the machine disturbs least, and writes
bench/results/write_path.json.
"""

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import lance
import pyarrow as pa
from lance import LanceDataset
from lance.dataset import LanceOperation, Transaction
from lance.fragment import write_fragments

from omnigraph.storage.lance.tables import keyed
from omnigraph.storage.opening import create
from omnigraph.storage.protocol.intent import WriterKind
from omnigraph.storage.records import MANIFEST_SCHEMA
from omnigraph.storage.store import Store
from omnigraph.types import TableKey

RESULTS = Path(__file__).parent / "results" / "write_path.json"
TABLES = [TableKey(f"node:T{number}") for number in range(3)]
SCHEMA = pa.schema([pa.field("id", pa.string(), nullable=False), pa.field("n", pa.int64())])


def row(name: str) -> pa.Table:
    return pa.table({"id": [name], "n": [1]}, schema=keyed(SCHEMA))


def typical(times: list[float]) -> float:
    """The lower quartile: what it costs when the machine is not busy with something else."""
    return statistics.quantiles(times, n=4)[0]


def timed(work: Callable[..., object], *arguments: object) -> float:
    start = time.perf_counter()
    work(*arguments)
    return (time.perf_counter() - start) * 1000


class Bare:
    """The unavoidable calls on datasets of the same shape: no locks, sidecars, checks or reads."""

    def __init__(self, folder: Path, tables: int) -> None:
        options = {"enable_stable_row_ids": True}
        empty = keyed(SCHEMA).empty_table()
        self.tables = [
            lance.write_dataset(empty, str(folder / f"t{n}"), **options) for n in range(tables)
        ]
        rows = [{"object_id": "graph_head:main", "object_type": "graph_head"}]
        first = pa.Table.from_pylist(rows, schema=MANIFEST_SCHEMA)
        self.manifest = lance.write_dataset(first, str(folder / "manifest"), **options)
        self.head_fragment = 0
        self.count = 0

    def commit(self) -> None:
        self.count += 1
        for index, handle in enumerate(self.tables):
            rows = row(f"r{self.count}")
            staged = write_fragments(rows, handle, mode="append", return_transaction=True)
            self.tables[index] = LanceDataset.commit(handle, staged, max_retries=0)
        self._publish()

    def _publish(self) -> None:
        handle = self.manifest
        ids = [f"version:{n}:{self.count}" for n in range(len(self.tables))]
        ids = ["graph_head:main", *ids, f"commit:{self.count}"]
        rows = [{"object_id": name, "object_type": "graph_head"} for name in ids]
        fragments = write_fragments(
            pa.Table.from_pylist(rows, schema=MANIFEST_SCHEMA), handle, mode="append"
        )
        left = handle.get_fragment(self.head_fragment).delete("object_id = 'graph_head:main'")
        update = LanceOperation.Update(
            removed_fragment_ids=[self.head_fragment] if left is None else [],
            updated_fragments=[] if left is None else [left],
            new_fragments=fragments,
            update_mode="rewrite_rows",
        )
        self.manifest = LanceDataset.commit(
            handle, Transaction(handle.version, update), max_retries=0
        )
        self.head_fragment = max(f.fragment_id for f in self.manifest.get_fragments())


def commit(store: Store, tables: list[TableKey], name: str) -> None:
    write = store.begin(kind=WriterKind.MUTATION, actor="bench")
    for table_key in tables:
        write.append(table_key, row(name))
    store.commit(write)


def point_read(store: Store, table_key: TableKey, name: str) -> None:
    found = store.reader(store.snapshot(), table_key).rows(filter=f"id = '{name}'")
    assert found.num_rows == 1


def overhead(tables: int, rounds: int = 12, each: int = 10) -> tuple[float, float]:
    """Typical milliseconds of our commit and of the bare calls, below the first fold."""
    ours, bare = [], []
    for number in range(rounds):
        with tempfile.TemporaryDirectory() as folder:
            store = create(Path(folder) / "graph", [(key, SCHEMA) for key in TABLES])
            calls = Bare(Path(folder) / "bare", tables)
            for turn in range(each + 3):
                took = timed(commit, store, TABLES[:tables], f"r{number}-{turn}")
                took_bare = timed(calls.commit)
                if turn >= 3:
                    ours.append(took)
                    bare.append(took_bare)
    return typical(ours), typical(bare)


class Aged:
    """A graph of a certain number of commits, kept near that number while it is measured."""

    def __init__(self, folder: Path, commits: int) -> None:
        self.folder, self.commits = folder, commits
        self.calls: list[int] = []
        self.times: list[float] = []
        self.reads: list[float] = []
        self.graphs = 0
        self.grow()

    def grow(self) -> None:
        self.graphs += 1
        path = self.folder / f"{self.commits}-{self.graphs}"
        self.store = create(path, [(key, SCHEMA) for key in TABLES])
        for number in range(self.commits):
            commit(self.store, TABLES[:1], f"r{number}")
        self.count = self.commits

    def measure(self) -> None:
        if self.count > max(1.1 * self.commits, self.commits + 3):
            self.grow()
        self.count += 1
        before = self.store.stats.view().calls_total
        self.times.append(timed(commit, self.store, TABLES[:1], f"r{self.count}"))
        self.calls.append(self.store.stats.view().calls_total - before)
        self.reads.append(timed(point_read, self.store, TABLES[0], f"r{self.count // 2}"))


def growth(marks: list[int], rounds: int = 100) -> list[tuple[int, float, float, float, float]]:
    """After each number of commits, measured in turns: calls (median), typical commit and
    point-read milliseconds, and the mean commit, in which folds count."""
    with tempfile.TemporaryDirectory() as folder:
        graphs = [Aged(Path(folder), mark) for mark in marks]
        for _ in range(rounds):
            for graph in graphs:
                graph.measure()
        return [
            (
                graph.commits,
                statistics.median(graph.calls),
                typical(graph.times),
                typical(graph.reads),
                statistics.mean(graph.times),
            )
            for graph in graphs
        ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--commits", type=int, default=1000)
    arguments = parser.parse_args()
    result: dict[str, object] = {}
    print("one warm commit         ours ms   bare ms   ratio   (target ≤ 1.5)")
    for tables in (1, 3):
        ours, bare = overhead(tables)
        print(f"  tables: {tables:<12} {ours:9.2f} {bare:9.2f} {ours / bare:7.2f}")
        result[f"tables_{tables}"] = {"ours_ms": ours, "bare_ms": bare, "ratio": ours / bare}
    print("\nhistory       calls   commit ms   point read ms   commit ms with folds (mean)")
    for mark, count, took, read, mean in growth([10, 100, arguments.commits]):
        print(f"  {mark:>6} {count:12.0f} {took:11.2f} {read:15.2f} {mean:15.2f}")
        result[f"after_{mark}"] = {
            "calls": count,
            "commit_ms": took,
            "point_read_ms": read,
            "commit_with_folds_mean_ms": mean,
        }
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
