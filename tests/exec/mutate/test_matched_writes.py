"""Statements that write what a match finds: the same as a query and a write for each of its rows.

The rows are those of the naive evaluator, and each is written by a plain statement of its own.
"""

import itertools
import re
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import omnigraph as og
from omnigraph.exec.mutate import run as mutations
from omnigraph.graph import Graph
from omnigraph.plan import mutation_ir
from omnigraph.plan.compile import compile_query
from tests.exec import writers
from tests.exec.reference import Reference
from tests.exec.town import (
    COMPANY,
    KNOWS,
    NOTE,
    PERSON,
    TABLES,
    WORKS_AT,
    blobs,
    copy_of,
    do,
    everything,
    make_template,
    pairs,
    rows,
)
from tests.forked import context

WRITERS = 3


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_template(tmp_path_factory.mktemp("template") / "g")


@pytest.fixture
def town(template: Path, tmp_path: Path) -> Iterator[Graph]:
    with copy_of(template, tmp_path / "g") as graph:
        do(
            graph,
            """insert Person { name: "Ada", age: 10, photo: "base64:QUJD" }
               insert Person { name: "Bob", age: 20 } insert Person { name: "Cid", age: 30 }
               insert Company { name: "Acme", size: 1 } insert Company { name: "Bolt", size: 2 }
               insert Knows { from: "Ada", to: "Bob" } insert Knows { from: "Bob", to: "Cid" }
               insert WorksAt { from: "Ada", to: "Acme" }
               insert WorksAt { from: "Bob", to: "Acme" }""",
        )
        yield graph


def ages(graph: Graph) -> dict[str, Any]:
    return {name: row.get("age") for name, row in rows(graph, PERSON).items()}


# ---- what each statement does


def test_an_edge_is_inserted_for_each_row(town: Graph) -> None:
    done = do(
        town,
        """insert Knows { from: $a, to: $c, weight: F64($a.age + $more) }
           match { $a: Person  $a knows $b  $b knows $c }""",
        more=1,
    )
    assert (done.affected_nodes, done.affected_edges) == (0, 1)
    assert pairs(town, KNOWS) == [("Ada", "Bob"), ("Ada", "Cid"), ("Bob", "Cid")]
    assert 11.0 in [row.get("weight") for row in rows(town, KNOWS).values()]


def test_values_of_no_row_are_the_same_in_all(town: Graph) -> None:
    done = do(town, "insert Note { text: $t, pages: 3 } match { $p: Person }", t="hello")
    assert done.affected_nodes == 3
    assert [(row["text"], row["pages"]) for row in rows(town, NOTE).values()] == [("hello", 3)] * 3


def test_an_update_reads_each_row_as_it_was_and_keeps_the_rest(town: Graph) -> None:
    done = do(town, "update $p set { age: age + $q.age } match { $p: Person  $p knows $q }")
    assert done.affected_nodes == 2
    assert ages(town) == {"Ada": 30, "Bob": 50, "Cid": 30}
    assert blobs(town)["Ada"] == b"ABC"


def test_aggregates_group_by_what_is_written(town: Graph) -> None:
    do(town, "update $c set { size: count($p) } match { $p: Person  $p worksAt $c }")
    assert {name: row["size"] for name, row in rows(town, COMPANY).items()} == {
        "Acme": 2,
        "Bolt": 2,
    }


def test_an_upsert_changes_what_there_is_and_inserts_the_rest(town: Graph) -> None:
    done = do(town, "upsert Company { name: $n, size: I64($p.age) } match { $p: Person }", n="Acme")
    assert done.affected_nodes == 1
    assert rows(town, COMPANY)["Acme"]["size"] == 30  # of three rows the last
    do(town, "upsert Company { name: $p.name, size: 7 } match { $p: Person }")
    assert sorted(rows(town, COMPANY)) == ["Acme", "Ada", "Bob", "Bolt", "Cid"]


def test_edges_are_updated_and_deleted_by_their_variable(town: Graph) -> None:
    do(town, "update $k set { weight: 2.5 } match { $a: Person $a.age < 15  $a $k:knows $b }")
    weights = {row["src"]: row.get("weight") for row in rows(town, KNOWS).values()}
    assert weights == {"Ada": 2.5, "Bob": None}
    done = do(town, "delete $k match { $a $k:knows $b  $k.weight is null }")
    assert (done.affected_edges, pairs(town, KNOWS)) == (1, [("Ada", "Bob")])


def test_a_deleted_node_takes_its_edges_along(town: Graph) -> None:
    done = do(town, "delete $p match { $p: Person  $p worksAt $c  $c.size = 1 }")
    assert (done.affected_nodes, done.affected_edges) == (2, 4)
    assert (list(rows(town, PERSON)), pairs(town, WORKS_AT)) == (["Cid"], [])


def test_a_variable_that_an_optional_block_leaves_null_changes_nothing(town: Graph) -> None:
    match = "match { $p: Person  optional { $p worksAt $c } }"
    assert do(town, f"update $c set {{ size: 9 }} {match}").affected_nodes == 1
    assert do(town, f"delete $c {match}").affected_nodes == 1


def test_a_stage_chooses_what_is_written(town: Graph) -> None:
    do(
        town,
        """update $p set { score: 1.0 }
           match { $p: Person } with { $p } order { $p.age desc } limit 1 match { $p: Person }""",
    )
    assert [n for n, row in rows(town, PERSON).items() if row.get("score")] == ["Cid"]


def test_a_match_that_finds_nothing_commits_nothing(town: Graph) -> None:
    for statement in (
        "insert Note { text: $p.name }",
        "upsert Company { name: $p.name }",
        "update $p set { age: 1 }",
        "delete $p",
    ):
        assert do(town, f"{statement} match {{ $p: Person  $p.age > 99 }}").commit is None


def test_rules_hold_and_a_broken_one_writes_nothing(town: Graph) -> None:
    with pytest.raises(og.ConstraintViolated) as refused:
        do(town, "update $p set { age: age * 10 } match { $p: Person }")
    assert refused.value.total == 2
    with pytest.raises(og.ConstraintViolated):  # of Knows each pair once
        do(town, "insert Knows { from: $a, to: $b } match { $a knows $b }")
    with pytest.raises(og.ExpressionFailed):
        do(town, "update $p set { age: age / 0 } match { $p: Person }")
    with pytest.raises(og.BadRequest, match=r"Person\.age has type I32; 10\.5 does not fit"):
        do(town, "update $p set { age: age + 0.5 } match { $p: Person  $p.age = 10 }")
    assert ages(town) == {"Ada": 10, "Bob": 20, "Cid": 30}


def test_statements_before_a_match_may_write_what_it_does_not_read(town: Graph) -> None:
    do(
        town,
        """update Company set { size: 5 } where name = "Acme"
           insert Note { text: $p.name } match { $p: Person }
           insert Note { text: "last" }""",
    )
    assert sorted(row["text"] for row in rows(town, NOTE).values()) == ["Ada", "Bob", "Cid", "last"]


def test_many_rows_at_once(town: Graph) -> None:
    do(town, "insert Note { text: $p.name } match { $p: Person }")
    for _ in range(4):  # 3 × 9^4
        eight = "unwind [1, 2, 3, 4, 5, 6, 7, 8] as x"
        do(town, f"insert Note {{ text: $n.text }} match {{ $n: Note  {eight} }}")
    assert town.snapshot().tables[NOTE].row_count == 3 * 9**4
    assert do(town, "update $n set { pages: 1 } match { $n: Note }").affected_nodes == 3 * 9**4
    assert do(town, "delete $n match { $n: Note }").affected_nodes == 3 * 9**4
    assert rows(town, NOTE) == {}


# ---- other writers


def test_coalescing_leaves_a_match_alone(town: Graph) -> None:
    text = "query q() { update $p set { age: age + 1 } match { $p: Person } }"
    with pytest.raises(og.BadRequest, match="match"):
        town.mutate(text, coalesce=True)
    with og.open(town.uri, coalesce_ms=5) as other:
        assert other.mutate(text).affected_nodes == 3


def test_a_match_needs_the_right_to_read(town: Graph, tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    allow = "actors: {group: writers}, actions: [change], branch_scope: any"
    file.write_text(
        f"version: 1\ngroups: {{writers: [act-w]}}\nrules:\n  - {{id: w, allow: {{{allow}}}}}\n"
    )
    with og.open(town.uri, policy=file, actor="act-w") as writer:
        do(writer, 'update Person set { age: 1 } where name = "Ada"')
        with pytest.raises(og.Forbidden, match="read"):
            do(writer, "insert Note { text: $p.name } match { $p: Person }")
    assert rows(town, NOTE) == {}


def meddling(town: Graph, monkeypatch: pytest.MonkeyPatch, statement: str) -> None:
    """Another writer comes once between the next match and its commit."""
    other, stage, left = og.open(town.uri), mutations.Staging.stage, [1]

    def stage_late(staging: mutations.Staging) -> None:
        stage(staging)
        if left:
            left.clear()
            do(other, statement)

    monkeypatch.setattr(mutations.Staging, "stage", stage_late)


READ_ONLY = '$p: Person  $p worksAt $c  $c.name = "Acme"'


@pytest.mark.parametrize("statement", ["update $p set { score: 1.0 }", "delete $p"])
def test_a_change_of_a_table_that_was_only_read_refuses(
    town: Graph, monkeypatch: pytest.MonkeyPatch, statement: str
) -> None:
    meddling(town, monkeypatch, 'update Company set { size: 3 } where name = "Acme"')
    with pytest.raises(og.VersionMismatch) as lost:
        do(town, f"{statement} match {{ {READ_ONLY} }}")
    assert lost.value.table_key == COMPANY
    text = f"query q() {{ {statement} match {{ {READ_ONLY} }} }}"
    assert town.mutate(text).affected_nodes == 2


def test_an_insert_matches_again_on_the_new_head(
    town: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    meddling(town, monkeypatch, 'insert WorksAt { from: "Cid", to: "Acme" }')
    done = do(town, f"insert Note {{ text: $p.name }} match {{ {READ_ONLY} }}")
    assert done.affected_nodes == 3
    assert sorted(row["text"] for row in rows(town, NOTE).values()) == ["Ada", "Bob", "Cid"]


def test_a_match_sees_what_another_process_wrote_a_moment_ago(town: Graph) -> None:
    with og.open(town.uri) as other:
        assert (
            do(other, "insert Note { text: $p.name } match { $p: Person  $p.age > 90 }").commit
            is None
        )
        do(town, 'insert Person { name: "Old", age: 99 }')
        done = do(other, "insert Note { text: $p.name } match { $p: Person  $p.age > 90 }")
        assert done.affected_nodes == 1


@pytest.fixture(scope="module")
def processes() -> Iterator[Executor]:
    with ProcessPoolExecutor(WRITERS, mp_context=context()) as pool:
        yield pool


def together(pool: Executor, graph: Graph, job: Any, count: int) -> list[list[str]]:
    started = [pool.submit(job, graph.uri, f"w{n}", count) for n in range(WRITERS)]
    return [each.result(timeout=120) for each in started]


def test_processes_that_insert_what_is_missing_miss_nothing(
    town: Graph, processes: Executor
) -> None:
    for number in range(WRITERS):
        do(town, writers.PERSON_INSERT, n=f"w{number}")
    outcomes = together(processes, town, writers.pair_up, 3)
    assert {outcome for each in outcomes for outcome in each} <= {"ok", "none"}
    for number in range(WRITERS):
        do(
            town,
            """insert Knows { from: $a, to: $b }
               match { $a: Person { name: $n }  $b: Person  not { $a knows $b } }""",
            n=f"w{number}",
        )
    people = sorted(rows(town, PERSON))
    assert len(people) == 3 + WRITERS * 4
    mine = [(f"w{n}", person) for n in range(WRITERS) for person in people]
    assert [pair for pair in pairs(town, KNOWS) if pair[0].startswith("w")] == sorted(mine)


def test_processes_that_raise_what_a_match_finds_lose_no_increment(
    town: Graph, processes: Executor
) -> None:
    outcomes = together(processes, town, writers.grow_by_one, 4)
    assert outcomes == [["ok"] * 4] * WRITERS
    assert rows(town, COMPANY)["Acme"]["size"] == 1 + 4 * WRITERS


# ---- the same as a query and writes by id

MATCHES = (
    "$p: Person  $p knows $q",
    "$p: Person  $q: Person  $p.age < $q.age  not { $p knows $q }",
    "$p knows{1,2} $q  $q.age is not null",
    "$p: Person  $p worksAt $c  $q worksAt $c  $q.id != $p.id",
    "$p: Person  optional { $p knows $q }",
    "$p: Person  unwind [1, 2] as x  $p <knows> $q",
)
STATEMENTS = {
    "insert Knows { from: $p, to: $q, weight: F64($p.age) }": (
        "insert Knows { from: $m0, to: $m1, weight: $m2 }"
    ),
    "insert Note { text: $p.name, pages: $q.age }": "insert Note { text: $m0, pages: $m1 }",
    "insert Company { name: $p.name, size: $q.age }": "insert Company { name: $m0, size: $m1 }",
    "upsert Person { name: $p.name, height: 1.5 }": "upsert Person { name: $m0, height: 1.5 }",
    "upsert Company { name: $p.name, size: count($q) }": "upsert Company { name: $m0, size: $m1 }",
    "update $p set { score: 0.5, age: coalesce($q.age, 7) }": (
        "update Person set { score: 0.5, age: $m1 } where id = $m0"
    ),
    'update $q set { tags: ["x"] }': 'update Person set { tags: ["x"] } where id = $m0',
    "delete $q": "delete Person where id = $m0",
}
"""Each statement, and what it does for a row whose columns are `$m0`, `$m1` …"""

NAMES = ("Ada", "Bob", "Cid", "Dot")
names = st.sampled_from(NAMES)
people = st.dictionaries(names, st.none() | st.integers(0, 3), min_size=1)
friends = st.sets(st.tuples(names, names), max_size=6)
jobs = st.dictionaries(names, st.sampled_from(["Acme", "Bolt"]), max_size=3)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    base = tmp_path_factory.mktemp("examples")
    return (base / str(number) for number in itertools.count())


def filled(graph: Graph, people: Any, friends: Any, jobs: Any) -> None:
    lines = [{"type": "Person", "data": {"name": n, "age": age}} for n, age in people.items()]
    lines += [{"type": "Company", "data": {"name": name}} for name in ("Acme", "Bolt")]
    known = sorted((a, b) for a, b in friends if a in people and b in people)
    lines += [{"edge": "Knows", "from": a, "to": b} for a, b in known]
    lines += [{"edge": "WorksAt", "from": a, "to": b} for a, b in jobs.items() if a in people]
    graph.load(lines, "append")


def row_by_row(graph: Graph, branch: str, op: mutation_ir.MatchedRows, plain: str) -> Any:
    """Write each row that the naive evaluator finds with a statement of its own."""
    data = {table: [{"id": i, **row} for i, row in rows(graph, table).items()] for table in TABLES}
    declared, params, body = list[str](), dict[str, Any](), list[str]()
    for number, row in enumerate(Reference(data).rows(op.read)):
        statement = plain
        for at, column in enumerate(op.read.columns):
            name = f"m{at}_{number}"
            kind = str(column.type).rstrip("?")
            declared.append(f"${name}: {kind}?")
            params[name] = row[column.name]
            statement = re.sub(rf"\$m{at}\b", f"${name}", statement)
        body.append(statement)
    if not body:
        return None
    text = f"query q({', '.join(declared)}) {{ {' '.join(body)} }}"
    return graph.mutate(text, params, branch=branch)


def contents(graph: Graph, branch: str) -> dict[Any, list[str]]:
    """All that a branch has, without the ids that are made anew."""
    return {
        table: sorted(repr(sorted(row.items())) for row in found.values())
        for table, found in everything(graph, branch).items()
    }


def outcome(write: Callable[[], Any]) -> Any:
    try:
        done = write()
    except og.ConstraintViolated:
        return "refused"
    return (0, 0) if done is None else (done.affected_nodes, done.affected_edges)


def same_as_row_by_row(
    graph: Graph, statement: str, match: str, people: Any, friends: Any, jobs: Any
) -> None:
    filled(graph, people, friends, jobs)
    graph.branches.create("twin")
    text = f"query q() {{ {statement} match {{ {match} }} }}"
    plan = compile_query(text, graph.schema.catalog)
    assert isinstance(plan, mutation_ir.MutationPlan)
    (op,) = plan.statements
    assert isinstance(op, mutation_ir.MatchedRows)
    expected = outcome(lambda: row_by_row(graph, "twin", op, STATEMENTS[statement]))
    assert outcome(lambda: graph.mutate(text)) == expected
    assert contents(graph, "main") == contents(graph, "twin")


CASES = {
    "statement": st.sampled_from(sorted(STATEMENTS)),
    "match": st.sampled_from(MATCHES),
    "people": people,
    "friends": friends,
    "jobs": jobs,
}


def checked(template: Path, folders: Iterator[Path], **case: Any) -> None:
    folder = next(folders)
    with copy_of(template, folder) as graph:
        same_as_row_by_row(graph, **case)
    shutil.rmtree(folder)


@given(**CASES)
@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
def test_the_same_as_a_query_and_a_write_for_each_row(
    template: Path, folders: Iterator[Path], **case: Any
) -> None:
    checked(template, folders, **case)


@pytest.mark.slow
@given(**CASES)
@settings(max_examples=400, deadline=None, suppress_health_check=list(HealthCheck))
def test_the_same_in_many_more_cases(template: Path, folders: Iterator[Path], **case: Any) -> None:
    checked(template, folders, **case)
