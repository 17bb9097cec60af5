"""`retries`: an update or delete that lost a race runs again on the new head.

Real processes write one table at once: nothing is lost and every writer finishes.
"""

from collections.abc import Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from pathlib import Path

import pytest

import omnigraph as og
from omnigraph.exec.mutate import run as mutations
from omnigraph.graph import Graph
from tests.exec import writers
from tests.exec.town import COMPANY, PERSON, SCHEMA, do, rows
from tests.forked import context

MOST = 4


@pytest.fixture(scope="module")
def processes() -> Iterator[Executor]:
    with ProcessPoolExecutor(MOST, mp_context=context()) as pool:
        yield pool


@pytest.fixture
def town(tmp_path: Path) -> Iterator[Graph]:
    with og.init(tmp_path / "g", SCHEMA) as graph:
        for name in ("counter", *(f"w{n}" for n in range(MOST))):
            do(graph, "insert Company { name: $n, size: 0 }", n=name)
        yield graph


def together(
    pool: Executor, graph: Graph, job: object, writers_count: int, count: int
) -> list[list[str]]:
    names = [f"w{n}" for n in range(writers_count)]
    started = [pool.submit(job, graph.uri, name, count) for name in names]  # type: ignore[arg-type]
    return [each.result(timeout=120) for each in started]


@pytest.mark.parametrize("count", [2, MOST])
def test_writers_of_different_rows_lose_nothing_and_all_finish(
    town: Graph, processes: Executor, count: int
) -> None:
    outcomes = together(processes, town, writers.set_own_row, count, 12)
    assert outcomes == [["ok"] * 12] * count
    sizes = {name: row["size"] for name, row in rows(town, COMPANY).items()}
    assert [sizes[f"w{n}"] for n in range(count)] == [12] * count


@pytest.mark.parametrize("count", [2, MOST])
def test_a_counter_loses_no_increment(town: Graph, processes: Executor, count: int) -> None:
    outcomes = together(processes, town, writers.increment_with_retries, count, 5)
    assert {outcome for each in outcomes for outcome in each} <= {"ok", "none"}
    assert rows(town, COMPANY)["counter"]["size"] == 5 * count


def test_deletes_are_prepared_again(town: Graph, processes: Executor) -> None:
    for who in range(MOST):
        for n in range(4):
            do(town, "insert Person { name: $n }", n=f"w{who}-{n}")
    do(town, 'insert Person { name: "stays" }')
    outcomes = together(processes, town, writers.delete_own_people, MOST, 4)
    assert outcomes == [["ok"] * 4] * MOST
    assert set(rows(town, PERSON)) == {"stays"}


UPDATE = 'query q($n: I64) { update Company set { size: $n } where name = "w0" }'


@pytest.fixture
def meddled(town: Graph, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Another writer comes between the preparation and the commit of the next `left[0]` writes."""
    left = [0]
    other = og.open(town.uri)
    stage = mutations.Staging.stage

    def stage_late(staging: mutations.Staging) -> None:
        stage(staging)
        if left[0]:
            left[0] -= 1
            number = left[0]
            left[0] = 0
            do(other, 'update Company set { size: $n } where name = "w1"', n=number)
            left[0] = number

    monkeypatch.setattr(mutations.Staging, "stage", stage_late)
    return left


def test_the_default_is_strict_and_the_error_says_the_way_out(
    town: Graph, meddled: list[int]
) -> None:
    meddled[0] = 1
    with pytest.raises(og.VersionMismatch, match=r"read again and retry .*retries=, --retry"):
        town.mutate(UPDATE, {"n": 7})
    assert rows(town, COMPANY)["w0"]["size"] == 0


def test_a_refused_update_runs_again_on_the_new_head(town: Graph, meddled: list[int]) -> None:
    meddled[0] = 1
    done = town.mutate(UPDATE, {"n": 7}, retries=1)
    assert done.affected_nodes == 1
    sizes = rows(town, COMPANY)
    assert (sizes["w0"]["size"], sizes["w1"]["size"]) == (7, 0)


def test_a_branch_handle_retries_too(town: Graph, meddled: list[int]) -> None:
    meddled[0] = 1
    assert town.branch("main").mutate(UPDATE, {"n": 8}, retries=1).commit is not None


def test_the_setting_is_the_number_where_none_is_given(
    town: Graph, meddled: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMNIGRAPH_WRITE_RETRIES", "1")
    meddled[0] = 1
    town.mutate(UPDATE, {"n": 9})
    assert rows(town, COMPANY)["w0"]["size"] == 9
    meddled[0] = 1
    with pytest.raises(og.VersionMismatch):
        town.mutate(UPDATE, {"n": 10}, retries=0)
    head = town.snapshot().commit_id
    town.mutate(UPDATE, {"n": 11}, if_commit=head)  # for one head, whatever the setting says


def test_a_rule_broken_by_rows_that_went_meanwhile_is_a_lost_race(
    town: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    do(town, 'insert Person { name: "a", email: "x" }')
    do(town, 'insert Person { name: "b" }')
    other = og.open(town.uri)
    check = mutations.validate
    calls: list[int] = []

    def check_late(staging: mutations.Staging) -> object:
        broken = check(staging)
        calls.append(len(calls))
        if len(calls) == 1:
            monkeypatch.setattr(mutations, "validate", check)
            do(other, 'delete Person where name = "a"')
            monkeypatch.setattr(mutations, "validate", check_late)
        return broken

    monkeypatch.setattr(mutations, "validate", check_late)
    take = 'query q() { update Person set { email: "x" } where name = "b" }'
    assert town.mutate(take, retries=1).commit is not None
    assert len(calls) == 2


def test_a_rule_that_stays_broken_is_told_at_once(
    town: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    do(town, 'insert Person { name: "a", email: "x" }')
    do(town, 'insert Person { name: "b" }')
    calls: list[int] = []
    check = mutations.validate
    monkeypatch.setattr(mutations, "validate", lambda s: (calls.append(1), check(s))[1])
    take = 'query q() { update Person set { email: "x" } where name = "b" }'
    with pytest.raises(og.ConstraintViolated):
        town.mutate(take, retries=5)
    assert len(calls) == 1


def test_retries_do_not_go_with_a_precondition(town: Graph) -> None:
    head = town.snapshot().commit_id
    with pytest.raises(og.BadRequest, match="if_commit"):
        town.mutate(UPDATE, {"n": 1}, if_commit=head, retries=1)
    town.mutate(UPDATE, {"n": 1}, if_commit=head, retries=0)
    with pytest.raises(og.BadRequest, match="pass 0 or more"):
        town.mutate(UPDATE, {"n": 1}, retries=-1)
