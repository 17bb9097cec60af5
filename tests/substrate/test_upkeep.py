"""What upkeep needs of Lance."""

import json
import os
from datetime import timedelta
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from lance import LanceDataset, optimize
from lance.dataset import LanceOperation, Transaction
from lance.fragment import RowIdSequence, write_fragments
from lance.optimize import Compaction, CompactionOptions

from omnigraph.storage.lance.protobuf import decoded

SCHEMA = pa.schema([pa.field("id", pa.string(), nullable=False), pa.field("n", pa.int64())])


def rows(first: int, last: int) -> pa.Table:
    numbers = list(range(first, last))
    return pa.table({"id": [f"r{n:03}" for n in numbers], "n": numbers}, schema=SCHEMA)


def append(path: str, first: int, last: int) -> LanceDataset:
    handle = lance.dataset(path)
    staged = write_fragments(rows(first, last), handle, mode="append", return_transaction=True)
    return LanceDataset.commit(handle, staged, max_retries=0)


@pytest.fixture
def path(tmp_path: Path) -> str:
    """A table of five fragments."""
    path = str(tmp_path / "t")
    lance.write_dataset(rows(0, 100), path, enable_stable_row_ids=True)
    for number in range(4):
        append(path, 100 + number * 10, 110 + number * 10)
    return path


def rewritten(handle: LanceDataset, ids: list[int], *, addresses: bool | None = None) -> str:
    plan = Compaction.plan(handle, CompactionOptions(max_source_fragments=1))
    settings = json.loads(plan.json())["options"]
    if addresses is not None:
        settings["has_eager_remappable_index"] = addresses
    files = [f.metadata.to_json() for f in handle.get_fragments() if f.fragment_id in ids]
    task = {"task": {"fragments": files}, "read_version": handle.version, "options": settings}
    return str(optimize.CompactionTask.from_json(json.dumps(task)).execute(handle).json())


def commit(handle: LanceDataset, result: str) -> LanceDataset:
    text = json.dumps({**json.loads(result), "read_version": handle.version})
    Compaction.commit(handle, [optimize.RewriteResult.from_json(text)], CompactionOptions())
    return handle


def index(handle: LanceDataset, *groups: list[int]) -> LanceDataset:
    segments = [
        handle.create_index_uncommitted("id", "BTREE", name="i", replace=True, fragment_ids=group)
        for group in groups
    ]
    operation = LanceOperation.CreateIndex(segments, [])
    return LanceDataset.commit(handle, Transaction(handle.version, operation), max_retries=0)


def covered(path: str) -> int:
    [found] = lance.dataset(path).describe_indices()
    return int(found.num_rows_indexed)


def test_chosen_fragments_are_rewritten_and_rows_keep_their_ids_and_times(path: str) -> None:
    handle = lance.dataset(path)
    columns = ["id", "n", "_rowid", "_row_created_at_version", "_row_last_updated_at_version"]
    before = handle.to_table(columns=columns).sort_by("id")
    result = rewritten(handle, [1, 3, 4])
    after_append = append(path, 900, 901)
    after = commit(after_append, result)
    assert [f.metadata.physical_rows for f in after.get_fragments()] == [100, 10, 1, 30]
    assert after.version == 8, "two versions, over an append that came between"
    kept = after.to_table(columns=columns, filter="id < 'r900'").sort_by("id")
    assert kept == before
    names = [type(after.read_transaction(v).operation).__name__ for v in (6, 7, 8)]
    assert names == ["Append", "BaseOperation", "Rewrite"]


def test_an_ordered_index_follows_only_with_addresses(path: str) -> None:
    handle = lance.dataset(path)
    with_addresses = rewritten(handle, [0, 1, 2, 3, 4], addresses=True)
    without = rewritten(handle, [0, 1, 2, 3, 4])
    indexed = index(handle, [0, 1, 2, 3, 4])
    commit(lance.dataset(path, version=indexed.version), with_addresses)
    assert covered(path) == 140
    assert lance.dataset(path).to_table(filter="id = 'r105'").num_rows == 1
    lance.dataset(path, version=indexed.version).restore()
    commit(lance.dataset(path), without)
    assert covered(path) == 0, "an index that did not follow covers nothing, and is not wrong"
    assert lance.dataset(path).to_table(filter="id = 'r105'").num_rows == 1


def test_fragments_of_two_segments_do_not_become_one(path: str) -> None:
    handle = index(lance.dataset(path), [0, 1], [2, 3, 4])
    with pytest.raises(OSError, match="split of indexed and non-indexed"):
        commit(lance.dataset(path), rewritten(handle, [1, 2]))
    commit(lance.dataset(path), rewritten(handle, [2, 3]))
    assert covered(path) == 140


def test_a_rewrite_that_moved_an_index_cannot_be_shown(path: str) -> None:
    handle = index(lance.dataset(path), [0, 1, 2, 3, 4])
    after = commit(handle, rewritten(handle, [0, 1, 2, 3, 4]))
    with pytest.raises(TypeError, match="RewrittenIndex"):
        after.read_transaction(after.version)


def test_exactly_the_named_versions_go_and_fork_points_stay_readable(path: str) -> None:
    lance.dataset(path).create_branch("b", 3)
    append(f"{path}/tree/b", 500, 501)
    lance.write_dataset(rows(0, 1), path, mode="overwrite")
    handle = lance.dataset(path)
    told = handle.explain_cleanup_old_versions(
        versions=[1, 2, 5], error_if_tagged_old_versions=False
    ).stats
    done = handle.cleanup_old_versions(versions=[1, 2, 5], error_if_tagged_old_versions=False)
    assert (told.old_versions, told.bytes_removed) == (done.old_versions, done.bytes_removed)
    assert [each["version"] for each in handle.version_refs()] == [3, 4, 6]
    assert lance.dataset(f"{path}/tree/b").count_rows() == 121
    assert lance.dataset(path, version=4).to_table().num_rows == 130


def test_files_that_no_version_names_go_after_a_week(path: str) -> None:
    young, old = Path(path, "data", "young.lance"), Path(path, "data", "old.lance")
    for file in (young, old):
        file.write_bytes(b"x")
    os.utime(old, (1, 1))
    lance.dataset(path).cleanup_old_versions(older_than=timedelta(days=36_500))
    assert (young.exists(), old.exists()) == (True, False)
    assert len(lance.dataset(path).version_refs()) == 5


def test_a_commit_from_a_version_whose_followers_are_gone_is_not_refused(path: str) -> None:
    """Why a process must notice that versions were reclaimed before it publishes."""
    stale = lance.dataset(path)
    staged = write_fragments(rows(900, 901), stale, mode="append", return_transaction=True)
    for number in range(3):
        append(path, 600 + number, 601 + number)
    lance.dataset(path).cleanup_old_versions(versions=[5, 6, 7])
    assert LanceDataset.commit(stale, staged, max_retries=0).version == 9


def test_an_empty_append_is_a_version(path: str) -> None:
    handle = lance.dataset(path)
    nothing = Transaction(handle.version, LanceOperation.Append([]))
    nothing.transaction_properties = {"mark": "mine"}
    after = LanceDataset.commit(handle, nothing, max_retries=0)
    assert (after.version, after.count_rows()) == (6, 140)
    assert after.read_transaction(6).transaction_properties == {"mark": "mine"}


def test_an_index_is_built_of_parts_that_processes_built(path: str) -> None:
    handle = lance.dataset(path)
    parts = [
        handle.create_index_uncommitted("id", "BTREE", name="i", replace=True, fragment_ids=group)
        for group in ([0, 2, 4], [1, 3])
    ]
    whole = handle.merge_existing_index_segments(parts)
    operation = LanceOperation.CreateIndex([whole], [])
    LanceDataset.commit(handle, Transaction(handle.version, operation), max_retries=0)
    assert covered(path) == 140
    assert lance.dataset(path).to_table(filter="id = 'r115'").num_rows == 1


def _texts(handle: LanceDataset, fragments: list[int]) -> LanceDataset:
    part = handle.create_index_uncommitted(
        "id", "INVERTED", name="t", replace=True, fragment_ids=fragments
    )
    segment = handle.merge_existing_index_segments([part])
    operation = LanceOperation.CreateIndex([segment], [])
    return LanceDataset.commit(handle, Transaction(handle.version, operation), max_retries=0)


def _matching(handle: LanceDataset, word: str) -> list[int]:
    asked = {"query": word, "columns": ["id"]}
    found = handle.scanner(columns=["n", "_score"], full_text_query=asked).to_table()
    return sorted(found["n"].to_pylist())


def test_a_second_segment_of_texts_may_cover_new_rows_and_no_changed_ones(path: str) -> None:
    """Why an index of texts leaves out fragments with rows that are older than its segments."""
    handle = _texts(lance.dataset(path), [0, 1, 2, 3, 4])
    assert _matching(handle, "r007") == [7]
    newest = handle.describe_indices()[0].segments[0].dataset_version_at_last_update
    changed = pa.table({"id": ["changed", "new"], "n": [7, 900]}, schema=SCHEMA)
    lance.dataset(path).merge_insert("n").when_matched_update_all().execute(changed)
    after = append(path, 500, 501)
    created = after.to_table(columns=["n", "_row_created_at_version"], filter="n in (7, 500)")
    assert dict(zip(*created.to_pydict().values(), strict=True)) == {7: 1, 500: after.version}
    assert newest >= 1, "a changed row is known by the version that first had it"
    fragments = [each.fragment_id for each in after.get_fragments()]
    extended = _texts(after, fragments[-1:])
    assert (_matching(extended, "r007"), _matching(extended, "changed")) == ([], [7])
    assert _matching(extended, "r500") == [500]
    whole = _texts(extended, fragments[-2:-1])
    assert _matching(whole, "r007") == [7], "the row is found by what it was"


def test_row_versions_of_a_rewrite_are_runs_that_may_be_joined(path: str) -> None:
    """Each run is a range of rows and a version; what a rewrite says is what the commit stamps."""
    handle = lance.dataset(path)
    result = json.loads(rewritten(handle, [1, 2, 3, 4]))
    (fragment,) = result["new_fragments"]
    runs = fragment["created_at_version_meta"]["inline"]
    assert runs == fragment["last_updated_at_version_meta"]["inline"]
    assert runs == [
        b for version in (2, 3, 4, 5) for b in (10, 8, 10, 4, 10, 2, 16, 10, 16, version)
    ]
    fragment["created_at_version_meta"] = {"inline": [10, 6, 10, 4, 10, 2, 16, 40]}
    fragment["last_updated_at_version_meta"] = {"inline": [10, 8, 10, 4, 10, 2, 16, 40, 16, 4]}
    row_ids: Any = RowIdSequence(list(range(100, 140))).to_inline_metadata()
    fragment["row_id_meta"] = row_ids.asdict()
    after = commit(handle, json.dumps(result))
    stamps = ["_rowid", "_row_created_at_version", "_row_last_updated_at_version"]
    read = after.scanner(columns=stamps, filter="n >= 100").to_table().to_pydict()
    assert list(read.values()) == [list(range(100, 140)), [0] * 40, [4] * 40]
    later = append(path, 140, 150)
    assert later.count_rows("_row_last_updated_at_version > 4") == 10
    assert later.delta(compared_against=2).get_deleted_row_ids().read_all().num_rows == 0


def test_a_version_names_the_next_row_id_in_its_fourteenth_field(path: str) -> None:
    for number in (1, 3, 5):
        message = decoded(lance.dataset(path, version=number)._ds.serialized_manifest())
        assert dict(message)[14] == 100 + 10 * (number - 1)
