"""Check finds what tests break on purpose, says what to do, and writes nothing."""

import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import lance
import pyarrow as pa
import pytest
from lance.dataset import LanceOperation, Transaction
from lance.fragment import write_fragments

import omnigraph as og
from omnigraph.errors import OmnigraphError, RecoveryRequired
from omnigraph.exec.upkeep.findings import Finding
from omnigraph.graph import Graph, check_at
from omnigraph.storage import failpoints
from omnigraph.storage.lance.datasets import Datasets
from omnigraph.storage.manifest import manifest
from omnigraph.storage.manifest.publish import ManifestChange
from omnigraph.storage.manifest.state import LOCATION
from omnigraph.storage.protocol.intent import WriterKind
from omnigraph.storage.records import (
    Commit,
    CommitId,
    TablePin,
    commit_row,
    head_row,
    manifest_batch,
)
from tests.exec.upkeep.test_cleanup import everything
from tests.exec.upkeep_world import KNOWS, PERSON, PLACE, add, foreign_append, friends, made, people
from tests.exec.world import graph_of
from tests.storage.world import remove


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody counts versions here, so that cleanup need not wait."""
    monkeypatch.setattr(manifest, "RECLAIM_AGE_S", 0.0)


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[Graph]:
    with made(tmp_path / "g", 3) as graph:
        graph.optimize()
        yield graph


def found(graph: Graph) -> dict[str, Finding]:
    """What a new process finds, by code."""
    return {finding.code: finding for finding in check_at(graph.uri).findings}


def path_of(graph: Graph, table: str = PERSON) -> Path:
    return Path(graph.uri) / graph.snapshot().tables[table].location  # type: ignore[index]


def published(graph: Graph, table: str, rows: pa.Table) -> None:
    """Rows that become a commit although they break rules."""
    write = graph._store.begin(kind=WriterKind.MUTATION)
    write.append(table, rows)  # type: ignore[arg-type]
    graph._store.commit(write)


def into_manifest(graph: Graph, rows: list[dict[str, object]]) -> None:
    """Rows of the manifest that no publish would write."""
    handle = lance.dataset(f"{graph.uri}/{LOCATION}")
    written = write_fragments(manifest_batch(rows), handle, mode="append")
    lance.LanceDataset.commit(handle, Transaction(handle.version, LanceOperation.Append(written)))


def test_a_whole_graph_has_no_findings_and_nothing_is_written(graph: Graph) -> None:
    graph.branches.create("side")
    add(graph, 1000, 1003, branch="side")
    graph.mutate('query add() { insert Place { name: "Paris", kind: "city" } }')
    graph.optimize("side")
    graph.cleanup(keep=1, grace=0, confirm=True)
    before = everything(graph)
    with og.open(graph.uri, read_only=True) as view:
        report = view.check()
    assert report.findings == ()
    assert report.ok
    assert report.branches == ("main", "side")
    assert report.tables == 6, "three of main, two of side, and the places as side has them"
    assert everything(graph) == before


def test_a_graph_with_blobs_whose_schema_changed_is_whole(tmp_path: Path) -> None:
    schema = "node Doc { name: String @key  data: Blob  note: String? }"
    with og.init(tmp_path / "b", schema) as graph:
        graph.mutate(
            "query add($d: Blob) { insert Doc { name: 'a', data: $d } }".replace("'", '"'),
            {"d": "base64:QUJD"},
        )
        changed = schema.replace("note: String?", 'text: String? @rename_from("note")  n: I64?')
        graph.schema.apply(changed)
        graph.branches.create("side")
        graph.branch("side").mutate('query set() { update Doc set { n: 7 } where name = "a" }')
        assert graph.check().findings == ()


def test_check_works_beside_a_writer(graph: Graph) -> None:
    write = graph._store.begin(kind=WriterKind.MUTATION, actor="act-test")
    write.append(PERSON, people(1000, 1001))
    reports = []

    def look(tables: object, pin: object) -> None:
        reports.append(found(graph))

    write.then(PERSON, look)  # type: ignore[arg-type]
    graph._store.commit(write)
    [report] = reports
    assert set(report) == {"sidecar-pending"}, "it is told, and its head is no drift"
    assert found(graph) == {}


def test_a_head_ahead_of_the_manifest(graph: Graph) -> None:
    foreign_append(graph, 1000, 1001)
    finding = found(graph)["head-ahead"]
    assert finding.subject == PERSON
    assert finding.facts["head"] == finding.facts["published"] + 1
    assert "omnigraph repair" in finding.todo


def test_a_published_version_that_is_gone(graph: Graph) -> None:
    versions = path_of(graph) / "_versions"
    os.remove(min(v for v in versions.iterdir() if v.name.endswith(".manifest")))
    finding = found(graph)["version-missing"]
    assert finding.subject == PERSON
    assert "from a copy" in finding.todo


def test_a_data_file_that_is_gone(graph: Graph) -> None:
    shutil.rmtree(path_of(graph) / "data")
    finding = found(graph)["file-missing"]
    assert finding.subject == PERSON
    assert "unreadable" not in found(graph), "one finding says what to do"
    assert "omnigraph check" not in str(finding), "a check does not send people to itself"


def test_an_index_that_is_gone(graph: Graph) -> None:
    shutil.rmtree(path_of(graph) / "_indices")
    assert found(graph)["index-missing"].subject == PERSON


def test_an_id_that_comes_twice(graph: Graph) -> None:
    published(graph, PERSON, people(3, 4))
    finding = found(graph)["id-duplicate"]
    assert finding.facts["ids"] == ["p00003"]


def test_an_end_that_does_not_exist(graph: Graph) -> None:
    row = friends(5000, 5001)
    published(graph, KNOWS, row)
    finding = found(graph)["endpoint-missing"]
    assert finding.subject == KNOWS
    assert finding.facts["missing"] == ["p05000"]


def test_a_node_that_is_gone_under_its_edges(graph: Graph) -> None:
    write = graph._store.begin(kind=WriterKind.MUTATION)
    remove(graph._store, write, PERSON, "id = 'p00005'")
    graph._store.commit(write)
    assert found(graph)["endpoint-missing"].facts["missing"] == ["p00005"]


def test_values_that_break_rules(graph: Graph) -> None:
    ages = pa.array([200], pa.int32())
    old = people(1000, 1001)
    published(graph, PERSON, old.set_column(old.schema.get_field_index("age"), "age", ages))
    taken = people(1001, 1002)
    mail = pa.array(["p00001@x"])
    published(graph, PERSON, taken.set_column(taken.schema.get_field_index("email"), "email", mail))
    published(graph, PLACE, pa.table({"id": ["x"], "name": ["x"], "kind": ["village"]}))
    many = pa.table(
        {
            "id": [f"m{n}" for n in range(4)],
            "src": ["p00001"] * 4,
            "dst": ["p00002"] * 4,
            "since": pa.array([1] * 4, pa.int64()),
        }
    )
    published(graph, KNOWS, many)
    codes = found(graph)
    assert set(codes) == {"rule-range", "rule-unique", "rule-enum", "rule-cardinality"}
    assert codes["rule-range"].facts["ids"] == ["p01000"]
    assert "village" in codes["rule-enum"].text


OLD_VALUES = """
node Event { name: String @key  at: DateTime?  days: [Date]?  size: F64?  sizes: [F32]?
             face: Vector(2)? }
node Tick { at: DateTime @key }
"""


def test_values_that_older_versions_let_in_are_listed_with_their_repair(tmp_path: Path) -> None:
    late = 253_402_300_800_000
    events = [
        {"name": "good", "at": 0, "days": [0], "size": 1.0, "sizes": [1.0], "face": [0.0, 1.0]},
        {"name": "late", "at": late},
        {"name": "nan", "size": float("nan"), "face": [0.0, float("inf")]},
        {"name": "lists", "sizes": [1.0, float("-inf"), float("nan")]},
        {"name": "empty"},
    ]
    graph = graph_of(tmp_path / "old", OLD_VALUES, {"Event": events})
    day = pa.ListArray.from_arrays([0, 1], pa.array([2_932_897], pa.int32()).view(pa.date32()))
    published(graph, "node:Event", with_nulls(graph, "Event", {"id": ["day"], "days": day}))
    tick = pa.array([late], pa.int64()).view(pa.timestamp("ms", "UTC"))
    published(graph, "node:Tick", pa.table({"id": [str(late)], "at": tick}))

    by_property = {
        (f.code, f.facts["property"], f.subject): (f.facts["ids"], f.facts["total"], f.todo)
        for f in check_at(graph.uri).findings
    }
    update, delete = "update Event set", 'delete Tick where id = "…"'
    assert {key: (ids, total) for key, (ids, total, _) in by_property.items()} == {
        ("value-moment", "at", "node:Event"): (["late"], 1),
        ("value-moment", "days", "node:Event"): (["day"], 1),
        ("value-number", "size", "node:Event"): (["nan"], 1),
        ("value-number", "sizes", "node:Event"): (["lists"], 1),
        ("value-number", "face", "node:Event"): (["nan"], 1),
        ("value-moment", "at", "node:Tick"): ([str(late)], 1),
    }
    assert delete in by_property["value-moment", "at", "node:Tick"][2]
    assert update in by_property["value-number", "size", "node:Event"][2]

    shown = graph.query("query q() { match { $e: Event } return { $e.name, $e.at } }").rows
    assert {row["e.name"]: row["e.at"] for row in shown}["late"] == "+010000-01-01T00:00:00.000Z"
    for (_, name, subject), (ids, _, _) in by_property.items():
        if subject == "node:Event":
            repair = f'update Event set {{ {name}: null }} where id = "{ids[0]}"'
            graph.mutate(f"query repair() {{ {repair} }}")
    graph.mutate(f'query repair() {{ delete Tick where id = "{late}" }}')
    assert check_at(graph.uri).findings == ()


def with_nulls(graph: Graph, name: str, columns: dict[str, pa.Array | list[str]]) -> pa.Table:
    """Rows of a type with the other columns empty, and the key equal to the id."""
    schema = graph.schema.catalog.nodes[name].schema
    given = {**columns, "name": columns["id"]}
    count = len(columns["id"])
    arrays = [
        pa.array(given[f.name]) if isinstance(given.get(f.name), list) else given.get(f.name)
        for f in schema
    ]
    return pa.table(
        [
            pa.nulls(count, f.type) if array is None else array.cast(f.type)
            for f, array in zip(schema, arrays, strict=True)
        ],
        names=schema.names,
    )


def test_a_column_that_is_gone(graph: Graph) -> None:
    lance.dataset(str(path_of(graph, PLACE))).drop_columns(["kind"])
    graph._store.publisher.publish(
        "main",
        ManifestChange(
            commit_id=CommitId("01BBBBBBBBBBBBBBBBBBBBBBBB"),
            pins=(replace(graph.snapshot().tables[PLACE], version=2),),
        ),
        expected_table_versions={},
    )
    assert "'kind' is missing" in found(graph)["columns"].text


def test_a_row_count_that_is_wrong(graph: Graph) -> None:
    pin = graph.snapshot().tables[PERSON]
    foreign_append(graph, 1000, 1002)
    wrong = TablePin(PERSON, pin.location, pin.version + 1, row_count=pin.row_count)
    graph._store.publisher.publish(
        "main",
        ManifestChange(commit_id=CommitId("01BBBBBBBBBBBBBBBBBBBBBBBB"), pins=(wrong,)),
        expected_table_versions={},
    )
    assert found(graph)["row-count"].facts == {"published": 180, "actual": 182}


def test_a_row_of_the_manifest_that_comes_twice(graph: Graph) -> None:
    into_manifest(graph, [head_row("main", graph.snapshot().commit_id, graph.snapshot().schema)])
    finding = found(graph)["manifest-duplicate"]
    assert finding.facts == {"object_id": "graph_head:main", "count": 2}


def test_a_commit_beside_the_lineage(graph: Graph) -> None:
    stray = Commit(
        id=CommitId("01AAAAAAAAAAAAAAAAAAAAAAAA"),
        parent=None,
        created_at=0,
        branch=None,
        manifest_version=0,
    )
    into_manifest(graph, [commit_row(stray)])
    assert found(graph)["lineage-forked"].facts["commits"] == [stray.id]


def test_a_commit_that_is_gone(graph: Graph) -> None:
    second = graph.commits.list()[-2]
    handle = lance.dataset(f"{graph.uri}/{LOCATION}")
    handle.delete(f"object_id = '{second.id}'")
    codes = found(graph)
    assert codes["commit-missing"].facts == {"commit": second.id}
    assert "lineage-forked" in codes, "the first commit is not reached any more"


def test_a_head_that_names_no_commit(graph: Graph) -> None:
    handle = lance.dataset(f"{graph.uri}/{LOCATION}")
    handle.delete(f"object_id = '{graph.snapshot().commit_id}'")
    assert found(graph)["head-unknown"].subject == "main"


def test_a_history_that_runs_in_a_circle(graph: Graph) -> None:
    first = graph.commits.list()[-1]
    handle = lance.dataset(f"{graph.uri}/{LOCATION}")
    handle.delete(f"object_id = '{first.id}'")
    into_manifest(graph, [commit_row(replace(first, parent=graph.snapshot().commit_id))])
    assert found(graph)["lineage-cycle"].subject == "main"


def test_a_fork_without_a_branch(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    graph.branches.create("side")
    add(graph, 1000, 1001, branch="side")
    delete = Datasets.delete_branch

    def only_the_manifest(self: Datasets, where: str, name: str) -> None:
        if where == LOCATION:
            delete(self, where, name)

    monkeypatch.setattr(Datasets, "delete_branch", only_the_manifest)
    graph.branches.delete("side")
    monkeypatch.undo()
    finding = found(graph)["fork-orphan"]
    assert finding.facts == {"branch": "side"}
    assert "omnigraph cleanup" in finding.todo
    graph.cleanup(keep=1, grace=0, confirm=True)
    assert found(graph) == {}


def test_a_fork_that_is_gone_under_its_branch(graph: Graph) -> None:
    graph.branches.create("side")
    add(graph, 1000, 1001, branch="side")
    location = graph.snapshot().tables[PERSON].location
    graph._store.datasets.delete_branch(location, "side")
    assert found(graph)["fork-missing"].subject == PERSON


def test_a_write_that_stopped(graph: Graph) -> None:
    with failpoints.armed("publish.before"), pytest.raises(RecoveryRequired):
        add(graph, 1000, 1001)
    finding = found(graph)["sidecar-pending"]
    assert finding.facts == {"tables": [KNOWS, PERSON], "kind": "mutation"}
    assert "head-ahead" not in found(graph)


def test_a_sidecar_that_cannot_be_read(graph: Graph) -> None:
    (Path(graph.uri) / "__recovery" / "01ARZ3NDEKTSV4RRFFQ69G5FAV.json").write_text("{")
    assert found(graph)["sidecar-corrupt"].subject == "01ARZ3NDEKTSV4RRFFQ69G5FAV"


@pytest.mark.parametrize("damage", ["text", "ir", "gone"])
def test_schema_files_that_disagree(graph: Graph, damage: str) -> None:
    text, ir = Path(graph.uri) / "_schema.pg", Path(graph.uri) / "_schema.ir.json"
    match damage:
        case "text":
            text.write_text(text.read_text().replace("email", "mail"))
        case "ir":
            ir.write_text("{")
        case _:
            text.unlink()
    assert "schema" in found(graph)


def test_a_type_without_a_table(graph: Graph) -> None:
    write = graph._store.begin_schema_change()
    write.drop_table(PLACE)
    graph._store.commit(write)
    assert found(graph)["table-missing"].subject == PLACE


def test_what_is_no_graph_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(OmnigraphError, match="not found"):
        check_at(tmp_path / "none")
