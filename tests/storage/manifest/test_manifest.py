"""The manifest: what is visible, and the one write that changes it."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import lance
import pytest
from ulid import ULID

from omnigraph.errors import StorageFailed, UnsupportedVersion, VersionMismatch
from omnigraph.storage import records, stamp
from omnigraph.storage.lance.datasets import CommitRaced
from omnigraph.storage.lance.tag_refs import TagRefs
from omnigraph.storage.manifest import publish as publish_module
from omnigraph.storage.manifest.manifest import Manifest
from omnigraph.storage.manifest.publish import ManifestChange, Publisher
from omnigraph.storage.manifest.queries import Queries
from omnigraph.storage.manifest.state import LOCATION
from omnigraph.storage.protocol.intent import WriterKind
from omnigraph.storage.records import (
    MANIFEST_SCHEMA,
    OBJECT_TYPES,
    CommitId,
    TablePin,
    Tombstone,
    visible,
)
from omnigraph.storage.retry import PUBLISH
from omnigraph.storage.store import Store
from omnigraph.types import TableKey
from tests.storage.world import (
    CITY,
    KNOWS,
    PERSON,
    TABLES,
    Where,
    append,
    content,
    heads_agree,
    put,
    rows,
)

P = TableKey("node:P")


def pin(version: int, branch: str | None = None, key: TableKey = P) -> TablePin:
    return TablePin(key, "nodes/p", version, branch)


def change(*pins: TablePin) -> ManifestChange:
    return ManifestChange(commit_id=CommitId(str(ULID())), pins=pins)


def raw(store: Store) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = lance.dataset(store.where.join(LOCATION)).to_table().to_pylist()
    return rows


# Rows


def test_m1_the_manifest_has_its_columns_and_its_key(store: Store) -> None:
    handle = lance.dataset(store.where.join(LOCATION))
    assert handle.schema.names == [
        "object_id",
        "object_type",
        "location",
        "metadata",
        "base_objects",
        "table_key",
        "table_version",
        "table_branch",
        "row_count",
    ]
    key = handle.schema.field("object_id")
    assert key.metadata[b"lance-schema:unenforced-primary-key"] == b"true"
    assert not key.nullable
    assert handle.has_stable_row_ids
    assert handle.describe_indices() == []


def test_m1_rows_are_of_five_kinds_and_name_their_tables(store: Store) -> None:
    store.branches.create("b")
    put(store, {PERSON: {"a": 1}}, branch="b")
    rows = store.datasets.open(LOCATION, "b").to_table().to_pylist()
    kinds = {row["object_type"] for row in rows}
    assert kinds <= set(OBJECT_TYPES)
    for row in rows:
        lineage = row["object_type"] in ("graph_commit", "graph_head")
        assert (row["table_key"] is None) == lineage
        if row["object_type"] == "table_version":
            assert row["table_branch"] in (None, "b")
    assert len({row["object_id"] for row in rows}) == len(rows)


def test_l1_every_table_has_stable_row_ids_and_declares_its_id(store: Store) -> None:
    for pinned in store.snapshot().tables.values():
        handle = store.datasets.handle(pinned)
        assert handle.has_stable_row_ids
        field = handle.schema.field("id")
        assert field.metadata[b"lance-schema:unenforced-primary-key"] == b"true"
        assert handle.schema.names[0] == "id"
        if pinned.table_key.startswith("edge:"):
            assert handle.schema.names[:3] == ["id", "src", "dst"]


def test_l2_no_retired_table_exists(store: Store, local: Where) -> None:
    put(store, {PERSON: {"a": 1}})
    assert store.where.path is not None
    names = {path.name for path in store.where.path.iterdir()}
    assert names == {
        "__manifest",
        "nodes",
        "edges",
        "_graph_commit_recoveries.lance",
        "__recovery",
        "__locks",
    }


# Snapshots


def test_m2_the_latest_version_of_each_table_is_visible() -> None:
    other = TableKey("node:Q")
    pins = [pin(3), pin(5), pin(4), pin(2, key=other)]
    assert visible(pins, []) == {P: pin(5), other: pin(2, key=other)}


def test_m2_a_branchs_own_version_wins_over_the_inherited_one() -> None:
    assert visible([pin(5), pin(6, "b")], []) == {P: pin(6, "b")}


def test_m2_a_tombstone_covers_versions_up_to_its_own() -> None:
    assert visible([pin(5)], [Tombstone(P, 5)]) == {}
    assert visible([pin(5)], [Tombstone(P, 4)]) == {P: pin(5)}
    assert visible([pin(5), pin(7)], [Tombstone(P, 6)]) == {P: pin(7)}
    assert visible([pin(5), pin(6, "b")], [Tombstone(P, 6, "b")]) == {}, "nothing shines through"


def test_m2_a_published_tombstone_hides_its_table(store: Store, local: Where) -> None:
    append(store, PERSON, "a")
    gone = ManifestChange(commit_id=CommitId(str(ULID())), tombstones=(Tombstone(PERSON, 2),))
    store.publisher.publish("main", gone, expected_table_versions={PERSON: 2})
    assert set(store.snapshot().tables) == {CITY, KNOWS}
    assert set(local.open().snapshot().tables) == {CITY, KNOWS}


def test_m4_a_publish_writes_its_lineage_and_moves_one_head_row(store: Store) -> None:
    first = append(store, PERSON, "a")
    second = append(store, PERSON, "b")
    heads = [row for row in raw(store) if row["object_type"] == "graph_head"]
    assert [row["object_id"] for row in heads] == ["graph_head:main"]
    commits = store.history.list()
    assert [c.id for c in commits[:2]] == [second.id, first.id]
    assert commits[0].parent == first.id
    genesis = commits[-1]
    assert (genesis.parent, genesis.branch, genesis.manifest_version) == (None, None, 1)
    assert [c.manifest_version for c in commits] == [3, 2, 1]


def test_m4_a_branchs_first_commit_gives_it_its_own_head_row(store: Store, local: Where) -> None:
    head = append(store, PERSON, "a")
    store.branches.create("b")
    store.branches.create("c", source="b")
    assert store.snapshot("c").commit_id == head.id
    mine = append(store, PERSON, "b", branch="b")
    rows = store.datasets.open(LOCATION, "b").to_table().to_pylist()
    heads = [row["object_id"] for row in rows if row["object_type"] == "graph_head"]
    assert heads == ["graph_head:b"]
    assert local.open().snapshot("b").commit_id == mine.id
    assert local.open().snapshot("c").commit_id == head.id


def test_m4_reading_back_agrees_with_what_was_remembered(store: Store, local: Where) -> None:
    store.branches.create("b")
    for number in range(40):  # past a fold
        put(store, {TABLES[number % 3]: {"x": number}}, branch=("main", "b")[number % 2])
    fresh = local.open()
    for branch in ("main", "b"):
        assert fresh.snapshot(branch) == store.snapshot(branch)
        assert fresh.history.list(branch) == store.history.list(branch)
        assert content(fresh, branch) == content(store, branch)


# Publish


class NoLocks:
    """Locks everybody holds: what is left is the commit's own compare-and-swap."""

    class _Held:
        def require_alive(self) -> None: ...

        def release(self) -> None: ...

    def acquire(self, name: str, *, wait_s: float) -> "NoLocks._Held":
        return self._Held()

    def probe(self, name: str, *, patient: bool = True) -> "NoLocks._Held":
        return self._Held()


def publisher(where: Where) -> tuple[Manifest, Publisher]:
    """A publisher that waits for nobody, and the states it knows."""
    store = where.open()
    manifest = Manifest(
        store.where.uri,
        store.datasets,
        TagRefs(store.where, store.datasets, store.objects),
    )
    queries = Queries(store.datasets, manifest)
    return manifest, Publisher(
        store.where.uri, store.datasets, manifest, queries, NoLocks(), store.stats
    )


def head_of(store: Store, key: TableKey) -> TablePin:
    return store.snapshot().tables[key]


def moved(pinned: TablePin) -> TablePin:
    return TablePin(pinned.table_key, pinned.location, pinned.version + 1, None, "", 0)


def test_p2_two_publishers_from_one_base_conflict(store: Store, local: Where) -> None:
    (first, one), (second, two) = publisher(local), publisher(local)
    base_one, base_two = first.state("main"), second.state("main")
    one._publish_once(base_one, change(moved(head_of(store, PERSON))))
    with pytest.raises(CommitRaced):
        two._publish_once(base_two, change(moved(head_of(store, CITY))))
    assert len(store.history.list()) == 2


def test_p2_two_first_publishers_on_a_branch_conflict(store: Store, local: Where) -> None:
    store.branches.create("b")
    (first, one), (second, two) = publisher(local), publisher(local)
    base_one, base_two = first.state("b"), second.state("b")
    one._publish_once(base_one, change())
    with pytest.raises(CommitRaced):
        two._publish_once(base_two, change())
    assert len(store.history.list("b")) == 2


def test_p2_publishers_without_locks_never_both_land_one_version(
    store: Store, local: Where
) -> None:
    """Threads publish the same next version at once; the row-level compare-and-swap decides."""
    target = moved(head_of(store, PERSON))
    outcomes: list[str] = []

    def work() -> None:
        try:
            publisher(local)[1].publish("main", change(target), expected_table_versions={PERSON: 1})
            outcomes.append("won")
        except VersionMismatch:
            outcomes.append("mismatch")

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == ["mismatch"] * 5 + ["won"]
    versions = [r for r in raw(store) if r["table_key"] == PERSON and r["table_version"] == 2]
    assert len(versions) == 1


def test_p3_a_moved_table_is_a_version_mismatch(store: Store) -> None:
    append(store, PERSON, "a")
    with pytest.raises(VersionMismatch) as raised:
        store.publisher.publish("main", change(), expected_table_versions={PERSON: 1, CITY: 1})
    error = raised.value
    assert (error.table_key, error.expected, error.actual) == (PERSON, 1, 2)


def test_p3_an_empty_map_publishes_best_effort(store: Store) -> None:
    append(store, PERSON, "a")
    commit = store.publisher.publish("main", change(), expected_table_versions={})
    assert store.snapshot().commit_id == commit.id


def test_p4_an_advance_during_the_attempts_surfaces_and_is_not_rebased(
    store: Store, local: Where, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = local.open()
    real = Publisher._stage
    tried = []

    def meanwhile(self: Publisher, *arguments: object) -> object:
        staged = real(self, *arguments)  # type: ignore[arg-type]
        if self is store.publisher and not tried:
            tried.append(1)
            with no_publish_lock(monkeypatch):
                append(other, PERSON, "came first")
        return staged

    monkeypatch.setattr(Publisher, "_stage", meanwhile)
    with pytest.raises(VersionMismatch):
        store.publisher.publish(
            "main", change(moved(head_of(store, PERSON))), expected_table_versions={PERSON: 1}
        )
    assert store.stats.view().events["phase_c.raced"] == 1


@contextmanager
def no_publish_lock(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A lock is held by the publisher under test; the one in between must not wait for it."""
    real = publish_module.publish_lock
    monkeypatch.setattr(publish_module, "publish_lock", lambda branch: f"other-{branch}")
    yield
    monkeypatch.setattr(publish_module, "publish_lock", real)


def test_p4_the_publisher_gives_up_after_its_attempts(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempts = []

    def lose(*arguments: object) -> None:
        attempts.append(1)
        raise CommitRaced("another one")

    monkeypatch.setattr(Publisher, "_publish_once", lose)
    with pytest.raises(StorageFailed, match="attempts"):
        store.publisher.publish("main", change(), expected_table_versions={})
    assert len(attempts) == PUBLISH.attempts == 5


def test_a_publish_that_lost_against_itself_is_published_once(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An object store's client repeats a put whose answer got lost, and is told it came second."""
    real = store.datasets.commit
    answers = []

    def lost_answer(*arguments: Any, **facts: Any) -> Any:
        handle = real(*arguments, **facts)
        answers.append(handle)
        raise CommitRaced("version exists")

    monkeypatch.setattr(store.datasets, "commit", lost_answer)
    wanted = change()
    commit = store.publisher.publish("main", wanted, expected_table_versions={})
    monkeypatch.undo()
    assert len(answers) == 1
    assert commit.id == wanted.commit_id == store.snapshot().commit_id
    assert commit.manifest_version == 2
    assert len(store.history.list()) == 2


# The stamp


def restamp(store: Store, version: int) -> None:
    handle = lance.dataset(store.where.join(LOCATION))
    handle.update_schema_metadata({"omnigraph:internal_schema_version": str(version)})


def test_v1_creation_stamps_four(store: Store) -> None:
    assert MANIFEST_SCHEMA.metadata[b"omnigraph:internal_schema_version"] == b"4"
    assert store.snapshot().internal_schema_version == 4 == stamp.INTERNAL_SCHEMA_VERSION
    store.branches.create("b")
    assert store.snapshot("b").internal_schema_version == 4


@pytest.mark.parametrize("read_only", [True, False])
@pytest.mark.parametrize(("version", "way_out"), [(3, "export"), (5, "upgrade omnigraph")])
def test_v2_another_version_is_refused_by_both_open_modes(
    store: Store, local: Where, version: int, way_out: str, read_only: bool
) -> None:
    restamp(store, version)
    store.objects.put("__recovery/01JZ0000000000000000000000.json", b"not looked at")
    before = store.objects.list("__manifest")
    with pytest.raises(UnsupportedVersion, match=way_out) as raised:
        local.open(read_only=read_only)
    assert (raised.value.found, raised.value.supported) == (version, 4)
    assert store.objects.list("__manifest") == before


def test_v2_the_publisher_checks_the_stamp_again(store: Store) -> None:
    store.snapshot()
    restamp(store, 5)
    with pytest.raises(UnsupportedVersion):
        append(store, PERSON, "a")
    assert store.sidecars.pending() == ()


def test_v2_a_stamp_that_came_a_moment_ago_is_met_before_anything_is_written(
    store: Store, local: Where
) -> None:
    """A write may begin at a state that is seconds old; it may not be published onto a newer one
    that another program stamped."""
    append(store, PERSON, "a")
    write = store.begin(kind=WriterKind.MUTATION, recent=True)
    write.append(PERSON, rows(PERSON, {"b": 1}))
    restamp(store, 5)
    before = lance.dataset(store.where.join(LOCATION)).version
    with pytest.raises(UnsupportedVersion, match="upgrade omnigraph"):
        store.commit(write)
    assert lance.dataset(store.where.join(LOCATION)).version == before
    assert store.sidecars.pending() == ()
    restamp(store, 4)
    assert heads_agree(local.open())


def test_v2_upkeep_leaves_a_manifest_of_another_version_alone(store: Store) -> None:
    for number in range(4):
        append(store, PERSON, f"r{number}")
    restamp(store, 5)
    before = store.objects.list("__manifest")
    with pytest.raises(UnsupportedVersion, match="upgrade omnigraph"):
        store.folding.optimize_manifest("main")
    assert store.objects.list("__manifest") == before


@pytest.mark.parametrize("metadata", [None, "", "[]", "{", "{}"])
def test_a_row_whose_facts_are_damaged_is_a_storage_failure(metadata: str | None) -> None:
    row = {**dict.fromkeys(records.MANIFEST_SCHEMA.names), "object_id": "x", "metadata": metadata}
    for decode in (
        lambda: records.decode_commit(row, 1),
        lambda: records.decode_head(row, 1),
        lambda: records.decode_pin(row),
    ):
        with pytest.raises(StorageFailed, match="row 'x' is damaged; run `omnigraph check`"):
            decode()


def test_branches_share_the_commits_that_they_inherited(store: Store, local: Where) -> None:
    """Fragments that a fold made on one branch hold the commits of others again."""
    for n in range(3):
        append(store, PERSON, f"p{n}")
    store.branches.create("draft")
    for n in range(20):
        append(store, PERSON, f"d{n}", branch="draft")
    reopened = local.open()
    ours, theirs = reopened.history.dag("main"), reopened.history.dag("draft")
    assert len(ours) >= 3
    assert all(theirs[each] is commit for each, commit in ours.items())
