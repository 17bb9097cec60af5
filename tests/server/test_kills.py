"""Workers killed under load: what was answered with 2xx is there exactly once, nothing is half."""

import os
import random
import signal
import time
from pathlib import Path

import httpx
import pytest

import omnigraph as og
from tests import campaign
from tests.server.mixed_load import MixedLoad
from tests.server.process import ServerProcess, until
from tests.server.world import new_graph

BRANCHES = ("main", "one", "two", "three")
MiB = 1 << 20
MANY_IN_FLIGHT = {
    "OMNIGRAPH_PER_ACTOR_INFLIGHT_MAX": "64",
    # So few that a cache which grows with every commit is full soon.
    "OMNIGRAPH_METADATA_CACHE_BYTES_MAX": str(16 * MiB),
    "OMNIGRAPH_CACHE_BYTES_MAX": str(64 * MiB),
}
ANSWERS_BETWEEN_KILLS = 20  # a machine that is busy has no worker for a while after each


class Usage:
    """Memory of a server's processes, and open files of its supervisor, over time."""

    def __init__(self, server: ServerProcess) -> None:
        self._server = server
        self.workers: list[int] = []  # bytes of the largest one
        self.supervisor: list[int] = []
        self.files: list[int] = []

    def look(self) -> None:
        pid = self._server.process.pid
        self.workers.append(max((_resident(each) for each in self._server.workers()), default=0))
        self.supervisor.append(_resident(pid))
        self.files.append(len(os.listdir(f"/proc/{pid}/fd")))

    def require_flat(self) -> None:
        """The last third needs no more than the second did."""
        third = len(self.workers) // 3
        for name, sizes, slack in (
            ("a worker", self.workers, 64 * MiB),
            ("the supervisor", self.supervisor, 4 * MiB),
            ("open files", self.files, 4),
        ):
            before, after = max(sizes[third : 2 * third]), max(sizes[2 * third :])
            assert after <= before + slack, f"{name}: {before} became {after}, of {sizes[::20]}"


def _resident(pid: int) -> int:
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    # Pages of files that are mapped are the system's to take back.
    line = next((line for line in status.splitlines() if line.startswith("RssAnon:")), "0 0")
    return int(line.split()[1]) * 1024


def branched(folder: Path) -> str:
    """A small graph with four branches; where it is."""
    uri = new_graph(folder)
    with og.open(uri) as graph:
        for branch in BRANCHES[1:]:
            graph.branches.create(branch)
    return uri


def storm(folder: Path, *, seconds: float, connections: int, kills_every: float | None) -> Usage:
    """A server of two workers under mixed load, while one of them is killed every few seconds."""
    uri = branched(folder)
    settings = ("--unauthenticated", "--workers", "2")
    with ServerProcess(uri, *settings, env=MANY_IN_FLIGHT) as server:
        load, usage = MixedLoad(server.url, BRANCHES, connections), Usage(server)
        load.start()
        started, killed, answered = time.monotonic(), time.monotonic(), 0
        while time.monotonic() < started + seconds and not load.faults:
            time.sleep(0.5)
            usage.look()
            is_time = kills_every is not None and time.monotonic() > killed + kills_every
            if is_time and load.answered > answered + ANSWERS_BETWEEN_KILLS:
                killed, answered = time.monotonic(), load.answered
                os.kill(random.choice(server.workers()), signal.SIGKILL)
        load.stop()
        until(lambda: httpx.get(f"{server.url}/readyz", timeout=60).status_code == 200)
        assert server.stop() == 0
    assert load.unreachable == 0, "a connection was refused while a worker was started again"
    with og.open(uri) as graph:
        load.require_all_there(graph)
    return usage


def test_SV2_SV4_a_killed_worker_loses_nothing_that_was_answered(tmp_path: Path) -> None:
    storm(tmp_path, seconds=8, connections=16, kills_every=3)


def stop_under_load(folder: Path, *, connections: int, seconds: float, workers: int) -> None:
    """Tell a server to stop while every connection waits for an answer."""
    settings = (branched(folder), "--unauthenticated", "--workers", str(workers))
    with ServerProcess(*settings, env=MANY_IN_FLIGHT) as server:
        load = MixedLoad(server.url, BRANCHES, connections)
        load.start()
        until(lambda: all(load.kept[branch] for branch in BRANCHES) or load.faults)
        time.sleep(seconds)
        told = time.monotonic()
        assert server.stop() == 0
        load.stop()
    lost = [told - sent for sent in load.broken_at if sent < told]
    assert lost == [], "requests that were sent before were not answered"
    with og.open(folder / "people.omni") as graph:
        load.require_all_there(graph)


def test_SV4_a_server_that_stops_under_load_answers_all_that_it_was_sent(tmp_path: Path) -> None:
    stop_under_load(tmp_path, connections=16, seconds=0, workers=1)


@pytest.mark.slow
def test_a_server_that_stops_under_load_again_and_again_answers_all(tmp_path: Path) -> None:
    for turn in range(campaign.count(10)):
        folder = tmp_path / str(turn)
        folder.mkdir()
        stop_under_load(folder, connections=64, seconds=turn % 3, workers=2)


@pytest.mark.slow
def test_workers_killed_for_minutes_lose_nothing(tmp_path: Path) -> None:
    usage = storm(tmp_path, seconds=campaign.seconds(300), connections=64, kills_every=3)
    usage.require_flat()


@pytest.mark.slow
def test_workers_that_live_for_minutes_under_load_do_not_grow(tmp_path: Path) -> None:
    usage = storm(tmp_path, seconds=campaign.seconds(300), connections=64, kills_every=None)
    usage.require_flat()
