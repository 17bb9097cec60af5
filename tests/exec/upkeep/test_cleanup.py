"""Cleanup removes what nobody needs and nothing else; without a yes it removes nothing."""

import os
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import lance
import pytest

import omnigraph as og
from omnigraph.errors import BadRequest, ChangeFeedGap, Reclaimed, RecoveryRequired, StorageFailed
from omnigraph.exec.durations import seconds
from omnigraph.exec.upkeep.cleanup import CleanupReport
from omnigraph.graph import Graph
from omnigraph.storage import failpoints
from omnigraph.storage.lance.datasets import Datasets
from omnigraph.storage.manifest import manifest
from omnigraph.storage.manifest.history import History
from omnigraph.storage.manifest.state import LOCATION
from omnigraph.storage.protocol.intent import WriterKind
from omnigraph.storage.upkeep import cleanup
from omnigraph.storage.upkeep.cleanup import SAFE_AGE_S, Reclaimer, TableCleanup
from tests.exec.upkeep_child import die
from tests.exec.upkeep_world import (
    KNOWS,
    PERSON,
    PLACE,
    add,
    content,
    files,
    fragments,
    made,
    people,
)
from tests.forked import KILLED, run
from tests.storage.world import remove

pytestmark = pytest.mark.consistent


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody counts versions here, so that cleanup need not wait."""
    monkeypatch.setattr(manifest, "RECLAIM_AGE_S", 0.0)


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[Graph]:
    with made(tmp_path / "g") as graph:
        yield graph


def clean(graph: Graph, **policy: Any) -> CleanupReport:
    """Clean up at once, without the grace that readers get."""
    report = graph.cleanup(**{"keep": 1, "grace": 0, "confirm": True, **policy})
    assert report.errors == ()
    return report


def told(report: CleanupReport, table: str) -> TableCleanup:
    return next(each for each in report.tables if each.table == table)


def everything(graph: Graph) -> dict[str, bytes]:
    root = Path(graph.uri)
    return {
        str(p.relative_to(root)): p.read_bytes()
        for p in sorted(root.rglob("*"))
        if p.is_file() and "__locks" not in p.parts
    }


def aged(path: Path) -> None:
    """Make a file, or all files of a folder, older than any write."""
    for each in [path, *path.rglob("*")]:
        os.utime(each, (time.time() - SAFE_AGE_S - 60,) * 2)


def test_a_preview_changes_nothing_and_tells_what_would_go(graph: Graph) -> None:
    before = everything(graph)
    preview = graph.cleanup(keep=2, grace=0)
    assert everything(graph) == before
    assert not preview.confirmed
    done = clean(graph, keep=2)
    assert done.tables == preview.tables
    assert (done.commits_kept, done.commits_reclaimed) == (2, 5)
    assert told(done, PERSON).versions == 5
    assert told(done, PERSON).bytes > 0
    assert everything(graph) != before


def test_the_newest_commits_stay_whole_and_older_ones_say_so(graph: Graph) -> None:
    commits = graph.commits.list()
    seen = {commit.id: content(graph, commit=commit.id) for commit in commits[:3]}
    clean(graph, keep=3)
    for commit in commits[:3]:
        assert content(graph, commit=commit.id) == seen[commit.id]
    with pytest.raises(Reclaimed):
        graph.snapshot(commit=commits[3].id)
    with og.open(graph.uri) as again:
        for commit in commits[3:]:
            with pytest.raises(Reclaimed, match=f"commit '{commit.id}' was reclaimed"):
                again.snapshot(commit=commit.id)
        assert [c.id for c in again.commits.list()] == [c.id for c in commits], "lineage stays"
        with pytest.raises(Reclaimed):
            again.diff(commits[-1].id, "main")
        with pytest.raises(ChangeFeedGap):
            again.commits.changes(commits[4].id)
        with pytest.raises(ChangeFeedGap):
            again.changes.poll(start="beginning")


def test_a_version_that_is_gone_is_told_by_its_table(graph: Graph) -> None:
    old = graph.snapshot(commit=graph.commits.list()[2].id)
    clean(graph)
    with pytest.raises(Reclaimed, match="version 5 of node:Person was reclaimed"):
        graph._store.reader(old, PERSON)


def test_data_that_is_gone_under_an_open_reader_is_told(graph: Graph) -> None:
    reader = graph._store.reader(graph.snapshot(), PERSON)
    graph.optimize()
    clean(graph)
    with pytest.raises(Reclaimed, match="data that scan of node:Person reads was reclaimed"):
        reader.rows()


def test_what_was_a_head_within_the_time_asked_for_stays(graph: Graph) -> None:
    commits = graph.commits.list()
    report = graph.cleanup(older_than="1h", confirm=True)
    assert (report.commits_kept, report.commits_reclaimed) == (7, 0)
    assert report.older_than_s == 3600
    report = graph.cleanup(older_than=timedelta(), confirm=True)
    assert report.commits_reclaimed == 0, "readers get their grace"
    report = clean(graph, keep=None, older_than=0)
    assert report.commits_reclaimed == 6
    assert content(graph, commit=commits[0].id) == content(graph)


def test_after_optimize_files_are_few(graph: Graph) -> None:
    for number in range(30):
        add(graph, 1000 + number, 1001 + number)
    many = files(graph)
    graph.optimize()
    clean(graph)
    assert files(graph) < many / 3
    assert len(content(graph)[PERSON]) == 390
    add(graph, 2000, 2001)
    with og.open(graph.uri) as again:
        assert len(content(again)[PERSON]) == 391


def test_what_a_live_branch_needs_stays(graph: Graph) -> None:
    graph.branches.create("side")  # pins what main has now, and has no table of its own
    graph.branches.create("own")
    graph.branch("own").mutate('query add() { insert Person { name: "Ada" } }')
    graph.mutate('query add() { insert Person { name: "Bob" } }')
    for number in range(5):
        add(graph, 1000 + number, 1001 + number)
    graph.optimize()
    side, own = content(graph, "side"), content(graph, "own")
    clean(graph)
    with og.open(graph.uri) as again:
        assert content(again, "side") == side
        assert content(again, "own") == own
        assert again.branches.merge("own").kind == "merged"
        assert again.branches.merge("side").kind == "already_up_to_date"
        again.branch("side").mutate('query add() { insert Person { name: "Cy" } }')
        assert again.branches.merge("side").kind == "merged"
        names = {row["name"] for row in content(again)[PERSON]}
        assert {"Ada", "Bob", "Cy"} <= names
        assert len(names) == 368


def test_a_version_that_has_a_tag_stays(graph: Graph) -> None:
    path = f"{graph.uri}/{graph.snapshot().tables[PERSON].location}"
    lance.dataset(path).tags.create("keep", 3)
    graph.optimize()
    clean(graph)
    assert lance.dataset(path, version=3).count_rows() == 120


def test_branches_of_branches_stay_whole_when_cleaned_again_and_again(graph: Graph) -> None:
    graph.branches.create("a")
    for number in range(4):
        add(graph, 1000 + number, 1001 + number, branch="a")
        if number == 1:
            graph.branches.create("a/b", "a")
            add(graph, 2000, 2001, branch="a/b")
    for round in range(3):
        add(graph, 3000 + round, 3001 + round)
        seen = {branch: content(graph, branch) for branch in graph.branches.list()}
        for branch in graph.branches.list():
            graph.optimize(branch)
        clean(graph)
        with og.open(graph.uri) as again:
            assert {branch: content(again, branch) for branch in again.branches.list()} == seen
    assert graph.branches.merge("a/b", "a").kind == "merged"
    assert graph.branches.merge("a").kind == "merged"
    assert len(content(graph)[PERSON]) == 360 + 4 + 1 + 3


def test_a_process_that_slept_notices_what_was_published_and_reclaimed(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(manifest, "RECLAIM_AGE_S", 0.2)
    with og.open(graph.uri) as sleeper:
        assert len(content(sleeper)[PERSON]) == 360
        for number in range(5):
            add(graph, 1000 + number, 1001 + number)
        time.sleep(0.3)
        assert told(clean(graph), LOCATION).versions
        assert len(content(sleeper)[PERSON]) == 365
        for number in range(5, 10):
            add(graph, 1000 + number, 1001 + number)
        time.sleep(0.3)
        assert told(clean(graph), LOCATION).versions
        add(sleeper, 2000, 2001)
        assert len(content(sleeper)[PERSON]) == len(content(graph)[PERSON]) == 371
        assert len(graph.commits.list()) == len(sleeper.commits.list()) == 18


def test_what_was_just_replaced_stays_whatever_the_policy_says(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others count versions up from what they saw, and Lance looks at those between."""
    monkeypatch.setattr(manifest, "RECLAIM_AGE_S", 120.0)
    graph.optimize()
    before = everything(graph)
    assert clean(graph).commits_reclaimed == 0
    assert everything(graph) == before
    monkeypatch.setattr(manifest, "RECLAIM_AGE_S", 0.0)
    assert told(clean(graph), PERSON).versions > 5


def test_a_pending_sidecar_keeps_its_versions_and_is_settled_first(graph: Graph) -> None:
    with failpoints.armed("publish.before"), pytest.raises(RecoveryRequired):
        add(graph, 1000, 1001)
    clean(graph)
    assert len(content(graph)[PERSON]) == 361


def test_a_full_disk_beside_a_pending_sidecar_can_be_cleaned_up(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    with failpoints.armed("publish.before"), pytest.raises(RecoveryRequired):
        add(graph, 1000, 1001)
    commit = Datasets.commit

    def full(*arguments: Any, **options: Any) -> Any:
        raise StorageFailed("ran commit", "No space left on device (os error 28)")

    monkeypatch.setattr(Datasets, "commit", full)
    with og.open(graph.uri) as again:
        with pytest.raises(StorageFailed, match="free some space"):
            add(again, 2000, 2001)
        assert len(content(again)[PERSON]) == 360
        report = again.cleanup(keep=1, grace=0, confirm=True)
        assert report.errors == ()
        assert told(report, PERSON).versions > 0
        monkeypatch.setattr(Datasets, "commit", commit)
        add(again, 2000, 2001)
        assert len(content(again)[PERSON]) == 362


def test_a_branch_that_is_deleted_meanwhile_stops_no_cleanup(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph.branches.create("going")
    listed = History.list

    def deletes(history: History, branch: str = "main", **options: Any) -> Any:
        if branch == "going":
            monkeypatch.setattr(History, "list", listed)
            graph.branches.delete("going")
        return listed(history, branch, **options)

    monkeypatch.setattr(History, "list", deletes)
    assert graph.cleanup(keep=1, grace=0, confirm=True).errors == ()
    assert graph.branches.list() == ("main",)


def test_a_branch_that_is_deleted_once_retention_is_decided_stops_no_cleanup(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph.branches.create("going")
    add(graph, 3000, 3001, branch="going")
    before = content(graph)
    needs = Reclaimer._needs

    def deletes(reclaimer: Reclaimer, *given: Any) -> Any:
        with og.open(graph.uri) as other:
            other.branches.delete("going")
        return needs(reclaimer, *given)

    monkeypatch.setattr(Reclaimer, "_needs", deletes)
    assert graph.cleanup(keep=1, grace=0, confirm=True).errors == ()
    assert graph.branches.list() == ("main",)
    assert content(graph) == before
    assert graph.check().findings == ()


def test_one_tables_failure_stops_no_other(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    reclaim = cleanup.reclaim_versions
    location = graph.snapshot().tables[PERSON].location

    def fails(datasets: Datasets, where: str, *given: Any, **named: Any) -> Any:
        if where == location:
            raise StorageFailed("reclaimed", "no")
        return reclaim(datasets, where, *given, **named)

    monkeypatch.setattr(cleanup, "reclaim_versions", fails)
    report = graph.cleanup(keep=1, grace=0, confirm=True)
    [failed] = report.errors
    assert (failed.table, failed.versions) == (PERSON, 0)
    assert "no" in str(failed.error)
    assert told(report, KNOWS).versions == 6
    assert told(report, LOCATION).versions > 0
    monkeypatch.setattr(cleanup, "reclaim_versions", reclaim)
    assert told(clean(graph), PERSON).versions == 6


@pytest.mark.parametrize("how", ["raise", "kill"])
@pytest.mark.parametrize(
    ("place", "nth"), [("cleanup.table", 2), ("cleanup.manifest", 1), ("cleanup.schemas", 1)]
)
def test_a_cleanup_that_stopped_is_finished_by_the_next(
    graph: Graph, place: str, nth: int, how: str
) -> None:
    before = content(graph)
    if how == "kill":
        assert run(die, graph.uri, "cleanup", place, nth) == KILLED
    else:
        with failpoints.armed(place, "raise", nth):
            assert len(graph.cleanup(keep=1, grace=0, confirm=True).errors) == 1
    with og.open(graph.uri) as again:
        assert content(again) == before
        clean(again)
        assert content(again) == before
        add(again, 1000, 1001)


# Forks and files


def test_forks_of_branches_that_are_gone_are_removed(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph.branches.create("side")
    add(graph, 1000, 1001, branch="side")

    def refuses(*_: object, **__: object) -> None:
        raise StorageFailed("deleted", "no")

    delete = Datasets.delete_branch
    monkeypatch.setattr(
        Datasets,
        "delete_branch",
        lambda self, where, name: (delete if where == LOCATION else refuses)(self, where, name),
    )
    graph.branches.delete("side")
    monkeypatch.setattr(Datasets, "delete_branch", delete)
    assert told(graph.cleanup(keep=1, grace=0), PERSON).forks == ("side",)
    report = clean(graph)
    assert told(report, PERSON).forks == told(report, KNOWS).forks == ("side",)
    location = graph.snapshot().tables[PERSON].location
    assert graph._store.datasets.refs(location) == {}
    assert not (Path(graph.uri) / location / "tree" / "side").exists()
    assert told(clean(graph), PERSON).forks == ()


def test_the_fork_of_a_first_write_under_way_stays_and_an_old_one_goes(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph.branches.create("side")
    write = graph._store.begin("side", kind=WriterKind.MUTATION)
    write.append(PERSON, people(1000, 1001))
    assert told(clean(graph), PERSON).forks == ()
    graph._store.commit(write)
    assert len(content(graph, "side")[PERSON]) == 361
    with failpoints.armed("fork.after"), pytest.raises(OSError, match="fork"):
        add_edges(graph)
    assert told(clean(graph), KNOWS).forks == ()
    monkeypatch.setattr("omnigraph.storage.upkeep.cleanup.SAFE_AGE_S", -1)
    assert told(clean(graph), KNOWS).forks == ("side",)
    assert len(content(graph, "side")[PERSON]) == 361


def add_edges(graph: Graph) -> None:
    write = graph._store.begin("side", kind=WriterKind.MUTATION)
    remove(graph._store, write, KNOWS, "id = 'kp00001'")


def test_staged_rows_of_a_running_writer_stay(graph: Graph) -> None:
    write = graph._store.begin(kind=WriterKind.MUTATION)
    write.append(PERSON, people(1000, 1010))
    clean(graph)
    graph._store.commit(write)
    assert len(content(graph)[PERSON]) == 370


def test_files_that_no_version_names_go_when_they_are_old(graph: Graph) -> None:
    root = Path(graph.uri)
    data = root / graph.snapshot().tables[PERSON].location / "data"
    young, old = data / "young.lance", data / "old.lance"
    staged = root / "__staged" / "01ARZ3NDEKTSV4RRFFQ69G5FAV"
    lost = root / "nodes" / "0123456789abcdef"
    for folder in (staged, lost):
        folder.mkdir(parents=True)
        (folder / "left").write_bytes(b"x")
    for file in (young, old):
        file.write_bytes(b"x")
    report = clean(graph)
    assert all(path.exists() for path in (young, old, staged / "left", lost / "left"))
    assert told(report, "__staged").files == 0
    for path in (old, staged, lost):
        aged(path)
    report = clean(graph)
    assert young.exists()
    assert not any(path.exists() for path in (old, staged / "left", lost / "left"))
    assert told(report, PERSON).files == 1
    assert told(report, "__staged").files == 1
    assert len(content(graph)[PERSON]) == 360


def test_a_table_that_was_dropped_goes_with_the_commits_that_have_it(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph.mutate('query add() { insert Place { name: "Paris" } }')
    location = Path(graph.uri) / graph.snapshot().tables[PLACE].location
    had = graph.snapshot().commit_id
    graph.schema.apply(graph.schema.text.replace("node Place {", "node Town {"))
    clean(graph, keep=2)
    assert len(content(graph, commit=had)[PLACE]) == 1
    clean(graph)
    assert location.exists(), "it is not old enough to be nobody's"
    monkeypatch.setattr("omnigraph.storage.upkeep.cleanup.SAFE_AGE_S", -1)
    clean(graph)
    assert not any(location.rglob("*.lance"))
    clean(graph)
    assert graph.check().findings == ()


def test_a_policy_is_needed_and_checked(graph: Graph) -> None:
    with pytest.raises(BadRequest, match="needs a policy"):
        graph.cleanup()
    with pytest.raises(BadRequest, match="at least 1"):
        graph.cleanup(keep=0)
    with pytest.raises(BadRequest, match="no duration"):
        graph.cleanup(older_than="soon")
    with og.open(graph.uri, read_only=True) as view:
        assert view.cleanup(keep=1).commits_kept
        with pytest.raises(BadRequest, match="read-only"):
            view.cleanup(keep=1, confirm=True)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("90", 90), ("2m", 120), ("3h", 10_800), ("7d", 604_800), ("1w", 604_800), (5, 5), (1.9, 1)],
)
def test_durations(text: Any, expected: int) -> None:
    assert seconds(text) == expected


@pytest.mark.parametrize("text", ["", "d", "-1", "1y", "1.5d", -1.0, True, None])
def test_what_is_no_duration(text: Any) -> None:
    with pytest.raises(BadRequest, match="no duration"):
        seconds(text)


def test_cleanup_waits_for_an_optimize_under_way(graph: Graph) -> None:
    with graph._store.upkeep(), og.open(graph.uri) as other:
        waiting = other._store.locks.acquire("upkeep_40", wait_s=0.1)
        assert waiting is None
    assert clean(graph).commits_reclaimed == 6
    assert fragments(graph) == 6


def test_a_branch_with_nothing_to_remove_is_not_cleaned(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(6):
        graph.branches.create(f"b{number}")
        write = graph._store.begin(f"b{number}", kind=WriterKind.MUTATION)
        write.append(PERSON, people(1000, 1001))
        graph._store.commit(write)
    clean(graph)

    def calls() -> int:
        before = graph.stats()
        clean(graph)
        return graph.stats().since(before).calls["lance.reclaim"]

    tables = len(graph._store.snapshot().tables) + 2  # and those of the manifest and the audit
    assert calls() == tables
    monkeypatch.setattr("omnigraph.storage.upkeep.cleanup.SAFE_AGE_S", -1)
    assert calls() == tables + 6 * 2, "files that nobody names may be old enough"
