"""Recovery: the six classes, and what each leads to."""

import shutil
import threading
import time
from typing import Any

import pytest

from omnigraph.costs import COSTS
from omnigraph.errors import NotFound, RecoveryRequired, StorageFailed, VersionMismatch
from omnigraph.storage import failpoints
from omnigraph.storage.lance.inline_commits import InlineResidual
from omnigraph.storage.locks.locks import Guard, hold
from omnigraph.storage.locks.turns import Turn
from omnigraph.storage.manifest.state import publish_lock
from omnigraph.storage.names import lock_name
from omnigraph.storage.protocol.intent import Intent, WriterKind
from omnigraph.storage.protocol.recover import HeadClass, Recoverer, classify
from omnigraph.storage.protocol.sidecars import (
    Sidecar,
    SidecarTable,
    decode_sidecar,
    encode_sidecar,
)
from omnigraph.storage.records import RECOVERY_ACTOR, CommitId, OperationId, TablePin
from omnigraph.storage.store import Store
from omnigraph.types import TableKey
from tests.storage.world import CITY, PERSON, Where, append, content, heads_agree, put, rows

TABLE = SidecarTable(PERSON, "nodes/p", None, "", expected_version=5, post_commit_pin=6)
CONFIRMED = SidecarTable(
    PERSON, "nodes/p", None, "", expected_version=5, post_commit_pin=7, confirmed_version=8
)


@pytest.mark.parametrize(
    ("table", "pin", "head", "ours", "multi_step", "finding"),
    [
        (TABLE, 5, 5, True, False, HeadClass.NO_MOVEMENT),
        (TABLE, 6, 6, False, False, HeadClass.NO_MOVEMENT),
        (TABLE, 5, 6, True, False, HeadClass.ROLLED_PAST_EXPECTED),
        (TABLE, 5, 6, False, False, HeadClass.UNEXPECTED_AT_P1),
        (TABLE, 5, 7, True, False, HeadClass.UNEXPECTED_MULTISTEP),
        (TABLE, 5, 9, False, False, HeadClass.UNEXPECTED_MULTISTEP),
        (TABLE, 5, 6, True, True, HeadClass.INCOMPLETE_PHASE_B),
        (TABLE, 5, 5, True, True, HeadClass.NO_MOVEMENT),
        (CONFIRMED, 5, 8, True, True, HeadClass.ROLLED_PAST_EXPECTED),
        (CONFIRMED, 5, 9, True, True, HeadClass.UNEXPECTED_MULTISTEP),
        (CONFIRMED, 5, 6, True, True, HeadClass.UNEXPECTED_AT_P1),
        (TABLE, 5, 4, True, False, HeadClass.INVARIANT_VIOLATION),
    ],
)
def test_r_a_table_is_classified(
    table: SidecarTable, pin: int, head: int, ours: bool, multi_step: bool, finding: HeadClass
) -> None:
    assert classify(table, pin=pin, head=head, ours=ours, multi_step=multi_step) is finding


def test_a_sidecar_says_what_its_write_is_about_to_do(store: Store) -> None:
    append(store, PERSON, "a")
    with failpoints.armed("commit.sidecar_written"), pytest.raises(OSError, match="failpoint"):
        append(store, PERSON, "b")
    (operation,) = store.sidecars.pending()
    sidecar = store.sidecars.read(operation)
    assert sidecar is not None
    assert (sidecar.intent.kind, sidecar.intent.actor) == ("mutation", "act-test")
    assert sidecar.branch == "main"
    assert sidecar.operation_id == operation
    (table,) = sidecar.tables
    pin = store.snapshot().tables[PERSON]
    assert (table.table_key, table.table_path) == (PERSON, pin.location)
    assert (table.expected_version, table.post_commit_pin) == (2, 3)
    assert decode_sidecar(encode_sidecar(sidecar), path="x") == sidecar


@pytest.mark.parametrize(
    "data", [b"", b"[]", b"{}", b'{"format": 9}', b'{"format": 1, "tables": []}', b"\xff\xfe"]
)
def test_a_sidecar_that_cannot_be_understood_is_refused(data: bytes) -> None:
    with pytest.raises(StorageFailed, match="corrupt"):
        decode_sidecar(data, path="__recovery/x.json")


def foreign(store: Store, *ids: str) -> None:
    """Move a table head without the protocol, as a stray tool would."""
    staged = store.tables.stage_append(
        store.snapshot().tables[PERSON], rows(PERSON, dict.fromkeys(ids, 1))
    )
    store.datasets.commit(staged.handle, staged.transaction)


def note(store: Store, *tables: SidecarTable) -> Sidecar:
    intent = Intent(
        operation_id=OperationId("01JZ0000000000000000000001"),
        kind=WriterKind.MUTATION,
        actor="act-x",
        branch="main",
        commit_id=CommitId("01JZ0000000000000000000002"),
        rollback_id=CommitId("01JZ0000000000000000000003"),
    )
    sidecar = Sidecar(intent, tables)
    store.sidecars.write(sidecar)
    return sidecar


def person(store: Store, expected: int) -> SidecarTable:
    location = store.snapshot().tables[PERSON].location
    return SidecarTable(PERSON, location, None, "", expected, expected + 1)


def test_r3_a_head_that_is_not_ours_is_rolled_back(store: Store, local: Where) -> None:
    append(store, PERSON, "a")
    note(store, person(store, 2))
    foreign(store, "stray")
    again = local.open()
    assert content(again)[PERSON] == {"a": 1}
    assert heads_agree(again)
    (row,) = again.audit.list()
    assert (row.recovery_kind, row.recovery_for_actor) == ("RolledBack", "act-x")
    outcome = row.per_table_outcomes[0]
    assert (outcome.from_version, outcome.to_version) == (3, 2)
    assert again.snapshot().tables[PERSON].version == 4, "published at the restored head"
    append(again, PERSON, "b")


def test_r1_a_head_behind_its_pin_stops_loudly_and_keeps_the_sidecar(
    store: Store, local: Where
) -> None:
    append(store, PERSON, "a")
    append(store, PERSON, "b")
    pin = store.snapshot().tables[PERSON]
    note(store, person(store, 3))
    newest = min((store.where.path / pin.location / "_versions").iterdir())  # type: ignore[operator]
    newest.unlink()
    with pytest.raises(StorageFailed, match="behind its published version"):
        local.open()
    assert len(store.sidecars.pending()) == 1
    assert store.audit.list() == ()
    assert local.open(read_only=True).sidecars.pending() != ()


def test_a_stale_note_of_a_write_that_never_moved_harms_no_later_write(
    store: Store, local: Where
) -> None:
    """Its writer died before the first head moved, and another writer passed by before anyone
    looked: the later write's versions are not taken for the dead one's."""
    stale = person(store, 1)
    append(store, PERSON, "later")
    note(store, stale)
    again = local.open()
    assert content(again)[PERSON] == {"later": 1}
    assert [row.recovery_kind for row in again.audit.list()] == ["RolledBack"]
    assert heads_agree(again)


def test_r2_a_roll_forward_keeps_the_commit_id_and_names_its_actor(
    store: Store, local: Where
) -> None:
    with failpoints.armed("publish.before"), pytest.raises(RecoveryRequired) as stopped:
        put(store, {PERSON: {"a": 1}, CITY: {"x": 1}}, actor="act-ada")
    sidecar = store.sidecars.read(OperationId(stopped.value.operation_id))
    assert sidecar is not None
    again = local.open()
    (commit,) = again.history.list(actor=RECOVERY_ACTOR)
    assert commit.id == sidecar.intent.commit_id
    (row,) = again.audit.list()
    assert (row.graph_commit_id, row.recovery_for_actor) == (commit.id, "act-ada")
    assert row.sidecar_writer_kind == "mutation"
    assert {(o.table_key, o.from_version, o.to_version) for o in row.per_table_outcomes} == {
        (PERSON, 1, 2),
        (CITY, 1, 2),
    }


def test_a_sidecar_of_a_deleted_branch_is_discarded(store: Store, local: Where) -> None:
    store.branches.create("b")
    with failpoints.armed("publish.before"), pytest.raises(RecoveryRequired):
        put(store, {PERSON: {"a": 1}}, branch="b")
    store.branches.delete("b")
    again = local.open()
    assert again.sidecars.pending() == ()
    assert [row.recovery_kind for row in again.audit.list()] == ["OrphanedBranchDiscarded"]


def test_a_sidecar_whose_fork_was_cleaned_away_moved_nothing(store: Store, local: Where) -> None:
    store.branches.create("b")
    with failpoints.armed("commit.table_before"), pytest.raises(RecoveryRequired):
        put(store, {PERSON: {"a": 1}}, branch="b")
    store.datasets.delete_branch(store.snapshot().tables[PERSON].location, "b")
    again = local.open()
    assert [row.recovery_kind for row in again.audit.list()] == ["RolledBack"]
    append(again, PERSON, "next", branch="b")
    assert content(again, "b")[PERSON] == {"next": 1}


def test_a_sidecar_of_a_recreated_branch_is_discarded(store: Store, local: Where) -> None:
    store.branches.create("b")
    with failpoints.armed("publish.before"), pytest.raises(RecoveryRequired):
        put(store, {PERSON: {"old": 1}}, branch="b")
    store.branches.delete("b")
    store.branches.create("b")
    again = local.open()
    assert again.sidecars.pending() == ()
    assert [row.recovery_kind for row in again.audit.list()] == ["OrphanedBranchDiscarded"]
    assert content(again, "b")[PERSON] == {}
    append(again, PERSON, "new", branch="b")


@pytest.mark.parametrize("place", ["publish.before", "publish.after"])
def test_a_stopped_commit_without_tables_is_settled(store: Store, local: Where, place: str) -> None:
    with failpoints.armed(place), pytest.raises(RecoveryRequired):
        store.commit(store.begin(kind=WriterKind.BRANCH_MERGE))
    again = local.open()
    kind = "RolledBack" if place == "publish.before" else "RolledForward"
    assert [row.recovery_kind for row in again.audit.list()] == [kind]
    append(again, PERSON, "a")


def test_a_read_only_open_does_not_sweep(store: Store, local: Where) -> None:
    with failpoints.armed("publish.before"), pytest.raises(RecoveryRequired):
        append(store, PERSON, "a")
    reader = local.open(read_only=True)
    assert len(reader.sidecars.pending()) == 1
    assert content(reader)[PERSON] == {}


def test_h1_refreshing_a_live_process_settles_what_stopped(store: Store) -> None:
    with failpoints.armed("commit.table_after"), pytest.raises(RecoveryRequired):
        append(store, PERSON, "a")
    assert store.heal() == ()
    assert content(store)[PERSON] == {"a": 1}


def test_h2_a_write_that_waited_finds_the_sidecar_gone(store: Store, local: Where) -> None:
    """A writer dies after another one looked and before it has the lock."""
    late = store.begin(kind=WriterKind.MUTATION)
    late.append(PERSON, rows(PERSON, {"late": 1}))
    other = local.open()
    with failpoints.armed("publish.before"), pytest.raises(RecoveryRequired):
        append(other, PERSON, "dead")
    with pytest.raises(Exception, match="read again and retry"):
        store.commit(late)
    assert content(store)[PERSON] == {"dead": 1}
    assert store.sidecars.pending() == ()
    append(store, PERSON, "late")


def test_a_head_no_sidecar_explains_points_at_repair(store: Store) -> None:
    foreign(store, "stray")
    with pytest.raises(StorageFailed, match="omnigraph repair"):
        append(store, PERSON, "a")
    assert store.sidecars.pending() == ()
    append(store, CITY, "x")


@pytest.mark.parametrize("place", ["recover.restore_after", "recover.publish_before"])
def test_the_audit_names_the_version_that_was_undone_however_often_recovery_died(
    store: Store, local: Where, place: str
) -> None:
    append(store, PERSON, "a")
    with failpoints.armed("commit.table_after"), pytest.raises(RecoveryRequired):
        put(store, {PERSON: {"b": 1}, CITY: {"x": 1}})
    left = {key: store.datasets.head(pin.location, None) for key, pin in pins(store).items()}
    for _ in range(2):
        with failpoints.armed(place), pytest.raises(OSError, match=place):
            local.open()
    again = local.open()
    (row,) = again.audit.list()
    undone = {o.table_key: (o.from_version, o.to_version) for o in row.per_table_outcomes}
    assert undone == {PERSON: (left[PERSON], 2), CITY: (left[CITY], 1)}
    assert heads_agree(again)
    assert content(again)[PERSON] == {"a": 1}


def pins(store: Store) -> dict[TableKey, TablePin]:
    return store.snapshot().tables


def test_a_confirmed_sidecar_promises_the_version_that_its_table_reached(store: Store) -> None:
    write = store.begin(kind=WriterKind.BRANCH_MERGE)
    write.append(PERSON, rows(PERSON, {"a": 1}))
    write.then(PERSON, lambda tables, pin: None)
    write.then(PERSON, lambda tables, pin: tables.stage_append(pin, rows(PERSON, {"b": 1})))
    with failpoints.armed("commit.confirmed"), pytest.raises(RecoveryRequired) as stopped:
        store.commit(write)
    sidecar = store.sidecars.read(OperationId(stopped.value.operation_id))
    assert sidecar is not None
    (table,) = sidecar.tables
    assert table.post_commit_pin == table.confirmed_version == 3
    assert store.datasets.head(table.table_path, None) == 3


def test_h2_a_healer_that_keeps_locks_never_waits_out_of_order(
    store: Store, local: Where, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two writers that each kept the publish lock of a branch and healed a write of the other's
    waited for each other."""
    for branch in ("one", "two"):
        store.branches.create(branch)
        append(store, PERSON, "a", branch=branch)
    with failpoints.armed("commit.tables_done"), pytest.raises(RecoveryRequired):
        append(store, PERSON, "b", branch="one")
    monkeypatch.setitem(hold.__wrapped__.__kwdefaults__, "wait_s", 0.2)  # type: ignore[attr-defined]
    other = local.open(read_only=True)
    names = [lock_name(PERSON, "two"), publish_lock("two")]
    with hold(other.locks, [publish_lock("one")]), hold(store.locks, names) as guard:
        append(store, PERSON, "c", branch="two", turn=Turn(guard.locks))
        assert len(store.sidecars.pending()) == 1, "it is left to the next writer"
    append(store, PERSON, "c", branch="one")
    assert set(content(store, "one")[PERSON]) == {"a", "b", "c"}
    assert set(content(store, "two")[PERSON]) == {"a", "c"}
    assert store.sidecars.pending() == ()


def test_h2_a_dead_write_is_settled_under_the_locks_of_the_write_that_met_it(
    store: Store, local: Where, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once they are free, a crowd of writers has them and meets the same head, each in its turn."""
    append(store, PERSON, "a")
    other = local.open()
    met = store.begin(kind=WriterKind.MUTATION)
    met.append(PERSON, rows(PERSON, {"c": 1}))
    with failpoints.armed("commit.tables_done"), pytest.raises(RecoveryRequired):
        append(other, PERSON, "b")
    settle, free = Recoverer.settle, []

    def watched(recoverer: Recoverer, sidecar: Sidecar, guard: Guard) -> None:
        free.append(other.locks.probe(lock_name(PERSON, "main")))
        settle(recoverer, sidecar, guard)

    monkeypatch.setattr(Recoverer, "settle", watched)
    with pytest.raises(VersionMismatch):
        store.commit(met)
    assert free == [None]
    assert set(content(store)[PERSON]) == {"a", "b"}


def test_h3_a_live_rollback_never_orphans_a_concurrent_append(
    store: Store, local: Where, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process appends to a table while this one restores it: the lock lets it land before
    or after, and what it acknowledged is there."""
    other = local.open()
    append(store, CITY, "x")
    with failpoints.armed("commit.table_after"), pytest.raises(RecoveryRequired):
        put(store, {CITY: {"half": 1}, PERSON: {"half": 1}})
    restoring = threading.Event()
    restore = InlineResidual.restore

    def slowly(*arguments: Any) -> Any:
        restoring.set()
        time.sleep(0.5)
        return restore(*arguments)

    monkeypatch.setattr(InlineResidual, "restore", slowly)
    healer = threading.Thread(target=store.heal)
    healer.start()
    assert restoring.wait(30)
    late = other.turns.prepared_again(lambda turn: append(other, CITY, "late", turn=turn))
    healer.join()
    assert late.id in {commit.id for commit in store.history.list()}
    assert content(store)[CITY] == content(local.open())[CITY] == {"x": 1, "late": 1}
    assert [row.recovery_kind for row in store.audit.list()] == ["RolledBack"]
    assert heads_agree(store)


@pytest.mark.parametrize("gone", ["nodes", "nodes/*/_versions"])
def test_a_write_to_a_table_that_somebody_removed_is_not_acknowledged(
    store: Store, gone: str
) -> None:
    append(store, PERSON, "a")
    assert store.where.path is not None
    for folder in store.where.path.glob(gone):
        shutil.rmtree(folder)
    with pytest.raises(NotFound):
        append(store, PERSON, "b")
    assert store.sidecars.pending() == ()
    assert len(store.history.list()) == 2


def test_the_audit_of_many_recoveries_has_few_fragments(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(COSTS, "audit_fragments_min", 3)
    for number in range(9):
        with failpoints.armed("commit.tables_done"), pytest.raises(RecoveryRequired):
            append(store, PERSON, f"p{number}")
        store.heal()
    assert len(store.audit.list()) == 9
    assert len({each.operation_id for each in store.audit.list()}) == 9
    assert store.audit._reader().fragment_count() <= 3
