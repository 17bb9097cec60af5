"""A crash of upkeep at any step changes no row, and the next run finishes it.

Every failpoint of upkeep × {an error, kill -9 of a real process} × {optimize, ensure_indices}.
"""

from contextlib import ExitStack
from pathlib import Path

import pytest

import omnigraph as og
from omnigraph.errors import OmnigraphError
from omnigraph.storage import failpoints
from omnigraph.storage.locks.locks import hold
from omnigraph.storage.names import lock_name
from tests.exec.upkeep.test_optimize import answers
from tests.exec.upkeep_child import die, die_inserting, do
from tests.exec.upkeep_world import KNOWS, PERSON, add, content, fragments, made
from tests.forked import KILLED, run
from tests.thinned import thinned

HOW = thinned(("kill", "raise"), every=2)
OPTIMIZE = (
    *((place, 1) for place in (*failpoints.COMMIT, *failpoints.CONFIRM, *failpoints.UPKEEP)),
    ("upkeep.task", 3),
    ("commit.table_before", 2),
    ("commit.table_after", 2),
    ("commit.step_before", 2),
    ("commit.step_after", 2),
)
INDICES = (*((place, 1) for place in failpoints.COMMIT), ("commit.table_after", 2))


def settled(uri: str, verb: str, before: object, asked: object) -> None:
    """What must hold after the crash, before the next run and after it."""
    with og.open(uri, fold=False) as graph:
        store = graph._store
        assert content(graph) == before
        assert answers(graph) == asked
        assert store.sidecars.pending() == ()
        assert len(graph.recoveries.list()) <= 1
        for key in (PERSON, KNOWS):
            assert store.drifts.of("main", key) is None, "a head ran ahead of the manifest"
        do(graph, verb)
        reader = store.reader(graph.snapshot(), PERSON)
        assert all(index.is_whole for index in reader.indexes())
        assert verb != "optimize" or fragments(graph) == fragments(graph, KNOWS) == 1
        assert (content(graph), answers(graph)) == (before, asked)
        add(graph, 900, 901)
        assert len(content(graph)[PERSON]) == 361


def crash(graph: og.Graph, verb: str, place: str, nth: int, how: str) -> None:
    if how == "kill":
        assert run(die, graph.uri, verb, place, nth) == KILLED
        return
    with failpoints.armed(place, "raise", nth):
        try:
            do(graph, verb)
        except (OmnigraphError, OSError):
            return
        assert place == "sidecar.delete", "only a failing deletion may be swallowed"


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize(("place", "nth"), OPTIMIZE)
def test_a_crash_of_optimize_changes_no_row(tmp_path: Path, place: str, nth: int, how: str) -> None:
    with made(tmp_path / "g") as graph:
        before, asked = content(graph), answers(graph)
        crash(graph, "optimize", place, nth, how)
        settled(graph.uri, "optimize", before, asked)


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize(("place", "nth"), INDICES)
def test_a_crash_of_ensure_indices_changes_no_row(
    tmp_path: Path, place: str, nth: int, how: str
) -> None:
    with made(tmp_path / "g") as graph:
        before, asked = content(graph), answers(graph)
        crash(graph, "ensure_indices", place, nth, how)
        settled(graph.uri, "ensure_indices", before, asked)


def test_after_the_confirmation_a_crash_is_rolled_forward(tmp_path: Path) -> None:
    with made(tmp_path / "g") as graph:
        assert run(die, graph.uri, "optimize", "publish.before", 1) == KILLED
        with og.open(graph.uri, fold=False) as again:
            [recovery] = again.recoveries.list()
            assert (recovery.recovery_kind, recovery.sidecar_writer_kind) == (
                "RolledForward",
                "optimize",
            )
            assert fragments(again) == 1
            assert again.optimize().commit_id is None


def test_h1_a_writer_that_died_while_others_kept_its_table_locked_is_settled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first heal of a run cannot tell the dead writer from the live one with its lock."""
    with made(tmp_path / "g") as graph, og.open(graph.uri, fold=False) as live:
        assert run(die_inserting, graph.uri, "commit.table_after") == KILLED
        store, event, alive = graph._store, graph._store.stats.event, ExitStack()
        alive.enter_context(hold(live._store.locks, [lock_name(PERSON, "main")]))

        def release(name: str, **facts: object) -> None:
            event(name, **facts)
            if name == "recover.writer_alive":
                alive.close()

        monkeypatch.setattr(store.stats, "event", release)
        report = graph.optimize()
        assert store.stats.view().events["recover.writer_alive"] == 1
        assert all(table.skipped is None for table in report.tables)
        assert store.sidecars.pending() == ()
        assert [r.recovery_kind for r in graph.recoveries.list()] == ["RolledForward"]
