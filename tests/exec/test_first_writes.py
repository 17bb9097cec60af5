"""First writes of a branch to a table: what they write lies in the folder of the branch.

Every kind of write runs as the first one of a branch, and of a branch of a branch, with more rows
than any writer handles one by one. The reference is the same write on main, in a copy.
"""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import omnigraph as og
from omnigraph.graph import Graph
from omnigraph.storage.names import MAIN
from tests.storage.s3 import Server, serve

pytestmark = pytest.mark.consistent

COUNT, MANY = 13_000, 11_000
SCHEMA = """
node P { key: String @key  age: I32  note: String?  pic: Blob? }
edge K: P -> P { weight: I32? }
edge N: P -> P @key(src, dst) { weight: I32? }
"""
WIDER = SCHEMA.replace("age: I32 ", "age: I32 @index  size: I32? ")


def people(count: int, age: int, first: int = 0) -> pa.Table:
    keys = np.char.add("p", np.arange(first, first + count).astype(str))
    return pa.table({"key": keys, "age": np.full(count, age, "int32"), "note": keys})


def edges(count: int, weight: int, shift: int = 1) -> pa.Table:
    ends = np.arange(count)
    source, target = (np.char.add("p", (ends + n).astype(str)) for n in (0, shift))
    weights = np.full(count, weight, "int32")
    named = {"id": np.char.add("k", ends.astype(str))} if shift == 1 else {}
    return pa.table({**named, "from": source, "to": target, "weight": weights})


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    uri = tmp_path_factory.mktemp("first") / "template.omni"
    with og.init(uri, SCHEMA, fold=False) as graph:
        graph.load(people(COUNT, 1), "append", type="P", engine="local")
        graph.load([{"key": "pic", "age": 0, "pic": "base64:aGk="}], "append", type="P")
        graph.load(edges(MANY, 1), "append", edge="K", engine="local")
        graph.load(edges(MANY, 1, 2), "append", edge="N", engine="local")
        graph.mutate('query q() { delete P where key = "p12999" }')
    return uri


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serve() as running:
        yield running


@pytest.fixture
def graph(template: Path, tmp_path: Path) -> Iterator[Graph]:
    shutil.copytree(template, tmp_path / "g.omni")
    with og.open(tmp_path / "g.omni", fold=False) as opened:
        yield opened


def load(mode: str, rows: pa.Table, **named: str) -> Callable[[Graph, str], Any]:
    return lambda graph, branch: graph.load(rows, mode, branch=branch, engine="local", **named)


def mutate(text: str) -> Callable[[Graph, str], Any]:
    return lambda graph, branch: graph.mutate(text, branch=branch)


def merged_in(graph: Graph, branch: str) -> None:
    """A merge of a sibling, whose rows the target takes in its first write."""
    graph.branches.create("sibling", from_=branch)
    graph.load(people(MANY, 5), "merge", type="P", branch="sibling", engine="local")
    graph.mutate('query q() { update P set { age: 9 } where key = "p12000" }', branch=branch)
    graph.branches.merge("sibling", branch)


def merged_forward(graph: Graph, branch: str) -> None:
    graph.branches.create("sibling", from_=branch)
    graph.load(people(MANY, 5), "merge", type="P", branch="sibling", engine="local")
    graph.load(edges(MANY, 3), "merge", edge="K", branch="sibling", engine="local")
    graph.branches.merge("sibling", branch)


def widened(graph: Graph, branch: str) -> None:
    graph.schema.apply(WIDER, branch=branch)


def merged_schema(graph: Graph, branch: str) -> None:
    """A merge that adds a column to the target, and takes many rows."""
    graph.branches.create("sibling", from_=branch)
    widened(graph, "sibling")
    graph.load(people(MANY, 5), "patch", type="P", branch="sibling", engine="local")
    graph.mutate("query q() { update K set { weight: 9 } where weight = 1 }", branch="sibling")
    graph.mutate('query q() { insert P { key: "beside", age: 9 } }', branch=branch)
    graph.branches.merge("sibling", branch)


def transaction(graph: Graph, branch: str) -> None:
    with graph.transaction(branch=branch) as tx:
        tx.load(people(MANY, 4), "merge", type="P", engine="local")
        tx.load(edges(MANY, 2), "merge", edge="K", engine="local")


def restored(graph: Graph, branch: str) -> None:
    """The branch goes back to a commit of main, and takes many rows of it back."""
    commits = [c for c in graph.commits.list() if c.counts.get("edge:N")]
    graph.branch(branch).restore(commits[-1].parent)


def reverted(graph: Graph, branch: str) -> None:
    loaded = next(c for c in graph.commits.list() if c.counts.get("edge:K"))
    graph.branch(branch).revert(loaded.id)


def from_branch(graph: Graph, branch: str) -> None:
    """The load makes its branch, and is merged from there."""
    graph.load(people(MANY, 6), "merge", type="P", branch="made", from_branch=branch)
    graph.load(people(MANY, 7), "patch", type="P", branch="made")
    graph.branches.merge("made", branch)


WRITES: dict[str, Callable[[Graph, str], Any]] = {
    "append": load("append", people(MANY, 2, COUNT + 5), type="P"),
    "merge": load("merge", people(MANY, 2, 5_000), type="P"),
    "merge few": load("merge", people(20, 2), type="P"),
    "patch": load("patch", people(MANY, 2).select(["key", "age"]), type="P"),
    "patch few": load("patch", people(20, 2).select(["key", "age"]), type="P"),
    "overwrite": load("overwrite", people(COUNT, 2), type="P"),
    "append edges": load("append", edges(MANY, 2, 3), edge="K"),
    "merge edges": load("merge", edges(MANY, 2), edge="K"),
    "merge keyed edges": load("merge", edges(MANY, 2, 2), edge="N"),
    "patch edges": load("patch", edges(MANY, 2), edge="K"),
    "overwrite edges": load("overwrite", edges(MANY, 2, 3), edge="K"),
    "insert": mutate('query q() { insert P { key: "new", age: 3 } }'),
    "update": mutate("query q() { update P set { age: 3 } where age >= 0 }"),
    "update one": mutate('query q() { update P set { age: 3 } where key = "p7" }'),
    "delete": mutate('query q() { delete P where key != "p7" }'),
    "delete one": mutate('query q() { delete P where key = "p7" }'),
    "transaction": transaction,
    "from_branch": from_branch,
    "merge of a branch": merged_in,
    "fast forward": merged_forward,
    "restore": restored,
    "revert": reverted,
    "indexes": lambda graph, branch: graph.ensure_indices(branch),
    "add property": widened,
    "merge of a schema": merged_schema,
}


def rows(graph: Graph, branch: str) -> dict[str, pa.Table]:
    """Every row of a branch, in id order. Ids of edges without a key are random."""
    snapshot, found = graph.snapshot(branch), {}
    for key in snapshot.tables:
        read = graph._store.reader(snapshot, key).rows(blob_handling="all_binary")
        read = read.drop_columns(["id"]) if key == "edge:K" else read
        order = [(name, "ascending") for name in read.column_names[:2]]
        found[str(key)] = read.sort_by(order).combine_chunks()
    return found


def table_files(graph: Graph) -> set[str]:
    root = Path(graph.uri)
    folders = (root / "nodes", root / "edges")
    return {str(path.relative_to(root)) for f in folders for path in f.rglob("*") if path.is_file()}


def home(path: str) -> str:
    """The branch in whose folder a file of a table lies."""
    parts = Path(path).parts
    return parts[3] if parts[2] == "tree" else MAIN


@pytest.fixture(scope="module")
def expected(template: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Any]:
    """The rows that a write leaves on main."""

    def on_main(name: str) -> Any:
        uri = tmp_path_factory.mktemp("main") / "g.omni"
        shutil.copytree(template, uri)
        with og.open(uri, fold=False) as graph:
            WRITES[name](graph, MAIN)
            return rows(graph, MAIN)

    return on_main


@pytest.mark.parametrize("name", WRITES)
def test_F1_a_first_write_puts_its_files_in_the_folder_of_its_branch(
    graph: Graph, expected: Callable[[str], Any], name: str
) -> None:
    wanted, main = expected(name), rows(graph, MAIN)
    graph.branches.create("b")
    graph.branches.create("nested", from_="b")
    for branch in ("b", "nested"):
        before = table_files(graph)
        WRITES[name](graph, branch)
        for path in table_files(graph) - before:
            assert home(path) != MAIN or "/_refs/" in path, path
            assert home(path) not in {"b", "nested"} - {branch}, path
        assert rows(graph, branch) == wanted
        for made in {"sibling", "made"} & set(graph.branches.list()):
            graph.branches.delete(made)
    with og.open(graph.uri, read_only=True) as other:
        assert rows(other, "nested") == wanted
    assert rows(graph, MAIN) == main
    assert graph.check().findings == ()


@pytest.mark.parametrize("mode", ["merge", "patch", "append"])
def test_F1_a_first_write_in_a_bucket_is_read_on_its_branch(server: Server, mode: str) -> None:
    where = server.place()
    rows = people(MANY, 7, COUNT if mode == "append" else 0)
    with og.init(where.uri, SCHEMA, storage_options=where.options) as graph:
        graph.load(people(COUNT, 1), "append", type="P", engine="local", indexes="later")
        graph.branches.create("b")
        graph.branches.create("nested", from_="b")
        for branch in ("b", "nested"):
            graph.load(rows, mode, type="P", branch=branch, engine="local", indexes="later")
    text = "query q() { match { $p: P  $p.age = 7 } return { count(*) as n } }"
    with og.open(where.uri, storage_options=where.options) as again:
        for branch in ("b", "nested"):
            assert again.query(text, branch=branch).rows[0]["n"] == MANY
            assert again.repair().refused == ()
        files = [path for path in again._store.objects.list("nodes") if "/_deletions/" in path]
        assert all("/tree/" in path for path in files)
        assert again.check().findings == ()
