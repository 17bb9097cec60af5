"""What one process of a storm does: every kind of write through the door, until it is killed.

Each deed is told to the process's own log before it is tried and after it was acknowledged or
refused, so that afterwards the logs can be compared with the graph.
"""

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import omnigraph as og
from omnigraph.graph import Graph

SCHEMA = """
node Person {
    name: String @key
    deed: String @index
    age: I64?
}

edge Knows: Person -> Person {
    deed: String
}
"""
PAIR = """query pair($a: String, $b: String, $d: String) {
    insert Person { name: $a, deed: $d, age: 1 }
    insert Person { name: $b, deed: $d, age: 1 }
    insert Knows { from: $a, to: $b, deed: $d }
}"""
REMOVE = "query remove($d: String) { delete Person where deed = $d }"
COUNT = 'query count() { match { $p: Person { name: "counter" } } return { $p.age } }'
STEP = 'query step($n: I64) { update Person set { age: $n } where name = "counter" }'
LOADED = 20


class Worker:
    """One process: a name, a log and an open graph."""

    def __init__(self, uri: str, log: str, seed: int) -> None:
        self.graph: Graph = og.open(uri)
        self.log = Path(log)
        self.chance = random.Random(seed)
        self.name = self.log.stem
        self.done: list[str] = []
        self.next = 0
        self.deeds: dict[str, Callable[[str], None]] = {
            "pair": self.pair,
            "load": self.load,
            "branch": self.branch,
            "transaction": self.transaction,
            "step": self.step,
            "remove": self.remove,
            "upkeep": self.upkeep,
        }

    def go_on(self) -> None:
        """Do deeds until killed."""
        kinds = ("pair", "load", "branch", "transaction", "step", "remove", "upkeep")
        weights = (6, 2, 3, 3, 6, 2, 1)
        while True:
            [kind] = self.chance.choices(kinds, weights)
            self.next += 1
            deed = f"{self.name}-{self.next}"
            if kind == "remove" and not self.done:
                continue
            about = self.done.pop(0) if kind == "remove" else None
            self.tell(kind=kind, deed=deed, about=about, state="try")
            try:
                self.deeds[kind](about or deed)
            except og.OmnigraphError as error:
                self.tell(deed=deed, state="refused", error=f"{type(error).__name__}: {error}")
            else:
                self.tell(deed=deed, state="done")
                if kind in ("pair", "load", "branch", "transaction"):
                    self.done.append(deed)

    def tell(self, **note: Any) -> None:
        with self.log.open("a") as file:
            file.write(json.dumps(note) + "\n")

    def pair(self, deed: str) -> None:
        self.graph.mutate(PAIR, {"a": f"{deed}/a", "b": f"{deed}/b", "d": deed})

    def load(self, deed: str) -> None:
        people = [
            {"type": "Person", "data": {"name": f"{deed}/{i}", "deed": deed, "age": i}}
            for i in range(LOADED)
        ]
        edges = [
            {
                "edge": "Knows",
                "from": f"{deed}/{i}",
                "to": f"{deed}/{i + 1}",
                "data": {"deed": deed},
            }
            for i in range(LOADED - 1)
        ]
        self.graph.load(edges + people, "merge", engine="local")

    def branch(self, deed: str) -> None:
        name = f"agent/{deed}"
        self.graph.branches.create(name)
        on = self.graph.branch(name)
        for part in ("x", "y"):
            on.mutate(PAIR, {"a": f"{deed}/{part}a", "b": f"{deed}/{part}b", "d": deed})
        on.merge_into("main", delete_source=True)

    def transaction(self, deed: str) -> None:
        with self.graph.transaction(actor=self.name) as tx:
            tx.mutate(PAIR, {"a": f"{deed}/a", "b": f"{deed}/b", "d": deed})
            tx.mutate(PAIR, {"a": f"{deed}/c", "b": f"{deed}/d", "d": deed})

    def step(self, deed: str) -> None:
        seen = self.graph.query(COUNT)
        self.graph.mutate(STEP, {"n": seen.rows[0]["p.age"] + 1}, if_commit=seen.commit_id)

    def remove(self, about: str) -> None:
        self.graph.mutate(REMOVE, {"d": about})

    def upkeep(self, deed: str) -> None:
        self.graph.ensure_indices()


SIZES = {
    "pair": (2, 1),
    "load": (LOADED, LOADED - 1),
    "branch": (4, 2),
    "transaction": (4, 2),
}
"""How many people and edges a deed leaves."""


def work(uri: str, log: str, seed: int) -> None:
    """The life of one process."""
    Worker(uri, log, seed).go_on()
