"""Rows written beside a table, here or elsewhere, and named by one version later."""

import pickle
from pathlib import Path

import pyarrow as pa
import pytest

from omnigraph.errors import StorageFailed
from omnigraph.storage.opening import create, open_store
from omnigraph.storage.protocol.intent import WriterKind
from omnigraph.storage.records import base_of
from omnigraph.storage.store import Store
from omnigraph.types import TableKey

PERSON = TableKey("node:Person")
SCHEMA = pa.schema([pa.field("id", pa.utf8(), nullable=False), pa.field("n", pa.int64())])


def _rows(*ids: str, n: int = 0) -> pa.Table:
    return pa.table({"id": list(ids), "n": [n] * len(ids)}, schema=SCHEMA)


def _store(folder: Path) -> Store:
    return create(folder / "graph.omni", [(PERSON, SCHEMA)])


def _ids(store: Store) -> list[str]:
    rows = store.reader(store.snapshot(), PERSON).rows(["id"])
    return sorted(rows.column("id").to_pylist())


def test_fragments_move_no_head_until_they_are_committed(tmp_path: Path) -> None:
    store = _store(tmp_path)
    write = store.begin(kind=WriterKind.LOAD)
    other = open_store(store.where.uri, read_only=True)
    first = other.tables.write_fragments(write.base(PERSON), _rows("a"), replacing=False)
    second = store.tables.write_fragments(
        write.base(PERSON), _rows("b", "c").to_reader(), replacing=False
    )
    assert _ids(store) == []
    write.fragments(PERSON, (*pickle.loads(pickle.dumps(first)), *second))
    store.commit(write)
    assert _ids(store) == ["a", "b", "c"]


def test_fragments_stay_good_when_the_table_moves_on(tmp_path: Path) -> None:
    store = _store(tmp_path)
    stale = store.begin(kind=WriterKind.LOAD)
    written = store.tables.write_fragments(stale.base(PERSON), _rows("a"), replacing=False)
    between = store.begin(kind=WriterKind.LOAD)
    between.append(PERSON, _rows("z"))
    store.commit(between)
    again = store.begin(kind=WriterKind.LOAD)
    again.fragments(PERSON, written)
    store.commit(again)
    assert _ids(store) == ["a", "z"]


def test_fragments_replace_all_rows_and_none_is_an_empty_table(tmp_path: Path) -> None:
    store = _store(tmp_path)
    for ids in (("a", "b"), ("c",), ()):
        write = store.begin(kind=WriterKind.LOAD)
        base = write.base(PERSON)
        rows = _rows(*ids)
        written = store.tables.write_fragments(base, rows, replacing=True) if ids else ()
        write.fragments(PERSON, written, replacing=True)
        store.commit(write)
        assert _ids(store) == sorted(ids)


def test_an_upsert_takes_a_stream(tmp_path: Path) -> None:
    store = _store(tmp_path)
    write = store.begin(kind=WriterKind.LOAD)
    write.append(PERSON, _rows("a", "b"))
    store.commit(write)
    write = store.begin(kind=WriterKind.LOAD)
    write.upsert(PERSON, _rows("b", "c", n=5).to_reader())
    store.commit(write)
    rows = store.reader(store.snapshot(), PERSON).rows().to_pylist()
    assert {row["id"]: row["n"] for row in rows} == {"a": 0, "b": 5, "c": 5}


def test_fragments_written_for_another_branch_are_refused(tmp_path: Path) -> None:
    """A version of a branch looks for its files in the folder of the branch."""
    store = _store(tmp_path)
    first = store.begin(kind=WriterKind.LOAD)
    first.append(PERSON, _rows("a", "b"))
    store.commit(first)
    main = base_of(store.snapshot().tables[PERSON], None)
    added = store.tables.write_fragments(main, _rows("c"), replacing=False)
    left, gone = store.tables.without_rows(main, pa.array([0], pa.uint64()))
    store.branches.create("b")
    write = store.begin("b", kind=WriterKind.LOAD)
    with pytest.raises(StorageFailed, match="written for another branch"):
        write.fragments(PERSON, added)
    with pytest.raises(StorageFailed, match="nothing was published"):
        write.replace_rows(PERSON, left=left, gone=gone, added=(), updated=0)
    store.branches.delete("b")
    store.branches.create("b")
    again = store.begin("b", kind=WriterKind.LOAD)
    stale = store.tables.write_fragments(again.base(PERSON), _rows("d"), replacing=False)
    store.branches.delete("b")
    store.branches.create("b")
    with pytest.raises(StorageFailed, match="deleted and created again"):
        store.begin("b", kind=WriterKind.LOAD).fragments(PERSON, stale)


def test_a_version_in_the_folder_of_another_branch_is_no_base(tmp_path: Path) -> None:
    store = _store(tmp_path)
    store.branches.create("b")
    pin = store.snapshot("b").tables[PERSON]
    with pytest.raises(StorageFailed, match="lies in the folder of 'main', not in that of 'b'"):
        base_of(pin, "b")
    assert store.begin("b", kind=WriterKind.LOAD).base(PERSON).branch == "b"
