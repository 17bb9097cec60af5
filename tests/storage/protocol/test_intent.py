"""One record a write: what a writer states reaches the sidecar, the commit and its recovery."""

import json
from dataclasses import fields
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.errors import BadRequest, RecoveryRequired
from omnigraph.storage import failpoints
from omnigraph.storage.manifest.state import LOCATION
from omnigraph.storage.protocol.intent import (
    Intent,
    WriterKind,
    change_of,
    recovered_change,
    undoing_change,
)
from omnigraph.storage.protocol.sidecars import (
    Sidecar,
    SidecarFile,
    SidecarTable,
    decode_sidecar,
    encode_sidecar,
)
from omnigraph.storage.records import (
    RECOVERY_ACTOR,
    Commit,
    CommitId,
    OperationId,
    RowCounts,
    SchemaId,
    TablePin,
    Tombstone,
    facts_of,
)
from omnigraph.storage.store import Store
from omnigraph.types import TableKey
from tests.storage.world import CITY, KNOWS, PERSON, append, content, put, rows

texts = st.text(st.characters(codec="utf-8"), max_size=6)
keys = st.sampled_from([PERSON, CITY, KNOWS]) | st.builds(lambda n: TableKey(f"node:{n}"), texts)
counts = st.builds(RowCounts, *[st.integers(0, 2**40)] * 3).filter(bool)
pins = st.builds(
    TablePin, keys, texts, st.integers(1, 99), st.none() | texts, texts, st.integers(0, 99)
)
intents = st.builds(
    Intent,
    operation_id=texts.map(OperationId),
    commit_id=texts.map(CommitId),
    rollback_id=texts.map(CommitId),
    kind=st.sampled_from(WriterKind),
    branch=texts,
    branch_identity=st.none() | texts,
    actor=st.none() | texts,
    merged_parent=st.none() | texts.map(CommitId),
    merged_from=st.none() | st.tuples(texts, texts),
    mark=st.none() | texts,
    message=st.none() | texts,
    metadata=st.dictionaries(texts, texts, max_size=3),
    counts=st.dictionaries(keys, counts, max_size=3),
    new_tables=st.lists(pins, max_size=2).map(tuple),
    tombstones=st.lists(
        st.builds(Tombstone, keys, st.integers(1, 9), st.none() | texts, texts), max_size=2
    ).map(tuple),
    schema=st.none() | texts.map(SchemaId),
    renames=st.dictionaries(keys, keys, max_size=2),
    reclaim=st.lists(texts, max_size=2).map(tuple),
)
sidecars = st.builds(
    Sidecar,
    intents,
    tables=st.lists(
        st.builds(
            SidecarTable,
            keys,
            texts,
            st.none() | texts,
            texts,
            st.integers(0, 9),
            st.integers(0, 9),
            st.none() | st.integers(0, 9),
        ),
        max_size=2,
    ).map(tuple),
    multi_step=st.booleans(),
    files=st.lists(st.builds(SidecarFile, texts, texts, texts), max_size=2).map(tuple),
    relied_on=st.dictionaries(keys, st.integers(0, 9), max_size=2),
)


@given(sidecars)
def test_a_sidecar_keeps_everything_its_write_states(sidecar: Sidecar) -> None:
    assert decode_sidecar(encode_sidecar(sidecar), path="x") == sidecar


@given(intents, st.lists(pins, max_size=3))
def test_recovery_publishes_what_its_writer_would_have(
    intent: Intent, reached: list[TablePin]
) -> None:
    own, recovered = change_of(intent, reached), recovered_change(intent, reached)
    assert recovered.actor == RECOVERY_ACTOR
    for each in fields(own):
        if each.name != "actor":
            assert getattr(recovered, each.name) == getattr(own, each.name)
    assert facts_of(own) == facts_of(intent)
    undone = undoing_change(intent, reached)
    assert (undone.commit_id, undone.pins) == (intent.rollback_id, tuple(reached))
    assert (undone.mark, undone.schema, undone.counts) == (None, None, {})


STATED: dict[str, Any] = {"message": "Zeile ünter Zeile\n", "metadata": {"run": "7", "ü": ""}}


def stated(store: Store, *ids: str) -> Commit:
    write = store.begin(kind=WriterKind.LOAD, actor="act-m", **STATED)
    write.append(PERSON, rows(PERSON, dict.fromkeys(ids, 1)))
    return store.commit(write)


def lineage_row(store: Store, commit: Commit) -> dict[str, Any]:
    table = store.datasets.open(LOCATION).to_table(filter=f"object_id = '{commit.id}'")
    found: dict[str, Any] = json.loads(table["metadata"][0].as_py())
    return found


def test_a_commit_says_its_message_metadata_counts_and_manifest_version(store: Store) -> None:
    commit = stated(store, "a", "b")
    store.forget()
    read = store.history.get(commit.id)
    assert read == commit
    assert (read.message, read.metadata) == (STATED["message"], STATED["metadata"])
    assert read.counts == {PERSON: RowCounts(inserted=2)}
    row = lineage_row(store, commit)
    assert row["manifest_version"] == commit.manifest_version == store.snapshot().manifest_version
    assert row["counts"] == {PERSON: {"inserted": 2}}
    plain = append(store, CITY, "x")
    assert not {"message", "metadata", "mark"} & lineage_row(store, plain).keys()


def test_a_write_that_died_is_finished_with_what_it_stated(store: Store) -> None:
    with failpoints.armed("publish.before"), pytest.raises(RecoveryRequired):
        stated(store, "a")
    store.heal()
    (commit, _) = store.history.list()
    assert commit.actor == RECOVERY_ACTOR
    assert (commit.message, commit.metadata) == (STATED["message"], STATED["metadata"])
    assert commit.counts == {PERSON: RowCounts(inserted=1)}


def test_counts_tell_inserted_updated_and_deleted_rows(store: Store) -> None:
    put(store, {PERSON: {"a": 1, "b": 1, "c": 1}, CITY: {"x": 1}})
    upserted = put(store, {PERSON: {"a": 2, "d": 1}})
    assert upserted.counts == {PERSON: RowCounts(inserted=1, updated=1)}
    write = store.begin(kind=WriterKind.MUTATION)
    reader = write.read(PERSON)
    row_ids = {row["id"]: row["_rowid"] for row in reader.rows(["id", "_rowid"]).to_pylist()}
    gone = pa.array([row_ids["a"], row_ids["b"]], pa.uint64())
    write.patch(PERSON, removed=gone, added=rows(PERSON, {"a": 3, "e": 1}), updated=1)
    patched = store.commit(write)
    assert patched.counts == {PERSON: RowCounts(inserted=1, updated=1, deleted=1)}
    write = store.begin(kind=WriterKind.LOAD)
    new = store.tables.write_fragments(write.base(PERSON), rows(PERSON, {"z": 1}), replacing=True)
    write.fragments(PERSON, new, replacing=True)
    replaced = store.commit(write)
    assert replaced.counts == {PERSON: RowCounts(inserted=1, deleted=4)}
    assert content(store)[PERSON] == {"z": 1}


@pytest.mark.parametrize(
    ("bad", "text"),
    [
        ({"message": 7}, "a commit message is a text, not int"),
        ({"message": "\ud800"}, "cannot be written as UTF-8"),
        ({"metadata": ["a"]}, "is a map of texts, not list"),
        ({"metadata": {"a": 1}}, "the commit metadata 'a' is a text, not int"),
        ({"metadata": {1: "a"}}, "a key of commit metadata is a text, not int"),
    ],
)
def test_what_cannot_be_stored_is_refused(store: Store, bad: dict[str, Any], text: str) -> None:
    with pytest.raises(BadRequest, match=text):
        store.begin(kind=WriterKind.MUTATION, **bad)
    assert len(store.history.list()) == 1
