"""Queries over all nodes in one process and on Spark: CPU seconds and memory, cold and warm.

    python bench/spark_queries.py --edges 1000000 4000000

A graph of a power law with one node that a quarter of the edges leave. Every engine runs in a
process of its own; CPU seconds and the peak of private memory (RssAnon) are those of that process
and all below it (the JVM, Python workers), sampled from /proc. Cold is the first time in a new
process, after a tiny query has started what an engine has to start; warm is the time after.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

SCHEMA = """
node Person { name: String @key  age: I32? }
edge Knows: Person -> Person { since: I32? }
"""
EDGES_A_NODE = 10
HUB_SHARE = 4

TINY = 'query q() { match { $p: Person { name: "p00000001" } } return { $p.age } }'
QUERIES = {
    "2-hop count": "match { $a: Person $a knows $b $b knows $c } return { count(*) as n }",
    "2-hop aggregate": "match { $a: Person $a.age < 30 $a knows $b $b.age > 60 $b knows $c } "
    "return { $c.age as age, count(*) as n, avg($a.age) as mean }",
    "hops {1,3}": "match { $a: Person $a.age = 33 $a knows{1,3} $b $b.age > 60 } "
    "return { count(*) as n }",
    "anti-join": "match { $a: Person $a knows $b not { $b knows $a } } return { count(*) as n }",
}


def tables(edges: int) -> tuple[pa.Table, pa.Table]:
    """People, and who knows whom: most know few, one knows very many."""
    people = edges // EDGES_A_NODE
    random = np.random.default_rng(7)
    names = pa.array([f"p{n:08}" for n in range(people)])
    ages = pa.array((np.arange(people) * 7919 % 90).astype(np.int32))
    hub = edges // HUB_SHARE
    source = (people * random.power(3, edges - hub)).astype(np.int64)
    source = np.concatenate((np.zeros(hub, np.int64), source))
    target = (people * random.random(edges)).astype(np.int64)
    since = pa.array((np.arange(edges) % 100).astype(np.int32))
    ends = {"src": names.take(pa.array(source)), "dst": names.take(pa.array(target))}
    return pa.table({"name": names, "age": ages}), pa.table({**ends, "since": since})


class Sampler:
    """CPU seconds and the peak of private memory of this process and all below it."""

    def __init__(self) -> None:
        self._spent: dict[int, float] = {}
        self.peak_mb = 0.0
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        while True:
            self.look()
            time.sleep(0.05)

    def look(self) -> float:
        """CPU seconds so far."""
        private = 0.0
        for pid in _descendants():
            try:
                fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
                status = Path(f"/proc/{pid}/status").read_text()
            except (OSError, IndexError):
                continue
            ticks = int(fields[11]) + int(fields[12])
            self._spent[pid] = ticks / os.sysconf("SC_CLK_TCK")
            anonymous = [line for line in status.splitlines() if line.startswith("RssAnon")]
            private += int(anonymous[0].split()[1]) / 1024 if anonymous else 0.0
        self.peak_mb = max(self.peak_mb, private)
        return sum(self._spent.values())


def _descendants() -> Iterator[int]:
    parents: dict[int, list[int]] = {}
    for each in Path("/proc").iterdir():
        if each.name.isdigit():
            try:
                parent = int((each / "stat").read_text().rsplit(")", 1)[1].split()[1])
            except (OSError, IndexError):
                continue
            parents.setdefault(parent, []).append(int(each.name))
    waiting = [os.getpid()]
    while waiting:
        pid = waiting.pop()
        yield pid
        waiting += parents.get(pid, [])


def measure(path: str, engine: str) -> dict[str, Any]:
    """The figures of one engine, in this process."""
    import omnigraph as og  # noqa: PLC0415

    sampler, graph = Sampler(), og.open(path)
    options: dict[str, Any] = {"engine": engine}
    graph.query(TINY, **options)
    begun = sampler.look()
    time.sleep(0.2)
    figures: dict[str, Any] = {"start CPU s": round(begun, 2), "idle MB": round(sampler.peak_mb)}
    for name, text in QUERIES.items():
        own: dict[str, Any] = {}
        for way in ("cold", "warm"):
            before, since, sampler.peak_mb = sampler.look(), time.perf_counter(), 0.0
            rows = graph.query(f"query q() {{ {text} }}", **options).rows
            own[f"{way} CPU s"] = round(sampler.look() - before, 2)
            own[f"{way} s"] = round(time.perf_counter() - since, 2)
            own[f"{way} peak MB"] = round(sampler.peak_mb)
        own["answer"] = hash_of(rows)
        figures[name] = own
    return figures


def hash_of(rows: list[dict[str, Any]]) -> str:
    """Rows as a short text: equal rows have equal ones; means are rounded."""
    kept = [{k: round(v, 6) if isinstance(v, float) else v for k, v in r.items()} for r in rows]
    return json.dumps(kept)[:60] + f" ({len(kept)} rows)"


def main() -> None:
    """Measure every size with every engine, each in a process of its own."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--edges", type=int, nargs="+", default=[1_000_000])
    parser.add_argument("--engines", nargs="+", default=["local", "spark"])
    parser.add_argument("--child", nargs=2)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    if given.child:
        print(json.dumps(measure(*given.child)))
        return
    results: dict[str, Any] = {}
    for edges in given.edges:
        with tempfile.TemporaryDirectory() as folder:
            path = str(Path(folder) / "g.omni")
            build(path, edges)
            for engine in given.engines:
                command = [sys.executable, __file__, "--child", path, engine]
                ran = subprocess.run(command, capture_output=True, text=True, check=True)
                results[f"{edges} edges, {engine}"] = json.loads(ran.stdout.splitlines()[-1])
                print(json.dumps(results, indent=1), flush=True)
    if given.out:
        given.out.write_text(json.dumps(results, indent=1) + "\n")


def build(path: str, edges: int) -> None:
    """Load the graph."""
    import omnigraph as og  # noqa: PLC0415

    people, knows = tables(edges)
    graph = og.init(path, SCHEMA)
    graph.load(people, "append", type="Person", engine="local")
    graph.load(knows, "append", edge="Knows", engine="local")


if __name__ == "__main__":
    main()
