"""Many writer processes, killed at random: nothing acknowledged is lost, nothing is half visible.

Each writer tells its own log what it is about to write and, once `commit` returns, that it was
acknowledged. Afterwards the logs are compared with the graph.
"""

import itertools
import json
import os
import random
import time
from collections import Counter
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pytest

from omnigraph.storage.names import MAIN
from omnigraph.storage.store import Store
from tests.forked import context
from tests.storage import child
from tests.storage.child import BRANCHES
from tests.storage.conftest import Server
from tests.storage.world import TABLES, Where, content, heads_agree


@dataclass
class Told:
    """What all writers told."""

    tried: dict[str, dict[str, Any]]
    done: dict[str, str]
    lost: set[str]


def told(logs: list[Path]) -> Told:
    everything = Told({}, {}, set())
    for line in (line for log in logs for line in log.read_text().splitlines()):
        try:
            note = json.loads(line)
        except json.JSONDecodeError:
            continue  # a line its writer did not live to finish
        if "try" in note:
            everything.tried[note["try"]["attempt"]] = note["try"]
        elif "done" in note:
            everything.done[note["done"]] = note["commit"]
        else:
            everything.lost.add(note["lost"])
    return everything


class Crowd:
    """Writers that are killed and replaced."""

    def __init__(self, where: Where, folder: Path, count: int, seed: int) -> None:
        self.where, self.folder = where, folder
        self.chance = random.Random(seed)
        self.started = 0
        self.kills = 0
        self.crowd = [self.start() for _ in range(count)]

    def start(self) -> BaseProcess:
        self.started += 1
        log = str(self.folder / f"writer-{self.started}.log")
        arguments = (self.where, log, self.started * 1000 + self.chance.randrange(1000))
        process = context().Process(target=child.write_for_ever, args=arguments, daemon=True)
        process.start()
        return process

    def kill_one(self) -> None:
        index = self.chance.randrange(len(self.crowd))
        victim = self.crowd[index]
        assert victim.is_alive(), "a writer ended by itself"
        victim.kill()
        victim.join()
        self.kills += 1
        self.crowd[index] = self.start()

    def end(self) -> None:
        for process in self.crowd:
            process.kill()
            process.join()

    @property
    def logs(self) -> list[Path]:
        return sorted(self.folder.glob("writer-*.log"))


def whole(store: Store, branch: str, tried: dict[str, dict[str, Any]]) -> Counter[str]:
    """The attempts a read sees, each in every table it wrote to."""
    seen = content(store, branch)
    visible = {attempt for table in seen.values() for attempt in table}
    for attempt in visible:
        note = tried.get(attempt)
        if note is not None and note["branch"] == branch:
            present = {key for key in TABLES if attempt in seen[key]}
            assert present == set(note["bases"]), f"{attempt} is half visible on {branch}"
    return Counter(visible)


def soak(where: Where, folder: Path, *, writers: int, commits: int, kills: int, s: float) -> None:
    store = where.create()
    for branch in BRANCHES[1:]:
        store.branches.create(branch)
    crowd = Crowd(where, folder, writers, seed=int.from_bytes(os.urandom(2)))
    reader = where.open(read_only=True)
    deadline = time.monotonic() + s
    try:
        while time.monotonic() < deadline:
            time.sleep(crowd.chance.uniform(0.05, 0.6))
            crowd.kill_one()
            whole(reader, crowd.chance.choice(BRANCHES), told(crowd.logs).tried)
            if crowd.kills >= kills and len(told(crowd.logs).done) >= commits:
                break
    finally:
        crowd.end()
    everything = told(crowd.logs)
    assert len(everything.done) >= commits, (len(everything.tried), len(everything.lost))
    assert crowd.kills >= kills
    check(where.open(), everything)


def check(store: Store, everything: Told) -> None:
    """The graph holds exactly what the writers told."""
    assert store.sidecars.pending() == ()
    winners: Counter[tuple[str, str, int]] = Counter()
    visible: set[str] = set()
    history: Counter[str] = Counter()
    for branch in BRANCHES:
        assert heads_agree(store, branch)
        own = [c for c in store.history.list(branch) if (c.branch or MAIN) == branch]
        history.update(commit.id for commit in own)
        lineage(own)
        for attempt in whole(store, branch, everything.tried):
            note = everything.tried[attempt]
            assert note["branch"] == branch, "a commit landed on another branch"
            visible.add(attempt)
            winners.update((branch, key, base) for key, base in note["bases"].items())
    assert set(everything.done) <= visible, "an acknowledged commit is lost"
    assert not everything.lost & visible, "a refused commit is visible"
    assert [c for c in everything.done.values() if history[c] != 1] == []
    assert [base for base, count in winners.items() if count > 1] == [], "two won from one base"


def lineage(own: list[Any]) -> None:
    """Each commit of a branch has the one before it as its parent."""
    for newer, older in itertools.pairwise(own):
        assert newer.parent == older.id


def test_c1_c3_c4_writers_killed_at_random_lose_nothing(local: Where, tmp_path: Path) -> None:
    soak(local, tmp_path, writers=4, commits=300, kills=20, s=90)


def test_c1_c3_c4_writers_killed_at_random_lose_nothing_on_s3(
    s3_server: Server, tmp_path: Path
) -> None:
    soak(s3_server.place(), tmp_path, writers=4, commits=15, kills=3, s=60)


@pytest.mark.slow
def test_c4_a_long_soak_loses_nothing(local: Where, tmp_path: Path) -> None:
    soak(local, tmp_path, writers=6, commits=4000, kills=250, s=900)
