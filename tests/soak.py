"""What one process of a soak does, and what is measured meanwhile.

The rows stay the same in number: writers replace those of a fixed set of people. So whatever grows
without end is not data.
"""

import os
import random
import statistics
import time
from collections import Counter
from pathlib import Path
from typing import Any

import omnigraph as og
from omnigraph.graph import Graph

SCHEMA = """
node Person {
    name: String @key
    age: I64?
}

edge Knows: Person -> Person @key(src, dst)
"""
WIDER = SCHEMA.replace("age: I64?", "age: I64?\n    mood: String?")
PEOPLE = 40
READ = "query q($n: String) { match { $p: Person { name: $n } } return { $p.age } }"
SET = "query q($n: String, $v: I64) { update Person set { age: $v } where name = $n }"
PAIR = """query q($a: String, $b: String, $v: I64) {
    update Person set { age: $v } where name = $a
    update Person set { age: $v } where name = $b
}"""
# What a writer beside others may be told.
EXPECTED = (og.Conflict, og.MergeConflicts, og.PreconditionFailed, og.NotFound, og.SchemaHeld)


def create(uri: str) -> None:
    """A graph of so many people who know each other."""
    people = [{"type": "Person", "data": {"name": f"p{n}", "age": 0}} for n in range(PEOPLE)]
    edges = [
        {"edge": "Knows", "from": f"p{n}", "to": f"p{(n * 7 + 1) % PEOPLE}"} for n in range(PEOPLE)
    ]
    with og.init(uri, SCHEMA) as graph:
        graph.load(people + edges, "append", engine="local")


class Soaking:
    """One writer and reader."""

    def __init__(self, graph: Graph, seed: int) -> None:
        self.graph = graph
        self.chance = random.Random(seed)
        self.times: list[float] = []

    def go_on(self, deeds: int | None) -> None:
        """Do deeds, so many or until killed."""
        kinds = (self.single, self.load, self.transaction, self.branch, self.read, self.schema)
        done = 0
        while deeds is None or done < deeds:
            done += 1
            start = time.perf_counter()
            try:
                self.chance.choices(kinds, (12, 2, 4, 2, 8, 1))[0]()
            except EXPECTED:
                continue
            self.times.append(time.perf_counter() - start)

    @property
    def name(self) -> str:
        return f"p{self.chance.randrange(PEOPLE)}"

    def single(self) -> None:
        value = self.chance.randrange(1000)
        self.graph.mutate(SET, {"n": self.name, "v": value}, retries=5)

    def load(self) -> None:
        people = [
            {"type": "Person", "data": {"name": f"p{n}", "age": self.chance.randrange(99)}}
            for n in range(0, PEOPLE, 4)
        ]
        self.graph.load(people, "merge", engine="local")

    def transaction(self) -> None:
        with self.graph.transaction() as tx:
            for _ in range(2):
                tx.mutate(PAIR, {"a": self.name, "b": self.name, "v": self.chance.randrange(9)})

    def branch(self) -> None:
        name = f"work/{os.getpid()}/{self.chance.randrange(10**9)}"
        self.graph.branches.create(name)
        try:
            self.graph.branch(name).mutate(SET, {"n": self.name, "v": 1})
            self.graph.branches.merge(name)
        finally:
            self.graph.branches.delete(name)

    def schema(self) -> None:
        desired = self.chance.choice((SCHEMA, WIDER))
        self.graph.schema.apply(desired, allow_data_loss=True)

    def read(self) -> None:
        self.graph.query(READ, {"n": self.name})


def work(uri: str, seed: int) -> None:
    """The life of a process that is killed."""
    Soaking(og.open(uri), seed).go_on(None)


def bury(graph: Graph, pid: int) -> None:
    """Delete the branches that a killed process had made: a name people chose is nobody else's."""
    for name in graph.branches.list():
        if name.startswith(f"work/{pid}/"):
            graph.branches.delete(name)


def upkeep(graph: Graph) -> None:
    """What keeps a graph small; a writer may come in between."""
    for work_ in (
        lambda: graph.optimize(),
        lambda: graph.cleanup(keep=3, grace=0, confirm=True),
    ):
        try:
            work_()
        except (og.Conflict, og.StorageFailed):
            continue


def sizes(uri: str) -> dict[str, int]:
    """Files and bytes of a graph, by the part they belong to."""
    counted: Counter[str] = Counter()
    for folder, _, names in os.walk(uri):
        part = Path(folder).relative_to(uri).parts
        kind = part[0] if part else "."
        for name in names:
            try:
                counted["bytes"] += (Path(folder) / name).stat().st_size
            except FileNotFoundError:
                continue
            counted[f"files {kind}"] += 1
            counted["files"] += 1
            counted["tree"] += "tree" in part
    return dict(counted)


def latency(times: list[float]) -> dict[str, Any]:
    """Milliseconds, the middle and the slowest of twenty."""
    if len(times) < 2:
        return {}
    cuts = statistics.quantiles(times, n=20)
    return {"p50": round(cuts[9] * 1000, 1), "p95": round(cuts[18] * 1000, 1)}
