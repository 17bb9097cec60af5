"""Rows written beside a table, here or elsewhere, and named by one version later."""

import pickle
from pathlib import Path

import pyarrow as pa

from omnigraph.storage.opening import create, open_store
from omnigraph.storage.protocol.intent import WriterKind
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
