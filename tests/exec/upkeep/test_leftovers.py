"""Cleanup removes schemas, locks and unfinished files that nothing needs, and none that something
does."""

import os
import shutil
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph.costs import COSTS
from omnigraph.errors import Reclaimed, RecoveryRequired, StorageFailed
from omnigraph.exec.schemas import ARCHIVE
from omnigraph.exec.upkeep import schemas_in_use
from omnigraph.exec.upkeep.cleanup import CleanupReport
from omnigraph.graph import Graph
from omnigraph.storage import failpoints
from omnigraph.storage.lance.tables import Tables
from omnigraph.storage.locks.locks import FOLDER as LOCKS
from omnigraph.storage.locks.locks import Guard, hold
from omnigraph.storage.manifest import manifest, publish
from omnigraph.storage.names import lock_name
from omnigraph.storage.records import SchemaId, TablePin
from omnigraph.storage.upkeep.cleanup import SAFE_AGE_S
from omnigraph.storage.upkeep.leftovers import UNFINISHED
from omnigraph.types import TableKey

SCHEMA = "node Person { name: String @key  age: I64? }"
PERSON = TableKey("node:Person")
NAMES = "query q() { match { $p: Person } return { $p.name } }"


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody counts versions here, so that cleanup need not wait."""
    monkeypatch.setattr(manifest, "RECLAIM_AGE_S", 0.0)


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[Graph]:
    with og.init(tmp_path / "g", SCHEMA) as graph:
        graph.load([{"type": "Person", "data": {"name": "Ada", "age": 36}}], "append")
        yield graph


def clean(graph: Graph, **policy: Any) -> CleanupReport:
    report = graph.cleanup(**{"keep": 1, "grace": 0, "confirm": True, **policy})
    assert report.errors == ()
    return report


def files_removed(report: CleanupReport, kind: str) -> int:
    return sum(each.files for each in report.tables if each.table == kind)


def archived(graph: Graph) -> set[str]:
    """The schemas that have files."""
    return {path.name.partition(".")[0] for path in (Path(graph.uri) / ARCHIVE).glob("*")}


def widen(graph: Graph, times: int = 1) -> list[SchemaId]:
    """Change the schema of main so often, each time by one more property; the schemas that came."""
    ids = []
    for _ in range(times):
        text = graph.schema.text
        graph.schema.apply(text.replace("age:", f"p{text.count(':')}: String?  age:"))
        schema = graph.snapshot().schema
        assert schema is not None
        ids.append(schema)
    return ids


def names_at(graph: Graph, commit: str) -> list[str]:
    return [row["p.name"] for row in graph.query(NAMES, snapshot=commit).rows]


# Schemas


def test_schemas_that_no_readable_commit_names_go(graph: Graph) -> None:
    came = widen(graph, 6)
    assert len(archived(graph)) == 7
    preview = graph.cleanup(keep=2, grace=0)
    assert len(archived(graph)) == 7, "a preview changes nothing"
    done = clean(graph, keep=2)
    assert files_removed(done, ARCHIVE) == files_removed(preview, ARCHIVE) == 10
    assert archived(graph) == set(came[-2:])
    kept = [each.commit.id for each in done.kept]
    with og.open(graph.uri) as again:
        assert [names_at(again, commit) for commit in kept] == [["Ada"], ["Ada"]]
        assert again.check().findings == ()
        widen(again, 2)
        assert names_at(again, kept[0]) == ["Ada"]


def test_the_schema_of_a_tag_a_branch_and_a_consumer_stays(graph: Graph) -> None:
    graph.tags.create("before")
    first = graph.snapshot().schema
    [second] = widen(graph)
    graph.branches.create("side")
    [third] = widen(graph)
    graph.changes.register("feed", max_lag="7d")
    widen(graph, 2)
    assert {first, second, third} <= archived(graph)
    clean(graph)
    assert {first, second, third} <= archived(graph), "the feed stands at the third"
    graph.changes.unregister("feed")
    clean(graph)
    left = archived(graph)
    assert {first, second} <= left
    assert third not in left
    with og.open(graph.uri) as again:
        assert len(again.query(NAMES, snapshot="before").rows) == 1
        assert again.branch("side").snapshot().schema == second
        assert len(again.branch("side").query(NAMES).rows) == 1
        again.tags.delete("before")
        again.branches.delete("side")
        clean(again)
        assert first not in archived(again)


def test_a_schema_that_only_a_pending_change_names_stays(graph: Graph) -> None:
    with failpoints.armed("publish.before"), pytest.raises(RecoveryRequired):
        widen(graph)
    [operation] = graph._store.sidecars.pending()
    sidecar = graph._store.sidecars.read(operation)
    assert sidecar is not None
    graph._store.leftovers.remove(ARCHIVE, lambda schemas: frozenset(), confirm=True)
    assert archived(graph) == {sidecar.intent.schema}
    with og.open(graph.uri) as again:
        assert again.snapshot().schema == sidecar.intent.schema


def test_a_change_under_way_keeps_its_files(graph: Graph) -> None:
    """Its files are there before anything names them, and cleanup waits for it."""
    with og.open(graph.uri) as other, other._store.schema_change():
        other._store.files.keep({f"{ARCHIVE}/{'0' * 32}.pg": b"x"})
        remove = partial(
            graph._store.leftovers.remove, ARCHIVE, lambda _: frozenset(), confirm=True
        )
        cleaning = threading.Thread(target=remove)
        cleaning.start()
        time.sleep(0.5)
        assert cleaning.is_alive()
        assert "0" * 32 in archived(graph)
    cleaning.join()
    assert "0" * 32 not in archived(graph), "the change came to nothing"


def test_a_change_that_lost_its_turn_is_not_published(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost(guard: Guard) -> None:
        raise StorageFailed("held the lease", "it ran out")

    before = graph.snapshot().commit_id
    with monkeypatch.context() as patched:
        patched.setattr(Guard, "require_alive", lost)
        with pytest.raises(StorageFailed, match="ran out"):
            widen(graph)
    assert graph.snapshot().commit_id == before
    assert graph._store.sidecars.pending() == ()


def test_commits_of_an_earlier_program_are_asked_for_their_schemas(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = publish.commit_row
    monkeypatch.setattr(publish, "commit_row", lambda commit: row(replace(commit, schema=None)))
    came = widen(graph, 5)
    monkeypatch.setattr(publish, "commit_row", row)
    with og.open(graph.uri) as again:
        assert [commit.schema for commit in again.commits.list()[:5]] == [None] * 5
        with monkeypatch.context() as patched:
            patched.setattr(COSTS, "unnamed_commits_max", 1)
            clean(again, keep=2)
            assert len(archived(again)) == 6, "too many to ask"
        done = clean(again, keep=2)
        assert archived(again) == set(came[-2:])
        assert [names_at(again, each.commit.id) for each in done.kept] == [["Ada"], ["Ada"]]


def test_a_table_that_cannot_be_cleaned_up_keeps_no_schema_from_a_commit_that_can_be_read(
    graph: Graph,
) -> None:
    came = widen(graph, 3)
    with failpoints.armed("cleanup.manifest"):
        assert len(graph.cleanup(keep=1, grace=0, confirm=True).errors) == 1
    assert set(came) <= archived(graph), "its manifest versions are still there"
    clean(graph)
    assert archived(graph) == {came[-1]}


def test_a_reader_that_knows_a_reclaimed_commit_is_told_so(graph: Graph) -> None:
    widen(graph)
    commit = graph.snapshot()
    widen(graph, 2)
    with og.open(graph.uri) as late:
        clean(graph)
        with pytest.raises(Reclaimed, match=commit.commit_id):
            late._schemas.of(commit)


def test_files_of_a_schema_that_are_missing_without_a_cleanup_are_damage(graph: Graph) -> None:
    graph.branches.create("side")
    widen(graph, 1)
    side = graph.snapshot("side")
    shutil.rmtree(Path(graph.uri) / ARCHIVE)
    with og.open(graph.uri) as again, pytest.raises(StorageFailed, match="damaged"):
        again._schemas.of(side)


def test_optimize_begins_again_when_a_schema_change_removed_what_it_was_reading(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = Tables.reader

    def overtaken(tables: Tables, pin: TablePin, *arguments: Any) -> Any:
        monkeypatch.setattr(Tables, "reader", reader)
        with og.open(graph.uri) as other:
            lossy = "node Person { name: String @key }"
            other.schema.apply(lossy, allow_data_loss=True)
        graph._store.datasets.close()
        return reader(tables, pin, *arguments)

    monkeypatch.setattr(Tables, "reader", overtaken)
    assert graph.optimize().commit_id is not None
    assert "age" not in graph.schema.text


def test_a_cleanup_without_a_schema_to_remove_looks_at_no_commit(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    widen(graph, 2)
    clean(graph)

    def asked(*_: object) -> None:
        raise AssertionError("every commit was looked at")

    monkeypatch.setattr(schemas_in_use, "_named", asked)
    clean(graph)


# Locks


def locks_left(graph: Graph) -> set[str]:
    return {path.stem for path in (Path(graph.uri) / LOCKS).glob("*.lock")}


def test_locks_of_branches_that_are_gone_go_unless_they_are_held(graph: Graph) -> None:
    graph.branches.create("side")
    long = "long/" + "x" * 165
    graph.branches.create(long)
    mine = {lock_name(PERSON, "side"), lock_name(PERSON, long), lock_name("beside", "notes")}
    dead = {lock_name(PERSON, "gone"), lock_name("publish", "tx/1"), lock_name("crowd", "gone")}
    dead.add(lock_name(PERSON, "other/" + "y" * 165))
    held = lock_name(PERSON, "held")
    for name in mine | dead:
        with hold(graph._store.locks, [name]):
            pass
    with hold(graph._store.locks, [held]):
        assert files_removed(graph.cleanup(keep=1, grace=0), LOCKS) == len(dead) + 1
        assert dead <= locks_left(graph)
        assert files_removed(clean(graph), LOCKS) == len(dead)
        left = locks_left(graph)
        assert mine <= left
        assert held in left
        assert not dead & left
    assert files_removed(clean(graph), LOCKS) == 1
    assert held not in locks_left(graph)


# Unfinished files


def test_unfinished_files_and_empty_folders_of_indexes_go_when_they_are_old(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = Path(graph.uri)
    table = root / graph.snapshot().tables[PERSON].location
    small = root / "__recovery" / "01ARZ3NDEKTSV4RRFFQ69G5FAV.json#1200000001"
    unfinished = [
        table / "_deletions" / ".tmpAbC123",
        table / "_transactions" / ".tmpAbC123",
    ]
    for path in (small, *unfinished):
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"x")
    empty = table / "_indices" / "0a7f0d16-52a3-40c5-ada4-4efc82b72f18"
    (empty / "staging").mkdir(parents=True)
    monkeypatch.setattr(manifest, "RECLAIM_AGE_S", 120.0)
    assert files_removed(clean(graph), UNFINISHED) == 0, "a writer may be at it"
    monkeypatch.setattr(manifest, "RECLAIM_AGE_S", 0.0)
    assert files_removed(clean(graph), UNFINISHED) == 1
    assert not small.exists()
    assert all(path.exists() for path in (*unfinished, empty))
    for path in (*unfinished, empty, empty / "staging"):
        os.utime(path, (time.time() - SAFE_AGE_S - 60,) * 2)
    preview = graph.cleanup(keep=1, grace=0)
    assert all(path.exists() for path in (*unfinished, empty))
    assert files_removed(clean(graph), UNFINISHED) == files_removed(preview, UNFINISHED) == 2
    assert not any(path.exists() for path in (*unfinished, empty))
    assert graph.query(NAMES).rows


# What a process remembers


def test_a_process_remembers_nothing_of_transactions_that_ended(graph: Graph) -> None:
    for number in range(4):
        with graph.transaction() as tx:
            tx.mutate(f'query q() {{ update Person set {{ age: {number} }} where name = "Ada" }}')
    with og.open(graph.uri) as other:
        other.branches.create("elsewhere")
        graph.commits.list("elsewhere")
        other.branches.delete("elsewhere")
    graph._store.history.list_all()
    graph.commits.list()
    assert set(graph._store.history._lineages) == {"main"}
    assert set(graph._store.manifest._states) == {"main"}
