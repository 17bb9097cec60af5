"""Random patterns behind a write: what is written is what a naive model writes row by row.

The rows come from the naive evaluator, and the model is dictionaries: an update changes the entity
of a row's id, the last row wins, a deleted node takes its edges along, each row inserts an edge.
"""

from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

import omnigraph as og
from omnigraph.graph import Graph
from omnigraph.plan import mutation_ir
from omnigraph.plan.compile import compile_query
from omnigraph.plan.params import bind_parameters
from omnigraph.types import TableKey
from tests.exec.random_queries import SCHEMA, Scope, Writer, graphs
from tests.exec.read.test_random_queries import TABLES, overwrite
from tests.exec.reference import Reference, Row
from tests.exec.reference_functions import NoValue
from tests.exec.world import graph_of

Data = dict[str, list[dict[str, Any]]]


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Graph]:
    with graph_of(Path(tmp_path_factory.mktemp("matched")) / "g", SCHEMA) as made:
        yield made


@st.composite
def writes(draw: DrawFn) -> tuple[str, str, str, dict[str, Any]]:
    """What is done to which type, the text of the query, and its parameters."""
    writer, scope = Writer(draw), dict[str, str]()
    clauses = writer.pattern(scope, depth=1, inner=False)
    var = writer.pick(scope)
    verb = writer.pick(("update", "update", "delete", "insert"))
    statement = _statement(writer, scope, verb, var)
    declared = ", ".join(f"${n}: {t}" for n, (t, _) in writer.query.params.items())
    text = f"query q({declared}) {{ {statement} match {{ {'  '.join(clauses)} }} }}"
    params = {name: value for name, (_, value) in writer.query.params.items()}
    return verb, scope[var], text, params


def _statement(writer: Writer, scope: Scope, verb: str, var: str) -> str:
    people = [name for name, type_ in scope.items() if type_ == "P"]
    match verb:
        case "delete":
            return f"delete ${var}"
        case "update":
            return f"update ${var} set {{ s: coalesce({writer.text_value(scope)}, ${var}.s) }}"
        case _:
            ends = [writer.pick(people or scope) for _ in range(2)]
            value = f"coalesce({writer.text_value(scope)}, ${ends[0]}.s)"
            return f"insert E {{ from: ${ends[0]}, to: ${ends[1]}, s: {value} }}"


def modelled(data: Data, verb: str, type_: str, rows: list[list[Any]]) -> Data | None:
    """The data after the write; None where it must be refused."""
    after = deepcopy(data)
    if verb == "insert":
        if any(end is None for row in rows for end in row[:-1]):
            return None
        new = [{"src": row[0], "dst": row[-2], "s": row[-1], "w": None} for row in rows]
        after["E"] += new
        return after
    if verb == "update":
        written = {row[0]: row[1] for row in rows if row[0] is not None}
        for entity in after[type_]:
            if entity["id"] in written:
                entity["s"] = written[entity["id"]]
        return after
    gone = {row[0] for row in rows}
    after[type_] = [entity for entity in after[type_] if entity["id"] not in gone]
    ends = {
        "P": {"E": ("src", "dst"), "W": ("src",), "L_P": ("dst",)},
        "C": {"W": ("dst",), "L_P": ("src",), "L_C": ("src", "dst")},
    }
    for edge, columns in ends.get(type_, {}).items():
        after[edge] = [e for e in after[edge] if gone.isdisjoint(e[end] for end in columns)]
    return after


def shown(data: Data) -> dict[str, list[str]]:
    """Texts and ends of everything, in an order that does not depend on new ids."""
    keys = {
        "P": ("id", "s", "i"),
        "C": ("id", "s"),
        "E": ("src", "dst", "s", "w"),
        **dict.fromkeys(("W", "L_P", "L_C"), ("id", "s")),
    }
    return {
        name: sorted(repr([entity[key] for key in keys[name]]) for entity in data[name])
        for name in data
    }


def stored(graph: Graph) -> dict[str, list[str]]:
    def of(pattern: str, columns: str) -> list[str]:
        text = f"query q() {{ match {{ {pattern} }} return {{ {columns} }} }}"
        return sorted(repr(list(row.values())) for row in graph.query(text))

    return {
        "P": of("$v: P", "$v.id, $v.s, $v.i"),
        "C": of("$v: C", "$v.id, $v.s"),
        "E": of("$a: P  $a $k:e $b", "$k.from, $k.to, $k.s, $k.w"),
        "W": of("$a: P  $a $k:w $b", "$k.id, $k.s"),
        "L_P": of("$a $k:l $b  $b: P", "$k.id, $k.s"),
        "L_C": of("$a: C  $b: C  $a $k:l $b", "$k.id, $k.s"),
    }


def same_as_the_model(graph: Graph, data: Data, asked: list[Any]) -> None:
    for verb, type_, text, params in asked:
        try:
            plan = compile_query(text, graph.schema.catalog)
        except og.TypeCheckError:
            continue  # an interface, say, or ends of another type
        assert isinstance(plan, mutation_ir.MutationPlan)
        (op,) = plan.statements
        assert isinstance(op, mutation_ir.MatchedRows)
        tables = {TableKey(f"{TABLES[name]}:{name}"): rows for name, rows in data.items()}
        reference = Reference(tables, bind_parameters(plan.parameters, params))
        try:
            for computed in plan.computed:
                reference.params[computed.name] = reference.value(computed.value, Row())
            rows = [list(row.values()) for row in reference.rows(op.read)]
        except NoValue:
            continue  # whether a row that is left out later fails is the engine's choice
        overwrite(graph, data)
        expected = modelled(data, verb, type_, rows)
        if expected is None:
            with pytest.raises(og.OmnigraphError):
                graph.mutate(text, params)
        else:
            graph.mutate(text, params)
        assert stored(graph) == shown(expected or data), f"{text} {params}"


_SETTINGS: dict[str, Any] = {"deadline": None, "suppress_health_check": list(HealthCheck)}
_CASES: dict[str, Any] = {"data": graphs(), "asked": st.lists(writes(), min_size=3, max_size=5)}


@settings(max_examples=6, **_SETTINGS)
@given(**_CASES)
def test_a_write_behind_a_random_pattern_is_that_of_the_model(
    graph: Graph, data: Data, asked: list[Any]
) -> None:
    same_as_the_model(graph, data, asked)


@pytest.mark.slow
@settings(max_examples=300, **_SETTINGS)
@given(**_CASES)
def test_many_more_writes_behind_random_patterns(
    graph: Graph, data: Data, asked: list[Any]
) -> None:
    same_as_the_model(graph, data, asked)
