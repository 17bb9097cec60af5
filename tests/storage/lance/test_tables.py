"""Staging moves no head, and one commit moves one head by one."""

from pathlib import Path

import pytest

import omnigraph as og
from omnigraph.errors import NotFound, Reclaimed
from omnigraph.storage.lance.columns import ADDRESS
from omnigraph.storage.lance.datasets import CommitRaced
from omnigraph.storage.lance.index_segments import IndexRequest
from omnigraph.storage.lance.staging import StagedWrite
from omnigraph.storage.lance.transactions import operation_of
from omnigraph.storage.protocol.intent import WriterKind
from omnigraph.storage.records import OperationId
from omnigraph.storage.store import Store
from omnigraph.types import TableKey
from tests.storage.world import PERSON, append, content, rows

OPERATION = OperationId("01JZ0000000000000000000000")


def stage(store: Store, how: str) -> StagedWrite:
    pin = store.snapshot().tables[PERSON]
    tables = store.tables
    match how:
        case "append":
            return tables.stage_append(pin, rows(PERSON, {"new": 1}))
        case "merge_insert":
            return tables.stage_merge_insert(pin, rows(PERSON, {"a": 9, "new": 1}))
        case "replace_all":
            written = tables.write_fragments(pin, rows(PERSON, {"only": 1}), replacing=True)
            return tables.stage_fragments(pin, written, replacing=True)
        case "replace_all_by_nothing":
            return tables.stage_fragments(pin, (), replacing=True)
        case "patch":
            removed = tables.reader(pin).row_ids("id = 'a'").combine_chunks()
            return tables.stage_patch(pin, removed=removed, added=rows(PERSON, {}), updated=0)
        case "replace":
            addresses = tables.reader(pin).rows([ADDRESS], filter="id = 'a'")[ADDRESS]
            added = rows(PERSON, {"c": 1})
            return tables.stage_replace(pin, addresses=addresses.combine_chunks(), added=added)
        case _:
            return tables.stage_create_indexes(pin, [IndexRequest("n", "BTREE", "n_idx")])


AFTER = {
    "append": {"a": 1, "b": 1, "new": 1},
    "merge_insert": {"a": 9, "b": 1, "new": 1},
    "replace_all": {"only": 1},
    "replace_all_by_nothing": {},
    "patch": {"b": 1},
    "replace": {"b": 1, "c": 1},
    "create_indexes": {"a": 1, "b": 1},
}


@pytest.mark.parametrize("how", AFTER)
def test_t1_staging_moves_no_head_and_committing_moves_it_by_one(store: Store, how: str) -> None:
    append(store, PERSON, "a", "b")
    pin = store.snapshot().tables[PERSON]
    staged = stage(store, how)
    assert store.datasets.head(pin.location, None) == pin.version
    after = store.tables.commit_staged(staged, OPERATION)
    assert after.version == pin.version + 1 == store.datasets.head(pin.location, None)
    table = store.tables.reader(after).rows(["id", "n"]).to_pydict()
    assert dict(zip(table["id"], table["n"], strict=True)) == AFTER[how]
    assert after.row_count == len(AFTER[how])
    handle = store.datasets.handle(after)
    assert operation_of(store.datasets, handle, after.version) == OPERATION
    assert content(store)[PERSON] == {"a": 1, "b": 1}, "nothing was published"


def test_t1_a_text_index_is_staged_whole(store: Store) -> None:
    append(store, PERSON, "ada", "bob")
    pin = store.snapshot().tables[PERSON]
    request = IndexRequest("id", "INVERTED", "id_text", anew=True)
    staged = store.tables.stage_create_indexes(pin, [request])
    after = store.tables.commit_staged(staged, OPERATION)
    found = store.tables.reader(after).rows(["id"], full_text_query="ada")
    assert found["id"].to_pylist() == ["ada"]
    replaced = store.tables.stage_create_indexes(after, [request])
    again = store.tables.commit_staged(replaced, OPERATION)
    names = [index.name for index in store.datasets.handle(again).describe_indices()]
    assert names == ["id_text"]


def test_t1_a_head_that_moved_under_the_lock_is_noticed(store: Store) -> None:
    append(store, PERSON, "a")
    first, second = stage(store, "append"), stage(store, "append")
    store.tables.commit_staged(first, OPERATION)
    with pytest.raises(CommitRaced, match="under this writer's lock"):
        store.tables.commit_staged(second, OPERATION)


def test_t1_a_branchs_write_is_committed_through_the_branchs_handle(store: Store) -> None:
    store.branches.create("b")
    write = store.begin("b", kind=WriterKind.MUTATION)
    write.append(PERSON, rows(PERSON, {"a": 1}))
    (kept,) = write._writes.values()
    assert kept.staged.handle.uri.endswith(f"{kept.staged.base.location}/tree/b")
    store.commit(write)
    assert store.datasets.head(kept.staged.base.location, None) == 1


def test_reading_streams_and_filters(store: Store) -> None:
    append(store, PERSON, "a", "b", "c")
    reader = store.reader(store.snapshot(), PERSON)
    assert reader.count() == 3
    assert reader.count("id > 'a'") == 2
    assert sum(batch.num_rows for batch in reader.batches(["id"], filter="id = 'b'")) == 1
    assert reader.rows(limit=2).num_rows == 2
    assert reader.schema.names == ["id", "n"]


def test_an_unknown_table_is_not_found(store: Store) -> None:
    with pytest.raises(NotFound):
        store.reader(store.snapshot(), TableKey("node:Nobody"))
    write = store.begin(kind=WriterKind.MUTATION)
    with pytest.raises(NotFound):
        write.append(TableKey("node:Nobody"), rows(PERSON, {}))
    with pytest.raises(NotFound):
        write.read(TableKey("node:Nobody"))


def test_a_version_whose_files_are_gone_is_reclaimed(store: Store) -> None:
    commit = append(store, PERSON, "a")
    append(store, PERSON, "b")
    pin = store.snapshot(commit=commit.id).tables[PERSON]
    store.forget()
    assert store.where.path is not None
    versions = Path(store.where.path / pin.location / "_versions")
    sorted(versions.iterdir())[1].unlink()
    with pytest.raises(Reclaimed, match="node:Person"):
        content(store, commit=commit.id)


@pytest.mark.parametrize("folder", ["data", "_indices", "_deletions", "data/x.lance"])
def test_a_graph_may_lie_below_any_folder(tmp_path: Path, folder: str) -> None:
    path = tmp_path / folder / "graph.omni"
    with pytest.raises(NotFound):
        og.open(path)
    with og.init(path, "node Person { name: String @key }") as graph:
        graph.load([{"type": "Person", "data": {"name": "a"}}], "merge")
    with og.open(path) as again:
        assert again.snapshot().tables[PERSON].row_count == 1


@pytest.mark.parametrize("files", ["data", "_deletions"])
def test_rows_whose_files_are_gone_are_reclaimed(tmp_path: Path, files: str) -> None:
    with og.init(tmp_path / "data" / "graph.omni", "node Person { name: String @key }") as graph:
        people = [{"type": "Person", "data": {"name": name}} for name in "ab"]
        graph.load(people, "merge")
        graph.mutate('query m() { delete Person where name = "a" }')
        location = graph.snapshot().tables[PERSON].location
    for file in (tmp_path / "data" / "graph.omni" / location / files).iterdir():
        file.unlink()
    with og.open(tmp_path / "data" / "graph.omni") as again, pytest.raises(Reclaimed):
        again.query("query q() { match { $p: Person } return { $p.name } }")
