"""Commits by one conditional put: the versions that Lance would have made, or none."""

import pickle
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import lance
import pytest
from lance.dataset import LanceOperation, Transaction
from lance.fragment import write_fragments

from omnigraph.errors import NotFound, OmnigraphError, StorageFailed
from omnigraph.storage.lance import strict_commit
from omnigraph.storage.lance.datasets import Datasets, Handle, VersionTaken
from omnigraph.storage.lance.protobuf import decoded
from omnigraph.storage.lance.strict_commit import FreshHandle, now_s, writer_of
from omnigraph.storage.locks.locks import hold
from omnigraph.storage.locks.turns import Turn
from omnigraph.storage.manifest.state import LOCATION, publish_lock
from omnigraph.storage.protocol.intent import WriterKind
from omnigraph.storage.retry import MERGE
from tests.storage.s3 import Server
from tests.storage.world import CITY, PERSON, Where, append, content, heads_agree, put, rows

VARYING = {
    2,  # fragments: their files have random names
    3, 7, 12,  # where sections lie, the moment, the name of the transaction
    23,  # where the transaction lies
}  # fmt: skip
STAMPS = [
    "id",
    "n",
    "_rowid",
    "_rowaddr",
    "_row_created_at_version",
    "_row_last_updated_at_version",
]

Staged = Callable[[Handle], Transaction]


def added(*names: str) -> Staged:
    def staged(handle: Handle) -> Transaction:
        table = rows(PERSON, dict.fromkeys(names, 1))
        fragments = write_fragments(table, writer_of(handle), mode="append")
        return Transaction(handle.version, LanceOperation.Append(fragments))

    return staged


def swapped(fragment: int, offset: int, name: str) -> Staged:
    """A row goes and another comes, as a publish does it."""

    def staged(handle: Handle) -> Transaction:
        left = handle.get_fragment(fragment).delete_rows([offset])
        fresh = write_fragments(rows(PERSON, {name: 2}), writer_of(handle), mode="append")
        operation = LanceOperation.Update(
            removed_fragment_ids=[fragment] if left is None else [],
            updated_fragments=[] if left is None else [left],
            new_fragments=fresh,
            fields_for_preserving_frag_bitmap=[0, 1],
            update_mode="rewrite_rows",
        )
        return Transaction(handle.version, operation)

    return staged


def removed(fragment: int, offset: int) -> Staged:
    def staged(handle: Handle) -> Transaction:
        left = handle.get_fragment(fragment).delete_rows([offset])
        return Transaction(handle.version, LanceOperation.Delete([left], [], ""))

    return staged


WALK = [added("a", "b", "c"), added("d"), swapped(0, 1, "b"), swapped(1, 0, "d"), removed(0, 0)]


def described(handle: Handle) -> list[tuple[int, int | bytes]]:
    """What a version's file says, but for names that are drawn and moments."""
    message = decoded(handle._ds.serialized_manifest())
    return [each for each in message if each[0] not in VARYING]


def reopened(datasets: Datasets, location: str, branch: str | None) -> Handle:
    """The newest version, as a program sees it that knows nothing."""
    uri = datasets.uri(location, branch)
    return lance.dataset(uri, storage_options=datasets._where.storage_options)


@pytest.mark.parametrize("branch", [None, "review"])
def test_versions_are_those_that_lance_would_have_made(s3: Where, branch: str | None) -> None:
    datasets = s3.create().datasets
    tables = []
    for location, seen_at in (("nodes/strict", now_s()), ("nodes/plain!", None)):
        handle = datasets.create(location, rows(PERSON, {}))
        if branch and seen_at:
            made = datasets.strict.fork(handle, location, branch)
            assert made is not None
            handle = made[0]
        elif branch:
            datasets.create_branch(location, branch, source=None, version=1)
            handle = datasets.open(location, branch)
        for staged in WALK:
            handle = datasets.commit(handle, staged(handle), seen_at=seen_at)
            assert isinstance(handle, FreshHandle) is (seen_at is not None)
        fresh = reopened(datasets, location, branch)
        fresh.validate()
        assert fresh.version == handle.version == 1 + len(WALK)
        assert handle.to_table(columns=STAMPS).equals(fresh.to_table(columns=STAMPS))
        assert handle.count_rows() == fresh.count_rows() == 3
        assert fresh.read_transaction(fresh.version) is not None
        tables.append(fresh)
    ours, lances = tables
    assert ours.to_table(columns=STAMPS).equals(lances.to_table(columns=STAMPS))
    if branch is None:
        assert described(ours) == described(lances)
    gone = [t.delta(compared_against=3).get_deleted_row_ids().read_all() for t in tables]
    assert gone[0] == gone[1]


def test_a_branch_names_no_folder_of_this_machine(s3: Where) -> None:
    store = s3.create()
    append(store, PERSON, "a")
    store.branches.create("review")
    append(store, PERSON, "b", branch="review")
    for path in store.objects.list(""):
        stored = store.objects.get(path)
        assert stored is not None
        assert b"/tmp" not in stored.data, path
    assert set(content(s3.open(), "review")[PERSON]) == {"a", "b"}


def test_of_commits_from_one_version_one_is_made(s3: Where) -> None:
    datasets = s3.create().datasets
    base = datasets.create("nodes/raced", rows(PERSON, {}))
    staged = [added(f"r{number}")(base) for number in range(6)]

    def commit(transaction: Transaction) -> bool:
        try:
            datasets.commit(base, transaction, seen_at=now_s())
        except VersionTaken:
            return False
        return True

    with ThreadPoolExecutor(6) as threads:
        assert sum(threads.map(commit, staged)) == 1
    head = reopened(datasets, "nodes/raced", None)
    assert (head.version, head.count_rows()) == (2, 1)


def test_a_put_that_a_client_repeats_does_not_lose_against_itself(
    s3: Where, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = s3.create()
    put_if_absent = store.objects.put_if_absent

    def answer_lost(path: str, data: bytes) -> str | None:
        put_if_absent(path, data)
        return put_if_absent(path, data)

    append(store, PERSON, "a")
    monkeypatch.setattr(store.objects, "put_if_absent", answer_lost)
    append(store, PERSON, "b")
    assert set(content(s3.open())[PERSON]) == {"a", "b"}


def test_a_base_that_was_seen_long_ago_is_left_to_lance(
    s3: Where, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A number that cleanup freed would seem unused."""
    datasets = s3.create().datasets
    handle = datasets.create("nodes/late", rows(PERSON, {}))
    seen_at = now_s()
    monkeypatch.setattr(strict_commit, "SEEN_MAX_S", -1.0)
    handle = datasets.commit(handle, added("a")(handle), seen_at=seen_at)
    assert not isinstance(handle, FreshHandle)
    assert handle.count_rows() == 1


def test_a_fresh_handle_pickles_and_scans(s3: Where) -> None:
    datasets = s3.create().datasets
    handle = datasets.create("nodes/kept", rows(PERSON, {}))
    handle = datasets.commit(handle, added("a", "b")(handle), seen_at=now_s())
    again = pickle.loads(pickle.dumps(handle))
    assert again.to_table(columns=["id"]).equals(handle.to_table(columns=["id"]))
    assert handle.schema == again.schema
    assert handle.scanner(filter="id = 'a'").count_rows() == 1
    assert [f.fragment_id for f in handle.get_fragments()] == [0]


def test_a_head_that_ran_ahead_refuses_the_write_and_leaves_no_note(s3: Where) -> None:
    store = s3.create()
    append(store, PERSON, "a")
    pin = store.snapshot().tables[PERSON]
    lance.write_dataset(
        rows(PERSON, {"foreign": 1}),
        store.datasets.uri(pin.location, None),
        mode="append",
        storage_options=s3.options,
    )
    with pytest.raises(StorageFailed, match="run `omnigraph repair`"):
        append(store, PERSON, "b")
    assert store.sidecars.pending() == ()
    assert set(content(store)[PERSON]) == {"a"}
    append(store, CITY, "x")
    assert set(content(s3.open())[CITY]) == {"x"}


def test_writers_of_other_tables_publish_beside_each_other(s3: Where) -> None:
    """Their tables' locks differ, and the publish lock keeps them apart."""
    stores = [s3.create(), s3.open()]
    tables = [PERSON, CITY]

    def write(writer: int) -> None:
        for number in range(6):
            append(stores[writer], tables[writer], f"r{number}")

    for writer in (0, 1):
        append(stores[writer], tables[writer], "first")
    with ThreadPoolExecutor(2) as threads:
        list(threads.map(write, (0, 1)))
    seen = content(s3.open())
    assert len(seen[PERSON]) == len(seen[CITY]) == 7
    assert len(stores[0].history.list()) == 15
    assert heads_agree(stores[0])


def test_a_lone_writer_waits_for_whoever_keeps_the_publish_lock(s3: Where) -> None:
    """A merge in its turn keeps it, and would lose to a writer that never pauses."""
    store, other = s3.create(), s3.open()
    append(store, PERSON, "a")
    with ThreadPoolExecutor(1) as thread:
        with hold(other.locks, [publish_lock("main")]):
            late = thread.submit(append, store, PERSON, "b")
            with pytest.raises(TimeoutError):
                late.result(2)
            assert set(content(other)[PERSON]) == {"a"}
        late.result(60)
    assert set(content(other)[PERSON]) == {"a", "b"}


def test_a_conditional_write_gets_in_beside_a_writer_that_never_pauses(s3: Where) -> None:
    store, other = s3.create(), s3.open()
    append(store, PERSON, "a")
    stop = threading.Event()

    def insert() -> int:
        number = 0
        while not stop.is_set():
            number += 1
            append(store, PERSON, f"r{number}")
        return number

    def serial(turn: Turn) -> None:
        """A write that holds only if the branch head stands still."""
        head = other.snapshot().commit_id
        write = other.begin(kind=WriterKind.MUTATION, turn=turn)
        write.append(CITY, rows(CITY, {"y": 1}))
        other.commit(write, expected_head=head)

    with ThreadPoolExecutor(1) as thread:
        busy = thread.submit(insert)
        try:
            other.turns.prepared_again(serial, budget=MERGE)
        finally:
            stop.set()
        written = busy.result(120)
    assert len(content(other)[PERSON]) == written + 1
    assert set(content(other)[CITY]) == {"y"}
    assert heads_agree(other)


def test_a_first_write_and_the_deletion_of_its_branch_exclude_each_other(s3: Where) -> None:
    """Neither is lost: a write that was acknowledged was on the branch that was deleted."""
    store, other = s3.create(), s3.open()
    append(store, PERSON, "a")
    for number in range(4):
        name = f"b{number}"
        store.branches.create(name)

        def write(name: str = name) -> bool:
            try:
                put(other, {PERSON: {"x": 1}, CITY: {"y": 1}}, branch=name)
            except NotFound:
                return False
            return True

        with ThreadPoolExecutor(2) as threads:
            wrote, deleted = threads.submit(write), threads.submit(store.branches.delete, name)
            deleted.result()
            wrote.result()
        assert name not in store.branches.list()
        assert not store.objects.list(f"{LOCATION}/tree/{name}")
    assert store.heal() == ()
    append(store, PERSON, "b")
    assert set(content(store)[PERSON]) == {"a", "b"}


def test_a_deleted_branch_leaves_nothing_and_can_be_made_again(s3: Where) -> None:
    store = s3.create()
    append(store, PERSON, "a")
    store.branches.create("review")
    put(store, {PERSON: {"b": 1}, CITY: {"x": 1}}, branch="review")
    before = store.branches.identity("review")
    store.branches.delete("review")
    assert [
        path for path in store.objects.list("") if "review" in path and "__locks" not in path
    ] == []
    with pytest.raises(NotFound):
        store.snapshot("review")
    store.branches.create("review")
    assert store.branches.identity("review") != before
    put(store, {PERSON: {"c": 1}}, branch="review")
    assert set(content(s3.open(), "review")[PERSON]) == {"a", "c"}


def test_a_branch_that_others_were_made_from_stays(s3: Where) -> None:
    store = s3.create()
    store.branches.create("parent")
    append(store, PERSON, "a", branch="parent")
    store.branches.create("child", source="parent")
    append(store, PERSON, "b", branch="child")
    with pytest.raises(OmnigraphError, match="'child'"):
        store.branches.delete("parent")
    assert set(content(s3.open(), "child")[PERSON]) == {"a", "b"}
    store.branches.delete("child")
    store.branches.delete("parent")
    assert store.branches.list() == ("main",)


def test_what_is_left_in_the_place_of_a_branch_is_cleared_away(s3: Where) -> None:
    store = s3.create()
    append(store, PERSON, "a")
    pin = store.snapshot().tables[PERSON]
    junk = f"{pin.location}/tree/review/_versions/{2**64 - 1 - 40:020d}.manifest"
    store.objects.put(junk, b"junk")
    store.branches.create("review")
    append(store, PERSON, "b", branch="review")
    assert set(content(s3.open(), "review")[PERSON]) == {"a", "b"}
    assert junk not in store.objects.list(pin.location)


def test_one_look_at_a_table_of_several_is_made_before_its_head_moves(s3_server: Server) -> None:
    """Of a write to several tables each head is looked at: the second would be refused after the
    first had moved."""
    where = s3_server.place()
    store = where.create()
    put(store, {PERSON: {"a": 1}, CITY: {"x": 1}})
    pin = store.snapshot().tables[CITY]
    lance.write_dataset(
        rows(CITY, {"foreign": 1}),
        store.datasets.uri(pin.location, None),
        mode="append",
        storage_options=where.options,
    )
    with pytest.raises(StorageFailed, match="run `omnigraph repair`"):
        put(store, {PERSON: {"b": 1}, CITY: {"y": 1}})
    person = store.snapshot().tables[PERSON]
    assert store.datasets.head(person.location, None) == person.version
