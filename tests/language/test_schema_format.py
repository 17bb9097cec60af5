"""Trees survive being written down."""

import pytest
from hypothesis import given, settings

from omnigraph.language.schema.ast import Schema
from omnigraph.language.schema.literals import format_literal
from omnigraph.language.schema.parser import parse_schema
from tests.language.schema_text import format_schema
from tests.language.schema_trees import schemas


@settings(max_examples=120, derandomize=True, deadline=None)
@given(schema=schemas)
def test_every_tree_reads_back_from_its_canonical_text(schema: Schema) -> None:
    text = format_schema(schema)

    assert parse_schema(text) == schema
    assert format_schema(parse_schema(text)) == text


def test_a_float_is_written_without_exponent() -> None:
    assert [format_literal(value) for value in (1e-7, 1e22, 0.5, 3.0)] == [
        "0.0000001",
        "10000000000000000000000.0",
        "0.5",
        "3.0",
    ]


@pytest.mark.parametrize("source", ["title", "true", "false", "Title", "two words", "enum", ""])
def test_the_source_of_an_embedding_stays_a_text(source: str) -> None:
    schema = parse_schema(f'node A {{ v: Vector(2) @embed("{source}") }}')

    assert parse_schema(format_schema(schema)) == schema


def test_a_schema_without_declarations_is_an_empty_text() -> None:
    assert format_schema(parse_schema("  // nothing\n")) == ""


def test_the_same_meaning_is_written_one_way() -> None:
    loose = "node A{x:enum(b,a)@z(1),@index(x)}//c\nedge E:A->A{}"
    tidy = "node A {\n  x: enum(a, b) @z(1)\n  @index(x)\n}\n\nedge E: A -> A\n"

    assert format_schema(parse_schema(loose)) == tidy
