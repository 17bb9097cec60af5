"""Group commit: mutations that wait at the same time share a commit and nothing else."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import omnigraph as og
from omnigraph.exec.mutate.coalesce import Coalescer, run_together
from omnigraph.exec.mutate.run import MutationResult, Request, request
from omnigraph.graph import Graph
from omnigraph.plan.compile import compile_query
from omnigraph.storage.records import CommitNote

SCHEMA = """
node Person { name: String @key  email: String? @unique  age: I32?  @range(age, 0..150) }
edge Knows: Person -> Person { since: I32? }
"""
ADD = "query add($n: String, $e: String?) { insert Person { name: $n, email: $e } }"
AGE = "query age($n: String, $a: I32) { update Person set { age: $a } where name = $n }"
MAIL = "query mail($n: String, $e: String) { update Person set { email: $e } where name = $n }"
ALL = "query all($a: I32) { update Person set { age: $a } where age >= 0 }"
KNOW = "query know($a: String, $b: String) { insert Knows { from: $a, to: $b } }"
DROP = "query drop($n: String) { delete Person where name = $n }"
OLD = "query old($a: I32) { delete Person where age >= $a }"
ROWS = (
    "query rows() { match { $p: Person } return { $p.name, $p.email, $p.age } order { $p.name } }"
)


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    return og.init(tmp_path / "graph.omni", SCHEMA)


def asked(graph: Graph, text: str, note: CommitNote | None = None, **params: Any) -> Request:
    plan: Any = compile_query(text, graph._schemas.current().catalog)
    return request(plan, params, branch="main", note=note or CommitNote())


def together(graph: Graph, *group: Request) -> list[Any]:
    return run_together(graph._store, graph._schemas.current().catalog, group)


def rows(graph: Graph) -> dict[str, tuple[Any, Any]]:
    found = graph.query(ROWS).rows
    return {row["p.name"]: (row["p.email"], row["p.age"]) for row in found}


def test_a_group_is_one_commit_and_each_has_its_own_counts(graph: Graph) -> None:
    before = len(graph.commits.list())
    outcomes = together(
        graph,
        asked(graph, ADD, n="a", e=None),
        asked(graph, ADD, n="b", e="b@x"),
        asked(graph, KNOW, a="a", b="b"),
        asked(graph, AGE, n="a", a=7),
        asked(graph, AGE, n="nobody", a=7),
    )
    assert [(o.affected_nodes, o.affected_edges) for o in outcomes] == [
        (1, 0),
        (1, 0),
        (0, 1),
        (1, 0),
        (0, 0),
    ]
    assert len(graph.commits.list()) == before + 1
    assert {o.commit.id for o in outcomes[:4]} == {graph.snapshot().commit_id}
    assert outcomes[4].commit is None
    assert rows(graph) == {"a": (None, 7), "b": ("b@x", None)}


def test_one_that_breaks_a_rule_is_refused_alone(graph: Graph) -> None:
    outcomes = together(
        graph,
        asked(graph, ADD, n="a", e="x@x"),
        asked(graph, ADD, n="b", e="x@x"),
        asked(graph, KNOW, a="a", b="nobody"),
        asked(graph, AGE, n="a", a=200),
        asked(graph, AGE, n="a", a=20),
    )
    kinds = [type(o).__name__ for o in outcomes]
    assert kinds == ["MutationResult", *["ConstraintViolated"] * 3, "MutationResult"]
    assert rows(graph) == {"a": ("x@x", 20)}
    assert "nobody" in str(outcomes[2])


def test_deletes_of_a_group_count_what_is_still_there(graph: Graph) -> None:
    for name, age in (("a", 1), ("b", 50), ("c", 60)):
        graph.mutate(ADD, {"n": name})
        graph.mutate(AGE, {"n": name, "a": age})
    graph.mutate(KNOW, {"a": "a", "b": "b"})
    outcomes = together(
        graph, *(asked(graph, DROP, n="b"), asked(graph, OLD, a=40), asked(graph, OLD, a=40))
    )
    counts = [(o.affected_nodes, o.affected_edges, o.commit is not None) for o in outcomes]
    assert counts == [(1, 1, True), (1, 0, True), (0, 0, False)]
    assert set(rows(graph)) == {"a"}


def test_a_group_that_lost_a_race_is_prepared_again(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = og.open(graph.uri)
    commit, calls = graph._store.commit, []

    def raced(*arguments: Any, **named: Any) -> Any:
        calls.append(1)
        if len(calls) == 1:
            other.mutate(ADD, {"n": "first", "e": "taken@x"})
        return commit(*arguments, **named)

    monkeypatch.setattr(graph._store, "commit", raced)
    outcomes = together(
        graph, asked(graph, ADD, n="a", e="taken@x"), asked(graph, ADD, n="b", e=None)
    )
    assert isinstance(outcomes[0], og.ConstraintViolated), "checked on the head it is published on"
    assert isinstance(outcomes[1], MutationResult)
    assert set(rows(graph)) == {"first", "b"}


def test_updates_that_lost_a_race_are_told(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    graph.mutate(ADD, {"n": "a"})
    other = og.open(graph.uri)
    commit = graph._store.commit

    def raced(*arguments: Any, **named: Any) -> Any:
        other.mutate(ADD, {"n": "late"})
        return commit(*arguments, **named)

    monkeypatch.setattr(graph._store, "commit", raced)
    with pytest.raises(og.VersionMismatch):
        together(graph, asked(graph, AGE, n="a", a=1), asked(graph, AGE, n="a", a=2))
    assert rows(graph)["a"] == (None, None)


# Groups mean what their mutations mean one after the other


_NAMES, _MAILS = st.sampled_from("abc"), st.sampled_from(["x@x", "y@x"])
_OPS = st.one_of(
    st.tuples(st.just(ADD), _NAMES, st.none() | _MAILS),
    st.tuples(st.just(MAIL), _NAMES, _MAILS),
    st.tuples(st.just(AGE), _NAMES, st.sampled_from([1, 2, 999])),
    st.tuples(st.just(ALL), st.just(""), st.sampled_from([5, 999])),
)
State = dict[str, tuple[Any, Any]]


def _after(state: State, op: tuple[str, str, Any]) -> tuple[State, int]:
    text, name, value = op
    if text == ADD:
        return {**state, name: (value, None)}, 1
    if text == ALL:
        hit = {n: (mail, value) for n, (mail, age) in state.items() if age is not None}
        return {**state, **hit}, len(hit)
    if name not in state:
        return state, 0
    mail, age = state[name]
    return {**state, name: (value, age) if text == MAIL else (mail, value)}, 1


def _is_sound(state: State) -> bool:
    mails = [mail for mail, _ in state.values() if mail is not None]
    return len(set(mails)) == len(mails) and all(age != 999 for _, age in state.values())


def _modelled(ops: list[tuple[str, str, Any]]) -> tuple[State, list[int | None]]:
    """The state after a group, and what each affected; None where it is refused."""
    for is_alone in (False, True):
        state: State = {}
        counts: list[int | None] = []
        for op in ops:
            after, count = _after(state, op)
            is_refused = is_alone and not _is_sound(after)
            state = state if is_refused else after
            counts.append(None if is_refused else count)
        if _is_sound(state):
            break
    return state, counts


def _as_request(graph: Graph, op: tuple[str, str, Any]) -> Request:
    text, name, value = op
    if text == ALL:
        return asked(graph, text, a=value)
    return asked(graph, text, n=name, **{"a" if text == AGE else "e": value})


def group_is_as_the_model(folder: Path, ops: list[tuple[str, str, Any]]) -> None:
    graph = og.init(folder / "graph.omni", SCHEMA)
    outcomes = together(graph, *(_as_request(graph, op) for op in ops))
    state, counts = _modelled(ops)
    assert rows(graph) == state
    assert [o.affected_nodes if isinstance(o, MutationResult) else None for o in outcomes] == counts


@settings(max_examples=10, deadline=None)
@given(ops=st.lists(_OPS, min_size=2, max_size=7))
def test_a_group_leaves_what_its_mutations_leave_in_order(
    tmp_path_factory: pytest.TempPathFactory, ops: list[tuple[str, str, Any]]
) -> None:
    group_is_as_the_model(tmp_path_factory.mktemp("group"), ops)


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(ops=st.lists(_OPS, min_size=2, max_size=10))
def test_any_group_leaves_what_its_mutations_leave_in_order(
    tmp_path_factory: pytest.TempPathFactory, ops: list[tuple[str, str, Any]]
) -> None:
    group_is_as_the_model(tmp_path_factory.mktemp("group"), ops)


# Threads


def _in_threads(calls: list[Callable[[], Any]]) -> list[Any]:
    """The result or the error of each call, all started at once."""
    gate = threading.Barrier(len(calls))

    def run(call: Callable[[], Any]) -> Any:
        gate.wait()
        try:
            return call()
        except og.OmnigraphError as error:
            return error

    with ThreadPoolExecutor(len(calls)) as pool:
        return list(pool.map(run, calls))


def test_threads_share_commits_and_none_is_answered_before_its_rows_are_there(
    graph: Graph,
) -> None:
    before = len(graph.commits.list())
    reader = og.open(graph.uri, read_only=True)
    ask = "query one($n: String) { match { $p: Person { name: $n } } return { $p.name } }"

    def add(name: str, mail: str | None) -> tuple[MutationResult, int]:
        done = graph.mutate(ADD, {"n": name, "e": mail}, coalesce=True)
        return done, len(reader.query(ask, {"n": name}).rows)

    calls = [lambda n=n: add(f"p{n}", "same@x" if n in (3, 7) else None) for n in range(24)]
    outcomes = _in_threads(calls)
    refused = [o for o in outcomes if isinstance(o, og.ConstraintViolated)]
    assert len(refused) == 1
    done = [o for o in outcomes if not isinstance(o, Exception)]
    assert len(done) == 23
    assert all(result.affected_nodes == 1 and seen == 1 for result, seen in done)
    commits = {result.commit.id for result, _ in done if result.commit is not None}
    assert len(graph.commits.list()) == before + len(commits)
    assert len(commits) < 23, "while one commits the others wait for each other"
    assert len(rows(graph)) == 23


def test_a_window_lets_a_leader_wait_and_lanes_do_not_mix(tmp_path: Path) -> None:
    og.init(tmp_path / "graph.omni", SCHEMA).close()
    graph = og.open(tmp_path / "graph.omni", coalesce_ms=200)
    calls = [
        *(lambda n=n: graph.mutate(ADD, {"n": f"a{n}"}, actor="act-1") for n in range(4)),
        *(lambda n=n: graph.mutate(ADD, {"n": f"b{n}"}, actor="act-2") for n in range(4)),
        lambda: graph.mutate(ADD, {"n": "own"}, message="a commit of its own"),
        lambda: graph.mutate(ADD, {"n": "alone"}, coalesce=False),
    ]
    results = _in_threads(calls)
    by_actor = [{r.commit.id for r in results[i : i + 4]} for i in (0, 4)]
    assert [len(ids) for ids in by_actor] == [1, 1]
    assert len(by_actor[0] | by_actor[1] | {r.commit.id for r in results[8:]}) == 4
    actors = {c.id: c.actor for c in graph.commits.list()}
    assert [actors[next(iter(ids))] for ids in by_actor] == ["act-1", "act-2"]


def test_a_failure_of_the_commit_reaches_everyone_and_the_queue_goes_on(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit, calls = graph._store.commit, []
    entered, go = threading.Event(), threading.Event()

    def failing(*arguments: Any, **named: Any) -> Any:
        calls.append(1)
        if len(calls) == 1:
            entered.set()
            go.wait()
        if len(calls) == 2:
            raise og.StorageFailed("committed", "the disk is full")
        return commit(*arguments, **named)

    monkeypatch.setattr(graph._store, "commit", failing)
    with ThreadPoolExecutor(5) as pool:
        first = pool.submit(graph.mutate, ADD, {"n": "first"}, coalesce=True)
        entered.wait()
        lost = [pool.submit(graph.mutate, ADD, {"n": f"x{n}"}, coalesce=True) for n in range(3)]
        while sum(len(queue) for queue in graph._coalescer._lanes.values()) < 3:
            threading.Event().wait(0.001)
        go.set()
        assert first.result().affected_nodes == 1
        errors = [future.exception() for future in lost]
    assert all(isinstance(error, og.StorageFailed) for error in errors)
    assert len({id(error) for error in errors}) == 3, "a traceback is one thread's"
    assert graph.mutate(ADD, {"n": "last"}, coalesce=True).affected_nodes == 1
    assert set(rows(graph)) == {"first", "last"}
    assert graph._coalescer._lanes == {}


def test_what_is_about_a_commit_of_its_own_is_not_coalesced(graph: Graph) -> None:
    for options in ({"message": "why"}, {"metadata": {"a": "b"}}, {"once": "x"}):
        with pytest.raises(og.BadRequest, match="coalesce"):
            graph.mutate(ADD, {"n": "a"}, coalesce=True, **options)
    head = graph.snapshot().commit_id
    with pytest.raises(og.BadRequest, match="coalesce"):
        graph.mutate(ADD, {"n": "a"}, coalesce=True, if_commit=head)
    with pytest.raises(og.BadRequest, match="coalesce_ms"):
        og.open(graph.uri, coalesce_ms=-1)
    assert isinstance(graph._coalescer, Coalescer)
