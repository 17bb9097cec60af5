"""One holder a name, across threads and processes, and none that outlives its process."""

import json
import threading
import time
import uuid
from pathlib import Path

import pytest

from omnigraph.errors import StorageFailed
from omnigraph.storage.locks import locks as locks_module
from omnigraph.storage.locks import waiting_line
from omnigraph.storage.locks.locks import (
    FOLDER,
    LeaseLocks,
    Locks,
    LockTaken,
    hold,
    hold_if_idle,
    make_locks,
)
from omnigraph.storage.locks.process_mark import is_dead, own_mark
from omnigraph.storage.objects import Objects, root_of
from omnigraph.storage.stats import Stats
from tests.forked import KILLED, run
from tests.storage import child
from tests.storage.world import Where


def locks_of(where: Where, term_s: float = 1.0) -> Locks:
    spot = root_of(where.uri, where.options or None)
    if spot.path is not None:
        spot.path.mkdir(exist_ok=True)
    stats = Stats()
    return make_locks(spot, Objects(spot, stats), stats, term_s=term_s)


@pytest.fixture(params=["local", "s3"])
def where(request: pytest.FixtureRequest) -> Where:
    found: Where = request.getfixturevalue(request.param)
    return found


def test_c3_a_held_lock_is_seen_as_alive(where: Where) -> None:
    mine, other = locks_of(where), locks_of(where)
    held = mine.acquire("t", wait_s=1)
    assert held is not None
    assert other.probe("t") is None
    assert other.acquire("t", wait_s=0.1) is None
    held.require_alive()
    held.release()
    again = other.probe("t")
    assert again is not None
    again.release()


def test_two_threads_never_hold_one_name(where: Where) -> None:
    locks, inside, most = locks_of(where), [], []

    def work() -> None:
        for _ in range(5):
            with hold(locks, ["t", "u"], wait_s=30):
                inside.append(1)
                most.append(len(inside))
                time.sleep(0.002)
                inside.pop()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(most) == 20
    assert max(most) == 1


def test_c3_a_lock_dies_with_its_process(where: Where) -> None:
    locks = locks_of(where)
    assert run(child.hold_and_die, where, "t") == KILLED
    held = locks.probe("t")
    assert held is not None
    held.release()


def test_waiting_for_a_live_holder_ends_with_an_error(where: Where) -> None:
    held = locks_of(where).acquire("t", wait_s=1)
    assert held is not None
    with (
        pytest.raises(StorageFailed, match="waited"),
        hold(locks_of(where), ["t"], wait_s=0.1),
    ):
        pass
    held.release()


def test_holding_several_if_idle_takes_all_or_none(local: Where) -> None:
    locks = locks_of(local)
    held = locks.acquire("b", wait_s=0)
    assert held is not None
    with hold_if_idle(locks, ["a", "b"]) as guard:
        assert guard is None
        free = locks.probe("a")
        assert free is not None, "the first of them was not given back"
        free.release()
    held.release()
    with hold_if_idle(locks, ["a", "b"]) as guard:
        assert guard is not None


def test_a_lock_that_is_kept_may_be_held_again_by_what_its_holder_calls(where: Where) -> None:
    mine, other = locks_of(where), locks_of(where)
    with hold(mine, ["b", "c"]) as turn:
        kept = turn.locks
        with hold(mine, ["b", "d"], kept=kept, wait_s=0) as guard:
            guard.require_alive()
            assert guard.locks.keys() == {"b", "d"}
            with hold(mine, ["b", "d"], kept={**kept, **guard.locks}, wait_s=0):
                pass
        with hold_if_idle(mine, ["b"], kept=kept) as idle:
            assert idle is not None, "the holder before us is gone"
        assert other.probe("b") is None, "it was given back too early"
        assert mine.probe("b") is None
        with hold_if_idle(mine, ["b"]) as idle:
            assert idle is None, "a lock that was not passed on is not ours"
        with hold_if_idle(other, ["d"]) as idle:
            assert idle is not None, "a lock that was only held inside is free again"
    with hold(other, ["b", "c", "d"], wait_s=1):
        pass


def test_a_lock_that_comes_before_a_kept_one_is_not_waited_for(where: Where) -> None:
    mine, other = locks_of(where), locks_of(where)
    with hold(mine, ["b"]) as turn, hold(other, ["a", "c"]):
        with (
            pytest.raises(LockTaken, match="the write lock a"),
            hold(mine, ["a"], kept=turn.locks),
        ):
            pass
        with (
            pytest.raises(StorageFailed, match=r"waited 0\.2 s for the write lock c"),
            hold(mine, ["c"], kept=turn.locks, wait_s=0.2),
        ):
            pass


def test_a_kept_lease_that_ran_out_is_noticed_by_the_one_that_holds_it_again(s3: Where) -> None:
    spot = root_of(s3.uri, s3.options)
    stats = Stats()
    objects = Objects(spot, stats)
    locks = LeaseLocks(objects, stats, term_s=0.6)
    with hold(locks, ["t"]) as turn, hold(locks, ["t"], kept=turn.locks) as guard:
        objects.put(f"{FOLDER}/t.json", b'{"owner": "somebody", "nonce": ""}')
        time.sleep(0.6)
        with pytest.raises(StorageFailed, match="ran out"):
            guard.require_alive()


def test_a_lease_is_renewed_for_longer_than_its_term(s3: Where) -> None:
    held = locks_of(s3, term_s=1.2).acquire("t", wait_s=1)
    assert held is not None
    time.sleep(2)
    held.require_alive()
    assert locks_of(s3, term_s=1.2).probe("t") is None
    held.release()


def test_an_impatient_look_never_waits_and_remembers(s3: Where) -> None:
    other = locks_of(s3)
    run(child.hold_and_die, s3, "t")
    start = time.monotonic()
    assert other.probe("t", patient=False) is None
    assert time.monotonic() - start < 0.9
    time.sleep(1.1)
    held = other.probe("t", patient=False)
    assert held is not None, "the lease stood still for longer than its term"
    held.release()


def test_six_dead_leases_are_waited_for_once(s3: Where, monkeypatch: pytest.MonkeyPatch) -> None:
    """Dead on another machine, as far as this one can tell."""
    monkeypatch.setattr(locks_module, "is_dead", lambda mark: False)
    names = [f"t{number}" for number in range(6)]
    run(child.hold_and_die, s3, " ".join(names))
    start = time.monotonic()
    with hold(locks_of(s3), names) as guard:
        assert guard.locks.keys() == set(names)
    assert time.monotonic() - start < 2.5


def test_a_holder_that_died_on_this_machine_is_not_waited_for_a_whole_term(s3: Where) -> None:
    run(child.hold_and_die, s3, "t u", 10.0)
    start = time.monotonic()
    with hold(locks_of(s3, term_s=10.0), ["t", "u"]) as guard:
        guard.require_alive()
    assert 2.0 < time.monotonic() - start < 6.0


def test_a_holder_that_lives_on_this_machine_is_not_taken_for_dead() -> None:
    mark = own_mark()
    assert mark is not None
    assert not is_dead(mark)
    assert not is_dead({**mark, "boot": "another machine"})
    assert not is_dead({**mark, "file": uuid.uuid4().hex}), "a file that was cleaned away"
    assert not is_dead({**mark, "file": "../../etc/passwd"})
    assert not any(map(is_dead, [None, {}, [], "x", {"boot": mark["boot"]}]))


def test_a_process_that_was_killed_is_known_to_be_dead(tmp_path: Path) -> None:
    assert run(child.mark_and_die, str(tmp_path / "mark")) == KILLED
    mark = json.loads((tmp_path / "mark").read_text())
    assert is_dead(mark)
    assert is_dead(mark), "looking leaves no trace"
    assert mark != own_mark()


def test_a_lease_of_an_earlier_program_is_waited_for(s3: Where) -> None:
    spot = root_of(s3.uri, s3.options)
    Objects(spot, Stats()).put(f"{FOLDER}/t.json", b'{"owner": "somebody", "nonce": ""}')
    start = time.monotonic()
    with hold(locks_of(s3), ["t"]):
        assert time.monotonic() - start > 1.0


def test_a_lease_that_was_taken_over_is_noticed(s3: Where) -> None:
    spot = root_of(s3.uri, s3.options)
    stats = Stats()
    objects = Objects(spot, stats)
    held = LeaseLocks(objects, stats, term_s=0.6).acquire("t", wait_s=1)
    assert held is not None
    objects.put(f"{FOLDER}/t.json", b'{"owner": "somebody", "nonce": ""}')
    time.sleep(0.6)
    with pytest.raises(StorageFailed, match="ran out"):
        held.require_alive()
    held.release()
    left = objects.get(f"{FOLDER}/t.json")
    assert left is not None
    assert b"somebody" in left.data, "releasing a lost lease took it from its new holder"


def test_lock_files_stay_where_they_are(local: Where) -> None:
    locks = locks_of(local)
    with hold(locks, ["t"]):
        pass
    assert (Path(local.uri) / FOLDER / "t.lock").exists()


def test_unneeded_locks_that_nobody_holds_are_retired(
    where: Where, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(locks_module, "_IDLE_TERMS", 1)
    locks = locks_of(where, term_s=0.3)
    for name in ("idle", "needed"):
        with hold(locks, [name]):
            pass
    with hold(locks, ["held"]):
        time.sleep(1.2)
        asked = {"idle", "held"}
        if where.options:  # a file says by itself that it is held
            assert locks.retire(asked.__contains__, idle_s=0, confirm=False) == ("idle",)
        assert set(locks.known("")) == {"held", "idle", "needed"}
        assert locks.retire(asked.__contains__, idle_s=60, confirm=True) == (
            () if where.options else ("idle",)
        )
        locks.retire(asked.__contains__, idle_s=0, confirm=True)
        assert locks.known("") == ("held", "needed")
        assert locks_of(where, term_s=0.3).probe("held") is None
    with hold(locks, ["idle"]):
        assert locks_of(where, term_s=0.3).probe("idle") is None, "its name is as good as new"


def test_a_lock_that_is_retired_again_and_again_has_one_holder(local: Where) -> None:
    locks, inside, most = locks_of(local), [], []
    done = threading.Event()

    def work() -> None:
        for _ in range(40):
            with hold(locks, ["t"], wait_s=30):
                inside.append(1)
                most.append(len(inside))
                time.sleep(0.0005)
                inside.pop()

    def retire() -> None:
        while not done.is_set():
            locks.retire(lambda name: True, idle_s=0, confirm=True)

    threads = [threading.Thread(target=work) for _ in range(4)]
    retiring = threading.Thread(target=retire)
    for thread in (retiring, *threads):
        thread.start()
    for thread in threads:
        thread.join()
    done.set()
    retiring.join()
    assert len(most) == 160
    assert max(most) == 1


def test_a_lease_whose_name_never_comes_again_leaves_nothing(s3: Where) -> None:
    locks = locks_of(s3)
    with hold(locks, ["once", "again"]):
        locks.discard(["once"], for_good=True)
        locks.discard(["again"])
    assert locks.known("") == ("again",)


def test_threads_get_a_lock_in_the_order_they_came(where: Where) -> None:
    locks = locks_of(where)
    held = locks.acquire("a", wait_s=0)
    assert held is not None
    got: list[int] = []

    def take(number: int) -> None:
        lock = locks.acquire("a", wait_s=30)
        assert lock is not None
        got.append(number)
        lock.release()

    threads = [threading.Thread(target=take, args=(number,)) for number in range(6)]
    for count, thread in enumerate(threads, 1):
        thread.start()
        while sum(map(len, waiting_line._lines.values())) < count:
            time.sleep(0.001)
    assert locks.acquire("a", wait_s=0.05) is None, "its time ends in the line"
    assert locks.acquire("a", wait_s=0) is None
    other = locks.acquire("b", wait_s=0)
    assert other is not None
    held.release()
    for thread in threads:
        thread.join(30)
    assert got == list(range(6))
    assert waiting_line._lines == {}
    again = locks.acquire("a", wait_s=0)
    assert again is not None
    for lock in (other, again):
        lock.release()
