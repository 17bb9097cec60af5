"""Turns: a write keeps the locks of the attempt that it lost, and waits for them once."""

import threading
import time

import pytest

from omnigraph.errors import PreconditionFailed, RecoveryRequired, VersionMismatch
from omnigraph.storage import failpoints
from omnigraph.storage.locks import turns as turns_module
from omnigraph.storage.locks.locks import hold
from omnigraph.storage.locks.turns import LockTaken, Turn
from omnigraph.storage.manifest.state import crowd_lock, publish_lock
from omnigraph.storage.names import MAIN, lock_name
from omnigraph.storage.protocol.intent import WriterKind
from omnigraph.storage.records import Commit, CommitId
from omnigraph.storage.retry import STRICT, change_budget
from omnigraph.storage.store import Store
from tests.storage.world import CITY, PERSON, Where, append, content, put, rows


def test_c2_a_turn_that_keeps_the_publish_lock_publishes_under_it(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(hold.__wrapped__.__kwdefaults__, "wait_s", 0.2)  # type: ignore[attr-defined]
    names = [lock_name(PERSON, MAIN), publish_lock(MAIN)]
    with hold(store.locks, names) as guard:
        write = store.begin(kind=WriterKind.MUTATION, turn=Turn(guard.locks))
        write.append(PERSON, rows(PERSON, {"a": 1}))
        store.commit(write)
    assert set(content(store)[PERSON]) == {"a"}


def test_an_attempt_without_a_turn_gives_way_and_waits_once_for_its_turn(store: Store) -> None:
    name = lock_name(PERSON, MAIN)
    held = store.locks.acquire(name, wait_s=0)
    assert held is not None
    kept: list[bool] = []

    def attempt(turn: Turn) -> Commit:
        kept.append(bool(turn.kept))
        if len(kept) == 1:
            threading.Timer(0.2, held.release).start()  # whoever waited here would be stale then
        return append(store, PERSON, "a", turn=turn)

    store.turns.prepared_again(attempt)
    assert kept == [False, True]


def test_the_last_attempt_of_a_write_waits_instead_of_giving_way(store: Store) -> None:
    held = store.locks.acquire(lock_name(PERSON, MAIN), wait_s=0)
    assert held is not None
    threading.Timer(0.2, held.release).start()
    store.turns.prepared_again(
        lambda turn: append(store, PERSON, "a", turn=turn), budget=change_budget(0)
    )
    assert set(content(store)[PERSON]) == {"a"}


def test_an_attempt_that_took_long_to_prepare_waits_instead_of_giving_way(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turns_module, "LONGEST_TURN_S", 0.0)
    held = store.locks.acquire(lock_name(PERSON, MAIN), wait_s=0)
    assert held is not None
    threading.Timer(0.2, held.release).start()
    turns: list[Turn] = []

    def attempt(turn: Turn) -> Commit:
        turns.append(turn)
        return append(store, PERSON, "a", turn=turn)

    store.turns.prepared_again(attempt)
    assert [bool(turn.kept) for turn in turns] == [False]


def test_c2_a_write_that_is_slow_to_prepare_gets_its_turn_after_more_losses(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A merge on a busy machine takes longer than a turn may, and would lose to shorter writes for
    as long as these come."""
    monkeypatch.setattr(turns_module, "LONGEST_TURN_S", 0.05)
    kept: list[bool] = []

    def attempt(turn: Turn) -> Commit:
        kept.append(bool(turn.kept))
        write = store.begin(kind=WriterKind.MUTATION, turn=turn)
        write.append(PERSON, rows(PERSON, {"slow": 1}))
        time.sleep(0.12)
        if not turn.kept:
            append(store, PERSON, f"quick{len(kept)}")
        return store.commit(write)

    store.turns.prepared_again(attempt)
    assert kept[:2] == [False, False]
    assert kept[-1]
    assert "slow" in content(store)[PERSON]


def test_a_write_that_lost_its_first_attempt_begins_with_its_turn(store: Store) -> None:
    first = Turn(may_lose=True)
    held = store.locks.acquire(lock_name(PERSON, MAIN), wait_s=0)
    assert held is not None
    with pytest.raises(LockTaken):
        append(store, PERSON, "a", turn=first)
    held.release()
    kept: list[frozenset[str]] = []

    def attempt(turn: Turn) -> Commit:
        kept.append(frozenset(turn.kept))
        return append(store, PERSON, "a", turn=turn)

    store.turns.prepared_again(attempt, lost=first)
    assert kept == [frozenset({lock_name(PERSON, MAIN)})]


def test_c1_turns_of_single_tables_do_not_wait_for_each_other(store: Store) -> None:
    """The crowd lock is for writers that need several locks: one that prepares for long would keep
    those of other tables waiting."""
    turn = Turn()
    append(store, PERSON, "a", turn=turn)
    assert turn.names == {lock_name(PERSON, MAIN)}
    wide = Turn()
    put(store, {PERSON: {"b": 1}, CITY: {"b": 1}}, turn=wide)
    assert wide.names == {crowd_lock(MAIN), lock_name(PERSON, MAIN), lock_name(CITY, MAIN)}


def test_h1_a_write_waits_for_live_writers_of_other_tables_to_settle_a_dead_one(
    store: Store, local: Where
) -> None:
    """It was told to reopen the graph, though its next attempt could have settled it."""
    other = local.open()
    with failpoints.armed("commit.tables_done"), pytest.raises(RecoveryRequired):
        put(other, {PERSON: {"dead": 1}, CITY: {"dead": 1}})
    held = other.locks.acquire(lock_name(CITY, MAIN), wait_s=0)
    assert held is not None
    threading.Timer(0.5, held.release).start()
    store.turns.prepared_again(lambda turn: append(store, PERSON, "a", turn=turn))
    assert set(content(store)[PERSON]) == {"a", "dead"}
    assert set(content(store)[CITY]) == {"dead"}
    assert store.sidecars.pending() == ()


def test_c2_the_wait_for_locks_is_no_part_of_what_a_write_takes_to_prepare(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a write that waited for long would never get its turn."""
    monkeypatch.setattr(turns_module, "LONGEST_TURN_S", 0.3)
    monkeypatch.setattr(turns_module, "_TURN_MAX_S", 0.3)
    kept: list[bool] = []

    def attempt(turn: Turn) -> Commit:
        kept.append(bool(turn.kept))
        write = store.begin(kind=WriterKind.MUTATION, turn=turn)
        write.append(PERSON, rows(PERSON, {"slow": 1}))
        if len(kept) == 1:
            append(store, PERSON, "quick")
            turn.takes([lock_name(PERSON, MAIN)])
            time.sleep(0.5)  # as if it waited for the lock
        return store.commit(write)

    store.turns.prepared_again(attempt)
    assert kept == [False, True]


def test_c1_what_a_strict_write_lost_in_its_turn_is_kept_by_the_next(store: Store) -> None:
    """Updates of a type take fewer locks than deletes, which also watch its edges."""
    store.turns._note("strict", frozenset({lock_name(PERSON, MAIN)}), waited=True)
    kept: list[frozenset[str]] = []

    def attempt(turn: Turn) -> Commit:
        kept.append(frozenset(turn.kept))
        write = store.begin(kind=WriterKind.MUTATION, turn=turn)
        write.append(PERSON, rows(PERSON, {f"p{len(kept)}": 1}))
        write.append(CITY, rows(CITY, {f"c{len(kept)}": 1}))
        if len(kept) == 1:
            append(store, CITY, "between")
        return store.commit(write)

    with pytest.raises(VersionMismatch):
        store.turns.prepared_again(attempt, budget=STRICT, kind="strict")
    store.turns._note("strict", frozenset({lock_name(PERSON, MAIN)}), waited=True)
    store.turns.prepared_again(attempt, budget=STRICT, kind="strict")
    assert lock_name(CITY, MAIN) in kept[1]


def test_a_merge_whose_target_moved_keeps_the_tables_too_next_time(store: Store) -> None:
    write = store.begin(kind=WriterKind.BRANCH_MERGE, turn=Turn())
    with pytest.raises(PreconditionFailed):
        write.require_head(CommitId("01JZ0000000000000000000001"), [PERSON, CITY])
    tables = {lock_name(PERSON, MAIN), lock_name(CITY, MAIN)}
    assert write.turn.names == {crowd_lock(MAIN), publish_lock(MAIN), *tables}


def test_c1_a_strict_write_that_lost_begins_with_its_turn_when_its_caller_asks_again(
    store: Store,
) -> None:
    """Beside writers that never pause, its base would be stale whenever it has the locks."""
    stale = store.begin(kind=WriterKind.MUTATION)
    append(store, PERSON, "a")
    kept: list[bool] = []

    def attempt(turn: Turn) -> Commit:
        kept.append(bool(turn.kept))
        if len(kept) > 1:
            return append(store, PERSON, "b", turn=turn)
        stale.turn = turn
        stale.append(PERSON, rows(PERSON, {"b": 1}))
        return store.commit(stale)

    with pytest.raises(VersionMismatch):
        store.turns.prepared_again(attempt, budget=STRICT, kind="strict")
    store.turns.prepared_again(attempt, budget=STRICT, kind="strict")
    assert kept == [False, True]


def test_c1_a_strict_write_whose_turn_lacks_a_lock_takes_a_wider_one(store: Store) -> None:
    """The last write of its kind touched one table, this one touches two, and one of them comes
    before the lock that it keeps."""
    kind = "strict"
    store.turns._note(kind, frozenset({lock_name(PERSON, MAIN)}), waited=True)
    assert lock_name(CITY, MAIN) < lock_name(PERSON, MAIN)
    held = store.locks.acquire(lock_name(CITY, MAIN), wait_s=0)
    assert held is not None
    kept: list[frozenset[str]] = []

    def attempt(turn: Turn) -> Commit:
        kept.append(frozenset(turn.kept))
        if len(kept) == 1:
            threading.Timer(0.2, held.release).start()
        write = store.begin(kind=WriterKind.MUTATION, turn=turn)
        write.append(CITY, rows(CITY, {"c": 1}))
        write.append(PERSON, rows(PERSON, {"a": 1}))
        return store.commit(write)

    store.turns.prepared_again(attempt, budget=STRICT, kind=kind)
    assert [lock_name(CITY, MAIN) in names for names in kept] == [False, True]
    assert set(content(store)[CITY]) == {"c"}


def test_a_turn_that_lacks_the_lock_of_a_fork_waits_for_it_once(store: Store) -> None:
    """A fork takes its lock while the write is prepared, before the commit names its locks."""
    store.branches.create("draft")
    before, after = lock_name(CITY, "draft"), lock_name(PERSON, "draft")
    store.turns._note("strict", frozenset({after}), waited=True)
    held = store.locks.acquire(before, wait_s=0)
    assert held is not None
    kept: list[frozenset[str]] = []

    def attempt(turn: Turn) -> Commit:
        kept.append(frozenset(turn.kept))
        if len(kept) == 1:
            threading.Timer(0.2, held.release).start()
        write = store.begin("draft", kind=WriterKind.MUTATION, turn=turn)
        write.append(CITY, rows(CITY, {"c": 1}))
        return store.commit(write)

    store.turns.prepared_again(attempt, budget=STRICT, kind="strict")
    assert kept == [{after}, {before, after}]
