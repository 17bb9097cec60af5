"""Workers killed under load: what was answered with 2xx is there exactly once, nothing is half."""

import os
import random
import signal
import threading
import time
from pathlib import Path

import httpx
import pytest

import omnigraph as og
from tests.server.process import ServerProcess, until
from tests.server.world import NAMES, new_graph

PAIR = (
    "query pair($a: String, $b: String) { insert Person { name: $a } insert Person { name: $b } "
    "insert Knows { from: $a, to: $b } }"
)
EDGES = "query edges() { match { $a: Person $a knows $b } return { $a.name as a, $b.name as b } }"


class Load:
    """Clients that write pairs of people and read, until they are told to stop."""

    def __init__(self, url: str, branches: list[str], threads: int) -> None:
        self._url = url
        self.acknowledged: list[tuple[str, str]] = []
        self.unknown: list[tuple[str, str]] = []
        self.statuses: set[int] = set()
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(target=self._write, args=(number, branches[number % len(branches)]))
            for number in range(threads)
        ]

    def _write(self, number: int, branch: str) -> None:
        with httpx.Client(base_url=self._url, timeout=60) as client:
            for turn in range(100_000):
                if self._stop.is_set():
                    return
                name = f"{number}-{turn}"
                params = {"a": f"a{name}", "b": f"b{name}"}
                body = {"query": PAIR, "params": params, "branch": branch}
                try:
                    done = client.post("/graphs/people/mutate", json=body)
                    self.statuses.add(done.status_code)
                    if done.status_code == 200:
                        self.acknowledged.append((branch, name))
                    else:
                        self.unknown.append((branch, name))
                    read = client.post(
                        "/graphs/people/query", json={"query": NAMES, "branch": branch}
                    )
                    self.statuses.add(read.status_code)
                except httpx.HTTPError:  # the worker was killed under it
                    self.unknown.append((branch, name))

    def run(self, seconds: float, disturb: object) -> None:
        for thread in self._threads:
            thread.start()
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            disturb()  # type: ignore[operator]
        self._stop.set()
        for thread in self._threads:
            thread.join(120)
            assert not thread.is_alive(), "a request hung"


def storm(folder: Path, *, seconds: float, threads: int, kills_every: float) -> None:
    uri = new_graph(folder)
    branches = ["main", "one", "two"]
    with og.open(uri) as graph:
        for branch in branches[1:]:
            graph.branches.create(branch)
    with ServerProcess(uri, "--unauthenticated", "--workers", "2") as server:
        load = Load(server.url, branches, threads)

        def kill() -> None:
            time.sleep(kills_every)
            workers = server.workers()
            if workers:
                os.kill(random.choice(workers), signal.SIGKILL)

        load.run(seconds, kill)
        until(lambda: httpx.get(f"{server.url}/readyz", timeout=60).status_code == 200)
        assert server.stop() == 0
    assert load.acknowledged, "nothing was written at all"
    assert load.statuses <= {200, 409, 429, 503}
    with og.open(uri) as graph:
        for branch in branches:
            names = [row["name"] for row in graph.query(NAMES, branch=branch).rows]
            assert len(names) == len(set(names))
            edges = {(row["a"], row["b"]) for row in graph.query(EDGES, branch=branch).rows}
            present = set(names)
            for of, name in load.acknowledged:
                if of == branch:
                    assert {f"a{name}", f"b{name}"} <= present
            for name in present:
                if "-" in name:  # whole, or not at all
                    other = f"b{name[1:]}" if name[0] == "a" else f"a{name[1:]}"
                    assert other in present
                    assert (f"a{name[1:]}", f"b{name[1:]}") in edges
        assert graph.check().ok


def test_SV2_SV4_a_killed_worker_loses_nothing_that_was_answered(tmp_path: Path) -> None:
    storm(tmp_path, seconds=8, threads=6, kills_every=3)


@pytest.mark.slow
def test_workers_killed_for_minutes_lose_nothing(tmp_path: Path) -> None:
    storm(tmp_path, seconds=180, threads=64, kills_every=3)
