"""Identities survive renames and are never given out twice."""

from hypothesis import given, settings
from hypothesis import strategies as st

from omnigraph.catalog.accept import accept, admit
from omnigraph.catalog.model import Catalog
from omnigraph.language.schema.ast import Schema
from tests.catalog.evolution import evolve
from tests.language.schema_text import format_schema
from tests.language.schema_trees import accepted_schemas


def ids(catalog: Catalog, node: str) -> dict[str, int]:
    return {prop.name: prop.id for prop in catalog.nodes[node].properties}


def test_a_new_type_numbers_its_properties_by_name() -> None:
    assert ids(accept("node A { c: I32 a: I32 b: I32 }"), "A") == {"a": 1, "b": 2, "c": 3}


def test_types_are_numbered_interfaces_first_then_nodes_then_edges() -> None:
    catalog = accept("edge E: B -> A\nnode B {}\nnode A {}\ninterface I {}")

    assert catalog.interfaces["I"].id == 1
    assert [catalog.nodes[name].id for name in ("B", "A")] == [2, 3]
    assert catalog.edges["E"].id == 4


def test_a_rename_keeps_the_ids_and_the_order_of_a_composite_key() -> None:
    old = accept("node A { b: String a: String @key(b, a) }")
    new = evolve(
        old,
        'node Z @rename_from("A") { x: String @rename_from("b") y: String @rename_from("a") '
        "@key(x, y) }",
    )

    assert new.nodes["Z"].id == old.nodes["A"].id
    assert ids(new, "Z") == {"x": 2, "y": 1}
    assert new.nodes["Z"].key == ("y", "x"), "renaming must not change any id of the data"


def test_what_comes_back_under_a_dropped_name_is_new() -> None:
    full = "node A { a: I32? b: I32? }\nnode B {}"
    first = accept(full)
    dropped = evolve(first, "node A { a: I32? }")
    again = evolve(dropped, full)

    assert ids(again, "A") == {"a": 1, "b": 3}
    assert again.nodes["B"].id == 3
    assert again.next_property_ids[first.nodes["A"].id] == 4


def test_two_types_can_pass_a_name_on() -> None:
    old = accept("node A { x: I32? }\nnode B { y: I32? }")
    new = evolve(old, 'node B { y: I32? }\nnode C @rename_from("A") { x: I32? }')

    assert new.nodes["C"].id == old.nodes["A"].id
    assert new.nodes["B"].id == old.nodes["B"].id


def test_an_exact_name_wins_over_a_hint() -> None:
    old = accept("node A {}\nnode B {}")
    admission = admit('node A @rename_from("B") {}\nnode B @rename_from("A") {}', old)

    assert admission.catalog.nodes["A"].id == old.nodes["A"].id
    assert {d.code for d in admission.diagnostics} == {"ignored_exact_match_rename_hint"}


def test_a_hint_of_an_interface_holds_for_the_nodes_that_had_the_property() -> None:
    old = accept("interface I { a: String? }\nnode A implements I {}")
    new = evolve(
        old,
        'interface I { b: String? @rename_from("a") }\n'
        "node A implements I {}\nnode N implements I {}",
    )

    assert ids(new, "A") == {"b": 1}
    assert ids(new, "N") == {"b": 1}


def test_the_same_text_again_changes_nothing() -> None:
    text = "interface I { a: I32? }\nnode A implements I { b: I32? }\nedge E: A -> A"
    old = accept(text)

    assert evolve(old, text) == old


@settings(max_examples=30, derandomize=True, deadline=None)
@given(history=st.lists(accepted_schemas(), min_size=2, max_size=4))
def test_no_id_is_ever_given_to_two_things(history: list[Schema]) -> None:
    catalog = accept(format_schema(history[0]))
    owner: dict[int, int] = {}  # type id to the step in which it was first seen
    gone: set[int] = set()
    for step, schema in enumerate(history):
        catalog = evolve(catalog, format_schema(schema)) if step else catalog
        types = [*catalog.interfaces.values(), *catalog.nodes.values(), *catalog.edges.values()]
        current = {each.id for each in types}

        assert len(current) == len(types)
        assert not current & gone, "a dropped id came back"
        assert all(i < catalog.next_type_id for i in current)
        for each in types:
            own = [prop.id for prop in each.properties]
            assert len(set(own)) == len(own)
            assert all(0 < i < catalog.next_property_ids[each.id] for i in own)
        gone |= owner.keys() - current
        owner.update(dict.fromkeys(current, step))
