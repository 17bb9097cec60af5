"""What Lance does when columns come, go and get other names: the facts schema changes stand on."""

from datetime import timedelta
from pathlib import Path

import lance
import pyarrow as pa
import pytest
from lance.dataset import LanceOperation, Transaction
from lance.fragment import write_fragments

from omnigraph.storage.lance.evolution import Evolution, evolved


@pytest.fixture
def table(tmp_path: Path) -> lance.LanceDataset:
    rows = pa.table({"id": ["x", "y"], "a": [1, 2], "l": [["q"], []], "last": ["g", "h"]})
    made = lance.write_dataset(rows, tmp_path / "t", enable_stable_row_ids=True)
    made.create_scalar_index("a", "BTREE", name="a_index")
    return lance.dataset(tmp_path / "t")


def commit(
    handle: lance.LanceDataset, operation: LanceOperation.BaseOperation
) -> lance.LanceDataset:
    transaction = Transaction(handle.version, operation)
    return lance.LanceDataset.commit(handle, transaction, max_retries=0)


def change(handle: lance.LanceDataset, evolution: Evolution) -> lance.LanceDataset:
    return commit(handle, LanceOperation.Project(evolved(handle, evolution), True))


def ids(handle: lance.LanceDataset) -> dict[str, int]:
    return {field.name(): field.id() for field in handle.lance_schema.fields()}


def files(handle: lance.LanceDataset) -> list[str]:
    return [f.path for fragment in handle.get_fragments() for f in fragment.metadata.files]


def test_one_projection_renames_drops_adds_and_orders_without_a_data_file(
    table: lance.LanceDataset,
) -> None:
    before = ids(table)
    after = change(
        table,
        Evolution(
            renames={"a": "b"},
            drops=frozenset({"last"}),
            adds=(pa.field("a", pa.string()), pa.field("n", pa.list_(pa.int32()))),
            order=("id", "n", "b", "l", "a"),
        ),
    )
    assert after.schema.names == ["id", "n", "b", "l", "a"]
    assert after.to_table().to_pylist() == [
        {"id": "x", "n": None, "b": 1, "l": ["q"], "a": None},
        {"id": "y", "n": None, "b": 2, "l": [], "a": None},
    ]
    assert files(after) == files(table)
    assert (ids(after)["b"], ids(after)["l"]) == (before["a"], before["l"])
    assert min(ids(after)["a"], ids(after)["n"]) > max(before.values())
    assert [index.field_names for index in after.describe_indices()] == [["b"]]


def test_a_column_that_comes_after_the_last_one_went_is_bound_to_nothing(
    table: lance.LanceDataset,
) -> None:
    without = change(table, Evolution(drops=frozenset({"last"})))
    again = change(without, Evolution(adds=(pa.field("last", pa.string()),)))
    assert again.to_table()["last"].to_pylist() == [None, None]
    assert ids(again)["last"] > ids(table)["last"]


def test_merged_columns_get_ids_above_dropped_ones_and_mark_their_rows_as_written(
    table: lance.LanceDataset,
) -> None:
    without = change(table, Evolution(drops=frozenset({"last"})))
    field = pa.field("n", pa.int64(), nullable=False, metadata={"k": "v"})

    def doubled(batch: pa.RecordBatch) -> pa.RecordBatch:
        values = pa.array([2 * value for value in batch["a"].to_pylist()], pa.int64())
        return pa.RecordBatch.from_arrays([values], schema=pa.schema([field]))

    (fragment,) = without.get_fragments()
    merged, schema = fragment.merge_columns(doubled, columns=["a"])
    after = commit(without, LanceOperation.Merge([merged], schema))
    assert after.to_table()["n"].to_pylist() == [2, 4]
    assert after.schema.field("n").metadata == {b"k": b"v"}
    assert not after.schema.field("n").nullable
    assert ids(after)["n"] > ids(table)["last"]
    assert set(files(without)) < set(files(after)), "other columns were written again"
    rows = after.to_table(columns=["_row_last_updated_at_version", "_rowid"])
    assert rows["_row_last_updated_at_version"].to_pylist() == [after.version] * 2
    assert rows["_rowid"].to_pylist() == table.to_table(columns=["_rowid"])["_rowid"].to_pylist()


def test_cleanup_keeps_the_head_and_leaves_no_file_of_older_versions(
    table: lance.LanceDataset,
) -> None:
    rewritten = commit(
        table,
        LanceOperation.Update(
            removed_fragment_ids=[fragment.fragment_id for fragment in table.get_fragments()],
            updated_fragments=[],
            new_fragments=write_fragments(table.to_table(), table, mode="append"),
            update_mode="rewrite_rows",
        ),
    )
    old = set(files(table))
    lance.dataset(table.uri).cleanup_old_versions(older_than=timedelta(0), delete_unverified=False)
    there = {path.name for path in Path(table.uri, "data").iterdir()}
    assert there == set(files(rewritten))
    assert not there & old
    with pytest.raises((ValueError, OSError)):
        lance.dataset(table.uri, version=table.version)
