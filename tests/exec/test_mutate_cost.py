"""What a mutation costs in storage calls, and that history does not raise it."""

import pytest

from omnigraph.graph import Graph
from tests.exec.town import do

OF_A_COMMIT = {
    "lock.acquire": 2,  # the table's and the publisher's
    "object.list": 1,  # is anything to be healed?
    "object.head": 4,  # three looks at the manifest, one at the table head
    "object.get": 3,  # with each look at the manifest: were versions reclaimed?
    "object.put": 1,  # the sidecar
    "lance.stage_append": 1,
    "lance.commit": 2,  # the table and the manifest
    "lance.stage_publish": 1,
    "object.delete": 1,
}
"""Calls of any warm one-row commit; what mutations add to them is pinned below."""


def added(graph: Graph, *bodies: str) -> dict[str, int]:
    """The calls beyond those of a commit, of the cheapest of like mutations: others may fold."""
    return min((_added(graph, body) for body in bodies), key=lambda made: sum(made.values()))


def _added(graph: Graph, body: str) -> dict[str, int]:
    before = graph.stats()
    do(graph, body)
    made = graph.stats().since(before).calls
    over = {name: count - OF_A_COMMIT.get(name, 0) for name, count in made.items()}
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
    assert keyed == {"lance.scan": 1}  # is the key in use?
    assert added(people, *['insert Note { text: "y" }'] * 3) == {}
    ends = (("A", "A"), ("B", "A"), ("B", "B"))
    edge = added(people, *(f'insert Knows {{ from: "{a}", to: "{b}" }}' for a, b in ends))
    # Both ends at once, and the pair that must be new; a lock for the table that was looked at.
    assert edge == {"lance.scan": 2, "lock.acquire": 1}


def test_a_mutation_that_changes_nothing_only_looks(people: Graph) -> None:
    do(people, 'insert Person { name: "A" } insert Company { name: "A" }')
    before = people.stats()
    do(people, 'delete Company where name = "none"')
    do(people, 'update Person set { age: 1 } where name = "none"')
    made = people.stats().since(before).calls
    assert made == {"object.list": 2, "object.head": 2, "object.get": 2, "lance.scan": 2}
