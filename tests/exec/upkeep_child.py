"""Upkeep done in a process of its own, so that a failpoint can kill it."""

from typing import Any

import omnigraph as og
from omnigraph.storage import failpoints
from omnigraph.storage.manifest import manifest

RECLAIM_AGE_S = 4.0


def die(uri: str, verb: str, place: str, nth: int) -> None:
    """Do one kind of upkeep, killed at a failpoint."""
    manifest.RECLAIM_AGE_S = 0.0
    graph = og.open(uri, fold=False)
    failpoints.arm(place, "kill", nth)
    do(graph, verb)


def die_inserting(uri: str, place: str) -> None:
    """Insert a person, killed at a failpoint."""
    graph = og.open(uri, fold=False)
    failpoints.arm(place, "kill")
    graph.mutate(INSERT, {"n": "late"})


def do(graph: og.Graph, verb: str) -> None:
    """One kind of upkeep."""
    if verb == "optimize":
        graph.optimize(actor="act-upkeep")
    elif verb == "cleanup":
        graph.cleanup(keep=1, grace=0, confirm=True)
    else:
        graph.ensure_indices()


def die_in_backup(uri: str, target: str, place: str) -> None:
    """Back a graph up, killed at a failpoint."""
    with og.open(uri) as graph:
        failpoints.arm(place, "kill")
        graph.backup(target)


INSERT = "query add($n: String) { insert Person { name: $n, age: 7 } }"
COUNT = "query n() { match { $p: Person } return { count($p) as n } }"
WALK = "query w() { match { $p: Person $p knows $f } return { $p.name, $f.age } }"


def write_on(uri: str, log: str, name: str, stop: Any) -> None:
    """Insert one after another until told to stop, and log what was acknowledged."""
    manifest.RECLAIM_AGE_S = RECLAIM_AGE_S
    with og.open(uri) as graph, open(log, "a", buffering=1) as told:
        number = 0
        while not stop.is_set():
            graph.mutate(INSERT, {"n": f"{name}-{number}"})
            told.write(f"{name}-{number}\n")
            number += 1


def read_on(uri: str, log: str, name: str, stop: Any) -> None:
    """Read until told to stop; the count may only grow, and a walk sees whole rows."""
    manifest.RECLAIM_AGE_S = RECLAIM_AGE_S
    with og.open(uri, read_only=True) as graph, open(log, "a", buffering=1) as told:
        last = 0
        while not stop.is_set():
            try:
                [row] = graph.query(COUNT).rows
                walked = len(graph.query(WALK))
                told.write(f"{row['n']}\n" if row["n"] >= last and walked == 60 else "backwards\n")
                last = row["n"]
            except og.OmnigraphError as error:
                told.write(f"{type(error).__name__} {error}\n")
