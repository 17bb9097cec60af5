"""What a mutation costs in storage calls, and that history does not raise it."""

import pytest

import omnigraph as og
from omnigraph.graph import Graph
from tests.exec.town import COMPANY, do, rows

OF_A_COMMIT = {
    "lock.acquire": 2,  # the table's and the publisher's
    "object.list": 1,  # is anything to be healed?
    # Is the branch as it was a moment ago, and of a version this program writes? Did the table's
    # head stand still? The first is asked under the locks, because Lance rebases a publish over
    # whatever came since; it spares the look at the head of each table that was only read.
    "object.head": 2,
    "object.put": 1,  # the sidecar
    "lance.stage_append": 1,
    "lance.commit": 2,  # the table and the manifest
    "lance.stage_publish": 1,
    "object.delete": 1,
    "disk.look": 3,  # are the rows, the rows of the manifest and what they replace there?
}
"""Calls of any warm one-row insert; what else mutations add to them is pinned below."""


def added(graph: Graph, *bodies: str) -> dict[str, int]:
    """The calls beyond those of a commit, of the cheapest of like mutations: others may fold."""
    return min((_added(graph, body) for body in bodies), key=lambda made: sum(made.values()))


def _added(graph: Graph, body: str) -> dict[str, int]:
    before = graph.stats()
    do(graph, body)
    made = graph.stats().since(before).calls
    names = sorted({*made, *OF_A_COMMIT})
    over = {name: made.get(name, 0) - OF_A_COMMIT.get(name, 0) for name in names}
    return {name: count for name, count in over.items() if count}


@pytest.mark.parametrize("history", [3, 40])
def test_x1_a_mutation_adds_its_lookups_to_the_commit_and_nothing_else(
    people: Graph, history: int
) -> None:
    do(people, 'insert Person { name: "A" } insert Person { name: "B" } insert Note { text: "x" }')
    do(people, 'insert Knows { from: "A", to: "B" }')
    for number in range(history):
        do(people, "insert Company { name: $n }", n=f"c{number}")
    keyed = added(people, *(f'insert Company {{ name: "k{n}" }}' for n in range(3)))
    assert keyed == {}  # whether the key is in use is known
    assert sum(OF_A_COMMIT.values()) <= 14, "three of them take a microsecond each"
    assert added(people, *['insert Note { text: "y" }'] * 3) == {}
    ends = (("A", "A"), ("B", "A"), ("B", "B"))
    edge = added(people, *(f'insert Knows {{ from: "{a}", to: "{b}" }}' for a, b in ends))
    # Both ends at once, and the pair that must be new; for the table that was looked at a lock.
    assert edge == {"lance.scan": 2, "lock.acquire": 1}
    taken = added(people, *['insert Company { name: "k0" }'] * 3)
    # A key that may be in use is looked up, and it is.
    assert taken == {"lance.scan": 1, "lance.stage_replace": 1, "lance.stage_append": -1}
    update = added(
        people, *(f'update Company set {{ size: {n} }} where name = "k0"' for n in "123")
    )
    # What is updated is read from the head of the branch, so that is looked at first.
    assert update == {
        "object.head": 1,
        "lance.scan": 1,
        "lance.stage_replace": 1,
        "lance.stage_append": -1,
    }


def test_x1_another_process_costs_a_look_and_no_more(people: Graph) -> None:
    """While others publish too, an insert looks at the manifest; what they wrote is read once."""
    other = og.open(people.uri)
    for number in range(4):
        do(people, "insert Company { name: $n }", n=f"a{number}")
        do(other, "insert Company { name: $n }", n=f"b{number}")
    before = people.stats()
    do(people, 'insert Company { name: "mine" }')
    made = people.stats().since(before).calls
    assert made["object.head"] <= 5
    assert made["lance.scan"] == 1
    assert set(rows(people, COMPANY)) == {f"{who}{n}" for who in "ab" for n in range(4)} | {"mine"}


def test_a_mutation_that_changes_nothing_only_looks(people: Graph) -> None:
    do(people, 'insert Person { name: "A" } insert Company { name: "A" }')
    before = people.stats()
    do(people, 'delete Company where name = "none"')
    do(people, 'update Person set { age: 1 } where name = "none"')
    made = people.stats().since(before).calls
    assert made == {"object.list": 2, "object.head": 2, "lance.scan": 2}
