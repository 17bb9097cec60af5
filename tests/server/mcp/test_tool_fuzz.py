"""Arguments drawn from each tool's JSON Schema, and deliberately wrong ones: only tool errors."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from mcp_types import CallToolResult

import omnigraph as og
from omnigraph.server.mcp.agent_server import AgentSeat, AgentServer
from omnigraph.server.mcp.agent_session import AgentSession
from omnigraph.server.mcp.agent_tools import FIXED
from omnigraph.server.mcp.local_desk import LocalDesk
from omnigraph.server.mcp.tool_arguments import input_schema
from tests.server.mcp.agent_client import (
    ADD,
    NAMES,
    STORED,
    AgentClient,
    connected,
    new_graph,
    stored_in,
)

STORED_TOOLS = ("by_name", "hire", "near")
LIKELY = (
    "people",
    "main",
    "main~1",
    "agent/f",
    "Person",
    "Doc",
    "Knows",
    "Ada",
    "d1",
    NAMES,
    ADD,
    '{"type":"Person","data":{"name":"F"}}',
    "..",
    "a/b",
    "\x00",
    "é",
)
TEXTS = st.one_of(st.sampled_from(LIKELY), st.text(max_size=8))
JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), TEXTS),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(TEXTS, inner, max_size=3)),
    max_leaves=5,
)


def values(schema: dict[str, Any]) -> st.SearchStrategy[Any]:
    """Values that fit a JSON Schema of the kinds that tools use."""
    if "anyOf" in schema:
        return st.one_of([values(each) for each in schema["anyOf"]])
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    kinds = schema.get("type")
    if isinstance(kinds, list):
        return st.one_of([values({**schema, "type": kind}) for kind in kinds])
    match kinds:
        case "string":
            least = schema.get("minLength", 0)
            return TEXTS.filter(lambda text: len(text) >= least)
        case "integer":
            most = min(schema.get("maximum", 1 << 40), 1_000)
            return st.integers(schema.get("minimum", -1_000), most)
        case "number":
            return st.floats(allow_nan=False, allow_infinity=False)
        case "boolean":
            return st.booleans()
        case "null":
            return st.none()
        case "array":
            least = schema.get("minItems", 0)
            items = values(schema.get("items", {}))
            return st.lists(items, min_size=least, max_size=schema.get("maxItems", 3))
        case "object":
            return objects(schema)
        case _:
            return JSON


def objects(schema: dict[str, Any]) -> st.SearchStrategy[Any]:
    """Objects that fit a schema."""
    members = {name: values(each) for name, each in schema.get("properties", {}).items()}
    if not members:
        return st.dictionaries(TEXTS, JSON, max_size=2)
    required = {name: members.pop(name) for name in schema.get("required", ())}
    return st.fixed_dictionaries(required, optional=members)


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AgentClient]:
    folder = tmp_path_factory.mktemp("fuzz")
    (folder / "q.gq").write_text(STORED)
    with og.open(new_graph(folder)) as graph:
        desk = LocalDesk(graph, "people", "act-f", stored_in(graph, folder / "q.gq"))
        seat = AgentSeat(desk, AgentSession(branch="agent/f"))
        with connected(AgentServer(lambda context: seat).server()) as client:
            client.tools()  # results are validated by the client from here on
            yield client


def answered(agent: AgentClient, name: str, arguments: dict[str, Any]) -> CallToolResult:
    """Call a tool; whatever it is given, it answers with a result or a tool error."""
    result = agent.call(name, **arguments)
    if result.is_error:
        error = json.loads(result.content[0].text)  # type: ignore[union-attr]
        assert error.keys() == {"error", "status", "code", "requestId", "body"}
        assert 400 <= error["status"] < 500, error
        assert error["error"]
    return result


@pytest.mark.parametrize("name", sorted(FIXED))
@settings(
    max_examples=8,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(data=st.data())
def test_fitting_arguments_give_results_or_tool_errors(
    agent: AgentClient, name: str, data: st.DataObject
) -> None:
    arguments = data.draw(values(input_schema(FIXED[name].tool.arguments)))
    if "wait_ms" in arguments:
        arguments["wait_ms"] = 1
    answered(agent, name, arguments)


@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(data=st.data())
def test_wrong_arguments_are_tool_errors(agent: AgentClient, data: st.DataObject) -> None:
    name = data.draw(st.sampled_from([*sorted(FIXED), *STORED_TOOLS]))
    known = [each.name for each in FIXED[name].tool.arguments] if name in FIXED else ["name"]
    names = st.one_of(st.sampled_from([*known, "x"]), TEXTS)
    arguments = data.draw(st.dictionaries(names, JSON, max_size=4))
    if "wait_ms" in arguments:
        arguments["wait_ms"] = "soon"
    answered(agent, name, arguments)


@pytest.mark.slow
@settings(
    max_examples=1_500,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(data=st.data())
def test_any_arguments_of_any_tool(agent: AgentClient, data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(sorted(FIXED)))
    schema = values(input_schema(FIXED[name].tool.arguments))
    arguments = data.draw(st.one_of(schema, st.dictionaries(TEXTS, JSON, max_size=4)))
    if "wait_ms" in arguments:
        arguments["wait_ms"] = 1
    answered(agent, name, arguments)
