"""Merges of branches with different schemas: what meets, what is taken, what is a conflict."""

from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph.errors import MergeConflict
from omnigraph.graph import Graph

BASE = """// people
node Person { name: String @key  age: I32  mood: enum(calm, glad)? }
edge Knows: Person -> Person
"""
TOPIC = "node Topic { key: String @key  size: I32 @index }\n"
LIKES = "// what a person likes\nedge Likes: Person -> Topic\n"


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    graph = og.init(tmp_path / "g", BASE)
    people = [{"name": name, "age": age} for age, name in enumerate(("Ada", "Bob", "Cy"))]
    graph.load([{"type": "Person", "data": data} for data in people], "append")
    graph.branches.create("b")
    return graph


def wider(*pairs: tuple[str, str], text: str = BASE, more: str = "") -> str:
    for old, new in pairs:
        assert old in text
        text = text.replace(old, new)
    return text + more


def people(graph: Graph, *names: str, branch: str = "main") -> dict[str, tuple[Any, ...]]:
    wanted = ", ".join(f"$p.{name} as {name}" for name in names)
    read = f"query q() {{ match {{ $p: Person }} return {{ $p.name as n, {wanted} }} }}"
    rows = graph.query(read, branch=branch).rows
    return {row["n"]: tuple(row[name] for name in names) for row in rows}


def change(graph: Graph, statement: str, branch: str = "main") -> None:
    graph.mutate(f"query m() {{ {statement} }}", branch=branch)


def conflicts(graph: Graph) -> tuple[MergeConflict, ...]:
    head = graph.snapshot().commit_id
    with pytest.raises(og.MergeConflicts) as refused:
        graph.branches.merge("b")
    assert graph.snapshot().commit_id == head
    assert {each.kind for each in refused.value.conflicts} == {"schema_conflict"}
    assert "schema_conflict" in str(refused.value)
    return refused.value.conflicts


# ---- a branch has its own schema


def test_main_is_widened_while_a_branch_keeps_its_schema(graph: Graph) -> None:
    text = wider(("age: I32", "age: I64  score: F64 = 1.5"), more=TOPIC)
    graph.schema.apply(text)
    assert graph.schema.on("b").text == BASE
    assert graph.branch("b").schema.catalog.node("Topic") is None
    with pytest.raises(og.TypeCheckError):
        people(graph, "score", branch="b")
    record = {"type": "Person", "data": {"name": "Dee", "age": 1, "score": 2.0}}
    with pytest.raises(og.ConstraintViolated, match="unknown property 'score'"):
        graph.load([record], "append", branch="b")
    graph.load([{"type": "Person", "data": {"name": "Dee", "age": 1}}], "append", branch="b")
    change(graph, 'insert Person { name: "Eve", age: 2 }', "b")
    assert set(people(graph, "age", branch="b")) == {"Ada", "Bob", "Cy", "Dee", "Eve"}
    assert people(graph, "score")["Ada"] == (1.5,)
    graph.optimize("b")
    graph.ensure_indices("b")
    assert graph.check().findings == ()


def test_a_load_that_makes_its_branch_has_the_schema_it_is_made_from(graph: Graph) -> None:
    graph.schema.apply(wider(more=TOPIC), branch="b")
    record = {"type": "Topic", "data": {"key": "t", "size": 1}}
    graph.load([record], "append", branch="c", from_branch="b")
    assert graph.schema.on("c").text == graph.schema.on("b").text
    assert [change.id for change in graph.diff("b", "c")] == ["t"]


def test_what_narrows_is_refused_with_the_branches_and_the_step(graph: Graph) -> None:
    graph.branches.create("a")
    for text in (
        wider(("age: I32", "")),
        wider(("age: I32", 'years: I32 @rename_from("age")')),
        wider(("age: I32", "age: I32 @unique")),
        wider(("Person -> Person", "Person -> Person @card(0..1)")),
        wider(("age: I32", "age: I32  nick: I32 @backfill(1)")),
    ):
        with pytest.raises(og.SchemaHeld, match=r"\(.+\)") as refused:
            graph.schema.apply(text)
        assert refused.value.branches == ("a", "b")
        with pytest.raises(og.SchemaHeld) as refused:
            graph.schema.apply(text, branch="b")
        assert refused.value.branches == ("a", "main")
        assert "merge or delete this branch and 'a', then apply to main" in str(refused.value)
    assert graph.schema.text == graph.schema.on("b").text == BASE


def test_what_is_deleted_with_its_branch_leaves_nothing(graph: Graph) -> None:
    graph.schema.apply(wider(more=TOPIC), branch="b")
    change(graph, 'insert Topic { key: "t", size: 1 }', "b")
    graph.branches.delete("b")
    assert graph.schema.catalog.node("Topic") is None
    assert graph.check().findings == ()
    graph.schema.apply(wider(more=TOPIC))
    assert graph.snapshot().tables["node:Topic"].row_count == 0
    assert graph.check().findings == ()


# ---- merges


def test_main_got_a_property_while_the_branch_wrote_rows(graph: Graph) -> None:
    graph.schema.apply(wider(("age: I32", "age: I64  score: F64 = 1.5  nick: String?")))
    change(graph, 'update Person set { score: 9.0 } where name = "Ada"')
    change(graph, 'insert Person { name: "Eve", age: 7 }', "b")
    change(graph, 'update Person set { age: 70 } where name = "Bob"', "b")
    before = graph.snapshot().commit_id
    done = graph.branches.merge("b")
    assert done.kind == "merged"
    assert people(graph, "age", "score", "nick") == {
        "Ada": (0, 9.0, None),
        "Bob": (70, 1.5, None),
        "Cy": (2, 1.5, None),
        "Eve": (7, 1.5, None),
    }
    assert graph.check().findings == ()
    assert done.commit is not None
    told = [(c.id, c.op) for c in graph.commits.changes(done.commit.id)]
    assert told == [("Bob", "update"), ("Eve", "insert")]
    assert (
        len(
            graph.query(
                "query q() { match { $p: Person } return { $p.age } }", snapshot=before
            ).rows
        )
        == 3
    )

    assert graph.branches.merge("main", into="b").kind == "fast_forward"
    assert graph.schema.on("b").text == graph.schema.text
    assert people(graph, "age", "score", branch="b")["Ada"] == (0, 9.0)
    assert graph.check().findings == ()


def test_an_update_of_each_side_meets_by_property(graph: Graph) -> None:
    graph.schema.apply(wider(("age: I32", "age: I32  score: F64 = 1.5")))
    change(graph, 'update Person set { score: 9.0 } where name = "Ada"')
    change(graph, 'update Person set { age: 50 } where name = "Ada"', "b")
    with pytest.raises(og.MergeConflicts) as refused:
        graph.branches.merge("b")
    (conflict,) = refused.value.conflicts
    assert (conflict.kind, conflict.entity_id) == ("divergent_update", "Ada")
    graph.branches.merge("b", by="property")
    assert people(graph, "age", "score")["Ada"] == (50, 9.0)


def test_both_sides_add_and_widen_and_the_merge_has_it_all(graph: Graph) -> None:
    theirs = wider(
        ("age: I32", "age: I32  nick: String?  rank: I32 = 3"),
        ("calm, glad", "calm, glad, sad"),
        more=TOPIC + LIKES,
    )
    graph.schema.apply(theirs, branch="b")
    graph.load(
        [
            {"type": "Topic", "data": {"key": "t", "size": 1}},
            {"edge": "Likes", "from": "Ada", "to": "t"},
            {"type": "Person", "data": {"name": "Dee", "age": 5, "nick": "D", "rank": 4}},
        ],
        "append",
        branch="b",
    )
    change(graph, 'update Person set { mood: "sad" } where name = "Cy"', "b")
    ours = wider(("age: I32", "age: I64  city: String?"), ("calm, glad", "calm, glad, mad"))
    graph.schema.apply(ours)
    change(graph, 'insert Person { name: "Eve", age: 5000000000, mood: "mad" }')
    before = graph.snapshot().commit_id

    done = graph.branches.merge("b", actor="act-m")
    assert done.commit is not None
    assert len(graph.commits.list(limit=100)) == len({c.id for c in graph.commits.list(limit=100)})
    assert graph.snapshot().commit_id == done.commit.id
    assert people(graph, "age", "nick", "rank", "city", "mood") == {
        "Ada": (0, None, 3, None, None),
        "Bob": (1, None, 3, None, None),
        "Cy": (2, None, 3, None, "sad"),
        "Dee": (5, "D", 4, None, None),
        "Eve": (5000000000, None, 3, None, "mad"),
    }
    likes = "query q() { match { $p: Person  $p likes $t } return { $p.name as p, $t.size as s } }"
    assert graph.query(likes).rows == [{"p": "Ada", "s": 1}]
    assert graph.check().findings == ()
    assert graph.schema.on("b").text == theirs
    assert "// people" in graph.schema.text
    assert "// what a person likes" in graph.schema.text
    assert graph.schema.plan(graph.schema.text).steps == ()
    assert og.open(graph.uri).schema.text == graph.schema.text
    assert graph.schema.at(before).text == ours
    told = {(c.type, c.op) for c in graph.commits.changes(done.commit.id)}
    assert {("Topic", "insert"), ("Likes", "insert"), ("Person", "insert")} <= told


def test_a_type_born_on_a_branch_is_merged_again_both_ways(graph: Graph) -> None:
    graph.schema.apply(wider(more=TOPIC), branch="b")
    change(graph, 'insert Topic { key: "t", size: 1 }', "b")
    assert graph.branches.merge("b").kind == "fast_forward"
    assert graph.schema.text == graph.schema.on("b").text
    change(graph, 'update Topic set { size: 2 } where key = "t"', "b")
    change(graph, 'insert Topic { key: "m", size: 3 }')
    assert [(c.id, c.op) for c in graph.diff("main", "b")] == [("m", "delete"), ("t", "update")]
    assert graph.branches.merge("b").kind == "merged"
    graph.branches.merge("main", into="b")
    read = "query q() { match { $t: Topic } return { $t.key as k, $t.size as s } order { k } }"
    expected = [{"k": "m", "s": 3}, {"k": "t", "s": 2}]
    assert graph.query(read).rows == graph.query(read, branch="b").rows == expected
    assert list(graph.diff("main", "b")) == []
    assert graph.check().findings == ()


def test_a_type_that_both_add_alike_meets_under_the_identity_of_the_target(graph: Graph) -> None:
    graph.schema.apply(wider(more=TOPIC))
    graph.schema.apply(wider(more="node Extra { x: I32 }\n" + TOPIC), branch="b")
    ids = {graph.schema.on(name).catalog.nodes["Topic"].id for name in ("main", "b")}
    assert len(ids) == 2
    own = graph.schema.catalog.nodes["Topic"].id
    change(graph, 'insert Topic { key: "both", size: 1 }')
    change(graph, 'insert Topic { key: "both", size: 1 }', "b")
    change(graph, 'insert Topic { key: "b", size: 1 }', "b")
    graph.branches.merge("b")
    assert graph.schema.catalog.nodes["Topic"].id == own
    graph.schema.apply(
        wider(
            ("size: I32 @index", 'size: I32 @index  hue: String = "red"'),
            text=graph.schema.on("b").text,
        ),
        branch="b",
    )
    change(graph, 'update Topic set { size: 2, hue: "blue" } where key = "both"', "b")
    graph.branches.merge("b")
    read = "query q() { match { $t: Topic } return { $t.key as k, $t.size as s, $t.hue as h } }"
    assert {row["k"]: (row["s"], row["h"]) for row in graph.query(read).rows} == {
        "both": (2, "blue"),
        "b": (1, "red"),
    }
    assert graph.check().findings == ()


def test_an_edge_of_a_new_type_whose_node_is_gone_is_an_orphan(graph: Graph) -> None:
    graph.schema.apply(wider(more=TOPIC + LIKES), branch="b")
    change(graph, 'insert Topic { key: "t", size: 1 }', "b")
    change(graph, 'insert Likes { from: "Ada", to: "t" }', "b")
    change(graph, 'delete Person where name = "Ada"')
    folders = set(Path(graph.uri).joinpath("nodes").iterdir())
    with pytest.raises(og.MergeConflicts) as refused:
        graph.branches.merge("b")
    (conflict,) = refused.value.conflicts
    assert (conflict.kind, conflict.type_name) == ("orphan_edge", "Likes")
    assert set(Path(graph.uri).joinpath("nodes").iterdir()) == folders, "a table was left behind"
    assert graph.schema.text == BASE


def test_a_branch_of_a_branch_brings_the_schema_of_both(graph: Graph) -> None:
    graph.schema.apply(wider(("age: I32", "age: I32  nick: String?")), branch="b")
    graph.branches.create("c", from_="b")
    graph.schema.apply(wider(("age: I32", "age: I32  nick: String?"), more=TOPIC), branch="c")
    change(graph, 'update Person set { nick: "A" } where name = "Ada"', "c")
    graph.schema.apply(wider(("age: I32", "age: I32  rank: I32 = 1")))
    graph.branches.merge("c")
    assert people(graph, "nick", "rank")["Ada"] == ("A", 1)
    assert graph.schema.catalog.node("Topic") is not None
    graph.branches.merge("b")
    assert people(graph, "nick", "rank")["Ada"] == ("A", 1)
    assert graph.check().findings == ()


# ---- conflicts


@pytest.mark.parametrize(
    ("ours", "theirs", "word"),
    [
        ("age: I32  x: I32?", "age: I32  x: String?", "Person.x was added on both sides"),
        ("age: I32 = 1", "age: I32 = 2", "the default of Person.age"),
        ('age: I32 @description("a")', 'age: I32 @description("b")', "@description of Person.age"),
    ],
)
def test_what_both_sides_changed_is_a_conflict_that_shows_both(
    graph: Graph, ours: str, theirs: str, word: str
) -> None:
    graph.schema.apply(wider(("age: I32", ours)))
    graph.schema.apply(wider(("age: I32", theirs)), branch="b")
    (conflict,) = conflicts(graph)
    assert (conflict.entity_kind, conflict.type_name) == ("node", "Person")
    assert word in conflict.message
    assert conflict.ours is not None
    assert conflict.theirs is not None
    assert conflict.ours["definition"] != conflict.theirs["definition"]


def test_a_type_that_both_add_differently_is_a_conflict(graph: Graph) -> None:
    graph.schema.apply(wider(more=TOPIC))
    graph.schema.apply(wider(more=TOPIC.replace("I32", "I64")), branch="b")
    (conflict,) = conflicts(graph)
    assert (conflict.type_name, conflict.ours is None, conflict.theirs is None) == (
        "Topic",
        False,
        False,
    )
    graph.schema.apply(wider(more=TOPIC.replace("I32", "I64")))
    assert graph.branches.merge("b").kind == "merged"
    assert graph.check().findings == ()


def test_a_property_that_both_add_alike_keeps_its_values_both_ways(graph: Graph) -> None:
    text = wider(("age: I32", 'age: I32  nick: String = "x"'))
    graph.schema.apply(text)
    graph.schema.apply(text, branch="b")
    change(graph, 'update Person set { nick: "b" } where name = "Bob"', "b")
    graph.branches.merge("b")
    change(graph, 'update Person set { nick: "a" } where name = "Ada"')
    graph.branches.merge("main", into="b")
    expected = {"Ada": ("a",), "Bob": ("b",), "Cy": ("x",)}
    assert people(graph, "nick") == people(graph, "nick", branch="b") == expected
    change(graph, 'update Person set { nick: "c" } where name = "Cy"', "b")
    graph.branches.merge("b")
    assert people(graph, "nick")["Cy"] == ("c",)
    assert list(graph.diff("main", "b")) == []
    assert graph.check().findings == ()


@pytest.mark.parametrize("undo", ["revert", "restore"])
def test_values_of_a_property_that_both_add_alike_are_undone(graph: Graph, undo: str) -> None:
    text = wider(("age: I32", "age: I32  rank: I32 = 3"))
    graph.schema.apply(wider(("age: I32", "age: I32  city: String?  rank: I32 = 3")))
    graph.schema.apply(text, branch="b")
    ids = {graph.schema.on(name).catalog.nodes["Person"].property("rank") for name in ("main", "b")}
    assert len(ids) == 2
    change(graph, 'update Person set { rank: 8 } where name = "Ada"', "b")
    graph.branches.merge("b")
    before = graph.snapshot("b").commit_id
    change(graph, 'update Person set { rank: 9 } where name = "Ada"', "b")
    graph.branches.merge("b")
    change(graph, 'update Person set { city: "Rome" } where name = "Bob"')
    assert people(graph, "rank")["Ada"] == (9,)
    if undo == "revert":
        assert graph.revert(graph.snapshot("b").commit_id).kind == "reverted"
        assert people(graph, "city")["Bob"] == ("Rome",)
    else:
        assert graph.restore(before).kind == "restored"
        assert people(graph, "city")["Bob"] == (None,)
    assert people(graph, "rank") == {"Ada": (8,), "Bob": (3,), "Cy": (3,)}
    assert graph.check().findings == ()


def test_what_a_branch_did_to_a_type_that_it_brought_is_undone_on_main(graph: Graph) -> None:
    graph.schema.apply(wider(more=TOPIC + LIKES), branch="b")
    change(graph, 'insert Topic { key: "t", size: 1 }', "b")
    graph.branches.merge("b")
    point = graph.snapshot("b").commit_id
    change(graph, 'update Topic set { size: 2 } where key = "t"', "b")
    change(graph, 'insert Topic { key: "m", size: 3 }')
    graph.branches.merge("b")
    graph.revert(graph.snapshot("b").commit_id)
    read = "query q() { match { $t: Topic } return { $t.key as k, $t.size as s } order { k } }"
    assert graph.query(read).rows == [{"k": "m", "s": 3}, {"k": "t", "s": 1}]
    graph.restore(point)
    assert graph.query(read).rows == [{"k": "t", "s": 1}]
    assert graph.check().findings == ()


def test_edges_whose_names_differ_in_case_alone_are_a_conflict(graph: Graph) -> None:
    graph.schema.apply(wider(more="edge Likes: Person -> Person\n"))
    graph.schema.apply(wider(more="edge LIKES: Person -> Person\n"), branch="b")
    (conflict,) = conflicts(graph)
    assert (conflict.entity_kind, conflict.type_name) == ("edge", "LIKES")
    assert "'Likes' and 'LIKES'" in conflict.message
    assert conflict.ours is None
    assert conflict.theirs is not None


def test_a_default_that_the_rows_of_the_other_side_all_get_is_not_unique(graph: Graph) -> None:
    change(graph, "delete Person where age > 0", "b")
    graph.schema.apply(wider(("age: I32", 'age: I32  code: String = "x" @unique')), branch="b")
    change(graph, 'update Person set { age: 5 } where name = "Bob"')
    change(graph, 'update Person set { age: 5 } where name = "Cy"')
    with pytest.raises(og.MergeConflicts) as refused:
        graph.branches.merge("b", resolve="ours")
    assert {each.kind for each in refused.value.conflicts} == {"unique_violation"}
    assert graph.check().findings == ()
