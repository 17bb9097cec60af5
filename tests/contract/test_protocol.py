"""The write path, the same on local disk and on S3."""

import logging

import pytest

from omnigraph.errors import (
    BadRequest,
    NotFound,
    PreconditionFailed,
    RecoveryRequired,
    StorageFailed,
    VersionMismatch,
)
from omnigraph.storage import failpoints
from omnigraph.storage.lance.staging import StagedWrite
from omnigraph.storage.lance.tables import Tables
from omnigraph.storage.names import lock_name
from omnigraph.storage.protocol.intent import WriterKind
from omnigraph.storage.records import RECOVERY_ACTOR, TablePin
from omnigraph.storage.store import Store
from tests.storage.world import (
    CITY,
    KNOWS,
    PERSON,
    Where,
    append,
    content,
    heads_agree,
    put,
    remove,
    replace_all,
    rows,
)


def test_p1_every_table_of_a_commit_becomes_visible_at_once(store: Store) -> None:
    before = store.snapshot()
    commit = put(store, {PERSON: {"a": 1}, CITY: {"x": 2}, KNOWS: {"e": 3}})
    after = store.snapshot()
    assert content(store) == {PERSON: {"a": 1}, CITY: {"x": 2}, KNOWS: {"e": 3}}
    assert after.commit_id == commit.id
    assert after.manifest_version == before.manifest_version + 1
    assert heads_agree(store)
    assert store.sidecars.pending() == ()


def test_m3_a_snapshot_does_not_move_under_a_reader(store: Store, where: Where) -> None:
    put(store, {PERSON: {"a": 1}})
    snapshot = store.snapshot()
    put(where.open(), {PERSON: {"a": 9, "b": 2}})
    assert store.reader(snapshot, PERSON).rows(["id", "n"]).to_pydict() == {"id": ["a"], "n": [1]}
    assert content(store)[PERSON] == {"a": 9, "b": 2}


def test_every_kind_of_staged_write_commits(store: Store) -> None:
    append(store, PERSON, "a", "b", "c")
    write = store.begin(kind=WriterKind.MUTATION)
    assert remove(store, write, PERSON, "id = 'a'")
    write.upsert(CITY, rows(CITY, {"x": 1}))
    store.commit(write)
    write = store.begin(kind=WriterKind.LOAD)
    write.upsert(PERSON, rows(PERSON, {"b": 7, "d": 8}))
    replace_all(store, write, CITY, rows(CITY, {"y": 2}))
    store.commit(write)
    assert content(store) == {PERSON: {"b": 7, "c": 1, "d": 8}, CITY: {"y": 2}, KNOWS: {}}
    write = store.begin(kind=WriterKind.LOAD)
    replace_all(store, write, PERSON, rows(PERSON, {}))
    store.commit(write)
    assert content(store)[PERSON] == {}
    append(store, PERSON, "again")
    assert content(store)[PERSON] == {"again": 1}


def test_s4_a_table_takes_one_staged_write_a_commit(store: Store) -> None:
    write = store.begin(kind=WriterKind.MUTATION)
    write.append(PERSON, rows(PERSON, {"a": 1}))
    with pytest.raises(BadRequest, match="has a staged write"):
        write.append(PERSON, rows(PERSON, {"b": 1}))


def test_an_upsert_of_one_id_twice_is_refused(store: Store) -> None:
    doubled = rows(PERSON, {"a": 1}).take([0, 0])
    with pytest.raises(BadRequest, match="one id twice"):
        store.begin(kind=WriterKind.MUTATION).upsert(PERSON, doubled)


def test_c1_of_two_writers_of_one_table_one_wins(store: Store, where: Where) -> None:
    other = where.open()
    first, second = store.begin(kind=WriterKind.MUTATION), other.begin(kind=WriterKind.MUTATION)
    first.append(PERSON, rows(PERSON, {"a": 1}))
    second.append(PERSON, rows(PERSON, {"b": 2}))
    store.commit(first)
    with pytest.raises(VersionMismatch) as raised:
        other.commit(second)
    assert (raised.value.table_key, raised.value.expected, raised.value.actual) == (PERSON, 1, 2)
    assert content(other)[PERSON] == {"a": 1}
    assert other.sidecars.pending() == ()
    assert heads_agree(other)


def test_c1_writers_of_disjoint_tables_both_win(store: Store, where: Where) -> None:
    other = where.open()
    first, second = store.begin(kind=WriterKind.MUTATION), other.begin(kind=WriterKind.MUTATION)
    first.append(PERSON, rows(PERSON, {"a": 1}))
    second.append(CITY, rows(CITY, {"b": 2}))
    store.commit(first)
    other.commit(second)
    assert content(store) == {PERSON: {"a": 1}, CITY: {"b": 2}, KNOWS: {}}


def test_s2_a_table_that_was_read_must_stand_still(store: Store, where: Where) -> None:
    write = store.begin(kind=WriterKind.MUTATION)
    assert write.read(PERSON).count() == 0
    write.append(KNOWS, rows(KNOWS, {"e": 1}))
    append(where.open(), PERSON, "a")
    with pytest.raises(VersionMismatch):
        store.commit(write)
    assert content(store)[KNOWS] == {}


def test_a_conditional_write_holds_only_at_its_head(store: Store, where: Where) -> None:
    head = store.snapshot().commit_id
    write = store.begin(kind=WriterKind.MUTATION)
    write.append(PERSON, rows(PERSON, {"a": 1}))
    store.commit(write, expected_head=head)
    late = store.begin(kind=WriterKind.MUTATION)
    late.append(CITY, rows(CITY, {"x": 1}))
    append(where.open(), KNOWS, "e")
    with pytest.raises(PreconditionFailed):
        store.commit(late, expected_head=store.history.list()[1].id)
    assert store.sidecars.pending() == ()
    assert content(store)[CITY] == {}


def test_a_commit_without_tables_is_a_lineage_row(store: Store) -> None:
    before = store.snapshot()
    put(store, {PERSON: {"a": 1}})
    merged = store.commit(
        store.begin(kind=WriterKind.BRANCH_MERGE, actor="act-m"), merged_parent=before.commit_id
    )
    assert store.snapshot().commit_id == merged.id
    read = store.history.get(merged.id)
    assert read == merged
    assert read.parents == (read.parent, before.commit_id)


# A writer that stops half-way, and the next one in a live process.


@pytest.mark.parametrize("place", ["commit.tables_done", "publish.before", "publish.staged"])
def test_h1_the_next_write_rolls_a_stopped_one_forward(store: Store, place: str) -> None:
    with failpoints.armed(place), pytest.raises(RecoveryRequired) as raised:
        put(store, {PERSON: {"a": 1}, CITY: {"x": 1}})
    assert content(store)[PERSON] == {}
    append(store, KNOWS, "e")
    assert content(store) == {PERSON: {"a": 1}, CITY: {"x": 1}, KNOWS: {"e": 1}}
    (audit,) = store.audit.list()
    assert audit.operation_id == raised.value.operation_id
    assert (audit.recovery_kind, audit.recovery_for_actor) == ("RolledForward", "act-test")
    (commit,) = store.history.list(actor=RECOVERY_ACTOR)
    assert commit.id == audit.graph_commit_id
    assert store.sidecars.pending() == ()


def test_r3_a_live_process_rolls_back_what_stopped_between_tables(store: Store) -> None:
    put(store, {PERSON: {"old": 0}})
    with failpoints.armed("commit.table_before", nth=2), pytest.raises(RecoveryRequired):
        put(store, {PERSON: {"a": 1}, CITY: {"x": 1}})
    put(store, {PERSON: {"b": 2}, CITY: {"y": 2}})
    assert content(store) == {PERSON: {"old": 0, "b": 2}, CITY: {"y": 2}, KNOWS: {}}
    assert heads_agree(store)
    (audit,) = store.audit.list()
    assert audit.recovery_kind == "RolledBack"
    moved = {o.table_key: (o.from_version, o.to_version) for o in audit.per_table_outcomes}
    assert moved == {CITY: (2, 1), PERSON: (2, 2)} or moved == {PERSON: (3, 2), CITY: (1, 1)}
    (commit,) = store.history.list(actor=RECOVERY_ACTOR)
    assert commit.id == audit.graph_commit_id


def test_h3_a_write_blocked_by_a_live_writers_sidecar_says_so(store: Store, where: Where) -> None:
    with failpoints.armed("commit.table_before", nth=2), pytest.raises(RecoveryRequired):
        put(store, {PERSON: {"a": 1}, CITY: {"x": 1}})
    held = store.locks.acquire(lock_name(PERSON, "main"), wait_s=1)
    assert held is not None
    other = where.open()
    try:
        write = other.begin(kind=WriterKind.MUTATION)
        write.append(CITY, rows(CITY, {"y": 1}))
        with pytest.raises(RecoveryRequired, match="requires rollback — reopen the graph") as no:
            other.commit(write)
        assert no.value.operation_id in other.sidecars.pending()
    finally:
        held.release()
    append(other, CITY, "y")
    assert content(other) == {PERSON: {}, CITY: {"y": 1}, KNOWS: {}}


# Faults of the sidecar's own input and output


def test_a_failing_phase_a_put_stops_the_write_without_a_trace(store: Store) -> None:
    with failpoints.armed("sidecar.put"), pytest.raises(StorageFailed, match="nothing was publ"):
        append(store, PERSON, "a")
    assert store.sidecars.pending() == ()
    assert heads_agree(store)
    append(store, PERSON, "a")
    assert content(store)[PERSON] == {"a": 1}
    assert store.audit.list() == ()


def test_a_failing_phase_d_delete_is_swallowed_and_settled_by_the_next_write(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    with failpoints.armed("sidecar.delete"), caplog.at_level(logging.WARNING):
        commit = append(store, PERSON, "a")
    assert "phase_d.delete_failed" in caplog.text
    assert "nothing was published" not in caplog.text
    assert len(store.sidecars.pending()) == 1
    append(store, PERSON, "b")
    assert content(store)[PERSON] == {"a": 1, "b": 1}
    assert store.sidecars.pending() == ()
    (audit,) = store.audit.list()
    assert (audit.recovery_kind, audit.graph_commit_id) == ("RolledForward", commit.id)
    assert [c.actor for c in store.history.list()] == ["act-test", "act-test", None]


def test_a_failing_phase_d_delete_is_settled_by_the_next_open(store: Store, where: Where) -> None:
    with failpoints.armed("sidecar.delete"):
        append(store, PERSON, "a")
    again = where.open()
    assert again.sidecars.pending() == ()
    assert [a.recovery_kind for a in again.audit.list()] == ["RolledForward"]


def test_a_failing_listing_fails_the_write_and_the_open(store: Store, where: Where) -> None:
    with failpoints.armed("sidecar.list"), pytest.raises(StorageFailed, match="listed the sideca"):
        append(store, PERSON, "a")
    with failpoints.armed("sidecar.list"), pytest.raises(StorageFailed):
        where.open()
    assert content(where.open(read_only=True))[PERSON] == {}


def test_a_corrupt_sidecar_is_refused_and_kept(store: Store, where: Where) -> None:
    append(store, PERSON, "a")
    path = "__recovery/01JZ0000000000000000000000.json"
    store.objects.put(path, b'{"format": 1, "tables": [{')
    with pytest.raises(StorageFailed, match="corrupt"):
        append(store, PERSON, "b")
    with pytest.raises(StorageFailed, match="corrupt"):
        where.open()
    assert store.objects.get(path) is not None
    assert content(where.open(read_only=True))[PERSON] == {"a": 1}


def test_a_failing_audit_keeps_the_sidecar_and_is_recorded_once(store: Store) -> None:
    with failpoints.armed("publish.before"), pytest.raises(RecoveryRequired):
        append(store, PERSON, "a")
    for _ in range(2):
        with failpoints.armed("recover.audit"), pytest.raises(OSError, match="failpoint"):
            store.heal()
        assert len(store.sidecars.pending()) == 1
        assert content(store)[PERSON] == {"a": 1}
    store.heal()
    assert [a.recovery_kind for a in store.audit.list()] == ["RolledForward"]
    assert len(store.history.list(actor=RECOVERY_ACTOR)) == 1
    assert store.sidecars.pending() == ()


# Several versions a table


def without_b(tables: Tables, pin: TablePin) -> StagedWrite:
    removed = tables.reader(pin).row_ids("id = 'b'").combine_chunks()
    return tables.stage_patch(pin, removed=removed, added=rows(PERSON, {}), updated=0)


def test_b_a_write_of_several_steps_publishes_its_last_version(store: Store) -> None:
    append(store, PERSON, "a", "b")
    write = store.begin(kind=WriterKind.BRANCH_MERGE, actor="act-m")
    write.upsert(PERSON, rows(PERSON, {"a": 5}))
    write.then(PERSON, lambda tables, pin: tables.stage_append(pin, rows(PERSON, {"c": 6})))
    write.then(PERSON, without_b)
    store.commit(write)
    assert content(store)[PERSON] == {"a": 5, "c": 6}
    assert store.snapshot().tables[PERSON].version == 5
    assert store.stats.view().events["phase_b.sidecar_confirmed"] == 1


@pytest.mark.parametrize(
    ("place", "kind"),
    [
        ("commit.step_before", "RolledBack"),
        ("commit.step_after", "RolledBack"),
        ("sidecar.confirm", "RolledBack"),
        ("commit.confirmed", "RolledForward"),
        ("publish.staged", "RolledForward"),
    ],
)
def test_b_the_confirmation_is_the_commit_point_of_several_steps(
    store: Store, where: Where, place: str, kind: str
) -> None:
    append(store, PERSON, "a", "b")
    write = store.begin(kind=WriterKind.BRANCH_MERGE)
    write.upsert(PERSON, rows(PERSON, {"a": 5}))
    write.then(PERSON, lambda tables, pin: tables.stage_append(pin, rows(PERSON, {"c": 6})))
    with failpoints.armed(place), pytest.raises(RecoveryRequired):
        store.commit(write)
    again = where.open()
    after = {"a": 5, "b": 1, "c": 6} if kind == "RolledForward" else {"a": 1, "b": 1}
    assert content(again)[PERSON] == after
    assert [a.recovery_kind for a in again.audit.list()] == [kind]
    assert heads_agree(again)


# Time travel


def test_time_travel_sees_exactly_a_commits_data(store: Store) -> None:
    first = put(store, {PERSON: {"a": 1}})
    put(store, {PERSON: {"a": 2}, CITY: {"x": 1}})
    assert content(store, commit=first.id) == {PERSON: {"a": 1}, CITY: {}, KNOWS: {}}
    assert store.snapshot(commit=first.id).commit_id == first.id
    with pytest.raises(NotFound):
        store.snapshot(commit="01JZ0000000000000000000000")
