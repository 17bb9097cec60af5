"""The queries of the page about the language compile."""

import re
from pathlib import Path

import pytest

from omnigraph.catalog.accept import accept
from omnigraph.language.query.parser import parse_queries
from omnigraph.plan.compile import plan_query
from tests import golden

PAGE = Path(__file__).parents[2] / "docs" / "query-language.md"
BLOCKS = re.findall(r"^```gq\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.M | re.S)


@pytest.mark.parametrize("text", BLOCKS, ids=lambda text: text.partition("(")[0])
def test_every_query_of_the_page_compiles(text: str) -> None:
    catalog = accept(golden.read(golden.FIXTURES / "query" / "schema.pg"))
    for query in parse_queries(text).queries:
        plan_query(query, catalog, text)


def test_the_page_has_queries() -> None:
    assert len(BLOCKS) >= 3
