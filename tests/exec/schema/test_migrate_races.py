"""Schema changes, writers and readers in processes of their own.

Whatever order they meet in: no commit mixes two schemas, nothing acknowledged is lost, and changes
come one after the other.
"""

import json
import multiprocessing.synchronize
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import omnigraph as og
from omnigraph.catalog.model import Catalog
from omnigraph.errors import SchemaChanged
from omnigraph.exec.schemas import schema_tables, under_schema
from omnigraph.graph import Graph
from omnigraph.storage import failpoints
from omnigraph.storage.names import MAIN, lock_name, table_location
from omnigraph.types import TableKey
from tests.exec.evolving import SCHEMA, dump, evolving, head, heads_agree, of_type
from tests.forked import context
from tests.storage.conftest import _disarmed

__all__ = ["_disarmed"]

APPLIERS, WRITERS, ROUNDS = 3, 2, 4

TEXTS = [
    SCHEMA,
    SCHEMA.replace("age: I32?", "age: I32?  email: String?"),
    SCHEMA.replace("age: I32?", 'years: I32? @rename_from("age")'),
    SCHEMA.replace("  nick: String?\n", "") + "node Team { name: String @key }",
]


def require_whole(graph: Graph) -> None:
    """Every commit has exactly the tables and columns of the schema it names."""
    for commit in graph.commits.list():
        snapshot = graph.snapshot(commit=commit.id)
        tables = schema_tables(graph.schema.at(commit.id).catalog)
        assert set(snapshot.tables) == {key for key, _ in tables}
        for key, schema in tables:
            found = graph._store.reader(snapshot, key).schema
            assert found.names == schema.names, f"{key} at {commit.id} has other columns"
    assert heads_agree(graph)
    assert graph._store.sidecars.pending() == ()


Barrier = multiprocessing.synchronize.Barrier


def apply_round(uri: str, start: Barrier, number: int, log: str) -> None:
    """Apply the texts in turn, each applier from another one on."""
    graph = og.open(uri)
    start.wait(60)
    done = []
    for step in range(ROUNDS):
        text = TEXTS[(number + step) % len(TEXTS)]
        applied = graph.schema.apply(text, actor=f"a{number}")
        if applied.commit is not None:
            done.append((applied.commit.id, text))
    Path(log).write_text(json.dumps(done))


def apply_once(uri: str, start: Barrier, text: str, log: str) -> None:
    """Apply one text."""
    graph = og.open(uri)
    start.wait(60)
    Path(log).write_text(json.dumps(graph.schema.apply(text).applied))


def write_round(uri: str, start: Barrier, number: int, log: str, until: str) -> None:
    """Insert, update and load until a file appears; what was acknowledged goes to the log."""
    graph = og.open(uri)
    start.wait(60)
    done = []
    for step in range(10_000):
        name = f"w{number}-{step}"
        try:
            if step % 3 == 2:
                graph.load([{"type": "Person", "data": {"name": name}}], "append")
            else:
                graph.mutate("query m($n: String) { insert Person { name: $n } }", {"n": name})
        except (og.VersionMismatch, og.SchemaChanged, og.RecoveryRequired):
            continue
        done.append(name)
        if Path(until).exists():
            break
    Path(log).write_text(json.dumps(done))


def read_round(uri: str, start: Barrier, log: str, until: str) -> None:
    """Read by whatever the schema says now until a file appears; how often it went wrong."""
    graph = og.open(uri, read_only=True)
    start.wait(60)
    wrong = []
    while not Path(until).exists():
        try:
            rows = graph.query("query q() { match { $p: Person } return { $p.name as n } }").rows
            assert len({row["n"] for row in rows}) == len(rows)
        except (og.OmnigraphError, AssertionError) as cause:
            wrong.append(repr(cause))
    Path(log).write_text(json.dumps(wrong))


def run_all(tasks: list[tuple[object, ...]]) -> None:
    """Run functions in processes that start together."""
    made = context()
    barrier = made.Barrier(len(tasks))
    children = [
        made.Process(target=work, args=(uri, barrier, *rest))  # type: ignore[arg-type]
        for work, uri, *rest in tasks
    ]
    for child in children:
        child.start()
    for child in children:
        child.join(180)
        assert child.exitcode == 0


def test_schema_changes_of_many_processes_come_one_after_the_other(tmp_path: Path) -> None:
    graph = evolving(tmp_path / "g")
    before, at = dump(graph), head(graph)
    logs = [str(tmp_path / f"log{number}") for number in range(APPLIERS)]
    run_all([(apply_round, graph.uri, number, log) for number, log in enumerate(logs)])
    told = {commit: text for log in logs for commit, text in json.loads(Path(log).read_text())}
    found = [c for c in graph.commits.list() if c.actor and c.actor.startswith("a")]
    assert {c.id for c in found} == set(told)
    for commit in found:
        assert graph.schema.at(commit.id).text == told[commit.id]
        assert commit.parent is not None
        assert graph.schema.at(commit.parent).text != told[commit.id], "a change of nothing"
    require_whole(graph)
    assert dump(graph, at) == before
    assert set(of_type(dump(graph), "Person")) == {"Ada", "Bob", "Cy"}


def test_of_many_that_apply_one_text_one_does(tmp_path: Path) -> None:
    graph = evolving(tmp_path / "g")
    logs = [str(tmp_path / f"log{number}") for number in range(APPLIERS)]
    run_all([(apply_once, graph.uri, TEXTS[1], log) for log in logs])
    assert Counter(json.loads(Path(log).read_text()) for log in logs)[True] == 1
    require_whole(graph)


def apply_beside(uri: str, start: Barrier, until: str) -> None:
    """Apply a text after the other while others write, then say so."""
    graph = og.open(uri)
    start.wait(60)
    for step in range(3 * ROUNDS):
        graph.schema.apply(TEXTS[(step + 1) % len(TEXTS)])
        time.sleep(0.05)
    Path(until).touch()


def test_c4_a_schema_changes_beside_writers_and_readers_in_other_processes(
    tmp_path: Path,
) -> None:
    graph = evolving(tmp_path / "g")
    before, at = dump(graph), head(graph)
    until = str(tmp_path / "until")
    logs = [str(tmp_path / f"log{number}") for number in range(WRITERS)]
    seen = str(tmp_path / "seen")
    run_all(
        [
            (apply_beside, graph.uri, until),
            (read_round, graph.uri, seen, until),
            *((write_round, graph.uri, n, log, until) for n, log in enumerate(logs)),
        ]
    )
    graph = og.open(graph.uri)
    told = [name for log in logs for name in json.loads(Path(log).read_text())]
    there = set(of_type(dump(graph), "Person"))
    assert len(told) > ROUNDS
    assert set(told) <= there, "an acknowledged write is lost"
    assert json.loads(Path(seen).read_text()) == []
    require_whole(graph)
    assert dump(graph, at) == before


# The moments that matter, one by one


def test_a_mutation_in_flight_is_planned_again_under_the_new_schema(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = evolving(tmp_path / "g")
    writer = og.open(graph.uri)
    begin, changed = writer._store.begin, []

    def late(*args: object, **options: object) -> object:
        write = begin(*args, **options)  # type: ignore[arg-type]
        if not changed:
            changed.append(graph.schema.apply(TEXTS[2]))
        return write

    monkeypatch.setattr(writer._store, "begin", late)
    writer.mutate('query m() { insert Person { name: "Dee" } }')
    people = of_type(dump(graph), "Person")
    assert people["Dee"]["years"] is None
    assert people["Ada"]["years"] == 36
    require_whole(graph)


def test_a_mutation_in_flight_that_the_new_schema_does_not_allow_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = evolving(tmp_path / "g")
    writer = og.open(graph.uri)
    begin, changed = writer._store.begin, []

    def late(*args: object, **options: object) -> object:
        write = begin(*args, **options)  # type: ignore[arg-type]
        if not changed:
            changed.append(graph.schema.apply(TEXTS[2]))
        return write

    monkeypatch.setattr(writer._store, "begin", late)
    with pytest.raises(og.TypeCheckError, match="age"):
        writer.mutate('query m() { update Person set { age: 1 } where name = "Ada" }')
    assert of_type(dump(graph), "Person")["Ada"]["years"] == 36
    require_whole(graph)


def test_a_load_in_flight_is_refused_when_the_schema_changed(tmp_path: Path) -> None:
    graph = evolving(tmp_path / "g")
    loader = og.open(graph.uri)
    at = []

    def records() -> object:
        yield {"type": "Person", "data": {"name": "Dee"}}
        if not at:
            at.append(graph.schema.apply(TEXTS[3]))
        yield {"type": "Person", "data": {"name": "Eve"}}

    with pytest.raises(og.SchemaChanged):
        loader.load(records(), "append")
    assert set(of_type(dump(graph), "Person")) == {"Ada", "Bob", "Cy"}
    loader.load(records(), "append")
    assert set(of_type(dump(graph), "Person")) == {"Ada", "Bob", "Cy", "Dee", "Eve"}
    require_whole(graph)


def test_a_branch_is_made_before_a_schema_change_or_after_it(tmp_path: Path) -> None:
    graph = evolving(tmp_path / "g")
    other = og.open(graph.uri)
    with failpoints.armed("publish.before"), pytest.raises(og.RecoveryRequired):
        graph.schema.apply(TEXTS[2])
    other.branches.create("late")  # of the schema that is published: the change is not yet
    with pytest.raises(og.SchemaHeld):
        other.schema.apply(TEXTS[3])
    (row,) = other.recoveries.list()
    assert row.recovery_kind == "RolledBack", "a branch was left with another schema"
    assert other.schema.text == SCHEMA
    require_whole(other)
    other.branches.delete("late")
    assert other.schema.apply(TEXTS[3]).applied
    require_whole(other)


def wait_and_die(uri: str, start: Barrier, told: str) -> None:
    """Begin to publish a change, wait until the other waits for its turn, and die."""
    graph = og.open(uri)
    publish = graph._store.publisher.publish

    def late(*args: object, **options: object) -> object:
        start.wait(60)
        time.sleep(0.5)
        failpoints.arm("publish.before", "kill")
        return publish(*args, **options)  # type: ignore[arg-type]

    graph._store.publisher.publish = late  # type: ignore[method-assign, assignment]
    graph.schema.apply(TEXTS[1])


def test_c3_who_waits_for_a_change_that_dies_settles_it_first(tmp_path: Path) -> None:
    graph = evolving(tmp_path / "g")
    made = context()
    barrier = made.Barrier(2)
    child = made.Process(target=wait_and_die, args=(graph.uri, barrier, ""))
    child.start()
    barrier.wait(60)
    graph.schema.apply(TEXTS[2])
    child.join(60)
    assert child.exitcode == -9
    assert [row.recovery_kind for row in graph.recoveries.list()] == ["RolledForward"]
    texts = [graph.schema.at(commit.id).text for commit in graph.commits.list()]
    assert texts == [TEXTS[2], TEXTS[1], SCHEMA, SCHEMA]
    require_whole(graph)


def test_threads_that_share_a_handle_all_plan_again_when_the_schema_changed(tmp_path: Path) -> None:
    """The first of them reads the new schema, and the others must not take theirs for current."""
    schemas = og.init(tmp_path / "g", SCHEMA)._schemas
    before = schemas.known()
    with og.open(tmp_path / "g") as other:
        other.schema.apply(TEXTS[1])
    met, is_first_done = threading.Barrier(3), threading.Event()
    planned: list[str] = []

    def work(catalog: Catalog) -> str:
        if catalog.schema_id == before.id:
            if met.wait(30):  # each was planned under the schema before, and is refused
                is_first_done.wait(30)
            raise SchemaChanged("main", str(before.id), "new")
        planned.append(str(catalog.schema_id))
        is_first_done.set()
        return "done"

    with ThreadPoolExecutor(3) as pool:
        done = [pool.submit(under_schema, schemas, work) for _ in range(3)]
        assert [each.result(60) for each in done] == ["done"] * 3
    assert set(planned) == {str(schemas.current().id)}


def test_a_schema_change_that_waits_for_writers_leaves_no_tables_behind(tmp_path: Path) -> None:
    """An attempt that gives way removes what it made; the next one makes it in its place."""
    graph = og.init(tmp_path / "g.omni", "node Person { name: String @key }")
    held = graph._store.locks.acquire(lock_name(TableKey("node:Person"), MAIN), wait_s=0)
    assert held is not None
    threading.Timer(0.5, held.release).start()
    graph.schema.apply("node Person { name: String @key }\nnode City { name: String @key }")
    tables = graph._store.snapshot().tables
    assert tables[TableKey("node:City")].location == table_location(TableKey("node:City"))
    folders = {f"nodes/{each.name}" for each in (tmp_path / "g.omni" / "nodes").iterdir()}
    assert folders == {pin.location for pin in tables.values()}
