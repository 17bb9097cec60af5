"""Writes based on a recent state of the branch: a stale base is noticed before it is durable. Reads
that share a look: they see what was published before they were asked for."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import count

import pytest

from omnigraph.errors import NotFound, RecoveryRequired, VersionMismatch
from omnigraph.storage import failpoints
from omnigraph.storage.lance.datasets import Datasets
from omnigraph.storage.manifest import manifest
from omnigraph.storage.protocol.intent import WriterKind
from omnigraph.storage.protocol.sidecars import Sidecar
from omnigraph.storage.protocol.write import Write
from omnigraph.storage.store import Store
from tests.storage.world import CITY, KNOWS, PERSON, Where, append, content, rows

numbers = count()


def begun(store: Store, branch: str = "main") -> Write:
    write = store.begin(branch, kind=WriterKind.MUTATION, recent=True)
    write.append(PERSON, rows(PERSON, {f"recent{next(numbers)}": 1}))
    return write


def test_a_base_that_was_overtaken_is_found_under_the_locks(store: Store, local: Where) -> None:
    append(store, PERSON, "a")
    append(local.open(), PERSON, "b")
    write = begun(store)
    assert not store.is_current(write)
    with pytest.raises(VersionMismatch) as told:
        store.commit(write)
    assert told.value.table_key == PERSON
    assert store.sidecars.pending() == ()
    assert set(content(store)[PERSON]) == {"a", "b"}


def test_a_table_that_was_only_read_is_checked_too(store: Store, local: Where) -> None:
    append(store, PERSON, "a")
    append(local.open(), CITY, "x")
    write = begun(store)
    write.read(CITY)
    with pytest.raises(VersionMismatch, match=CITY):
        store.commit(write)
    write = begun(store)
    write.read(CITY)
    store.commit(write)


def test_p4_a_publisher_from_an_old_state_loses_and_looks_again(
    store: Store, local: Where, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other tables are published after this write checked its base: nothing it relies on moved."""
    append(store, PERSON, "a")
    other = local.open()
    note = store.sidecars.write

    def noted_while_others_publish(sidecar: Sidecar, staged: list[str]) -> None:
        note(sidecar, staged)
        for number in range(3):
            append(other, CITY, f"x{number}")
            append(other, KNOWS, f"k{number}")

    monkeypatch.setattr(store.sidecars, "write", noted_while_others_publish)
    store.commit(begun(store))
    assert store.stats.view().events["phase_c.raced"] == 1
    assert len(content(store)[CITY]) == 3
    assert content(store) == content(local.open())
    assert len(store.history.dag("main")) == 1 + 1 + 6 + 1


def test_what_others_published_before_the_locks_costs_no_race(store: Store, local: Where) -> None:
    append(store, PERSON, "a")
    write = begun(store)
    append(local.open(), CITY, "x")
    store.commit(write)
    assert store.stats.view().events.get("phase_c.raced", 0) == 0
    assert len(content(store)[CITY]) == 1


def test_while_others_publish_every_write_looks(store: Store, local: Where) -> None:
    other = local.open()
    for number in range(4):
        append(other, CITY, f"x{number}")
        store.commit(begun(store))
    assert store.stats.view().events.get("phase_c.raced", 0) <= 1


def test_an_old_look_is_not_built_on(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    append(store, PERSON, "a")
    monkeypatch.setattr(manifest, "RECENT_S", -1.0)
    before = store.stats.view()
    begun(store)
    assert store.stats.view().since(before).calls["object.head"] == 1


def test_a_branch_that_came_again_is_not_taken_for_the_old_one(store: Store, local: Where) -> None:
    store.branches.create("b")
    append(store, PERSON, "a", branch="b")
    other = local.open()
    other.branches.delete("b")
    other.branches.create("b")
    write = begun(store, "b")
    with pytest.raises((NotFound, VersionMismatch)):
        store.commit(write)
    assert not store.is_current(write)
    assert content(store, "b")[PERSON] == {}


def test_a_write_to_a_dropped_table_is_undone_and_told(store: Store, local: Where) -> None:
    append(store, PERSON, "a")
    write = store.begin(kind=WriterKind.MUTATION, recent=True)
    write.append(PERSON, rows(PERSON, {"b": 1}))
    write.append(CITY, rows(CITY, {"x": 1}))
    other = local.open()
    dropping = other.begin_schema_change()
    dropping.drop_table(PERSON)
    other.commit(dropping)
    with pytest.raises(VersionMismatch, match=PERSON):
        store.commit(write)
    assert store.sidecars.pending() == ()
    assert PERSON not in store.snapshot().tables
    assert store.reader(store.snapshot(), CITY).count() == 0
    append(store, CITY, "y")


def test_what_a_dead_writer_left_is_met_before_anything_is_written(
    store: Store, local: Where
) -> None:
    append(store, PERSON, "a")
    write = begun(store)
    with failpoints.armed("commit.table_after"), pytest.raises(RecoveryRequired):
        append(local.open(), PERSON, "dead")
    with pytest.raises(VersionMismatch):
        store.commit(write)
    assert store.sidecars.pending() == ()


def test_x2_versions_that_others_published_are_counted_up_not_listed(
    store: Store, local: Where, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A listing reads the name of every version that there is, for each commit of another."""
    other = local.open()
    listings: list[str] = []
    listed = Datasets.head

    def head(self: Datasets, location: str, branch: str | None) -> int:
        listings.append(location)
        return listed(self, location, branch)

    monkeypatch.setattr(Datasets, "head", head)
    for commits in (1, 2, 3, 9):
        for _ in range(commits):
            append(other, PERSON, f"other{next(numbers)}")
        assert store.manifest.state("main").version == other.manifest.state("main").version
    assert listings == []
    monkeypatch.setattr(manifest, "RECLAIM_AGE_S", -1.0)  # versions between may have been removed
    append(other, PERSON, f"other{next(numbers)}")
    assert store.manifest.state("main").version == other.manifest.state("main").version
    assert listings


def test_reads_that_were_asked_for_before_a_look_began_share_it(store: Store, local: Where) -> None:
    append(store, PERSON, "a")
    asked_at = time.monotonic()
    append(local.open(), PERSON, "b")
    before = store.stats.view()
    seen = [store.snapshot(since=asked_at) for _ in range(20)]
    assert store.stats.view().since(before).calls["object.head"] <= 2
    assert len(set(map(id, seen))) == 1
    assert seen[0].tables[PERSON].row_count == 2


def test_a_read_that_is_asked_for_after_a_look_began_looks(store: Store, local: Where) -> None:
    other = local.open()
    for number in range(5):
        append(other, PERSON, f"p{number}")
        assert store.snapshot(since=time.monotonic()).tables[PERSON].row_count == number + 1


def test_no_look_of_a_branch_before_its_deletion_is_shared(store: Store, local: Where) -> None:
    store.branches.create("b")
    other = local.open()
    store.snapshot("b")
    other.branches.delete("b")
    with pytest.raises(NotFound):
        store.snapshot("b", since=time.monotonic())


def test_shared_looks_miss_nothing_that_was_published_before_they_were_asked_for(
    store: Store, local: Where
) -> None:
    append(store, PERSON, "first")
    known, ended = [1], threading.Event()

    def publish() -> None:
        other = local.open()
        for number in range(25):
            append(other, PERSON, f"p{number}")
            known[0] += 1
        ended.set()

    def read() -> list[tuple[int, int]]:
        seen = []
        while not ended.is_set():
            least, asked_at = known[0], time.monotonic()
            time.sleep(0.0005)  # it waits for a thread, and others look meanwhile
            seen.append((least, store.snapshot(since=asked_at).tables[PERSON].row_count))
        return seen

    with ThreadPoolExecutor(5) as threads:
        readers = [threads.submit(read) for _ in range(4)]
        threads.submit(publish).result()
        for reader in readers:
            assert all(rows >= least for least, rows in reader.result())
