"""Plans: what holds for all of them. The golden files hold each rule."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omnigraph.catalog.accept import accept
from omnigraph.catalog.schema_diff import plan_migration
from omnigraph.catalog.steps import UnsupportedChange
from omnigraph.errors import MigrationUnsupported, ParseError
from tests.language.schema_text import format_schema
from tests.language.schema_trees import accepted_schemas, edited

KEYS = {
    "add_type": {"type_kind", "name"},
    "rename_type": {"type_kind", "from", "to"},
    "add_property": {"type_kind", "type_name", "property_name", "property_type"},
    "rename_property": {"type_kind", "type_name", "from", "to"},
    "add_constraint": {"type_kind", "type_name", "constraint"},
    "drop_constraint": {"type_kind", "type_name", "constraint"},
    "update_cardinality": {"type_kind", "type_name", "from", "to"},
    "extend_enum": {"type_kind", "type_name", "property_name", "added_values"},
    "update_type_metadata": {"type_kind", "name", "annotations"},
    "update_property_metadata": {"type_kind", "type_name", "property_name", "annotations"},
    "drop_type": {"type_kind", "name", "mode"},
    "drop_property": {"type_kind", "type_name", "property_name", "mode"},
    "unsupported_change": {"entity", "reason"},
}


@settings(max_examples=100, derandomize=True, deadline=None)
@given(data=st.data())
def test_a_plan_without_steps_means_the_same_schema(data: st.DataObject) -> None:
    old = data.draw(accepted_schemas())
    text = format_schema(data.draw(edited(old)))
    before = accept(format_schema(old))
    try:
        plan = plan_migration(before, text)
    except ParseError:
        return  # the edit made something unacceptable

    assert (not plan.steps) == (plan.catalog.fingerprint == before.fingerprint)
    assert not any(
        step.entity == "schema" for step in plan.steps if isinstance(step, UnsupportedChange)
    ), "a change that no rule knows"
    for step in plan.steps:
        wire = json.loads(json.dumps(step.to_json()))
        assert wire.keys() - {"kind", "code", "backfill"} == KEYS[wire["kind"]]
    assert plan_migration(plan.catalog, text).steps == ()


def test_a_plan_to_the_same_text_is_empty() -> None:
    text = "node A { a: I32? }"
    plan = plan_migration(accept(text), text)

    assert plan.supported
    assert plan.steps == ()
    assert plan.render("g") == "schema plan for g\nsupported: yes\nno schema changes"


def test_data_loss_makes_every_drop_hard_and_nothing_else() -> None:
    old = accept("node A { a: I32? }\nnode B {}")
    soft = plan_migration(old, "node A { b: I32? }").to_json()
    hard = plan_migration(old, "node A { b: I32? }", allow_data_loss=True).to_json()

    assert json.loads(json.dumps(soft).replace('"soft"', '"hard"')) == hard
    assert {step.get("mode") for step in hard["steps"]} == {None, "hard"}


def test_an_unsupported_plan_raises_its_first_unsupported_step() -> None:
    plan = plan_migration(accept("node A { a: I32? }"), "node A { a: String? b: I32 }")

    with pytest.raises(MigrationUnsupported) as caught:
        plan.require_supported()
    assert str(caught.value).startswith("[OG-MF-106] node:A.a: changing property type")


def test_a_supported_plan_raises_nothing() -> None:
    plan_migration(accept(""), "node A {}").require_supported()


def test_a_node_type_goes_only_with_its_edges() -> None:
    with pytest.raises(ParseError, match="references unknown source type"):
        plan_migration(accept("node A {}\nedge E: A -> A"), "edge E: A -> A")


def test_a_vector_is_written_with_its_dimension() -> None:
    (step,) = plan_migration(accept("node A {}"), "node A { v: Vector(4)? }").steps

    assert step.to_json()["property_type"] == {
        "scalar": {"Vector": 4},
        "nullable": True,
        "list": False,
        "enum_values": None,
    }


def test_an_annotation_that_changes_only_its_kind_of_value_is_a_change() -> None:
    plan = plan_migration(accept("node A @x(1) {}"), "node A @x(true) {}")

    assert not plan.supported


@pytest.mark.parametrize(
    ("old", "new", "hints"),
    [
        (
            "node Book { title: String, price: F32? }",
            "node Book { title: String, cost: F64? }",
            ["if Book.cost is price under another name"],
        ),
        (
            "node A { a: I32 } node B { b: I32 }",
            "node A { a: I32 } node C { b: I32 }",
            ["if C is B"],
        ),
        (
            "node A { a: I32 } edge E: A -> A { w: F64 }",
            "node A { a: I32 } edge E: A -> A { x: F64 }",
            ["if E.x is w"],
        ),
        (
            "interface I { p: I32? } node A implements I {} node B implements I {} edge E: A -> I",
            "interface I { q: I32? } node A implements I {} node B implements I {} edge E: A -> I",
            ["if I.q is p"],
        ),
        ("node A { p: I32? }", "node A { q: String? }", []),
        ("node A { p: I32? }", "node A { q: I32?, r: I32? }", []),
        ("node A { p: I32?, q: I32? }", "node A { r: I32? }", []),
        ("node A { p: I32? }", "node A { q: I32? @backfill(3) }", []),
        ("node A { p: I32? }", 'node A { q: I32? @rename_from("p") }', []),
        ("node A { p: I32? }", "node A { p: I32?, q: I32? }", []),
    ],
)
def test_a_drop_beside_an_add_that_may_be_a_rename_is_told(
    old: str, new: str, hints: list[str]
) -> None:
    plan = plan_migration(accept(old), new)
    assert [hint.partition(" under")[0] for hint in plan.hints] == [
        hint.partition(" under")[0] for hint in hints
    ]
    for hint in plan.hints:
        assert f"hint: {hint}" in plan.render("g").splitlines()


def test_a_refused_change_that_may_be_a_rename_says_so() -> None:
    plan = plan_migration(accept("node A { p: I32 }"), "node A { q: I32 }")
    with pytest.raises(MigrationUnsupported, match=r'write @rename_from\("p"\) after it'):
        plan.require_supported()
