"""Rows read straight from files are the rows of the version, wherever a write put them."""

import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lance.fragment import FragmentMetadata, RowIdSequence

from omnigraph.costs import COSTS
from omnigraph.storage.lance import direct_read
from omnigraph.storage.lance.datasets import Handle
from omnigraph.storage.lance.direct_read import DirectReader
from omnigraph.storage.lance.evolution import Evolution
from omnigraph.storage.names import MAIN
from omnigraph.storage.protocol.intent import WriterKind
from omnigraph.storage.store import Store
from tests.storage.lance.test_delta import again
from tests.storage.world import PERSON, Where, put, remove, rows

WHOLE = ["id", "n", "_rowid", "_rowaddr"]


@pytest.fixture(autouse=True, scope="module")
def _every_file() -> Iterator[None]:
    """Open every file, however few its rows."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(COSTS, "direct_read_rows_per_file", 1)
        yield


def handle_of(store: Store, branch: str = MAIN) -> Handle:
    return store.datasets.handle(store.snapshot(branch).tables[PERSON])


def compare(handle: Handle, wanted: list[int], columns: list[str]) -> int:
    """Read rows in place and check them against a scan; how many were read."""
    every = {row["_rowid"]: row for row in handle.scanner(columns=WHOLE).to_table().to_pylist()}
    found, others = DirectReader().rows(handle, pa.array(wanted, pa.uint64()), columns)
    read = [row for table in found for row in table.to_pylist()]
    assert all(table.schema == found[0].schema for table in found)
    assert sorted([row["_rowid"] for row in read] + others.to_pylist()) == sorted(wanted)
    for row in read:
        assert row == {name: every[row["_rowid"]][name] for name in columns}
    return len(read)


def live(handle: Handle) -> list[int]:
    found: list[int] = handle.scanner(columns=["_rowid"]).to_table()["_rowid"].to_pylist()
    return found


def test_rows_of_a_load_are_read_in_place(local: Where) -> None:
    store = local.create()
    put(store, {PERSON: {f"k{i}": i for i in range(300)}})
    handle = handle_of(store)
    assert compare(handle, live(handle)[::7], WHOLE) == 43


def test_few_rows_in_many_files_are_left_to_lance(
    local: Where, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(COSTS, "direct_read_rows_per_file", 10)
    store = local.create()
    for number in range(3):
        put(store, {PERSON: {f"k{number}-{i}": i for i in range(20)}})
    handle = handle_of(store)
    every = live(handle)
    assert compare(handle, every[:5], WHOLE) == 5
    assert compare(handle, every[15:25], WHOLE) == 0
    assert compare(handle, every[10:30], WHOLE) == 20


def test_an_object_store_is_left_to_lance(s3: Where) -> None:
    store = s3.create()
    put(store, {PERSON: {f"k{i}": i for i in range(30)}})
    handle = handle_of(store)
    assert compare(handle, live(handle), WHOLE) == 0


VERBS = st.sampled_from(["insert", "again", "replace", "delete", "branch"])


@settings(max_examples=25, deadline=None)
@given(verbs=st.lists(VERBS, min_size=1, max_size=7), seed=st.integers(0, 1_000))
def test_the_newest_fragment_that_lists_a_row_has_it(
    tmp_path_factory: pytest.TempPathFactory, verbs: list[str], seed: int
) -> None:
    """A row written again is still listed where it was before."""
    chance = random.Random(seed)
    store = Where(str(tmp_path_factory.mktemp("g") / "g")).create()
    put(store, {PERSON: {f"k{i}": i for i in range(40)}})
    branch = MAIN
    for number, verb in enumerate(verbs, start=1):
        names = [f"k{i}" for i in chance.sample(range(40), 12)]
        write = store.begin(branch, kind=WriterKind.MUTATION)
        match verb:
            case "insert":
                write.append(PERSON, rows(PERSON, {f"new-{number}-{i}": i for i in range(5)}))
            case "again":
                if not again(store, write, dict.fromkeys(names, 100 * number)):
                    continue
            case "replace":
                write.upsert(PERSON, rows(PERSON, dict.fromkeys(names, 100 * number)))
            case "delete":
                if not remove(store, write, PERSON, f"id IN ('{names[0]}', '{names[1]}')"):
                    continue
            case _:
                branch = store.branches.create(f"{branch}-{number}", source=branch)
                continue
        store.commit(write)
    handle = handle_of(store, branch)
    wanted = live(handle)
    chance.shuffle(wanted)
    wanted = wanted[: len(wanted) * 2 // 3]
    assert compare(handle, wanted, WHOLE) == len(wanted)
    compare(handle, wanted[:1], ["n", "_rowid"])


def test_a_column_that_came_again_under_its_name_is_not_mistaken(local: Where) -> None:
    store = local.create()
    put(store, {PERSON: {f"k{i}": i for i in range(50)}})
    write = store.begin_schema_change()
    write.evolve_table(PERSON, Evolution(drops=frozenset({"n"})))
    store.commit(write)
    write = store.begin_schema_change()
    write.evolve_table(PERSON, Evolution(adds=(pa.field("n", pa.int64()),)))
    store.commit(write)
    handle = handle_of(store)
    assert set(handle.scanner(columns=["n"]).to_table()["n"].to_pylist()) == {None}
    assert compare(handle, live(handle), WHOLE) == 0
    assert compare(handle, live(handle), ["id", "_rowid"]) == 0


def test_a_renamed_column_is_left_to_lance(local: Where) -> None:
    store = local.create()
    put(store, {PERSON: {f"k{i}": i for i in range(50)}})
    write = store.begin_schema_change()
    write.evolve_table(PERSON, Evolution(renames={"n": "m"}))
    store.commit(write)
    handle = handle_of(store)
    found, others = DirectReader().rows(
        handle, pa.array(live(handle), pa.uint64()), ["m", "_rowid"]
    )
    assert found == []
    assert len(others) == 50


@pytest.mark.parametrize(
    "nested",
    [
        pa.array([["x"], []]),
        pa.array([{"a": 1}, {"a": 2}]),
        lance.blob_array([b"one", b"two"]),
    ],
)
def test_a_file_with_nested_columns_is_left_to_lance(tmp_path: Path, nested: pa.Array) -> None:
    rows = pa.table({"id": ["a", "b"], "nested": nested, "n": [1, 2]})
    handle = lance.write_dataset(
        rows, str(tmp_path / "t"), enable_stable_row_ids=True, data_storage_version="2.2"
    )
    assert compare(handle, live(handle), WHOLE) == 0
    handle.drop_columns(["nested"])
    assert compare(handle, live(handle), WHOLE) == 0, "what was dropped is still in the file"


def test_what_lies_below_a_fragment_that_is_long_to_look_through_is_left_to_lance(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may list any row, so nothing older is certain."""
    monkeypatch.setattr(COSTS, "direct_read_listed_rows_max", 5)
    store = Where(str(tmp_path / "g")).create()
    put(store, {PERSON: {f"k{i}": i for i in range(50)}})
    write = store.begin(kind=WriterKind.LOAD)
    assert again(store, write, {f"k{i}": 7 for i in range(0, 50, 2)})
    store.commit(write)
    put(store, {PERSON: {"new": 1}})
    handle = handle_of(store)
    assert compare(handle, live(handle), WHOLE) == 1


def test_columns_in_several_files_are_left_to_lance(tmp_path: Path) -> None:
    rows = pa.table({"id": ["a", "b"], "m": [1, 2]})
    handle = lance.write_dataset(
        rows, str(tmp_path / "t"), enable_stable_row_ids=True, data_storage_version="2.2"
    )
    handle.add_columns({"n": "m + 1"})
    assert compare(handle, live(handle), WHOLE) == 0


def test_an_older_lance_without_row_ids_is_left_to_lance(tmp_path: Path) -> None:
    handle = lance.write_dataset(pa.table({"id": ["a"], "n": [1]}), str(tmp_path / "t"))
    assert compare(handle, live(handle), WHOLE) == 0


@pytest.mark.parametrize(
    "ids",
    [
        range(0, 300),
        range(7, 8),
        range(2**60 + 1, 2**60 + 500),
        [*range(0, 20), *range(30, 60)],
        [5, 4, 3],
        [*range(20), 40, 39],
        [0, 2, 4, 6],
        np.random.default_rng(0).permutation(1_000).tolist(),
    ],
)
def test_row_ids_are_found_however_they_are_written(ids: list[int]) -> None:
    written = RowIdSequence(list(ids)).to_inline_metadata()
    held = FragmentMetadata(0, [], len(ids), row_id_meta=written)
    ids_range = direct_read.row_id_range(held)
    is_range = list(ids) == list(range(ids[0], ids[0] + len(ids)))
    assert (ids_range is not None) == is_range
    listed = ids_range or direct_read.row_id_list(held)
    assert listed is not None
    wanted = np.array(sorted({*list(ids)[::3], 3, 10**6, 2**60, 2**60 + 500, 2**62}), np.uint64)
    at, places = listed.find(wanted)
    known = {row_id: place for place, row_id in enumerate(ids)}
    found = {int(wanted[i]): int(place) for i, place in zip(at, places, strict=True)}
    assert found == {int(i): known[int(i)] for i in wanted if int(i) in known}


def test_two_threads_may_read_one_file(local: Where) -> None:
    store = local.create()
    put(store, {PERSON: {f"k{i}": i for i in range(5_000)}})
    handle, shared = handle_of(store), DirectReader()
    wanted = pa.array(live(handle)[::3], pa.uint64())

    def read(_: int) -> int:
        found, others = shared.rows(handle, wanted, WHOLE)
        assert len(others) == 0
        return sum(table.num_rows for table in found)

    with ThreadPoolExecutor(4) as threads:
        assert set(threads.map(read, range(40))) == {len(wanted)}
    assert len(shared._readers) == 1
    shared.clear()
    assert len(shared._readers) == 0
