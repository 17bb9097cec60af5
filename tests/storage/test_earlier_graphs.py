"""Format compatibility: graphs that an earlier program wrote, most with a writer killed half-way.

The present program must read them as that program did, recover them to what it recovered, and
write on. `tests/fixtures/earlier/make_fixtures.py` made them, and says how to keep another version.
"""

import hashlib
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph.storage.protocol.intent import WriterKind
from omnigraph.storage.protocol.promote import FOLDER as STAGED
from tests.fixtures.earlier.make_fixtures import (
    PACKED_AT,
    commits_of,
    content,
    copy_graph,
    home,
    people,
    state,
)
from tests.thinned import thinned

FIXTURES = Path(__file__).parents[1] / "fixtures" / "earlier"
EXPECTED: dict[str, Any] = json.loads((FIXTURES / "expected.json").read_text())
CASES: dict[str, Any] = EXPECTED["cases"]
COMMITS: dict[str, Any] = EXPECTED["commits"]
KINDS = {str(kind) for kind in WriterKind}


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every graph of the archive. Files that graphs share are hard links, so a test copies one."""
    folder = tmp_path_factory.mktemp("earlier")
    with tarfile.open(FIXTURES / "graphs.tar.gz") as archive:
        archive.extractall(folder, filter="data")
    return folder


@pytest.fixture(params=thinned(CASES, every=4))
def name(request: pytest.FixtureRequest) -> str:
    """The name of a case."""
    return str(request.param)


@pytest.fixture
def folder(unpacked: Path, tmp_path: Path, name: str) -> Path:
    """One graph, as its program left it."""
    return copy_graph(unpacked / name, home(tmp_path, "graph"), known_as=PACKED_AT)


def pending(folder: Path) -> list[str]:
    return [path.stem for path in (folder / "__recovery").glob("*.json")]


def files(folder: Path) -> dict[str, str]:
    """The hash of every file, by path."""
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def stated(expected: dict[str, Any]) -> dict[str, Any]:
    """What `state` reads."""
    return {key: value for key, value in expected.items() if key != "reclaimed"}


def same(graph: og.Graph, expected: dict[str, Any]) -> None:
    """The graph is as expected: schema, branches, audit, and every commit with its content."""
    assert state(graph) == stated(expected)
    commits = commits_of(graph)
    assert commits.keys() == {c for branch in expected["branches"].values() for c in branch}
    for commit, facts in commits.items():
        if commit in expected["reclaimed"]:
            assert facts["content"] is None or facts["changes"] is None
        else:
            assert facts == COMMITS[commit]


def test_there_is_a_graph_of_every_writer_kind_and_both_outcomes() -> None:
    newest = [case["after"]["recoveries"][0] for case in CASES.values()]
    settled = {(each["sidecar_writer_kind"], each["recovery_kind"]) for each in newest}
    assert settled == {(kind, "RolledBack") for kind in KINDS} | {
        (kind, "RolledForward")
        for kind in KINDS - {"repair"}  # repair only ever undoes
    }


def test_a_reader_sees_an_earlier_graph_as_it_was_and_writes_nothing(
    folder: Path, name: str
) -> None:
    before = files(folder)
    with og.open(folder, read_only=True) as graph:
        expected = CASES[name]["before"]
        assert state(graph) == stated(expected)
        for head in {commits[0] for commits in expected["branches"].values()}:
            assert content(graph, head) == COMMITS[head]["content"]
    assert files(folder) == before


def test_an_earlier_graph_is_recovered_and_written_to(folder: Path, name: str) -> None:
    assert len(pending(folder)) == (0 if name == "at_rest" else 1)
    expected = CASES[name]["after"]
    with og.open(folder, fold=False) as graph:
        assert pending(folder) == []
        assert not list((folder / STAGED).rglob("*.pg"))
        same(graph, expected)
        assert graph.check().findings == ()
        write_on(graph)
        assert graph.check().findings == ()
        readable = expected["branches"]["main"][0]
        if readable not in expected["reclaimed"]:
            assert content(graph, readable) == COMMITS[readable]["content"], "history stays"
    with og.open(folder) as again:
        assert pending(folder) == []
        assert len(again.recoveries.list()) == len(expected["recoveries"]), "recovered once"


def write_on(graph: og.Graph) -> None:
    """One write of each kind, each seen when it is done."""
    person = "Human" if "node Human" in graph.schema.text else "Person"
    count = f"query n() {{ match {{ $p: {person} }} return {{ count($p) as n }} }}"

    def rows(branch: str = "main") -> int:
        [row] = graph.query(count, branch=branch).rows
        return int(row["n"])

    first = rows()
    graph.mutate(f'query add() {{ insert {person} {{ name: "Yan" }} }}', actor="act-new")
    assert rows() == first + 1
    more = people("Xia").replace(b"Person", person.encode())
    graph.load(more, "merge", once="query-3/0")
    assert graph.load(more, "merge", once="query-3/0").repeated
    assert graph.load(more, "merge", once="query-1/0").repeated, "marks of the past still hold"
    assert rows() == first + 2
    graph.branches.create("later")
    graph.mutate(f'query add() {{ insert {person} {{ name: "Wim" }} }}', branch="later")
    assert graph.branches.merge("later", delete_source=True).commit is not None
    assert rows() == first + 3
    for name in set(graph.branches.list()) & {"work"}:
        graph.mutate(f'query add() {{ insert {person} {{ name: "Vic" }} }}', branch=name)
        source = rows(name)
        graph.branches.merge(name, actor="act-new", resolve="theirs")
        assert rows() > first + 3
        assert rows(name) == source
    before = rows()
    graph.ensure_indices()
    graph.optimize()
    assert rows() == before
