"""Branches of the graph, and the forks their tables get."""

import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from omnigraph.errors import AlreadyExists, BadRequest, InUse, NotFound, StorageFailed
from omnigraph.storage.lance.datasets import Datasets, Handle
from omnigraph.storage.manifest.state import LOCATION
from omnigraph.storage.names import encode
from omnigraph.storage.protocol.intent import WriterKind
from omnigraph.storage.store import Store
from tests.storage.world import CITY, PERSON, Where, append, content, put, rows


def forks(store: Store, branch: str) -> list[str]:
    """The tables that have a Lance branch of that name."""
    pins = store.snapshot().tables.values()
    return sorted(p.table_key for p in pins if store.datasets.ref(p.location, branch) is not None)


def test_l3_a_branch_is_a_ref_of_the_manifest_and_copies_nothing(store: Store) -> None:
    append(store, PERSON, "a")
    store.branches.create("b")
    assert set(store.datasets.refs(LOCATION)) == {"b"}
    assert forks(store, "b") == []
    assert store.snapshot("b").tables == store.snapshot("main").tables
    assert store.snapshot("b").commit_id == store.snapshot("main").commit_id


def test_l3_a_table_forks_on_its_first_write_there(store: Store) -> None:
    append(store, PERSON, "a")
    store.branches.create("b")
    append(store, PERSON, "b", branch="b")
    assert forks(store, "b") == [PERSON]
    pin = store.snapshot("b").tables[PERSON]
    assert (pin.branch, pin.version) == ("b", 3)
    assert store.snapshot("b").tables[CITY].branch is None
    assert content(store, "main")[PERSON] == {"a": 1}
    assert content(store, "b")[PERSON] == {"a": 1, "b": 1}


def test_branches_do_not_see_each_other(store: Store) -> None:
    append(store, PERSON, "base")
    store.branches.create("b")
    store.branches.create("c", source="b")
    append(store, PERSON, "on-main")
    append(store, PERSON, "on-b", branch="b")
    append(store, PERSON, "on-c", branch="c")
    assert set(content(store, "main")[PERSON]) == {"base", "on-main"}
    assert set(content(store, "b")[PERSON]) == {"base", "on-b"}
    assert set(content(store, "c")[PERSON]) == {"base", "on-c"}


def test_a_branch_of_a_branch_reads_and_forks_its_parents_table(store: Store) -> None:
    store.branches.create("b")
    append(store, PERSON, "on-b", branch="b")
    store.branches.create("c", source="b")
    assert content(store, "c")[PERSON] == {"on-b": 1}
    append(store, PERSON, "on-c", branch="c")
    assert content(store, "c")[PERSON] == {"on-b": 1, "on-c": 1}
    assert content(store, "b")[PERSON] == {"on-b": 1}
    names = [c.branch for c in store.history.list("c")]
    assert names == ["c", "b", None]


def test_names_that_are_prefixes_live_side_by_side(store: Store, local: Where) -> None:
    for name in ("review", "review/x", "review/x/y", "review_x", "review-x"):
        store.branches.create(name)
        append(store, PERSON, name, branch=name)
    store.branches.delete("review")
    assert local.open().branches.list() == (
        "main",
        "review-x",
        "review/x",
        "review/x/y",
        "review_x",
    )
    for name in ("review/x", "review/x/y", "review_x", "review-x"):
        assert content(store, name)[PERSON] == {name: 1}
    store.branches.create("review")
    assert content(store, "review")[PERSON] == {}


@pytest.mark.parametrize("name", ["", "  ", "main", "a..b"])
def test_a_bad_name_is_refused_and_nothing_written(store: Store, name: str) -> None:
    before = store.objects.list("__manifest")
    with pytest.raises(BadRequest):
        store.branches.create(name)
    assert store.objects.list("__manifest") == before


def test_a_taken_name_is_refused(store: Store) -> None:
    store.branches.create("b")
    with pytest.raises(AlreadyExists, match="branch 'b' already exists"):
        store.branches.create(" b ")


def test_an_unknown_source_or_branch_is_not_found(store: Store) -> None:
    with pytest.raises(NotFound, match="branch 'x' not found"):
        store.branches.create("b", source="x")
    with pytest.raises(NotFound):
        store.branches.delete("x")
    with pytest.raises(NotFound):
        store.snapshot("x")
    with pytest.raises(NotFound):
        store.begin("x", kind=WriterKind.MUTATION)


def test_a_branch_others_come_from_stays(store: Store) -> None:
    store.branches.create("b")
    store.branches.create("c", source="b")
    with pytest.raises(InUse, match="descendant branch 'c' still depends on it"):
        store.branches.delete("b")
    with pytest.raises(BadRequest, match="cannot delete branch 'main'"):
        store.branches.delete("main")
    store.branches.delete("c")
    store.branches.delete("b")
    assert store.branches.list() == ("main",)


def test_f2_deleting_removes_the_ref_and_then_the_forks(store: Store) -> None:
    store.branches.create("b")
    append(store, PERSON, "a", branch="b")
    location = store.snapshot("b").tables[PERSON].location
    store.branches.delete("b")
    assert forks(store, "b") == []
    assert store.objects.list(f"{location}/tree") == ()
    assert content(store)[PERSON] == {}


def test_f2_a_fork_that_stays_does_not_fail_the_deletion(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.branches.create("b")
    append(store, PERSON, "old", branch="b")
    real = store.datasets.delete_branch

    def only_manifest(location: str, branch: str) -> None:
        if location != LOCATION:
            raise StorageFailed("deleted", "no")
        real(location, branch)

    monkeypatch.setattr(store.datasets, "delete_branch", only_manifest)
    store.branches.delete("b")
    monkeypatch.undo()
    assert forks(store, "b") == [PERSON]
    append(store, PERSON, "main moves on")
    store.branches.create("b")
    append(store, PERSON, "new", branch="b")
    assert set(content(store, "b")[PERSON]) == {"main moves on", "new"}


def test_f1_an_unpublished_fork_is_used_by_the_next_write(store: Store, local: Where) -> None:
    append(store, PERSON, "a")
    store.branches.create("b")
    abandoned = store.begin("b", kind=WriterKind.MUTATION)
    abandoned.append(PERSON, rows(PERSON, {"abandoned": 1}))
    assert forks(store, "b") == [PERSON]
    append(local.open(), PERSON, "b", branch="b")
    assert content(store, "b")[PERSON] == {"a": 1, "b": 1}
    assert content(store, "main")[PERSON] == {"a": 1}


@pytest.mark.parametrize("leftover", ["folder without ref", "another base", "moved head"])
def test_f1_a_leftover_fork_is_reclaimed(store: Store, leftover: str) -> None:
    append(store, PERSON, "a")
    append(store, PERSON, "b")
    store.branches.create("w")
    pin = store.snapshot().tables[PERSON]
    version = pin.version - 1 if leftover == "another base" else pin.version
    store.datasets.create_branch(pin.location, "w", source=None, version=version)
    root = store.where.path
    assert root is not None
    if leftover == "folder without ref":
        os.remove(root / pin.location / "_refs" / "branches" / "w.json")
    if leftover == "moved head":
        head = store.datasets.open(pin.location, "w")
        transaction = store.tables.stage_append(pin, rows(PERSON, {"z": 1})).transaction
        shutil.copytree(root / pin.location / "data", root / pin.location / "tree" / "w" / "data")
        store.datasets.commit(head, transaction)
    append(store, PERSON, "w", branch="w")
    assert content(store, "w")[PERSON] == {"a": 1, "b": 1, "w": 1}
    assert store.stats.view().events["branch.leftover_reclaimed"] == 1


def test_a_recreated_branch_is_not_taken_for_the_old_one(store: Store, local: Where) -> None:
    other = local.open()
    store.branches.create("b")
    append(store, PERSON, "old", branch="b")
    assert content(other, "b")[PERSON] == {"old": 1}
    store.branches.delete("b")
    store.branches.create("b")
    append(store, PERSON, "new", branch="b")
    assert store.snapshot("b").tables[PERSON].version == 2
    assert content(other, "b")[PERSON] == {"new": 1}
    assert content(store, "b")[PERSON] == {"new": 1}


def test_a_write_prepared_on_a_deleted_branch_is_refused(store: Store, local: Where) -> None:
    store.branches.create("b")
    write = store.begin("b", kind=WriterKind.MUTATION)
    write.append(PERSON, rows(PERSON, {"old": 1}))
    local.open().branches.delete("b")
    with pytest.raises(NotFound):
        store.commit(write)
    assert store.branches.list() == ("main",)
    local.open().branches.create("b")
    with pytest.raises(NotFound, match="created again"):
        store.commit(write)
    assert content(store, "b")[PERSON] == {}
    assert store.sidecars.pending() == ()


def test_deleting_waits_for_a_writer_and_an_acknowledged_write_was_there(store: Store) -> None:
    """The writer holds a table's lock while it commits; the deletion takes them all."""
    store.branches.create("b")
    write = store.begin("b", kind=WriterKind.MUTATION)
    write.append(PERSON, rows(PERSON, {"a": 1}))
    seen = []

    def while_committing(*_: object) -> None:
        seen.append(store.locks.probe(f"{encode(PERSON + '@b')}"))

    write.then(PERSON, lambda tables, pin: while_committing())
    store.commit(write)
    assert seen == [None]
    store.branches.delete("b")
    assert store.branches.list() == ("main",)


def test_commits_of_a_branch_are_found_until_it_is_deleted(store: Store) -> None:
    store.branches.create("b")
    commit = append(store, PERSON, "a", branch="b")
    assert store.history.get(commit.id).branch == "b"
    assert content(store, commit=commit.id)[PERSON] == {"a": 1}
    assert [c.id for c in store.history.list("main")] == [commit.parent]
    store.branches.delete("b")
    with pytest.raises(NotFound):
        store.history.get(commit.id)
    with pytest.raises(NotFound):
        store.snapshot(commit=commit.id)


def test_a_branch_can_be_written_after_its_source_moved_on(store: Store) -> None:
    append(store, PERSON, "a")
    store.branches.create("b")
    for number in range(3):
        append(store, PERSON, f"m{number}")
    put(store, {PERSON: {"w": 1}, CITY: {"x": 1}}, branch="b")
    assert set(content(store, "b")[PERSON]) == {"a", "w"}


def test_branches_can_be_listed_while_others_are_deleted(store: Store) -> None:
    store.branches.create("stays")
    with ThreadPoolExecutor() as others:
        busy = others.submit(churn, store)
        while not busy.done():
            assert {"main", "stays"} <= set(store.branches.list())
            with pytest.raises(NotFound, match="commit 'nowhere'"):
                store.history.get("nowhere")
            assert store.history.everything()
        busy.result()
    assert store.branches.list() == ("main", "stays")


def churn(store: Store) -> None:
    for i in range(60):
        store.branches.create(f"b{i}")
        if i >= 5:
            store.branches.delete(f"b{i - 5}")
    for i in range(55, 60):
        store.branches.delete(f"b{i}")


def test_a_deleted_branch_leaves_no_empty_folder(store: Store, local: Where) -> None:
    before = sorted(Path(local.uri).rglob("tree"))
    store.branches.create("b")
    append(store, PERSON, "a", branch="b")
    store.branches.delete("b")
    left = [path for folder in Path(local.uri).rglob("tree") for path in folder.rglob("*")]
    assert left == [], before


def test_x1_branches_come_and_go_without_a_listing_of_versions(
    store: Store, local: Where, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The handle that is kept for them sees what others did since, and is of no version."""
    store.branches.create("first")
    store.branches.delete("first")
    other = local.open()
    append(other, PERSON, "a")
    other.branches.create("theirs")
    listed: list[str] = []
    open_ = Datasets.open

    def noted(self: Datasets, location: str, *arguments: object, **facts: object) -> Handle:
        if facts.get("branching"):
            listed.append(location)
        return open_(self, location, *arguments, **facts)  # type: ignore[arg-type]

    monkeypatch.setattr(Datasets, "open", noted)
    assert store.branches.list() == ("main", "theirs")
    store.branches.create("ours")
    assert set(content(store, "ours")[PERSON]) == {"a"}
    store.branches.delete("theirs")
    store.branches.delete("ours")
    assert listed == []
    assert other.branches.list() == ("main",)


def test_threads_that_fork_one_table_for_their_branches_have_a_handle_each(store: Store) -> None:
    names = [f"b{n}" for n in range(6)]
    for name in names:
        store.branches.create(name)
    with ThreadPoolExecutor(6) as threads:
        list(threads.map(lambda name: append(store, PERSON, name, branch=name), names))
    assert [set(content(store, name)[PERSON]) for name in names] == [{name} for name in names]
