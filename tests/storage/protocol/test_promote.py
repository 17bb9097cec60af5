"""Tables that come and go and files that change with a commit: what a schema change needs."""

from pathlib import Path

import pytest

from omnigraph.errors import (
    AlreadyExists,
    OmnigraphError,
    RecoveryRequired,
    VersionMismatch,
)
from omnigraph.storage import failpoints
from omnigraph.storage.manifest.state import LOCATION
from omnigraph.storage.protocol.intent import WriterKind
from omnigraph.storage.protocol.promote import FOLDER
from omnigraph.storage.protocol.write import Write
from omnigraph.storage.store import Store
from omnigraph.types import TableKey
from tests.storage.world import CITY, KNOWS, PERSON, SCHEMAS, Where, append, content, rows

PET = TableKey("node:Pet")
OLD, NEW = b"node Person {}", b"node Person {} node Pet {}"


@pytest.fixture
def store(local: Where) -> Store:
    made = local.create()
    made.objects.put("_schema.pg", OLD)
    append(made, PERSON, "a")
    append(made, KNOWS, "e")
    return made


def change(store: Store) -> Write:
    """A write that changes a table, makes one, drops one and replaces the schema."""
    write = store.begin_schema_change(actor="act-s")
    write.upsert(PERSON, rows(PERSON, {"a": 7}))
    write.create_table(PET, SCHEMAS[PERSON])
    write.drop_table(KNOWS)
    write.replace_file("_schema.pg", NEW)
    return write


def schema(store: Store) -> bytes:
    found = store.objects.get("_schema.pg")
    assert found is not None
    return found.data


def ages(store: Store) -> list[int]:
    found: list[int] = store.reader(store.snapshot(), PERSON).rows(["n"])["n"].to_pylist()
    return found


def is_before(store: Store) -> bool:
    assert ages(store) in ([1], [7])
    before = set(store.snapshot().tables) == {PERSON, CITY, KNOWS}
    assert before or set(store.snapshot().tables) == {PERSON, CITY, PET}
    assert (schema(store) == OLD) == (ages(store) == [1]) == before, "half of the change is there"
    return before


def test_tables_and_files_change_with_one_commit(store: Store, local: Where) -> None:
    head = store.snapshot().commit_id
    commit = store.commit(change(store))
    assert commit.parent == head
    assert not is_before(store)
    assert not is_before(local.open())
    assert store.objects.list(FOLDER) == ()
    assert content_at(store, head) == {PERSON: 1, CITY: 0, KNOWS: 1}
    append(store, PERSON, "next")
    write = store.begin(kind=WriterKind.MUTATION)
    write.append(PET, rows(PERSON, {"rex": 1}))
    store.commit(write)
    assert store.snapshot().tables[PET].row_count == 1


def content_at(store: Store, commit: str) -> dict[TableKey, int]:
    return {key: pin.row_count for key, pin in store.snapshot(commit=commit).tables.items()}


@pytest.mark.parametrize(
    ("place", "nth", "before"),
    [
        ("sidecar.put", 1, True),
        ("commit.sidecar_written", 1, True),
        ("commit.table_before", 1, True),
        ("commit.table_after", 1, True),
        ("commit.table_after", 2, False),
        ("publish.before", 1, False),
        ("publish.after", 1, False),
        ("promote.file", 1, False),
        ("sidecar.delete", 1, False),
    ],
)
def test_r2_a_stopped_schema_change_is_finished_or_undone_with_its_files(
    store: Store, local: Where, place: str, nth: int, before: bool
) -> None:
    write = change(store)
    with failpoints.armed(place, nth=nth):
        try:
            store.commit(write)
        except (OmnigraphError, OSError):
            assert place != "sidecar.delete"
    again = local.open()
    assert is_before(again) == before
    assert again.sidecars.pending() == ()
    if place != "sidecar.put":  # what it put aside has no note, and cleanup takes it
        assert again.objects.list(FOLDER) == ()
        assert list((Path(local.uri) / FOLDER).iterdir()) == [], "an empty folder stayed"
    append(again, PERSON, "next")


def test_r2_without_its_staged_files_a_schema_change_is_rolled_back(
    store: Store, local: Where
) -> None:
    with failpoints.armed("publish.before"), pytest.raises(RecoveryRequired):
        store.commit(change(store))
    (staged,) = store.objects.list(FOLDER)
    store.objects.put(staged, b"torn")
    again = local.open()
    assert is_before(again)
    assert [row.recovery_kind for row in again.audit.list()] == ["RolledBack"]
    again.commit(change(again))
    assert not is_before(again)


def test_a_dropped_table_that_moved_meanwhile_is_not_dropped(store: Store, local: Where) -> None:
    write = store.begin_schema_change()
    write.drop_table(KNOWS)
    append(local.open(), KNOWS, "late")
    with pytest.raises(VersionMismatch):
        store.commit(write)
    assert content(store)[KNOWS] == {"e": 1, "late": 1}


def test_a_dropped_table_comes_back_empty(store: Store, local: Where) -> None:
    drop = store.begin_schema_change()
    drop.drop_table(KNOWS)
    store.commit(drop)
    make = store.begin_schema_change()
    with pytest.raises(AlreadyExists):
        make.create_table(PERSON, SCHEMAS[PERSON])
    make.create_table(KNOWS, SCHEMAS[KNOWS])
    store.commit(make)
    assert content(store)[KNOWS] == content(local.open())[KNOWS] == {}
    append(store, KNOWS, "f")
    assert content(store)[KNOWS] == {"f": 1}
    ids = store.datasets.open(LOCATION).to_table()["object_id"].to_pylist()
    assert len(set(ids)) == len(ids), "an object was published twice"
