"""Functions on extremes and nulls, beside the answers of DuckDB that `bench/language.py` kept.

Where the two differ, the page of functions says so, and nowhere else.
"""

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph.graph import Graph
from tests import golden

KEPT = json.loads((golden.FIXTURES / "functions" / "duckdb.json").read_text(encoding="utf-8"))
PAGE = Path(__file__).parents[3] / "docs" / "functions.md"
SCHEMA = """node V {
    k: I64 @key  i: I64?  j: I64?  f: F64?  g: F64?  s: String?  p: String?  d: Date?
}"""
ROWS = [dict(zip("ijfgspd", row, strict=True)) for row in KEPT["rows"]]
ERROR = ["error", None]


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Graph]:
    with og.init(tmp_path_factory.mktemp("functions") / "g", SCHEMA) as graph:
        graph.load([{"type": "V", "data": {"k": k, **r}} for k, r in enumerate(ROWS)], "append")
        yield graph


def answers(graph: Graph, call: str) -> list[list[Any]]:
    """What a call answers for each row; one by one where one of them fails."""
    tail = f"}} return {{ {call} as x }} order {{ $v.k }} }}"
    try:
        whole = graph.query(f"query q() {{ match {{ $v: V {tail}").rows
        return [["value", row["x"]] for row in whole]
    except og.ExpressionFailed:
        return [answer(graph, k, tail) for k in range(len(ROWS))]


def answer(graph: Graph, k: int, tail: str) -> list[Any]:
    try:
        (row,) = graph.query(
            f"query q($k: I64) {{ match {{ $v: V {{ k: $k }} {tail}", {"k": k}
        ).rows
    except og.ExpressionFailed:
        return ERROR
    return ["value", row["x"]]


def same(ours: list[Any], theirs: list[Any]) -> bool:
    if ours[0] != theirs[0]:
        return False
    a, b = ours[1], theirs[1]
    numbers = all(isinstance(x, int | float) and not isinstance(x, bool) for x in (a, b))
    return math.isclose(a, b, rel_tol=1e-12) if numbers else a == b


def differing(call: str) -> bool:
    """Whether the page names a call among those that differ."""
    _, _, table = PAGE.read_text(encoding="utf-8").partition("## Beside DuckDB")
    return f"`{call}`" in table


@pytest.mark.parametrize("call", KEPT["calls"])
def test_a_function_answers_as_duckdb_does_or_the_page_says_how_not(
    graph: Graph, call: str
) -> None:
    ours, theirs = answers(graph, call), KEPT["answers"][call]
    different = [n for n in range(len(ROWS)) if not same(ours[n], theirs[n])]
    shown = [(ROWS[n], ours[n], theirs[n]) for n in different[:3]]
    assert bool(different) == differing(call), shown
