"""Repair publishes what only upkeep moved, refuses the rest, and undoes it when forced."""

import os
from collections.abc import Iterator
from pathlib import Path

import lance
import pytest

import omnigraph as og
from omnigraph.errors import BadRequest, OmnigraphError, RecoveryRequired, StorageFailed
from omnigraph.graph import Graph
from omnigraph.storage import failpoints
from omnigraph.storage.upkeep.repair import RepairReport, TableRepair
from tests.exec.upkeep_world import KNOWS, PERSON, add, content, foreign_append, fragments, made


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[Graph]:
    with made(tmp_path / "g") as graph:
        yield graph


def told(report: RepairReport, table: str = PERSON, branch: str = "main") -> TableRepair:
    return next(t for t in report.tables if (t.table, t.branch) == (table, branch))


def path_of(graph: Graph, table: str = PERSON) -> str:
    return f"{graph.uri}/{graph.snapshot().tables[table].location}"  # type: ignore[index]


def maintained(graph: Graph) -> None:
    """Upkeep that somebody did with Lance alone."""
    lance.dataset(path_of(graph)).optimize.compact_files()
    lance.dataset(path_of(graph)).create_scalar_index("age", "BTREE", name="foreign")
    lance.dataset(path_of(graph)).optimize.compact_files()


def test_a_graph_in_order_needs_none(graph: Graph) -> None:
    report = graph.repair(confirm=True, force=True)
    assert {table.classification for table in report.tables} == {"none"}
    assert {table.action for table in report.tables} == {"none"}
    assert (report.commit_ids, report.refused) == ((), ())


def test_what_only_upkeep_moved_is_published(graph: Graph) -> None:
    before, commits = content(graph), len(graph.commits.list())
    maintained(graph)
    preview = graph.repair()
    person = told(preview)
    assert (person.published_version, person.head_version) == (7, 10)
    assert person.operations == ("ReserveFragments", "Rewrite", "CreateIndex")
    assert (person.classification, person.action) == ("verified_maintenance", "heal")
    assert len(graph.commits.list()) == commits, "a preview changes nothing"
    with pytest.raises(StorageFailed, match="omnigraph repair"):
        add(graph, 1000, 1001)
    report = graph.repair(confirm=True, actor="act-me")
    assert told(report) == person
    [commit] = report.commit_ids
    assert graph.commits.list()[0].id == commit
    assert graph.commits.list()[0].actor == "act-me"
    assert graph.snapshot().tables[PERSON].version == 10
    assert (content(graph), fragments(graph)) == (before, 1)
    add(graph, 1000, 1001)
    assert graph.recoveries.list() == ()


def test_rows_of_others_are_refused_and_undone_by_force(graph: Graph) -> None:
    before = content(graph)
    foreign_append(graph, 1000, 1002)
    report = graph.repair(confirm=True)
    [person] = report.refused
    assert (person.classification, person.operations) == ("suspicious", ("Append",))
    assert "force sets the table back" in str(person.error)
    assert graph.repair(force=True).refused == ()
    assert told(graph.repair(force=True)).action == "undo"
    assert told(graph.repair()).head_version == 8, "nothing was done yet"
    forced = graph.repair(confirm=True, force=True)
    assert told(forced).action == "undo"
    assert content(graph) == before
    [recovery] = graph.recoveries.list()
    assert (recovery.recovery_kind, recovery.sidecar_writer_kind) == ("RolledBack", "repair")
    assert told(graph.repair()).classification == "none"
    add(graph, 2000, 2001)
    assert lance.dataset(path_of(graph), version=8).count_rows() == 362, "theirs is still there"


def test_a_changed_row_is_not_taken_for_upkeep(graph: Graph) -> None:
    lance.dataset(path_of(graph)).optimize.compact_files()
    lance.dataset(path_of(graph)).update({"age": "1"}, where="id = 'p00003'")
    person = told(graph.repair())
    assert person.classification == "suspicious"
    assert person.operations[-1] == "Update"


def test_one_table_is_healed_beside_one_that_is_refused(graph: Graph) -> None:
    lance.dataset(path_of(graph, KNOWS)).optimize.compact_files()
    foreign_append(graph, 1000, 1001)
    report = graph.repair(confirm=True)
    assert told(report, KNOWS).action == "heal"
    assert told(report).action == "refused"
    assert fragments(graph, KNOWS) == 1
    assert len(report.commit_ids) == 1


def test_a_branchs_own_tables_are_repaired_too(graph: Graph) -> None:
    graph.branches.create("side")
    add(graph, 1000, 1001, branch="side")
    lance.dataset(f"{path_of(graph)}/tree/side").optimize.compact_files()
    report = graph.repair(confirm=True)
    assert told(report, branch="side").action == "heal"
    assert told(report).classification == "none"
    assert len(content(graph, "side")[PERSON]) == 361


def test_published_versions_that_are_gone_cannot_be_repaired(graph: Graph) -> None:
    versions = Path(path_of(graph)) / "_versions"
    newest = min(v for v in versions.iterdir() if v.name.endswith(".manifest"))
    os.remove(newest)
    with og.open(graph.uri) as again:
        person = told(again.repair(confirm=True, force=True))
        assert (person.classification, person.action) == ("behind", "refused")
        assert "from a copy" in str(person.error)


def test_a_history_that_cannot_be_read_is_refused(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    maintained(graph)

    def unreadable(*_: object) -> tuple[str, ...]:
        raise StorageFailed("read a transaction", "it is gone")

    with monkeypatch.context() as patch:
        patch.setattr("omnigraph.storage.upkeep.repair.operations_since", unreadable)
        person = told(graph.repair(confirm=True))
        assert (person.classification, person.action) == ("unverifiable", "refused")
        graph.repair(confirm=True, force=True)
    assert told(graph.repair()).classification == "none"


def test_a_write_that_stopped_is_recovered_and_not_repaired(graph: Graph) -> None:
    with failpoints.armed("publish.before"), pytest.raises(RecoveryRequired):
        add(graph, 1000, 1001)
    preview = told(graph.repair())
    assert (preview.classification, preview.action) == ("pending", "recover")
    assert "recovery required" in str(preview.error)
    assert told(graph.repair(confirm=True)).classification == "none"
    assert len(content(graph)[PERSON]) == 361


@pytest.mark.parametrize("place", [*failpoints.REPAIR, "recover.restore_after", "publish.staged"])
def test_a_crash_of_repair_is_settled(graph: Graph, place: str) -> None:
    before = content(graph)
    lance.dataset(path_of(graph, KNOWS)).optimize.compact_files()
    foreign_append(graph, 1000, 1001)
    with failpoints.armed(place), pytest.raises((OmnigraphError, OSError)):
        graph.repair(confirm=True, force=True)
    with og.open(graph.uri) as again:
        assert content(again) == before
        again.repair(confirm=True, force=True)
        assert {t.classification for t in again.repair().tables} == {"none"}
        assert again._store.sidecars.pending() == ()
        assert content(again) == before
        add(again, 2000, 2001)


def test_a_read_only_graph_shows_what_would_be_done(graph: Graph) -> None:
    foreign_append(graph, 1000, 1001)
    with og.open(graph.uri, read_only=True) as view:
        assert told(view.repair()).action == "refused"
        with pytest.raises(BadRequest, match="read-only"):
            view.repair(confirm=True)
