"""Ids a table certainly lacks: never a wrong "lacks", whoever wrote and whatever was undone."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.errors import RecoveryRequired
from omnigraph.storage import failpoints, fold, lacking
from omnigraph.storage.lacking import hashes_of
from omnigraph.storage.store import Store
from tests.storage.world import PERSON, Where, append, content


def lacks(store: Store, *names: str) -> bool:
    return store.reader(store.snapshot(), PERSON).lacks(pa.array(names))


def calls(store: Store, *names: str) -> int:
    before = store.stats.view()
    store.reader(snapshot := store.snapshot(), PERSON).lacks(pa.array(names))
    assert snapshot.tables[PERSON].row_count
    return store.stats.view().since(before).calls.get("lance.scan", 0)


@given(st.lists(st.text(max_size=12), max_size=30, unique=True))
def test_equal_ids_have_equal_hashes_and_others_differ(names: list[str]) -> None:
    together = hashes_of(pa.chunked_array([names[:7], names[7:]], pa.string()))
    assert together.tolist() == [int(hashes_of(pa.array([n]))[0]) for n in names]
    assert len(set(together.tolist())) == len(names)
    assert together.tolist()[3:] == hashes_of(pa.array(names, pa.string())[3:]).tolist()


def test_what_this_process_wrote_is_known_without_a_look(store: Store) -> None:
    append(store, PERSON, "a")
    assert not lacks(store, "a")
    for number in range(2 * fold.FRAGMENTS_MAX):
        append(store, PERSON, f"r{number}")
        assert calls(store, "new") == 0
    assert lacks(store, "new")
    for name in content(store)[PERSON]:
        assert not lacks(store, "new", name)


def test_what_others_wrote_is_read_once(store: Store, local: Where) -> None:
    append(store, PERSON, "a")
    assert lacks(store, "b")
    append(local.open(), PERSON, "b")
    assert not lacks(store, "b")
    assert calls(store, "c") == 0


def test_a_removed_id_is_looked_up_and_an_older_version_too(store: Store) -> None:
    append(store, PERSON, "a")
    old = store.snapshot()
    assert lacks(store, "b")
    write = store.begin(kind="mutation")
    write.delete(PERSON, "id = 'a'")
    write.commit()
    append(store, PERSON, "b")
    assert not lacks(store, "a")
    assert not store.reader(old, PERSON).lacks(pa.array(["zzz"])), "nobody knows"


def test_numbers_of_fragments_that_come_again_after_a_restore_mislead_nobody(
    store: Store, local: Where
) -> None:
    append(store, PERSON, "a")
    assert lacks(store, "b")
    with failpoints.armed("commit.table_after"), pytest.raises(RecoveryRequired):
        append(store, PERSON, "lost")
    other = local.open()  # undoes it, or finishes it
    append(other, PERSON, "b")
    assert not lacks(store, "b")
    assert not lacks(store, "a")
    for name in content(store)[PERSON]:
        assert not lacks(store, name)


def test_a_large_table_is_asked_until_reading_it_pays(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(10):
        append(store, PERSON, f"r{number}")
    monkeypatch.setattr(lacking, "READ_A_LOOKUP", 4)
    assert [lacks(store, "new") for _ in range(4)] == [False, False, True, True]


def test_a_table_of_too_many_rows_is_not_kept(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(store, PERSON, "a")
    append(store, PERSON, "b")
    assert lacks(store, "c")
    monkeypatch.setattr(lacking, "ROWS_MAX", 2)
    append(store, PERSON, "d")
    assert not lacks(store, "c")
