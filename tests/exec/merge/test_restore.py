"""Restore: a branch, or certain types of it, becomes what it was at a point, as one commit."""

import pytest

import omnigraph as og
from omnigraph.graph import Graph
from omnigraph.storage.manifest import manifest
from tests.exec.branching import SCHEMA, edit, knows, person, state, works_at

pytestmark = pytest.mark.consistent


def begun(graph: Graph) -> str:
    """Two people and an edge; the commit to go back to."""
    people = {name: person(name, 30) for name in ("Ada", "Bob", "Cem")}
    return edit(graph, Person=people, Knows={"ab": knows("ab", "Ada", "Bob")}).id


def bad_week(graph: Graph) -> None:
    """Rows that came, changed and went, in several commits."""
    edit(graph, Person={"Ada": person("Ada", 99), "Dan": person("Dan")})
    edit(graph, Company={"Acme": {"id": "Acme", "name": "Acme"}})
    edit(graph, Knows={"ab": None, "da": knows("da", "Dan", "Ada")}, Person={"Cem": None})


def changes(graph: Graph, before: str, after: str) -> list[tuple[str, str, str, object, object]]:
    return [
        (each.op, each.type, each.id, each.before, each.after) for each in graph.diff(before, after)
    ]


def test_a_branch_becomes_what_it_was_as_one_commit_whose_changes_are_the_diff(
    small: Graph,
) -> None:
    point = begun(small)
    then = state(small)
    bad_week(small)
    head = small.snapshot().commit_id
    planned = changes(small, head, point)
    assert {op for op, *_ in planned} == {"insert", "update", "delete"}
    done = small.restore(point, actor="act-me", metadata={"why": "bad week"})
    assert (done.kind, done.branch, done.undone) == ("restored", "main", (point,))
    assert state(small) == then
    assert done.commit is not None
    assert done.commit.parent == head
    assert done.commit.actor == "act-me"
    assert done.commit.message == f"Restore to {point}"
    assert done.commit.metadata == {"why": "bad week"}
    made = small.commits.changes(done.commit.id)
    assert [(c.op, c.type, c.id, c.before, c.after) for c in made] == planned
    assert [(c.op, c.type, c.id) for c in done.changes] == [each[:3] for each in planned]
    assert done.changes.counts() == made.counts()
    assert {
        (key.partition(":")[2], op): count
        for key, counts in done.commit.counts.items()
        for op, count in (
            ("insert", counts.inserted),
            ("update", counts.updated),
            ("delete", counts.deleted),
        )
        if count
    } == {(name, op): count for (_, name, op), count in made.counts().items()}
    assert small.check().findings == ()


def test_nothing_to_restore_is_said_and_makes_no_commit(small: Graph) -> None:
    point = begun(small)
    edit(small, Person={"Ada": person("Ada", 31)})
    edit(small, Person={"Ada": person("Ada", 30)})  # changed, and changed back
    head = small.snapshot()
    done = small.restore(point)
    assert (done.kind, done.commit) == ("nothing_to_restore", None)
    assert point in done.reason
    assert small.snapshot() == head


def test_a_preview_says_what_would_change_and_writes_nothing(small: Graph) -> None:
    point = begun(small)
    bad_week(small)
    head = small.snapshot()
    with og.open(small.uri, read_only=True) as reader:
        seen = reader.restore(point, dry_run=True)
        planned, document = list(seen.changes), seen.to_json()
    assert (seen.kind, seen.commit, seen.dry_run) == ("restored", None, True)
    assert [(c.op, c.type, c.id) for c in planned] == [
        (c.op, c.type, c.id) for c in small.diff(head.commit_id, point)
    ]
    assert document["dry_run"]
    assert {"kind": "node", "type_name": "Person", "id": "Dan", "op": "delete"} in document[
        "changes"
    ]
    assert small.snapshot() == head


def test_some_types_are_restored_and_the_others_left(small: Graph) -> None:
    point = begun(small)
    edit(small, Person={"Ada": person("Ada", 99)}, Knows={"ab": knows("ab", "Ada", "Bob", 7)})
    done = small.restore(point, ["Person"])
    assert done.changes.counts() == {("node", "Person", "update"): 1}
    assert state(small)["Person", "Ada"]["age"] == 30
    assert state(small)["Knows", "ab"]["since"] == 7
    assert done.commit is not None
    assert done.commit.message == f"Restore Person to {point}"


def test_an_edge_whose_node_is_gone_is_a_conflict_of_a_partial_restore(small: Graph) -> None:
    point = begun(small)
    edit(small, Knows={"ab": None}, Person={"Bob": None})
    head = small.snapshot()
    with pytest.raises(og.MergeConflicts) as refused:
        small.restore(point, ["Knows"])
    [conflict] = refused.value.conflicts
    assert (conflict.type_name, conflict.entity_id, conflict.kind) == ("Knows", "ab", "orphan_edge")
    assert "restore conflicts" in str(refused.value)
    assert "restore the types that these belong to as well" in str(refused.value)
    seen = small.restore(point, ["Knows"], dry_run=True)
    assert seen.kind == "conflicts"
    assert seen.conflicts == refused.value.conflicts
    assert small.snapshot() == head
    small.restore(point, ["Knows", "Person"])
    assert ("Knows", "ab") in state(small)


def test_a_node_that_goes_leaves_no_edge_behind(small: Graph) -> None:
    point = begun(small)
    edit(small, Person={"Dan": person("Dan")})
    edit(small, Knows={"da": knows("da", "Dan", "Ada")})
    with pytest.raises(og.MergeConflicts) as refused:
        small.restore(point, types=["Person"])
    assert [(c.entity_id, c.kind) for c in refused.value.conflicts] == [("da", "orphan_edge")]


def test_rules_between_rows_of_two_times_are_checked(small: Graph) -> None:
    companies = {name: {"id": name, "name": name} for name in ("Acme", "Zeta")}
    edit(
        small,
        Company=companies,
        Person={"Ada": person("Ada")},
        WorksAt={"w1": works_at("w1", "Ada", "Acme")},
    )
    point = small.snapshot().commit_id
    edit(small, WorksAt={"w1": None, "w2": works_at("w2", "Ada", "Zeta")})
    assert small.restore(point, ["WorksAt"]).changes.counts() == {
        ("edge", "WorksAt", "insert"): 1,
        ("edge", "WorksAt", "delete"): 1,
    }


def test_a_branch_is_restored_to_a_point_of_another(small: Graph) -> None:
    begun(small)
    small.branches.create("b")
    edit(small, "b", Person={"Eve": person("Eve", 1), "Bob": person("Bob", 44)})
    edit(small, Person={"Ada": person("Ada", 50)})
    done = small.branch("b").restore("main")
    assert state(small, "b") == state(small)
    assert done.branch == "b"
    small.restore("b", branch="main")
    assert small.branches.merge("b").kind == "merged"
    assert state(small, "b") == state(small)


def test_what_is_named_must_exist(small: Graph) -> None:
    point = begun(small)
    with pytest.raises(og.NotFound, match="Persona"):
        small.restore(point, ["Persona"])
    with pytest.raises(og.NotFound):
        small.restore("nowhere")
    with pytest.raises(og.NotFound):
        small.restore(point, branch="nowhere")
    bad_week(small)
    with pytest.raises(og.BadRequest, match="reserved"):
        small.restore(point, actor="omnigraph:me")


def test_a_restore_can_be_undone_by_a_revert_or_another_restore(small: Graph) -> None:
    point = begun(small)
    bad_week(small)
    week = small.snapshot().commit_id
    before = state(small)
    done = small.restore(point)
    assert done.commit is not None
    assert small.revert(done.commit.id).kind == "reverted"
    assert state(small) == before
    small.restore(point)
    small.restore(week)
    assert state(small) == before


# ---- under another schema than today's

MORE = SCHEMA.replace("age: I32?", 'years: I32? @rename_from("age")\n    nick: String?')


def test_rows_of_the_past_are_read_under_todays_schema(small: Graph) -> None:
    point = begun(small)
    small.schema.apply(MORE)
    small.mutate('query q() { update Person set { years: 77, nick: "x" } where name = "Ada" }')
    small.mutate('query q() { delete Person where name = "Bob" }')
    done = small.restore(point)
    assert done.changes.counts() == {
        ("node", "Person", "update"): 1,
        ("node", "Person", "insert"): 1,
        ("edge", "Knows", "insert"): 1,
    }
    rows = state(small)
    assert (rows["Person", "Ada"]["years"], rows["Person", "Ada"]["nick"]) == (30, None)
    assert rows["Person", "Bob"]["years"] == 30
    assert list(small.diff("main", point)) == []
    assert small.check().findings == ()


def test_rows_of_the_past_keep_todays_rules(small: Graph) -> None:
    edit(small, Person={"Old": person("Old", -5), "Young": person("Young", 12)})
    point = small.snapshot().commit_id
    edit(small, Person={"Old": person("Old", 5), "Young": None})
    small.schema.apply(SCHEMA.replace("    email", "    @range(age, 0..200)\n    email"))
    with pytest.raises(og.MergeConflicts) as refused:
        small.restore(point)
    assert [(c.entity_id, c.kind) for c in refused.value.conflicts] == [
        ("Old", "value_constraint_violation")
    ]


def test_a_unique_value_of_the_past_is_compared_with_every_row(small: Graph) -> None:
    plain = SCHEMA.replace("email: String? @unique", "email: String?")
    graph = og.init(f"{small.uri}-plain", plain)
    edit(graph, Person={"Ada": person("Ada", 1, "x"), "Bob": person("Bob", 1, "x")})
    point = graph.snapshot().commit_id
    edit(graph, Person={"Ada": person("Ada", 1, "y")})
    graph.schema.apply(SCHEMA)
    with pytest.raises(og.MergeConflicts) as refused:
        graph.restore(point)
    assert {c.kind for c in refused.value.conflicts} == {"unique_violation"}


def test_a_type_that_was_dropped_is_named_and_the_others_can_be_restored(small: Graph) -> None:
    point = begun(small)
    edit(small, Person={"Ada": person("Ada", 99)})
    without = SCHEMA[: SCHEMA.index("edge Knows")] + SCHEMA[SCHEMA.index("edge WorksAt") :]
    small.schema.apply(without)
    with pytest.raises(og.SchemaDiffers, match="dropped since") as refused:
        small.restore(point)
    assert refused.value.types == ("Knows",)
    small.restore(point, ["Person", "Company", "WorksAt"])
    assert state(small)["Person", "Ada"]["age"] == 30


def test_a_type_that_is_younger_than_the_point_is_named_unless_it_is_empty(small: Graph) -> None:
    point = begun(small)
    small.schema.apply(f"{SCHEMA}\nnode Team {{ name: String @key }}")
    assert small.restore(point).kind == "nothing_to_restore"
    small.mutate('query q() { insert Team { name: "x" } }')
    with pytest.raises(og.SchemaDiffers, match="older than the type") as refused:
        small.restore(point)
    assert refused.value.types == ("Team",)


def test_a_required_property_without_a_value_then_is_named(small: Graph) -> None:
    point = begun(small)
    small.schema.apply(SCHEMA.replace("    email", "    score: F64 @backfill(0.5)\n    email"))
    with pytest.raises(og.SchemaDiffers, match="score") as refused:
        small.restore(point)
    assert refused.value.types == ("Person",)
    with pytest.raises(og.SchemaDiffers, match="give the property a default"):
        small.restore(point, ["Person"])
    assert small.restore(point, ["Knows"]).kind == "nothing_to_restore"


def test_a_property_with_a_default_reads_as_its_default(small: Graph) -> None:
    point = begun(small)
    small.schema.apply(SCHEMA.replace("    email", "    score: F64 = 0.5\n    email"))
    small.mutate('query q() { update Person set { age: 7, score: 0.9 } where name = "Ada" }')
    small.mutate('query q() { delete Person where name = "Cem" }')
    done = small.restore(point)
    assert done.changes.counts() == {
        ("node", "Person", "update"): 1,
        ("node", "Person", "insert"): 1,
    }
    rows = state(small)
    assert {rows["Person", name]["score"] for name in ("Ada", "Bob", "Cem")} == {0.5}


def test_a_key_that_is_another_since_is_named(small: Graph) -> None:
    point = begun(small)
    small.schema.apply(SCHEMA.replace("Person -> Person {", "Person -> Person @key(src, dst) {"))
    edit(small, Person={"Ada": person("Ada", 99)})
    with pytest.raises(og.SchemaDiffers, match="key is another") as refused:
        small.restore(point)
    assert refused.value.types == ("Knows",)
    small.restore(point, ["Person"])
    assert state(small)["Person", "Ada"]["age"] == 30


def test_a_type_that_another_branch_added_is_not_taken_for_ours(small: Graph) -> None:
    small.branches.create("b")
    small.schema.apply(f"{SCHEMA}\nnode Team {{ name: String @key }}", branch="b")
    small.mutate('query q() { insert Team { name: "x" } }', branch="b")
    small.schema.apply(f"{SCHEMA}\nnode Topic {{ name: String @key }}")
    small.mutate('query q() { insert Topic { name: "y" } }')
    with pytest.raises(og.SchemaDiffers):
        small.restore("b")
    assert ("Topic", "y") in state(small)
    assert small.restore("b", ["Person"]).kind == "nothing_to_restore"


def test_a_new_edge_type_holds_a_node_that_a_restore_would_take(small: Graph) -> None:
    point = begun(small)
    edit(small, Person={"Dan": person("Dan")})
    small.schema.apply(f"{SCHEMA}\nedge Likes: Person -> Person")
    small.mutate('query q() { insert Likes { from: "Ada", to: "Dan" } }')
    with pytest.raises(og.MergeConflicts) as refused:
        small.restore(point, ["Person"])
    assert [(c.type_name, c.kind) for c in refused.value.conflicts] == [("Likes", "orphan_edge")]


def test_a_point_that_cleanup_took_is_said_to_be_gone(
    small: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(manifest, "RECLAIM_AGE_S", 0.0)
    point = begun(small)
    for age in range(5):
        edit(small, Person={"Ada": person("Ada", age)})
    small.cleanup(keep=1, grace=0, confirm=True)
    again = og.open(small.uri)
    with pytest.raises(og.Reclaimed, match=f"commit '{point}' was reclaimed"):
        again.restore(point)


def test_what_was_dropped_and_added_again_is_said_not_to_come_back(small: Graph) -> None:
    point = begun(small)
    without = SCHEMA.replace("    age: I32?\n", "")
    assert without != SCHEMA
    small.schema.apply(without)
    small.schema.apply(SCHEMA)
    done = small.restore(point)
    assert done.kind == "nothing_to_restore"
    assert "Person.age was dropped and added again in between" in (done.reason or "")
    small.schema.apply(SCHEMA[: SCHEMA.index("edge Knows")])
    small.schema.apply(SCHEMA)
    with pytest.raises(og.SchemaDiffers, match="dropped and added again since") as refused:
        small.restore(point, ["Knows"])
    assert refused.value.types == ("Knows",)
    small.restore(point, ["Company"])
