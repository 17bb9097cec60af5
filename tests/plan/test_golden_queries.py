"""Every query file in tests/fixtures/query: its tree and plan, or why it is refused."""

import dataclasses
from enum import Enum
from pathlib import Path

import pytest

from omnigraph.catalog.accept import accept
from omnigraph.catalog.model import Catalog
from omnigraph.errors import SourceError
from omnigraph.language.query.parser import parse_queries
from omnigraph.plan.compile import plan_query
from omnigraph.plan.explain import explain
from omnigraph.types import ValueType
from tests import golden
from tests.language.query_text import format_queries

QUERIES = golden.FIXTURES / "query"
ACCEPTED = sorted(QUERIES.glob("accept/*.gq"))
REJECTED = sorted(QUERIES.glob("reject/*.gq"))


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return accept(golden.read(QUERIES / "schema.pg"))


def name(path: Path) -> str:
    return path.stem


def tree_lines(value: object, label: str, depth: int = 0) -> list[str]:
    """A syntax tree, one value a line, without positions."""
    indent = "  " * depth
    if isinstance(value, tuple):
        items = (tree_lines(item, f"{label}[{at}]", depth) for at, item in enumerate(value))
        return [line for lines in items for line in lines]
    if not dataclasses.is_dataclass(value) or isinstance(value, ValueType):
        shown = str(value) if isinstance(value, Enum | ValueType) else repr(value)
        return [f"{indent}{label}: {shown}"]
    lines = [f"{indent}{label}: {type(value).__name__}"]
    for field in dataclasses.fields(value):
        if field.compare:
            lines += tree_lines(getattr(value, field.name), field.name, depth + 1)
    return lines


@pytest.mark.parametrize("path", ACCEPTED, ids=name)
def test_an_accepted_file_has_this_tree(path: Path) -> None:
    file = parse_queries(golden.read(path))

    lines = tree_lines(file.queries, "query")
    golden.assert_golden(path.with_suffix(".tree"), "\n".join(lines) + "\n")
    assert parse_queries(format_queries(file)) == file


def plans_of(text: str, catalog: Catalog) -> list[str]:
    queries = parse_queries(text).queries
    return [explain(plan_query(query, catalog, text)) for query in queries]


@pytest.mark.parametrize("path", ACCEPTED, ids=name)
def test_an_accepted_file_has_these_plans(path: Path, catalog: Catalog) -> None:
    plans = plans_of(golden.read(path), catalog)

    golden.assert_golden(path.with_suffix(".plan"), "\n".join(plans))


@pytest.mark.parametrize("path", REJECTED, ids=name)
def test_a_rejected_file_fails_where_and_how_its_first_line_says(
    path: Path, catalog: Catalog
) -> None:
    text = golden.read(path)

    with pytest.raises(SourceError) as caught:
        plans_of(text, catalog)

    golden.assert_refused(path, caught.value)


def test_every_documented_code_has_a_fixture_and_the_reverse() -> None:
    assert golden.expected_codes(REJECTED) == golden.documented_codes("query-language.md")
