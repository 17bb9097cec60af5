"""Builders of topology files: loads, upkeep, crashes, damage and many processes at once."""

import errno
import mmap
import os
import random
import shutil
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import omnigraph
from omnigraph.costs import COSTS
from omnigraph.exec.topology.build import build_topology
from omnigraph.graph import Graph
from omnigraph.storage import failpoints
from omnigraph.storage.derived.column_file import is_column_kind
from omnigraph.storage.derived.mapped_file import BLOCK
from omnigraph.storage.lance.derived_bases import EdgeBase, NodeBase
from omnigraph.types import TableKey
from tests.forked import KILLED, context, run

SCHEMA = """
node Person { name: String @key  age: I32? }
edge Knows: Person -> Person { since: I32? }
"""
PERSON, KNOWS = TableKey("node:Person"), TableKey("edge:Knows")
STEPS = [(KNOWS, PERSON, PERSON)]
COUNT = 60

FRIENDS = """
query q($n: String) {
  match { $p: Person { name: $n }  $p $k:knows $f }
  return { $f.name as name, $f.age as age, $k.since as since }
}
"""
REACHED = """
query q($n: String) {
  match { $p: Person { name: $n }  $p knows{1,3} $f }
  return { count($f) as n }
}
"""
WHOLE = "query q() { match { $p: Person  $p <knows> $f } return { $p, count($f) as n } }"


@pytest.fixture(autouse=True)
def _every_table_is_large(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("OMNIGRAPH_TOPOLOGY_ROWS_MIN", "0")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def forget(graph: Graph) -> None:
    """Drop what a handle keeps in memory, as a new one has nothing."""
    graph._reading.close()
    graph._store.forget()


def name(number: int) -> str:
    return f"p{number % COUNT:03d}"


def people(first: int = 0, count: int = COUNT) -> pa.Table:
    numbers = range(first, first + count)
    names = [f"p{n:03d}" for n in numbers]
    return pa.table({"name": names, "age": pa.array([n % 90 for n in numbers], pa.int32())})


def friendships(count: int = 300) -> pa.Table:
    rng = random.Random(5)
    pairs = [(name(rng.randrange(COUNT)), name(rng.randrange(COUNT))) for _ in range(count)]
    return pa.table(
        {
            "src": [a for a, _ in pairs],
            "dst": [b for _, b in pairs],
            "since": pa.array(range(count), pa.int32()),
        }
    )


def loaded(path: Path) -> Graph:
    graph = omnigraph.init(path, SCHEMA)
    graph.load(people(), "append", type="Person", engine="local")
    graph.load(friendships(), "append", edge="Knows", engine="local")
    return graph


def filed(path: Path) -> Graph:
    """A graph whose files are of its newest versions."""
    graph = loaded(path)
    shutil.rmtree(path / "__derived")
    forget(graph)
    graph.ensure_indices()
    return graph


def files_of(path: Path) -> list[Path]:
    """The topology files; reads that return properties leave column files beside them."""
    files = sorted((path / "__derived").rglob("*.og"))
    return [file for file in files if not is_column_kind(file.name)]


def answers(graph: Graph, branch: str = "main") -> list[Any]:
    asked = [(FRIENDS, {"n": name(n)}) for n in (0, 7, 59, 200)]
    asked += [(REACHED, {"n": name(n)}) for n in (1, 30)] + [(WHOLE, {})]
    return [graph.query(text, params, branch=branch).rows for text, params in asked]


def expected(path: Path, branch: str = "main") -> list[Any]:
    """The answers of a handle that may use no file."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("omnigraph.storage.derived.derived_folder.DerivedFiles.listed", _nothing)
        patch.setenv("OMNIGRAPH_TOPOLOGY_ROWS_MIN", "1000000")
        with omnigraph.open(path) as graph:
            return answers(graph, branch)


def _nothing(self: object, pin: object) -> list[Any]:
    return []


# ---- who builds


def test_TP2_a_load_leaves_a_graph_that_is_fast(tmp_path: Path) -> None:
    with loaded(tmp_path / "g") as graph:
        assert len(files_of(tmp_path / "g")) == 2
        assert answers(graph) == expected(tmp_path / "g")
        before = graph.stats()
        graph.query(FRIENDS, {"n": name(3)})
        assert "lance.scan" not in graph.stats().since(before).calls
    with omnigraph.open(tmp_path / "g") as graph:
        before = graph.stats()
        assert len(graph.query(FRIENDS, {"n": name(3)}))
        assert "derived.written" not in graph.stats().events


def test_TP2_small_commits_write_no_file_and_a_reader_pays_by_the_rows_between(
    tmp_path: Path,
) -> None:
    with loaded(tmp_path / "g") as graph:
        files = files_of(tmp_path / "g")
        for number in range(5):
            graph.mutate(f'query q() {{ insert Person {{ name: "new{number}", age: 1 }} }}')
            graph.mutate(
                f'query q() {{ insert Knows {{ from: "p001", to: "new{number}", since: 3 }} }}'
            )
        graph.mutate('query q() { delete Person where name = "p007" }')
        assert files_of(tmp_path / "g") == files
        assert answers(graph) == expected(tmp_path / "g")
    with omnigraph.open(tmp_path / "g") as graph:
        assert answers(graph) == expected(tmp_path / "g")
        assert files_of(tmp_path / "g") == files


def test_TP2_rows_since_a_file_are_one_array_however_many_commits_wrote_them(
    tmp_path: Path,
) -> None:
    with loaded(tmp_path / "g") as graph:
        for number in range(9):
            graph.mutate(f'query q() {{ insert Person {{ name: "new{number}", age: 1 }} }}')
        graph.mutate('query q() { update Person set { age: 5 } where name = "new3" }')
        graph.mutate('query q() { delete Person where name = "new4" }')
        base = graph._store.derived.nodes(graph._store.snapshot().tables[PERSON])
        assert base is not None
        assert sorted(base.touched["id"].to_pylist()) == [f"new{n}" for n in range(9) if n != 4]
        # Arrow takes longer over an array for each commit than over the rows themselves.
        assert [column.num_chunks for column in base.touched.columns] == [1, 1, 1]


def test_TP1_a_delta_past_a_tenth_is_folded_and_keeps_the_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(COSTS, "commit_file_rows_max", 5)
    with loaded(tmp_path / "g") as graph:
        first = graph._store.derived.nodes(graph._store.snapshot().tables[PERSON])
        assert first is not None
        graph.load(people(COUNT, 20), "append", type="Person", engine="local")
        folded = graph._store.derived.nodes(graph._store.snapshot().tables[PERSON])
        assert folded is not None
        assert first.file.digest in folded.file.lineage
        assert folded.file.strings[:COUNT].equals(first.file.strings)
        assert folded.file.count == COUNT + 20
        graph.load(friendships(40), "append", edge="Knows", engine="local")
        assert answers(graph) == expected(tmp_path / "g")
    with omnigraph.open(tmp_path / "g") as graph:
        assert answers(graph) == expected(tmp_path / "g")


def test_TP1_nodes_written_again_keep_their_numbers_and_no_edge_file_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(COSTS, "delta_rows_few", 5)
    monkeypatch.setattr(COSTS, "commit_file_rows_max", 5)
    with loaded(tmp_path / "g") as graph:
        store = graph._store

        def files() -> tuple[NodeBase, EdgeBase]:
            tables = store.snapshot().tables
            nodes = store.derived.nodes(tables[PERSON])
            assert nodes is not None
            edges = store.derived.edges(tables[KNOWS], (nodes.file.lineage, nodes.file.lineage))
            assert edges is not None
            return nodes, edges

        first, edges = files()
        for start in (0, COUNT // 4):
            graph.load(people(start, COUNT // 2), "merge", type="Person", engine="local")
            later, same = files()
            assert later.is_exact
            assert first.file.digest in later.file.lineage
            assert later.file.strings.equals(first.file.strings)
            assert same.file.file.digest == edges.file.file.digest
        assert answers(graph) == expected(tmp_path / "g")
        graph.mutate('query q() { delete Person where name != "p1" }')
        graph.load(people(0, COUNT), "merge", type="Person", engine="local")
        assert answers(graph) == expected(tmp_path / "g")
    with omnigraph.open(tmp_path / "g") as graph:
        assert answers(graph) == expected(tmp_path / "g")


def test_TP2_upkeep_writes_what_is_missing_and_no_more(tmp_path: Path) -> None:
    path = tmp_path / "g"
    with loaded(path) as graph:
        shutil.rmtree(path / "__derived")
        forget(graph)
        report = graph.ensure_indices()
        assert {note.table for note in report.topology} == {PERSON, KNOWS}
        assert graph.ensure_indices().topology == ()
        for number in range(3):
            graph.mutate(f'query q() {{ insert Person {{ name: "o{number}" }} }}')
        notes = graph.optimize().topology
        assert PERSON in {note.table for note in notes}
        assert graph.optimize().topology == ()
        assert answers(graph) == expected(path)
    with omnigraph.open(path) as graph:
        assert answers(graph) == expected(path)


def test_deleting_the_folder_loses_nothing(tmp_path: Path) -> None:
    path = tmp_path / "g"
    with loaded(path) as graph:
        before = answers(graph)
        shutil.rmtree(path / "__derived")
        assert answers(graph) == before
        graph.mutate('query q() { insert Person { name: "p900" } }')
        assert answers(graph) == before
    with omnigraph.open(path) as graph:
        assert answers(graph) == before


def test_a_process_that_has_too_many_files_open_removes_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    path = tmp_path / "g"
    with loaded(path) as graph:
        before, names = answers(graph), set(path.glob("__derived/*/*"))
        assert names
        forget(graph)
        with monkeypatch.context() as patch:
            patch.setattr(mmap, "mmap", refuse)
            assert answers(graph) == before
            graph.cleanup(keep=1, confirm=True)
        assert names <= set(path.glob("__derived/*/*"))
        forget(graph)
        assert answers(graph) == before
        assert graph._store.derived.files._open


def test_files_that_newer_ones_replaced_are_no_longer_mapped(tmp_path: Path) -> None:
    with filed(tmp_path / "g") as graph:
        for number in range(12):
            graph.load(friendships(1100), "append", edge="Knows", engine="local")
            assert graph.query(FRIENDS, {"n": name(number)}).rows
        derived = graph._store.derived
        kept = [
            *derived.files._open,
            *(each.file.path for each in derived._parsed._parsed.values()),
        ]
        assert all(path.exists() for path in kept)
        assert len(derived.files._open) < 12
        assert answers(graph) == expected(tmp_path / "g")


def test_a_disk_that_takes_no_more_fails_no_load(tmp_path: Path) -> None:
    for place in failpoints.DERIVED:
        path = tmp_path / place
        with failpoints.armed(place, "raise"), loaded(path) as graph:
            assert graph.stats().events["derived.unwritten"] == 1
            assert answers(graph) == expected(path)


# ---- checks of writes


def test_TP_a_write_is_checked_by_files_as_without_them(tmp_path: Path) -> None:
    with loaded(tmp_path / "g") as graph:
        graph.mutate('query q() { insert Person { name: "late" } }')
        graph.mutate('query q() { delete Person where name = "p005" }')
        for taken in ("p001", "late"):
            with pytest.raises(omnigraph.OmnigraphError):
                graph.load(pa.table({"name": [taken]}), "append", type="Person", engine="local")
        for lacking in ("p005", "nobody"):
            with pytest.raises(omnigraph.OmnigraphError):
                graph.mutate(f'query q() {{ insert Knows {{ from: "p001", to: "{lacking}" }} }}')
        graph.mutate('query q() { insert Knows { from: "late", to: "p002", since: 900 } }')
        graph.mutate('query q() { update Person set { age: 77 } where name = "late" }')
        graph.mutate('query q() { delete Knows where from = "p001" }')
        assert graph.query(FRIENDS, {"n": "late"}).rows == [
            {"name": "p002", "age": 2, "since": 900}
        ]
        assert graph.query(FRIENDS, {"n": "p001"}).rows == []
        assert answers(graph) == expected(tmp_path / "g")
        assert graph.check().ok


# ---- damage


def test_TP3_every_byte_range_damaged_before_mapping_changes_no_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "g"
    with filed(path):
        right = expected(path)
    monkeypatch.setenv("OMNIGRAPH_TOPOLOGY_ROWS_MIN", "1000000")
    rejected = 0
    with omnigraph.open(path) as graph:
        for file in files_of(path):
            whole = file.read_bytes()
            used = [n for n in range(0, len(whole), 256) if any(whole[n : n + 256])]
            for start in used:
                data = bytearray(whole)
                for index in range(start, min(start + 256, len(data))):
                    data[index] ^= 0x5A
                file.unlink(missing_ok=True)
                file.write_bytes(data)
                forget(graph)
                graph._store.derived.files._rejected.clear()
                before = graph.stats()
                assert answers(graph) == right, f"{file.name} from byte {start}"
                graph.mutate('query q() { update Person set { age: 5 } where name = "p900" }')
                rejected += graph.stats().since(before).events.get("derived.rejected", 0)
            file.unlink(missing_ok=True)
            file.write_bytes(whole)
    assert rejected > 20


# ---- processes


def child_of_large_tables() -> None:
    """Children come from a fork server, which has the environment of its start."""
    os.environ["OMNIGRAPH_TOPOLOGY_ROWS_MIN"] = "0"


def build_in_child(path: str, place: str) -> None:
    child_of_large_tables()
    if place:
        failpoints.arm(place, "kill")
    with omnigraph.open(path) as graph:
        build_topology(graph._store, graph._store.snapshot(), STEPS, [PERSON])


@pytest.mark.parametrize("place", failpoints.DERIVED)
def test_TP3_a_builder_killed_at_any_step_leaves_a_file_whole_or_none(
    tmp_path: Path, place: str
) -> None:
    path = tmp_path / "g"
    with loaded(path):
        right = expected(path)
        shutil.rmtree(path / "__derived")
    assert run(build_in_child, str(path), place) == KILLED
    with omnigraph.open(path) as graph:
        assert answers(graph) == right
        assert "derived.rejected" not in graph.stats().events
        assert graph.ensure_indices() is not None
    assert len({file.parent for file in files_of(path)}) == 2
    assert not list((path / "__derived").glob("aside-*"))


def build_again_and_again(path: str) -> None:
    child_of_large_tables()
    with omnigraph.open(path) as graph:
        while True:
            shutil.rmtree(Path(path) / "__derived", ignore_errors=True)
            graph._store.forget()
            build_topology(graph._store, graph._store.snapshot(), STEPS, [PERSON])


def test_TP3_builders_killed_at_random_moments_change_no_answer(tmp_path: Path) -> None:
    path = tmp_path / "g"
    with loaded(path):
        right = expected(path)
    rng = random.Random(3)
    for _ in range(4):
        child = context().Process(target=build_again_and_again, args=(str(path),))
        child.start()
        time.sleep(0.2 + rng.random() / 2)
        child.kill()
        child.join()
        with omnigraph.open(path) as graph:
            assert answers(graph) == right
            assert "derived.rejected" not in graph.stats().events


def read_and_write(path: str, number: int) -> None:
    child_of_large_tables()
    with omnigraph.open(path) as graph:
        for turn in range(3):
            graph.load(
                pa.table({"name": [f"w{number}{turn}"]}), "append", type="Person", engine="local"
            )
            edge = pa.table({"src": [f"w{number}{turn}"], "dst": [name(turn)]})
            graph.load(edge, "append", edge="Knows", engine="local")
            rows = graph.query(FRIENDS, {"n": f"w{number}{turn}"}).rows
            assert [row["name"] for row in rows] == [name(turn)]
            if number == 0:
                build_topology(graph._store, graph._store.snapshot(), STEPS, [PERSON])


def test_TP_many_processes_build_write_and_read_at_once(tmp_path: Path) -> None:
    path = tmp_path / "g"
    loaded(path).close()
    shutil.rmtree(path / "__derived")
    children = [context().Process(target=read_and_write, args=(str(path), n)) for n in range(4)]
    for child in children:
        child.start()
    for child in children:
        child.join(120)
        assert child.exitcode == 0
    with omnigraph.open(path) as graph:
        assert answers(graph) == expected(path)
        assert "derived.rejected" not in graph.stats().events
        assert graph.query("query q() { match { $p: Person } return { count($p) as n } }").rows == [
            {"n": COUNT + 12}
        ]


# ---- upkeep


def test_TP6_cleanup_removes_the_files_of_versions_nobody_can_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("omnigraph.storage.manifest.manifest.RECLAIM_AGE_S", 0)
    monkeypatch.setattr(COSTS, "commit_file_rows_max", 0)
    path = tmp_path / "g"
    with filed(path) as graph:
        for number in range(3):
            graph.load(people(100 + number, 1), "append", type="Person", engine="local")
        of_nodes = [file for file in files_of(path) if file.name.startswith("nodes")]
        assert len(of_nodes) > 1
        graph.cleanup(keep=1, grace=0, confirm=True)
        left = [file for file in files_of(path) if file.name.startswith("nodes")]
        newest = graph.snapshot().tables[PERSON].version
        assert [file.name.split("-")[2] for file in left] == [str(newest)]
        assert answers(graph) == expected(path)
        assert graph.check().ok


def test_TP6_check_tells_files_that_are_damaged_or_differ(tmp_path: Path) -> None:
    path = tmp_path / "g"
    with filed(path) as graph:
        graph.mutate('query q() { insert Person { name: "behind" } }')
        assert graph.check().ok
        for file in files_of(path):
            data = bytearray(file.read_bytes())
            data[-BLOCK] ^= 1
            file.unlink()
            file.write_bytes(data)
        findings = graph.check().findings
        assert [finding.code for finding in findings] == ["topology", "topology"]
        assert len(files_of(path)) == 2, "check writes nothing"


def test_TP6_a_snapshot_tells_which_tables_have_files_how_big_and_how_far_behind(
    tmp_path: Path,
) -> None:
    path = tmp_path / "g"
    with filed(path) as graph:
        graph.mutate('query q() { insert Person { name: "behind" } }')
        topology = graph.snapshot().topology
        assert {key: state.rows_behind for key, state in topology.items()} == {PERSON: 1, KNOWS: 0}
        sizes = sorted(file.stat().st_size for file in files_of(path))
        assert sorted(state.bytes for state in topology.values()) == sizes
        graph.branches.create("side")
        graph.mutate('query q() { insert Person { name: "beside" } }', branch="side")
        side = graph.snapshot("side")
        assert side.topology[PERSON].rows_behind == 2
        assert side.topology[PERSON].branch is None, "the fork uses the file of its base"
        assert len(files_of(path)) == 2
        assert answers(graph, "side") == expected(path, "side")
