"""Checks of a merge: reads that must give no rows on what is published, before it is."""

from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph.exec.merge import checked_merge
from omnigraph.exec.merge.run import MergeRequest
from omnigraph.graph import Graph
from omnigraph.graph.door import graph_for
from omnigraph.policy import Policy, TargetCheck
from omnigraph.storage import failpoints
from omnigraph.storage.records import TRANSACTIONS
from tests.forked import KILLED, run

SCHEMA = "node Person { name: String @key  age: I32? }\nedge Knows: Person -> Person"
LONELY = """
query lonely() {
  match { $p: Person  not { $p knows $q } }
  return { $p.name as name } order { name }
}
"""
OLD = "query old() { match { $p: Person  $p.age > 99 } return { $p.name as name, $p.age as age } }"
PEOPLE = "query people() { match { $p: Person } return { $p.name as name } order { name } }"


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    made = og.init(tmp_path / "g.omni", schema=SCHEMA)
    add(made, "Ada", 36)
    made.branches.create("work")
    return made


def add(graph: Graph, name: str, age: int, branch: str = "main") -> None:
    text = "query add($n: String, $a: I32) { insert Person { name: $n, age: $a } }"
    graph.mutate(text, {"n": name, "a": age}, branch=branch)


def names(graph: Graph, branch: str = "main") -> list[str]:
    return [row["name"] for row in graph.query(PEOPLE, branch=branch).rows]


def scratch_branches(graph: Graph) -> list[str]:
    store = graph._store
    return [name for name in store.branches.list() if name.startswith(TRANSACTIONS)]


def failed(graph: Graph, **options: Any) -> og.ChecksFailed:
    head = graph.snapshot().commit_id
    with pytest.raises(og.ChecksFailed) as refused:
        graph.branches.merge("work", **options)
    assert graph.snapshot().commit_id == head
    assert scratch_branches(graph) == []
    return refused.value


def test_SV18_a_check_that_gives_rows_on_the_merged_graph_lets_nothing_through(
    graph: Graph,
) -> None:
    add(graph, "Bob", 120, "work")
    add(graph, "Cid", 20)  # the branches have parted
    for dry_run in (True, False):
        refusal = failed(graph, checks=[OLD], dry_run=dry_run)
        assert refusal.checks == (og.FailedCheck("old", 1, ({"name": "Bob", "age": 120},)),)
        assert (refusal.source, refusal.target) == ("work", "main")
    assert names(graph) == ["Ada", "Cid"]
    graph.mutate('query u() { update Person set { age: 12 } where name = "Bob" }', branch="work")
    assert graph.branches.merge("work", checks=[OLD], dry_run=True).kind == "merged"
    assert graph.branches.merge("work", checks=[OLD]).kind == "merged"
    assert names(graph) == ["Ada", "Bob", "Cid"]


def test_the_merged_graph_is_read_and_neither_side(graph: Graph) -> None:
    pair = """
    query pair() {
      match { $a: Person  $a.name = "Ada"  $a.age > 40  $b: Person  $b.name = "Bob" }
      return { $a.name as a, $b.name as b }
    }
    """
    add(graph, "Bob", 50, "work")
    graph.mutate('query u() { update Person set { age: 41 } where name = "Ada" }')
    assert graph.query(pair).rows == graph.query(pair, branch="work").rows == []
    assert failed(graph, checks=[pair]).checks[0].rows == ({"a": "Ada", "b": "Bob"},)


def test_every_query_of_a_text_or_a_file_is_a_check(graph: Graph, tmp_path: Path) -> None:
    file = tmp_path / "checks.gq"
    file.write_text(f"{OLD}\n{LONELY}")
    add(graph, "Bob", 120, "work")
    refusal = failed(graph, checks=[file])
    assert [(check.query, check.row_count) for check in refusal.checks] == [
        ("old", 1),
        ("lonely", 2),
    ]
    assert "'old' gives 1 row(s); 'lonely' gives 2 row(s)" in str(refusal)


def test_of_many_rows_an_error_has_the_first(graph: Graph) -> None:
    lines = "".join(f'{{"type":"Person","data":{{"name":"p{i:04}"}}}}\n' for i in range(500))
    graph.load(lines.encode(), "merge", branch="work")
    (check,) = failed(graph, checks=[LONELY]).checks
    assert check.row_count == 501
    assert [row["name"] for row in check.rows] == ["Ada", *(f"p{i:04}" for i in range(19))]
    wide = """
    query wide() { match { $p: Person  $p.name > "x" } return { $p.name as name } }
    """
    long = "x" * 40_000
    lines = "".join(f'{{"type":"Person","data":{{"name":"{long}{i}"}}}}\n' for i in range(9))
    graph.load(lines.encode(), "merge", branch="work")
    (check,) = failed(graph, checks=[wide]).checks
    assert check.row_count == 9
    assert len(check.rows) == 1


def test_what_is_no_check_is_refused_before_anything_is_merged(graph: Graph) -> None:
    add(graph, "Bob", 1, "work")
    writes = 'query w() { insert Person { name: "X" } }'
    asks = "query a($n: String) { match { $p: Person  $p.name = $n } return { $p.name } }"
    for text, message in ((writes, "writes"), ("", "no quer"), (asks, "n")):
        with pytest.raises(og.OmnigraphError, match=message):
            graph.branches.merge("work", checks=[text])
    with pytest.raises(og.TypeCheckError):
        graph.branches.merge("work", checks=["query q() { match { $p: Nope } return { $p } }"])
    assert names(graph) == ["Ada"]
    assert scratch_branches(graph) == []


def test_a_merge_of_nothing_and_conflicts_are_as_without_checks(graph: Graph) -> None:
    assert graph.branches.merge("work", checks=[LONELY]).kind == "already_up_to_date"
    assert graph.branches.merge("work", checks=[LONELY], dry_run=True).kind == "already_up_to_date"
    for branch, age in (("work", 1), ("main", 2)):
        text = f'query u() {{ update Person set {{ age: {age} }} where name = "Ada" }}'
        graph.mutate(text, branch=branch)
    with pytest.raises(og.MergeConflicts):
        graph.branches.merge("work", checks=[OLD])
    assert graph.branches.merge("work", checks=[OLD], dry_run=True).kind == "conflicts"
    with pytest.raises(og.BadRequest, match="into itself"):
        graph.branches.merge("work", "work", checks=[OLD])


def test_the_answers_to_conflicts_are_checked_and_asked_for_once(graph: Graph) -> None:
    for branch, age in (("work", 1), ("main", 2)):
        text = f'query u() {{ update Person set {{ age: {age} }} where name = "Ada" }}'
        graph.mutate(text, branch=branch)
    asked: list[str | None] = []

    def answer(conflict: og.MergeConflict) -> dict[str, Any]:
        asked.append(conflict.entity_id)
        return {"age": 100 + len(asked)}

    assert failed(graph, checks=[OLD], resolve=answer).checks[0].rows == (
        {"name": "Ada", "age": 101},
    )
    del asked[:]
    none = "query none() { match { $p: Person  $p.age > 101 } return { $p.name } }"
    graph.branches.merge("work", checks=[none], resolve=answer)
    assert asked == ["Ada"]
    assert graph.query(OLD).rows == [{"name": "Ada", "age": 101}]


def test_a_target_that_moves_while_it_is_checked_is_checked_again(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What another writer brings meanwhile is checked too, or nothing is published."""
    add(graph, "Bob", 20, "work")
    checks = 0
    real = checked_merge.CheckedMerges._check

    def check(self: Any, pinned: MergeRequest, given: Any) -> None:
        nonlocal checks
        real(self, pinned, given)
        checks += 1
        if checks == 1:
            add(graph, "Old", 100)

    monkeypatch.setattr(checked_merge.CheckedMerges, "_check", check)
    with pytest.raises(og.ChecksFailed):
        graph.branches.merge("work", checks=[OLD])
    assert checks == 1  # the second one failed
    assert names(graph) == ["Ada", "Old"]


def test_a_head_that_was_named_is_not_tried_again(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(graph, "Bob", 20, "work")
    head = graph.snapshot().commit_id
    add(graph, "Cid", 20)
    with pytest.raises(og.PreconditionFailed):
        graph.branches.merge("work", checks=[OLD], if_target=head)
    real = checked_merge.CheckedMerges._check

    def check(self: Any, pinned: MergeRequest, given: Any) -> None:
        real(self, pinned, given)
        add(graph, f"n{len(names(graph))}", 20)

    monkeypatch.setattr(checked_merge.CheckedMerges, "_check", check)
    with pytest.raises(og.PreconditionFailed):
        graph.branches.merge("work", checks=[OLD], if_target=graph.snapshot().commit_id)
    assert names(graph) == ["Ada", "Cid", "n2"]


def test_a_merge_once_is_checked_once(graph: Graph) -> None:
    add(graph, "Bob", 20, "work")
    first = graph.branches.merge("work", checks=[OLD], once="m1")
    add(graph, "Old", 100)
    again = graph.branches.merge("work", checks=[OLD], once="m1")
    assert again.repeated
    assert again.commit is not None
    assert first.commit is not None
    assert again.commit.id == first.commit.id


def test_schemas_that_differ_are_merged_and_checked_under_the_merged_one(graph: Graph) -> None:
    graph.schema.apply(SCHEMA.replace("age: I32?", "age: I32?  born: I32?"), branch="work")
    text = 'query n() { insert Person { name: "Bob", born: 1800 } }'
    graph.mutate(text, branch="work")
    born = "query b() { match { $p: Person  $p.born < 1900 } return { $p.name as name } }"
    assert failed(graph, checks=[born]).checks[0].rows == ({"name": "Bob"},)
    assert graph.branches.merge("work", checks=[OLD]).commit is not None
    assert graph.query(born).rows == [{"name": "Bob"}]


# ---- declared


def test_declared_checks_are_run_for_their_targets_and_not_for_transactions(graph: Graph) -> None:
    graph.check_merges([TargetCheck("main", "old"), TargetCheck("rel/*", "lonely")], {"old": OLD})
    add(graph, "Bob", 120, "work")
    assert failed(graph).checks[0].query == "old"
    graph.branches.create("side")
    assert graph.branches.merge("work", "side").kind == "fast_forward"
    graph.branches.create("rel/1")
    with pytest.raises(og.BadRequest, match="query 'lonely', which is not stored"):
        graph.branches.merge("work", "rel/1")
    with graph.transaction() as tx:
        tx.mutate('query t() { insert Person { name: "Tom", age: 130 } }')
    assert names(graph) == ["Ada", "Tom"]
    graph.check_merges()
    assert graph.branches.merge("work").kind == "merged"


def test_a_policy_declares_checks_for_every_handle(graph: Graph) -> None:
    policy = Policy.of_text(
        "version: 1\ngroups: {all: [ada]}\n"
        "rules: [{id: r, allow: {actors: {group: all}, actions: [branch_merge, change, read]}}]\n"
        "checks: [{target: 'ma*', query: old}]\n"
    )
    handle = graph_for(graph, "ada", policy)
    add(graph, "Bob", 120, "work")
    with pytest.raises(og.BadRequest, match="not stored"):
        handle.branches.merge("work")
    graph.check_merges(queries={"old": OLD})
    with pytest.raises(og.ChecksFailed):
        handle.branches.merge("work")
    with pytest.raises(og.ChecksFailed):
        handle.branch("work").merge_into("main")
    assert names(graph) == ["Ada"]


# ---- crashes


def _die(uri: str, place: str, nth: int) -> None:
    graph = og.open(uri)
    failpoints.arm(place, "kill", nth)
    graph.branches.merge("work", checks=[OLD])


@pytest.mark.parametrize(
    ("place", "nth"),
    [("commit.checked", 1), ("publish.after", 1), ("commit.checked", 2), ("publish.after", 2)],
)
def test_a_kill_leaves_the_target_before_the_merge_or_after_it(
    graph: Graph, place: str, nth: int
) -> None:
    add(graph, "Bob", 20, "work")
    uri = graph.uri
    graph.close()
    assert run(_die, uri, place, nth) == KILLED
    with og.open(uri) as again:
        is_published = (place, nth) == ("publish.after", 2)
        assert names(again) == (["Ada", "Bob"] if is_published else ["Ada"])
        again.branches.merge("work", checks=[OLD])
        assert names(again) == ["Ada", "Bob"]
        again.cleanup(keep=1, older_than="0s", confirm=True)
        assert scratch_branches(again) == []
        assert not again.check().findings
