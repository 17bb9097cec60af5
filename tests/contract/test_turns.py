"""Writes that lose are prepared again, and none loses for ever. The same on local disk and S3."""

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import pairwise

import pytest

from omnigraph.errors import StorageFailed, VersionMismatch
from omnigraph.storage.locks import turns
from omnigraph.storage.locks.locks import hold
from omnigraph.storage.locks.turns import FREE_ATTEMPTS, Turn
from omnigraph.storage.names import MAIN
from omnigraph.storage.protocol.intent import WriterKind
from omnigraph.storage.records import Commit
from omnigraph.storage.retry import WRITE, Budget
from omnigraph.storage.store import Store
from tests.forked import KILLED, run
from tests.storage import child
from tests.storage.world import (
    CITY,
    FAST,
    PERSON,
    Where,
    append,
    content,
    heads_agree,
    put,
    rows,
)

HURRIED = replace(FAST, lock_wait_s=0.2)


def test_c2_inserts_of_many_threads_are_prepared_again_until_they_are_in(store: Store) -> None:
    def insert(name: str) -> None:
        store.turns.prepared_again(lambda turn: append(store, PERSON, name, turn=turn))

    names = [f"t{number}" for number in range(12)]
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(insert, names))
    assert set(content(store)[PERSON]) == set(names)
    commits = store.history.list()
    assert len(commits) == len(names) + 1
    assert all(newer.parent == older.id for newer, older in pairwise(commits))


def test_c2_preparing_again_ends(store: Store) -> None:
    tried = []

    def never(turn: Turn) -> None:
        tried.append(1)
        raise VersionMismatch(PERSON, 1, 2)

    with pytest.raises(VersionMismatch):
        store.turns.prepared_again(never, budget=Budget(4, WRITE.lost))
    assert len(tried) == 4


def test_c2_losers_wait_a_random_growing_and_bounded_time(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that lost before they knew which locks they need, and so get no turn."""
    pauses: list[float] = []
    bounds: list[float] = []

    def uniform(low: float, high: float) -> float:
        bounds.append(high)
        return high

    monkeypatch.setattr(turns.time, "sleep", pauses.append)
    monkeypatch.setattr(turns.random, "uniform", uniform)

    def never(turn: Turn) -> None:
        raise VersionMismatch(PERSON, 1, 2)

    with pytest.raises(VersionMismatch):
        store.turns.prepared_again(never)
    assert pauses == bounds
    assert len(pauses) == WRITE.attempts - 1
    assert pauses == sorted(pauses)
    assert pauses[0] < 0.01
    assert pauses[-1] == pauses[-2] <= 0.5


class Overtaken:
    """An insert of one row, which another writer overtakes each time that it can: `free` times."""

    def __init__(
        self, store: Store, where: Where, branch: str = MAIN, *, free: int = FREE_ATTEMPTS
    ) -> None:
        self.store, self.branch, self.free = store, branch, free
        self.other = where.open(settings=HURRIED)
        self.attempts = self.overtaken = 0
        self.then: Callable[[], None] = lambda: None
        """What happens after the first loss, while nobody holds anything."""

    def __call__(self, turn: Turn) -> Commit:
        self.attempts += 1
        write = self.store.begin(self.branch, kind=WriterKind.MUTATION, actor="act-slow", turn=turn)
        write.append(PERSON, rows(PERSON, {"slow": 1}))
        try:
            append(self.other, PERSON, f"fast-{self.attempts}", branch=self.branch)
        except StorageFailed:
            assert self.attempts > self.free, "it was in nobody's way"
        else:
            self.overtaken += 1
        try:
            return self.store.commit(write)
        except VersionMismatch:
            if self.attempts == 1:
                self.then()
            raise


@pytest.mark.parametrize("branch", [MAIN, "work"])
def test_c2_a_write_that_keeps_losing_gets_its_turn(
    store: Store, where: Where, branch: str
) -> None:
    if branch != MAIN:
        store.branches.create(branch)
    slow = Overtaken(store, where, branch)
    store.turns.prepared_again(slow)
    assert slow.overtaken == FREE_ATTEMPTS
    assert slow.attempts == FREE_ATTEMPTS + 1
    assert set(content(store, branch)[PERSON]) == {"slow", "fast-1"}
    append(slow.other, PERSON, "after", branch=branch)  # what was kept is free again


def test_c2_the_next_of_a_kind_begins_with_its_turn_while_it_has_to_wait(
    store: Store, where: Where, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turns, "_CROWD_S", 60.0)  # opening takes longer on a busy machine
    store.turns.prepared_again(Overtaken(store, where), kind="k")
    assert store.turns.is_crowded("k")
    assert not store.turns.is_crowded("other")
    next_ = Overtaken(store, where, free=0)
    store.turns.prepared_again(next_, kind="k")
    assert (next_.attempts, next_.overtaken) == (1, 0)
    assert not store.turns.is_crowded("k"), "nobody else had the locks"
    last = Overtaken(store, where)
    store.turns.prepared_again(last, kind="k")
    assert last.overtaken == FREE_ATTEMPTS


def test_c2_a_kind_stays_crowded_while_others_have_its_locks(store: Store, where: Where) -> None:
    store.turns.prepared_again(Overtaken(store, where), kind="k")
    [names, _] = store.turns._crowds["k"]
    other = where.open()
    held = threading.Event()

    def occupy() -> None:
        with hold(other.locks, names):
            held.set()
            time.sleep(0.1)

    with ThreadPoolExecutor(1) as thread:
        busy = thread.submit(occupy)
        held.wait(10)
        store.turns.prepared_again(
            lambda turn: append(store, PERSON, "patient", turn=turn), kind="k"
        )
        busy.result()
    assert store.turns.is_crowded("k")


def test_c2_a_writer_that_died_before_the_turn_is_settled_in_it(
    store: Store, where: Where, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turns, "LONGEST_TURN_S", 60.0)  # a process starts slowly where many do
    slow = Overtaken(store, where)

    def die() -> None:
        values = {PERSON: {"dead": 1}, CITY: {"dead": 1}}
        assert run(child.write, where, values, MAIN, "commit.tables_done", 1) == KILLED

    slow.then = die
    store.turns.prepared_again(slow)
    assert set(content(store)[PERSON]) == {"slow", "fast-1", "dead"}
    assert set(content(store)[CITY]) == {"dead"}
    assert store.sidecars.pending() == ()
    assert heads_agree(store)


def test_c2_writers_in_their_turns_never_wait_in_a_ring(store: Store, where: Where) -> None:
    """Of two that each keep what the other needs one waits, the other begins its turn anew."""
    stores = store, where.open()
    both_keep = threading.Barrier(2, timeout=60)

    def work(number: int) -> list[int]:
        mine, other = (PERSON, CITY) if number else (CITY, PERSON)
        kept: list[int] = []

        def attempt(turn: Turn) -> None:
            kept.append(len(turn.kept))
            if len(kept) == 1:
                # Lose for this table alone, so that the turn is as narrow as this.
                write = stores[number].begin(kind=WriterKind.MUTATION, turn=turn)
                write.append(mine, rows(mine, {f"{number}": 1}))
                append(where.open(), mine, f"fast-{number}")
                stores[number].commit(write)
            if len(kept) == 2:
                both_keep.wait()
            put(stores[number], {mine: {f"{number}": 1}, other: {f"{number}": 1}}, turn=turn)

        stores[number].turns.prepared_again(attempt)
        return kept

    with ThreadPoolExecutor(2) as threads:
        kept = list(threads.map(work, range(2)))
    assert [each[:2] for each in kept] == [[0, 1], [0, 1]], "both were in their turns"
    assert min(kept, key=len) == [0, 1], "one had only to wait"
    assert content(store)[PERSON].keys() == {"0", "1", "fast-1"}
    assert content(store)[CITY].keys() == {"0", "1", "fast-0"}


def test_c2_what_takes_long_to_prepare_keeps_nobody_waiting(
    store: Store, where: Where, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turns, "LONGEST_TURN_S", 0.0)
    slow = Overtaken(store, where)
    with pytest.raises(VersionMismatch):
        store.turns.prepared_again(slow, budget=Budget(4, WRITE.lost))
    assert slow.overtaken == 4
