"""Diffs across renames of types and properties: by identity, under the names of today."""

from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph.graph import Graph

BEFORE = """
node Person {
    name: String @key
    age: I32?
}

node Note {
    text: String?
}

edge Knows: Person -> Person {
    since: I32?
}
"""
AFTER = """
node Human @rename_from("Person") {
    name: String @key
    years: I32? @rename_from("age")
}

node Note {
    text: String?
}

edge Met: Human -> Human @rename_from("Knows") {
    year: I32? @rename_from("since")
}
"""
WITHOUT_NOTES = AFTER.replace("node Note {\n    text: String?\n}\n", "")


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    graph = og.init(tmp_path / "graph.omni", schema=BEFORE)
    graph.mutate(
        """query q() { insert Person { name: "Ada", age: 36 } insert Person { name: "Bob" }
        insert Knows { from: "Ada", to: "Bob", since: 2010 } }"""
    )
    return graph


def renamed(graph: Graph) -> tuple[str, str, str]:
    """Rename everything and change something; the commits before, of the rename and after."""
    before = graph.snapshot().commit_id
    graph.schema.apply(AFTER)
    between = graph.snapshot().commit_id
    graph.mutate(
        """query q() { update Human set { years: 37 } where name = "Ada"
        insert Human { name: "Cy", years: 5 } insert Met { from: "Cy", to: "Ada", year: 2020 } }"""
    )
    return before, between, graph.snapshot().commit_id


def told(changes: Any) -> list[tuple[Any, ...]]:
    return [
        (c.type, c.op, c.before and c.before.properties, c.after and c.after.properties)
        for c in changes
    ]


EXPECTED = [
    ("Human", "update", {"name": "Ada", "years": 36}, {"name": "Ada", "years": 37}),
    ("Human", "insert", None, {"name": "Cy", "years": 5}),
    ("Met", "insert", None, {"year": 2020}),
]


def test_a_diff_across_renames_lists_what_changed_and_nothing_else(graph: Graph) -> None:
    before, between, after = renamed(graph)
    assert told(graph.diff(before, between)) == []
    assert told(graph.diff(before, after)) == EXPECTED
    assert told(graph.diff(between, after)) == EXPECTED
    back = told(graph.diff(after, before))
    assert back[0] == ("Person", "update", {"name": "Ada", "age": 37}, {"name": "Ada", "age": 36})
    assert [(name, op) for name, op, *_ in back] == [
        ("Person", "update"),
        ("Person", "delete"),
        ("Knows", "delete"),
    ]
    assert told(graph.diff(before, after, types=["Met"])) == EXPECTED[2:]
    with pytest.raises(og.NotFound, match="type 'Knows'"):
        graph.diff(before, after, types=["Knows"])


def test_the_changes_of_a_commit_are_in_the_names_it_was_written_in(graph: Graph) -> None:
    before, between, after = renamed(graph)
    assert told(graph.commits.changes(between)) == []
    assert told(graph.commits.changes(after)) == EXPECTED
    old = graph.commits.changes(before)
    assert [(c.type, c.op) for c in old] == [
        ("Person", "insert"),
        ("Person", "insert"),
        ("Knows", "insert"),
    ]
    new = {(c.kind, c.type_id) for c in graph.commits.changes(after)}
    assert {(c.kind, c.type_id) for c in old} == new, "a type keeps its id"


def test_a_feed_goes_on_across_a_rename_with_its_filters(graph: Graph) -> None:
    cursor = graph.changes.poll(types=["Person"]).cursor
    renamed(graph)
    page = graph.changes.poll(cursor=cursor, types=["Human"])
    assert [told(block.changes) for block in page.blocks] == [[], EXPECTED[:2]]
    whole = graph.changes.poll(start="beginning", types=["Human"])
    assert [[c.id for c in block.changes] for block in whole.blocks] == [
        ["Ada", "Bob"],
        [],
        ["Ada", "Cy"],
    ]
    with pytest.raises(og.NotFound, match="type 'Person'"):
        graph.changes.poll(cursor=cursor, types=["Person"])


def test_a_baseline_after_a_rename_is_in_todays_names(graph: Graph) -> None:
    renamed(graph)
    baseline = graph.changes.baseline(types=["Human", "Met"], kinds=["node"])
    assert [record["data"] for record in baseline] == [
        {"id": "Ada", "name": "Ada", "years": 37},
        {"id": "Bob", "name": "Bob", "years": None},
        {"id": "Cy", "name": "Cy", "years": 5},
    ]


def test_a_type_that_went_away_with_its_entities_is_a_boundary(graph: Graph) -> None:
    graph.mutate('query q() { insert Note { text: "x" } }')
    before, _, after = renamed(graph)
    graph.schema.apply(WITHOUT_NOTES, allow_data_loss=True)
    dropped = graph.snapshot().commit_id
    with pytest.raises(og.NoChanges, match=r"of Note .*schema_boundary"):
        list(graph.commits.changes(dropped))
    with pytest.raises(og.NoChanges, match="schema_boundary"):
        list(graph.diff(before, dropped))
    assert told(graph.diff(before, dropped, types=["Human"])) == EXPECTED[:2]
    assert told(graph.diff(before, after)) == EXPECTED


def test_branches_made_after_a_rename_merge(graph: Graph) -> None:
    renamed(graph)
    graph.branches.create("b")
    graph.mutate('query q() { update Human set { years: 1 } where name = "Bob" }', branch="b")
    graph.mutate('query q() { update Human set { years: 2 } where name = "Cy" }')
    assert [c.id for c in graph.diff("main", "b")] == ["Bob", "Cy"]
    assert graph.branches.merge("b").kind == "merged"
    found = graph.query("query q() { match { $h: Human } return { $h.name, $h.years } }")
    assert sorted((row["h.name"], row["h.years"]) for row in found.rows) == [
        ("Ada", 37),
        ("Bob", 1),
        ("Cy", 2),
    ]


def test_a_property_that_was_dropped_and_added_again_is_another_one(graph: Graph) -> None:
    before = graph.snapshot().commit_id
    graph.schema.apply(BEFORE.replace("    age: I32?\n", ""))
    graph.schema.apply(BEFORE)
    graph.mutate('query q() { update Person set { age: 36 } where name = "Ada" }')
    expected = ("Person", "update", {"name": "Ada", "age": None}, {"name": "Ada", "age": 36})
    assert told(graph.diff(before, "main")) == [expected]
    assert told(graph.diff("main~1", "main")) == [expected]
