"""A schema change beside branches, of a branch, or inside a merge, killed anywhere, is wholly there
or not at all: catalog, tables and rows agree on every branch.

Every failpoint of the write path × kill -9 of a real process × {apply to main beside a branch,
apply to a branch, merge a branch with another schema into main}.
"""

import io
from collections.abc import Callable
from pathlib import Path

import orjson
import pytest

import omnigraph as og
from omnigraph.graph import Graph
from omnigraph.storage import failpoints
from omnigraph.storage.names import MAIN
from tests.exec.branching import branched_copy_of
from tests.exec.evolving import SCHEMA, Lines, evolving, of_type
from tests.forked import KILLED, run
from tests.thinned import thinned

WIDER = SCHEMA.replace("age: I32?", "age: I64?  score: F64 = 0.5") + "node Team { name: String }\n"
THEIRS = SCHEMA.replace("nick: String?", "nick: String?  rank: I32 = 3").replace(
    "size: I64?", "size: I64? @index"
)
THEIRS += "node Club { name: String @key }\nedge In: Person -> Club\n"


def apply_to_main(graph: Graph) -> None:
    graph.schema.apply(WIDER)


def apply_to_branch(graph: Graph) -> None:
    graph.schema.apply(WIDER, branch="b")


def merge(graph: Graph) -> None:
    graph.branches.merge("b")


WORK: dict[str, Callable[[Graph], None]] = {
    "main": apply_to_main,
    "branch": apply_to_branch,
    "merge": merge,
}
EARLY = ("commit.locked", "commit.checked", "sidecar.put", "commit.sidecar_written")
TABLES = (
    "commit.table_before",
    "commit.table_after",
    "commit.step_before",
    "commit.step_after",
    "sidecar.confirm",
    "commit.confirmed",
    "commit.tables_done",
)
LATE = ("publish.before", "publish.staged", "publish.after", "sidecar.delete")
PLACES = (*EARLY, *TABLES, *LATE, "commit.sidecar_deleted")
CASES = [
    *((work, place) for work in WORK for place in PLACES),
    *((work, "promote.file") for work in ("main", "merge")),
    ("branch", "fork.before"),
    ("branch", "fork.after"),
]
DONE = {"commit.confirmed", "commit.tables_done", *LATE, "commit.sidecar_deleted", "promote.file"}

Seen = dict[str, tuple[str, Lines]]


def test_the_matrix_names_every_failpoint_of_such_a_change() -> None:
    named = {place for _, place in CASES}
    places = (*failpoints.COMMIT, *failpoints.CONFIRM, *failpoints.PROMOTE, *failpoints.FORK)
    assert named == set(places)


def lines(graph: Graph, branch: str) -> Lines:
    stream = io.BytesIO()
    graph.export(stream, branch=branch)
    return [orjson.loads(line) for line in stream.getvalue().splitlines()]


def seen(graph: Graph) -> Seen:
    return {b: (graph.schema.on(b).text, lines(graph, b)) for b in graph.branches.list()}


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("schemas") / "g"
    graph = evolving(folder)
    graph.branches.create("b")
    graph.mutate('query m() { update Person set { age: 8 } where name = "Bob" }')
    graph.close()
    merging = folder.with_name("merging")
    with branched_copy_of(folder, merging) as other:
        other.schema.apply(THEIRS, branch="b")
        other.mutate('query m() { insert Club { name: "Chess" } }', branch="b")
        other.mutate('query m() { update Person set { rank: 9 } where name = "Cy" }', branch="b")
        other.schema.apply(SCHEMA.replace("age: I32?", "age: I64?"))
    return folder


@pytest.fixture(scope="module")
def afters(begun: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Seen]:
    done = {}
    for name, work in WORK.items():
        copy = tmp_path_factory.mktemp(name) / "g"
        start = begun.with_name("merging") if name == "merge" else begun
        with branched_copy_of(start, copy) as graph:
            work(graph)
            done[name] = seen(graph)
            assert graph.check().ok
    return done


def work_and_die(uri: str, name: str, place: str) -> None:
    graph = og.open(uri)
    failpoints.arm(place, "kill", 1)
    WORK[name](graph)


@pytest.mark.parametrize(("name", "place"), thinned(CASES, every=4))
def test_r2_c4_kill_9_leaves_schema_and_rows_of_every_branch_before_or_after(
    begun: Path, afters: dict[str, Seen], tmp_path: Path, name: str, place: str
) -> None:
    start = begun.with_name("merging") if name == "merge" else begun
    with branched_copy_of(start, tmp_path / "g") as graph:
        before = seen(graph)
    assert run(work_and_die, str(tmp_path / "g"), name, place) == KILLED
    with og.open(tmp_path / "g") as graph:
        assert seen(graph) == (afters[name] if place in DONE else before)
        assert graph.check().findings == ()
        assert graph._store.sidecars.pending() == ()
        WORK[name](graph)
        assert seen(graph) == afters[name]
        graph.mutate('query m() { insert Person { name: "Next" } }', branch="b")
        graph.branches.merge("b")
        assert {"Next", "Bob"} <= set(of_type(lines(graph, MAIN), "Person"))
        assert graph.check().findings == ()
