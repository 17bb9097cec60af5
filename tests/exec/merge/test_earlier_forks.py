"""Merges with a branch made of an earlier commit, from before the schema of main narrowed."""

from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph.errors import MergeConflict
from omnigraph.graph import Graph
from tests.exec.evolving import dump, of_type

BASE = "node Person { name: String @key  age: I32? }\nedge Knows: Person -> Person\n"
TOPIC = "node Topic { key: String @key }\n"
HUMAN = """node Human @rename_from("Person") { name: String @key  age: I32? }
edge Knows: Human -> Human
"""
KEYED = BASE.replace("-> Person", "-> Person @key(src, dst)")


def made(path: Path, schema: str = BASE) -> Graph:
    """Three people, the first of whom knows the second."""
    graph = og.init(path / "g", schema)
    people = [{"name": name, "age": age} for age, name in enumerate(("Ada", "Bob", "Cy"))]
    records = [{"type": "Person", "data": data} for data in people]
    graph.load([*records, {"edge": "Knows", "from": "Ada", "to": "Bob"}], "append")
    return graph


def narrowed(graph: Graph, *schemas: str) -> None:
    """Main under these schemas, one after the other; `b` as main was before them."""
    before = graph.snapshot().commit_id
    for text in schemas:
        graph.schema.apply(text)
    graph.branches.create("b", from_=before)


def change(graph: Graph, statement: str, branch: str = "main") -> None:
    graph.mutate(f"query m() {{ {statement} }}", branch=branch)


def rows(graph: Graph, name: str, branch: str = "main") -> dict[str, dict[str, Any]]:
    return of_type(dump(graph, graph.snapshot(branch).commit_id), name)


def ages(graph: Graph, name: str = "Person", branch: str = "main") -> dict[str, int | None]:
    return {entity: row["age"] for entity, row in rows(graph, name, branch).items()}


def conflicts(graph: Graph, source: str = "b", into: str = "main") -> list[MergeConflict]:
    """The conflicts of a merge, which its preview has too; nothing is written."""
    head = graph.snapshot(into).commit_id
    with pytest.raises(og.MergeConflicts) as refused:
        graph.branches.merge(source, into=into)
    preview = graph.branches.merge(source, into=into, dry_run=True)
    assert preview.conflicts == refused.value.conflicts
    assert graph.snapshot(into).commit_id == head
    assert graph.check().findings == ()
    return list(refused.value.conflicts)


BOTH_WAYS = pytest.mark.parametrize(("source", "into"), [("b", "main"), ("main", "b")])


# ---- names that others have now


def test_a_type_is_known_under_its_new_name_where_another_has_the_old_one(tmp_path: Path) -> None:
    graph = made(tmp_path)
    narrowed(graph, HUMAN, HUMAN + "node Person { name: String @key  age: I32? }\n")
    graph.load([{"type": "Person", "data": {"name": "New", "age": 9}}], "append")
    change(graph, 'update Person set { age: 40 } where name = "Ada"', "b")
    told = [(c.op, c.type, c.id) for c in graph.diff("b", "main")]
    assert told == [("update", "Human", "Ada"), ("insert", "Person", "New")]
    with pytest.raises(og.NoChanges, match="Person"):  # b has no such type
        list(graph.diff("main", "b"))

    assert graph.branches.merge("b").kind == "merged"
    assert ages(graph, "Human") == {"Ada": 40, "Bob": 1, "Cy": 2}
    assert ages(graph) == {"New": 9}
    assert graph.check().findings == ()


@pytest.mark.parametrize("text", [BASE, BASE + TOPIC], ids=["unchanged", "changed"])
def test_a_branch_takes_a_renamed_type_and_the_one_that_has_its_name(
    tmp_path: Path, text: str
) -> None:
    graph = made(tmp_path)
    narrowed(graph, HUMAN, HUMAN + "node Person { name: String @key  age: I32? }\n")
    graph.load([{"type": "Person", "data": {"name": "New", "age": 9}}], "append")
    graph.schema.apply(text, branch="b")
    graph.branches.merge("main", into="b")
    assert ages(graph, "Human", "b") == {"Ada": 0, "Bob": 1, "Cy": 2}
    assert ages(graph, branch="b") == {"New": 9}
    ids = [graph.schema.on(name).catalog.nodes["Human"].id for name in ("main", "b")]
    assert ids[0] == ids[1]
    assert graph.check().findings == ()


@pytest.mark.parametrize(
    ("was", "ours", "theirs", "fault"),
    [
        ("age: I32?", 'q: I32? @rename_from("age")', "age: I32?  q: String?", "q"),
        ("age: I32?", "age: I32?  @range(age, 0..20)", "age: I32? = 50", "default of Person.age"),
        (
            "Knows: Person -> Person { at: I32 = 1 }",
            "Knows: Person -> Person @key(src, dst, at) { at: I32 = 1 }",
            "Knows: Person -> Person { at: I32? = 1 }",
            "Knows.at cannot be nullable",
        ),
    ],
    ids=["two-names", "default-out-of-range", "nullable-key"],
)
@BOTH_WAYS
def test_what_makes_no_schema_together_is_a_conflict(
    tmp_path: Path, was: str, ours: str, theirs: str, fault: str, source: str, into: str
) -> None:
    base = BASE.replace("-> Person\n", "-> Person { at: I32 = 1 }\n")
    assert was in base
    graph = made(tmp_path, base)
    narrowed(graph, base.replace(was, ours))
    graph.schema.apply(base.replace(was, theirs), branch="b")
    (conflict,) = conflicts(graph, source, into)
    assert conflict.kind == "schema_conflict"
    assert fault in conflict.message
    assert conflict.ours != conflict.theirs


# ---- required properties


@BOTH_WAYS
def test_an_entity_without_a_value_for_a_required_property_is_a_conflict(
    tmp_path: Path, source: str, into: str
) -> None:
    graph = made(tmp_path)
    narrowed(graph, BASE.replace("age: I32?", "age: I32?  years: I32 @backfill(7)"))
    change(graph, 'insert Person { name: "Dee", age: 4 }', "b")
    (conflict,) = conflicts(graph, source, into)
    assert (conflict.kind, conflict.entity_id) == ("value_constraint_violation", "Dee")
    assert "years" in conflict.message
    # With a default there is a value.
    graph.schema.apply(BASE.replace("age: I32?", "age: I32?  years: I32 = 1"))
    graph.branches.merge(source, into=into)
    years = {name: row["years"] for name, row in rows(graph, "Person", into).items()}
    assert years == {"Ada": 7, "Bob": 7, "Cy": 7, "Dee": 1}
    assert graph.check().findings == ()


# ---- what one side removed and the other wrote to


@BOTH_WAYS
def test_a_value_of_a_property_that_the_other_side_removed_is_a_conflict(
    tmp_path: Path, source: str, into: str
) -> None:
    graph = made(tmp_path)
    narrowed(graph, BASE.replace("age: I32?", ""))
    change(graph, 'update Person set { age: 40 } where name = "Ada"', "b")
    (conflict,) = conflicts(graph, source, into)
    assert (conflict.kind, conflict.type_name) == ("schema_conflict", "Person")
    assert "Person.age was removed on one side and written to on the other" in conflict.message
    change(graph, 'update Person set { age: 0 } where name = "Ada"', "b")
    change(graph, 'insert Person { name: "Dee" }', "b")
    change(graph, 'delete Person where name = "Cy"', "b")
    assert graph.branches.merge(source, into=into).kind == "merged"
    assert rows(graph, "Person", into) == {n: {"name": n} for n in ("Ada", "Bob", "Dee")}
    assert graph.check().findings == ()


@BOTH_WAYS
def test_only_what_differs_was_written_to_a_type_that_the_other_side_removed(
    tmp_path: Path, source: str, into: str
) -> None:
    graph = made(tmp_path, BASE + TOPIC)
    topics = [{"type": "Topic", "data": {"key": key}} for key in ("t", "u")]
    graph.load(topics, "append")
    narrowed(graph, BASE)
    graph.ensure_indices("b")
    graph.load(topics, "merge", branch="b")
    change(graph, 'delete Topic where key = "u"', "b")
    change(graph, 'insert Topic { key: "v" }', "b")
    (conflict,) = conflicts(graph, source, into)
    assert "Topic was removed on one side and written to on the other" in conflict.message
    change(graph, 'delete Topic where key = "v"', "b")
    assert graph.branches.merge(source, into=into).kind == "merged"
    assert graph.schema.on(into).catalog.node("Topic") is None
    assert graph.check().findings == ()


# ---- what was dropped and added again


@BOTH_WAYS
@pytest.mark.parametrize(
    "statement",
    ['insert Person { name: "Di" }', 'update Person set { age: 9 } where name = "Ada"'],
    ids=["insert", "update"],
)
def test_what_was_written_to_a_type_that_was_dropped_and_added_again_is_a_conflict(
    tmp_path: Path, statement: str, source: str, into: str
) -> None:
    graph = made(tmp_path)
    narrowed(graph, TOPIC, BASE + TOPIC)
    graph.load([{"type": "Person", "data": {"name": "New", "age": 9}}], "append")
    change(graph, statement, "b")
    [told] = conflicts(graph, source, into)
    assert (told.kind, told.type_name) == ("schema_conflict", "Person")
    assert "dropped and added again" in told.message


def test_a_branch_takes_a_type_that_was_dropped_and_added_again(tmp_path: Path) -> None:
    graph = made(tmp_path)
    narrowed(graph, TOPIC, BASE + TOPIC)
    graph.load([{"type": "Person", "data": {"name": "New", "age": 9}}], "append")
    change(graph, 'update Person set { age: 9 } where name = "Ada"', "b")
    change(graph, 'update Person set { age: 0 } where name = "Ada"', "b")
    graph.branches.merge("main", into="b")
    assert ages(graph, branch="b") == {"New": 9}
    assert graph.check().findings == ()


PAIR = "node Person { name: String @key  age: I32?  rank: I32? }\n"


@BOTH_WAYS
@pytest.mark.parametrize("name", ["age", "rank"])
def test_a_value_of_a_property_that_was_dropped_and_added_again_is_a_conflict(
    tmp_path: Path, name: str, source: str, into: str
) -> None:
    graph = made(tmp_path, PAIR + "edge Knows: Person -> Person\n")
    graph.schema.apply(PAIR)
    narrowed(graph, PAIR.replace("age: I32?", ""), PAIR)
    change(graph, f'update Person set {{ {name}: 9 }} where name = "Ada"', "b")
    [told] = conflicts(graph, source, into)
    assert told.message.startswith("Person.age was dropped and added again")


def test_an_entity_without_a_value_of_a_property_that_was_dropped_is_merged(tmp_path: Path) -> None:
    graph = made(tmp_path, PAIR + "edge Knows: Person -> Person\n")
    graph.schema.apply(PAIR)
    narrowed(graph, PAIR.replace("age: I32?", ""), PAIR)
    change(graph, 'insert Person { name: "Di", rank: 3 }', "b")
    change(graph, 'update Person set { age: null, rank: 4 } where name = "Ada"', "b")
    graph.branches.merge("b")
    assert ages(graph) == dict.fromkeys(("Ada", "Bob", "Cy", "Di"))
    assert rows(graph, "Person")["Ada"]["rank"] == 4
    assert graph.check().findings == ()


# ---- keys of edges


def test_a_branch_takes_edges_that_were_given_a_key(tmp_path: Path) -> None:
    graph = made(tmp_path)
    narrowed(graph, KEYED)
    assert graph.branches.merge("main", into="b").kind == "fast_forward"
    assert set(rows(graph, "Knows", "b")) == {'["Ada","Bob"]'}
    assert graph.check().findings == ()


@BOTH_WAYS
def test_edges_written_without_the_key_that_the_other_side_gave_them_are_a_conflict(
    tmp_path: Path, source: str, into: str
) -> None:
    graph = made(tmp_path)
    narrowed(graph, KEYED)
    graph.load([{"edge": "Knows", "from": "Ada", "to": "Cy"}], "append", branch="b")
    (conflict,) = conflicts(graph, source, into)
    assert (conflict.kind, conflict.type_name) == ("schema_conflict", "Knows")
    assert "another @key" in conflict.message
    change(graph, 'delete Knows where to = "Cy"', "b")
    change(graph, 'update Person set { age: 40 } where name = "Ada"', "b")
    assert graph.branches.merge(source, into=into).kind == "merged"
    assert set(rows(graph, "Knows", into)) == {'["Ada","Bob"]'}
    assert ages(graph, branch=into)["Ada"] == 40
    assert graph.check().findings == ()


@BOTH_WAYS
def test_a_key_that_one_side_took_away_is_gone_and_ids_stay(
    tmp_path: Path, source: str, into: str
) -> None:
    graph = made(tmp_path, KEYED)
    narrowed(graph, BASE)
    graph.schema.apply(KEYED + TOPIC, branch="b")
    graph.load([{"edge": "Knows", "from": "Ada", "to": "Cy"}], "merge", branch="b")
    graph.branches.merge(source, into=into)
    assert set(rows(graph, "Knows", into)) == {'["Ada","Bob"]', '["Ada","Cy"]'}
    assert graph.schema.on(into).catalog.edges["Knows"].key == ()
    assert graph.check().findings == ()


# ---- afterwards


def test_a_branch_that_took_the_end_of_a_type_is_deleted_without_a_trace(tmp_path: Path) -> None:
    graph = made(tmp_path, BASE + TOPIC)
    graph.load([{"type": "Topic", "data": {"key": "t"}}], "append")
    before = graph.snapshot().commit_id
    narrowed(graph, BASE)
    graph.branches.merge("main", into="b")
    graph.branches.delete("b")
    graph.branches.create("c", from_=before)
    assert graph.check().findings == ()


def test_a_merge_that_brought_a_schema_that_says_the_same_is_reverted(tmp_path: Path) -> None:
    graph = made(tmp_path)
    narrowed(graph, BASE.replace("age: I32?", "age: I32?  nick: String?"), BASE)
    change(graph, 'update Person set { age: 40 } where name = "Ada"')
    graph.branches.merge("main", into="b")
    assert graph.revert("b", onto="b").kind == "reverted"
    assert ages(graph, branch="b")["Ada"] == 0
    assert graph.check().findings == ()
