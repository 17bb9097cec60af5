"""Mutations and queries together, through the public door, on disk and on S3."""

from typing import Any

import pytest

import omnigraph as og
from omnigraph.graph import Graph
from omnigraph.graph.handles import BranchHandle
from tests.exec.town import SCHEMA, do
from tests.storage.conftest import s3, s3_server
from tests.storage.world import Where

__all__ = ["s3", "s3_server"]

FRIENDS = """
query friends($n: String) {
    match { $p: Person { name: $n }  $p knows $f }
    return { $f.name as name, $f.age as age }
    order { name }
}
"""


def friends(door: Graph | BranchHandle) -> list[tuple[str, int | None]]:
    return [(row["name"], row["age"]) for row in door.query(FRIENDS, {"n": "Ada"})]


def walk(graph: Graph) -> None:
    """Write, read, branch, change, delete, and look back."""
    do(
        graph,
        """
        insert Person { name: "Ada" } insert Person { name: "Bob", age: 25 }
        insert Knows { from: "Ada", to: "Bob" }
        """,
    )
    first = graph.snapshot().commit_id
    assert friends(graph) == [("Bob", 25)]
    graph.branches.create("review")
    review = graph.branch("review")
    done = review.mutate(
        """query more($n: String) {
            insert Person { name: $n } insert Knows { from: "Ada", to: $n }
            update Person set { age: 7 } where age is null
        }""",
        {"n": "Cid"},
    )
    assert (done.affected_nodes, done.affected_edges) == (2, 1), "Cid counts once"
    assert friends(review) == [("Bob", 25), ("Cid", 7)]
    assert friends(graph) == [("Bob", 25)]
    do(graph, 'delete Person where name = "Bob"')
    assert friends(graph) == []
    back = graph.query(FRIENDS, {"n": "Ada"}, snapshot=first)
    assert (len(back), back.commit_id) == (1, first)
    with pytest.raises(og.ConstraintViolated, match="dst 'Bob' not found in Person"):
        do(graph, 'insert Knows { from: "Ada", to: "Bob" }')


def test_what_is_written_is_read(people: Graph) -> None:
    walk(people)


def test_what_is_written_is_read_with_indexes(people: Graph) -> None:
    """An index changes how fast an answer comes, never the answer."""
    people.ensure_indices()
    walk(people)
    people.ensure_indices()
    do(people, 'insert Person { name: "Ada", age: 1 } insert Person { name: "Eve", email: "e" }')
    with pytest.raises(og.ConstraintViolated, match="held by 'Ada' and 'Eve'"):
        do(people, 'update Person set { email: "e" } where name = "Ada"')
    done = do(people, "delete Person where age >= 0")
    assert (done.affected_nodes, done.affected_edges) == (1, 0)


def test_what_is_written_is_read_on_s3(s3: Where) -> None:
    walk(og.init(s3.uri, schema=SCHEMA, storage_options=s3.options))


def test_a_query_that_writes_is_refused_by_the_reading_door(people: Graph) -> None:
    with pytest.raises(og.BadRequest, match="contains mutations"):
        people.query('query q() { insert Company { name: "A" } }')


@pytest.mark.parametrize("actor", ["\ud800", 3])
def test_an_actor_that_cannot_be_written_down_is_refused(people: Graph, actor: Any) -> None:
    with pytest.raises(og.BadRequest, match="actor"):
        people.mutate('query q() { insert Company { name: "A" } }', actor=actor)
    with pytest.raises(og.NotFound):
        people.query("query q() { match { $c: Company } return { $c.name } }", branch="\ud800")
