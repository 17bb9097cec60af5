"""A schema change that is stopped anywhere is wholly there or not at all, its schema included.

Every failpoint of the write path × {an error, kill -9 of a real process} × {columns and names, one
version a table; values, indexes and drops for good, several versions; no table at all}.
"""

import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

import omnigraph as og
from omnigraph.graph import Graph
from omnigraph.storage import failpoints
from omnigraph.storage.protocol.promote import FOLDER
from tests.exec.evolving import SCHEMA, Lines, dump, evolving, head, heads_agree, of_type
from tests.forked import KILLED, run
from tests.storage.conftest import _disarmed, s3, s3_server
from tests.storage.world import Where
from tests.thinned import thinned

__all__ = ["_disarmed", "s3", "s3_server"]

NAMES = (
    SCHEMA.replace("node Person {", 'node Human @rename_from("Person") {')
    .replace("Person ->", "Human ->")
    .replace("-> Person", "-> Human")
    .replace("age: I32?", 'years: I32? @rename_from("age")  email: String?')
    .replace("  nick: String?\n", "")
    .replace("size: I64?", "size: I64?  mayor: String?")
    + "node Team { name: String @key }"
)
VALUES = (
    SCHEMA.replace("age: I32?", "age: I32? @index  score: F64 @backfill(0.5)")
    .replace("  nick: String?\n", "")
    .replace("node City { name: String @key  size: I64? }", "")
    .replace("edge LivesIn: Person -> City", "")
)
WORDS = SCHEMA.replace("node City {", 'node City @description("a place") {')


@dataclass(frozen=True)
class Change:
    """A schema to apply."""

    name: str
    text: str
    hard: bool = False

    def __str__(self) -> str:
        return self.name


NAMES_CHANGE = Change("names", NAMES)
VALUES_CHANGE = Change("values", VALUES, hard=True)
WORDS_CHANGE = Change("words", WORDS)
CHANGES = {change.name: change for change in (NAMES_CHANGE, VALUES_CHANGE, WORDS_CHANGE)}
KEY = SCHEMA.replace("edge Knows: Person -> Person", "edge Knows: Person -> Person @key(src, dst)")
KEY_CHANGE = Change("key", KEY)


@dataclass(frozen=True)
class Case:
    """Where a change stops, and whether it must be found done afterwards."""

    change: Change
    place: str
    nth: int = 1
    done: bool = False

    def __str__(self) -> str:
        return f"{self.change}-{self.place}@{self.nth}"


EARLY = ("commit.locked", "commit.checked", "sidecar.put", "commit.sidecar_written")
LATE = ("publish.after", "promote.file", "sidecar.delete", "commit.sidecar_deleted")

CASES = (
    *(Case(change, place) for change in CHANGES.values() for place in EARLY),
    *(Case(change, place, done=True) for change in CHANGES.values() for place in LATE),
    *(Case(change, "promote.file", 2, done=True) for change in CHANGES.values()),
    # Four tables of one version each: both node types, and the edges whose ends are renamed.
    *(Case(NAMES_CHANGE, "commit.table_before", nth) for nth in (1, 2, 4)),
    *(Case(NAMES_CHANGE, "commit.table_after", nth) for nth in (1, 2, 3)),
    Case(NAMES_CHANGE, "commit.table_after", 4, done=True),
    *(Case(NAMES_CHANGE, p, done=True) for p in ("commit.tables_done", "publish.before")),
    Case(NAMES_CHANGE, "publish.staged", done=True),
    # Two tables that are dropped, and one of four versions: values, columns, rows without the
    # dropped one, indexes.
    *(Case(VALUES_CHANGE, "commit.table_before", nth) for nth in (1, 2, 3)),
    *(Case(VALUES_CHANGE, "commit.table_after", nth) for nth in (1, 2, 3)),
    *(Case(VALUES_CHANGE, "commit.step_before", nth) for nth in (1, 2, 3)),
    *(Case(VALUES_CHANGE, "commit.step_after", nth) for nth in (1, 2, 3)),
    Case(VALUES_CHANGE, "sidecar.confirm"),
    *(Case(VALUES_CHANGE, p, done=True) for p in ("commit.confirmed", "commit.tables_done")),
    *(Case(VALUES_CHANGE, p, done=True) for p in ("publish.before", "publish.staged")),
    *(Case(VALUES_CHANGE, "reclaim.table", nth, done=True) for nth in (1, 2, 3)),
    # Both node types' fences, and the edges: rows with other ids, then columns.
    *(Case(KEY_CHANGE, p) for p in ("commit.table_after", "commit.step_before", "sidecar.confirm")),
    *(Case(KEY_CHANGE, p, done=True) for p in ("commit.confirmed", "publish.before")),
    # No table moves, so nothing says that the change was meant before it is published.
    *(Case(WORDS_CHANGE, p) for p in ("commit.tables_done", "publish.before", "publish.staged")),
)


def test_the_matrix_names_every_failpoint_of_a_schema_change() -> None:
    places = (*failpoints.COMMIT, *failpoints.CONFIRM, *failpoints.PROMOTE, *failpoints.RECLAIM)
    assert {case.place for case in CASES} == set(places)


def apply(graph: Graph, change: Change) -> None:
    graph.schema.apply(change.text, allow_data_loss=change.hard, actor="act-s")


def apply_and_die(where: Where, name: str, place: str, nth: int) -> None:
    """Change the schema, killed at a failpoint."""
    graph = og.open(where.uri, storage_options=where.options or None)
    failpoints.arm(place, "kill", nth)
    apply(graph, (CHANGES | {"key": KEY_CHANGE})[name])


Seen = tuple[str, Lines]


def seen(graph: Graph) -> Seen:
    return graph.schema.text, dump(graph)


@cache
def expected(name: str) -> Seen:
    """The graph as it is after a change."""
    with tempfile.TemporaryDirectory() as folder:
        other = evolving(f"{folder}/g")
        apply(other, (CHANGES | {"key": KEY_CHANGE})[name])
        return seen(other)


def verify(graph: Graph, case: Case, before: tuple[str, Seen], after: Seen) -> None:
    """The graph is before the change or after it, and works."""
    commit, first = before
    assert seen(graph) == (after if case.done else first)
    assert heads_agree(graph)
    assert graph._store.sidecars.pending() == ()
    if case.place != "sidecar.put":  # what was put aside has no note: cleanup takes it
        assert graph._store.objects.list(FOLDER) == ()
    if case.done and case.change.hard:
        with pytest.raises(og.Reclaimed):
            dump(graph, commit)
    else:
        assert dump(graph, commit) == first[1]
    stored = graph._store.objects.get("_schema.pg")
    assert stored is not None
    assert stored.data.decode() == graph.schema.text
    apply(graph, case.change)
    assert seen(graph) == after
    name = "Human" if case.change is NAMES_CHANGE else "Person"
    more = ", score: 1.0" if case.change is VALUES_CHANGE else ""
    graph.mutate(f'query m() {{ insert {name} {{ name: "Next"{more} }} }}')
    assert "Next" in of_type(dump(og.open(graph.uri, **_options(graph))), name)


def _options(graph: Graph) -> dict[str, dict[str, str]]:
    options = graph._store.where.storage_options
    return {"storage_options": dict(options)} if options else {}


@pytest.mark.parametrize("case", thinned(CASES, every=8), ids=str)
def test_r2_c4_an_error_anywhere_leaves_a_schema_change_done_or_undone(
    tmp_path: Path, case: Case
) -> None:
    after = expected(case.change.name)
    graph = evolving(tmp_path / "g")
    before = head(graph), seen(graph)
    with failpoints.armed(case.place, nth=case.nth):
        try:
            apply(graph, case.change)
        except (og.OmnigraphError, OSError):
            assert case.place not in ("sidecar.delete",)
    graph.refresh()  # the live process settles it, without a restart
    verify(graph, case, before, after)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_r2_c4_kill_9_anywhere_leaves_a_schema_change_done_or_undone(
    tmp_path: Path, case: Case
) -> None:
    after = expected(case.change.name)
    graph = evolving(tmp_path / "g")
    before = head(graph), seen(graph)
    code = run(apply_and_die, Where(graph.uri), case.change.name, case.place, case.nth)
    assert code == KILLED
    reader = og.open(graph.uri, read_only=True)  # nobody has settled anything yet
    assert seen(reader) in (before[1], after)
    verify(og.open(graph.uri), case, before, after)


ON_S3 = ("commit.table_after@4", "publish.before", "publish.after", "promote.file")


@pytest.mark.slow  # a killed process keeps its lease for a minute, and each waits for one to end
@pytest.mark.parametrize("place", ON_S3)
def test_r2_c4_kill_9_of_a_schema_change_on_s3(s3: Where, place: str) -> None:
    name, _, nth = place.partition("@")
    after = expected("names")
    graph = evolving(s3.uri, s3.options)
    before = head(graph), seen(graph)
    assert run(apply_and_die, s3, "names", name, int(nth or 1)) == KILLED
    case = Case(NAMES_CHANGE, name, int(nth or 1), done=True)
    verify(og.open(s3.uri, storage_options=s3.options), case, before, after)
