"""No anomaly of the ACID tests of LDBC, over threads and processes, on main and on a branch.

Write skew through merges is the exception: a three-way merge admits it by its truth table.
"""

from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from tests import anomalies
from tests.anomalies import FAR, READ, SET
from tests.forked import context
from tests.linear import Call, is_linearizable, register


def run(folder: Path, how: str, branch: str, workers: int, rounds: int) -> None:
    """Let workers try, then look at what they told and at what is left."""
    uri, logs = str(folder / "graph.omni"), folder / "logs"
    logs.mkdir()
    anomalies.create(uri, branch)
    if how == "threads":
        anomalies.in_threads(uri, branch, logs, workers, rounds)
    else:
        started = [
            context().Process(
                target=anomalies.work, args=(uri, branch, str(logs / f"{n}.log"), n, rounds)
            )
            for n in range(1, workers + 1)
        ]
        for process in started:
            process.start()
        for process in started:
            process.join(600)
            assert process.exitcode == 0
    told = defaultdict(list)
    for note in anomalies.notes(logs):
        told[note["kind"]].append(note)
    with og.open(uri) as graph:
        reads_hold(told)
        writes_hold(graph, branch, told)
        histories_hold(graph, branch, told)
        assert {finding.code for finding in graph.check().findings} <= {"fork-orphan"}
        if branch != "main":
            graph.branches.merge(branch)
            writes_hold(graph, "main", told)


def reads_hold(told: dict[str, list[dict[str, Any]]]) -> None:
    assert {note["version"] for note in told["g1a"]} == {1}, "G1a: an aborted write was read"
    assert all(n["version"] >= FAR for n in told["g1b"]), "G1b: an intermediate write was read"
    wrote = {note["wrote"]: note["read"] for note in told["g1c"]}
    for own, read in wrote.items():
        assert wrote.get(read) != own, "G1c: two transactions read each other's writes"
    newest: Counter[int] = Counter()
    for note in told["cycle"]:
        [versions] = [set(row.values()) for row in note["first"][:1]]
        assert len(versions) == 1, "FR: a write was seen in part"
        assert note["again"] == note["first"], "IMP: one snapshot showed two values"
        assert max(versions) >= newest[note["by"]], "OTV: a write that was seen is gone"
        newest[note["by"]] = max(versions)
    assert all(n["first"] == n["again"] for n in told["pmp"]), "PMP: a predicate moved"


def writes_hold(graph: og.Graph, branch: str, told: dict[str, list[dict[str, Any]]]) -> None:
    people = "query q() { match { $p: Person } return { $p.name, $p.version, $p.writers } }"
    rows = {row["p.name"]: row for row in graph.query(people, branch=branch)}
    edges = 'query q() { match { $a: Person $a $k:knows $b $k.writers = "c" } return { $a.name } }'
    linked = {row["a.name"] for row in graph.query(edges, branch=branch)}
    committed = {note["name"] for note in told["committed"]}
    assert committed == {name for name in rows if name.startswith("c-")} == linked, "atomicity C"
    assert not any(name.startswith("rb-") for name in rows), "atomicity RB"
    assert rows["g0a"]["p.writers"] == rows["g0b"]["p.writers"], "G0: writes came apart"
    assert rows["lu"]["p.version"] == 1 + len(told["incremented"]), "LU: an update was lost"
    assert rows["ws0"]["p.version"] + rows["ws1"]["p.version"] >= 1, "WS: both were taken"


def histories_hold(graph: og.Graph, branch: str, told: dict[str, list[dict[str, Any]]]) -> None:
    calls = [Call(n["begun"], n["ended"], ("read", n["value"], None)) for n in told["read"]]
    calls += [Call(n["begun"], n["ended"], ("swap", n["old"], n["new"])) for n in told["swap"]]
    assert is_linearizable(calls, register, 1), "if_commit: no order explains what was seen"
    by_name = defaultdict(set)
    for note in told["once"]:
        by_name[note["name"]].add(note["commit"])
    assert all(len(commits) == 1 for commits in by_name.values()), "once: it happened twice"
    fed: list[str] = []
    page = graph.changes.poll(branch, start="beginning", commits=7)
    while True:
        fed += (block.cause.id for block in page.blocks)
        if page.next_page_token is not None:
            page = graph.changes.poll(branch, page_token=page.next_page_token)
        elif page.caught_up:
            break
        else:
            page = graph.changes.poll(branch, cursor=page.cursor, commits=7)
    distinct = list(dict.fromkeys(fed))
    known = {commit.id: commit for commit in graph.commits.list(branch)}
    line, commit = [], graph.snapshot(branch).commit_id
    while commit is not None:
        line.append(commit)
        commit = known[commit].parent
    assert distinct == line[::-1][-len(distinct) :], "the feed is not the history in order"
    assert {c for commits in by_name.values() for c in commits} <= set(distinct)


@pytest.mark.parametrize("how", ["threads", "processes"])
@pytest.mark.parametrize("branch", ["main", "work/here"])
def test_C4_no_anomaly_of_the_acid_tests(tmp_path: Path, how: str, branch: str) -> None:
    run(tmp_path, how, branch, workers=2, rounds=1)


@pytest.mark.slow
@pytest.mark.parametrize("how", ["threads", "processes"])
@pytest.mark.parametrize("branch", ["main", "work/here"])
def test_C4_no_anomaly_in_a_long_run(tmp_path: Path, how: str, branch: str) -> None:
    run(tmp_path, how, branch, workers=4, rounds=25)


def test_write_skew_goes_through_a_merge_and_not_through_if_commit(tmp_path: Path) -> None:
    uri = str(tmp_path / "graph.omni")
    anomalies.create(uri, "main")
    with og.open(uri) as graph:
        for name, branch in (("ws0", "one"), ("ws1", "two")):
            graph.branches.create(branch)
            graph.branch(branch).mutate(SET, {"n": name, "v": 0})
        for branch in ("one", "two"):
            graph.branches.merge(branch)
        left = [graph.query(READ, {"n": n}).rows[0]["p.version"] for n in ("ws0", "ws1")]
        assert left == [0, 0], "documented: each branch changed another entity"
        head = graph.query(READ, {"n": "ws0"}).commit_id
        graph.mutate(SET, {"n": "ws0", "v": 1}, if_commit=head)
        with pytest.raises(og.PreconditionFailed):
            graph.mutate(SET, {"n": "ws1", "v": 1}, if_commit=head)


def test_an_update_of_two_branches_is_not_lost_in_a_merge(tmp_path: Path) -> None:
    uri = str(tmp_path / "graph.omni")
    anomalies.create(uri, "main")
    with og.open(uri) as graph:
        for number, branch in enumerate(("one", "two"), 2):
            graph.branches.create(branch)
            graph.branch(branch).mutate(SET, {"n": "lu", "v": number})
        graph.branches.merge("one")
        with pytest.raises(og.MergeConflicts):
            graph.branches.merge("two")


def test_the_checker_refuses_histories_that_no_order_explains() -> None:
    late_read = [
        Call(0, 1, ("swap", 1, 2)),
        Call(2, 3, ("read", 1, None)),
    ]
    assert not is_linearizable(late_read, register, 1)
    assert is_linearizable([Call(0, 3, ("swap", 1, 2)), late_read[1]], register, 1)
    two_winners = [Call(0, 5, ("swap", 1, 2)), Call(0, 5, ("swap", 1, 3))]
    assert not is_linearizable(two_winners, register, 1)
