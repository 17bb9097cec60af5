"""Optimize makes fragments few and indexes whole, changes no row, and disturbs nobody."""

import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph.catalog.indexes import IndexKind
from omnigraph.errors import BadRequest, RecoveryRequired, StorageFailed
from omnigraph.exec.progress import UpkeepProgress
from omnigraph.exec.upkeep.optimize import OptimizeReport, TableReport
from omnigraph.graph import Graph
from omnigraph.storage import failpoints
from omnigraph.storage.lance.index_segments import IndexRequest
from omnigraph.storage.manifest.state import LOCATION
from omnigraph.storage.protocol.intent import WriterKind
from omnigraph.storage.protocol.sidecars import FOLDER
from omnigraph.storage.upkeep.compaction import Compactor
from tests.exec.upkeep_world import (
    KNOWS,
    PERSON,
    PLACE,
    add,
    content,
    foreign_append,
    fragments,
    made,
    people,
)

pytestmark = pytest.mark.consistent


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[Graph]:
    with made(tmp_path / "g") as graph:
        yield graph


def told(report: OptimizeReport, table: str) -> TableReport:
    return next(each for each in report.tables if each.table == table)


def indexes(graph: Graph, branch: str = "main") -> dict[str, tuple[int, bool]]:
    reader = graph._store.reader(graph.snapshot(branch), PERSON)
    return {index.column: (index.rows, index.is_whole) for index in reader.indexes()}


QUERIES = [
    'query q() { match { $p: Person { name: "p00007" } $p knows $f } return { $f.name as x } }',
    'query q() { match { $p: Person search($p.bio, "number3") } return { $p.name as x } }',
    'query q() { match { $p: Person fuzzy($p.bio, "nmber3", 1) } return { $p.name as x } }',
    "query q() { match { $p: Person $p.age > 80 } return { $p.name as x } }",
    "query q() { match { $p: Person } return { $p.name as x } "
    "order { nearest($p.face, [0.1, 0.2, 0.3, 0.4]) } limit 5 }",
]


def answers(graph: Graph) -> list[Any]:
    return [graph.query(query).rows for query in QUERIES]


def test_fragments_become_few_and_indexes_whole_in_one_commit(graph: Graph) -> None:
    before, rows, asked = graph.commits.list(), content(graph), answers(graph)
    report = graph.optimize(actor="act-me")
    assert [fragments(graph, key) for key in (PERSON, KNOWS)] == [1, 1]
    assert set(indexes(graph).values()) == {(360, True)}
    assert (content(graph), answers(graph)) == (rows, asked)
    [new] = graph.commits.list()[: -len(before)]
    assert (new.id, new.actor) == (report.commit_id, "act-me")
    person = told(report, PERSON)
    assert (person.rows, person.fragments_before, person.fragments_after) == (360, 6, 1)
    assert {(note.column, note.kind) for note in person.built} >= {("face", IndexKind.VECTOR)}
    assert person.committed
    assert person.published_version == graph.snapshot().tables[PERSON].version
    manifest = told(report, LOCATION)
    assert manifest.fragments_before > manifest.fragments_after == 1


def test_a_second_run_has_nothing_to_do(graph: Graph) -> None:
    graph.optimize()
    snapshot = graph.snapshot()
    report = graph.optimize()
    assert report.commit_id is None
    assert not any(each.committed or each.built for each in report.tables)
    assert graph.snapshot().tables == snapshot.tables


def test_what_came_since_costs_what_came_since(tmp_path: Path) -> None:
    """New rows are folded and indexed; the large fragment and its index stay as they are."""
    graph = made(tmp_path / "large", commits=0)
    add(graph, 0, 70_000)
    graph.optimize()
    graph.ensure_indices()  # also those that topology files stand in for
    store = graph._store

    def segments(column: str) -> set[str]:
        handle = store.datasets.handle(graph.snapshot().tables[PERSON])
        found = [i for i in handle.describe_indices() if i.field_names == [column]]
        return {str(segment.uuid) for index in found for segment in index.segments}

    assert fragments(graph) == 1
    old = segments("id")
    for number in range(4):
        add(graph, 80_000 + number, 80_001 + number)
    calls = graph.stats()
    graph.optimize()
    assert graph.stats().since(calls).calls["lance.rewrite"] == 3, "two tables and the manifest"
    assert fragments(graph) == 2
    assert old < segments("id"), "the segment of the large fragment is still there"
    assert len(segments("id")) == 2
    assert set(indexes(graph).values()) == {(70_004, True)}


def test_segments_that_meet_in_a_fragment_become_one(graph: Graph) -> None:
    graph.ensure_indices()
    add(graph, 400, 410)
    graph.ensure_indices()
    add(graph, 410, 420)
    asked = answers(graph)
    graph.optimize()
    assert fragments(graph) == 1
    assert set(indexes(graph).values()) == {(380, True)}
    assert answers(graph) == asked


def test_an_index_nobody_asks_for_stays_and_stands_in_nobodys_way(graph: Graph) -> None:
    write = graph._store.begin(kind=WriterKind.MUTATION)
    pin = write.base(PERSON)
    foreign = IndexRequest("age", "BTREE", "foreign")
    write._keep(graph._store.tables.stage_create_indexes(pin, [foreign]))
    graph._store.commit(write)
    add(graph, 400, 410)
    add(graph, 410, 420)
    graph.optimize()
    assert fragments(graph) == 2, "what the foreign index covers, and what it does not"
    assert indexes(graph)["age"] == (360, False)


def test_deleted_rows_are_left_out_of_the_files(graph: Graph) -> None:
    graph.optimize()
    graph.mutate("query cut() { delete Person where age < 30 }")
    rows, asked = content(graph), answers(graph)
    [before] = graph._store.datasets.handle(graph.snapshot().tables[PERSON]).get_fragments()
    assert before.num_deletions > 0
    report = graph.optimize()
    assert told(report, PERSON).committed
    [after] = graph._store.datasets.handle(graph.snapshot().tables[PERSON]).get_fragments()
    assert after.num_deletions == 0
    assert (content(graph), answers(graph)) == (rows, asked)


def test_changed_rows_are_found_by_what_they_are_now(graph: Graph) -> None:
    graph.optimize()
    graph.mutate('query set() { update Person set { bio: "cooks number3" } where age = 7 }')
    expected = answers(graph)
    graph.optimize()
    assert answers(graph) == expected


def test_time_travel_and_diffs_go_on_across_it(graph: Graph) -> None:
    early = graph.commits.list()[2].id
    then = content(graph, commit=early)
    head = graph.snapshot().commit_id
    graph.mutate('query add() { insert Person { name: "Ada" } }')
    graph.optimize()
    graph.mutate('query drop() { delete Person where name = "p00003" }')
    assert content(graph, commit=early) == then
    changes = {(change.op, change.type, change.id) for change in graph.diff(head, "main")}
    assert {("insert", "Person", "Ada"), ("delete", "Person", "p00003")} <= changes
    assert all(
        change.id in ("Ada", "p00003") or change.type == "Knows"
        for change in graph.diff(head, "main")
    )
    optimized = next(c for c in graph.commits.list() if len(list(graph.commits.changes(c.id))) == 0)
    assert optimized is not None, "upkeep is a commit that changed nothing"


def test_a_branch_merges_after_both_sides_were_optimized(graph: Graph) -> None:
    graph.branches.create("side")
    side = graph.branch("side")
    side.mutate('query add() { insert Person { name: "Ada" } }')
    graph.mutate('query add() { insert Person { name: "Bob" } }')
    graph.optimize("side")
    graph.optimize()
    assert graph.branches.merge("side").kind == "merged"
    names = {row["name"] for row in content(graph)[PERSON]}
    assert {"Ada", "Bob"} <= names
    assert len(names) == 362


def test_a_branch_is_optimized_where_it_has_tables_of_its_own(graph: Graph) -> None:
    graph.branches.create("side")
    for number in range(3):
        write = graph._store.begin("side", kind=WriterKind.MUTATION)
        write.append(PERSON, people(500 + number, 501 + number))
        graph._store.commit(write)
    report = graph.optimize("side")
    assert told(report, KNOWS).skipped == "inherited from main and never written on side"
    assert told(report, PERSON).committed
    assert fragments(graph, branch="side") == 1
    assert fragments(graph) == 6, "main is not touched"


def test_a_branch_leaves_what_it_inherited_as_it_is(graph: Graph) -> None:
    """Lance looks for an index that it moved along where the branch came from."""
    graph.optimize()
    graph.branches.create("side")
    for number in range(4):
        add(graph, 1000 + number, 1001 + number, branch="side")
    asked = [graph.query(query, branch="side").rows for query in QUERIES]
    graph.optimize("side")
    assert fragments(graph, branch="side") == 2, "the inherited one, and the branch's own"
    assert set(indexes(graph, "side").values()) == {(364, True)}
    assert graph.optimize("side").commit_id is None
    with og.open(graph.uri) as again:
        assert [again.query(query, branch="side").rows for query in QUERIES] == asked
        assert again.branches.merge("side").kind == "fast_forward"
        assert len(content(again)[PERSON]) == 364


def test_progress_is_told(graph: Graph) -> None:
    seen: list[UpkeepProgress] = []
    graph.optimize(progress=seen.append)
    tasks = [each for each in seen if each.stage == "tasks"]
    assert [each.done for each in tasks] == list(range(1, len(tasks) + 1))
    assert tasks[-1].done == tasks[-1].total
    assert seen[-1].stage == "manifest"


def test_a_read_only_graph_and_a_wrong_engine_are_refused(graph: Graph) -> None:
    with og.open(graph.uri, read_only=True) as view, pytest.raises(BadRequest, match="read-only"):
        view.optimize()
    with pytest.raises(BadRequest, match="no engine"):
        graph.optimize(engine="flink")


def test_an_unrecovered_graph_is_refused(graph: Graph) -> None:
    sidecar = Path(graph.uri) / FOLDER / "01ARZ3NDEKTSV4RRFFQ69G5FAV.json"
    sidecar.write_text("{")
    with pytest.raises(StorageFailed, match="corrupt"):
        graph.optimize()
    sidecar.unlink()
    assert graph.optimize().commit_id


def test_what_a_dead_writer_left_is_settled_first(graph: Graph) -> None:
    with failpoints.armed("publish.before"), pytest.raises(RecoveryRequired):
        add(graph, 400, 410)
    report = graph.optimize()
    assert told(report, PERSON).rows == 370, "the stopped write was finished"
    assert len(graph.recoveries.list()) == 1


@pytest.mark.consistent(False)  # the drift is the finding
def test_a_table_with_uncovered_drift_is_skipped_and_said_so(graph: Graph) -> None:
    foreign_append(graph, 400, 401)
    report = graph.optimize()
    person = told(report, PERSON)
    assert person.skipped is not None
    assert "uncovered drift: its head 8 is ahead of the published version 7" in person.skipped
    assert "omnigraph repair" in person.skipped
    assert (person.published_version, person.head_version) == (7, 8)
    assert fragments(graph, KNOWS) == 1, "the others are optimized"
    assert fragments(graph) == 6


# Other writers meanwhile


def disturbed(
    graph: Graph, monkeypatch: pytest.MonkeyPatch, disturb: Callable[[], object], *, times: int = 1
) -> None:
    """Let others write right after the work of a run is done, as often as said."""
    gather = Compactor.gather
    left = [times]

    def and_then(self: Compactor, *given: Any) -> Any:
        done = gather(self, *given)
        if left[0] > 0:
            left[0] -= 1
            with monkeypatch.context() as patch:
                patch.setattr(Compactor, "gather", gather)
                disturb()
        return done

    monkeypatch.setattr(Compactor, "gather", and_then)


def test_rows_appended_meanwhile_cost_no_repetition(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    disturbed(graph, monkeypatch, lambda: add(graph, 400, 410))
    calls = graph.stats()
    report = graph.optimize()
    assert graph.stats().since(calls).calls["lance.rewrite"] == 3, "nothing was rewritten twice"
    assert told(report, PERSON).committed
    assert fragments(graph) == 2
    assert len(content(graph)[PERSON]) == 370
    assert set(indexes(graph).values()) == {(360, False)}
    assert len(graph.query(QUERIES[0]).rows) == 1


def test_a_table_that_changed_meanwhile_is_done_again(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    change = 'query set() { update Person set { bio: "cooks number3" } where age = 7 }'
    disturbed(graph, monkeypatch, lambda: graph.mutate(change))
    report = graph.optimize()
    assert told(report, PERSON).committed
    assert fragments(graph) == 1
    assert {row["bio"] for row in content(graph)[PERSON] if row["age"] == 7} == {"cooks number3"}
    assert len(content(graph)[PERSON]) == 360


def test_a_table_that_never_stands_still_is_left_and_said_so(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = [0]

    def change() -> None:
        count[0] += 1
        text = f'query set() {{ update Person set {{ bio: "{count[0]}" }} where age = 7 }}'
        graph.mutate(text)

    disturbed(graph, monkeypatch, change, times=50)
    report = graph.optimize()
    skipped = told(report, PERSON).skipped
    assert skipped is not None
    assert "written all the time" in skipped
    assert fragments(graph, KNOWS) == 1, "the other table is done"
    assert count[0] == 4, "once after each of two tables, and after each of two repetitions"
    location = graph.snapshot().tables[PERSON].location
    left = [*Path(graph.uri, location).glob("_indices/*")]
    assert left == [], "indexes were built for nothing and stayed"


def test_blobs_survive(tmp_path: Path) -> None:
    with og.init(
        tmp_path / "b", "node Doc { name: String @key  data: Blob? }", fold=False
    ) as graph:
        for number in range(4):
            graph.mutate(
                "query add($n: String, $d: Blob) { insert Doc { name: $n, data: $d } }",
                {"n": f"d{number}", "d": f"base64:{'QUJD' * (number + 1)}"},
            )
        before, after = io.BytesIO(), io.BytesIO()
        graph.export(before)
        graph.optimize()
        graph.export(after)
        assert sorted(before.getvalue().splitlines()) == sorted(after.getvalue().splitlines())
        assert b"QUJDQUJD" in after.getvalue()


def test_an_empty_graph_has_nothing_to_optimize(tmp_path: Path) -> None:
    with og.init(tmp_path / "e", "node A { name: String @key }") as graph:
        report = graph.optimize()
        assert report.commit_id is None
        [note] = {n.reason for n in told(report, "node:A").pending}
        assert note == "the table has no rows"


def test_the_number_of_threads_is_checked(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMNIGRAPH_MAINTENANCE_CONCURRENCY", "many")
    with pytest.raises(
        BadRequest,
        match="OMNIGRAPH_MAINTENANCE_CONCURRENCY is 'many'; set it to a whole number from 1",
    ):
        graph.optimize()
    monkeypatch.setenv("OMNIGRAPH_MAINTENANCE_CONCURRENCY", "1")
    assert graph.optimize().commit_id
    assert fragments(graph, PLACE) == 0
