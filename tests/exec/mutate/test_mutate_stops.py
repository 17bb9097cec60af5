"""A mutation that is stopped, anywhere: the graph is as it was, or fully committed."""

import os
import random
import signal
import time
from contextlib import suppress
from multiprocessing.connection import Connection

import pytest

import omnigraph as og
from omnigraph.exec.mutate import staging, validate
from omnigraph.graph import Graph
from omnigraph.storage import failpoints
from tests.exec.town import COMPANY, KNOWS, PERSON, WORKS_AT, do, everything, rows
from tests.forked import context

BODY = """
    insert Person { name: "New", age: 1 }
    update Person set { age: 2 } where name = "Ada"
    insert Knows { from: "New", to: "Ada" }
"""


@pytest.fixture
def town(people: Graph) -> Graph:
    do(people, 'insert Person { name: "Ada", age: 36 }')
    return people


def states(town: Graph) -> tuple[object, object]:
    """What the graph shows before and after the mutation; edges without their ids."""
    before = shown(town)
    town.branches.create("preview")
    do(town, BODY, branch="preview")
    return before, shown(town, "preview")


def shown(graph: Graph, branch: str = "main") -> object:
    seen = everything(graph, branch)
    edges = sorted(str(row) for row in seen.pop(KNOWS).values())
    return seen, edges


@pytest.mark.parametrize("place", failpoints.COMMIT)
def test_ctrl_c_at_any_step_leaves_before_or_after(
    town: Graph, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, after = states(town)

    def interrupt(name: str, action: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(failpoints, "_fire", interrupt)
    with failpoints.armed(place), pytest.raises(KeyboardInterrupt):
        do(town, BODY)
    do(town, 'insert Company { name: "Next" }')  # settles what was left
    do(town, 'delete Company where name = "Next"')
    assert shown(town) in (before, after)
    assert shown(og.open(town.uri)) == shown(town)


@pytest.mark.parametrize(
    ("room", "function"),
    [(staging, "select_committed"), (staging, "select_among"), (validate, "check_keys")],
)
def test_ctrl_c_before_the_protocol_leaves_nothing(
    town: Graph, monkeypatch: pytest.MonkeyPatch, room: object, function: str
) -> None:
    before, commits = everything(town), town.commits.list()

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(room, function, interrupt)
        with pytest.raises(KeyboardInterrupt):
            do(town, BODY)
    assert (everything(town), town.commits.list()) == (before, commits)
    assert do(town, BODY).commit is not None


THREE = """query q($n: String) {
    insert Person { name: $n }
    insert Company { name: $n }
    insert WorksAt { from: $n, to: $n }
}"""


def insert_on(uri: str, told: Connection) -> None:
    """Insert for ever, telling each that was acknowledged."""
    graph = og.open(uri)
    for number in range(10_000):
        graph.mutate(THREE, {"n": f"n{number}"})
        told.send(number)


def rest(heard: Connection) -> int:
    """How many more were told before the end."""
    count = 0
    with suppress(EOFError, OSError):
        while True:
            heard.recv()
            count += 1
    return count


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_a_process_that_is_stopped_at_any_moment_keeps_what_it_acknowledged(
    people: Graph, how: signal.Signals, seed: int
) -> None:
    heard, told = context().Pipe(duplex=False)
    child = context().Process(target=insert_on, args=(people.uri, told))
    child.start()
    told.close()
    for _ in range(3):
        heard.recv()
    time.sleep(random.Random(seed).uniform(0, 0.06))
    assert child.pid is not None
    os.kill(child.pid, how)
    acknowledged = 3 + rest(heard)
    heard.close()
    child.join(30)
    assert child.exitcode not in (0, None)
    graph = og.open(people.uri)
    names = {f"n{number}" for number in range(acknowledged)}
    found = set(rows(graph, PERSON))
    assert names <= found <= names | {f"n{acknowledged}"}
    seen = everything(graph)
    assert set(seen[COMPANY]) == found
    assert {row["src"] for row in seen[WORKS_AT].values()} == found
    do(graph, 'insert Person { name: "after" }')
