"""What one process of a storm over a bad object store does, until it is killed or has had enough.

An error that says that the outcome is unknown is told as unknown; only a refusal is told as one.
"""

import json
import random
from pathlib import Path
from typing import Any

import omnigraph as og
from omnigraph.graph import Graph
from tests.storm import COUNT, PAIR, STEP

UNKNOWN = (og.StorageFailed, og.RecoveryRequired)


class BadDay:
    """One process: a log and an open graph."""

    def __init__(self, uri: str, options: dict[str, str], log: str, seed: int) -> None:
        self.uri, self.options, self.log = uri, options, Path(log)
        self.chance = random.Random(seed)
        self.count = 0

    def go_on(self, deeds: int | None) -> None:
        """Do deeds, so many or until killed."""
        graph: Graph | None = None
        while deeds is None or self.count < deeds:
            if graph is None:
                try:
                    graph = og.open(self.uri, storage_options=self.options)
                except (*UNKNOWN, og.NotFound):
                    continue
            self.count += 1
            deed = f"{self.log.stem}-{self.count}"
            kind = self.chance.choices(("pair", "step", "transaction"), (5, 3, 2))[0]
            self.tell(kind=kind, deed=deed, state="try")
            try:
                getattr(self, kind)(graph, deed)
            except UNKNOWN as error:
                self.tell(deed=deed, state="unknown", error=f"{type(error).__name__}: {error}")
                graph.close()
                graph = None
            except og.OmnigraphError as error:
                self.tell(deed=deed, state="refused", error=f"{type(error).__name__}: {error}")
            else:
                self.tell(deed=deed, state="done")
        if graph is not None:
            graph.close()

    def tell(self, **note: Any) -> None:
        with self.log.open("a") as file:
            file.write(json.dumps(note) + "\n")

    def pair(self, graph: Graph, deed: str) -> None:
        graph.mutate(PAIR, {"a": f"{deed}/a", "b": f"{deed}/b", "d": deed})

    def step(self, graph: Graph, deed: str) -> None:
        seen = graph.query(COUNT)
        graph.mutate(STEP, {"n": seen.rows[0]["p.age"] + 1}, if_commit=seen.commit_id)

    def transaction(self, graph: Graph, deed: str) -> None:
        with graph.transaction() as tx:
            tx.mutate(PAIR, {"a": f"{deed}/a", "b": f"{deed}/b", "d": deed})
            tx.mutate(PAIR, {"a": f"{deed}/c", "b": f"{deed}/d", "d": deed})


SIZES = {"pair": (2, 1), "transaction": (4, 2)}


def work(uri: str, options: dict[str, str], log: str, seed: int) -> None:
    """The life of one process."""
    BadDay(uri, options, log, seed).go_on(None)
