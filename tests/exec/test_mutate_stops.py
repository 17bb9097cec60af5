"""A mutation that is stopped, anywhere: the graph is as it was, or fully committed."""

import random
import signal
import subprocess
import sys
import time

import pytest

import omnigraph as og
from omnigraph.exec import staging, validate
from omnigraph.graph import Graph
from omnigraph.storage import failpoints
from tests.exec.town import COMPANY, KNOWS, PERSON, WORKS_AT, do, everything, rows

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


LOOP = """
import sys
import omnigraph as og
graph = og.open(sys.argv[1])
text = '''query q($n: String) {
    insert Person { name: $n }
    insert Company { name: $n }
    insert WorksAt { from: $n, to: $n }
}'''
for number in range(10_000):
    done = graph.mutate(text, {"n": f"n{number}"})
    print(number, flush=True)
"""


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_a_process_that_is_stopped_at_any_moment_keeps_what_it_acknowledged(
    people: Graph, how: signal.Signals, seed: int
) -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", LOOP, people.uri], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    assert child.stdout is not None
    for _ in range(3):
        child.stdout.readline()
    time.sleep(random.Random(seed).uniform(0, 0.06))
    child.send_signal(how)
    said = child.stdout.read().split()
    child.stdout.close()
    assert child.wait(timeout=30) != 0
    acknowledged = 3 + len(said)
    graph = og.open(people.uri)
    names = {f"n{number}" for number in range(acknowledged)}
    found = set(rows(graph, PERSON))
    assert names <= found <= names | {f"n{acknowledged}"}
    seen = everything(graph)
    assert set(seen[COMPANY]) == found
    assert {row["src"] for row in seen[WORKS_AT].values()} == found
    do(graph, 'insert Person { name: "after" }')
