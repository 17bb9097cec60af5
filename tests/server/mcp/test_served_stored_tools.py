"""Stored queries of a server are tools of its agents, run by the route of stored queries."""

from pathlib import Path

from omnigraph.server.serve_settings import GraphExtras
from tests.server.mcp.agent_client import STORED, connected, new_graph
from tests.server.world import served


def test_stored_queries_of_a_server_are_tools(tmp_path: Path) -> None:
    texts = dict.fromkeys(("by_name", "hire", "near"), STORED)
    with served(new_graph(tmp_path), extras={"people": GraphExtras(queries=texts)}) as server:
        with connected(f"{server.url}/mcp?branch=agent/s") as agent:
            tool = agent.tools()["by_name"]
            assert tool.description == "A person by name. Use it before you add somebody."
            assert tool.input_schema["required"] == ["name"]
            hired = agent.done("hire", name="Stored", age=3)
            assert (hired["branch"], hired["affected_nodes"]) == ("agent/s", 1)
            assert hired["commit"]["metadata"]["mcp_tool"] == "hire"
            assert agent.done("by_name", name="Stored")["rows"] == [{"name": "Stored", "age": 3}]
            assert agent.done("by_name", name="Stored", branch="main")["rows"] == []
            assert agent.done("near", v=[0, 1, 0, 0])["rows"] == [{"slug": "d2"}]
            assert agent.failed("hire", name="X", if_commit="0" * 26)["status"] == 412
            assert agent.failed("by_name", name="A", age=1)["status"] == 400
        with connected(f"{server.url}/mcp?read_only=true&stored_only=true") as agent:
            tools = agent.tools()
            assert {"by_name", "near"} <= tools.keys()
            assert {"hire", "query", "mutate"}.isdisjoint(tools)
