"""Id index: no false negative and no wrong address, whichever process wrote or undid a write."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omnigraph.costs import COSTS
from omnigraph.errors import RecoveryRequired
from omnigraph.storage import failpoints
from omnigraph.storage.lance import id_index
from omnigraph.storage.lance.id_hashing import Hashes, hashes_of
from omnigraph.storage.lance.id_index import HashTable
from omnigraph.storage.protocol.intent import WriterKind
from omnigraph.storage.store import Store
from tests.storage.world import CITY, PERSON, Where, append, content, put, remove


def lacks(store: Store, *names: str) -> bool:
    return store.reader(store.snapshot(), PERSON).lacks(pa.array(names))


def calls(store: Store, *names: str) -> int:
    before = store.stats.view()
    store.reader(snapshot := store.snapshot(), PERSON).lacks(pa.array(names))
    assert snapshot.tables[PERSON].row_count
    return store.stats.view().since(before).calls.get("lance.scan", 0)


texts = st.text(max_size=12) | st.builds(
    lambda letter, count: letter * count, st.sampled_from("aß☃"), st.integers(0, 700)
)


@settings(deadline=None)
@given(st.lists(texts, max_size=30, unique=True))
def test_equal_ids_have_equal_hashes_and_others_differ(names: list[str]) -> None:
    for part, together in enumerate(
        hashes_of(pa.chunked_array([names[:7], names[7:]], pa.string()))
    ):
        assert together.tolist() == [int(hashes_of(pa.array([n]))[part][0]) for n in names]
        assert len(set(together.tolist())) == len(names)
        assert together.tolist()[3:] == hashes_of(pa.array(names, pa.string())[3:])[part].tolist()


@settings(deadline=None)
@given(st.lists(st.sets(st.integers(0, 400), max_size=80), max_size=12), st.booleans())
def test_entries_are_found_under_their_hashes_and_keep_their_numbers(
    batches: list[set[int]], narrow: bool
) -> None:
    """With narrow hashes most of them compete for the same slots."""
    table, model = HashTable(), dict[int, int]()

    def hashed(numbers: list[int]) -> Hashes:
        whole = np.array(numbers, np.uint64)
        return (whole % np.uint64(3) if narrow else whole), whole

    for batch in batches:
        new = sorted(batch - model.keys())
        table.add(hashed(new), np.array(new, np.uint64) * np.uint64(7))
        model |= {number: len(model) + place for place, number in enumerate(new)}
        assert table.find(hashed([*range(400)])).tolist() == [model.get(n, -1) for n in range(400)]
        assert table.values.tolist() == [7 * number for number in model]
        assert len(table) == len(model)


def test_what_this_process_wrote_is_known_without_a_look(store: Store) -> None:
    append(store, PERSON, "a")
    assert not lacks(store, "a")
    for number in range(2 * COSTS.fold_fragments_min):
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
    write = store.begin(kind=WriterKind.MUTATION)
    remove(store, write, PERSON, "id = 'a'")
    store.commit(write)
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
    monkeypatch.setattr(COSTS, "id_index_rows_per_lookup", 4)
    assert [lacks(store, "new") for _ in range(4)] == [False, False, True, True]


def test_a_table_of_too_many_rows_is_not_kept(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(store, PERSON, "a")
    append(store, PERSON, "b")
    assert lacks(store, "c")
    monkeypatch.setattr(store.tables.id_index._tables, "weight_max", 2)
    append(store, PERSON, "d")
    assert not lacks(store, "c")


# Upserts that know where the rows are


steps = st.lists(
    st.tuples(
        st.sampled_from(["mine", "theirs", "delete", "delete theirs", "lost"]),
        st.sets(st.sampled_from("abcdefgh"), min_size=1, max_size=4),
    ),
    max_size=14,
)


@settings(max_examples=10, deadline=None)
@given(steps=steps)
def test_an_upsert_replaces_exactly_the_rows_of_its_ids(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, set[str]]]
) -> None:
    """Two processes write, rows go and come back, small fragments are folded, writes are undone."""
    local = Where(str(tmp_path_factory.mktemp("index") / "graph.omni"))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(COSTS, "fold_fragments_min", 3)
        store = local.create()
        other = local.open()
        model: dict[str, int] = {}
        for number, (step, names) in enumerate(steps):
            values = dict.fromkeys(sorted(names), number)
            writer = other if "theirs" in step else store
            if step.startswith("delete"):
                write = writer.begin(kind=WriterKind.MUTATION)
                listed = ", ".join(f"'{name}'" for name in names)
                if remove(store, write, PERSON, f"id IN ({listed})"):
                    writer.commit(write)
                model = {name: n for name, n in model.items() if name not in names}
            elif step == "lost":
                with failpoints.armed("commit.tables_done"), pytest.raises(RecoveryRequired):
                    put(store, {PERSON: values, CITY: {"x": 1}})
                store.heal()
                model |= values  # every head moved, so it is finished
            else:
                put(writer, {PERSON: values})
                model |= values
            assert content(store)[PERSON] == model
        assert content(local.open())[PERSON] == model


def test_an_upsert_searches_nothing_that_is_known(store: Store) -> None:
    put(store, {PERSON: {"a": 1, "b": 1}})
    before = store.stats.view()
    put(store, {PERSON: {"b": 2, "c": 2}})
    made = store.stats.view().since(before).calls
    assert made["lance.stage_replace"] == 1
    assert "lance.scan" not in made
    assert content(store)[PERSON] == {"a": 1, "b": 2, "c": 2}


def test_an_upsert_into_what_is_not_known_is_left_to_lance(
    store: Store, local: Where, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(store, {PERSON: {"a": 1, "b": 1}})
    monkeypatch.setattr(COSTS, "id_index_rows_per_lookup", 0)
    other = local.open()
    put(other, {PERSON: {"b": 2, "c": 2}})
    assert other.stats.view().calls["lance.stage_merge_insert"] == 1
    assert content(store)[PERSON] == {"a": 1, "b": 2, "c": 2}


def test_two_ids_that_share_half_of_their_hash_are_told_apart(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They never meet by chance, so here every id has the same first half."""
    real = id_index.hashes_of

    def colliding(ids: pa.Array) -> tuple[np.ndarray, np.ndarray]:
        first, second = real(ids)
        return np.zeros_like(first), second

    monkeypatch.setattr(id_index, "hashes_of", colliding)
    for number, name in enumerate("abcab"):
        put(store, {PERSON: {name: number}})
    assert content(store)[PERSON] == {"a": 3, "b": 4, "c": 2}
