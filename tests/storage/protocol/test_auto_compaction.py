"""Folding keeps fragments few, changes no row and disturbs no reader."""

from dataclasses import replace

import pytest

from omnigraph.costs import COSTS
from omnigraph.errors import StorageFailed
from omnigraph.storage.lance.datasets import Datasets, Handle
from omnigraph.storage.lance.index_segments import IndexRequest
from omnigraph.storage.lance.inline_commits import InlineResidual
from omnigraph.storage.manifest.state import LOCATION
from omnigraph.storage.protocol.intent import WriterKind
from omnigraph.storage.store import Store
from tests.storage.world import FAST, PERSON, Where, append, content, heads_agree, put

BY_ID = IndexRequest("id", "BTREE", "id:ordered")


def fragments(store: Store, branch: str = "main") -> tuple[int, int]:
    """How many the table has, and the manifest."""
    pin = store.snapshot(branch).tables[PERSON]
    owner = None if branch == "main" else branch
    return (
        len(store.datasets.handle(pin).get_fragments()),
        len(store.datasets.open(LOCATION, owner).get_fragments()),
    )


@pytest.mark.parametrize("branch", ["main", "b"])
def test_small_fragments_never_pile_up(store: Store, branch: str) -> None:
    if branch != "main":
        store.branches.create(branch)
    for number in range(100):
        append(store, PERSON, f"r{number}", branch=branch)
        assert max(fragments(store, branch)) <= COSTS.fold_fragments_min + 1
    assert set(content(store, branch)[PERSON]) == {f"r{n}" for n in range(100)}
    assert heads_agree(store, branch)
    assert store.stats.view().events["fold.table"] >= 3
    assert store.stats.view().events["fold.manifest"] >= 3
    assert len([c for c in store.history.list(branch) if c.parent]) == 100, "folds are no commits"


def test_x1_commits_and_their_folds_list_no_versions(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where Lance looks for the newest version it reads the name of every one that there is."""
    append(store, PERSON, "first")
    opened: list[int | None] = []
    open_ = Datasets.open

    def noted(
        self: Datasets,
        location: str,
        branch: str | None = None,
        version: int | None = None,
        **facts: bool,
    ) -> Handle:
        opened.append(version)
        return open_(self, location, branch, version, **facts)

    monkeypatch.setattr(Datasets, "open", noted)
    for number in range(2 * COSTS.fold_fragments_min):
        append(store, PERSON, f"r{number}")
    assert store.stats.view().events["fold.table"] >= 1
    assert store.stats.view().events["fold.manifest"] >= 1
    assert opened
    assert None not in opened


def test_one_row_writes_leave_a_large_fragment_alone(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a fold writes follows what was written since, not the table."""
    monkeypatch.setattr(COSTS, "fold_class_rows", 32)
    monkeypatch.setattr(COSTS, "fold_class_growth", 2)
    put(store, {PERSON: {f"large{n}": n for n in range(200)}})
    (large,) = store.datasets.handle(store.snapshot().tables[PERSON]).get_fragments()
    for number in range(4 * COSTS.fold_fragments_min):
        append(store, PERSON, f"r{number}")
        pin = store.snapshot().tables[PERSON]
        assert large.fragment_id in {
            f.fragment_id for f in store.datasets.handle(pin).get_fragments()
        }
        assert fragments(store)[0] <= COSTS.fold_fragments_min + 1
    assert store.stats.view().events["fold.table"] >= 4
    assert len(content(store)[PERSON]) == 200 + 4 * COSTS.fold_fragments_min


@pytest.mark.parametrize("on_main", [3, 20])
def test_a_branch_folds_beside_the_indexes_it_inherited(store: Store, on_main: int) -> None:
    for number in range(on_main):
        append(store, PERSON, f"m{number}")
    index(store, "main")
    store.branches.create("b")
    for number in range(50):
        append(store, PERSON, f"b{number}", branch="b")
        if number == 25:
            index(store, "b")
    ids = {f"m{n}" for n in range(on_main)} | {f"b{n}" for n in range(50)}
    reader = store.reader(store.snapshot("b"), PERSON)
    for id_ in ids:
        assert reader.rows(["id"], filter=f"id = '{id_}'")["id"].to_pylist() == [id_]
    assert store.stats.view().events["fold.table"] >= 2
    assert fragments(store, "b")[0] <= on_main + COSTS.fold_fragments_min + 1
    assert heads_agree(store, "b")


def index(store: Store, branch: str) -> None:
    write = store.begin(branch, kind=WriterKind.MUTATION)
    write.create_indexes(PERSON, [BY_ID])
    store.commit(write)


def test_a_commit_sees_its_own_time_through_folds(store: Store) -> None:
    commits = [append(store, PERSON, f"r{n}") for n in range(70)]
    for position in (0, 30, 31, 32, 69):
        seen = content(store, commit=commits[position].id)[PERSON]
        assert set(seen) == {f"r{n}" for n in range(position + 1)}
    listed = store.history.list()
    assert [c.id for c in listed[:-1]] == [c.id for c in reversed(commits)]
    assert {c.id: c.manifest_version for c in listed[:-1]} == {
        c.id: c.manifest_version for c in commits
    }


def test_a_reader_keeps_its_snapshot_while_the_table_is_folded(store: Store, local: Where) -> None:
    append(store, PERSON, "a")
    reader = local.open(read_only=True)
    held = reader.reader(reader.snapshot(), PERSON)
    for number in range(COSTS.fold_fragments_min + 5):
        append(store, PERSON, f"r{number}")
    assert held.rows(["id"])["id"].to_pylist() == ["a"]
    assert store.stats.view().events["fold.table"] == 1


def test_folding_can_be_turned_off(local: Where) -> None:
    store = local.create(settings=replace(FAST, fold=False))
    for number in range(COSTS.fold_fragments_min + 8):
        append(store, PERSON, f"r{number}")
    assert min(fragments(store)) >= COSTS.fold_fragments_min + 8
    assert "fold.table" not in store.stats.view().events


def test_a_failing_fold_fails_no_write(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object, **__: object) -> int:
        raise StorageFailed("compacted", "no")

    monkeypatch.setattr(InlineResidual, "compact", fails)
    for number in range(COSTS.fold_fragments_min + 3):
        append(store, PERSON, f"r{number}")
    assert len(content(store)[PERSON]) == COSTS.fold_fragments_min + 3
    assert store.stats.view().events["fold.failed"] >= 2
    monkeypatch.undo()
    append(store, PERSON, "next")
    assert max(fragments(store)) < COSTS.fold_fragments_min
    assert heads_agree(store)


def test_the_fold_of_one_writer_is_a_conflict_for_a_slower_one(store: Store, local: Where) -> None:
    for number in range(COSTS.fold_fragments_min - 1):
        append(store, PERSON, f"r{number}")
    other = local.open()
    append(store, PERSON, "folds")
    append(other, PERSON, "after")
    assert len(content(other)[PERSON]) == COSTS.fold_fragments_min + 1
    assert heads_agree(other)
