"""Sums and averages of integers: exact, and refused where no integer can hold them."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from omnigraph.errors import LimitExceeded
from omnigraph.exec.read.reading import now_ms
from omnigraph.exec.values.constants import Given
from omnigraph.graph import Graph
from omnigraph.plan.compile import compile_query
from omnigraph.plan.ir import ReadPlan
from tests.exec.read.sharing import rows_in_shares
from tests.exec.world import graph_of

SCHEMA = "node T { k: String @key  g: String  i: I32?  u: U32?  big: I64?  vast: U64?  f: F64? }"
I64_MAX, U64_MAX = 2**63 - 1, 2**64 - 1
ROWS: list[dict[str, Any]] = [
    {"k": "a", "g": "odd", "i": 2**31 - 1, "u": 2**32 - 1, "big": 2**53, "vast": 2**63},
    {"k": "b", "g": "odd", "i": 2**31 - 1, "u": 2**32 - 1, "big": 1, "vast": 2**63 - 1},
    {"k": "c", "g": "least", "big": -(2**63)},
    {"k": "d", "g": "far", "big": I64_MAX, "vast": U64_MAX},
    {"k": "e", "g": "far", "big": 1, "vast": 1},
    {"k": "f", "g": "back", "big": I64_MAX},
    {"k": "g", "g": "back", "big": 5},
    {"k": "h", "g": "back", "big": -7},
    {"k": "i", "g": "nothing"},
    {"k": "j", "g": "deep", "big": -(2**63)},
    {"k": "k", "g": "deep", "big": -1},
]
SHARES = [None, 1, 3, 7]


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Graph]:
    with graph_of(tmp_path_factory.mktemp("sums") / "g", SCHEMA, {"T": ROWS}) as made:
        yield made


def summed(graph: Graph, measure: str, group: str, count: int | None) -> Any:
    """A measure of the rows of one group, in one process or from shares as Spark has them."""
    text = f'query q() {{ match {{ $t: T {{ g: "{group}" }} }} return {{ {measure} as m }} }}'
    if count is None:
        return graph.query(text).rows[0]["m"]
    plan = compile_query(text, graph.schema.catalog)
    assert isinstance(plan, ReadPlan)
    rows = rows_in_shares(graph, plan, Given({}, now_ms()), count)
    assert rows is not None
    return rows[0]["m"]


@pytest.mark.parametrize("count", SHARES)
@pytest.mark.parametrize(
    ("measure", "group", "expected"),
    [
        ("sum($t.big)", "odd", 9007199254740993),
        ("sum($t.vast)", "odd", U64_MAX),
        ("sum($t.i)", "odd", 2**32 - 2),
        ("sum($t.u)", "odd", 2**33 - 2),
        ("sum($t.big)", "least", -(2**63)),
        ("sum($t.big)", "back", I64_MAX - 2),
        ("sum($t.big)", "nothing", None),
        ("avg($t.big)", "nothing", None),
        ("sum(3)", "back", 9),
    ],
)
def test_a_sum_of_integers_is_the_integer_it_is(
    graph: Graph, measure: str, group: str, expected: int | None, count: int | None
) -> None:
    total = summed(graph, measure, group, count)
    assert total == expected
    assert type(total) is type(expected)


@pytest.mark.parametrize("count", SHARES)
@pytest.mark.parametrize(
    ("measure", "group", "actual", "limit"),
    [
        ("sum($t.big)", "far", 2**63, I64_MAX),
        ("sum($t.big)", "deep", -(2**63) - 1, -(2**63)),
        ("sum($t.vast)", "far", 2**64, U64_MAX),
    ],
)
def test_a_sum_that_no_integer_holds_is_refused_with_its_value(
    graph: Graph, measure: str, group: str, actual: int, limit: int, count: int | None
) -> None:
    with pytest.raises(LimitExceeded) as refused:
        summed(graph, measure, group, count)
    assert (refused.value.actual, refused.value.limit) == (actual, limit)
    property_name = measure.removeprefix("sum(").removesuffix(")")
    assert f"sum({property_name}" in str(refused.value)
    assert "avg" in str(refused.value)


@pytest.mark.parametrize("count", SHARES)
def test_an_average_of_integers_divides_their_exact_sum(graph: Graph, count: int | None) -> None:
    assert summed(graph, "avg($t.big)", "far", count) == 2**63 / 2
    assert summed(graph, "avg($t.big)", "back", count) == (I64_MAX - 2) / 3
    assert summed(graph, "avg($t.big)", "odd", count) == 9007199254740993 / 2
    assert summed(graph, "avg($t.vast)", "far", count) == 2**64 / 2


def test_sums_keep_their_types_in_arrow_and_json(graph: Graph) -> None:
    text = """query q() { match { $t: T { g: "odd" } } return {
      sum($t.i) as i, sum($t.u) as u, sum($t.big) as big, sum($t.vast) as vast, sum($t.f) as f,
      avg($t.i) as mean } }"""
    result = graph.query(text)
    kinds = [pa.int64(), pa.uint64(), pa.int64(), pa.uint64(), pa.float64(), pa.float64()]
    assert result.to_arrow().schema.types == kinds
    assert '"big": 9007199254740993' in json.dumps(result.rows)


def test_sums_over_many_rows_and_groups_are_exact(tmp_path: Path) -> None:
    values = [(-1) ** n * (2**62 - n) for n in range(2000)]
    rows = [{"k": f"{n}", "g": f"g{n % 7}", "big": value} for n, value in enumerate(values)]
    with graph_of(tmp_path / "g", SCHEMA, {"T": rows}) as graph:
        text = "query q() { match { $t: T } return { $t.g as g, sum($t.big) as s } }"
        totals = {f"g{n}": sum(values[n::7]) for n in range(7)}
        assert {row["g"]: row["s"] for row in graph.query(text)} == totals
        text = "query q() { match { $t: T } return { sum($t.big) as s } }"
        assert graph.query(text).rows == [{"s": sum(values)}]
