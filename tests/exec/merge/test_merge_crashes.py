"""A crash of a merge leaves the target before it or after it, and the next merge finishes the work.

Every failpoint of the write path × {an error, kill -9 of a real process} × {into main, the first
write on a branch, tables that are folded on the way: several versions and a confirmation}.
"""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

import omnigraph as og
from omnigraph.costs import COSTS
from omnigraph.graph import Graph
from omnigraph.storage import failpoints
from omnigraph.storage.names import MAIN
from tests.exec.branching import branched_copy_of, copy_of, edit, knows, person, state
from tests.exec.child import run_merge
from tests.forked import KILLED
from tests.thinned import thinned

FOLD_NEVER, FOLD_NOW = 32, 3
FORWARD, BACK = "RolledForward", "RolledBack"


@dataclass(frozen=True)
class Case:
    """Where the merge stops, and what must be found afterwards."""

    place: str
    nth: int = 1
    after: bool = False
    audit: str | None = None

    def __str__(self) -> str:
        return f"{self.place}@{self.nth}"


EVERY = (
    Case("commit.locked"),
    Case("commit.checked"),
    Case("sidecar.put"),
    Case("commit.sidecar_written", audit=BACK),
    Case("commit.table_before", audit=BACK),
    Case("commit.table_after", audit=BACK),
    Case("commit.table_before", 2, audit=BACK),
    Case("commit.tables_done", after=True, audit=FORWARD),
    Case("publish.before", after=True, audit=FORWARD),
    Case("publish.staged", after=True, audit=FORWARD),
    Case("publish.after", after=True, audit=FORWARD),
    Case("sidecar.delete", after=True, audit=FORWARD),
    Case("commit.sidecar_deleted", after=True),
)
ONE_VERSION = (*EVERY, Case("commit.table_after", 2, after=True, audit=FORWARD))
FIRST_ON_BRANCH = (
    Case("fork.before"),
    Case("fork.after"),
    Case("fork.after", 2),
    Case("commit.table_after", audit=BACK),
    Case("publish.before", after=True, audit=FORWARD),
)
SEVERAL_VERSIONS = (
    Case("commit.table_after", 2, audit=BACK),
    Case("fold.table_before", audit=BACK),
    Case("fold.table_after", audit=BACK),
    Case("fold.table_after", 2, audit=BACK),
    Case("sidecar.confirm", audit=BACK),
    Case("commit.confirmed", after=True, audit=FORWARD),
    Case("publish.after", after=True, audit=FORWARD),
)
MATRIX = [
    *(("main", FOLD_NEVER, case) for case in ONE_VERSION),
    *(("t", FOLD_NEVER, case) for case in FIRST_ON_BRANCH),
    *(("main", FOLD_NOW, case) for case in SEVERAL_VERSIONS),
]


def test_the_matrix_names_every_failpoint_a_merge_passes() -> None:
    named = {case.place for _, _, case in MATRIX}
    steps = {place for place in failpoints.CONFIRM if "step" not in place}
    assert named >= set(failpoints.COMMIT) | set(failpoints.FORK) | steps


@pytest.fixture(scope="module")
def begun(small_template: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two branches that both changed people and edges; `t` is main without a table of its own."""
    folder = tmp_path_factory.mktemp("crash") / "graph.omni"
    graph = copy_of(small_template, folder)
    names = ("Alice", "Bob", "Carol", "Dan")
    for name in names:
        edit(graph, Person={name: person(name, 30)}, Knows={name: knows(name, name, "Alice")})
    graph.branches.create("b")
    edit(graph, "b", Person={"Alice": person("Alice", 31), "Eve": person("Eve")})
    edit(graph, "b", Knows={"Dan": None, "ea": knows("ea", "Eve", "Alice")})
    edit(graph, Person={"Bob": person("Bob", 32)}, Knows={"Bob": knows("Bob", "Bob", "Carol")})
    graph.branches.create("t")
    graph.close()
    return folder


@pytest.fixture(autouse=True)
def _disarmed() -> Iterator[None]:
    yield
    failpoints.disarm()


@pytest.mark.parametrize("how", thinned(("kill", "raise"), every=2))
@pytest.mark.parametrize(("into", "fragments", "case"), MATRIX, ids=lambda x: str(x))
def test_r2_a_crash_of_a_merge(
    begun: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    into: str,
    fragments: int,
    case: Case,
    how: str,
) -> None:
    monkeypatch.setattr(COSTS, "fold_fragments_min", fragments)
    graph = branched_copy_of(begun, tmp_path / "g")
    before, source = state(graph, into), graph.snapshot("b").commit_id
    crash(graph, into, fragments, case, how)
    again = og.open(graph.uri)
    audit = [row.recovery_kind for row in again.recoveries.list()]
    assert audit == ([case.audit] if case.audit else [])
    assert (state(again, into) == before) is not case.after
    assert again._store.sidecars.pending() == ()
    assert heads_agree(again, into)
    finished = again.branches.merge("b", into=into)
    assert finished.kind == ("already_up_to_date" if case.after else "merged")
    assert state(again, into) == merged(before)
    (commit,) = [c for c in again.commits.list(into) if c.merged_parent is not None]
    assert commit.merged_parent == source, "one merge commit, whoever published it"
    assert commit.merged_from == ("b", again._store.manifest.identity("b"))
    assert state(again, "b")["Person", "Bob"]["age"] == 30, "the source is as it was"


def crash(graph: Graph, into: str, fragments: int, case: Case, how: str) -> None:
    if how == "kill":
        code = run_merge(graph.uri, into, case.place, case.nth, fragments_max=fragments)
        assert code == KILLED
        return
    with failpoints.armed(case.place, "raise", case.nth), suppress(og.OmnigraphError, OSError):
        graph.branches.merge("b", into=into, actor="act-crash")
        assert case.place == "sidecar.delete", "only a failing deletion may be swallowed"


def merged(before: dict[tuple[str, str], dict[str, object]]) -> object:
    after = {key: row for key, row in before.items() if key != ("Knows", "Dan")}
    after["Person", "Alice"] = person("Alice", 31)
    after["Person", "Eve"] = person("Eve")
    after["Knows", "ea"] = knows("ea", "Eve", "Alice")
    return after


def heads_agree(graph: Graph, branch: str) -> bool:
    store = graph._store
    owner = None if branch == MAIN else branch
    pins = [pin for pin in store.snapshot(branch).tables.values() if pin.branch == owner]
    return all(store.datasets.head(pin.location, pin.branch) == pin.version for pin in pins)
