"""What Lance does, as far as the write path relies on it. An upgrade that changes it fails here."""

import json
import os
import shutil
from pathlib import Path
from typing import Any
from urllib.parse import quote

import lance
import pyarrow as pa
import pytest
from lance import LanceDataset
from lance.commit import CommitConflictError
from lance.dataset import LanceOperation, Transaction
from lance.fragment import write_fragments
from lance.optimize import Compaction

PRIMARY_KEY = {"lance-schema:unenforced-primary-key": "true"}
SCHEMA = pa.schema(
    [pa.field("id", pa.string(), nullable=False, metadata=PRIMARY_KEY), pa.field("n", pa.int64())]
)
PLAIN = pa.schema([pa.field("id", pa.string(), nullable=False), pa.field("n", pa.int64())])


def table(*ids: str, n: int = 1, schema: pa.Schema = SCHEMA) -> pa.Table:
    return pa.table({"id": list(ids), "n": [n] * len(ids)}, schema=schema)


@pytest.fixture
def uri(tmp_path: Path) -> str:
    return str(tmp_path / "table.lance")


def make(uri: str, *ids: str, schema: pa.Schema = SCHEMA) -> LanceDataset:
    return lance.write_dataset(table(*ids, schema=schema), uri, enable_stable_row_ids=True)


def staged(handle: LanceDataset, *ids: str, n: int = 1) -> Transaction:
    return write_fragments(table(*ids, n=n), handle, mode="append", return_transaction=True)


def ids(handle: LanceDataset) -> list[str]:
    found: list[str] = handle.to_table(columns=["id"])["id"].to_pylist()
    return sorted(found)


def upsert(handle: LanceDataset, rows: pa.Table) -> Any:
    merge = handle.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
    return merge.conflict_retries(0)


def test_p2_the_primary_key_rejects_the_second_publisher_of_one_key(uri: str) -> None:
    make(uri, "seed")
    first, second = lance.dataset(uri), lance.dataset(uri)
    upsert(first, table()).execute(table("same"))
    with pytest.raises(OSError, match="Too many concurrent writers"):
        upsert(second, table()).execute(table("same"))
    assert ids(lance.dataset(uri)) == ["same", "seed"]


def test_p2_without_the_annotation_both_go_through(uri: str) -> None:
    make(uri, "seed", schema=PLAIN)
    first, second = lance.dataset(uri), lance.dataset(uri)
    upsert(first, table()).execute(table("same", schema=PLAIN))
    upsert(second, table()).execute(table("same", schema=PLAIN))
    assert ids(lance.dataset(uri)) == ["same", "same", "seed"]


def test_p2_two_updates_of_one_row_collide_with_a_typed_error(uri: str) -> None:
    """What publish builds on: the head row's fragment is touched by both."""
    base = make(uri, "head", "other")

    def publish() -> Transaction:
        left = base.get_fragment(0).delete("id = 'head'")
        return Transaction(
            base.version,
            LanceOperation.Update(
                updated_fragments=[left],
                new_fragments=write_fragments(table("head", n=2), base, mode="append"),
                fields_for_preserving_frag_bitmap=[0, 1],
                update_mode="rewrite_rows",
            ),
        )

    first, second = publish(), publish()
    won = LanceDataset.commit(base, first, max_retries=0)
    with pytest.raises(CommitConflictError) as lost:
        LanceDataset.commit(base, second, max_retries=0)
    assert lost.value.retryable
    assert ids(lance.dataset(uri)) == ["head", "other"]
    won.validate()


def test_an_update_that_removes_a_whole_fragment_collides_too(uri: str) -> None:
    base = make(uri, "head")
    assert base.get_fragment(0).delete("id = 'head'") is None

    def publish() -> Transaction:
        return Transaction(
            base.version,
            LanceOperation.Update(
                removed_fragment_ids=[0],
                new_fragments=write_fragments(table("head", n=2), base, mode="append"),
                update_mode="rewrite_rows",
            ),
        )

    first, second = publish(), publish()
    LanceDataset.commit(base, first, max_retries=0)
    with pytest.raises(CommitConflictError):
        LanceDataset.commit(base, second, max_retries=0)


def test_staging_moves_no_head(uri: str) -> None:
    base = make(uri, "a")
    staged(base, "b")
    base.merge_insert("id").when_matched_update_all().execute_uncommitted(table("a", n=5))
    base.get_fragment(0).delete("id = 'a'")
    assert lance.dataset(uri).version == base.version
    assert ids(lance.dataset(uri)) == ["a"]


def test_an_append_is_silently_rebased_over_another(uri: str) -> None:
    """Why commit_staged compares the version it made with the one it staged on."""
    base = make(uri, "a")
    first, second = staged(base, "b"), staged(base, "c")
    assert LanceDataset.commit(base, first, max_retries=0).version == base.version + 1
    assert LanceDataset.commit(base, second, max_retries=0).version == base.version + 2


def test_committing_one_transaction_twice_applies_it_twice(uri: str) -> None:
    base = make(uri, "a")
    transaction = staged(base, "b")
    LanceDataset.commit(base, transaction, max_retries=0)
    LanceDataset.commit(base, transaction, max_retries=0)
    assert ids(lance.dataset(uri)) == ["a", "b", "b"]


def test_h3_a_restore_orphans_a_concurrent_append(uri: str) -> None:
    """Why a restore happens only under the table's lock."""
    base = make(uri, "a")
    base = LanceDataset.commit(base, staged(base, "b"), max_retries=0)
    restore = Transaction(base.version, LanceOperation.Restore(1))
    LanceDataset.commit(base, staged(base, "acknowledged"), max_retries=0)
    LanceDataset.commit(base, restore, max_retries=0)
    assert ids(lance.dataset(uri)) == ["a"]


def test_a_branch_transaction_committed_through_the_root_changes_main(uri: str) -> None:
    """Why a staged write is only ever committed through its own handle."""
    main = make(uri, "a")
    main.create_branch("work", main.version)
    branch = lance.dataset(f"{uri}/tree/work")
    transaction = staged(branch, "b")
    LanceDataset.commit(main, transaction, max_retries=0)
    assert lance.dataset(uri).version == main.version + 1, "main moved"
    assert lance.dataset(f"{uri}/tree/work").version == branch.version, "the branch did not"
    with pytest.raises((OSError, ValueError)):
        lance.dataset(uri).to_table()  # its files are the branch's


def test_a_branch_transaction_committed_through_its_handle_stays_there(uri: str) -> None:
    main = make(uri, "a")
    main.create_branch("work", main.version)
    branch = lance.dataset(f"{uri}/tree/work")
    after = LanceDataset.commit(branch, staged(branch, "b"), max_retries=0)
    assert ids(after) == ["a", "b"]
    assert ids(lance.dataset(uri)) == ["a"]
    assert after.uri == branch.uri


def test_f1_versions_of_a_branch_continue_from_its_start(uri: str) -> None:
    main = make(uri, "a")
    main = LanceDataset.commit(main, staged(main, "b"), max_retries=0)
    main.create_branch("work", main.version)
    branch = lance.dataset(f"{uri}/tree/work")
    assert branch.version == main.version == 2
    assert LanceDataset.commit(branch, staged(branch, "c"), max_retries=0).version == 3


def test_a_branch_ref_is_a_small_file_with_an_identity(uri: str) -> None:
    main = make(uri, "a")
    main.create_branch("work", main.version)
    text = (Path(uri) / "_refs" / "branches" / "work.json").read_text()
    facts = json.loads(text)
    listed = main.branches.list()["work"]
    assert facts["parentBranch"] is None
    assert facts["parentVersion"] == listed["parent_version"] == 1
    identity = facts["identifier"]["version_mapping"][-1][1]
    assert identity == listed["branch_identifier"][-1][1]
    main.branches.delete("work")
    main.create_branch("work", main.version)
    assert main.branches.list()["work"]["branch_identifier"][-1][1] != identity


def test_a_tag_is_a_small_file_and_keeps_its_version_and_its_branch(uri: str) -> None:
    main = make(uri, "a")
    main.create_branch("work", main.version)
    branch = lance.dataset(f"{uri}/tree/work")
    LanceDataset.commit(branch, staged(branch, "b"), max_retries=0)
    main.tags.create("on-main", (None, 1))
    main.tags.create("on-work", ("work", 2))
    folder = Path(uri) / "_refs" / "tags"
    assert sorted(file.name for file in folder.iterdir()) == ["on-main.json", "on-work.json"]
    facts = json.loads((folder / "on-work.json").read_text())
    assert (facts["branch"], facts["version"]) == ("work", 2)
    assert json.loads((folder / "on-main.json").read_text())["branch"] is None
    with pytest.raises(ValueError, match="already exists"):
        main.tags.create("on-main", (None, 1))
    with pytest.raises(OSError, match="referenced by tags"):
        main.branches.delete("work")
    main = LanceDataset.commit(main, staged(main, "c"), max_retries=0)
    main.cleanup_old_versions(versions=[1], error_if_tagged_old_versions=False)
    assert ids(lance.dataset(uri, version=1)) == ["a"]
    main.tags.delete("on-work")
    main.branches.delete("work")


def test_a_recreated_branch_is_not_read_from_a_cache(uri: str) -> None:
    main = make(uri, "a")
    for name in ("first", "second"):
        main.create_branch("work", main.version)
        branch = lance.dataset(f"{uri}/tree/work", session=main.session())
        branch = LanceDataset.commit(branch, staged(branch, name), max_retries=0)
        again = lance.dataset(f"{uri}/tree/work", version=branch.version, session=main.session())
        assert ids(again) == ["a", name]
        main.branches.delete("work")


def test_f1_an_unfinished_branch_blocks_its_name_until_its_folder_is_gone(uri: str) -> None:
    main = make(uri, "a")
    main.create_branch("work", main.version)
    os.remove(Path(uri) / "_refs" / "branches" / "work.json")
    with pytest.raises(OSError):  # noqa: PT011 the text is an internal error of Lance's
        main.create_branch("work", main.version)
    shutil.rmtree(Path(uri) / "tree" / "work")
    main.create_branch("work", main.version)


def test_a_branch_with_a_child_cannot_be_deleted(uri: str) -> None:
    main = make(uri, "a")
    main.create_branch("work", main.version)
    main.create_branch("child", ("work", 1))
    with pytest.raises(OSError, match="referenced by"):
        main.branches.delete("work")


def test_a_commit_through_an_old_handle_resurrects_a_deleted_branch(uri: str) -> None:
    """Why deleting a branch takes every write lock of it, and writers look for it under theirs."""
    main = make(uri, "a")
    main.create_branch("work", main.version)
    branch = lance.dataset(f"{uri}/tree/work")
    transaction = staged(branch, "b")
    main.branches.delete("work")
    LanceDataset.commit(branch, transaction, max_retries=0)
    assert (Path(uri) / "tree" / "work").exists()
    assert main.branches.list() == {}


@pytest.mark.parametrize("kind", ["append", "merge", "delete", "overwrite", "restore"])
def test_a_mark_on_a_transaction_is_read_back_from_its_version(uri: str, kind: str) -> None:
    base = make(uri, "a", "b")
    if kind == "append":
        transaction = staged(base, "c")
    elif kind == "merge":
        merge = base.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
        transaction, _ = merge.execute_uncommitted(table("a", "c"))
    elif kind == "delete":
        left = base.get_fragment(0).delete("id = 'a'")
        transaction = Transaction(base.version, LanceOperation.Delete([left], [], "id = 'a'"))
    elif kind == "overwrite":
        transaction = Transaction(base.version, LanceOperation.Overwrite(base.schema, []))
    else:
        transaction = Transaction(base.version, LanceOperation.Restore(1))
    transaction.transaction_properties = {"omnigraph:operation": "01J"}
    after = LanceDataset.commit(base, transaction, max_retries=0)
    found = lance.dataset(uri).read_transaction(after.version)
    assert found is not None
    assert found.transaction_properties == {"omnigraph:operation": "01J"}


def test_m4_a_row_keeps_the_version_it_was_created_at_through_compaction(uri: str) -> None:
    handle = make(uri, "r1")
    for number in range(2, 7):
        handle = LanceDataset.commit(handle, staged(handle, f"r{number}"), max_retries=0)
    columns = ["id", "_row_created_at_version"]
    before = handle.to_table(columns=columns).to_pydict()
    assert before["_row_created_at_version"] == [1, 2, 3, 4, 5, 6]
    Compaction.commit(
        handle, [task.execute(handle) for task in Compaction.plan(handle, {}).tasks], {}
    )
    assert lance.dataset(uri).to_table(columns=columns).to_pydict() == before


def test_folding_adds_versions_changes_no_row_and_spares_old_readers(uri: str) -> None:
    handle = make(uri, "r1")
    for number in range(2, 7):
        handle = LanceDataset.commit(handle, staged(handle, f"r{number}"), max_retries=0)
    reader = lance.dataset(uri)
    moving = lance.dataset(uri)
    options: Any = {"target_rows_per_fragment": 256, "materialize_deletions": False}
    tasks = Compaction.plan(moving, options).tasks
    Compaction.commit(moving, [task.execute(moving) for task in tasks], options)
    assert moving.version == reader.version + 2
    assert len(moving.get_fragments()) == 1
    assert ids(moving) == ids(reader) == [f"r{n}" for n in range(1, 7)]


def test_folding_leaves_fragments_of_the_target_size_alone(uri: str) -> None:
    handle = make(uri, *[f"big{n}" for n in range(300)])
    for number in range(3):
        handle = LanceDataset.commit(handle, staged(handle, f"s{number}"), max_retries=0)
    options: Any = {"target_rows_per_fragment": 256, "materialize_deletions": False}
    tasks = Compaction.plan(handle, options).tasks
    Compaction.commit(handle, [task.execute(handle) for task in tasks], options)
    assert sorted(f.count_rows() for f in handle.get_fragments()) == [3, 300]
    assert 0 in [f.fragment_id for f in handle.get_fragments()]


def test_an_append_of_one_fragment_is_scanned_by_itself(uri: str) -> None:
    """What a refresh builds on: only the fragments it has not seen are read."""
    handle = make(uri, "a")
    handle = LanceDataset.commit(handle, staged(handle, "b"), max_retries=0)
    fresh = [f for f in handle.get_fragments() if f.fragment_id == 1]
    rows = handle.scanner(columns=["id"], fragments=fresh, with_row_address=True).to_table()
    assert rows["id"].to_pylist() == ["b"]
    assert rows["_rowaddr"].to_pylist() == [1 << 32]


def test_versions_are_files_whose_names_count_down_without_a_gap(uri: str) -> None:
    """What a look at the head builds on: no next file, nothing newer."""
    handle = make(uri, "a")
    for name in "bcd":
        handle = LanceDataset.commit(handle, staged(handle, name), max_retries=0)
    names = sorted(path.name for path in (Path(uri) / "_versions").glob("*.manifest"))
    assert names == [f"{2**64 - 1 - version:020d}.manifest" for version in (4, 3, 2, 1)]
    handle.create_branch("work", 3)
    branch = lance.dataset(f"{uri}/tree/work")
    LanceDataset.commit(branch, staged(branch, "e"), max_retries=0)
    folder = Path(uri) / "tree" / "work" / "_versions"
    names = sorted(path.name for path in folder.glob("*.manifest"))
    assert names == [f"{2**64 - 1 - version:020d}.manifest" for version in (4, 3)]


def test_of_two_creators_one_gets_an_error(uri: str) -> None:
    make(uri, "a")
    with pytest.raises(OSError, match="already exists"):
        make(uri, "b")


def test_an_overwrite_of_no_fragments_empties_the_table_and_keeps_its_key(uri: str) -> None:
    base = make(uri, "a")
    empty = Transaction(base.version, LanceOperation.Overwrite(base.schema, []))
    after = LanceDataset.commit(base, empty, max_retries=0)
    assert after.count_rows() == 0
    assert after.has_stable_row_ids
    assert after.schema.field("id").metadata == {b"lance-schema:unenforced-primary-key": b"true"}


def test_a_branch_made_through_a_path_leaves_a_percent_encoded_folder(tmp_path: Path) -> None:
    """And one made through an address that names the characters does not. No address works for a
    `?`. When the first assertion fails, `Root.branching` can go."""
    left = {}
    for scheme, name in (("", "é"), ("file-object-store://", "ü")):
        path = str(tmp_path / name / "t")
        lance.write_dataset(pa.table({"id": ["a"]}), path)
        root = lance.dataset(scheme + quote(path) if scheme else path)
        root.create_branch("b", (None, 1))
        assert lance.dataset(f"{path}/tree/b").to_table().num_rows == 1
        left[name] = (tmp_path / quote(name)).exists()
    assert left == {"é": True, "ü": False}
