"""A backup is the graph at one moment, whole without its source, and made of new files alone."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest

import omnigraph as og
from omnigraph.graph import Graph
from omnigraph.storage import failpoints
from omnigraph.storage.manifest import manifest
from tests.exec.upkeep_child import die_in_backup
from tests.exec.upkeep_world import SCHEMA, add, content, made
from tests.forked import KILLED, run
from tests.storage.conftest import s3, s3_server
from tests.storage.world import Where

__all__ = ["s3", "s3_server"]

State = dict[str, Any]


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody counts versions here, so that cleanup need not wait."""
    monkeypatch.setattr(manifest, "RECLAIM_AGE_S", 0.0)


def branched(graph: Graph) -> Graph:
    """Branches of branches, tags on both, deletions, an index and a merge."""
    graph.branches.create("side")
    add(graph, 1000, 1005, branch="side")
    graph.branches.create("deep", "side")
    graph.tags.create("v1", graph.commits.list("side")[0].id)
    add(graph, 1010, 1015, branch="deep")
    graph.mutate('query d() { delete Person where name = "p01001" }', branch="deep")
    graph.mutate('query u() { update Person set { age: 77 } where name = "p00001" }', branch="side")
    graph.branches.create("idle")
    add(graph, 1020, 1025)
    graph.branches.merge("side")
    graph.optimize("side")
    graph.tags.create("release", "main~1")
    return graph


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[Graph]:
    with made(tmp_path / "g.omni", 3, each=5, fold=True) as graph:
        yield branched(graph)


def everything(graph: Graph) -> State:
    """Every branch, tag and commit, with all that a read of it sees."""
    commits = graph.commits.list(all_branches=True)
    return {
        "branches": {name: content(graph, name) for name in graph.branches.list()},
        "tags": {tag.name: tag.commit_id for tag in graph.tags.list()},
        "commits": {commit.id: content(graph, commit=commit.id) for commit in commits},
        "lists": {b: [c.id for c in graph.commits.list(b)] for b in graph.branches.list()},
    }


def test_a_backup_reads_as_its_source_did_when_the_source_is_gone(
    graph: Graph, tmp_path: Path
) -> None:
    before = everything(graph)
    report = graph.backup(tmp_path / "copy.omni")
    assert report.check is not None
    assert report.check.findings == ()
    assert set(report.heads) == {"main", "side", "deep", "idle"}
    graph.close()
    shutil.rmtree(tmp_path / "g.omni")
    with og.open(tmp_path / "copy.omni") as copy:
        assert everything(copy) == before
        assert copy.check().ok
        # It is a graph like any other: writes, merges, upkeep, branches from any point.
        add(copy, 2000, 2005, branch="deep")
        copy.branches.merge("deep", into="side")
        copy.branches.merge("side")
        copy.branches.create("again", "v1")
        add(copy, 2010, 2015, branch="again")
        assert content(copy, "again")["node:Person"]
        copy.optimize("deep")
        assert copy.cleanup(keep=1, grace=0, confirm=True).errors == ()
        assert copy.check().ok
        assert content(copy, commit=before["tags"]["v1"]) == before["commits"][before["tags"]["v1"]]
    assert not (tmp_path / "g.omni").exists(), "nothing was made at the old address"


def test_a_second_run_copies_only_what_is_new(graph: Graph, tmp_path: Path) -> None:
    target = tmp_path / "copy.omni"
    preview = graph.backup(target, dry_run=True)
    assert not target.exists()
    first = graph.backup(target)
    assert (first.files_copied, first.bytes_copied) == (preview.files_copied, preview.bytes_copied)
    assert first.files_reused == 0
    nothing = graph.backup(target)
    assert (nothing.files_copied, nothing.files_removed) == (0, 0)
    assert nothing.files_reused == first.files_copied
    add(graph, 3000, 3002, branch="side")
    graph.tags.delete("release")
    graph.branches.delete("idle")
    again = graph.backup(target)
    assert 0 < again.files_copied < 12
    assert again.files_removed > 0
    before = everything(graph)
    with og.open(target, read_only=True) as copy:
        assert everything(copy) == before
    graph.branches.delete("deep")
    graph.branches.create("deep", "main")  # another branch of the same name and versions
    add(graph, 3010, 3012, branch="deep")
    graph.optimize()
    assert graph.cleanup(keep=1, grace=0, confirm=True).errors == ()
    kept = [each.commit.id for each in graph.cleanup(keep=1, grace=0).kept]
    graph.backup(target)
    with og.open(target, read_only=True) as copy:
        for name in graph.branches.list():
            assert content(copy, name) == content(graph, name)
        for id_ in kept:
            assert content(copy, commit=id_) == content(graph, commit=id_)


@pytest.mark.parametrize("step", failpoints.BACKUP)
def test_an_interrupted_backup_is_no_graph_and_is_completed(
    graph: Graph, tmp_path: Path, step: str
) -> None:
    target = tmp_path / "copy.omni"
    with failpoints.armed(step), pytest.raises(failpoints.Injected):
        graph.backup(target)
    with pytest.raises(og.NotFound, match="interrupted"):
        og.open(target)
    assert graph.backup(target, check=False).files_reused > 0
    with og.open(target, read_only=True) as copy:
        assert everything(copy) == everything(graph)


def test_a_killed_backup_is_completed_by_the_next(graph: Graph, tmp_path: Path) -> None:
    target = tmp_path / "copy.omni"
    assert run(die_in_backup, graph.uri, str(target), "backup.marked") == KILLED
    with pytest.raises(og.NotFound, match="interrupted"):
        og.open(target)
    assert graph.cleanup(keep=100, confirm=True).errors == (), "the dead hold nothing up"
    graph.backup(target, check=False)
    assert run(die_in_backup, graph.uri, str(target), "backup.versions") == KILLED
    report = graph.backup(target)
    assert report.check is not None
    assert report.check.findings == ()
    with og.open(target, read_only=True) as copy:
        assert everything(copy) == everything(graph)


def test_an_earlier_backup_stays_whole_while_new_data_is_copied(
    graph: Graph, tmp_path: Path
) -> None:
    target = tmp_path / "copy.omni"
    graph.backup(target, check=False)
    before = everything(graph)
    add(graph, 3000, 3005)
    with failpoints.armed("backup.data"), pytest.raises(failpoints.Injected):
        graph.backup(target)
    with og.open(target, read_only=True) as copy:
        assert everything(copy) == before


def test_a_target_that_is_no_backup_of_this_graph_is_left_alone(
    graph: Graph, tmp_path: Path
) -> None:
    other = tmp_path / "other.omni"
    og.init(other, SCHEMA).close()
    with pytest.raises(og.AlreadyExists, match="it is no backup"):
        graph.backup(other)
    with made(tmp_path / "third", 1, each=2) as third:
        third.backup(tmp_path / "b3", check=False)
    with pytest.raises(og.AlreadyExists, match="another graph"):
        graph.backup(tmp_path / "b3")
    graph.backup(tmp_path / "mine", check=False)
    with og.open(tmp_path / "mine") as copy:
        add(copy, 5000, 5001)
    with pytest.raises(og.AlreadyExists, match="written to since"):
        graph.backup(tmp_path / "mine")
    for inside in (graph.uri, f"{graph.uri}/nodes", str(Path(graph.uri).parent)):
        with pytest.raises(og.BadRequest, match="not apart"):
            graph.backup(inside)


def test_unfinished_writes_do_not_leak(graph: Graph, tmp_path: Path) -> None:
    before = everything(graph)
    with failpoints.armed("commit.tables_done"), pytest.raises(og.RecoveryRequired):
        add(graph, 4000, 4005)
    with og.open(graph.uri, read_only=True) as reader:
        report = reader.backup(tmp_path / "copy.omni")
    assert report.check is not None
    assert report.check.findings == ()
    with og.open(tmp_path / "copy.omni") as copy:
        assert everything(copy)["commits"] == before["commits"]
        assert copy.recoveries.list() == ()


def test_writers_and_upkeep_beside_a_backup(graph: Graph, tmp_path: Path) -> None:
    stop = Event()
    failures: list[BaseException] = []

    def write() -> None:
        with og.open(graph.uri) as writer:
            number = 6000
            while not stop.is_set():
                try:
                    add(writer, number, number + 1)
                    add(writer, number, number + 1, branch="side")
                    if number % 4 == 0:
                        writer.optimize("side")
                        writer.cleanup(keep=3, grace=0, confirm=True)
                    if number % 5 == 0:
                        writer.branches.create(f"b{number}")
                        writer.branches.delete(f"b{number}")
                except BaseException as error:  # noqa: BLE001
                    failures.append(error)
                    return
                number += 1

    thread = Thread(target=write)
    thread.start()
    try:
        for number in range(3):
            report = graph.backup(tmp_path / "copy.omni")
            assert report.check is not None
            assert report.check.findings == (), number
            with og.open(tmp_path / "copy.omni", read_only=True) as copy:
                heads = {b: copy.commits.list(b, limit=1)[0].id for b in copy.branches.list()}
                assert heads == report.heads
    finally:
        stop.set()
        thread.join()
    assert failures == []


def test_there_and_back_through_a_bucket(graph: Graph, tmp_path: Path, s3: Where) -> None:
    before = everything(graph)
    there = graph.backup(s3.uri, storage_options=s3.options)
    assert there.check is not None
    assert there.check.findings == ()
    back = og.backup(s3.uri, tmp_path / "back.omni", storage_options=s3.options)
    assert back.check is not None
    assert back.check.findings == ()
    assert back.heads == there.heads
    graph.close()
    shutil.rmtree(tmp_path / "g.omni")
    with og.open(tmp_path / "back.omni") as copy:
        assert everything(copy) == before
    with og.open(s3.uri, storage_options=s3.options) as remote:
        assert content(remote, "deep") == before["branches"]["deep"]
        add(remote, 7000, 7001, branch="deep")
        assert remote.check().ok


def test_paths_that_lance_writes_as_addresses(tmp_path: Path) -> None:
    with made(tmp_path / "a b#%41" / "g.omni", 2, each=3) as graph:
        branched(graph)
        before = everything(graph)
        graph.backup(tmp_path / "ü %20" / "copy.omni")
        graph.backup(tmp_path / "plain.omni")
    shutil.rmtree(tmp_path / "a b#%41")
    for target in (tmp_path / "ü %20" / "copy.omni", tmp_path / "plain.omni"):
        with og.open(target) as copy:
            assert everything(copy) == before
            add(copy, 7000, 7001, branch="deep")
            assert copy.check().ok


def test_a_graph_that_was_copied_as_files_says_so_and_can_be_backed_up(
    graph: Graph, tmp_path: Path
) -> None:
    before = everything(graph)
    shutil.copytree(graph.uri, tmp_path / "moved.omni")
    with og.open(tmp_path / "moved.omni") as moved:
        assert content(moved) == before["branches"]["main"], "main names no other files"
        with pytest.raises(og.GraphMoved, match="omnigraph backup") as told:
            content(moved, "side")
        assert (told.value.uri, told.value.recorded) == (moved.uri, graph.uri)
        with pytest.raises(og.GraphMoved):
            moved.snapshot(commit=graph.commits.list("deep")[0].id)
        assert {f.code for f in moved.check().findings} == {"moved"}
    graph.close()
    shutil.rmtree(tmp_path / "g.omni")
    report = og.backup(tmp_path / "moved.omni", tmp_path / "mended.omni")
    assert report.check is not None
    assert report.check.findings == ()
    shutil.rmtree(tmp_path / "moved.omni")
    with og.open(tmp_path / "mended.omni") as mended:
        assert everything(mended) == before


def test_a_graph_reached_by_another_name_of_its_folder_is_at_home(
    graph: Graph, tmp_path: Path
) -> None:
    os.symlink(graph.uri, tmp_path / "link.omni")
    with og.open(tmp_path / "link.omni") as same:
        assert everything(same) == everything(graph)
