"""Row versions stay few in a table of many commits, and what is left of them is never wrong."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.costs import COSTS
from omnigraph.storage.lance import row_versions
from omnigraph.storage.lance.row_versions import FragmentJson, next_row_id, set_stamps, stamps_of
from omnigraph.storage.manifest.state import LOCATION
from omnigraph.storage.names import MAIN
from omnigraph.storage.protocol.intent import WriterKind
from omnigraph.storage.store import Store
from tests.storage.world import PERSON, append, content, put, remove, replace_all, rows

STAMPS = st.lists(
    st.tuples(st.integers(0, 300), st.integers(0, 40)).map(lambda pair: (pair[0], sum(pair))),
    min_size=1,
    max_size=60,
)


def stamped(stamps: list[tuple[int, int]]) -> FragmentJson:
    fragment: FragmentJson = {"physical_rows": len(stamps)}
    created, updated = (np.array(each, np.uint64) for each in zip(*stamps, strict=True))
    set_stamps(fragment, created, updated)
    return fragment


class Head:
    """As much of a handle as joining looks at."""

    def __init__(self, version: int) -> None:
        self.version = version


@given(stamps=STAMPS, version=st.integers(1, 500))
def test_joined_stamps_are_never_too_old_and_tell_rows_written_again(
    stamps: list[tuple[int, int]], version: int
) -> None:
    fragment = stamped(stamps)
    if stamps_of(fragment) is None:
        return  # few runs stay
    row_versions.joining(Head(version))([fragment], [])  # type: ignore[arg-type]
    joined = row_versions._runs(fragment["last_updated_at_version_meta"])
    created = row_versions._runs(fragment["created_at_version_meta"])
    assert joined is not None
    assert created is not None
    updated_at, created_at = np.repeat(joined[1], joined[0]), np.repeat(created[1], created[0])
    horizon = version - COSTS.exact_versions
    for (was_created, was_updated), now_created, now_updated in zip(
        stamps, created_at.tolist(), updated_at.tolist(), strict=True
    ):
        if was_updated > horizon:
            assert (now_created, now_updated) == (was_created, was_updated)
        else:
            assert was_updated <= now_updated <= horizon
            if now_updated:  # 0 is no version that ever wrote a row
                assert (now_created == now_updated) == (was_created == was_updated)


def runs(store: Store) -> tuple[int, int]:
    """How many runs of row versions the newest table version has, and the manifest's."""
    handles = (
        store.datasets.handle(store.snapshot().tables[PERSON]),
        store.datasets.open(LOCATION),
    )
    counts = []
    for handle in handles:
        facts = [each.metadata.to_json() for each in handle.get_fragments()]
        lists = [row_versions._runs(each["created_at_version_meta"]) for each in facts]
        counts.append(sum(len(each[0]) for each in lists if each is not None))
    return counts[0], counts[1]


def test_runs_of_row_versions_do_not_grow_with_the_commits(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(COSTS, "exact_versions", 16)
    monkeypatch.setattr(COSTS, "runs_few", 2)
    monkeypatch.setattr(COSTS, "joined_runs_rows_max", 48)
    monkeypatch.setattr(COSTS, "fold_class_rows", 24)
    monkeypatch.setattr(COSTS, "fold_class_growth", 3)
    sizes = {}
    commits = []
    for number in range(1, 241):
        commits.append(append(store, PERSON, f"r{number}"))
        sizes[number] = runs(store)
    assert max(max(each) for each in sizes.values()) <= 16 + 3 * COSTS.fold_fragments_min
    late = max(sum(sizes[number]) for number in range(200, 241))
    assert late <= 1.5 * max(sum(sizes[number]) for number in range(40, 80))
    listed = store.history.list(MAIN)
    assert [each.id for each in listed[:-1]] == [each.id for each in reversed(commits)]
    assert [each.manifest_version for each in listed[:-1]] == [
        each.manifest_version for each in reversed(commits)
    ]
    for nth in (0, 7, 100, 239):
        snapshot = store.history.snapshot(commits[nth].id)
        assert store.reader(snapshot, PERSON).rows(["id"]).num_rows == nth + 1


def test_row_ids_are_given_in_the_order_of_creation(store: Store) -> None:
    """Overwrites, undone writes and branches included: `next_row_id` tells old rows from new."""
    ends = [0]

    def grown(branch: str = MAIN) -> None:
        pin = store.snapshot(branch).tables[PERSON]
        handle = store.datasets.handle(pin)
        row_ids = handle.scanner(columns=[], with_row_id=True).to_table()["_rowid"].to_pylist()
        ends.append(next_row_id(handle))
        assert all(row_id < ends[-1] for row_id in row_ids)
        assert ends[-1] >= ends[-2]

    put(store, {PERSON: {"a": 1, "b": 2}})
    grown()
    write = store.begin(kind=WriterKind.MUTATION)
    replace_all(store, write, PERSON, rows(PERSON, {"c": 1}))
    store.commit(write)
    grown()
    assert ends[-1] == ends[-2] + 1
    write = store.begin(kind=WriterKind.MUTATION)
    assert remove(store, write, PERSON, "id = 'c'")
    store.commit(write)
    grown()
    assert ends[-1] == ends[-2]
    store.branches.create("b")
    put(store, {PERSON: {"d": 1}}, branch="b")
    grown("b")
    assert ends[-1] == ends[-2] + 1
    assert set(content(store, "b")[PERSON]) == {"d"}
