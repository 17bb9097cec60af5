"""Defaults in a schema: what is accepted, how it is kept, what a change of one is."""

import json

import pytest

from omnigraph.catalog import codec
from omnigraph.catalog.accept import accept
from omnigraph.catalog.schema_diff import plan_migration
from omnigraph.errors import ParseError
from omnigraph.language.schema.format import format_schema_text

SCHEMA = """interface Rated { stars: I32 = 3 }
node Paper implements Rated {
  title: String @key
  score: F64 = 0
  open: Bool = true
  tags: [String] = ["a", "b"]
  state: enum(draft, in-print, Done) = Done
  due: Date = "2024-01-31"
  seen: DateTime? = "2024-01-31T10:00:00Z"
  low: I64? = -5
}
edge Cites: Paper -> Paper { weight: F32 = 1.5 }
"""


def test_a_default_is_kept_in_its_canonical_form_and_on_disk() -> None:
    catalog = accept(SCHEMA)
    defaults = {p.name: p.default for p in catalog.nodes["Paper"].properties}
    assert defaults == {
        "title": None,
        "score": 0.0,
        "open": True,
        "tags": ("a", "b"),
        "state": "Done",
        "due": "2024-01-31",
        "seen": "2024-01-31T10:00:00Z",
        "low": -5,
        "stars": 3,
    }
    assert type(defaults["score"]) is float
    assert codec.decode(json.loads(json.dumps(codec.encode(catalog)))) == catalog


def test_a_schema_without_defaults_has_the_document_it_always_had() -> None:
    document = codec.encode(accept("node A { x: I32 }"))
    assert "default" not in json.dumps(document)


def test_the_formatter_puts_a_default_between_spaces() -> None:
    text = 'node A { x:I32=-1 y:[String]=["a","b"] z:enum(a)=a @note("x",key="y") }'
    wide = format_schema_text(text)
    assert "x: I32 = -1" in wide
    assert 'y: [String] = ["a", "b"]' in wide
    assert 'z: enum(a) = a @note("x", key="y")' in wide


@pytest.mark.parametrize(
    "declared",
    [
        "x: I32 = 1.5",
        'x: I32 = "1"',
        "x: I32 = 2147483648",
        "x: U32 = -1",
        "x: Bool = 1",
        "x: F32 = true",
        "x: F64 = 9007199254740993",
        "x: enum(a, b) = c",
        "x: enum(a, b) = true",
        'x: [String] = "a"',
        "x: [I32] = [1, true]",
        "x: String = []",
        "x: String = word",
        'x: Date = "tomorrow"',
        'x: Blob = "base64:aGk="',
        "x: Vector(2) = [1, 2]",
        'x: String = "a" @key',
        "x: I32 = 5 @range(x, 0..3)",
        'x: String = "abc" @check(x, "^[0-9]+$")',
    ],
)
def test_a_default_that_its_property_cannot_hold_is_refused_at_its_position(declared: str) -> None:
    with pytest.raises(ParseError) as refused:
        accept(f"node A {{ {declared} }}")
    assert refused.value.code == "bad-default"
    assert refused.value.line == 1


def test_interfaces_must_agree_about_a_default() -> None:
    text = "interface A { x: I32 = 1 } interface B { x: I32 = 2 } node N implements A, B { y: I32 }"
    with pytest.raises(ParseError, match="disagree"):
        accept(text)


def test_another_default_is_a_step_of_its_own_and_an_added_one_says_it() -> None:
    old = accept("node A { x: I32  y: [I32] = [1, 2] }")
    plan = plan_migration(old, "node A { x: I32 = 4  y: [I32] = [2, 1]  z: F64 = 0.5 }")
    assert plan.supported
    assert [str(step) for step in plan.steps] == [
        "change default 'A.x' (none -> 4) on node 'A'",
        "change default 'A.y' ([1, 2] -> [2, 1]) on node 'A'",
        "add property 'A.z' (F64 = 0.5) on node 'A'",
    ]
    kinds = [(step.to_json()["kind"], step.to_json().get("to")) for step in plan.steps[:2]]
    assert kinds == [("update_default", 4), ("update_default", [2, 1])]
    assert plan.steps[2].to_json()["default"] == 0.5
    assert plan_migration(plan.catalog, "node A { x: I32  y: [I32]  z: F64 }").supported


@pytest.mark.parametrize(
    ("old", "new", "supported"),
    [
        ("I32", "I64", True),
        ("U32", "U64?", True),
        ("F32", "F64", True),
        ("String", "String?", True),
        ("[I32]", "[I64]", True),
        ("enum(a, b)", "enum(a, b, c)?", True),
        ("I64", "I32", False),
        ("String?", "String", False),
        ("I32", "F64", False),
        ("I32", "U64", False),
        ("enum(a, b)", "String", False),
    ],
)
def test_a_type_may_be_widened_and_not_narrowed(old: str, new: str, supported: bool) -> None:
    plan = plan_migration(accept(f"node A {{ x: {old} }}"), f"node A {{ x: {new} }}")
    assert plan.supported is supported


def test_a_float_key_is_not_widened_because_ids_spell_it() -> None:
    plan = plan_migration(accept("node A { x: F32 @key }"), "node A { x: F64 @key }")
    assert not plan.supported
    assert plan_migration(accept("node A { x: I32 @key }"), "node A { x: I64 @key }").supported
