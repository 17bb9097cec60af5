"""A query as a DataFrame: lazy, typed, and the rows that it gives in one process."""

import datetime
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from omnigraph.errors import BadRequest, ExpressionFailed, LimitExceeded, TypeCheckError
from omnigraph.exec.limits import Limits
from omnigraph.graph import Graph
from omnigraph.pipeline.query_frame import FrameMaker
from omnigraph.plan.compile import compile_query
from omnigraph.plan.ir import ReadPlan
from omnigraph.plan.params import bind_parameters
from omnigraph.types import TableKey
from tests.exec.random_queries import SCHEMA, graphs, queries
from tests.exec.read.test_random_queries import TABLES, or_refused, overwrite
from tests.exec.reference import Reference
from tests.exec.reference_functions import NoValue
from tests.exec.world import graph_of

# Rows of the reference, too, keep the last of several columns of one name.
pytestmark = pytest.mark.filterwarnings("ignore:several columns are called")

TYPED = """
node T {
    name: String @key
    small: I32?
    large: U64?
    part: F64?
    yes: Bool?
    day: Date?
    moment: DateTime?
    words: [String]?
    place: Vector(2)?
}
edge Near: T -> T
"""
ALL = """query q($n: I64) { match { $t: T } return { $t.name, $t.small as small, $t.large as large,
  $t.part as part, $t.yes as yes, $t.day as day, $t.moment as moment, $t.words as words,
  $t.place as place, $n as n } order { $t.large desc, $t.name } }"""
NAMES = "query q() { match { $t: T } return { $t.name } }"
OVERFLOW = "query q() { match { $t: T $u: T } return { sum($t.large) as s } }"


@pytest.fixture(scope="module")
def typed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Graph]:
    rows = [
        {
            "name": "a",
            "small": -1,
            "large": 2**64 - 1,
            "part": 0.5,
            "yes": True,
            "day": 20_000,
            "moment": 1_700_000_000_123,
            "words": ["x", "y"],
            "place": [1.0, 2.0],
        },
        {"name": "b"},
    ]
    near = [{"id": "n", "src": "a", "dst": "b"}]
    path = Path(tmp_path_factory.mktemp("typed")) / "g"
    with graph_of(path, TYPED, {"T": rows}, {"Near": near}) as made:
        yield made


def test_SQ3_a_query_is_a_lazy_frame_with_the_types_of_its_columns(
    typed: Graph, spark: SparkSession
) -> None:
    frame = typed.spark.query(ALL, {"n": 7}, spark=spark)
    assert [(field.name, field.dataType.simpleString()) for field in frame.schema] == [
        ("t.name", "string"),
        ("small", "int"),
        ("large", "decimal(20,0)"),
        ("part", "double"),
        ("yes", "boolean"),
        ("day", "date"),
        ("moment", "timestamp"),
        ("words", "array<string>"),
        ("place", "array<float>"),
        ("n", "bigint"),
    ]
    typed.mutate('query a() { insert T { name: "c" } }')
    first, second = frame.collect()  # as of the snapshot that it was made with
    assert first[:6] == ("a", -1, Decimal(2**64 - 1), 0.5, True, datetime.date(2024, 10, 4))
    assert first.moment.timestamp() == 1_700_000_000.123
    assert first[7:] == (["x", "y"], [1.0, 2.0], 7)
    assert second[:2] == ("b", None)
    assert typed.spark.query(NAMES, spark=spark).where(F.col("`t.name`") > "a").count() == 2


def test_a_frame_reads_the_branch_or_the_commit_it_names(
    tmp_path: Path, spark: SparkSession
) -> None:
    with graph_of(tmp_path / "g", TYPED, {"T": [{"name": "a"}]}) as graph:
        before = graph.snapshot().commit_id
        graph.branches.create("side")
        graph.mutate('query a() { insert T { name: "b" } }', branch="side")
        graph.mutate('query a() { insert T { name: "c" } }')

        def names(**at: str) -> list[str]:
            return [row[0] for row in graph.spark.query(NAMES, spark=spark, **at).collect()]

        assert names(branch="side") == ["a", "b"]
        assert names(snapshot=before) == ["a"]
        assert names() == ["a", "c"]
        with pytest.raises(BadRequest, match="contains mutations"):
            graph.spark.query('query a() { insert T { name: "d" } }', spark=spark)
        with pytest.raises(TypeCheckError):
            graph.spark.query("query q() { match { $t: T } return { $t.nme } }", spark=spark)


def test_a_sum_that_its_type_cannot_hold_is_refused_on_spark_too(
    typed: Graph, spark: SparkSession
) -> None:
    for engine in ("local", "spark"):
        with pytest.raises(LimitExceeded, match="sum"):
            typed.query(OVERFLOW, engine=engine, spark=spark)


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Graph]:
    with graph_of(Path(tmp_path_factory.mktemp("frames")) / "g", SCHEMA) as made:
        yield made


def compare(
    graph: Graph,
    spark: SparkSession,
    data: dict[str, list[dict[str, Any]]],
    asked: list[tuple[str, dict[str, Any]]],
    shares: int,
) -> None:
    """Run queries on Spark in so many shares, with batches of one row, and by the definition."""
    overwrite(graph, data)
    tables = {TableKey(f"{TABLES[name]}:{name}"): rows for name, rows in data.items()}
    for text, params in asked:
        try:
            plan = compile_query(text, graph.schema.catalog)
        except TypeCheckError:
            continue
        assert isinstance(plan, ReadPlan)
        try:
            reference = Reference(tables, bind_parameters(plan.parameters, params))
            expected = or_refused(reference.rows, plan)
        except NoValue:
            continue
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(graph._reading, "limits", Limits(rows_max=1, time_ms_max=10**9))
            patch.setattr(FrameMaker, "_count", lambda *_: shares)

            def rows(text: str = text, params: dict[str, Any] = params) -> list[dict[str, Any]]:
                return graph.query(text, params, engine="spark", spark=spark).rows

            assert or_refused(rows) in (expected, ExpressionFailed), (
                f"{shares} shares: {text} {params}"
            )


HURRIED = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]


@settings(max_examples=2, deadline=None, suppress_health_check=HURRIED)
@given(data=graphs(), asked=st.lists(queries(), min_size=3, max_size=3))
def test_SQ5_random_queries_give_the_same_rows_on_spark(
    graph: Graph,
    spark: SparkSession,
    data: dict[str, list[dict[str, Any]]],
    asked: list[tuple[str, dict[str, Any]]],
) -> None:
    compare(graph, spark, data, asked, shares=4)


@pytest.mark.slow
@settings(max_examples=40, deadline=None, suppress_health_check=HURRIED)
@given(
    data=graphs(),
    asked=st.lists(queries(), min_size=5, max_size=5),
    shares=st.sampled_from([1, 2, 9]),
)
def test_SQ5_many_random_queries_give_the_same_rows_on_spark(
    graph: Graph,
    spark: SparkSession,
    data: dict[str, list[dict[str, Any]]],
    asked: list[tuple[str, dict[str, Any]]],
    shares: int,
) -> None:
    compare(graph, spark, data, asked, shares)
