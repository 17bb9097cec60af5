"""Query trees and their text."""

from hypothesis import given, settings

from omnigraph.language.query import ast
from omnigraph.language.query.parser import parse_queries
from tests.language.query_text import format_queries
from tests.language.query_trees import files


@settings(max_examples=200, derandomize=True, deadline=None)
@given(file=files())
def test_every_tree_reads_back_from_its_text(file: ast.QueryFile) -> None:
    text = format_queries(file)

    assert parse_queries(text) == file
    assert format_queries(parse_queries(text)) == text


def test_numbers_are_written_without_exponent() -> None:
    numbers = "0.000000000000000000001, 100000000000000000000000.0"
    text = f"query q() {{ match {{ $p: A }} return {{ {numbers} }} }}"

    assert "e" not in format_queries(parse_queries(text)).partition("return")[2]
