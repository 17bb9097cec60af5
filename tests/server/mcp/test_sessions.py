"""What a session may do and how much it is shown; tokens, origins and stored queries."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from mcp import MCPError

import omnigraph as og
from omnigraph.cluster.query_catalog import NO_QUERIES, StoredQueries, texts_of_paths
from omnigraph.server.mcp.agent_server import AgentSeat, AgentServer
from omnigraph.server.mcp.agent_session import AgentSession
from omnigraph.server.mcp.local_desk import LocalDesk
from omnigraph.server.serve_settings import Access
from tests.server.mcp.agent_client import (
    ADD,
    NAMES,
    STORED,
    command,
    connected,
    new_graph,
    stored_in,
    with_token,
)
from tests.server.mcp.test_tools import READS, WRITES
from tests.server.world import TOKENS, served

FREE = {"query", "mutate", "lint", "explain"}
STAR = "query all() { match { $d: Doc } return { $d.* } order { $d.slug } }"
TELL = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "t", "version": "1"},
    },
}
ACCEPTS = {"Accept": "application/json, text/event-stream"}


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Iterator[og.Graph]:
    with og.open(new_graph(tmp_path_factory.mktemp("sessions"))) as opened:
        yield opened


def session(graph: og.Graph, stored: StoredQueries = NO_QUERIES, **facts: Any) -> Any:
    """A session in this process, without a transport."""
    seat = AgentSeat(LocalDesk(graph, "people", "act-t", stored), AgentSession(**facts))
    return connected(AgentServer(lambda context: seat).server())


def test_a_read_only_session_offers_and_runs_no_writing_tool(graph: og.Graph) -> None:
    with session(graph, read_only=True) as agent:
        assert agent.tools().keys() == READS
        refused = agent.failed("mutate", query=ADD, params={"n": "No"})
        assert (refused["status"], refused["code"]) == (403, "forbidden")
        assert "read-only" in refused["error"]


def test_a_stored_only_session_runs_no_text_of_the_agent(graph: og.Graph, tmp_path: Path) -> None:
    (tmp_path / "q.gq").write_text(STORED)
    with session(graph, stored_in(graph, tmp_path), stored_only=True) as agent:
        tools = agent.tools()
        assert tools.keys() == (READS | WRITES | {"by_name", "hire", "near"}) - FREE
        assert agent.failed("query", query=NAMES)["status"] == 403
        assert agent.done("by_name", name="Ada")["rows"] == [{"name": "Ada", "age": 36}]


def test_stored_queries_are_tools_with_typed_parameters(graph: og.Graph, tmp_path: Path) -> None:
    (tmp_path / "q.gq").write_text(STORED)
    with session(graph, stored_in(graph, tmp_path / "q.gq"), branch="agent/s") as agent:
        tool = agent.tools()["by_name"]
        assert tool.description == "A person by name. Use it before you add somebody."
        shown = tool.input_schema
        assert shown["properties"]["name"]["type"] == "string"
        assert shown["properties"]["limit_to"]["type"] == ["integer", "null"]
        assert shown["required"] == ["name"]
        hints = agent.tools()["hire"].annotations
        assert hints is not None
        assert (hints.read_only_hint, hints.destructive_hint) == (False, True)
        vector = agent.tools()["near"].input_schema["properties"]
        assert (vector["v"]["minItems"], vector["v"]["maxItems"]) == (4, 4)
        assert {"branch", "omnigraph_branch"} <= vector.keys(), "one is the query's own parameter"

        hired = agent.done("hire", name="Stored", age=3)
        assert (hired["branch"], hired["affected_nodes"]) == ("agent/s", 1)
        assert agent.done("by_name", name="Stored")["rows"] == [{"name": "Stored", "age": 3}]
        assert agent.done("by_name", name="Stored", branch="main")["rows"] == []
        assert agent.done("near", v=[0, 1, 0, 0])["rows"] == [{"slug": "d2"}]
        assert agent.failed("by_name", name=7)["status"] == 400
        assert agent.failed("near", v=[1.0])["status"] == 400
        moved = agent.failed("hire", name="X", if_commit="0" * 26)
        assert moved["status"] == 412


def test_many_stored_queries_are_searched_instead_of_listed(
    graph: og.Graph, tmp_path: Path
) -> None:
    texts = [STORED]
    for number in range(20):
        about = f'@description("Names of kind {number}.")'
        texts.append(f"query names_{number}() {about} {{ match {{ $p: Person }} return {{ $p }} }}")
    (tmp_path / "many.gq").write_text("\n".join(texts))
    stored = stored_in(graph, tmp_path)
    with session(graph, stored) as agent:
        tools = agent.tools()
        assert {"queries_find", "query_run"} <= tools.keys()
        assert "names_1" not in tools
        assert agent.done("queries_find")["count"] == 23
        (hit,) = agent.done("queries_find", text="hire")["queries"]
        assert (hit["name"], hit["mutation"]) == ("hire", True)
        assert agent.done("query_run", name="by_name", params={"name": "Ada"})["row_count"] == 1
        assert agent.failed("query_run", name="none")["status"] == 404
        assert agent.done("query_run", name="hire", params={"name": "Run"})["affected_nodes"] == 1
    with session(graph, stored, read_only=True) as agent:
        assert agent.done("queries_find")["count"] == 22
        assert agent.failed("query_run", name="hire", params={"name": "R"})["status"] == 403


def test_a_long_result_is_cut_and_says_how_to_go_on(graph: og.Graph) -> None:
    graph.branches.create("long")
    rows = "".join(f'{{"type":"Person","data":{{"name":"p{n:03}"}}}}\n' for n in range(300))
    graph.load(rows.encode(), "merge", branch="long")
    with session(graph, branch="long", rows_max=120) as agent:
        seen, given = [], {}
        while True:
            page = agent.done("query", query=NAMES, **given)
            seen += [row["name"] for row in page["rows"]]
            if "truncated" not in page:
                break
            assert page["truncated"]["of"] == page["row_count"]
            given = page["truncated"]["next"]
            graph.mutate(ADD, {"n": f"q{len(seen)}"}, branch="long")  # not seen by later pages
        assert seen == [row["name"] for row in graph.query(NAMES, branch="long").rows][: len(seen)]
        assert sorted(set(seen)) == seen
        assert len(seen) >= 303

        changes: list[Any] = []
        token: dict[str, str] = {}
        while True:
            page = agent.done("diff", **{"from": "main", "to": "long"}, **token)
            assert len(page["changes"]) <= 120
            changes += page["changes"]
            if "next_page_token" not in page:
                break
            token = {"page_token": page["next_page_token"]}
        assert len(changes) >= 300


def test_no_result_has_more_bytes_than_the_session_allows(graph: og.Graph) -> None:
    graph.branches.create("wide")
    for number in range(8):
        text = f"{number} " + "word " * 2_000
        graph.load(
            [{"type": "Doc", "data": {"slug": f"w{number}", "text": text}}], "merge", branch="wide"
        )
    with session(graph, branch="wide", bytes_max=6_000) as agent:
        for name, arguments in (
            ("query", {"query": STAR}),
            ("diff", {"from": "main", "to": "wide"}),
            ("entity_get", {"type": "Doc", "id": "w1"}),
            ("entity_history", {"type": "Doc", "id": "w1"}),
            ("changes_poll", {"start": "beginning"}),
            ("search", {"text": "word"}),
            ("commits_list", {}),
            ("branches_merge", {"dry_run": True}),
        ):
            result = agent.call(name, **arguments)
            assert not result.is_error, result.content
            size = len(json.dumps(result.structured_content))
            assert size <= 7_000, (name, size)
            (block,) = result.content
            assert len(block.text.encode()) <= 6_000, name


def test_vectors_are_left_out_unless_they_are_named(graph: og.Graph) -> None:
    with session(graph) as agent:
        rows = agent.done("query", query=STAR)["rows"]
        assert (rows[0]["d.slug"], rows[0]["d.text"]) == ("d1", "The pump leaks")
        assert "d.embedding" not in rows[0]
        named = "query v() { match { $d: Doc } return { $d.embedding } order { $d.slug } }"
        assert agent.done("query", query=named)["rows"][0] == {"d.embedding": [1, 0, 0, 0]}
        commit = graph.commits.list()[0].id
        for change in agent.done("commits_changes", commit=commit)["changes"]:
            assert "embedding" not in change["after"]["properties"]


def test_a_client_that_reads_texts_gets_texts(graph: og.Graph) -> None:
    with session(graph, as_text=True) as agent:
        assert agent.tools()["query"].output_schema is None
        result = agent.call("query", query=NAMES)
        assert result.structured_content is None
        assert json.loads(result.content[0].text)["row_count"] >= 3


def test_a_branch_that_was_deleted_is_made_again(graph: og.Graph) -> None:
    with session(graph, branch="agent/again", base="main") as agent:
        agent.done("mutate", query=ADD, params={"n": "First"})
        agent.done("branches_delete", name="agent/again")
        agent.done("mutate", query=ADD, params={"n": "Second"})
        graph.branches.delete("agent/again")  # by another program
        agent.done("mutate", query=ADD, params={"n": "Third"})
        assert {each["id"] for each in agent.done("diff")["changes"]} == {"Third"}


def test_an_agent_does_what_its_token_lets_it_do(tmp_path: Path) -> None:
    uri = new_graph(tmp_path)
    for access, status in ((Access.TRUSTED, 200), (Access.READ_ONLY, 403)):
        with served(uri, access=access) as server:
            url = f"{server.url}/mcp"
            answer = httpx.post(url, json=TELL, headers=ACCEPTS)
            assert answer.status_code == 401
            assert answer.json()["error"] == "missing bearer token"
            with connected(with_token(url, TOKENS["act-ada"])) as agent:
                assert agent.done("query", query=NAMES)["row_count"] >= 3
                given = {"query": ADD, "params": {"n": f"by {access}"}}
                if status == 200:
                    assert agent.done("mutate", **given)["actor_id"] == "act-ada"
                else:
                    refused = agent.failed("mutate", **given)
                    assert (refused["status"], refused["code"]) == (403, "forbidden")
                    assert "act-ada" in refused["error"]


def test_the_endpoint_refuses_other_sites_and_unknown_parameters(tmp_path: Path) -> None:
    with served(new_graph(tmp_path)) as server:
        url = f"{server.url}/mcp"
        for origin in ("https://elsewhere.example", "http://["):
            foreign = {**ACCEPTS, "Origin": origin}
            assert httpx.post(url, json=TELL, headers=foreign).status_code == 403
        local = {**ACCEPTS, "Origin": "http://localhost:3000"}
        assert httpx.post(url, json=TELL, headers=local).status_code == 200
        wrong = httpx.post(f"{url}?brnch=x", json=TELL, headers=ACCEPTS)
        assert (wrong.status_code, wrong.json()["code"]) == (400, "bad_request")
        assert httpx.post(f"{url}?rows_max=0", json=TELL, headers=ACCEPTS).status_code == 400
        assert httpx.post(url, content=b"{", headers=ACCEPTS).status_code in (400, 415)
    with served(new_graph(tmp_path, "other"), mcp=False) as server:
        assert httpx.post(f"{server.url}/mcp", json=TELL, headers=ACCEPTS).status_code == 404


def test_a_server_of_several_graphs_asks_which_one(tmp_path: Path) -> None:
    uris = [new_graph(tmp_path, name) for name in ("one", "two")]
    with served(uris) as server:
        with connected(f"{server.url}/mcp") as agent:
            assert "name one as `graph`" in agent.failed("query", query=NAMES)["error"]
            assert agent.done("query", query=NAMES, graph="two")["row_count"] == 3
            assert agent.failed("query", query=NAMES, graph="three")["status"] == 404
            assert "node Person" in agent.resource("omnigraph://schema?graph=one")
            with pytest.raises(MCPError, match="several graphs"):
                agent.resource("omnigraph://schema")
        with connected(f"{server.url}/mcp?graph=one") as agent:
            assert agent.done("query", query=NAMES)["row_count"] == 3


def test_the_default_graph_of_the_settings_is_one_of_their_server_alone(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(
        "servers: {elsewhere: {url: 'http://127.0.0.1:9'}}\n"
        "defaults: {server: elsewhere, default_graph: knowledge}\n"
    )
    env = {"OMNIGRAPH_HOME": str(tmp_path)}
    with (
        served(new_graph(tmp_path)) as server,
        connected(command("--server", server.url, env=env)) as agent,
    ):
        assert agent.done("query", query=NAMES)["row_count"] == 3


def test_query_files_refuse_what_cannot_be_a_tool(tmp_path: Path) -> None:
    (tmp_path / "a.gq").write_text(STORED)
    (tmp_path / "b.gq").write_text(STORED)
    with pytest.raises(og.BadRequest, match=r"query 'by_name' is declared in a\.gq and in b\.gq"):
        texts_of_paths([str(tmp_path)])
    with pytest.raises(og.BadRequest, match=r"query 'by_name' is declared in a\.gq and in a\.gq"):
        texts_of_paths([str(tmp_path / "a.gq")] * 2)
    (tmp_path / "b.gq").write_text("query {")
    with pytest.raises(og.ParseError):
        texts_of_paths([str(tmp_path)])
    with pytest.raises(og.BadRequest, match="cannot read"):
        texts_of_paths([str(tmp_path / "none.gq")])
