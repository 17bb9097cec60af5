"""A condition means the same to Lance, to Arrow and to the naive evaluator."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from omnigraph.exec.values.constants import Given
from omnigraph.exec.values.pushdown import push_down
from omnigraph.graph import Graph
from omnigraph.plan import ir
from omnigraph.storage.lance.index_segments import IndexRequest
from omnigraph.storage.protocol.intent import WriterKind
from omnigraph.types import Scalar, TableKey, ValueType
from tests.exec.random_queries import SCHEMA, VALUES
from tests.exec.reference import Reference
from tests.exec.world import graph_of

P = TableKey("node:P")
V = ir.Var("p")
OPS = list(ir.CompareOp)

NUMBERS = (
    *(0, 1, -1, 2, 2**31, 2**53, 2**53 + 1, 2**63 - 1, -(2**63), 2**63, 2**64, -(2**70)),
    *(0.0, -0.0, 0.5, 2.7, -1.5, 0.1, 1e300, -1e300, 2.0**53, 2.0**63, 5e-324, 0.10000000149011612),
)
TYPES = {
    "i": Scalar.I32,
    "big": Scalar.I64,
    "u": Scalar.U64,
    "f": Scalar.F64,
    "g": Scalar.F32,
    "s": Scalar.STRING,
    "b": Scalar.BOOL,
    "d": Scalar.DATE,
    "t": Scalar.DATETIME,
}
NUMERIC = ("i", "big", "u", "f", "g")
ODD_TEXTS = st.text(st.characters(codec="utf-8"), max_size=4)


def records() -> list[dict[str, Any]]:
    """Every value beside others, and nulls."""
    longest = max(len(VALUES[name]) for name in TYPES) + 1
    rows: list[dict[str, Any]] = []
    for turn in range(3):
        for n in range(longest):
            row: dict[str, Any] = {"k": f"{turn}-{n:02d}"}
            for shift, name in enumerate(TYPES):
                choices = (*VALUES[name], None)
                row[name] = choices[(n + turn * shift) % len(choices)]
            lists: tuple[Any, ...] = ([], ["a"], ["a'b", "é"], None)
            row["l"] = lists[n % 4]
            numbers: tuple[Any, ...] = ([0], [], [2**53 + 1, 1], None)
            row["n"] = numbers[(n + turn) % 4]
            rows.append({"id": row["k"], **row})
    return rows


RECORDS = records()


@pytest.fixture(scope="module", params=["plain", "indexed columns"])
def graph(request: pytest.FixtureRequest, tmp_path_factory: Any) -> Iterator[Graph]:
    with graph_of(
        Path(tmp_path_factory.mktemp("predicates")) / "g", SCHEMA, {"P": RECORDS}
    ) as made:
        if request.param != "plain":
            _index(made, "i", "big", "u", "f", "g", "s", "b", "d", "t")
        yield made


def _index(graph: Graph, *columns: str) -> None:
    writing = graph._store.begin("main", kind=WriterKind.ENSURE_INDICES)
    requests = [IndexRequest(column, "BTREE", f"{column}_idx") for column in columns]
    writing.create_indexes(P, requests)
    graph._store.commit(writing)


@pytest.fixture(scope="module")
def columns(graph: Graph) -> dict[str, ir.Column]:
    node = graph.schema.catalog.nodes["P"]
    return {p.name: ir.Column(V, p.name, p.id, p.type) for p in node.properties}


@st.composite
def conditions(draw: st.DrawFn, depth: int = 2) -> Any:
    """A condition with names for columns, made real by `_real`."""
    kind = draw(st.integers(0, 9))
    if depth and kind == 0:
        return ("not", draw(conditions(depth - 1)))
    if depth and kind == 1:
        return ("and", draw(st.lists(conditions(depth - 1), min_size=2, max_size=3)))
    if depth and kind == 2:
        return ("or", draw(st.lists(conditions(depth - 1), min_size=2, max_size=3)))
    name = draw(st.sampled_from(list(TYPES)))
    if kind == 3:
        return ("null", name, draw(st.booleans()))
    if kind == 4:
        return ("text", draw(_value("s")), draw(st.booleans()))
    if kind == 5:
        return ("in", name, draw(st.lists(_known(name), max_size=4)))
    if kind == 6:
        return (
            ("has", "l", draw(_value("s")))
            if draw(st.booleans())
            else ("has", "n", draw(_value("i")))
        )
    if kind == 7:
        other = draw(st.sampled_from(NUMERIC if name in NUMERIC else (name,)))
        return ("columns", draw(st.sampled_from(OPS)), name, other)
    return ("compare", draw(st.sampled_from(OPS)), name, draw(_value(name)), draw(st.booleans()))


def _known(name: str) -> st.SearchStrategy[Any]:
    if name in NUMERIC:
        return st.sampled_from(NUMBERS)
    if name == "s":
        return st.one_of(st.sampled_from(VALUES["s"]), ODD_TEXTS)
    return st.sampled_from(VALUES[name])


def _value(name: str) -> st.SearchStrategy[Any]:
    return st.one_of(_known(name), _known(name), _known(name), st.none())


def _constant(value: Any, name: str) -> ir.Const:
    scalar = TYPES[name]
    if name in NUMERIC:
        scalar = Scalar.F64 if isinstance(value, float) else Scalar.I64
    return ir.Const(value, ValueType(scalar, nullable=True))


def _real(shape: Any, columns: dict[str, ir.Column]) -> ir.Expr:
    match shape:
        case ("not", part):
            return ir.Not(_real(part, columns))
        case ("and", parts):
            return ir.And(tuple(_real(part, columns) for part in parts))
        case ("or", parts):
            return ir.Or(tuple(_real(part, columns) for part in parts))
        case ("null", name, negated):
            return ir.IsNull(columns[name], negated)
        case ("text", value, prefix):
            return ir.TextContains(columns["s"], _constant(value, "s"), prefix)
        case ("in", name, values):
            items = ir.Const(tuple(values), ValueType(TYPES[name], is_list=True))
            return ir.ListContains(items, columns[name])
        case ("has", "l", value):
            return ir.ListContains(columns["l"], _constant(value, "s"))
        case ("has", name, value):
            return ir.ListContains(columns[name], _constant(value, "big"))
        case ("columns", op, left, right):
            return ir.Compare(op, columns[left], columns[right])
        case ("compare", op, name, value, turned):
            sides = columns[name], _constant(value, name)
            return ir.Compare(op, *(sides[::-1] if turned else sides))
    raise AssertionError(shape)


def _plan(where: ir.Expr) -> ir.ReadPlan:
    id_ = ir.EntityId(V, ValueType(Scalar.STRING))
    return ir.ReadPlan(
        name="q",
        parameters=(),
        pattern=(ir.NodeScan(V, P, where),),
        scores=(),
        aggregate=None,
        columns=(ir.OutputColumn("id", id_, id_.type),),
        distinct=False,
        order=(ir.SortKey(id_),),
        limit=None,
        offset=0,
    )


@settings(
    max_examples=300,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(shape=conditions())
def test_lance_and_arrow_and_the_naive_evaluator_agree(
    graph: Graph, columns: dict[str, ir.Column], shape: Any
) -> None:
    where = _real(shape, columns)
    plan = _plan(where)
    expected = Reference({P: RECORDS}).rows(plan)
    snapshot = graph.snapshot()
    for mode in ("csr", "indexed"):
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("OMNIGRAPH_TRAVERSAL_MODE", mode)
            assert graph._reading.run(plan, {}, snapshot).rows == expected, f"{mode}: {where}"


@pytest.mark.parametrize(
    ("shape", "filter"),
    [
        (("compare", ir.CompareOp.LT, "i", 2.7, False), "(`i` <= 2)"),
        (
            ("compare", ir.CompareOp.EQ, "i", 2.7, False),
            "((`i` IS NULL AND cast(NULL as boolean)))",
        ),
        (("compare", ir.CompareOp.EQ, "s", "a'b", True), "(`s` = 'a''b')"),
        (("compare", ir.CompareOp.GT, "d", 0, False), "(`d` > date '1970-01-01')"),
        (("compare", ir.CompareOp.GT, "f", 0.5, False), "((`f` > 0.5 OR isnan(`f`)))"),
        (("in", "i", [1, 2.0, 2.5]), "(`i` IN (1, 2))"),
        (("text", "100%", True), "(starts_with(`s`, '100%'))"),
        (("has", "l", "x"), "(array_has(`l`, 'x'))"),
    ],
)
def test_a_scan_pushes_what_lance_can_decide(
    columns: dict[str, ir.Column], shape: Any, filter: str
) -> None:
    pushed = push_down(_real(shape, columns), Given({}, 0), lambda column: column.name)
    assert (pushed.filter, pushed.rest) == (filter, None)


def test_what_lance_cannot_decide_stays_and_the_rest_goes(columns: dict[str, ir.Column]) -> None:
    easy = ir.Compare(ir.CompareOp.EQ, columns["i"], _constant(1, "i"))
    hard = ir.Compare(ir.CompareOp.EQ, columns["i"], columns["big"])
    pushed = push_down(ir.And((hard, easy)), Given({}, 0), lambda column: column.name)
    assert (pushed.filter, pushed.rest) == ("(`i` = 1)", hard)
