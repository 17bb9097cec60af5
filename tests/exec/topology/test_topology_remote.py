"""Topology files of a graph on an object store: beside it, copied by digest, few calls."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import omnigraph
from omnigraph.graph import Graph
from omnigraph.storage.derived.remote_copies import evict
from tests.exec.topology.test_topology_builders import (
    FRIENDS,
    PERSON,
    SCHEMA,
    answers,
    friendships,
    name,
    people,
)
from tests.storage.s3 import Server, serve


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serve() as running:
        yield running


@pytest.fixture(autouse=True)
def _every_table_is_large(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("OMNIGRAPH_TOPOLOGY_ROWS_MIN", "0")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def copies(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.og"))


def opened(where: Any, **options: Any) -> Graph:
    return omnigraph.open(where.uri, storage_options=where.options, **options)


def test_TP4_files_lie_beside_the_graph_and_are_copied_by_digest(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = server.place()
    with omnigraph.init(where.uri, SCHEMA, storage_options=where.options) as graph:
        graph.load(people(), "append", type="Person", engine="local")
        graph.load(friendships(), "append", edge="Knows", engine="local")
        right = answers(graph)
        names = sorted(Path(path).name for path in graph._store.objects.list("__derived"))
        assert len(names) == 2
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "another"))
    with opened(where, read_only=True) as graph:
        assert answers(graph) == right
        assert [path.name for path in copies(tmp_path / "another")] == names
        assert "derived.written" not in graph.stats().events
        assert graph.snapshot().topology[PERSON].rows_behind == 0
        assert graph.check().ok
    for path in copies(tmp_path / "another"):
        data = bytearray(path.read_bytes())
        data[-60_000] ^= 1
        path.write_bytes(data)
    with opened(where) as graph:
        assert answers(graph) == right
        assert graph.stats().events["derived.rejected"] >= 1


def test_TP4_a_repeated_query_is_one_call_and_a_first_hop_few(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = server.place()
    with omnigraph.init(where.uri, SCHEMA, storage_options=where.options) as graph:
        graph.load(people(), "append", type="Person", engine="local")
        graph.load(friendships(), "append", edge="Knows", engine="local")
        graph.optimize()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "another"))
    before = server.requests
    with opened(where, read_only=True) as graph:
        at_open = server.requests
        assert len(graph.query(FRIENDS, {"n": name(3)})) > 0
        assert server.requests - at_open <= 13, "a first hop, with both files to fetch"
        again = server.requests
        graph.query(FRIENDS, {"n": name(3)})
        assert server.requests - again <= 1
    assert at_open > before
    with opened(where, read_only=True) as graph:
        at_open = server.requests
        assert len(graph.query(FRIENDS, {"n": name(3)})) > 0
        assert server.requests - at_open <= 11, "a first hop, with copies of both files"


def test_TP4_the_folder_of_copies_is_bounded_and_the_oldest_go_first(tmp_path: Path) -> None:
    folder = tmp_path / "derived" / "graph" / "nodes-1"
    folder.mkdir(parents=True)
    paths = [folder / f"nodes-0-{n}-{n}.og" for n in range(4)]
    for number, path in enumerate(paths):
        path.write_bytes(bytes(100))
        os.utime(path, (number, number))
    evict(tmp_path / "derived", 250, paths[0])
    assert [path.exists() for path in paths] == [True, False, False, True]
