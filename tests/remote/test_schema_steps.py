"""Schema steps of diffs, merge previews, reviews and commits, of files and over HTTP."""

from collections.abc import Iterable

import omnigraph as og
from tests.remote.both import Maker

SCHEMA = """
node Person { name: String @key  age: I32? }
edge Knows: Person -> Person
"""
WIDER = """
node Person { name: String @key  age: I64?  city: String? @index  score: I32?  @range(score, 0..9) }
node Company { name: String @key }
edge Knows: Person -> Person
"""
STEPS = [
    "add node type 'Company'",
    "widen property 'Person.age' (I32? -> I64?) on node 'Person'",
    "add property 'Person.city' (String?) on node 'Person'",
    "add property 'Person.score' (I32?) on node 'Person'",
    "add constraint @range(score, 0..9) on node 'Person'",
    "add constraint @index(city) on node 'Person'",
]
LINE = '{"type": "Person", "data": {"name": "Ada", "age": 36}}'


def _texts(steps: Iterable[object]) -> list[str]:
    return sorted(map(str, steps))


def test_a_schema_change_of_a_branch_is_in_its_diff_preview_review_and_commits(new: Maker) -> None:
    graph = new(SCHEMA, LINE)
    graph.branches.create("wider")
    graph.schema.apply(WIDER, branch="wider")
    expected = sorted(STEPS)
    assert _texts(graph.diff("main", "wider").schema_steps) == expected
    assert _texts(graph.diff("wider", "main").schema_steps) == sorted(
        [
            "drop node type 'Company'",
            "changing property type from I64? to I32? on node:Person.age",
            "drop property 'Person.city' of node 'Person'",
            "drop property 'Person.score' of node 'Person'",
            "drop constraint @range(score, 0..9) on node 'Person'",
            "drop constraint @index(city) on node 'Person'",
        ]
    )
    assert not graph.diff("main~1", "main").schema_steps
    preview = graph.branches.merge("wider", dry_run=True)
    assert _texts(preview.schema_steps) == expected
    assert [step["text"] for step in preview.to_json()["schema_steps"]] == [
        str(step) for step in preview.schema_steps
    ]
    review = graph.reviews.open("wider", title="Cities")
    assert _texts(review.schema_steps) == expected
    assert _texts(graph.reviews.get(review.id).schema_steps) == expected
    newest, *older = graph.commits.list("wider")
    assert _texts(newest.schema_steps) == expected
    assert newest.changed.startswith("[schema: ")
    assert newest.changed.endswith("; and 5 more]")
    assert not any(each.schema_steps for each in older)
    assert graph.commits.get("wider").schema_steps == newest.schema_steps
    assert graph.commits.list("wider", limit=1) == (newest,)
    assert graph.commits.list("wider", limit=1)[0].schema_steps == newest.schema_steps
    assert _texts(graph.commits.changes("wider").schema_steps) == expected
    [block] = graph.changes.poll("wider", start="after:main").blocks
    assert block.cause.schema_steps == newest.schema_steps
    merged = graph.branches.merge("wider")
    assert _texts(merged.schema_steps) == expected
    assert _texts(graph.commits.get("main").schema_steps) == expected


def test_what_both_branches_added_is_no_step(new: Maker) -> None:
    graph = new(SCHEMA, LINE)
    graph.branches.create("wider")
    graph.schema.apply(WIDER, branch="wider")
    graph.schema.apply(WIDER.replace("node Company { name: String @key }", ""))
    assert _texts(graph.diff("main", "wider").schema_steps) == ["add node type 'Company'"]
    assert _texts(graph.branches.merge("wider", dry_run=True).schema_steps) == [
        "add node type 'Company'"
    ]


def test_a_required_property_that_was_filled_is_an_added_property(new: Maker) -> None:
    graph = new(SCHEMA, LINE)
    required = SCHEMA.replace("age: I32?", "age: I32?  city: String")
    graph.schema.apply(required, backfill={"Person.city": "'Rome'"})
    assert _texts(graph.diff("main~1", "main").schema_steps) == [
        "add property 'Person.city' (String) on node 'Person'"
    ]


def test_renames_are_renames_in_every_direction(new: Maker) -> None:
    graph = new(SCHEMA, LINE)
    graph.schema.apply(SCHEMA.replace("age: I32?", 'years: I32? @rename_from("age")'))
    assert _texts(graph.diff("main~1", "main").schema_steps) == [
        "rename property 'Person.age' -> 'Person.years' on node 'Person'"
    ]
    assert _texts(graph.diff("main", "main~1").schema_steps) == [
        "rename property 'Person.years' -> 'Person.age' on node 'Person'"
    ]


def test_steps_are_equal_however_they_are_read(new: Maker) -> None:
    graph = new(SCHEMA, LINE)
    graph.schema.apply(WIDER)
    [step] = [each for each in graph.diff("main~1", "main").schema_steps if "add node" in str(each)]
    assert step == og.SchemaStep(
        "add node type 'Company'", {"kind": "add_type", "type_kind": "node", "name": "Company"}
    )
