"""Two handles make the first write of a branch to a table at once: the one that loses goes on."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import omnigraph as og
from omnigraph.exec.progress import Progress
from omnigraph.graph import Graph
from omnigraph.storage.manifest.branches import Branches

pytestmark = pytest.mark.consistent

SCHEMA = """
node P { key: String @key  age: I32? @index }
edge K: P -> P { weight: I32? }
"""
OTHER = 'query q() { insert P { key: "other", age: 3 } }'
COUNT = "query q() { match { $p: P } return { count(*) as n } }"


def people(name: str, count: int) -> pa.Table:
    keys = [f"{name}{n:05d}" for n in range(count)]
    return pa.table({"key": keys, "age": pa.array([1] * count, pa.int32())})


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[Graph]:
    with og.init(tmp_path / "g.omni", SCHEMA) as graph:
        graph.load(people("p", 100), "append", type="P", engine="local")
        graph.branches.create("b")
        graph.branches.create("source")
        graph.load(people("s", 10), "append", type="P", branch="source", engine="local")
        yield graph


@pytest.fixture
def other(graph: Graph) -> Iterator[Graph]:
    with og.open(graph.uri) as opened:
        yield opened


def transaction(graph: Graph) -> None:
    with graph.transaction(branch="b") as tx:
        tx.load(people("n", 10), "append", type="P", engine="local")


WRITES: dict[str, Callable[[Graph], Any]] = {
    mode: lambda graph, mode=mode: graph.load(  # type: ignore[misc]
        people("n", 10), mode, type="P", branch="b", engine="local"
    )
    for mode in ("append", "merge", "patch")
} | {
    "insert": lambda graph: graph.mutate('query q() { insert P { key: "n" } }', branch="b"),
    "merge of a branch": lambda graph: graph.branches.merge("source", "b"),
    "transaction": transaction,
    "restore": lambda graph: graph.restore("source", branch="b"),
    "indexes": lambda graph: graph.ensure_indices("b"),
    "schema": lambda graph: graph.schema.apply(SCHEMA.replace("}", " n: I32? }", 1), branch="b"),
}


@pytest.mark.parametrize("name", WRITES)
def test_C2_a_writer_that_loses_the_first_write_of_a_branch_prepares_again(
    graph: Graph, other: Graph, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """The other handle forks the table and commits between our look at the branch and our fork."""
    fork, done = Branches.fork, list[Any]()

    def late(self: Branches, state: Any, *rest: Any) -> Any:
        if state.branch == "b" and not done and self is graph._store.branches:
            done.append(other.mutate(OTHER, branch="b"))
        return fork(self, state, *rest)

    monkeypatch.setattr(Branches, "fork", late)
    WRITES[name](graph)
    assert done
    rows = {"insert": 102, "indexes": 101, "schema": 101, "restore": 110}.get(name, 111)
    assert graph.query(COUNT, branch="b").rows[0]["n"] == rows
    assert other.query(COUNT, branch="b").rows[0]["n"] == rows
    assert graph.check().findings == ()


@pytest.mark.parametrize("engine", ["local", "spark"])
@pytest.mark.parametrize("mode", ["append", "merge"])
def test_C2_a_load_whose_branch_is_written_to_while_it_reads_is_prepared_again(
    graph: Graph, other: Graph, spark: SparkSession, mode: str, engine: str
) -> None:
    done = list[Any]()

    def between(progress: Progress) -> None:
        if progress.stage == "read" and not done:
            done.append(other.mutate(OTHER, branch="b"))

    source = people("n", 50)
    graph.load(source, mode, type="P", branch="b", engine=engine, spark=spark, progress=between)
    assert done
    assert graph.query(COUNT, branch="b").rows[0]["n"] == 151
    assert graph.check().findings == ()


def test_C2_a_load_of_nodes_and_edges_numbers_ends_of_the_nodes_it_is_committed_with(
    graph: Graph, other: Graph
) -> None:
    """The ends of the edges were looked up in the version that the load began with."""
    graph.optimize()
    done = list[Any]()

    def between(progress: Progress) -> None:
        if progress.stage == "read" and not done:
            done.append(other.mutate('query q() { delete P where key = "p00007" }', branch="b"))

    ends = [f"p{n:05d}" for n in range(100)]
    rows = pa.table({"from": ends, "to": ends[::-1]})
    load = {"edge": "K", "branch": "b", "engine": "local"}
    with pytest.raises(og.ConstraintViolated, match="p00007"):
        graph.load(rows, "append", progress=between, **load)
    assert done
    kept = pa.table({"from": ends[20:60], "to": ends[20:60]})
    graph.load(kept, "append", **load)
    assert graph.check().findings == ()


def test_C1_an_overwrite_is_refused_as_on_main(graph: Graph, other: Graph) -> None:
    for branch in ("main", "b"):
        done = list[Any]()

        def between(progress: Progress, branch: str = branch, done: list[Any] = done) -> None:
            if progress.stage == "read" and not done:
                done.append(other.mutate(OTHER, branch=branch))

        with pytest.raises(og.VersionMismatch):
            graph.load(
                people("n", 5),
                "overwrite",
                type="P",
                branch=branch,
                engine="local",
                progress=between,
            )
        assert graph.query(COUNT, branch=branch).rows[0]["n"] == 101
