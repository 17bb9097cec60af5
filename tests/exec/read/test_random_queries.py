"""Random queries over random graphs: every way of walking, and the naive evaluator, agree."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from omnigraph.costs import COSTS
from omnigraph.errors import ExpressionFailed, LimitExceeded, TypeCheckError
from omnigraph.exec.limits import Limits
from omnigraph.exec.read.reading import now_ms
from omnigraph.exec.values.computed import given_of
from omnigraph.graph import Graph
from omnigraph.plan.compile import compile_query
from omnigraph.plan.ir import Constant, ReadPlan
from omnigraph.plan.params import bind_parameters
from omnigraph.storage.protocol.intent import WriterKind
from omnigraph.types import TableKey
from tests.exec.random_queries import SCHEMA, graphs, queries
from tests.exec.read.sharing import rows_in_shares
from tests.exec.reference import Reference
from tests.exec.reference_functions import NoValue
from tests.exec.world import edge_rows, graph_of, node_rows
from tests.lowered import SEEDS, lowered_by
from tests.storage.world import replace_all

# Rows of the reference, too, keep the last of several columns of one name.
pytestmark = pytest.mark.filterwarnings("ignore:several columns are called")

WAYS = (
    ("csr", 0, 0),
    ("csr", 128, 0),
    ("csr", 2, 0),
    ("indexed", 128, 0),
    ("auto", 128, 0),
    ("csr", 0, 1),
)
"""How edges are found, how many rows are walked one by one, and how many an operator passes on at a
time (0: as many as ever)."""

SHARES = (1, 5)
"""With one, everything that a share may leave out is missed; of many, each has a node or none."""

TABLES = {"P": "node", "C": "node", "E": "edge", "W": "edge", "L_P": "edge", "L_C": "edge"}


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Graph]:
    with graph_of(Path(tmp_path_factory.mktemp("random")) / "g", SCHEMA) as made:
        yield made


def overwrite(graph: Graph, data: dict[str, list[dict[str, Any]]]) -> None:
    """Replace everything in the graph."""
    catalog = graph.schema.catalog
    writing = graph._store.begin("main", kind=WriterKind.LOAD)
    for name, records in data.items():
        kind = TABLES[name]
        rows = (node_rows if kind == "node" else edge_rows)(catalog, name, records)
        replace_all(graph._store, writing, TableKey(f"{kind}:{name}"), rows)
    graph._store.commit(writing)


def answers(
    graph: Graph,
    text: str,
    params: dict[str, Any],
    mode: str,
    few_rows_max: int,
    rows_max: int = 0,
) -> list[dict[str, Any]]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(graph._reading, "limits", Limits(rows_max=rows_max, time_ms_max=10**9))
        patch.setenv("OMNIGRAPH_TRAVERSAL_MODE", mode)
        patch.setattr(graph._reading, "few_rows_max", few_rows_max)
        patch.setattr(COSTS, "key_passes_max", 0)  # sorted from the first use on
        return graph.query(text, params).rows


def answered_in_shares(
    graph: Graph, plan: ReadPlan, params: Mapping[str, Constant], count: int
) -> list[dict[str, Any]] | None:
    return rows_in_shares(graph, plan, given_of(plan, params, now_ms()), count)


def or_refused(run: Callable[..., Any], *arguments: Any) -> Any:
    """The rows, or the class of the error where a sum is larger than an integer can be, or where
    an expression fails: for a row that another condition leaves out that is the engine's choice."""
    try:
        return run(*arguments)
    except (LimitExceeded, ExpressionFailed) as refusal:
        return type(refusal)


@settings(
    max_examples=30,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(data=graphs(), asked=st.lists(queries(), min_size=10, max_size=20), seed=SEEDS)
def test_every_way_of_running_a_query_gives_the_same_rows(
    graph: Graph,
    data: dict[str, list[dict[str, Any]]],
    asked: list[tuple[str, dict[str, Any]]],
    seed: int | None,
) -> None:
    with lowered_by(seed):
        every_way_agrees(graph, data, asked)


def every_way_agrees(
    graph: Graph, data: dict[str, list[dict[str, Any]]], asked: list[tuple[str, dict[str, Any]]]
) -> None:
    overwrite(graph, data)
    tables = {TableKey(f"{TABLES[name]}:{name}"): rows for name, rows in data.items()}
    for text, params in asked:
        try:
            plan = compile_query(text, graph.schema.catalog)
        except TypeCheckError:
            continue  # the generator knows most rules of the language, not all
        assert isinstance(plan, ReadPlan)
        bound = bind_parameters(plan.parameters, params)
        try:
            expected = or_refused(Reference(tables, bound).rows, plan)
        except NoValue:
            continue  # whether a row that is left out later fails is the engine's choice
        for way in WAYS:
            found = or_refused(answers, graph, text, params, *way)
            assert found in (expected, ExpressionFailed), f"{way}: {text} {params}"
        for count in SHARES:
            found_in_shares = or_refused(answered_in_shares, graph, plan, bound, count)
            allowed = (expected, None, ExpressionFailed)
            assert found_in_shares in allowed, f"{count} shares: {text} {params}"
