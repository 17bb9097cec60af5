"""What concurrent mutations must never show, in the manner of the LDBC ACID suite.

Every test runs in threads that share the machine's locks, and in processes of their own.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor

import pytest

from omnigraph.graph import Graph
from tests.exec import writers
from tests.exec.town import COMPANY, KNOWS, NOTE, PERSON, WORKS_AT, do, pairs, rows
from tests.exec.writers import Outcome
from tests.forked import context

Job = Callable[[str, str, int], Outcome]
WRITERS = 3


@pytest.fixture(scope="module")
def processes() -> Iterator[Executor]:
    with ProcessPoolExecutor(WRITERS, mp_context=context()) as pool:
        yield pool


@pytest.fixture(params=["threads", "processes"])
def pool(request: pytest.FixtureRequest) -> Iterator[Executor]:
    if request.param == "processes":
        yield request.getfixturevalue("processes")
        return
    with ThreadPoolExecutor(WRITERS) as threads:
        yield threads


def run(pool: Executor, graph: Graph, *jobs: Job, count: int) -> list[Outcome]:
    """Run the jobs at the same time; what each reported."""
    started = [pool.submit(job, graph.uri, f"w{number}", count) for number, job in enumerate(jobs)]
    return [job.result(timeout=120) for job in started]


def test_inserts_are_prepared_again_until_they_are_in(people: Graph, pool: Executor) -> None:
    outcomes = run(pool, people, *[writers.add_notes] * WRITERS, count=20)
    assert outcomes == [["ok"] * 20] * WRITERS
    counts = Counter(row["text"] for row in rows(people, NOTE).values())
    assert counts == {f"w{number}": 20 for number in range(WRITERS)}
    assert len(people.commits.list()) == 1 + 20 * WRITERS


def test_c2_writers_that_never_pause_all_get_in(people: Graph, processes: Executor) -> None:
    """The one that won goes on from what it knows of its own commit, and would win for ever."""
    outcomes = run(processes, people, *[writers.add_notes] * 2, count=150)
    assert outcomes == [["ok"] * 150] * 2
    assert len(rows(people, NOTE)) == 300


def test_write_skew_on_unique_one_writer_gets_each_value(people: Graph, pool: Executor) -> None:
    outcomes = run(pool, people, *[writers.take_addresses] * WRITERS, count=15)
    for each in zip(*outcomes, strict=True):
        assert sorted(each) == ["ok"] + ["unique"] * (WRITERS - 1)
    held = Counter(row["email"] for row in rows(people, PERSON).values())
    assert held == {str(n): 1 for n in range(15)}


def test_write_skew_on_cardinality_one_writer_gets_each_place(
    people: Graph, pool: Executor
) -> None:
    do(people, " ".join(f'insert Person {{ name: "{n}" }}' for n in range(15)))
    do(people, " ".join(f'insert Company {{ name: "company-w{n}" }}' for n in range(WRITERS)))
    outcomes = run(pool, people, *[writers.take_jobs] * WRITERS, count=15)
    for each in zip(*outcomes, strict=True):
        assert sorted(each) == ["cardinality"] * (WRITERS - 1) + ["ok"]
    assert {source for source, _ in pairs(people, WORKS_AT)} == {str(n) for n in range(15)}
    assert len(pairs(people, WORKS_AT)) == 15


def test_write_skew_on_ends_no_edge_outlives_its_node(people: Graph, pool: Executor) -> None:
    do(people, " ".join(f'insert Person {{ name: "{n}" }}' for n in range(20)))
    do(people, 'insert Person { name: "keeper" }')
    deleted, connected = run(pool, people, writers.delete_people, writers.befriend, count=20)
    assert deleted == ["ok"] * 20
    assert set(connected) <= {"ok", "endpoint"}
    assert list(rows(people, PERSON)) == ["keeper"]
    assert pairs(people, KNOWS) == []


@pytest.mark.parametrize("job", [writers.increment_if_unchanged, writers.increment_if_equal])
def test_no_update_is_lost(people: Graph, pool: Executor, job: Job) -> None:
    do(people, 'insert Company { name: "counter", size: 0 }')
    outcomes = run(pool, people, *[job] * WRITERS, count=12)
    assert [each.count("ok") for each in outcomes] == [12] * WRITERS
    assert rows(people, COMPANY)["counter"]["size"] == 12 * WRITERS


def test_nobody_sees_half_a_mutation_or_two_states_of_one_commit(
    people: Graph, pool: Executor
) -> None:
    do(
        people,
        'insert Company { name: "left", size: 100 } insert Company { name: "right", size: 0 }',
    )
    moved, first, second = run(
        pool, people, writers.move_amounts, writers.watch_amounts, writers.watch_amounts, count=40
    )
    assert moved == ["ok"] * 40
    assert (first, second) == ([], [])


def test_two_writers_do_not_mix_their_rows(people: Graph, pool: Executor) -> None:
    do(people, 'insert Company { name: "left" } insert Company { name: "right" }')
    do(people, "update Company set { size: 0 } where size is null")
    outcomes = run(pool, people, *[writers.mark_both] * WRITERS, count=8)
    assert outcomes == [["ok"] * 8] * WRITERS
    for commit in people.commits.list()[:-2]:
        seen = rows(people, COMPANY, commit=commit.id)
        assert seen["left"]["size"] == seen["right"]["size"]


def test_nobody_sees_what_was_refused(people: Graph, pool: Executor) -> None:
    refused, seen, also = run(
        pool, people, writers.fail_after_writing, writers.watch_people, writers.add_notes, count=20
    )
    assert refused == ["endpoint"] * 20
    assert seen == []
    assert also == ["ok"] * 20


def test_an_update_is_told_that_another_came_first(
    people: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between its look and its commit another writer changes the table it relies on."""
    do(people, 'insert Company { name: "A", size: 1 } insert Person { name: "P" }')
    meddle_before_commit(monkeypatch, people, 'insert Company { name: "B" }')
    update = lambda: do(people, 'update Company set { size: 2 } where name = "A"')  # noqa: E731
    assert writers.outcome_of(update) == "conflict"
    assert rows(people, COMPANY)["A"]["size"] == 1
    assert writers.outcome_of(update) == "ok"


def test_an_insert_is_prepared_again_when_another_came_first(
    people: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    do(people, 'insert Person { name: "P", email: "p" }')
    meddle_before_commit(monkeypatch, people, 'delete Person where name = "P"')
    knows = lambda: do(people, 'insert Knows { from: "P", to: "P" }')  # noqa: E731
    assert writers.outcome_of(knows) == "endpoint"
    meddle_before_commit(monkeypatch, people, 'insert Person { name: "Q", email: "q" }')
    insert = lambda: do(people, 'insert Person { name: "R", email: "q" }')  # noqa: E731
    assert writers.outcome_of(insert) == "unique"


def test_a_condition_is_not_retried(people: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    head = people.snapshot().commit_id
    meddle_before_commit(monkeypatch, people, 'insert Company { name: "B" }')
    text = 'query q() { insert Company { name: "A" } }'
    with pytest.raises(Exception, match="precondition failed on branch 'main'"):
        people.mutate(text, if_commit=head)
    assert list(rows(people, COMPANY)) == ["B"]


def test_writers_of_other_tables_do_not_meet(
    people: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    do(people, 'insert Company { name: "A", size: 1 }')
    meddle_before_commit(monkeypatch, people, 'insert Note { text: "x" }')
    done = do(people, 'update Company set { size: 2 } where name = "A"')
    assert done.commit is not None
    assert people.commits.get(done.commit.id).parent == people.commits.list()[1].id


def meddle_before_commit(monkeypatch: pytest.MonkeyPatch, graph: Graph, body: str) -> None:
    """Let another writer come first, once."""
    store = graph._store
    original = store._committer.commit

    def meddling(prepared: object, turn: object) -> object:
        monkeypatch.setattr(store._committer, "commit", original)
        do(graph, body)
        return original(prepared, turn)

    monkeypatch.setattr(store._committer, "commit", meddling)
