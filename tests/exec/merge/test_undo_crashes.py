"""A revert or restore that is killed leaves the branch before it or after it, and the next one
finishes the work.

Every failpoint of the write path × {revert, restore} of real processes that kill -9 ends: on main,
as the first write on a branch, and with tables that are folded on the way.
"""

from dataclasses import dataclass
from pathlib import Path

import pytest

import omnigraph as og
from omnigraph.costs import COSTS
from omnigraph.storage import failpoints
from omnigraph.storage.names import MAIN
from tests.exec.branching import State, branched_copy_of, copy_of, edit, knows, person, state
from tests.forked import KILLED, run
from tests.thinned import thinned

FOLD_NEVER, FOLD_NOW = 32, 3
FORWARD, BACK = "RolledForward", "RolledBack"
VERBS = ("revert", "restore")
DONE = {"revert": "reverted", "restore": "restored"}


@dataclass(frozen=True)
class Case:
    """Where the writer is killed, and what must be read afterwards."""

    place: str
    nth: int = 1
    after: bool = False
    audit: str | None = None

    def __str__(self) -> str:
        return f"{self.place}@{self.nth}"


ONE_VERSION = (
    Case("commit.locked"),
    Case("commit.checked"),
    Case("sidecar.put"),
    Case("commit.sidecar_written", audit=BACK),
    Case("commit.table_before", audit=BACK),
    Case("commit.table_after", audit=BACK),
    Case("commit.table_before", 2, audit=BACK),
    Case("commit.table_after", 2, after=True, audit=FORWARD),
    Case("commit.tables_done", after=True, audit=FORWARD),
    Case("publish.before", after=True, audit=FORWARD),
    Case("publish.staged", after=True, audit=FORWARD),
    Case("publish.after", after=True, audit=FORWARD),
    Case("sidecar.delete", after=True, audit=FORWARD),
    Case("commit.sidecar_deleted", after=True),
)
FIRST_ON_BRANCH = (
    Case("fork.before"),
    Case("fork.after"),
    Case("commit.table_after", audit=BACK),
    Case("publish.before", after=True, audit=FORWARD),
)
SEVERAL_VERSIONS = (
    Case("fold.table_before", audit=BACK),
    Case("fold.table_after", audit=BACK),
    Case("sidecar.confirm", audit=BACK),
    Case("commit.confirmed", after=True, audit=FORWARD),
)
MATRIX = [
    *((verb, MAIN, FOLD_NEVER, case) for verb in VERBS for case in ONE_VERSION),
    *(("revert", "t", FOLD_NEVER, case) for case in FIRST_ON_BRANCH),
    *(("restore", MAIN, FOLD_NOW, case) for case in SEVERAL_VERSIONS),
]


def test_the_matrix_names_every_failpoint_a_revert_passes() -> None:
    named = {case.place for _, _, _, case in MATRIX}
    steps = {place for place in failpoints.CONFIRM if "step" not in place}
    assert named >= set(failpoints.COMMIT) | set(failpoints.FORK) | steps


@pytest.fixture(scope="module")
def begun(small_template: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, State]:
    """A good state, then a bad commit of people and edges; and the good state."""
    folder = tmp_path_factory.mktemp("crash") / "graph.omni"
    graph = copy_of(small_template, folder)
    for name in ("Ada", "Bob", "Cem", "Dan"):
        edit(graph, Person={name: person(name, 30)}, Knows={name: knows(name, name, "Ada")})
    good = state(graph)
    edit(
        graph,
        Person={"Ada": person("Ada", 99), "Eve": person("Eve"), "Dan": None},
        Knows={"Dan": None, "ea": knows("ea", "Eve", "Ada")},
    )
    graph.close()
    return folder, good


def undo(graph: og.Graph, verb: str, onto: str) -> og.UndoOutcome:
    """Undo the bad commit, the last that was written on main by the test's own actor."""
    bad = graph.commits.list(actor="act-test", limit=1)[0]
    if verb == "revert":
        return graph.revert(bad.id, onto=onto, actor="act-crash")
    return graph.restore(str(bad.parent), branch=onto, actor="act-crash")


def child(uri: str, verb: str, onto: str, place: str, nth: int, fragments_max: int) -> None:
    """Undo once, killed at a failpoint."""
    COSTS.fold_fragments_min = fragments_max
    graph = og.open(uri)
    failpoints.arm(place, "kill", nth)
    undo(graph, verb, onto)


@pytest.mark.parametrize(
    ("verb", "onto", "fragments", "case"), thinned(MATRIX, every=4), ids=lambda x: str(x)
)
def test_r2_c4_kill_9_of_a_revert_or_restore(
    begun: tuple[Path, State],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    verb: str,
    onto: str,
    fragments: int,
    case: Case,
) -> None:
    monkeypatch.setattr(COSTS, "fold_fragments_min", fragments)
    folder, good = begun
    graph = branched_copy_of(folder, tmp_path / "g")
    if onto != MAIN:
        graph.branches.create(onto)  # main without a table of its own
    before = state(graph, onto)
    assert run(child, graph.uri, verb, onto, case.place, case.nth, fragments) == KILLED
    again = og.open(graph.uri)
    audit = [row.recovery_kind for row in again.recoveries.list()]
    assert audit == ([case.audit] if case.audit else [])
    if case.audit:
        assert again.recoveries.list()[0].sidecar_writer_kind == verb
    assert state(again, onto) == (good if case.after else before), "the whole commit or nothing"
    assert again._store.sidecars.pending() == ()
    assert again.check().findings == ()
    finished = undo(again, verb, onto)
    assert finished.kind == (f"nothing_to_{verb}" if case.after else DONE[verb])
    assert state(again, onto) == good
    [message] = {c.message for c in again.commits.list(onto) if c.message is not None}
    assert message.startswith(verb.capitalize()), "what recovery publishes says the same"
