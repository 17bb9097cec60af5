"""What a schema's text says, before anybody asks whether it makes sense."""

import pytest

from omnigraph.errors import ParseError
from omnigraph.language.schema.ast import Annotation, Edge, Node, Property, RangeConstraint
from omnigraph.language.schema.parser import parse_schema
from omnigraph.types import Span


def node(text: str) -> Node:
    (declaration,) = parse_schema(text).declarations
    assert isinstance(declaration, Node)
    return declaration


def edge(text: str) -> Edge:
    (declaration,) = parse_schema(text).declarations
    assert isinstance(declaration, Edge)
    return declaration


def only_property(text: str) -> Property:
    (prop,) = node(f"node A {{ {text} }}").properties
    return prop


def refused(text: str) -> ParseError:
    with pytest.raises(ParseError) as caught:
        parse_schema(text)
    return caught.value


def test_an_annotation_belongs_to_the_property_before_it() -> None:
    first, second = node("node A { a: I32 @x @y(1) b: I32 @z }").properties

    assert [note.name for note in first.annotations] == ["x", "y"]
    assert [note.name for note in second.annotations] == ["z"]


def test_a_constraint_word_with_parentheses_is_never_an_annotation() -> None:
    declared = node("node A { email: String @unique(email) }")

    assert declared.properties[0].annotations == ()
    assert len(declared.constraints) == 1


def test_a_bare_word_as_value_is_a_string() -> None:
    assert only_property("a: I32 @unit(m)") == only_property('a: I32 @unit("m")')


@pytest.mark.parametrize("word", ["node", "edge", "interface", "implements", "enum", "true", "key"])
def test_no_word_is_reserved(word: str) -> None:
    declared = node(f"node A {{ x: I32 @a {word}: Bool @{word}x @index({word}) y: I32 }}")

    assert [p.name.text for p in declared.properties] == ["x", word, "y"]


def test_a_keyword_may_follow_the_arguments_of_an_annotation() -> None:
    schema = parse_schema("edge E: A -> A @x(1)\nnode A @y(2) implements I {}\ninterface I {}")

    assert len(schema.declarations) == 3


def test_space_and_comments_may_stand_between_any_two_tokens() -> None:
    spread = "node/**/A//\n{ a /*:*/ : [ /**/ I32 ] ? @ x ( 1 , b = 2 ) @ range ( a , 1 .. 2 ) }"

    assert parse_schema(spread) == parse_schema("node A{a:[I32]?@x(1,b=2)@range(a,1..2)}")


@pytest.mark.parametrize(
    ("text", "bounds"),
    [
        ("1..2", (1, 2)),
        ("-1.5..", (-1.5, None)),
        ("..-3", (None, -3)),
        ("0.25..1", (0.25, 1)),
        ("-0..0", (0, 0)),
        ("0" * 5000 + "7..", (7, None)),
    ],
)
def test_a_range_has_the_bounds_it_is_written_with(text: str, bounds: tuple[object, ...]) -> None:
    (constraint,) = node(f"node A {{ @range(a, {text}) }}").constraints

    assert isinstance(constraint, RangeConstraint)
    assert (constraint.low, constraint.high) == bounds


def test_an_upper_bound_alone_is_a_maximum() -> None:
    (constraint,) = node("node A { @range(a, ..5) }").constraints

    assert isinstance(constraint, RangeConstraint)
    assert (constraint.low, constraint.high) == (None, 5)


def test_spans_point_at_the_text() -> None:
    text = "edge E: A -> B @card(0..1) @x { w: [I32]? @y(1) @unique(src, dst) }"
    declared = edge(text)
    prop = declared.properties[0]

    def piece(span: Span) -> str:
        return text[span.start : span.end]

    assert piece(declared.span) == text
    assert piece(declared.target.span) == "B"
    assert declared.cardinality is not None
    assert piece(declared.cardinality.span) == "@card(0..1)"
    assert piece(prop.span) == "w: [I32]? @y(1)"
    assert piece(prop.type.span) == "[I32]?"
    assert piece(declared.constraints[0].span) == "@unique(src, dst)"


def test_positions_count_characters_in_columns_and_bytes_in_spans() -> None:
    error = refused('node A @description("é🙂") { x: Text }')

    assert (error.line, error.column) == (1, 32)
    assert error.byte_span == (35, 39)


def test_the_excerpt_points_at_the_word_that_is_wrong() -> None:
    assert str(refused("node A {\n  x: Text\n}")).splitlines()[:3] == [
        "parse error: unknown type 'Text' (line 2, column 6)",
        "2 |   x: Text",
        "  |      ^^^^",
    ]


def test_the_excerpt_points_right_behind_wide_signs() -> None:
    shown = str(refused('node A @description("日本") { x: Text }')).splitlines()[1:3]
    assert shown == [
        '1 | node A @description("日本") { x: Text }',
        "  |                                  ^^^^",
    ]


def test_an_unknown_type_names_the_known_ones() -> None:
    assert "String, Blob, Bool" in refused("node A { x: Colour }").hint
    assert refused("node A { x: Text }").hint == "write String"


def test_the_star_of_older_documents_is_explained() -> None:
    error = refused("edge E: A -> B @card(0..*)")

    assert error.code == "bad-cardinality"
    assert "@card(1..)" in error.hint


def test_an_annotation_keeps_its_arguments_in_order() -> None:
    (note,) = only_property('a: I32 @x("v", b=1, a=2.5, c=true)').annotations

    assert note == Annotation("x", "v", (("b", 1), ("a", 2.5), ("c", True)), note.span)
