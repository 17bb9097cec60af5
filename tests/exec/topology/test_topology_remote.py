"""Topology files of a graph on an object store: beside it, copied by digest, few calls."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import omnigraph
from omnigraph.costs import COSTS
from omnigraph.graph import Graph
from omnigraph.storage.derived.mapped_file import BLOCK
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

HOP = """
query q($n: String) {
  match { $p: Person { name: $n }  $p knows $f }
  return { $f.name as name, $f.age as age }
}
"""


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
        listed = graph._store.objects.list("__derived")
        names = sorted(Path(path).name for path in listed if path.endswith(".og"))
        assert [each.partition("-")[0] for each in names] == ["column1", "edges", "nodes"]
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "another"))
    with opened(where, read_only=True) as graph:
        assert answers(graph) == right
        assert sorted(path.name for path in copies(tmp_path / "another")) == names
        assert "derived.written" not in graph.stats().events
        assert graph.snapshot().topology[PERSON].rows_behind == 0
        assert graph.check().ok
    for path in copies(tmp_path / "another"):
        data = bytearray(path.read_bytes())
        data[-BLOCK] ^= 1
        path.write_bytes(data)
    with opened(where) as graph:
        assert answers(graph) == right
        assert graph.stats().events["derived.rejected"] >= 1


def test_TP4_a_repeated_query_is_one_call_and_a_first_hop_few(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A table without rows has no file, so that the load's own file is of the version it left.
    monkeypatch.setenv("OMNIGRAPH_TOPOLOGY_ROWS_MIN", "1")
    where = server.place()
    with omnigraph.init(where.uri, SCHEMA, storage_options=where.options) as graph:
        graph.load(people(), "append", type="Person", engine="local")
        graph.load(friendships(), "append", edge="Knows", engine="local")
        graph.optimize()
    for number, (query, most, again) in enumerate(((HOP, 13, 10), (FRIENDS, 14, 11))):
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / f"machine{number}"))
        assert calls_to_first_hop(server, where, query) <= most, "nothing is on this machine"
        assert calls_to_first_hop(server, where, query) <= again, "copies of everything are"


def calls_to_first_hop(server: Server, where: Any, query: str = FRIENDS) -> int:
    """Requests of an open and a first hop; the same query again looks for a newer head alone."""
    before = server.requests
    with opened(where) as graph:
        rows = graph.query(query, {"n": name(3)}).rows
        calls = server.requests - before
        assert len(rows) > 0
        again = server.requests
        assert graph.query(query, {"n": name(3)}).rows == rows
        assert server.requests - again == 1
    return calls


def test_a_small_graph_of_nine_tables_is_open_and_read_in_fifteen_calls(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OMNIGRAPH_TOPOLOGY_ROWS_MIN")
    where = server.place()
    others = "".join(f"node N{n} {{ name: String @key }}\n" for n in range(7))
    with omnigraph.init(where.uri, SCHEMA + others, storage_options=where.options) as graph:
        graph.load(people(), "append", type="Person", engine="local")
        graph.load(friendships(), "append", edge="Knows", engine="local")
        for number in range(8):
            graph.mutate(f'query q() {{ insert N0 {{ name: "x{number}" }} }}')
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "another"))
    assert calls_to_first_hop(server, where) <= 13, "nothing is on this machine"
    assert calls_to_first_hop(server, where) <= 12


def cut(data: bytes) -> bytes:
    return data[:-1]


def flipped(data: bytes) -> bytes:
    return data[:40] + bytes([data[40] ^ 1]) + data[41:]


@pytest.mark.parametrize("damage", [cut, flipped])
def test_a_damaged_copy_of_the_manifest_or_schema_is_read_from_the_store(
    damage: Callable[[bytes], bytes], server: Server, tmp_path: Path
) -> None:
    where = server.place()
    with omnigraph.init(where.uri, SCHEMA, storage_options=where.options) as graph:
        graph.load(people(), "append", type="Person", engine="local")
    with opened(where) as graph:
        right = graph.snapshot().tables
    documents = [p for p in (tmp_path / "cache").rglob("documents/*/*/*") if p.is_file()]
    assert {path.parent.name for path in documents} == {"states", "schemas"}
    for path in documents:
        path.write_bytes(damage(path.read_bytes()))
    with opened(where) as graph:
        assert graph.snapshot().tables == right
        assert "Person" in graph.schema.text


def test_TP4_the_oldest_files_beside_a_graph_are_removed_as_on_a_disk(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(COSTS, "commit_file_rows_max", 0)
    where = server.place()
    with omnigraph.init(where.uri, SCHEMA, storage_options=where.options) as graph:
        for number in range(6):
            graph.load(people(100 + number, 1), "append", type="Person", engine="local")
        listed = graph._store.objects.list("__derived")
        names = [Path(path).name for path in listed if "/nodes-" in path]
        versions = sorted(int(each.split("-")[2]) for each in names)
        assert versions == [4, 5, 6, 7]


def test_TP4_the_folder_of_copies_is_bounded_and_the_oldest_go_first(tmp_path: Path) -> None:
    folder = tmp_path / "derived" / "graph" / "nodes-1"
    folder.mkdir(parents=True)
    paths = [folder / f"nodes-0-{n}-{n}.og" for n in range(4)]
    for number, path in enumerate(paths):
        path.write_bytes(bytes(100))
        os.utime(path, (number, number))
    evict(tmp_path / "derived", 250, paths[0])
    assert [path.exists() for path in paths] == [True, False, False, True]
