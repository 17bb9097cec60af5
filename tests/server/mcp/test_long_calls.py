"""Progress and cancellation of long calls, sessions that are killed, and many at once."""

import contextlib
import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client

import omnigraph as og
from tests.server.mcp.agent_client import ADD, NAMES, command, connected, new_graph
from tests.server.process import until
from tests.server.world import Served, served

MODES = ("auto", "legacy")
SESSIONS = 50
BUSY = (409, 412, 429)
WRITERS = 10


def records(count: int, name: str = "row") -> str:
    """Records to load."""
    return "".join(f'{{"type":"Person","data":{{"name":"{name}{n}"}}}}\n' for n in range(count))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(new_graph(tmp_path_factory.mktemp("long"))) as running:
        yield running


async def _load(target: Any, mode: str, data: str) -> list[tuple[float, str]]:
    steps: list[tuple[float, str]] = []

    async def tell(figure: float, total: float | None, message: str | None) -> None:
        steps.append((figure, message or ""))

    async with Client(target, mode=mode) as client:
        done = await client.call_tool(
            "load", {"data": data, "mode": "merge", "branch": "main"}, progress_callback=tell
        )
        assert not done.is_error, done.content
    return steps


@pytest.mark.parametrize("mode", MODES)
def test_a_long_load_tells_its_progress(server: Served, mode: str) -> None:
    steps = anyio.run(_load, f"{server.url}/mcp", mode, records(20_000))
    figures = [figure for figure, _ in steps]
    assert figures == sorted(set(figures)), "the figure rises with every notification"
    assert steps[0][1].endswith("rows")
    assert len({message.partition(":")[0] for _, message in steps}) >= 2, steps


def test_a_long_load_tells_its_progress_over_standard_output(tmp_path: Path) -> None:
    steps = anyio.run(_load, command(new_graph(tmp_path)), "auto", records(20_000))
    assert len({message.partition(":")[0] for _, message in steps}) >= 2, steps


async def _given_up(url: str, mode: str, tool: str, arguments: Any, begun: threading.Event) -> None:
    async with Client(url, mode=mode) as client:
        async with anyio.create_task_group() as group:
            group.start_soon(client.call_tool, tool, arguments)
            while not begun.is_set():
                await anyio.sleep(0.01)
            group.cancel_scope.cancel()
        assert not (await client.call_tool("health", {})).is_error, "the session goes on"


@pytest.mark.parametrize("mode", MODES)
def test_a_read_that_is_cancelled_stops(
    server: Served, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    begun, stopped = threading.Event(), threading.Event()

    def slow(*_: object, stop: Any, **__: object) -> object:
        begun.set()
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            if stop.is_cancelled:
                stopped.set()
                break
            time.sleep(0.01)
        raise og.BadRequest("it was slow")

    with monkeypatch.context() as patch:
        patch.setattr(server.graph, "query", slow)
        anyio.run(_given_up, f"{server.url}/mcp", mode, "query", {"query": NAMES}, begun)
        assert stopped.wait(20)
    until(lambda: server.app.reads.inside == 0)


@pytest.mark.parametrize("mode", MODES)
def test_a_load_that_is_cancelled_writes_nothing(
    server: Served, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    begun, ended = threading.Event(), threading.Event()
    load, head = server.graph.load, server.graph.snapshot().commit_id

    def held_up(*args: Any, progress: Any, **options: Any) -> object:
        def tell(step: Any) -> None:
            begun.set()
            deadline = time.monotonic() + 60
            while time.monotonic() < deadline:
                progress(step)  # raises once the caller has left
                time.sleep(0.01)

        try:
            return load(*args, progress=tell, **options)
        finally:
            ended.set()

    with monkeypatch.context() as patch:
        patch.setattr(server.graph, "load", held_up)
        data = {"data": records(2_000, "never"), "branch": "main"}
        anyio.run(_given_up, f"{server.url}/mcp", mode, "load", data, begun)
        assert ended.wait(20)
    until(lambda: server.app.writes.inside == 0)
    assert server.graph.snapshot().commit_id == head


@pytest.mark.parametrize("mode", MODES)
def test_a_mutation_whose_caller_leaves_is_whole(
    server: Served, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    begun, name = threading.Event(), f"Left-{mode}"
    mutate = server.graph.mutate

    def late(*args: Any, **options: Any) -> object:
        begun.set()
        time.sleep(0.3)
        return mutate(*args, **options)

    with monkeypatch.context() as patch:
        patch.setattr(server.graph, "mutate", late)
        given = {"query": ADD, "params": {"n": name}, "branch": "main"}
        anyio.run(_given_up, f"{server.url}/mcp", mode, "mutate", given, begun)
    until(lambda: server.app.writes.inside == 0)
    until(lambda: name in server.names())


def test_waiting_for_changes_can_be_cancelled_over_standard_input(tmp_path: Path) -> None:
    uri = new_graph(tmp_path)

    async def work() -> None:
        async with Client(command(uri)) as client:
            polled = await client.call_tool("changes_poll", {"start": "now"})
            cursor = polled.structured_content["cursor"]
            with anyio.move_on_after(0.5) as scope:
                await client.call_tool("changes_poll", {"cursor": cursor, "wait_ms": 60_000})
            assert scope.cancelled_caught
            with anyio.fail_after(30):
                assert not (await client.call_tool("health", {})).is_error

    anyio.run(work)


def _children(pid: int) -> list[int]:
    listed = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(child) for path in listed for child in path.read_text().split()]


def _killed(uri: str, data: str, after_s: float) -> None:
    """A session that is killed while it loads."""
    before = set(_children(os.getpid()))
    with contextlib.suppress(Exception), connected(command(uri)) as agent:
        (pid,) = set(_children(os.getpid())) - before
        timer = threading.Timer(after_s, os.kill, (pid, signal.SIGKILL))
        timer.start()
        try:
            while True:
                agent.call("load", data=data, mode="merge")
        finally:
            timer.join()
    assert timer.finished.is_set()


def _is_whole_after(uri: str, size: int) -> None:
    with og.open(uri) as graph:
        rows = graph.query(NAMES).rows
        assert len([row for row in rows if row["name"].startswith("kill")]) in (0, size)
        graph.mutate(ADD, {"n": f"after{len(rows)}"})
        assert graph.check().ok


def test_a_session_that_is_killed_while_it_writes_leaves_all_or_nothing(tmp_path: Path) -> None:
    uri = new_graph(tmp_path)
    _killed(uri, records(3_000, "kill"), 0.7)
    _is_whole_after(uri, 3_000)


@pytest.mark.slow
@pytest.mark.parametrize("number", range(12))
def test_sessions_that_are_killed_at_any_moment_leave_all_or_nothing(
    tmp_path: Path, number: int
) -> None:
    uri = new_graph(tmp_path)
    _killed(uri, records(3_000, "kill"), 0.1 + number * 0.15)
    _is_whole_after(uri, 3_000)


async def _one_of_many(url: str, number: int, together: anyio.Event, counts: list[int]) -> None:
    async with Client(f"{url}/mcp?branch=many/{number}", mode=MODES[number % 2]) as client:
        counts.append(number)
        if len(counts) == SESSIONS:
            together.set()
        await together.wait()
        if number >= WRITERS:
            read = {"query": NAMES, "branch": "main"}
            assert not (await client.call_tool("query", read)).is_error
            return
        for tool, given in (
            ("mutate", {"query": ADD, "params": {"n": f"many{number}"}}),
            ("branches_merge", {"delete_branch": True}),
        ):
            for _ in range(200):
                done = await client.call_tool(tool, given)
                # Busy, or another merge was first: the answer says to call again.
                if not done.is_error or json.loads(done.content[0].text)["status"] not in BUSY:
                    break
                await anyio.sleep(0.1)
            assert not done.is_error, done.content


def test_fifty_sessions_work_at_once(server: Served) -> None:
    async def work() -> None:
        together, counts = anyio.Event(), list[int]()
        async with anyio.create_task_group() as group:
            for number in range(SESSIONS):
                group.start_soon(_one_of_many, server.url, number, together, counts)

    anyio.run(work)
    names = set(server.names())
    assert {f"many{number}" for number in range(WRITERS)} <= names
    assert server.app.reads.inside == server.app.writes.inside == 0
