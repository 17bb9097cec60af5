"""A transaction is a branch: one commit of main, or none."""

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest

import omnigraph as og
from omnigraph.graph import Graph
from tests.exec.branching import edit, person, state

pytestmark = pytest.mark.consistent

ADD = "query add($n: String, $a: I32) { insert Person { name: $n, age: $a } }"
AGE = "query age($n: String) { match { $p: Person { name: $n } } return { $p.age } }"
SET = 'query set($a: I32) { update Person set { age: $a } where name = "Ada" }'


def test_a_block_becomes_one_commit(small: Graph) -> None:
    count = len(small.commits.list())
    with small.transaction(actor="act-me") as tx:
        tx.mutate(ADD, {"n": "Ada", "a": 36})
        tx.mutate(SET, {"a": 37})
        assert tx.query(AGE, {"n": "Ada"}).rows == [{"p.age": 37}]
        assert state(small) == {}, "nobody else sees it"
    assert state(small)["Person", "Ada"]["age"] == 37
    newest, *older = small.commits.list()
    assert (newest.actor, len(older)) == ("act-me", count)
    assert small.branches.list() == ("main",)
    assert tx.outcome is not None
    assert tx.outcome.commit == newest


def test_a_transaction_says_where_it_goes_and_how_it_ended(small: Graph) -> None:
    with small.transaction() as tx:
        tx.mutate(ADD, {"n": "Ada", "a": 36})
        assert repr(tx).startswith("Transaction(into 'main', open on 'tx/")
    assert repr(tx) == "Transaction(into 'main', fast_forward)"
    with pytest.raises(ZeroDivisionError), small.transaction() as tx:
        raise ZeroDivisionError
    assert repr(tx) == "Transaction(into 'main', ended, nothing committed)"


def test_a_load_and_a_mutation_become_one_commit(small: Graph) -> None:
    count = len(small.commits.list())
    with small.transaction(actor="act-me") as tx:
        tx.load([{"type": "Person", "data": {"name": "Ada", "age": 36}}], "append")
        tx.mutate(SET, {"a": 37})
        assert state(small) == {}, "nobody else sees it"
    assert state(small)["Person", "Ada"]["age"] == 37
    newest, *older = small.commits.list()
    assert (newest.actor, len(older)) == ("act-me", count)


def test_an_error_leaves_main_as_it_was(small: Graph) -> None:
    head = small.snapshot()

    def stops() -> None:
        with small.transaction() as tx:
            tx.mutate(ADD, {"n": "Ada", "a": 36})
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        stops()
    assert small.snapshot() == head
    assert small.branches.list() == ("main",)


def test_a_conflict_leaves_main_as_it_was(small: Graph) -> None:
    edit(small, Person={"Ada": person("Ada", 1)})

    def meets_another() -> None:
        with small.transaction() as tx:
            tx.mutate(SET, {"a": 2})
            edit(small, Person={"Ada": person("Ada", 3)})

    with pytest.raises(og.MergeConflicts) as lost:
        meets_another()
    assert str(lost.value).endswith("nothing was committed; run the block again")
    assert "resolve=" not in str(lost.value)
    assert state(small)["Person", "Ada"]["age"] == 3
    assert small.branches.list() == ("main",)


def test_a_merge_that_breaks_a_rule_leaves_no_branch(small: Graph) -> None:
    edit(small, Person={"Ada": person("Ada", 1), "Bob": person("Bob", 1)})

    def meets_a_delete() -> None:
        with small.transaction() as tx:
            tx.mutate('query q() { insert Knows { from: "Ada", to: "Bob" } }')
            small.mutate('query q() { delete Person where name = "Bob" }')

    with pytest.raises(og.OmnigraphError):
        meets_a_delete()
    assert set(state(small)) == {("Person", "Ada")}
    assert small.branches.list() == ("main",)


def test_a_block_that_does_nothing_makes_no_commit(small: Graph) -> None:
    head = small.snapshot()
    with small.transaction():
        pass
    assert small.snapshot() == head
    assert small.branches.list() == ("main",)


def test_blocks_that_end_together_all_become_commits(small: Graph) -> None:
    count = len(small.commits.list())
    together = Barrier(4)

    def block(name: str) -> None:
        with small.transaction(actor=name) as tx:
            tx.mutate(ADD, {"n": name, "a": 1})
            together.wait()

    names = {"Ada", "Bob", "Cleo", "Dan"}
    with ThreadPoolExecutor(4) as others:
        list(others.map(block, sorted(names)))
    assert {name for _, name in state(small)} == names
    newest = small.commits.list()[: -count or None]
    assert {commit.actor for commit in newest} >= names
    assert small.branches.list() == ("main",)
