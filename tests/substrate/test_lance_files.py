"""What Lance writes into its files, and its `repr`, as far as `direct_read`, `id_index`,
`rowids` and `base_paths` read them. An upgrade that changes it fails here."""

import shutil
from pathlib import Path

import lance
import numpy as np
import orjson
import pyarrow as pa
import pytest
from lance import LanceDataset
from lance.dataset import LanceOperation, Transaction
from lance.file import LanceFileReader
from lance.fragment import FragmentMetadata, RowIdSequence, write_fragments

from omnigraph.errors import StorageFailed
from omnigraph.storage.lance import columns
from omnigraph.storage.lance.base_paths import rebased
from omnigraph.storage.objects import root_of

LETTERS = ["c", "a", "b"]


@pytest.fixture
def uri(tmp_path: Path) -> str:
    return str(tmp_path / "table.lance")


@pytest.fixture
def table(uri: str) -> LanceDataset:
    rows = pa.table({"id": LETTERS, "n": [3, 1, 2]})
    return lance.write_dataset(rows, uri, enable_stable_row_ids=True)


def appended(table: LanceDataset, count: int) -> LanceDataset:
    """The table with more rows, two a fragment."""
    rows = pa.table({"id": [f"r{n}" for n in range(count)], "n": list(range(count))})
    return lance.write_dataset(rows, table.uri, mode="append", max_rows_per_file=2)


def inline(metadata: FragmentMetadata) -> bytes:
    assert metadata.row_id_meta is not None
    return bytes(orjson.loads(metadata.row_id_meta.json())["Inline"])


def committed(table: LanceDataset, operation: LanceOperation.BaseOperation) -> LanceDataset:
    return LanceDataset.commit(table, Transaction(table.version, operation), max_retries=0)


# Row ids and addresses


def test_a_file_is_read_whole_in_the_order_of_offsets_with_the_rows_that_are_gone(
    table: LanceDataset,
) -> None:
    table.delete("id = 'a'")
    [file] = table.get_fragments()[0].metadata.files
    reader = LanceFileReader(f"{table.uri}/data/{file._path}", columns=["n"])
    batches = list(reader.read_all(batch_size=2).to_batches())
    assert [batch.num_rows for batch in batches] == [2, 1]
    assert [n for batch in batches for n in batch["n"].to_pylist()] == [3, 1, 2]


def test_the_columns_of_lance_have_the_names_we_know(table: LanceDataset) -> None:
    names = [columns.ROW_ID, columns.ADDRESS, columns.OFFSET, columns.CREATED, columns.UPDATED]
    rows = table.scanner(columns=names).to_table()
    assert rows.column_names == names
    assert rows.schema.field(columns.ROW_ID).type == pa.uint64()
    assert rows.schema.field(columns.ADDRESS).type == pa.uint64()


def test_an_address_is_a_fragment_id_and_an_offset_in_the_order_of_writing(
    table: LanceDataset,
) -> None:
    table = appended(table, 5)
    rows = table.scanner(columns=["id", columns.ADDRESS]).to_table()
    assert rows["id"].to_pylist() == [*LETTERS, "r0", "r1", "r2", "r3", "r4"]
    places = [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (2, 0), (2, 1), (3, 0)]
    expected = [fragment << 32 | offset for fragment, offset in places]
    assert rows[columns.ADDRESS].to_pylist() == expected
    addresses = rows[columns.ADDRESS].to_numpy()
    assert columns.fragment_ids(addresses).tolist() == [fragment for fragment, _ in places]
    assert columns.offsets(addresses).tolist() == [offset for _, offset in places]
    assert columns.addresses_in(3, np.arange(1)).tolist() == [3 << 32]


def test_fragments_are_numbered_upwards_in_the_order_of_writing(table: LanceDataset) -> None:
    after = appended(table, 5)
    numbers = [fragment.fragment_id for fragment in after.get_fragments()]
    assert numbers == [0, 1, 2, 3]
    assert [f.metadata.physical_rows for f in after.get_fragments()] == [3, 2, 2, 1]


def test_new_rows_get_consecutive_row_ids_that_their_fragment_lists(table: LanceDataset) -> None:
    table = appended(table, 4)
    listed = [
        RowIdSequence.from_inline_metadata(fragment.metadata.row_id_meta).to_pyarrow().to_pylist()
        for fragment in table.get_fragments()
    ]
    assert listed == [[0, 1, 2], [3, 4], [5, 6]]
    rows = table.scanner(columns=[columns.ROW_ID]).to_table()
    assert rows[columns.ROW_ID].to_pylist() == [id for ids in listed for id in ids]


def test_a_range_of_row_ids_is_one_protobuf_segment(table: LanceDataset) -> None:
    """A field of the segment, a field of its range, and in it the first id and the end."""
    first, second = (fragment.metadata for fragment in appended(table, 2).get_fragments())
    assert inline(first) == bytes([0x0A, 4, 0x0A, 2, 0x10, 3]), "a first id of 0 is not written"
    assert inline(second) == bytes([0x0A, 6, 0x0A, 4, 0x08, 3, 0x10, 5])


@pytest.mark.parametrize("ids", [[5, 4, 3], [0, 1, 5, 6], [0, 2, 4]])
def test_row_ids_that_are_no_range_are_another_segment(ids: list[int]) -> None:
    """A range would be taken for consecutive ids: other kinds must not look like one."""
    data = bytes(orjson.loads(RowIdSequence(ids).to_inline_metadata().json())["Inline"])
    assert data[:1] == b"\x0a"
    assert data[2:3] != b"\x0a"


@pytest.mark.parametrize("ids", [[3, 4, 5], [9, 8], [7], [*range(20), 40]])
def test_the_repr_of_row_ids_lists_the_first_in_brackets(ids: list[int]) -> None:
    shown = repr(RowIdSequence(ids))
    if len(ids) <= 10:
        assert shown == f"RowIdSequence({ids})"
    else:
        assert shown == f"RowIdSequence([{', '.join(map(str, ids[:10]))}, ...], len={len(ids)})"


def test_row_ids_are_given_to_rows_before_they_are_committed(table: LanceDataset) -> None:
    rows = pa.table({"id": ["b", "c"], "n": [20, 30]})
    [new] = write_fragments(rows, table, mode="append", enable_stable_row_ids=True)
    new.row_id_meta = RowIdSequence([2, 0]).to_inline_metadata()
    left = table.get_fragment(0).delete_rows([0, 2])
    update = LanceOperation.Update(
        updated_fragments=[left],
        new_fragments=[new],
        fields_for_preserving_frag_bitmap=[0, 1],
        update_mode="rewrite_rows",
    )
    after = committed(table, update)
    shown = after.scanner(columns=["id", "n", columns.ROW_ID]).to_table().to_pylist()
    found = {row["id"]: (row["n"], row[columns.ROW_ID]) for row in shown}
    assert found == {"a": (1, 1), "b": (20, 2), "c": (30, 0)}
    old = after.get_fragments()[0].metadata
    assert inline(old) == inline(table.get_fragments()[0].metadata), "the old one lists them still"


# Deletions


def test_a_deletion_leaves_offsets_row_ids_and_files_as_they_are(table: LanceDataset) -> None:
    before = table.get_fragments()[0].metadata
    left = table.get_fragment(0).delete_rows([1])
    assert left is not None
    assert left.physical_rows == 3
    assert left.num_deletions == 1
    assert inline(left) == inline(before)
    assert [file.path for file in left.files] == [file.path for file in before.files]
    after = committed(table, LanceOperation.Delete([left], [], ""))
    rows = after.scanner(columns=["id", columns.ADDRESS]).to_table().to_pydict()
    assert rows == {"id": ["c", "b"], columns.ADDRESS: [0, 2]}


def test_a_row_is_deleted_once_however_often_it_is_asked(table: LanceDataset) -> None:
    left = table.get_fragment(0).delete_rows([1])
    after = committed(table, LanceOperation.Delete([left], [], ""))
    again = after.get_fragment(0).delete_rows([1])
    assert again is not None
    assert again.num_deletions == 1
    assert after.get_fragment(0).delete_rows([0, 1, 2]) is None, "nothing is left"


# Data files


def test_a_data_file_is_read_by_column_and_offset_deleted_rows_too(table: LanceDataset) -> None:
    left = table.get_fragment(0).delete_rows([1])
    after = committed(table, LanceOperation.Delete([left], [], ""))
    [file] = after.get_fragments()[0].metadata.files
    assert file._path == file.path
    reader = LanceFileReader(str(Path(after.uri) / "data" / file.path), columns=["n"])
    rows = reader.take_rows([1, 2], batch_size=2).to_table()
    assert rows.to_pydict() == {"n": [1, 2]}


def test_a_data_file_knows_its_columns_in_the_order_of_their_field_ids(
    table: LanceDataset,
) -> None:
    [file] = table.get_fragments()[0].metadata.files
    reader = LanceFileReader(str(Path(table.uri) / "data" / file.path), columns=["n"])
    assert reader.metadata().schema.names == ["id", "n"], "all of them, whatever was asked"
    ids = {field.name(): field.id() for field in table.lance_schema.fields()}
    assert file.fields == [ids["id"], ids["n"]]


def test_a_data_file_without_a_column_of_that_name_is_an_error(table: LanceDataset) -> None:
    [file] = table.get_fragments()[0].metadata.files
    with pytest.raises((OSError, ValueError), match="not found"):
        LanceFileReader(str(Path(table.uri) / "data" / file.path), columns=["nobody"])


def test_a_branch_names_the_root_of_files_it_did_not_write(table: LanceDataset) -> None:
    table.create_branch("work", table.version)
    branch = lance.dataset(f"{table.uri}/tree/work")
    [file] = branch.get_fragments()[0].metadata.files
    assert file.base_id is not None
    assert branch.base_paths()[file.base_id].path == table.uri
    rows = pa.table({"id": ["own"], "n": [1]})
    branch = lance.write_dataset(rows, branch.uri, mode="append")
    [own] = branch.get_fragments()[1].metadata.files
    assert own.base_id is None
    assert (Path(branch.uri) / "data" / own.path).exists()


def test_a_version_of_a_branch_whose_base_path_was_rewritten_reads_the_copy(
    table: LanceDataset, tmp_path: Path
) -> None:
    """With an index and a deletion in the parent, a branch of a branch, and longer paths."""
    location = "table.lance"
    table.create_scalar_index("id", "BTREE")
    table = lance.dataset(table.uri)
    table.delete("id = 'a'")
    table.create_branch("work", lance.dataset(table.uri).version)
    rows = pa.table({"id": ["own"], "n": [1]})
    work = lance.write_dataset(rows, f"{table.uri}/tree/work", mode="append")
    lance.dataset(table.uri).create_branch("deep", ("work", work.version))
    deep = lance.write_dataset(rows, f"{table.uri}/tree/deep", mode="append")
    before = deep.to_table().to_pylist()
    copy = root_of(tmp_path / "a longer path" / "of the copy")
    assert copy.path is not None
    shutil.copytree(table.uri, copy.path / location)
    for file in (copy.path / location / "tree").rglob("*.manifest"):
        data = file.read_bytes()
        assert rebased(data, location, root_of(tmp_path)) == data, "at home nothing changes"
        file.write_bytes(rebased(data, location, copy))
    shutil.rmtree(table.uri)
    moved = lance.dataset(str(copy.path / location / "tree" / "deep"))
    assert moved.to_table().to_pylist() == before
    assert {base.path for base in moved.base_paths().values()} == {
        copy.branching(location),
        f"{copy.branching(location)}/tree/work",
    }
    assert moved.to_table(filter="id = 'c'").num_rows == 1
    assert moved.to_table(filter="id = 'a'").num_rows == 0


@pytest.mark.parametrize("cut", [3, 20, -1])
def test_a_version_file_that_is_not_understood_is_refused(table: LanceDataset, cut: int) -> None:
    table.create_branch("work", table.version)
    (file,) = (Path(table.uri) / "tree" / "work" / "_versions").glob("*.manifest")
    root = root_of(Path(table.uri).parent / "elsewhere")
    with pytest.raises(StorageFailed):
        rebased(file.read_bytes()[:cut], "table.lance", root)
    with pytest.raises(StorageFailed, match="lies in no table"):
        rebased(file.read_bytes(), "other.lance", root)


# Row versions


def test_a_row_carries_the_versions_it_was_created_and_last_written_at(
    table: LanceDataset,
) -> None:
    table = appended(table, 1)
    upsert = table.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
    upsert.execute(pa.table({"id": ["a"], "n": [10]}))
    after = lance.dataset(table.uri)
    rows = after.scanner(columns=["id", columns.CREATED, columns.UPDATED]).to_table().to_pylist()
    stamps = {row["id"]: (row[columns.CREATED], row[columns.UPDATED]) for row in rows}
    assert stamps == {"c": (1, 1), "a": (1, 3), "b": (1, 1), "r0": (2, 2)}
    filtered = after.scanner(columns=["id"], filter=columns.updated_after(1)).to_table()
    assert sorted(filtered["id"].to_pylist()) == ["a", "r0"]
    by_row_id = after.scanner(columns=["id"], filter=columns.among_row_ids([0, 3])).to_table()
    assert sorted(by_row_id["id"].to_pylist()) == ["c", "r0"]
    nothing = after.scanner(columns=["id"], filter=columns.among_row_ids([])).to_table()
    assert nothing.num_rows == 0


def test_the_row_ids_that_are_gone_since_a_version_are_listed(table: LanceDataset) -> None:
    left = table.get_fragment(0).delete_rows([0, 2])
    after = committed(table, LanceOperation.Delete([left], [], ""))
    gone = after.delta(compared_against=1).get_deleted_row_ids().read_all()
    assert sorted(gone[columns.ROW_ID].to_pylist()) == [0, 2]


# Blobs


def test_a_blob_is_read_as_a_description_or_as_its_bytes(uri: str) -> None:
    blobs = lance.blob_array([b"one", None, b"three"])
    rows = pa.table({"id": LETTERS, "b": blobs})
    table = lance.write_dataset(rows, uri, enable_stable_row_ids=True, data_storage_version="2.2")
    assert columns.is_blob(table.schema.field("b"))
    described = table.scanner(columns=["b"]).to_table()["b"].to_pylist()
    assert [None if cell is None else cell[columns.BLOB_SIZE] for cell in described] == [3, None, 5]
    assert [None if cell is None else cell[columns.BLOB_URI] for cell in described] == [
        "",
        None,
        "",
    ]
    read = table.scanner(columns=["b"], blob_handling=columns.BLOB_BYTES).to_table()
    assert read["b"].to_pylist() == [b"one", None, b"three"]
