"""A commit that is gone says so at every door, with what is gone and what can be read instead."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph.graph import Graph
from omnigraph.storage.manifest import manifest
from omnigraph.storage.records import Snapshot
from tests.cli.program import run
from tests.storage.conftest import s3, s3_server
from tests.storage.world import Where

__all__ = ["s3", "s3_server"]

SCHEMA = """
node Person { name: String @key  age: I32?  photo: Blob? }
edge Knows: Person -> Person { since: I64? }
"""
OLDER = 'query u($age: I32) { update Person set { age: $age } where name = "p4" }'
NAMES = "query names() { match { $p: Person } return { $p.name, $p.age } order { $p.name } }"


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody counts versions here, so that cleanup need not wait."""
    monkeypatch.setattr(manifest, "RECLAIM_AGE_S", 0.0)


def grown(graph: Graph) -> Graph:
    graph.load(
        [{"type": "Person", "data": {"name": f"p{n}", "photo": "base64:aGk="}} for n in range(9)],
        mode="append",
    )
    graph.mutate('query d() { delete Person where name = "p1" }')
    graph.mutate('query u() { update Person set { age: 3 } where name = "p2" }')
    graph.branches.create("side")
    graph.mutate('query u() { update Person set { age: 4 } where name = "p3" }', branch="side")
    graph.mutate('query u() { update Person set { age: 5 } where name = "p3" }', branch="side")
    graph.mutate('query u() { update Person set { age: 6 } where name = "p4" }')
    graph.mutate('query u() { update Person set { age: 7 } where name = "p4" }')
    return graph


@pytest.fixture(params=["local", "s3"])
def graph(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Graph]:
    if request.param == "local":
        made = og.init(tmp_path / "g.omni", SCHEMA)
    else:
        where: Where = request.getfixturevalue("s3")
        made = og.init(where.uri, SCHEMA, storage_options=where.options)
    with made as graph:
        yield grown(graph)


def reopened(graph: Graph) -> Graph:
    return og.open(graph.uri, storage_options=graph._store.where.storage_options)


def clean(graph: Graph) -> None:
    graph.optimize()
    assert graph.cleanup(keep=1, grace=0, confirm=True).errors == ()


def doors(graph: Graph, commit: str) -> dict[str, Callable[[], object]]:
    """Every way to read a commit."""
    return {
        "snapshot": lambda: graph.snapshot(commit=commit),
        "query": lambda: graph.query(NAMES, snapshot=commit).rows,
        "export": lambda: graph.export(BytesIO(), snapshot=commit),
        "diff from": lambda: list(graph.diff(commit, "main")),
        "diff to": lambda: list(graph.diff("main", commit)),
        "changes": lambda: list(graph.commits.changes(commit)),
        "feed": lambda: graph.changes.poll(start=f"after:{commit}"),
        "branch": lambda: graph.branches.create("again", from_=commit),
        "tag": lambda: graph.tags.create("again", commit),
        "blob": lambda: graph.blob("node", "Person", "p0", "photo", snapshot=commit).read(),
    }


def test_every_door_names_the_commit_that_is_gone_and_one_that_is_not(graph: Graph) -> None:
    gone = [commit.id for commit in graph.commits.list()[1:-2]]
    clean(graph)
    kept = [each.commit.id for each in graph.cleanup(keep=1, grace=0).kept]
    with reopened(graph) as again:
        lost = [id_ for id_ in gone if id_ not in kept]
        assert lost
        for name, read in doors(again, lost[0]).items():
            with pytest.raises(og.Reclaimed) as error:
                read()
            reclaimed = error.value
            assert (reclaimed.kind, reclaimed.branch) == ("commit", "main"), name
            assert reclaimed.oldest in kept, name
            assert f"'{reclaimed.oldest}'" in str(reclaimed), name
            again.query(NAMES, snapshot=reclaimed.oldest)
        shown = again.commits.get(lost[0])
        assert shown.id == lost[0], "what a commit says of itself stays"


def test_a_commit_of_a_branch_is_told_with_that_branch(graph: Graph) -> None:
    old = graph.commits.list("side")[1]
    assert old.branch == "side"
    clean(graph)
    with reopened(graph) as again, pytest.raises(og.Reclaimed) as error:
        again.query(NAMES, snapshot=old.id)
    assert error.value.branch == "side"
    assert error.value.oldest is not None


@pytest.mark.parametrize("name", ["query", "export", "blob", "diff from", "changes"])
def test_a_cleanup_elsewhere_in_the_middle_of_a_read_is_told(graph: Graph, name: str) -> None:
    """The reader has the manifest of the commit, and then its data goes."""
    with reopened(graph) as reader:
        commit = graph.commits.list()[1].id
        reader.snapshot(commit=commit)
        clean(graph)
        with pytest.raises(og.Reclaimed) as error:
            doors(reader, commit)[name]()
        assert error.value.kind == "commit"
        assert error.value.branch == "main"


def test_a_head_that_is_cleaned_up_while_it_is_read_is_read_as_it_is_then(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    with reopened(graph) as reader:
        pinned, pins = reader._guard.pinned, list[str]()

        def moved_on(_: object, *given: Any, **named: Any) -> Snapshot:
            snapshot_ = pinned(*given, **named)
            pins.append(snapshot_.commit_id)
            if len(pins) == 1:
                for age in (8, 9):
                    graph.mutate(
                        f'query u() {{ update Person set {{ age: {age} }} where name = "p4" }}'
                    )
                clean(graph)
            return snapshot_

        monkeypatch.setattr(type(reader._guard), "pinned", moved_on)
        rows = reader.query(NAMES).rows
        assert {"p.name": "p4", "p.age": 9} in rows
        assert len(pins) == 2


def test_rows_that_go_while_they_are_iterated_over_are_told(tmp_path: Path) -> None:
    with og.init(tmp_path / "g.omni", SCHEMA, fold=False) as graph:
        for start in range(0, 40_000, 10_000):
            rows = ({"name": f"p{n:06}"} for n in range(start, start + 10_000))
            graph.load(rows, "append", type="Person")
        with reopened(graph) as reader:
            head = reader.snapshot()
            before = reader.commits.list()[-1].id
            changes = iter(reader.diff(before, "main"))
            next(changes)
            baseline = iter(reader.changes.baseline())
            next(baseline)
            cell = reader._store.reader(head, "node:Person").batches(["name"], batch_size=10)  # type: ignore[arg-type]
            next(cell)
            clean(graph)
            with pytest.raises(og.Reclaimed):
                list(changes)
            for rest in (baseline, cell):
                with suppress(og.Reclaimed):
                    list(rest)  # what was read ahead may be enough


def test_the_command_line_says_it_in_one_message(tmp_path: Path) -> None:
    with og.init(tmp_path / "g.omni", SCHEMA) as graph:
        grown(graph)
        old, head = graph.commits.list()[1].id, graph.commits.list()[0].id
        clean(graph)
        uri = graph.uri
    for words in (
        ["query", "-e", NAMES, "--snapshot", old, "--store", uri],
        ["export", uri, "--snapshot", old],
        ["diff", old, "main", uri],
        ["commit", "changes", old, uri],
        ["changes", "poll", uri, "--start", "beginning"],
    ):
        done = run(*words)
        assert done.returncode == 1, words
        assert "can" in done.stderr
        assert "the oldest commit of branch 'main' that can be read is" in done.stderr, done.stderr
        assert "not found" not in done.stderr
    assert run("commit", "show", old, uri).returncode == 0
    assert head[:10] in run("commit", "list", uri).stdout
