"""RC2 for real: a client whose workers are killed writes every note once, and knows which."""

import os
import random
import signal
import threading
import time
from collections import Counter
from pathlib import Path

import pytest

import omnigraph as og
from tests.server.process import ServerProcess, until
from tests.server.world import NAMES, new_graph

WRITE = "query note($t: String) { insert Note { text: $t } }"
NOTES = "query notes() { match { $n: Note } return { $n.text as text } }"


class Writers:
    """Threads that share one connected graph, each on a branch of its own or on main."""

    def __init__(self, url: str, threads: int, branches: list[str]) -> None:
        self._graph = og.connect(url, graph="people")
        self._branches = branches
        self._stop = threading.Event()
        self.done: list[tuple[str, str]] = []
        self.unsettled: list[tuple[str, str]] = []
        self.faults: list[BaseException] = []
        self._threads = [threading.Thread(target=self._run, args=(n,)) for n in range(threads)]

    def _run(self, number: int) -> None:
        branch = self._branches[number % len(self._branches)]
        turn = 0
        while not self._stop.is_set():
            turn += 1
            text = f"{number}-{turn}"
            try:
                self._graph.mutate(WRITE, {"t": text}, branch=branch)
                self.done.append((branch, text))
                assert len(self._graph.query(NAMES, branch=branch)) == 2
            except (og.ServerUnreachable, og.RecoveryRequired, og.StorageFailed):
                self.unsettled.append((branch, text))
            except og.ServerBusy:
                continue
            except BaseException as cause:  # noqa: BLE001
                self.faults.append(cause)
                return

    def run(self, seconds: float, disturb: object) -> None:
        for thread in self._threads:
            thread.start()
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            disturb()  # type: ignore[operator]
        self._stop.set()
        for thread in self._threads:
            thread.join(120)
            assert not thread.is_alive(), "a call hung"
        self._graph.close()


def storm(folder: Path, *, seconds: float, threads: int, kills_every: float) -> None:
    uri = new_graph(folder)
    branches = ["main", "one"]
    with og.open(uri) as graph:
        graph.branches.create("one")
    with ServerProcess(uri, "--unauthenticated", "--workers", "2") as server:
        writers = Writers(server.url, threads, branches)

        def kill() -> None:
            time.sleep(kills_every)
            if workers := server.workers():
                os.kill(random.choice(workers), signal.SIGKILL)

        writers.run(seconds, kill)
        with og.connect(server.url) as graph:
            until(lambda: len(graph.query(NAMES)) == 2)
        assert server.stop() == 0
    assert writers.faults == []
    assert writers.done
    with og.open(uri) as graph:
        for branch in branches:
            texts = Counter(row["text"] for row in graph.query(NOTES, branch=branch).rows)
            assert set(texts.values()) <= {1}, "a note was written twice"
            assert {text for of, text in writers.done if of == branch} <= texts.keys()
            known = {text for of, text in (*writers.done, *writers.unsettled) if of == branch}
            assert texts.keys() <= known
        assert graph.check().ok


def test_RC2_a_write_whose_worker_was_killed_is_done_once(tmp_path: Path) -> None:
    storm(tmp_path, seconds=3, threads=3, kills_every=1.0)


@pytest.mark.slow
def test_RC2_workers_killed_for_minutes_write_everything_once(tmp_path: Path) -> None:
    storm(tmp_path, seconds=120, threads=32, kills_every=3)
