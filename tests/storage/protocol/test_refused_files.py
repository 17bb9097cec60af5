"""A write that was refused before its sidecar leaves no file behind, and takes none of another."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import omnigraph as og
from omnigraph.errors import Conflict
from omnigraph.graph import Graph
from omnigraph.storage.locks.locks import LockTaken
from omnigraph.storage.locks.turns import Turn
from omnigraph.storage.protocol.commit import Committer, HeadAhead
from omnigraph.storage.protocol.intent import WriterKind
from omnigraph.types import TableKey

SCHEMA = """node Person { name: String @key
    age: I64?
    photo: Blob?
}
edge Knows: Person -> Person
"""
ALL = "query q() { match { $p: Person } return { $p.name, $p.age } order { $p.name } }"
STATEMENTS = (
    'insert Person { name: "new", age: 1, photo: "base64:AAAA" }',
    'update Person set { age: 9 } where name = "p1"',
    "update Person set { age: 7 } where age >= 0",
    'delete Person where name = "p2"',
    'insert Person { name: "p3", age: 5 } update Person set { age: 6 } where name = "p4"',
    'insert Knows { from: "p5", to: "p6" }',
)


def files(graph: Graph) -> set[str]:
    root = Path(graph.uri)
    kinds = ("data", "_deletions")
    return {
        str(path.relative_to(root))
        for part in ("nodes", "edges")
        for path in (root / part).rglob("*")
        if path.is_file() and any(kind in path.parts for kind in kinds)
    }


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    graph = og.init(tmp_path_factory.mktemp("refused") / "g.omni", SCHEMA, durability="os")
    people = [{"type": "Person", "data": {"name": f"p{n}", "age": n}} for n in range(8)]
    graph.load(people, "append")
    return graph


@settings(max_examples=15, deadline=None)
@given(st.lists(st.sampled_from(STATEMENTS), min_size=1, max_size=4))
def test_a_refused_mutation_leaves_no_file(graph: Graph, statements: list[str]) -> None:
    for number, statement in enumerate(statements):
        graph.mutate('query q() { insert Person { name: "p2", age: 2 } }')  # there to be deleted
        refused_once = _Refused(graph, f'update Person set {{ age: {number} }} where name = "p7"')
        before = graph.query(ALL).rows
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Committer, "commit", refused_once)
            with pytest.raises(Conflict):
                graph.mutate(f"query q() {{ {statement} }}", if_commit=graph.snapshot().commit_id)
        assert refused_once.staged or statement.startswith("delete")
        assert files(graph) == refused_once.after
        assert graph.query(ALL).rows == [
            {**row, "p.age": number} if row["p.name"] == "p7" else row for row in before
        ]
        graph.mutate(f"query q() {{ {statement} }}", retries=3)
    assert graph.check().findings == ()


class _Refused:
    """Lets another writer come first, and remembers which files there were without ours."""

    def __init__(self, graph: Graph, other: str) -> None:
        self.other, self.uri = f"query q() {{ {other} }}", graph.uri
        self.commit = Committer.commit
        self.before = files(graph)
        self.after: set[str] = set()
        self.staged = False

    def __get__(self, committer: Committer, owner: type) -> object:
        def commit(prepared: Any, turn: Any) -> object:
            with pytest.MonkeyPatch.context() as patch, og.open(self.uri) as graph:
                patch.setattr(Committer, "commit", self.commit)
                staged = files(graph) - self.before
                self.staged = bool(staged)  # a fragment that goes as a whole brings no file
                graph.mutate(self.other)
                self.after = files(graph) - staged
            return self.commit(committer, prepared, turn)

        return commit


def test_a_write_that_gets_no_lock_or_meets_a_dead_writer_leaves_no_file(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = files(graph)

    def no_lock(*arguments: Any, **options: Any) -> Any:
        raise LockTaken("node")

    def ahead(*arguments: Any) -> None:
        raise HeadAhead(TableKey("node:Person"), 1, 2)

    for place, refusal, name in (
        ("hold", no_lock, "omnigraph.storage.protocol.commit"),
        ("_require_base", ahead, "omnigraph.storage.protocol.commit.Committer"),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(f"{name}.{place}", refusal)
            write = graph._store.begin(kind=WriterKind.MUTATION)
            write.append(TableKey("node:Person"), _person("refused"))
            with pytest.raises((LockTaken, HeadAhead)):
                graph._store._committer.commit(write.prepared(), Turn())
        assert files(graph) == before
    graph.mutate(f"query q() {{ {STATEMENTS[1]} }}")


def _person(name: str) -> pa.Table:
    return pa.table({"id": [name], "name": [name], "age": [1]})
