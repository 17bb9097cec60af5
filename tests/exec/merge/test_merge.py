"""Merging: outcomes, the truth table, conflicts, and what a merge leaves behind."""

from itertools import product
from typing import Any

import pytest

import omnigraph as og
from omnigraph.graph import Graph
from omnigraph.storage.names import MAIN
from tests.exec.branching import (
    Row,
    State,
    copy_of,
    edit,
    knows,
    person,
    state,
    works_at,
)

pytestmark = pytest.mark.consistent

# ---- outcomes


def start(graph: Graph) -> None:
    """Alice, Bob, Carol and Dan; Bob knows Carol; a branch `b`."""
    people = {name: person(name, 30) for name in ("Alice", "Bob", "Carol", "Dan")}
    edit(graph, Person=people, Knows={"bc": knows("bc", "Bob", "Carol", 2000)})
    graph.branches.create("b")


def test_a_branch_without_commits_is_up_to_date(small: Graph) -> None:
    start(small)
    head = small.snapshot().commit_id
    outcome = small.branches.merge("b")
    assert (outcome.kind, outcome.commit) == ("already_up_to_date", None)
    edit(small, Person={"Eve": person("Eve")})
    assert small.branches.merge("b").kind == "already_up_to_date"
    assert small.snapshot().commit_id != head
    assert outcome.to_json() == {
        "source": "b",
        "target": "main",
        "outcome": "already_up_to_date",
        "actor_id": None,
    }


def test_a_target_that_stood_still_is_forwarded(small: Graph) -> None:
    start(small)
    edit(small, "b", Person={"Eve": person("Eve", 1), "Alice": person("Alice", 2), "Dan": None})
    head, source = small.snapshot(), small.snapshot("b")
    outcome = small.branches.merge("b", actor="act-m")
    assert outcome.kind == "fast_forward"
    assert outcome.commit is not None
    assert (outcome.commit.parent, outcome.commit.merged_parent) == (
        head.commit_id,
        source.commit_id,
    )
    assert outcome.commit.actor == "act-m"
    assert state(small) == state(small, "b")
    assert small.snapshot("b") == source, "merging never changes the source"
    assert small.branches.merge("b").kind == "already_up_to_date"


def test_two_sides_merge_and_the_source_may_go(small: Graph) -> None:
    start(small)
    edit(small, "b", Person={"Eve": person("Eve", 1)}, Knows={"ea": knows("ea", "Eve", "Alice")})
    edit(small, Person={"Bob": person("Bob", 31)})
    outcome = small.branches.merge("b", delete_source=True)
    assert (outcome.kind, outcome.branch_deleted) == ("merged", True)
    assert small.branches.list() == ("main",)
    seen = state(small)
    assert seen["Person", "Eve"]["age"] == 1
    assert seen["Person", "Bob"]["age"] == 31
    assert ("Knows", "ea") in seen
    again = og.open(small.uri)
    assert state(again) == seen


def test_a_branch_whose_commits_cancel_out_merges(small: Graph) -> None:
    start(small)
    edit(small, "b", Person={"Alice": person("Alice", 99)})
    edit(small, "b", Person={"Alice": person("Alice", 30)})
    before = state(small)
    versions = small.snapshot().tables
    outcome = small.branches.merge("b")
    assert outcome.kind == "fast_forward"
    assert outcome.commit is not None
    assert state(small) == before
    assert small.snapshot().tables == versions, "no row was written"
    assert small.branches.merge("b").kind == "already_up_to_date"
    edit(small, "b", Person={"Alice": person("Alice", 98)})
    edit(small, "b", Person={"Alice": person("Alice", 30)})
    edit(small, Person={"Alice": person("Alice", 50)})
    assert small.branches.merge("b").kind == "merged"
    assert state(small)["Person", "Alice"]["age"] == 50


def test_refusals(small: Graph) -> None:
    start(small)
    with pytest.raises(og.BadRequest, match="itself"):
        small.branches.merge("main")
    with pytest.raises(og.NotFound, match="branch 'x'"):
        small.branches.merge("x")
    with pytest.raises(og.NotFound, match="branch 'x'"):
        small.branches.merge("b", into="x")
    with pytest.raises(og.BadRequest, match="by entity or by property"):
        small.branches.merge("b", by="row")
    with pytest.raises(og.BadRequest, match="resolves nothing"):
        small.branches.merge("b", resolve="mine")
    with pytest.raises(og.BadRequest, match="read-only"):
        og.open(small.uri, read_only=True).branches.merge("b")


def test_a_merge_between_branches_leaves_main_alone(small: Graph) -> None:
    start(small)
    small.branches.create("c", from_="b")
    edit(small, "c", Person={"Eve": person("Eve")})
    edit(small, "b", Person={"Dan": None})
    before = state(small)
    assert small.branches.merge("c", into="b").kind == "merged"
    assert state(small) == before
    assert ("Person", "Eve") in state(small, "b")
    assert ("Person", "Dan") not in state(small, "b")


# ---- the truth table

ABSENT, OLD, OURS, THEIRS = None, 0, 1, 2
VALUES = (ABSENT, OLD, OURS, THEIRS)


def expected(base: int | None, source: int | None, target: int | None) -> tuple[str, Any]:
    """The table of the specification: what stays, or the kind of conflict."""
    if source in (target, base):
        return "value", target
    if target == base:
        return "value", source
    if base is None:
        return "conflict", "divergent_insert"
    if source is None or target is None:
        return "conflict", "delete_vs_update"
    return "conflict", "divergent_update"


def entity(kind: str, name: str, value: int | None) -> Row | None:
    if value is None:
        return None
    return person(name, value) if kind == "Person" else knows(name, "Ada", "Bob", value)


@pytest.mark.parametrize("kind", ["Person", "Knows"])
def test_the_whole_truth_table(small: Graph, kind: str) -> None:
    cases = {f"x{i:02}": case for i, case in enumerate(product((ABSENT, OLD), VALUES, VALUES))}
    edit(small, Person={"Ada": person("Ada"), "Bob": person("Bob")})
    for place, branch in ((0, MAIN), (1, "b"), (2, MAIN)):
        rows = {name: entity(kind, name, case[place]) for name, case in cases.items()}
        if place == 0:
            rows = {name: row for name, row in rows.items() if row is not None}
        edit(small, branch, **{kind: rows})
        if place == 0:
            small.branches.create("b")
    wanted = {name: expected(*case) for name, case in cases.items()}
    before = state(small)
    with pytest.raises(og.MergeConflicts) as refused:
        small.branches.merge("b")
    found = {c.entity_id: c.kind for c in refused.value.conflicts}
    assert found == {name: kind for name, (what, kind) in wanted.items() if what == "conflict"}
    assert state(small) == before, "a conflict writes nothing"
    # Without the conflicts the rest merges to what the table says.
    edit(small, "b", **{kind: {name: entity(kind, name, cases[name][0]) for name in found}})
    small.branches.merge("b")
    seen = {name: state(small).get((kind, name)) for name in cases}
    for name, (what, value) in wanted.items():
        left = cases[name][2] if what == "conflict" else value
        assert seen[name] == entity(kind, name, left), (name, cases[name])


# Operation pairs of the specification: source down, target across.

OPERATIONS = {
    "none": {},
    "add Eve": {"Person": {"Eve": person("Eve", 1)}},
    "add another Eve": {"Person": {"Eve": person("Eve", 2)}},
    "delete Alice": {"Person": {"Alice": None}},
    "add Alice→Carol": {"Knows": {"new": knows("new", "Alice", "Carol")}},
    "delete Bob→Carol": {"Knows": {"bc": None}},
    "set Alice.age": {"Person": {"Alice": person("Alice", 77)}},
    "set Alice.age too": {"Person": {"Alice": person("Alice", 78)}},
}
CONFLICTS = {
    ("add Eve", "add another Eve"): "divergent_insert",
    ("delete Alice", "add Alice→Carol"): "orphan_edge",
    ("delete Alice", "set Alice.age"): "delete_vs_update",
    ("delete Alice", "set Alice.age too"): "delete_vs_update",
    ("set Alice.age", "set Alice.age too"): "divergent_update",
}


@pytest.mark.parametrize("source", OPERATIONS)
def test_pairs_of_operations(small_template: Any, tmp_path: Any, source: str) -> None:
    for number, target in enumerate(OPERATIONS):
        graph = copy_of(small_template, tmp_path / f"g{number}")
        start(graph)
        base = state(graph)
        if OPERATIONS[source]:
            edit(graph, "b", **renamed(OPERATIONS[source], "s"))
        if OPERATIONS[target]:
            edit(graph, **renamed(OPERATIONS[target], "t"))
        conflict = CONFLICTS.get((source, target)) or CONFLICTS.get((target, source))
        if conflict is not None:
            with pytest.raises(og.MergeConflicts) as refused:
                graph.branches.merge("b")
            assert [c.kind for c in refused.value.conflicts] == [conflict]
            continue
        kind = graph.branches.merge("b").kind
        if source == "none":
            assert kind == "already_up_to_date"
        else:
            assert kind == ("fast_forward" if target == "none" else "merged")
        both = applied(applied(base, OPERATIONS[target], "t"), OPERATIONS[source], "s")
        assert state(graph) == both, (source, target)


def renamed(operation: dict[str, Any], side: str) -> dict[str, Any]:
    """New edges have ids of their own on each side."""
    edges = operation.get("Knows", {})
    if "new" not in edges:
        return operation
    return {"Knows": {f"new-{side}": {**edges["new"], "id": f"new-{side}"}}}


def applied(before: State, operation: dict[str, Any], side: str) -> State:
    after = dict(before)
    for type_name, rows in renamed(operation, side).items():
        for name, row in rows.items():
            after.pop((type_name, name), None)
            if row is not None:
                after[type_name, name] = row
    return after


def test_a_conflict_tells_all_three_sides(small: Graph) -> None:
    start(small)
    edit(small, "b", Person={"Alice": person("Alice", 1), "Dan": None})
    edit(small, Person={"Alice": person("Alice", 2), "Dan": person("Dan", 9)})
    with pytest.raises(og.MergeConflicts) as refused:
        small.branches.merge("b")
    alice, dan = refused.value.conflicts
    assert alice.to_json() == {
        "entity_kind": "node",
        "type_name": "Person",
        "entity_id": "Alice",
        "kind": "divergent_update",
        "message": "divergent update for id 'Alice'",
    }
    assert alice.base == {"properties": {"name": "Alice", "age": 30, "email": None}}
    assert alice.ours is not None
    assert alice.ours["properties"]["age"] == 2
    assert alice.theirs is not None
    assert alice.theirs["properties"]["age"] == 1
    assert (dan.kind, dan.theirs) == ("delete_vs_update", None)
    assert dan.message == "delete/update conflict for id 'Dan'"
    assert str(refused.value).startswith(
        "merge conflicts: node type 'Person', entity id 'Alice' (divergent_update); "
    )


# ---- rules on the merged graph


def test_two_sides_that_take_one_unique_value(small: Graph) -> None:
    start(small)
    edit(small, "b", Person={"Alice": person("Alice", 30, "x@y")})
    edit(small, Person={"Bob": person("Bob", 30, "x@y")})
    with pytest.raises(og.MergeConflicts) as refused:
        small.branches.merge("b")
    (conflict,) = refused.value.conflicts
    assert (conflict.kind, conflict.type_name) == ("unique_violation", "Person")
    assert conflict.message == (
        "@unique violation on Person.email: value 'x@y' held by 'Alice' and 'Bob'"
    )


def test_a_unique_value_that_moves_is_no_violation(small: Graph) -> None:
    start(small)
    edit(small, Person={"Alice": person("Alice", 30, "x@y")})
    small.branches.create("c")
    edit(small, "c", Person={"Alice": person("Alice", 30), "Bob": person("Bob", 30, "x@y")})
    edit(small, Person={"Dan": person("Dan", 31)})
    assert small.branches.merge("c").kind == "merged"
    assert state(small)["Person", "Bob"]["email"] == "x@y"


def test_two_sides_that_exceed_a_cardinality(small: Graph) -> None:
    start(small)
    edit(small, Company={"Acme": {"id": "Acme", "name": "Acme"}})
    small.branches.create("c")
    edit(small, "c", WorksAt={"w1": works_at("w1", "Bob", "Acme")})
    edit(small, WorksAt={"w2": works_at("w2", "Bob", "Acme"), "w3": works_at("w3", "Dan", "Acme")})
    with pytest.raises(og.MergeConflicts) as refused:
        small.branches.merge("c")
    (conflict,) = refused.value.conflicts
    assert (conflict.kind, conflict.entity_id) == ("cardinality_violation", None)
    assert conflict.message == ("@card violation on edge WorksAt: source 'Bob' has 2 edges (max 1)")


def test_an_edge_that_moves_to_another_source_counts_there(small: Graph) -> None:
    start(small)
    edit(
        small,
        Company={"Acme": {"id": "Acme", "name": "Acme"}},
        WorksAt={"w1": works_at("w1", "Bob", "Acme")},
    )
    small.branches.create("c")
    edit(small, "c", WorksAt={"w1": works_at("w1", "Dan", "Acme")})
    edit(small, WorksAt={"w2": works_at("w2", "Alice", "Acme")})
    small.branches.merge("c")
    edit(small, "c", WorksAt={"w1": works_at("w1", "Carol", "Acme")})
    edit(small, WorksAt={"w3": works_at("w3", "Carol", "Acme")})
    with pytest.raises(og.MergeConflicts, match="edge type 'WorksAt'"):
        small.branches.merge("c")


@pytest.mark.parametrize("edges_on", ["b", MAIN])
def test_edges_to_a_node_deleted_on_the_other_side(small: Graph, edges_on: str) -> None:
    start(small)
    nodes_on = MAIN if edges_on == "b" else "b"
    edit(small, nodes_on, Person={"Alice": None})
    edges = {name: knows(name, "Alice", "Bob") for name in ("e1", "e2")}
    edit(small, edges_on, Knows={**edges, "e3": knows("e3", "Dan", "Alice")})
    with pytest.raises(og.MergeConflicts) as refused:
        small.branches.merge("b")
    found = {c.entity_id: (c.kind, c.message) for c in refused.value.conflicts}
    assert found == {
        "e1": ("orphan_edge", "src 'Alice' not found in Person"),
        "e2": ("orphan_edge", "src 'Alice' not found in Person"),
        "e3": ("orphan_edge", "dst 'Alice' not found in Person"),
    }


def test_a_node_deleted_with_its_edges_stays_deleted(small: Graph) -> None:
    start(small)
    edit(small, "b", Person={"Bob": None}, Knows={"bc": None})
    edit(small, Person={"Alice": person("Alice", 31)})
    small.branches.merge("b")
    seen = state(small)
    assert ("Person", "Bob") not in seen
    assert ("Knows", "bc") not in seen


def test_every_violation_of_every_rule_is_listed(small: Graph) -> None:
    many = [f"p{number:02}" for number in range(25)]
    edit(small, Person={name: person(name) for name in (*many, "a", "b")})
    edit(small, Company={"Acme": {"id": "Acme", "name": "Acme"}})
    small.branches.create("b")
    edit(
        small,
        "b",
        Person={"a": None, **{n: person(n, None, f"{n}@y") for n in many}},
        WorksAt={f"b-{n}": works_at(f"b-{n}", n, "Acme") for n in many},
    )
    edit(
        small,
        Person={f"{n}x": person(f"{n}x", None, f"{n}@y") for n in many},
        Knows={n: knows(n, "a", "b") for n in many},
        WorksAt={f"m-{n}": works_at(f"m-{n}", n, "Acme") for n in many},
    )
    with pytest.raises(og.MergeConflicts) as refused:
        small.branches.merge("b")
    assert refused.value.counts == {
        "cardinality_violation": 25,
        "orphan_edge": 25,
        "unique_violation": 25,
    }
    messages = [conflict.message for conflict in refused.value.conflicts]
    assert len(set(messages)) == 25 + 1 + 25
    assert str(refused.value).endswith(
        "; and 72 more; change one side and merge again, or answer with resolve="
    )
