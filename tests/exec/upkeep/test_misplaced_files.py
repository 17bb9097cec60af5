"""Missing files, and deletion files that an earlier program left in the folder of another branch.

The first merge or patch of more than 10,000 rows on a branch wrote its deletion file into the
folder of the branch that it read from. The version expects it in its own.
"""

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import omnigraph as og
from omnigraph.errors import Reclaimed
from omnigraph.graph import Graph
from omnigraph.storage.manifest import manifest
from omnigraph.storage.upkeep.repair import TableRepair
from tests.storage.s3 import Server, serve

SCHEMA = "node P { key: String @key  age: I32 }\nedge K: P -> P"
COUNT = """query q($age: I32) {
  match { $p: P  $p.age = $age } return { count($p) as n } }"""
ROWS = 20
PERSON = "node:P"


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serve() as running:
        yield running


def people(count: int, age: int) -> pa.Table:
    keys = [f"p{n}" for n in range(count)]
    return pa.table({"key": keys, "age": pa.array([age] * count, pa.int32())})


@pytest.fixture(params=["local", "s3"])
def graph(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Graph]:
    where, options = str(tmp_path / "g.omni"), None
    if request.param == "s3":
        place = request.getfixturevalue("server").place()
        where, options = place.uri, place.options
    with og.init(where, SCHEMA, storage_options=options, fold=False) as graph:
        graph.load(people(ROWS, 1), "append", type="P", engine="local")
        edges = pa.table({"from": ["p1", "p2"], "to": ["p2", "p3"]})
        graph.load(edges, "append", edge="K", engine="local")
        graph.branches.create("b")
        yield graph


def ages(graph: Graph, branch: str) -> tuple[int, int]:
    """How many people are 1 and how many are 7."""
    found = [graph.query(COUNT, {"age": age}, branch=branch).rows[0]["n"] for age in (1, 7)]
    return found[0], found[1]


def deletion_files(graph: Graph) -> set[str]:
    return {path for path in graph._store.objects.list("nodes") if "/_deletions/" in path}


def misplace(graph: Graph, branch: str, parent: str | None) -> tuple[str, str]:
    """Merge on a branch, and move its deletion file to the folder of its parent: where the program
    put it, and where the version expects it."""
    before = deletion_files(graph)
    graph.load(people(12, 7), "merge", type="P", branch=branch, engine="local", indexes="later")
    [right] = deletion_files(graph) - before
    objects = graph._store.objects
    table, _, rest = right.partition("/tree/")
    home = table if parent is None else f"{table}/tree/{parent}"
    wrong = f"{home}/{rest.partition('/')[2]}"
    stored = objects.get(right)
    assert stored is not None
    objects.put(wrong, stored.data)
    objects.delete(right)
    graph._store.forget()
    return wrong, right


def told(graph: Graph, branch: str, **options: bool) -> TableRepair:
    report = graph.repair(**options)
    return next(t for t in report.tables if (t.table, t.branch) == (PERSON, branch))


def test_check_finds_a_misplaced_deletion_file_and_repair_moves_it(graph: Graph) -> None:
    wrong, right = misplace(graph, "b", None)
    with pytest.raises(Reclaimed):
        ages(graph, "b")
    [finding] = graph.check().findings
    assert (finding.code, finding.subject) == ("deletion-misplaced", PERSON)
    assert finding.todo == "run `omnigraph repair`"
    assert finding.facts == {"branch": "b", "version": 3, "files": [right], "found": [wrong]}
    head = graph.snapshot("b").commit_id
    preview = told(graph, "b")
    assert (preview.classification, preview.action, preview.files) == (
        "misplaced_file",
        "move",
        (right,),
    )
    assert not graph._store.objects.has(right), "a preview changes nothing"
    report = graph.repair(confirm=True)
    assert (report.commit_ids, report.refused) == ((), ())
    assert preview in report.tables
    assert graph.snapshot("b").commit_id == head
    assert ages(graph, "b") == (ROWS - 12, 12)
    assert graph.check().findings == ()
    assert told(graph, "b", confirm=True).classification == "none"
    graph.branches.merge("b")
    assert ages(graph, "main") == (ROWS - 12, 12)
    assert graph.check().findings == ()


def test_a_branch_of_a_branch_and_one_that_inherits_the_damage_are_repaired(graph: Graph) -> None:
    graph.load([{"key": "b", "age": 1}], "append", type="P", branch="b", engine="local")
    graph.branches.create("nested", from_="b")
    misplace(graph, "nested", "b")
    graph.branches.create("inherits", from_="nested")
    damaged = {(f.code, f.facts["branch"]) for f in graph.check().findings}
    assert ("deletion-misplaced", "nested") in damaged
    assert {code for code, _ in damaged} == {"deletion-misplaced"}
    assert told(graph, "nested", confirm=True).action == "move"
    for branch in ("nested", "inherits"):
        assert ages(graph, branch) == (ROWS + 1 - 12, 12)
    assert graph.check().findings == ()


def test_a_past_version_is_repaired_where_the_head_no_longer_names_the_file(graph: Graph) -> None:
    misplace(graph, "b", None)
    commit = graph.snapshot("b").commit_id
    graph.load(people(4, 7), "overwrite", type="P", branch="b", engine="local", indexes="later")
    [finding] = graph.check().findings
    assert (finding.code, finding.facts["version"]) == ("deletion-misplaced", 3)
    graph.repair(confirm=True)
    assert graph.query(COUNT, {"age": 7}, snapshot=commit).rows[0]["n"] == 12
    assert graph.check().findings == ()


def test_cleanup_keeps_a_misplaced_file(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    """No version names it where it is, so cleanup would take it for garbage in the end."""
    monkeypatch.setattr(manifest, "RECLAIM_AGE_S", 0.0)
    wrong, _ = misplace(graph, "b", None)
    for confirm in (False, True):
        report = graph.cleanup(keep=1, grace=0, confirm=confirm)
        [error] = [table.error for table in report.tables if table.table == PERSON]
        assert error is not None
        assert "omnigraph repair" in error
    assert graph._store.objects.has(wrong)
    graph.repair(confirm=True)
    assert graph.cleanup(keep=1, grace=0, confirm=True).errors == ()
    assert ages(graph, "b") == (ROWS - 12, 12)


@pytest.mark.parametrize("kind", ["data", "_deletions"])
def test_check_finds_a_missing_file_and_repair_refuses(graph: Graph, kind: str) -> None:
    objects = graph._store.objects
    before = set(objects.list("nodes"))
    graph.mutate('query q() { update P set { age: 7 } where key = "p1" }')
    [path] = [path for path in set(objects.list("nodes")) - before if f"/{kind}/" in path]
    stored = objects.get(path)
    assert stored is not None
    objects.delete(path)
    graph._store.forget()
    [finding] = graph.check().findings
    assert (finding.code, finding.subject) == ("file-missing", PERSON)
    assert finding.facts["files"] == [path]
    assert "omnigraph restore" in finding.todo
    for confirm in (False, True):
        report = graph.repair(confirm=confirm)
        [refused] = report.refused
        assert (refused.classification, refused.files) == ("missing_file", (path,))
    objects.put(path, stored.data)
    assert graph.check().findings == ()
    assert graph.repair().refused == ()


def test_a_file_that_does_not_fit_its_version_is_not_moved(graph: Graph) -> None:
    """Another file of this name: the fragment would lose other rows than the version says."""
    wrong, right = misplace(graph, "b", None)
    graph.branches.create("other")
    before = deletion_files(graph)
    graph.load(people(3, 7), "merge", type="P", branch="other", engine="local", indexes="later")
    [fewer] = deletion_files(graph) - before
    objects = graph._store.objects
    data = objects.get(fewer)
    assert data is not None
    objects.put(wrong, data.data)
    graph._store.forget()
    report = graph.repair(confirm=True)
    [refused] = report.refused
    assert refused.error is not None
    assert "not 8" in refused.error
    assert not objects.has(right)
