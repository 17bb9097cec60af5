"""Derived files and pinned versions of a branch that was deleted and created again."""

import os
import shutil
from pathlib import Path

import pyarrow as pa
import pytest

import omnigraph
from omnigraph.costs import COSTS
from omnigraph.errors import Reclaimed
from omnigraph.graph import Graph
from omnigraph.storage.derived.derived_folder import DerivedFiles, line_name
from omnigraph.types import TableKey
from tests.exec.topology.test_topology_builders import forget
from tests.storage.s3 import serve

SCHEMA = "node P { key: String @key }\n"
P = TableKey("node:P")
KEYS = "query q() { match { $p: P } return { $p.key as key } }"


@pytest.fixture(autouse=True)
def _every_table_is_large(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("OMNIGRAPH_TOPOLOGY_ROWS_MIN", "0")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(COSTS, "commit_file_rows_max", -1)


def rows(name: str, count: int = 20) -> pa.Table:
    return pa.table({"key": [f"{name}{n:03d}" for n in range(count)]})


def drafted(graph: Graph, name: str) -> None:
    graph.branches.create("draft")
    graph.load(rows(name), "append", type="P", branch="draft", engine="local")


def lines_of(graph: Graph) -> set[str]:
    return {each.name.line for each in graph._store.derived.files.everything()}


@pytest.mark.parametrize("removed_at_once", [True, False])
def test_a_healthy_graph_has_no_finding_after_a_branch_is_recreated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, removed_at_once: bool
) -> None:
    with omnigraph.init(tmp_path / "g", SCHEMA) as graph:
        graph.load(rows("main"), "append", type="P", engine="local")
        drafted(graph, "first")
        first = line_name(graph._store.snapshot("draft").tables[P])
        assert first in lines_of(graph)
        with monkeypatch.context() as patch:
            if not removed_at_once:  # as when the process dies in between
                patch.setattr(DerivedFiles, "remove_line", lambda self, pin: None)
            graph.branches.delete("draft")
        assert (first in lines_of(graph)) is not removed_at_once
        assert graph.check().ok
        drafted(graph, "second")
        forget(graph)  # open versions of the first branch would be compared
        assert graph.check().ok
        graph.cleanup(keep=1, grace=0, confirm=True)
        main, second = (graph._store.snapshot(name).tables[P] for name in ("main", "draft"))
        assert lines_of(graph) == {line_name(main), line_name(second)}
        assert len(graph.query(KEYS, branch="draft")) == 40


def test_deleting_a_branch_leaves_the_files_of_others(tmp_path: Path) -> None:
    with omnigraph.init(tmp_path / "g", SCHEMA) as graph:
        graph.load(rows("main"), "append", type="P", engine="local")
        drafted(graph, "first")
        graph.branches.create("nested", from_="main")
        graph.load(rows("nested"), "append", type="P", branch="nested", engine="local")
        graph.branches.create("idle")
        before = lines_of(graph)
        graph.branches.delete("idle")
        assert lines_of(graph) == before
        graph.branches.delete("nested")
        assert len(before - lines_of(graph)) == 1
        assert len(graph.query(KEYS, branch="draft")) == 40


def test_deleting_a_branch_removes_its_files_on_an_object_store(tmp_path: Path) -> None:
    with serve() as server:
        where = server.place()
        with omnigraph.init(where.uri, SCHEMA, storage_options=where.options) as graph:
            graph.load(rows("main"), "append", type="P", engine="local")
            graph.branches.create("draft")
            with omnigraph.open(where.uri, storage_options=where.options) as other:
                other.load(rows("first"), "append", type="P", branch="draft", engine="local")
                first = line_name(other._store.snapshot("draft").tables[P])
            graph.branches.delete("draft")
            stored = [each.path for each in graph._store.objects.listed("__derived")]
            assert any("nodes-" in path for path in stored)
            assert not any(first in path for path in stored)


def test_a_version_of_a_deleted_branch_is_not_read_from_another_of_its_name(
    tmp_path: Path,
) -> None:
    with omnigraph.init(tmp_path / "g", SCHEMA) as graph:
        graph.load(rows("main"), "append", type="P", engine="local")
        drafted(graph, "first")
        pinned = graph._store.snapshot("draft")
        graph.branches.delete("draft")
        drafted(graph, "second")
        now = graph._store.snapshot("draft")
        assert pinned.tables[P].version == now.tables[P].version
        forget(graph)  # as another process that was handed the snapshot
        with pytest.raises(Reclaimed):
            graph._store.reader(pinned, P).rows(["id"])
        assert graph._store.reader(now, P).rows(["id"]).num_rows == 40


def test_a_read_only_handle_finds_no_fault_in_files_of_an_earlier_graph(tmp_path: Path) -> None:
    path = tmp_path / "g"
    for name in ("first", "second"):
        with omnigraph.init(path, SCHEMA) as graph:
            graph.load(rows(name), "append", type="P", engine="local")
        shutil.rmtree(path / "__derived")
        with omnigraph.open(path, read_only=True) as reader:
            assert reader.check().ok
            reader.query("query q() { match { $p: P } return { count($p) as n } }")
            reader.query(KEYS)
            assert sorted(each["key"] for each in reader.query(KEYS).rows)[0] == f"{name}000"
            assert os.listdir(tmp_path / "cache" / "omnigraph" / "derived")
        shutil.rmtree(path)
