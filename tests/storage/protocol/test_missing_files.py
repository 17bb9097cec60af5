"""A version names only files that exist: a missing one fails the write before it is published."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from omnigraph.errors import RecoveryRequired, StorageFailed
from omnigraph.storage import failpoints
from omnigraph.storage.flushing import Flusher
from omnigraph.storage.lance.index_segments import IndexRequest
from omnigraph.storage.protocol.intent import WriterKind
from omnigraph.storage.protocol.write import Write
from omnigraph.storage.records import WriteBase
from omnigraph.storage.stats import Stats
from omnigraph.storage.store import Settings, Store
from tests.storage.conftest import Server
from tests.storage.world import KNOWS, PERSON, Where, content, put, rows

FIRST = {f"p{n}": n for n in range(8)}


def filled(where: Where, durability: str, *, fold: bool = False) -> Store:
    store = where.create(Settings(durability=durability, fold=fold))
    put(store, {PERSON: FIRST, KNOWS: {"k": 1}})
    return store


def files(store: Store) -> set[str]:
    root = Path(str(store.where.path))
    folders = (root / "nodes", root / "edges")
    return {str(path) for folder in folders for path in folder.rglob("*") if path.is_file()}


def appended(store: Store, write: Write) -> None:
    write.append(PERSON, rows(PERSON, {"new": 1}))


def replaced(store: Store, write: Write) -> None:
    write.upsert(PERSON, rows(PERSON, {"p1": 9}))


def removed(store: Store, write: Write) -> None:
    gone = store.tables.reader(write.base(PERSON)).rows(["id"], with_row_id=True)["_rowid"]
    nothing = rows(PERSON, {})
    write.patch(PERSON, removed=gone.slice(0, 2).combine_chunks(), added=nothing, updated=0)


def overwritten(store: Store, write: Write) -> None:
    base = write.base(PERSON)
    written = store.tables.write_fragments(base, rows(PERSON, {"only": 1}), replacing=True)
    write.fragments(PERSON, written, replacing=True)


def taken_out(store: Store, write: Write) -> None:
    base = write.base(PERSON)
    added = store.tables.write_fragments(base, rows(PERSON, {"new": 1}), replacing=False)
    left, gone = store.tables.without_rows(base, pa.array([0, 1], pa.uint64()))
    write.replace_rows(PERSON, left=left, gone=gone, added=added, updated=0)


def indexed(store: Store, write: Write) -> None:
    write.create_indexes(PERSON, [IndexRequest("id", "BTREE", "id_idx")])


WRITES: dict[str, Callable[[Store, Write], None]] = {
    "append": appended,
    "upsert": replaced,
    "delete": removed,
    "overwrite": overwritten,
    "replace": taken_out,
    "index": indexed,
}


@pytest.mark.parametrize("branch", ["main", "side"])
@pytest.mark.parametrize("durability", ["os", "fsync"])
@pytest.mark.parametrize("name", WRITES)
def test_C4_a_missing_file_fails_the_write_before_it_is_published(
    local: Where, name: str, durability: str, branch: str
) -> None:
    store = filled(local, durability)
    store.branches.create("side")
    store.begin(branch, kind=WriterKind.MUTATION).base(PERSON)
    before, known, head = content(store, branch), files(store), store.snapshot(branch).commit_id
    write = store.begin(branch, kind=WriterKind.MUTATION)
    WRITES[name](store, write)
    staged = sorted(path for path in files(store) - known if "/_refs/" not in path)
    assert staged
    if name == "index":
        shutil.rmtree(Path(staged[0]).parent)
    else:
        os.unlink(next((path for path in staged if "_deletions" in path), staged[0]))
    with pytest.raises(StorageFailed, match=r"missing file .*nothing was published") as failed:
        store.commit(write)
    assert failed.value.unpublished
    assert store.snapshot(branch).commit_id == head
    assert store.sidecars.pending() == ()
    assert content(store, branch) == before
    put(store, {PERSON: {"after": 1}}, branch=branch)
    assert content(local.open(), branch)[PERSON]["after"] == 1


@pytest.mark.parametrize("durability", ["os", "fsync"])
def test_C4_a_missing_file_of_a_further_version_undoes_the_write(
    local: Where, durability: str
) -> None:
    """Heads have moved by then, so the write is rolled back."""
    store = filled(local, durability)
    before = content(store)

    def step(tables: object, base: WriteBase) -> object:
        known = files(store)
        staged = store.tables.stage_append(base, rows(PERSON, {"more": 1}))
        [path] = files(store) - known
        os.unlink(path)
        return staged

    write = store.begin(kind=WriterKind.BRANCH_MERGE)
    write.append(PERSON, rows(PERSON, {"new": 1}))
    write.then(PERSON, step)  # type: ignore[arg-type]
    with pytest.raises(RecoveryRequired, match="missing file"):
        store.commit(write)
    store.heal()
    assert content(store) == before
    put(store, {PERSON: {"after": 1}})
    assert content(store)[PERSON]["after"] == 1


def test_R3_a_write_whose_files_are_gone_is_rolled_back(local: Where) -> None:
    """Its writer died after the table heads had moved. A power cut may take a file and leave the
    version that names it."""
    store = filled(local, "os")
    before, known = content(store), files(store)
    with failpoints.armed("publish.before", "raise"), pytest.raises(RecoveryRequired):
        put(store, {PERSON: {"p1": 7}})
    [gone] = [path for path in files(store) - known if "_deletions" in path]
    os.unlink(gone)
    assert content(local.open()) == before
    assert content(store) == before
    [recovery] = store.audit.list()
    assert recovery.recovery_kind == "RolledBack"


def test_R3_a_write_whose_files_are_gone_is_rolled_back_on_s3(s3: Where) -> None:
    store = s3.create(Settings(fold=False, lease_term_s=1.0))
    put(store, {PERSON: FIRST})
    before = content(store)
    known = {path for folder in ("nodes", "edges") for path in store.objects.list(folder)}
    with failpoints.armed("publish.before", "raise"), pytest.raises(RecoveryRequired):
        put(store, {PERSON: {"p1": 7}})
    now = {path for folder in ("nodes", "edges") for path in store.objects.list(folder)}
    store.objects.delete(*(path for path in now - known if "_deletions" in path))
    assert content(s3.open()) == before


def test_a_staged_file_is_looked_for_once(local: Where) -> None:
    store = filled(local, "os")
    before = store.stats.view()
    put(store, {PERSON: {"new": 1}})
    # The rows, the rows of the manifest, and what they take out of it.
    assert store.stats.view().since(before).calls["disk.look"] == 3


def test_a_file_that_another_thread_owed_and_gave_up_is_no_fault(tmp_path: Path) -> None:
    flusher = Flusher(tmp_path, Stats(), "fsync")
    flusher.owe(["given-up"])
    (tmp_path / "own").write_bytes(b"")
    flusher.barrier(["own"])
    for mode in ("fsync", "os"):
        with pytest.raises(StorageFailed, match="missing file"):
            Flusher(tmp_path, Stats(), mode).barrier(staged=["own", "gone"])


def test_staged_files_are_not_looked_for_on_s3(s3_server: Server) -> None:
    store = s3_server.place().create()
    put(store, {PERSON: FIRST})
    calls = store.stats.view().calls
    assert "disk.look" not in calls
    assert "disk.flush" not in calls
