"""Checkpoints of the manifest on an object store: fewer calls to open a graph, the same state."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import omnigraph
from omnigraph.costs import COSTS
from omnigraph.graph import Graph
from omnigraph.storage.lance.datasets import Handle
from omnigraph.storage.manifest.state import CopiedRows, State, read_state
from omnigraph.storage.manifest.state_copies import CHECKPOINT, state_rows
from tests.storage.s3 import Server, serve

SCHEMA = "node Person { name: String @key }\nnode City { name: String @key }\n"
INSERT = "query q($n: String) { insert Person { name: $n } }"
ALL = "query q() { match { $p: Person } return { $p.name as n } order { $p.name } }"


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serve() as running:
        yield running


@pytest.fixture(autouse=True)
def _another_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "first"))


def opened(where: Any, machine: Path, **options: Any) -> Graph:
    """The graph, opened by a machine that has read what is in its cache folder."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(machine))
        return omnigraph.open(where.uri, storage_options=where.options, **options)


def facts(state: State) -> tuple[Any, ...]:
    stones = frozenset(state.tombstones)
    return state.version, state.pins, state.heads, state.declared, stones, state.head_row


def read_without(graph: Graph) -> tuple[Any, ...]:
    """The state of main by the manifest alone."""
    return facts(_read(graph, None))


class Given:
    """A copy of the rows of some fragments."""

    def __init__(self, state: State) -> None:
        self.copied = CopiedRows(state_rows(state), state.seen)

    def rows(self, handle: Handle, branch: str) -> CopiedRows:
        return self.copied

    def keep(self, handle: Handle, rows: pa.Table) -> None:
        pass


def _read(graph: Graph, copies: Given | None) -> State:
    store = graph._store
    handle = store.datasets.open("__manifest")
    common: dict[str, Any] = {"branch": "main", "identity": None, "uri": graph.uri}
    return read_state(store.datasets, handle, known=None, copies=copies, **common)


def test_a_state_by_a_checkpoint_and_the_commits_since_is_that_of_the_manifest(
    tmp_path: Path,
) -> None:
    with omnigraph.init(tmp_path / "g", SCHEMA) as graph:
        steps = [
            lambda: graph.mutate(INSERT, {"n": "a"}),
            lambda: graph.branches.create("side"),
            lambda: graph.mutate(INSERT, {"n": "b"}, branch="side"),
            lambda: graph.branches.merge("side"),
            lambda: graph.branches.delete("side"),
            lambda: graph.schema.apply(SCHEMA + "node New { name: String @key }"),
            lambda: graph.schema.apply(SCHEMA),
            lambda: graph.schema.apply(
                SCHEMA.replace("City", 'Town @rename_from("City")'),
            ),
            lambda: graph.mutate(INSERT, {"n": "c"}),
        ]
        earlier = [_read(graph, None)]
        for step in steps:
            step()
            right = read_without(graph)
            for state in earlier:
                assert facts(_read(graph, Given(state))) == right
            earlier.append(_read(graph, None))
            assert facts(graph._store.manifest.state("main")) == right


def test_a_machine_that_never_read_the_graph_reads_its_checkpoint(
    server: Server, tmp_path: Path
) -> None:
    where = server.place()
    with omnigraph.init(where.uri, SCHEMA, storage_options=where.options) as graph:
        for number in range(6):
            graph.mutate(INSERT, {"n": f"p{number}"})
        right = read_without(graph)
    before = server.requests
    with opened(where, tmp_path / "second") as graph:
        assert server.requests - before == 4, "two lists, the manifest's version, the checkpoint"
        assert facts(graph._store.manifest.known("main") or _none()) == right
        assert len(graph.query(ALL)) == 6


def test_a_live_writer_leaves_a_checkpoint_every_few_commits(
    server: Server, tmp_path: Path
) -> None:
    where = server.place()
    with omnigraph.init(where.uri, SCHEMA, storage_options=where.options) as graph:
        put = []
        for number in range(2 * COSTS.state_copy_commits_min):
            graph.mutate(INSERT, {"n": f"p{number}"})
            stored = graph._store.objects.get(CHECKPOINT)
            put.append(None if stored is None else stored.tag)
            with opened(where, tmp_path / f"m{number}", read_only=True) as other:
                assert len(other.query(ALL)) == number + 1
                assert facts(other._store.manifest.state("main")) == read_without(other)
        assert len(set(put)) == 3, "none, and two"
    with opened(where, tmp_path / "last") as graph:
        graph.query(ALL)
        left = graph._store.objects.get(CHECKPOINT)
    assert left is not None
    assert left.tag != put[-1], "the writer left one when it was closed"
    with opened(where, tmp_path / "another") as graph:
        again = graph._store.objects.get(CHECKPOINT)
        assert again is not None
        assert again.tag == left.tag, "a reader has nothing to leave"


def test_a_checkpoint_that_is_damaged_old_or_of_another_graph_changes_nothing(
    server: Server, tmp_path: Path
) -> None:
    where, other = server.place(), server.place()
    with omnigraph.init(other.uri, SCHEMA, storage_options=other.options) as graph:
        for number in range(6):  # more versions than the other graph has
            graph.mutate(INSERT, {"n": f"stranger {number}"})
        graph._store.manifest.leave_checkpoint(commits=1)
        strange = graph._store.objects.get(CHECKPOINT)
    with omnigraph.init(where.uri, SCHEMA, storage_options=where.options) as graph:
        graph.mutate(INSERT, {"n": "a"})
        graph._store.manifest.leave_checkpoint(commits=1)
        objects = graph._store.objects
        old = objects.get(CHECKPOINT)
        graph.mutate(INSERT, {"n": "b"})
        graph.optimize()  # the fragments of the old one are gone
        graph.mutate(INSERT, {"n": "c"})
        graph._store.manifest.leave_checkpoint(commits=1)
        now, right = objects.get(CHECKPOINT), read_without(graph)
        assert now is not None
        assert old is not None
        assert strange is not None
        bad = {
            "flipped": now.data[:99] + bytes([now.data[99] ^ 1]) + now.data[100:],
            "cut": now.data[:-7],
            "empty": b"",
            "foreign": strange.data,
            "older": old.data,
        }
        for name, data in bad.items():
            objects.put(CHECKPOINT, data)
            with opened(where, tmp_path / name, read_only=True) as reader:
                assert [row["n"] for row in reader.query(ALL)] == ["a", "b", "c"], name
                assert facts(reader._store.manifest.state("main")) == right, name


def _none() -> State:
    raise AssertionError("main was not read")
