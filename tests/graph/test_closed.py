"""A closed graph says so: every later call, from whatever was taken of it before."""

import io
import pickle
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph.graph import Graph

SCHEMA = "node Person { name: String @key  age: I32? }"
ADD = "query add($n: String) { insert Person { name: $n } }"
ASK = "query who() { match { $p: Person } return { $p.name } order { $p.name } }"

CALLS: dict[str, Callable[[Graph], object]] = {
    "query": lambda g: g.query(ASK),
    "query snapshot": lambda g: g.query(ASK, snapshot="main~1"),
    "mutate": lambda g: g.mutate(ADD, {"n": "x"}),
    "load": lambda g: g.load(b'{"type": "Person", "data": {"name": "y"}}', "append"),
    "export": lambda g: g.export(io.BytesIO()),
    "snapshot": lambda g: g.snapshot(),
    "diff": lambda g: g.diff("main~1", "main"),
    "branch": lambda g: g.branch("b"),
    "optimize": lambda g: g.optimize(),
    "ensure_indices": lambda g: g.ensure_indices(),
    "cleanup": lambda g: g.cleanup(keep=1),
    "repair": lambda g: g.repair(),
    "check": lambda g: g.check(),
    "refresh": lambda g: g.refresh(),
    "transaction": lambda g: g.transaction().__enter__(),
    "branches.create": lambda g: g.branches.create("c"),
    "branches.list": lambda g: g.branches.list(),
    "branches.delete": lambda g: g.branches.delete("b"),
    "branches.merge": lambda g: g.branches.merge("b"),
    "tags.create": lambda g: g.tags.create("v1"),
    "tags.list": lambda g: g.tags.list(),
    "commits.list": lambda g: g.commits.list(),
    "commits.get": lambda g: g.commits.get("main"),
    "commits.names": lambda g: g.commits.names(),
    "changes.poll": lambda g: g.changes.poll(start="beginning"),
    "changes.baseline": lambda g: g.changes.baseline(),
    "recoveries.list": lambda g: g.recoveries.list(),
    "schema.text": lambda g: g.schema.text,
    "schema.apply": lambda g: g.schema.apply(SCHEMA),
    "revert": lambda g: g.revert("main"),
    "restore": lambda g: g.restore("main~1"),
    "spark.tables": lambda g: g.spark.tables(spark=NoSpark()),
}


class NoSpark:
    """A session that is never asked."""

    def createDataFrame(self) -> None:
        raise AssertionError


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    graph = og.init(tmp_path / "g", SCHEMA)
    for name in ("Ada", "Bob"):
        graph.mutate(ADD, {"n": name})
    graph.branches.create("b")
    return graph


def test_every_call_on_a_closed_graph_says_so(graph: Graph) -> None:
    graph.query(ASK)
    graph.close()
    for name, call in CALLS.items():
        with pytest.raises(og.GraphClosed, match=r"was closed; open it again: omnigraph\.open"):
            raise AssertionError(f"{name} gave {call(graph)!r}")
    graph.close()
    assert graph.uri.endswith("g")
    assert not graph.read_only
    with og.open(graph.uri) as again:
        assert [row["p.name"] for row in again.query(ASK)] == ["Ada", "Bob"]
        assert again.branches.list() == ("b", "main")


def test_what_was_taken_before_is_closed_too_unless_it_is_in_memory(graph: Graph) -> None:
    handle, changes = graph.branch("b"), graph.diff("main~1", "main")
    result, baseline = graph.query(ASK), graph.changes.baseline()
    transaction = graph.transaction()
    graph.close()
    late: list[Callable[[], Any]] = [
        lambda: handle.query(ASK),
        lambda: handle.mutate(ADD, {"n": "x"}),
        handle.snapshot,
        lambda: list(changes),
        lambda: list(baseline),
        transaction.__enter__,
    ]
    for call in late:
        with pytest.raises(og.GraphClosed):
            call()
    assert [row["p.name"] for row in result] == ["Ada", "Bob"]


def test_the_end_of_a_block_closes(tmp_path: Path) -> None:
    with og.init(tmp_path / "g", SCHEMA) as graph:
        graph.mutate(ADD, {"n": "Ada"})
    with pytest.raises(og.GraphClosed) as closed:
        graph.query(ASK)
    assert str(pickle.loads(pickle.dumps(closed.value))) == str(closed.value)


def test_a_graph_that_is_read_only_closes(graph: Graph) -> None:
    reader = og.open(graph.uri, read_only=True)
    reader.close()
    with pytest.raises(og.GraphClosed):
        reader.query(ASK)
    assert len(graph.query(ASK)) == 2, "another handle of the same graph goes on"


def test_closing_beside_readers_and_writers_loses_nothing(graph: Graph) -> None:
    """Threads read and write while the graph is closed: each ends with `GraphClosed` and nothing
    else, what was acknowledged is there, and nothing has to be recovered."""
    acknowledged: list[str] = []
    errors: list[BaseException] = []
    begun = threading.Barrier(5)

    def work(number: int) -> None:
        begun.wait()
        try:
            for count in range(1_000):
                if number % 2:
                    graph.query(ASK)
                else:
                    name = f"t{number}-{count}"
                    graph.mutate(ADD, {"n": name})
                    acknowledged.append(name)
        except og.GraphClosed:
            return
        except Exception as error:  # noqa: BLE001 whatever it is, the test shows it
            errors.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    begun.wait()
    while len(acknowledged) < 3:
        assert any(thread.is_alive() for thread in threads)
    graph.close()
    for thread in threads:
        thread.join()
    assert errors == []
    with og.open(graph.uri) as again:
        assert set(acknowledged) <= {row["p.name"] for row in again.query(ASK)}
        assert again.recoveries.list() == ()
