"""The door: what it opens, what it refuses, and that a refusal writes nothing."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

import omnigraph as og
from omnigraph.graph import Graph
from omnigraph.storage import failpoints
from omnigraph.storage.protocol.intent import WriterKind
from tests.storage.conftest import s3, s3_server
from tests.storage.world import Where

__all__ = ["s3", "s3_server"]

SCHEMA = """
node Person {
    name: String @key
    age: I32?
}

node City {
    name: String @key
}

edge Knows: Person -> Person {
    since: Date?
}
"""


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    return og.init(tmp_path / "graph.omni", schema=SCHEMA)


def tree(path: Path) -> list[str]:
    return sorted(str(p) for p in path.rglob("*"))


def test_init_keeps_the_schema_and_writes_a_genesis_commit(graph: Graph, tmp_path: Path) -> None:
    root = tmp_path / "graph.omni"
    assert (root / "_schema.pg").read_text() == SCHEMA
    assert graph.schema.text == SCHEMA
    again = og.open(root)
    assert again.schema.catalog == graph.schema.catalog
    (genesis,) = again.commits.list()
    assert (genesis.parent, genesis.branch, genesis.actor) == (None, None, None)
    assert again.commits.get(genesis.id) == genesis
    snapshot = again.snapshot()
    assert snapshot.commit_id == genesis.id
    assert snapshot.internal_schema_version == 4
    assert {key: pin.row_count for key, pin in snapshot.tables.items()} == {
        "node:Person": 0,
        "node:City": 0,
        "edge:Knows": 0,
    }
    assert snapshot == again.snapshot(commit=genesis.id)


def test_l1_tables_have_the_columns_of_their_types(graph: Graph) -> None:
    store = graph._store
    snapshot = graph.snapshot()
    columns = {key: store.reader(snapshot, key).schema.names for key in snapshot.tables}
    assert columns == {
        "node:Person": ["id", "age", "name"],
        "node:City": ["id", "name"],
        "edge:Knows": ["id", "src", "dst", "since"],
    }


def test_init_takes_the_path_of_a_schema_file(tmp_path: Path) -> None:
    file = tmp_path / "schema.pg"
    file.write_text(SCHEMA)
    assert og.init(tmp_path / "a", schema=file).schema.text == SCHEMA
    assert og.init(tmp_path / "b", schema=str(file)).schema.text == SCHEMA
    with pytest.raises(og.NotFound, match="schema file"):
        og.init(tmp_path / "c", schema="no-such.pg")
    assert not (tmp_path / "c").exists()


def test_a_schema_that_is_not_accepted_writes_nothing(tmp_path: Path) -> None:
    with pytest.raises(og.ParseError):
        og.init(tmp_path / "g", schema="node Person {")
    assert not (tmp_path / "g").exists()


def test_branches_commits_and_recoveries_are_at_hand(graph: Graph) -> None:
    assert graph.branches.create("review/x", from_="main") == "review/x"
    assert graph.branches.list() == ("main", "review/x")
    assert graph.snapshot("review/x").commit_id == graph.commits.list()[0].id
    graph.branches.delete("review/x")
    assert graph.branches.list() == ("main",)
    assert graph.recoveries.list() == ()
    graph.refresh()
    assert graph.stats().events["branch.created"] == 1
    with graph as same:
        assert same is graph
    with pytest.raises(og.GraphClosed):
        graph.snapshot()


# Refused, with nothing written


@pytest.mark.parametrize("read_only", [True, False])
@pytest.mark.parametrize("there", [True, False])
def test_a_path_that_is_no_graph_is_not_found(tmp_path: Path, there: bool, read_only: bool) -> None:
    path = tmp_path / "nothing"
    if there:
        path.mkdir()
        (path / "a file").write_text("of somebody else")
    before = tree(tmp_path)
    with pytest.raises(og.NotFound, match="not found; create it with init"):
        og.open(path, read_only=read_only)
    assert tree(tmp_path) == before


def test_a_file_is_no_graph(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(og.NotFound):
        og.open(tmp_path / "file")
    with pytest.raises(og.OmnigraphError):
        og.init(tmp_path / "file", schema=SCHEMA)
    assert (tmp_path / "file").read_text() == "x"


def test_init_over_a_graph_changes_nothing(graph: Graph, tmp_path: Path) -> None:
    before = tree(tmp_path)
    head = graph.snapshot()
    with pytest.raises(og.AlreadyExists, match="graph"):
        og.init(tmp_path / "graph.omni", schema="node Other { name: String @key }")
    assert tree(tmp_path) == before
    assert og.open(tmp_path / "graph.omni").snapshot() == head


def test_a_read_only_graph_writes_nothing(graph: Graph, tmp_path: Path) -> None:
    before = tree(tmp_path)
    reader = og.open(tmp_path / "graph.omni", read_only=True)
    reader.snapshot()
    reader.commits.list()
    reader.recoveries.list()
    reader.refresh()
    for write in (
        lambda: reader.branches.create("b"),
        lambda: reader.branches.delete("b"),
        lambda: reader._store.begin(kind=WriterKind.MUTATION),
        lambda: reader._store.heal(),
    ):
        with pytest.raises(og.BadRequest, match="read-only"):
            write()
    assert tree(tmp_path) == before


AS_NOBODY = """
import os, sys
import omnigraph as og
from omnigraph.catalog.accept import accept
# Everything is loaded while the files of the interpreter can be read.
og.open(sys.argv[1], read_only=True).snapshot(), accept(sys.argv[2])
os.setgroups([]); os.setgid(65534); os.setuid(65534)
where = sys.argv[1]
for what in (lambda: og.open(where), lambda: og.init(where + "/new", schema=sys.argv[2])):
    try:
        what()
    except og.StorageFailed as error:
        print(type(error).__name__, error)
print(len(og.open(where, read_only=True).snapshot().tables))
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody who may not write")
def test_a_folder_that_cannot_be_written_is_refused() -> None:
    # Not in tmp_path: pytest keeps the folders above it to its own user.
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        og.init(Path(folder) / "graph.omni", schema=SCHEMA)
        refused_to_nobody(Path(folder) / "graph.omni")


def refused_to_nobody(root: Path) -> None:
    before = tree(root)
    done = subprocess.run(
        [sys.executable, "-c", AS_NOBODY, str(root), SCHEMA],
        capture_output=True,
        text=True,
        cwd="/",
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), "HOME": "/tmp"},
    )
    lines = done.stdout.splitlines()
    assert len(lines) == 3, done.stderr
    assert lines[0].startswith("StorageFailed")
    assert "open it with read_only" in lines[0]
    assert lines[1].startswith("StorageFailed")
    assert lines[2] == "3"
    assert tree(root) == before


def test_a_graph_without_its_schema_files_is_damaged(graph: Graph) -> None:
    (Path(graph.uri) / "_schema.ir.json").write_bytes(b"{")
    with pytest.raises(og.StorageFailed, match="damaged"):
        og.open(graph.uri)
    (Path(graph.uri) / "_schema.ir.json").unlink()
    with pytest.raises(og.StorageFailed, match="missing"):
        og.open(graph.uri)


def test_two_inits_at_once_make_one_graph(tmp_path: Path) -> None:
    path = tmp_path / "g"
    with failpoints.armed("init.objects"), pytest.raises(OSError, match="failpoint"):
        og.init(path, schema=SCHEMA)
    with pytest.raises(og.NotFound):
        og.open(path)
    og.init(path, schema=SCHEMA)
    assert len(og.open(path).commits.list()) == 1


def test_a_graph_lives_on_s3_as_on_disk(s3: Where) -> None:
    graph = og.init(s3.uri, schema=SCHEMA, storage_options=s3.options)
    graph.branches.create("b")
    again = og.open(s3.uri, storage_options=s3.options)
    assert again.branches.list() == ("b", "main")
    assert again.schema.catalog == graph.schema.catalog
    with pytest.raises(og.AlreadyExists):
        og.init(s3.uri, schema=SCHEMA, storage_options=s3.options)
    with pytest.raises(og.NotFound):
        og.open(s3.uri + "-other", storage_options=s3.options)


@pytest.mark.parametrize("actor", ["omnigraph:recovery", "omnigraph:", " Omnigraph:Recovery"])
def test_nobody_writes_under_the_name_of_the_engine(tmp_path: Path, actor: str) -> None:
    uri = tmp_path / "g.omni"
    schema = "node A { name: String @key }"
    graph = og.init(uri, schema=schema)
    lines = tmp_path / "a.jsonl"
    lines.write_text('{"type": "A", "data": {"name": "y"}}\n')
    insert = 'query q() { insert A { name: "x" } }'
    doors: list[Callable[[], object]] = [
        lambda: graph.mutate(insert, actor=actor),
        lambda: graph.load(lines, "merge", actor=actor),
        lambda: graph.schema.apply(schema + " node B { name: String @key }", actor=actor),
        lambda: graph.transaction(actor=actor),
        lambda: graph.repair(actor=actor),
    ]
    for door in doors:
        with pytest.raises(og.BadRequest, match="reserved"):
            door()
    graph.branches.create("b")
    with pytest.raises(og.BadRequest, match="reserved"):
        graph.branch("b").mutate(insert, actor=actor)
    graph.branch("b").mutate(insert)
    with pytest.raises(og.BadRequest, match="reserved"):
        graph.branches.merge("b", actor=actor)
    assert graph.commits.list(actor="omnigraph:recovery") == ()
    assert graph.branches.list() == ("b", "main")
