"""A storm: processes that write in every way, killed at random, beside a reader.

Nothing acknowledged is lost, nothing refused or unfinished is half visible, no increment is lost,
no edge hangs in the air, and the graph opens clean.
"""

import json
import random
import time
from collections import Counter
from dataclasses import dataclass, field
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph.graph import Graph
from omnigraph.types import TableKey
from tests import storm
from tests.forked import context

KNOWS = TableKey("edge:Knows")
PEOPLE = "query people() { match { $p: Person } return { $p.deed, $p.name } }"
EDGES = "query edges() { match { $a: Person $a $k:knows $b } return { $k.deed, $a.name, $b.name } }"


@dataclass
class Told:
    """What all processes told: each deed, and how it ended where it did."""

    deeds: dict[str, dict[str, Any]] = field(default_factory=dict)
    ended: dict[str, str] = field(default_factory=dict)
    errors: Counter[str] = field(default_factory=Counter)


def told(folder: Path) -> Told:
    all_ = Told()
    for line in (line for log in folder.glob("*.log") for line in log.read_text().splitlines()):
        try:
            note = json.loads(line)
        except json.JSONDecodeError:
            continue  # a line its process did not live to finish
        if note["state"] == "try":
            all_.deeds[note["deed"]] = note
        else:
            all_.ended[note["deed"]] = note["state"]
            all_.errors[note.get("error", "")[:60]] += note["state"] == "refused"
    return all_


def seen(graph: Graph) -> tuple[Counter[str], Counter[str]]:
    """How many people and how many edges of each deed one snapshot shows."""
    head = graph.snapshot().commit_id
    people = graph.query(PEOPLE, snapshot=head)
    edges = graph.query(EDGES, snapshot=head)
    names = {row["p.name"] for row in people}
    for row in edges:
        assert row["a.name"] in names
        assert row["b.name"] in names
    stored = graph.snapshot(commit=head).tables[KNOWS].row_count
    assert stored == len(edges), "an edge hangs in the air"
    return Counter(r["p.deed"] for r in people), Counter(r["k.deed"] for r in edges)


def whole(graph: Graph, logs: Path) -> set[str]:
    """The deeds a snapshot shows, each with all of its people and edges."""
    people, edges = seen(graph)
    all_ = told(logs)  # after the snapshot, since a deed is told before it is tried
    del people["counter"]
    for deed in people | edges:
        kind = all_.deeds[deed]["kind"]
        assert (people[deed], edges[deed]) == storm.SIZES[kind], f"{kind} {deed} is half visible"
    return set(people)


class Crowd:
    """Processes that are killed and replaced."""

    def __init__(self, uri: str, folder: Path, count: int, seed: int) -> None:
        self.uri, self.folder, self.chance = uri, folder, random.Random(seed)
        self.context = context()
        self.started = self.kills = 0
        self.crowd = [self.start() for _ in range(count)]

    def start(self) -> BaseProcess:
        self.started += 1
        log = str(self.folder / f"p{self.started}.log")
        process = self.context.Process(
            target=storm.work, args=(self.uri, log, self.chance.randrange(2**32)), daemon=True
        )
        process.start()
        return process

    def kill_one(self) -> None:
        at = self.chance.randrange(len(self.crowd))
        assert self.crowd[at].is_alive(), "a process ended by itself"
        self.crowd[at].kill()
        self.crowd[at].join()
        self.kills += 1
        self.crowd[at] = self.start()

    def end(self) -> None:
        for process in self.crowd:
            process.kill()
            process.join()


def blow(folder: Path, *, processes: int, s: float, kills: int, deeds: int) -> Told:
    uri = str(folder / "graph.omni")
    logs = folder / "logs"
    logs.mkdir()
    with og.init(uri, storm.SCHEMA) as graph:
        graph.mutate('query q() { insert Person { name: "counter", deed: "counter", age: 0 } }')
    crowd = Crowd(uri, logs, processes, seed=random.SystemRandom().randrange(2**32))
    deadline = time.monotonic() + s
    with og.open(uri, read_only=True) as reader:
        try:
            while time.monotonic() < deadline:
                time.sleep(crowd.chance.uniform(0.2, 1.5))
                crowd.kill_one()
                whole(reader, logs)
                if crowd.kills >= kills and len(told(logs).ended) >= deeds:
                    break
        finally:
            crowd.end()
    all_ = told(logs)
    assert crowd.kills >= kills
    with og.open(uri) as graph:
        check(graph, all_, whole(graph, logs))
    return all_


def check(graph: Graph, all_: Told, visible: set[str]) -> None:
    """What the graph shows is what the processes told."""
    removed_for_sure, maybe_removed = set(), set()
    for deed, note in all_.deeds.items():
        if note["kind"] == "remove":
            state = all_.ended.get(deed)
            if state == "done":
                removed_for_sure.add(note["about"])
            elif state is None:
                maybe_removed.add(note["about"])
    for deed, note in all_.deeds.items():
        if note["kind"] not in storm.SIZES:
            continue
        state = all_.ended.get(deed)
        if state == "done" and deed not in removed_for_sure | maybe_removed:
            assert deed in visible, f"acknowledged {note['kind']} {deed} is lost"
        if state == "refused" or deed in removed_for_sure:
            assert deed not in visible, f"{note['kind']} {deed} should not be visible"
    steps = [deed for deed, note in all_.deeds.items() if note["kind"] == "step"]
    sure = sum(all_.ended.get(deed) == "done" for deed in steps)
    unknown = sum(deed not in all_.ended for deed in steps)
    counter = graph.query(storm.COUNT).rows[0]["p.age"]
    assert sure <= counter <= sure + unknown, "an increment was lost or doubled"
    history = {commit.id: commit for commit in graph.commits.list()}
    lost = [c.id for c in history.values() if c.parent is not None and c.parent not in history]
    assert lost == [], "a commit has a parent that history does not know"


def test_C4_nothing_is_lost_in_a_storm(tmp_path: Path) -> None:
    all_ = blow(tmp_path, processes=3, s=60, kills=6, deeds=40)
    assert Counter(all_.ended.values())["done"] >= 20


@pytest.mark.slow
def test_C4_nothing_is_lost_in_a_long_storm(tmp_path: Path) -> None:
    all_ = blow(tmp_path, processes=5, s=600, kills=150, deeds=1500)
    assert Counter(all_.ended.values())["done"] >= 500
