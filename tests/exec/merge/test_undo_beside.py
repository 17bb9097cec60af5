"""Reverts and restores beside writers of other processes, and what they cost."""

import time
from contextlib import suppress
from multiprocessing.synchronize import Event
from typing import Any

import pytest

import omnigraph as og
from omnigraph.exec.merge import undo as undoing
from omnigraph.graph import Graph
from omnigraph.storage.lance.reader import TableReader
from omnigraph.storage.lance.spans import Ends
from tests.exec.branching import edit, knows, person, state
from tests.forked import context

INSERT = "query add($n: String) { insert Person { name: $n, age: 1 } }"
UPDATE = 'query up($a: I32) { update Person set { age: $a } where name = "Counter" }'


def insert_until(uri: str, name: str, done: Event, count: Any) -> None:
    """Insert people of a name until told to stop; count those acknowledged."""
    graph = og.open(uri)
    while not done.is_set():
        graph.mutate(INSERT, {"n": f"{name}-{count.value}"})
        count.value += 1


def count_until(uri: str, done: Event, count: Any) -> None:
    """Set one row to the next number until told to stop, as often as it is refused."""
    graph = og.open(uri)
    while not done.is_set():
        try:
            graph.mutate(UPDATE, {"a": count.value + 1})
        except og.Conflict:
            continue
        count.value += 1


def test_c4_reverts_beside_writers_lose_nothing(small: Graph) -> None:
    edit(small, Person={"Ada": person("Ada", 30), "Counter": person("Counter", 0)})
    bad = edit(small, Person={"Ada": person("Ada", 99), "Dan": person("Dan")}).id
    processes = context()
    done = processes.Event()
    counts = [processes.Value("i", 0) for _ in range(3)]
    writers = [
        processes.Process(target=insert_until, args=(small.uri, "x", done, counts[0])),
        processes.Process(target=insert_until, args=(small.uri, "y", done, counts[1])),
        processes.Process(target=count_until, args=(small.uri, done, counts[2])),
    ]
    for writer in writers:
        writer.start()
    try:
        wait_for(lambda: all(count.value for count in counts))
        for number in range(4):
            bad = reverted(small, bad)
            seen = small.commits.changes(bad)
            assert {change.id for change in seen} == {"Ada", "Dan"}, f"revert {number}"
    finally:
        done.set()
        for writer in writers:
            writer.join(60)
    assert [writer.exitcode for writer in writers] == [0, 0, 0]
    rows = state(og.open(small.uri))
    for name, count in zip("xy", counts, strict=False):
        made = {key[1] for key in rows if key[1].startswith(f"{name}-")}
        assert made == {f"{name}-{number}" for number in range(count.value)}
    assert rows["Person", "Counter"]["age"] == counts[2].value, "no update is lost"
    assert rows["Person", "Ada"]["age"] == 99
    assert ("Person", "Dan") in rows
    assert small.check().findings == ()


def reverted(graph: Graph, commit: str) -> str:
    """Revert a commit, as often as writers that never pause refuse it; the commit that did."""
    for _ in range(20):
        with suppress(og.Conflict):
            outcome = graph.revert(commit)
            assert outcome.commit is not None
            return outcome.commit.id
    raise AssertionError("the revert never came through")


def wait_for(condition: Any) -> None:
    for _ in range(600):
        if condition():
            return
        time.sleep(0.05)
    raise AssertionError("the writers did not start")


def meanwhile(monkeypatch: pytest.MonkeyPatch, steps: list[Any]) -> None:
    """Run something between the decision and the commit, once for each attempt."""
    decided = undoing.decided

    def and_then(*arguments: Any) -> Any:
        decision = decided(*arguments)
        if steps:
            steps.pop(0)()
        return decision

    monkeypatch.setattr(undoing, "decided", and_then)


def test_a_head_that_moves_meanwhile_is_decided_on_anew(
    small: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    edit(small, Person={"Ada": person("Ada", 30), "Bob": person("Bob", 30)})
    bad = edit(small, Person={"Ada": person("Ada", 99)}).id
    meanwhile(monkeypatch, [lambda: edit(small, Person={"Bob": person("Bob", 31)})])
    assert small.revert(bad).kind == "reverted"
    assert state(small)["Person", "Bob"]["age"] == 31
    assert state(small)["Person", "Ada"]["age"] == 30


def test_a_row_that_changes_meanwhile_becomes_a_conflict(
    small: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    edit(small, Person={"Ada": person("Ada", 30)})
    bad = edit(small, Person={"Ada": person("Ada", 99)}).id
    meanwhile(monkeypatch, [lambda: edit(small, Person={"Ada": person("Ada", 50)})])
    with pytest.raises(og.MergeConflicts):
        small.revert(bad)
    assert state(small)["Person", "Ada"]["age"] == 50


def test_a_restore_is_of_the_head_that_it_is_committed_on(
    small: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    point = edit(small, Person={"Ada": person("Ada", 30)}).id
    then = state(small)
    edit(small, Person={"Ada": person("Ada", 99)})
    meanwhile(monkeypatch, [lambda: edit(small, Person={"Bob": person("Bob", 1)})])
    outcome = small.restore(point)
    assert state(small) == then
    assert outcome.changes.counts() == {
        ("node", "Person", "update"): 1,
        ("node", "Person", "delete"): 1,
    }


# ---- cost


def counted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of rows in everything that is read of tables, as it is read."""
    rows: list[int] = []

    def counting(owner: type, name: str) -> None:
        read = getattr(owner, name)

        def and_count(*arguments: Any, **options: Any) -> Any:
            result = read(*arguments, **options)
            rows.append(len(result))
            return result

        monkeypatch.setattr(owner, name, and_count)

    for name in ("rows", "by_row_id", "stageable"):
        counting(TableReader, name)
    for name in ("lost", "wrote"):
        counting(Ends, name)

    def no_scan(*arguments: Any, **options: Any) -> Any:
        raise AssertionError("a table is read from end to end")

    monkeypatch.setattr(TableReader, "batches", no_scan)
    return rows


@pytest.mark.parametrize("verb", ["revert", "restore"])
def test_the_cost_of_an_undo_follows_what_changed(
    small: Graph, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    """The same calls to storage and the same rows read at two sizes of the tables, when neither has
    topology files."""
    monkeypatch.setenv("OMNIGRAPH_TOPOLOGY_ROWS_MIN", "1000000")
    costs = []
    for size in (100, 20_000):
        people = {f"p{i}": person(f"p{i}", i) for i in range(size)}
        edges = {f"e{i}": knows(f"e{i}", f"p{i}", "p0") for i in range(size)}
        edit(small, Person=people, Knows=edges)
        small.optimize()
        good = small.snapshot().commit_id
        bad = edit(
            small,
            Person={"p7": person("p7", 0), "x": person("x"), "p8": None},
            Knows={"e8": None, "e7": knows("e7", "p1", "p2")},
        ).id
        fresh = og.open(small.uri, fold=False)
        fresh.snapshot()
        before = fresh.stats()
        with monkeypatch.context() as patch:
            rows = counted(patch)
            outcome = fresh.revert(bad) if verb == "revert" else fresh.restore(good)
        assert outcome.commit is not None
        costs.append((fresh.stats().since(before).calls, sorted(rows)))
    assert costs[0] == costs[1]
    assert max(costs[0][1]) <= 5
