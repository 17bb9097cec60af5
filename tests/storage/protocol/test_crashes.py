"""A crash at any step leaves the graph before the write or after it.

Every failpoint of the write path × {an error, kill -9 of a real process} × {one table, three
tables, the first write on a branch, S3}.
"""

import time
from dataclasses import dataclass, replace

import pytest

from omnigraph.costs import COSTS
from omnigraph.errors import OmnigraphError
from omnigraph.storage import failpoints
from omnigraph.storage.locks import locks
from omnigraph.storage.manifest.state import LOCATION
from omnigraph.storage.names import MAIN
from omnigraph.storage.protocol.intent import WriterKind
from omnigraph.storage.records import RECOVERY_ACTOR
from omnigraph.storage.store import Settings, Store
from tests.forked import KILLED, run
from tests.storage import child
from tests.storage.world import (
    CITY,
    KNOWS,
    PERSON,
    TABLES,
    Where,
    append,
    content,
    heads_agree,
    put,
    remove,
    rows,
)
from tests.thinned import thinned

ONE = {PERSON: {"a": 10, "new": 11}}
THREE = {PERSON: {"a": 10, "new": 11}, CITY: {"x": 20}, KNOWS: {"e": 30}}
BASE = {PERSON: {"a": 1, "b": 2}, CITY: {"x": 3}, KNOWS: {}}


@dataclass(frozen=True)
class Case:
    """Where the write stops, and what must be found afterwards: the audit's one row, or none."""

    place: str
    nth: int = 1
    after: bool = False
    audit: str | None = None

    def __str__(self) -> str:
        return f"{self.place}@{self.nth}"


FORWARD, BACK = "RolledForward", "RolledBack"

EVERY_WRITE = (
    Case("commit.locked"),
    Case("commit.checked"),
    Case("sidecar.put"),
    Case("commit.sidecar_written", audit=BACK),
    Case("commit.table_before", audit=BACK),
    Case("commit.tables_done", after=True, audit=FORWARD),
    Case("publish.before", after=True, audit=FORWARD),
    Case("publish.staged", after=True, audit=FORWARD),
    Case("publish.after", after=True, audit=FORWARD),
    Case("sidecar.delete", after=True, audit=FORWARD),
    Case("commit.sidecar_deleted", after=True),
)
ONE_TABLE = (*EVERY_WRITE, Case("commit.table_after", after=True, audit=FORWARD))
THREE_TABLES = (
    *EVERY_WRITE,
    Case("commit.table_after", audit=BACK),
    Case("commit.table_before", 2, audit=BACK),
    Case("commit.table_after", 2, audit=BACK),
    Case("commit.table_before", 3, audit=BACK),
    Case("commit.table_after", 3, after=True, audit=FORWARD),
)
FIRST_ON_BRANCH = (*ONE_TABLE, Case("fork.before"), Case("fork.after"))


def test_the_matrix_names_every_failpoint_of_the_write_path() -> None:
    named = {case.place for case in (*THREE_TABLES, *FIRST_ON_BRANCH)}
    assert named == set(failpoints.COMMIT) | set(failpoints.FORK)


def crash(
    how: str, where: Where, store: Store, values: child.Values, branch: str, at: Case
) -> None:
    if how == "kill":
        assert run(child.write, where, values, branch, at.place, at.nth) == KILLED
        return
    with failpoints.armed(at.place, "raise", at.nth):
        try:
            put(store, values, branch=branch, actor="act-crash")
        except (OmnigraphError, OSError):
            return
        assert at.place == "sidecar.delete", "only a failing deletion may be swallowed"


def merged(values: child.Values) -> child.Values:
    return {key: {**BASE[key], **values.get(key, {})} for key in TABLES}


def rows_of_manifest(store: Store, branch: str) -> list[str]:
    owner = None if branch == MAIN else branch
    rows: list[str] = store.datasets.open(LOCATION, owner).to_table()["object_id"].to_pylist()
    return rows


def settles(where: Where, values: child.Values, branch: str, case: Case) -> None:
    """What must hold after reopening, whatever happened."""
    again = where.open()
    assert content(again, branch) == (merged(values) if case.after else BASE)
    assert heads_agree(again, branch)
    assert again.sidecars.pending() == ()
    assert [row.recovery_kind for row in again.audit.list()] == ([case.audit] if case.audit else [])
    expected_commits = 0 if case.place in ("publish.after", "sidecar.delete") else 1
    by_recovery = again.history.list(branch, actor=RECOVERY_ACTOR)
    assert len(by_recovery) == (expected_commits if case.audit else 0)
    written = [c for c in again.history.list(branch) if c.actor == "act-crash"]
    assert len(written) == (1 if case.after and not by_recovery else 0)
    ids = rows_of_manifest(again, branch)
    assert len(set(ids)) == len(ids), "an object was published twice"
    put(again, {key: {"next": 99} for key in values}, branch=branch)
    assert all(content(again, branch)[key]["next"] == 99 for key in values)
    assert len(again.audit.list()) == (1 if case.audit else 0)
    if branch != MAIN:
        assert content(again, MAIN) == BASE


def begin(where: Where, branch: str = MAIN) -> Store:
    store = where.create()
    put(store, BASE | {KNOWS: {"gone": 0}})
    delete = store.begin(kind=WriterKind.MUTATION)
    remove(store, delete, KNOWS, "id = 'gone'")
    store.commit(delete)
    if branch != MAIN:
        store.branches.create(branch)
    return store


HOW = thinned(("kill", "raise"), every=2)


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("case", ONE_TABLE, ids=str)
def test_c4_a_crash_of_a_write_to_one_table(local: Where, case: Case, how: str) -> None:
    crash(how, local, begin(local), ONE, MAIN, case)
    settles(local, ONE, MAIN, case)


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("case", THREE_TABLES, ids=str)
def test_c4_a_crash_of_a_write_to_three_tables(local: Where, case: Case, how: str) -> None:
    crash(how, local, begin(local), THREE, MAIN, case)
    settles(local, THREE, MAIN, case)


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("case", FIRST_ON_BRANCH, ids=str)
def test_f1_a_crash_of_the_first_write_on_a_branch(local: Where, case: Case, how: str) -> None:
    crash(how, local, begin(local, "review/x"), ONE, "review/x", case)
    settles(local, ONE, "review/x", case)


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("case", thinned(ONE_TABLE, every=4), ids=str)
def test_c4_a_crash_on_s3(s3: Where, case: Case, how: str) -> None:
    crash(how, s3, begin(s3), ONE, MAIN, case)
    settles(s3, ONE, MAIN, case)


@pytest.mark.slow
@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("case", THREE_TABLES, ids=str)
def test_c4_a_crash_on_s3_of_a_write_to_three_tables(s3: Where, case: Case, how: str) -> None:
    crash(how, s3, begin(s3), THREE, MAIN, case)
    settles(s3, THREE, MAIN, moved_together(s3, case))


def moved_together(where: Where, case: Case) -> Case:
    """On object stores the tables move side by side: after one of them did, all may have."""
    if case.place != "commit.table_after" or where.open().audit.list()[0].recovery_kind == BACK:
        return case
    return replace(case, after=True, audit=FORWARD)


@pytest.mark.slow
@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("case", FIRST_ON_BRANCH, ids=str)
def test_f1_a_crash_on_s3_of_the_first_write_on_a_branch(s3: Where, case: Case, how: str) -> None:
    crash(how, s3, begin(s3, "review/x"), ONE, "review/x", case)
    settles(s3, ONE, "review/x", case)


# A crash of recovery itself: every step can be repeated.

STOPPED_AT = {
    BACK: Case("commit.table_before", 2, audit=BACK),
    FORWARD: Case("publish.before", after=True, audit=FORWARD),
}
FORWARD_STEPS = tuple(p for p in failpoints.RECOVER if "restore" not in p)


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize(
    ("kind", "place"),
    [(BACK, place) for place in failpoints.RECOVER] + [(FORWARD, place) for place in FORWARD_STEPS],
)
def test_r5_a_crash_of_recovery_is_recovered(local: Where, kind: str, place: str, how: str) -> None:
    stopped = STOPPED_AT[kind]
    crash("raise", local, begin(local), THREE, MAIN, stopped)
    for _ in range(2):
        if how == "kill":
            assert run(child.recover, local, place) == KILLED
        else:
            with failpoints.armed(place), pytest.raises((OSError, OmnigraphError)):
                local.open()
    settles(local, THREE, MAIN, stopped)


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("place", ["recover.restore_after", "recover.publish_after"])
def test_r5_a_crash_of_recovery_on_s3_is_recovered(s3: Where, place: str, how: str) -> None:
    crash("raise", s3, begin(s3), THREE, MAIN, STOPPED_AT[BACK])
    if how == "kill":
        assert run(child.recover, s3, place) == KILLED
    else:
        with failpoints.armed(place), pytest.raises(OSError, match=place):
            s3.open()
    settles(s3, THREE, MAIN, STOPPED_AT[BACK])


def test_a_killed_write_to_three_tables_on_s3_is_settled_after_one_term(
    s3: Where, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its writer may live on another machine, so its leases are waited for, but side by side."""
    monkeypatch.setattr(locks, "is_dead", lambda mark: False)
    s3.create()
    assert run(child.write, s3, THREE, MAIN, "commit.tables_done", 1) == KILLED
    start = time.monotonic()
    store = s3.open(settings=Settings(lease_term_s=3.0))
    assert time.monotonic() - start < 2 * 3.0
    assert content(store) == THREE


# Several versions a table, folding, branches, init


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("place", failpoints.FOLD)
def test_a_crash_while_folding_loses_nothing(local: Where, place: str, how: str) -> None:
    store = local.create()
    acknowledged = {}
    if how == "kill":
        assert run(child.commits, local, 80, PERSON, place) == KILLED
    else:
        with failpoints.armed(place):
            for number in range(80):
                try:
                    put(store, {PERSON: {f"r{number}": number}})
                except OmnigraphError:
                    break
                acknowledged[f"r{number}"] = number
    again = local.open()
    seen = content(again)[PERSON]
    assert acknowledged.items() <= seen.items()
    assert list(seen.values()) == list(range(len(seen))), (
        "commits are in from the first to the last"
    )
    assert len(seen) >= COSTS.fold_fragments_min - 3
    assert heads_agree(again)
    assert again.sidecars.pending() == ()
    append(again, PERSON, "next")


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("place", failpoints.BRANCH)
def test_a_crash_while_creating_or_deleting_a_branch(local: Where, place: str, how: str) -> None:
    store = begin(local)
    verb = "create" if "create" in place else "delete"
    if verb == "delete":
        store.branches.create("work")
        put(store, ONE, branch="work")
    if how == "kill":
        assert run(child.branch, local, verb, "work", place) == KILLED
    else:
        change = store.branches.create if verb == "create" else store.branches.delete
        with failpoints.armed(place), pytest.raises(OSError, match=place):
            change("work")
    again = local.open()
    there = place in ("branch.create_after", "branch.delete_before")
    assert ("work" in again.branches.list()) == there
    if not there:
        again.branches.create("work")
        assert content(again, "work") == BASE
    put(again, {PERSON: {"w": 1}}, branch="work")
    assert content(again, "work")[PERSON]["w"] == 1
    assert content(again) == BASE


@pytest.mark.parametrize("place", failpoints.INIT)
def test_a_crash_of_init_leaves_no_graph_or_a_whole_one(local: Where, place: str) -> None:
    assert run(child.init, local, place) == KILLED
    if place == "init.manifest":
        store = local.open()
    else:
        with pytest.raises(OmnigraphError, match="not found"):
            local.open()
        store = local.create()
    put(store, {PERSON: {"a": 1}})
    assert content(local.open()) == {PERSON: {"a": 1}, CITY: {}, KNOWS: {}}


def test_c3_a_sweep_leaves_a_live_writers_sidecar_alone(local: Where) -> None:
    store = begin(local)
    write = store.begin(kind=WriterKind.MUTATION)
    write.append(PERSON, rows(PERSON, {"slow": 1}))
    seen = []

    def look(pin: object) -> None:
        other = local.open()
        seen.append((other.sidecars.pending(), other.audit.list()))

    write.then(PERSON, lambda tables, pin: look(pin))
    store.commit(write)
    assert seen == [((write.operation_id,), ())]
    assert content(store)[PERSON]["slow"] == 1
