"""What may differ between two versions of a table: never too little, and no more than was written.

The model reads both versions whole. Writes of every kind happen on main, on a branch and on a
branch of that branch.
"""

from dataclasses import dataclass, replace
from tempfile import TemporaryDirectory

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omnigraph.costs import COSTS
from omnigraph.errors import BadRequest, NotFound, RecoveryRequired, StorageFailed
from omnigraph.storage import failpoints
from omnigraph.storage.lance import spans
from omnigraph.storage.lance.index_segments import IndexRequest
from omnigraph.storage.names import MAIN
from omnigraph.storage.protocol.intent import WriterKind
from omnigraph.storage.protocol.write import Write
from omnigraph.storage.records import TablePin
from omnigraph.storage.store import Store
from tests.storage.world import CITY, PERSON, Where, append, put, remove, replace_all, rows

Rows = dict[str, tuple[int, int]]  # id → row id, value
WHOLE = ["id", "n", "_rowid", "_rowaddr"]


def read(store: Store, pin: TablePin) -> Rows:
    table = store.tables.reader(pin).rows(["id", "_rowid", "n"])
    return {row["id"]: (row["_rowid"], row["n"]) for row in table.to_pylist()}


def holds(store: Store, before: TablePin, after: TablePin, via: TablePin | None = None) -> int:
    """The promise of `touched`; how many ids it listed."""
    ours, theirs = read(store, before), read(store, after)
    touched = store.deltas.touched(before, after, columns=["n"], via=via)
    for pin, side in ((before, "before"), (after, "after")):
        carries(store, pin, touched[side].combine_chunks().drop_null())
    found = touched.to_pylist()
    listed = {row["id"]: row for row in found}
    assert [row["id"] for row in found] == sorted(listed), "sorted, each id once"
    for entity_id in ours.keys() | theirs.keys():
        row = listed.get(entity_id)
        if row is None:
            assert ours.get(entity_id) == theirs.get(entity_id)
            continue
        assert row["before"] == ours.get(entity_id, (None,))[0]
        assert row["after"] == theirs.get(entity_id, (None,))[0]
    assert listed.keys() <= ours.keys() | theirs.keys()
    return len(listed)


def carries(store: Store, pin: TablePin, row_ids: pa.Array) -> None:
    """What the comparison carried to a version's reader is what the version holds."""
    reader = store.tables.reader(pin)
    every = {row["_rowid"]: row for row in reader.rows(WHOLE).to_pylist()}
    expected = [every[row_id] for row_id in row_ids.to_pylist()]
    assert reader.by_row_id(row_ids, WHOLE).to_pylist() == expected
    assert reader.by_row_id(row_ids, WHOLE[:-1]).num_rows == len(row_ids)


def pin_of(store: Store, branch: str) -> TablePin:
    return store.snapshot(branch).tables[PERSON]


IDS = st.sampled_from([f"k{i}" for i in range(8)])
BRANCHES = (MAIN, "b", "b/c")


@dataclass(frozen=True)
class Act:
    """One commit of the random history."""

    branch: str
    verb: str
    values: dict[str, int]


ACTS = st.builds(
    Act,
    st.sampled_from(BRANCHES),
    st.sampled_from(["put", "put", "again", "delete", "patch", "overwrite", "crash"]),
    st.dictionaries(IDS, st.integers(0, 9), min_size=1, max_size=4),
)


def act(store: Store, step: Act) -> None:
    write = store.begin(step.branch, kind=WriterKind.MUTATION)
    match step.verb:
        case "put":
            write.upsert(PERSON, rows(PERSON, step.values))
        case "delete":
            listed = ", ".join(f"'{each}'" for each in step.values)
            if not remove(store, write, PERSON, f"id IN ({listed})"):
                return
        case "overwrite":
            replace_all(store, write, PERSON, rows(PERSON, step.values))
        case "patch":
            patch(store, write, step)
        case "again":
            if not again(store, write, step.values):
                return
        case _:
            crash(store, step)
            return
    store.commit(write)


def crash(store: Store, step: Act) -> None:
    """A write that stops before its second table and is undone: the table is restored."""
    values = {PERSON: step.values, CITY: {"x": 1}}
    with failpoints.armed("commit.table_before", "raise", 2), pytest.raises(RecoveryRequired):
        put(store, values, branch=step.branch)
    store.heal()


def again(store: Store, write: Write, values: dict[str, int]) -> bool:
    """Rows written again under the row ids they have; whether any of them are there."""
    pin = write.base(PERSON)
    held = {row["id"]: row for row in store.tables.reader(pin).rows(WHOLE).to_pylist()}
    values = {name: value for name, value in values.items() if name in held}
    if not values:
        return False
    row_ids = pa.array([held[name]["_rowid"] for name in values], pa.uint64())
    addresses = pa.array([held[name]["_rowaddr"] for name in values], pa.uint64())
    new = rows(PERSON, values)
    added = store.tables.write_fragments(pin, new, replacing=False, row_ids=row_ids)
    left, gone = store.tables.without_rows(pin, addresses)
    write.replace_rows(PERSON, left=left, gone=gone, added=added, updated=len(values))
    return True


def patch(store: Store, write: Write, step: Act) -> None:
    """Even values replace or insert, odd ones remove."""
    seen = read(store, pin_of(store, step.branch))
    kept = {k: v for k, v in step.values.items() if v % 2 == 0}
    gone = [seen[k][0] for k in step.values if k in seen]
    updated = sum(key in seen for key in kept)
    write.patch(
        PERSON, removed=pa.array(gone, pa.uint64()), added=rows(PERSON, kept), updated=updated
    )


@settings(max_examples=12, deadline=None)
@given(
    acts=st.lists(ACTS, min_size=2, max_size=9),
    exact=st.sampled_from([0, 0, 3, 128]),
    is_indexed=st.booleans(),
)
def test_every_difference_is_listed(acts: list[Act], exact: int, is_indexed: bool) -> None:
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patched:
        if not is_indexed:  # then Lance replaces rows, under the row ids they have
            patched.setattr(COSTS, "id_index_rows_per_lookup", 0)
        patched.setattr(COSTS, "exact_versions", exact)  # so that folds join their runs
        patched.setattr(COSTS, "runs_few", 0)
        patched.setattr(COSTS, "fold_fragments_min", 4)  # so that versions are folded on the way
        patched.setattr(COSTS, "direct_read_rows_per_file", 1)  # few rows are read in place too
        store = Where(f"{folder}/g").create()
        put(store, {PERSON: {"k0": 0, "k1": 1, "k2": 2}})
        store.branches.create("b")
        pins = {pin_of(store, MAIN)}
        for number, step in enumerate(acts):
            if number == len(acts) // 2:
                store.branches.create("b/c", source="b")
            act(store, step if step.branch in store.branches.list() else replace(step, branch="b"))
            pins |= {pin_of(store, branch) for branch in store.branches.list()}
        middle = sorted(pins, key=lambda pin: pin.version)[len(pins) // 2]
        for before in pins:
            for after in pins:
                holds(store, before, after)
                holds(store, before, after, via=middle)


def test_rows_written_again_are_listed_and_nothing_else(store: Store) -> None:
    put(store, {PERSON: {f"k{i}": i for i in range(1_000)}})
    before = pin_of(store, MAIN)
    put(store, {PERSON: {"k1": 1, "k2": 0}})
    assert holds(store, before, pin_of(store, MAIN)) == 2
    assert holds(store, before, before) == 0


def test_rows_of_a_comparison_are_read_once(store: Store) -> None:
    put(store, {PERSON: {f"k{i}": i for i in range(300)}})
    store.branches.create("b")
    put(store, {PERSON: {f"k{i}": 0 for i in range(1, 250)}}, branch="b")
    put(store, {PERSON: {"k299": 0}})
    ours, theirs = pin_of(store, MAIN), pin_of(store, "b")
    touched = store.deltas.touched(ours, theirs, columns=["n"])
    assert touched.num_rows == 250
    before = store.stats.view()
    for pin, side in ((ours, "before"), (theirs, "after")):
        rows = store.tables.reader(pin).by_row_id(touched[side].combine_chunks(), WHOLE)
        assert rows["id"].to_pylist() == touched["id"].to_pylist()
    assert store.stats.view().since(before).calls == {}


def test_rows_written_again_under_their_row_ids_are_carried_as_they_were(store: Store) -> None:
    put(store, {PERSON: {f"k{i}": i for i in range(600)}})
    before = pin_of(store, MAIN)
    write = store.begin(kind=WriterKind.LOAD)
    assert again(store, write, {f"k{i}": 0 for i in range(1, 501)})
    store.commit(write)
    assert holds(store, before, pin_of(store, MAIN)) == 500


def test_addresses_are_not_carried_over_a_fold(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("k0", "k1"):
        put(store, {PERSON: {name: 1}})
    store.branches.create("b")
    put(store, {PERSON: {"k0": 2, "k1": 2}}, branch="b")
    monkeypatch.setattr(COSTS, "fold_fragments_min", 2)
    for number in range(4):
        put(store, {PERSON: {f"n{number}": number}})
    assert store.tables.reader(pin_of(store, MAIN)).fragment_count() < 4
    assert holds(store, pin_of(store, MAIN), pin_of(store, "b")) == 6


def test_rows_of_a_large_comparison_are_not_held(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(COSTS, "span_columns_bytes_max", 1_000)
    put(store, {PERSON: {f"k{i}": i for i in range(100)}})
    before = pin_of(store, MAIN)
    put(store, {PERSON: {f"k{i}": 0 for i in range(1, 50)}})
    assert holds(store, before, pin_of(store, MAIN)) == 49
    assert len(store.deltas._rows) == 0


def test_a_span_that_lance_cannot_answer_is_compared_row_by_row(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(store, {PERSON: {"a": 1, "b": 2, "c": 3}})
    before = pin_of(store, MAIN)
    write = store.begin(kind=WriterKind.MUTATION)
    remove(store, write, PERSON, "id = 'b'")
    store.commit(write)
    asked = []

    def reclaimed(low: object, high: object) -> None:
        asked.append(1)
        raise OSError("Not found: version 3")

    monkeypatch.setattr(spans, "_gone", reclaimed)
    assert holds(store, before, pin_of(store, MAIN)) == 1
    assert asked


def test_rows_are_read_by_row_id_in_the_order_asked(store: Store) -> None:
    put(store, {PERSON: {"a": 1, "b": 2, "c": 3}})
    reader = store.tables.reader(pin_of(store, MAIN))
    ids = {row["id"]: row["_rowid"] for row in reader.rows(["id", "_rowid"]).to_pylist()}
    asked = pa.array([ids["c"], ids["a"], ids["c"]], pa.uint64())
    assert reader.by_row_id(asked, ["id"])["id"].to_pylist() == ["c", "a", "c"]
    assert reader.by_row_id(asked.slice(0, 0)).num_rows == 0
    with pytest.raises(StorageFailed, match="row id"):
        reader.by_row_id(pa.array([99], pa.uint64()))


def test_a_patch_keeps_indexes_true(store: Store) -> None:
    put(store, {PERSON: {"a": 1, "b": 2, "c": 3, "d": 4}})
    write = store.begin(kind=WriterKind.ENSURE_INDICES)
    pin = pin_of(store, MAIN)
    write._keep(store.tables.stage_create_indexes(pin, [IndexRequest("n", "BTREE", "n_idx")]))
    store.commit(write)
    before = read(store, pin_of(store, MAIN))
    patch_write = store.begin(kind=WriterKind.BRANCH_MERGE)
    patch(store, patch_write, Act(MAIN, "patch", {"a": 10, "b": 5, "new": 12}))
    store.commit(patch_write)
    after = read(store, pin_of(store, MAIN))
    assert after.keys() == {"a", "c", "d", "new"}
    assert (after["a"][1], after["c"]) == (10, before["c"])
    assert after["new"][0] not in {row_id for row_id, _ in before.values()}
    reader = store.tables.reader(pin_of(store, MAIN))
    for n, ids in ((1, []), (10, ["a"]), (2, []), (3, ["c"]), (12, ["new"])):
        assert reader.rows(["id"], filter=f"n = {n}")["id"].to_pylist() == ids


def test_versions_of_a_deleted_branch_are_not_there(store: Store) -> None:
    store.branches.create("b")
    put(store, {PERSON: {"a": 1}}, branch="b")
    pin = pin_of(store, "b")
    store.branches.delete("b")
    with pytest.raises(NotFound, match="deleted"):
        store.deltas.touched(pin, pin_of(store, MAIN))


def test_two_tables_are_not_compared(store: Store) -> None:
    tables = store.snapshot().tables
    with pytest.raises(BadRequest, match="dropped"):
        store.deltas.touched(tables[PERSON], tables[CITY])


def test_comparisons_that_are_kept_weigh_what_they_take(store: Store) -> None:
    """Arrow takes a thousand bytes for a column of one value: a process that commits and merges
    all day would keep hundreds of megabytes that count as one."""
    before = store.snapshot().tables[PERSON]
    for n in range(3):
        append(store, PERSON, f"p{n}")
    after = store.snapshot().tables[PERSON]
    store.deltas.touched(before, after, columns=["n"])
    (span,) = store.deltas._rows._entries
    kept = store.deltas._rows.get(span)
    assert kept is not None
    for table in (kept.new, store.deltas._touched.get(span)):
        assert table is not None
        assert table.num_rows == 3
        assert [column.num_chunks for column in table.columns] == [1] * table.num_columns
    assert store.deltas._rows.weight >= 1_000 * kept.new.num_columns
