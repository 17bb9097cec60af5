"""Revert: the inverse of a commit, or of a range, as one commit, three-way."""

from typing import Any

import pytest

import omnigraph as og
from omnigraph.graph import Graph
from omnigraph.storage.manifest import manifest
from omnigraph.types import TableKey
from tests.exec.branching import SCHEMA, edit, knows, person, state
from tests.exec.town import blobs, do, rows

pytestmark = pytest.mark.consistent


def begun(graph: Graph) -> str:
    people = {name: person(name, 30) for name in ("Ada", "Bob", "Cem")}
    return edit(graph, Person=people, Knows={"ab": knows("ab", "Ada", "Bob")}).id


def wrong(graph: Graph) -> str:
    """A wrong load: a row that comes, one that changes, one that goes, with its edge."""
    return edit(
        graph,
        Person={"Ada": person("Ada", 99), "Dan": person("Dan"), "Bob": None},
        Knows={"ab": None},
    ).id


def refused(graph: Graph, commit: str, **options: Any) -> dict[str | None, str]:
    head = graph.snapshot(options.get("onto", "main"))
    with pytest.raises(og.MergeConflicts) as found:
        graph.revert(commit, **options)
    assert graph.snapshot(options.get("onto", "main")) == head
    return {conflict.entity_id: conflict.kind for conflict in found.value.conflicts}


def test_the_newest_commit_is_undone_as_one_commit(small: Graph) -> None:
    begun(small)
    then = state(small)
    bad = wrong(small)
    done = small.revert(bad, actor="act-me", metadata={"ticket": "7"})
    assert (done.kind, done.branch, done.undone) == ("reverted", "main", (bad,))
    assert state(small) == then
    assert done.commit is not None
    assert (done.commit.parent, done.commit.actor) == (bad, "act-me")
    assert done.commit.message == f'Revert "{bad}"'
    assert done.commit.metadata == {"ticket": "7"}
    inverse = {(c.type, c.id, c.op) for c in small.commits.changes(done.commit.id)}
    swapped = {"insert": "delete", "delete": "insert", "update": "update"}
    assert inverse == {(c.type, c.id, swapped[c.op]) for c in small.commits.changes(bad)}
    assert {(c.type, c.id, c.op) for c in done.changes} == inverse
    assert small.check().findings == ()


def test_what_others_wrote_since_stays(small: Graph) -> None:
    begun(small)
    bad = wrong(small)
    edit(small, Person={"Cem": person("Cem", 31), "Eve": person("Eve")})
    done = small.revert(bad)
    now = state(small)
    assert now["Person", "Ada"]["age"] == 30
    assert now["Person", "Cem"]["age"] == 31
    assert ("Person", "Eve") in now
    assert ("Person", "Dan") not in now
    assert ("Knows", "ab") in now
    assert done.changes.counts() == {
        ("node", "Person", "insert"): 1,
        ("node", "Person", "update"): 1,
        ("node", "Person", "delete"): 1,
        ("edge", "Knows", "insert"): 1,
    }


def test_an_entity_that_changed_since_is_a_conflict_with_the_answers_of_a_merge(
    small: Graph,
) -> None:
    begun(small)
    bad = wrong(small)
    edit(small, Person={"Ada": person("Ada", 41), "Dan": person("Dan", 1)})
    assert refused(small, bad) == {"Ada": "divergent_update", "Dan": "delete_vs_update"}
    with pytest.raises(og.MergeConflicts, match="revert conflicts") as found:
        small.revert(bad)
    ada = found.value.conflicts[0]
    assert ada.base is not None
    assert ada.ours is not None
    assert ada.theirs is not None
    assert [side["properties"]["age"] for side in (ada.base, ada.ours, ada.theirs)] == [99, 41, 30]
    seen = small.revert(bad, dry_run=True)
    assert (seen.kind, seen.conflicts) == ("conflicts", found.value.conflicts)
    answers = {("Person", "Ada"): {"age": 50}, ("Person", "Dan"): "ours"}
    seen = small.revert(bad, resolve=answers, dry_run=True)
    assert seen.kind == "reverted"
    assert seen.commit is None
    small.revert(bad, resolve=answers)
    now = state(small)
    assert now["Person", "Ada"]["age"] == 50
    assert ("Person", "Dan") in now
    assert ("Person", "Bob") in now
    with pytest.raises(og.BadRequest, match="without a conflict"):
        small.revert(bad, resolve={("Person", "Cem"): "ours"})


def test_properties_that_nobody_changed_since_are_undone_by_property(small: Graph) -> None:
    begun(small)
    bad = edit(small, Person={"Ada": person("Ada", 99)}).id
    edit(small, Person={"Ada": person("Ada", 99, "a@b")})
    assert refused(small, bad) == {"Ada": "divergent_update"}
    small.revert(bad, by="property")
    assert state(small)["Person", "Ada"] == person("Ada", 30, "a@b")


def test_an_edge_to_a_node_that_would_go_is_a_conflict(small: Graph) -> None:
    begun(small)
    bad = wrong(small)
    edit(small, Knows={"da": knows("da", "Dan", "Ada")})
    assert refused(small, bad) == {"da": "orphan_edge"}


def test_a_unique_value_taken_since_is_a_conflict(small: Graph) -> None:
    edit(small, Person={"Ada": person("Ada", 1, "x"), "Bob": person("Bob")})
    bad = edit(small, Person={"Ada": person("Ada", 1, None)}).id
    edit(small, Person={"Bob": person("Bob", 1, "x")})
    assert refused(small, bad) == {"Bob": "unique_violation"}


def test_a_node_that_is_kept_against_its_revert_keeps_its_edges(small: Graph) -> None:
    """The bad commit brought Dan and an edge; Dan was changed since and stays, and so does it."""
    begun(small)
    bad = edit(small, Person={"Dan": person("Dan")}, Knows={"da": knows("da", "Dan", "Ada")}).id
    edit(small, Person={"Dan": person("Dan", 5)})
    assert refused(small, bad) == {"Dan": "delete_vs_update"}
    done = small.revert(bad, resolve="ours")
    assert ("Knows", "da") in state(small)
    assert [edge.entity_id for edge in done.kept_edges] == ["da"]
    assert done.kind == "nothing_to_revert"


def test_reverting_a_revert_brings_the_change_back(small: Graph) -> None:
    begun(small)
    bad = wrong(small)
    after = state(small)
    first = small.revert(bad)
    assert first.commit is not None
    second = small.revert(first.commit.id)
    assert state(small) == after
    assert second.commit is not None
    assert second.commit.message == f'Revert "Revert "{bad}""'


def test_a_range_is_reverted_as_one_change(small: Graph) -> None:
    start = begun(small)
    then = state(small)
    wrong(small)
    middle = edit(small, Person={"Ada": person("Ada", 98), "Fay": person("Fay")}).id
    edit(small, Person={"Cem": person("Cem", 77)})
    done = small.revert(start, middle)
    assert done.undone == (start, middle)
    assert state(small) == then | {("Person", "Cem"): person("Cem", 77)}
    assert done.commit is not None
    assert done.commit.message == f"Revert {start}..{middle}"
    with pytest.raises(og.BadRequest, match="EARLIER"):
        small.revert(middle, start)
    with pytest.raises(og.BadRequest, match="empty"):
        small.revert(middle, middle)


def test_a_merge_is_reverted_against_its_first_parent(small: Graph) -> None:
    begun(small)
    small.branches.create("b")
    edit(small, "b", Person={"Ada": person("Ada", 31), "Eve": person("Eve")})
    edit(small, Person={"Cem": person("Cem", 32)})
    then = state(small)
    merge = small.branches.merge("b").commit
    assert merge is not None
    small.revert(merge.id)
    assert state(small) == then
    assert small.branches.merge("b").kind == "already_up_to_date"


def test_a_commit_of_one_branch_is_reverted_on_another(small: Graph) -> None:
    begun(small)
    bad = wrong(small)
    small.branches.create("fix")
    edit(small, "fix", Person={"Gil": person("Gil")})
    done = small.branch("fix").revert(bad)
    assert done.branch == "fix"
    assert ("Person", "Bob") in state(small, "fix")
    assert ("Person", "Bob") not in state(small)
    small.branches.merge("fix")
    assert ("Person", "Bob") in state(small)


def test_nothing_to_revert_is_said(small: Graph) -> None:
    begun(small)
    small.ensure_indices()
    upkeep = small.commits.list(limit=1)[0]
    bad = wrong(small)
    small.revert(bad)
    head = small.snapshot()
    done = small.revert(bad)
    assert (done.kind, done.commit) == ("nothing_to_revert", None)
    assert done.reason == f"nothing that commit {bad} changed is left on the branch"
    done = small.revert(upkeep.id)
    assert (done.kind, done.reason) == (
        "nothing_to_revert",
        f"commit {upkeep.id} changed no entity",
    )
    assert small.snapshot() == head


def test_the_first_commit_and_a_schema_change_are_refused_with_what_to_do(small: Graph) -> None:
    genesis = small.commits.list()[-1]
    with pytest.raises(og.NotRevertible, match="first of its graph"):
        small.revert(genesis.id)
    begun(small)
    renamed = SCHEMA.replace("age: I32?", 'years: I32? @rename_from("age")\n    nick: String?')
    small.schema.apply(renamed)
    change = small.snapshot().commit_id
    with pytest.raises(og.NotRevertible) as found:
        small.revert(change)
    assert found.value.reason == "schema_change"
    text = "\n".join(found.value.steps)
    assert "rename" in text
    assert "nick" in text
    assert all(step in str(found.value) for step in found.value.steps)
    assert small.schema.at(found.value.before or "").text == SCHEMA
    with pytest.raises(og.NotRevertible):
        small.revert(genesis.id, change)


def test_a_commit_before_a_schema_change_is_reverted_after_it(small: Graph) -> None:
    begun(small)
    bad = wrong(small)
    renamed = SCHEMA.replace("node Person {", 'node Human @rename_from("Person") {').replace(
        "age: I32?", 'years: I32? @rename_from("age")'
    )
    renamed = renamed.replace("Person ->", "Human ->").replace("-> Person", "-> Human")
    small.schema.apply(renamed)
    done = small.revert(bad)
    now = state(small)
    assert now["Human", "Ada"]["years"] == 30
    assert ("Human", "Bob") in now
    assert ("Human", "Dan") not in now
    assert ("Knows", "ab") in now
    assert done.commit is not None
    assert small.check().findings == ()


def test_a_property_that_was_added_since_keeps_its_values(small: Graph) -> None:
    begun(small)
    bad = wrong(small)
    text = SCHEMA.replace("    email", "    score: F64? @backfill(0.5)\n    pic: Blob?\n    email")
    small.schema.apply(text)
    small.mutate('query q() { update Person set { pic: "base64:eXk=" } where name = "Ada" }')
    assert refused(small, bad) == {"Dan": "delete_vs_update"}, "Dan has a value since"
    done = small.revert(bad, resolve="theirs")
    assert done.kind == "reverted"
    now = rows(small, TableKey("node:Person"))
    assert (now["Ada"]["age"], now["Ada"]["score"]) == (30, 0.5)
    assert (now["Bob"]["age"], now["Bob"].get("score")) == (30, None)
    assert "Dan" not in now
    assert blobs(small, TableKey("node:Person"), "pic") == {"Ada": b"yy", "Bob": None, "Cem": None}


def test_a_type_that_was_dropped_since_is_named(small: Graph) -> None:
    begun(small)
    bad = wrong(small)
    without = SCHEMA[: SCHEMA.index("edge Knows")] + SCHEMA[SCHEMA.index("edge WorksAt") :]
    small.schema.apply(without)
    with pytest.raises(og.SchemaDiffers) as found:
        small.revert(bad)
    assert found.value.types == ("Knows",)


def test_blobs_come_back(people: Graph) -> None:
    do(people, 'insert Person { name: "a", photo: "base64:eA==" }')
    bad = do(people, 'update Person set { photo: "base64:eXk=" } where name = "a"')
    assert blobs(people) == {"a": b"yy"}
    people.revert(bad.commit.id)
    assert blobs(people) == {"a": b"x"}


def test_a_commit_that_cleanup_took_is_said_to_be_gone(
    small: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(manifest, "RECLAIM_AGE_S", 0.0)
    begun(small)
    bad = wrong(small)
    for age in range(5):
        edit(small, Person={"Cem": person("Cem", age)})
    small.cleanup(keep=1, grace=0, confirm=True)
    again = og.open(small.uri)
    with pytest.raises(og.Reclaimed):
        again.revert(bad)


def test_an_unknown_commit_is_not_found(small: Graph) -> None:
    with pytest.raises(og.NotFound):
        small.revert("01AAAAAAAAAAAAAAAAAAAAAAAA")
