"""Every tool and resource, by the official client, over both transports and both eras."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from mcp import MCPError

from omnigraph.server.mcp.guidance import topics
from tests.server.mcp.agent_client import (
    ADD,
    AGE,
    NAMES,
    AgentClient,
    command,
    connected,
    new_graph,
)
from tests.server.world import served

READS = {
    "health",
    "graphs_list",
    "schema_get",
    "snapshot",
    "query",
    "lint",
    "explain",
    "branches_list",
    "diff",
    "commits_list",
    "commits_get",
    "commits_changes",
    "changes_poll",
    "entity_get",
    "entity_history",
    "neighbours",
    "search",
}
WRITES = {"branches_create", "branches_delete", "branches_merge", "mutate", "load"}
SAFE_TWICE = {"branches_create", "branches_delete", "branches_merge"}


OTHERS = ("http-legacy", "stdio-server")
TRANSPORTS = ["http", *(pytest.param(each, marks=pytest.mark.slow) for each in OTHERS), "stdio"]


@pytest.fixture(scope="module", params=TRANSPORTS)
def agent(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[AgentClient]:
    """A session over one transport, with a branch of its own."""
    uri = new_graph(tmp_path_factory.mktemp("agents"))
    if request.param == "stdio":
        with connected(command(uri, "--branch", "agent/x", "--as", "act-x")) as client:
            yield client
        return
    with served(uri) as server:
        if request.param == "stdio-server":
            process = command("--server", server.url, "--branch", "agent/x")
            with connected(process, mode="legacy") as client:
                yield client
            return
        mode = "legacy" if request.param == "http-legacy" else "auto"
        with connected(f"{server.url}/mcp?branch=agent/x", mode=mode) as client:
            yield client


def test_every_tool_has_valid_schemas_and_honest_hints(agent: AgentClient) -> None:
    tools = agent.tools()
    assert tools.keys() == READS | WRITES
    for name, tool in tools.items():
        Draft202012Validator.check_schema(tool.input_schema)
        assert tool.input_schema["type"] == "object"
        assert tool.output_schema is not None
        Draft202012Validator.check_schema(tool.output_schema)
        assert tool.output_schema["type"] == "object"
        assert tool.title
        assert tool.description
        hints = tool.annotations
        assert hints is not None
        assert hints.read_only_hint == (name in READS)
        assert hints.destructive_hint == (name in WRITES - {"branches_create"})
        assert hints.idempotent_hint == (name in READS | SAFE_TWICE)
        assert hints.open_world_hint is False
        assert "graph" in tool.input_schema["properties"] or name in ("health", "graphs_list")


def test_every_tool_answers_what_its_schema_says(agent: AgentClient) -> None:
    """The pattern of an agent, from the schema to the merge; `done` validates every result."""
    assert agent.done("health")["status"] == "ok"
    assert agent.done("graphs_list")["graphs"][0]["graph_id"] == "people"
    brief = agent.done("schema_get")
    assert brief["nodes"][0] == {
        "name": "Person",
        "key": ["name"],
        "properties": ["name: String", "age: I32?", "photo: Blob?"],
    }
    assert "@range" in agent.done("schema_get", types=["Person"], detail="full")["schema_source"]

    added = agent.done("mutate", query=ADD, params={"n": "Dee"}, message="Dee is new")
    assert (added["branch"], added["affected_nodes"]) == ("agent/x", 1)
    assert added["commit"]["message"] == "Dee is new"
    assert added["commit"]["metadata"]["mcp_tool"] == "mutate"
    loaded = agent.done("load", data='{"type":"Person","data":{"name":"Eve"}}\n', mode="append")
    assert (loaded["branch"], loaded["total_entities"]) == ("agent/x", 1)

    names = agent.done("query", query=NAMES)
    assert [row["name"] for row in names["rows"]] == ["Ada", "Bob", "Cyd", "Dee", "Eve"]
    main = agent.done("query", query=NAMES, branch="main")
    assert [row["name"] for row in main["rows"]] == ["Ada", "Bob", "Cyd"]
    assert agent.done("lint", query=NAMES)["errors"] == 0
    assert agent.done("explain", query=NAMES)["plan"]
    assert agent.done("branches_list")["branches"] == ["agent/x", "main"]
    counts = {each["type_name"]: each for each in agent.done("snapshot")["datasets"]}
    assert counts["Person"]["entity_count"] == 5

    changes = agent.done("diff")["changes"]
    assert {(each["op"], each["id"]) for each in changes} == {("insert", "Dee"), ("insert", "Eve")}
    preview = agent.done("branches_merge", dry_run=True)
    assert (preview["dry_run"], preview["outcome"]) == (True, "fast_forward")
    assert len(agent.done("query", query=NAMES, branch="main")["rows"]) == 3
    merged = agent.done("branches_merge", message="two more")
    assert merged["outcome"] == "fast_forward"
    commit = merged["commit"]["graph_commit_id"]
    assert agent.done("commits_get", commit=commit)["message"] == "two more"
    assert agent.done("commits_list", branch="main", limit=1)["commits"][0]["message"] == "two more"
    assert len(agent.done("commits_changes", commit=commit)["changes"]) == 2
    polled = agent.done("changes_poll", branch="main", start="beginning")
    assert polled["blocks"]
    assert agent.done("branches_create", name="side")["from"] == "main"
    assert agent.done("branches_delete", name="side")["name"] == "side"


def test_text_holds_the_result_for_clients_that_read_nothing_else(agent: AgentClient) -> None:
    for name, arguments in (("health", {}), ("query", {"query": NAMES, "branch": "main"})):
        result = agent.call(name, **arguments)
        (block,) = result.content
        assert json.loads(block.text) == result.structured_content  # type: ignore[union-attr]
    assert "Ada" in block.text  # type: ignore[union-attr]


def test_every_tool_answers_as_announced_errors_too(agent: AgentClient) -> None:
    """`call` holds each answer against the schema that the tool announces."""
    agent.done("branches_create", name="announced", **{"from": "main"})
    here = {"branch": "announced"}
    commit = agent.done("mutate", query=ADD, params={"n": "Ann"}, **here)["commit"]
    person = {"type": "Person", "id": "Ada"}
    calls: dict[str, dict[str, Any]] = {
        "health": {},
        "graphs_list": {},
        "schema_get": {},
        "snapshot": here,
        "query": {"query": NAMES, **here},
        "lint": {"query": NAMES},
        "explain": {"query": NAMES},
        "branches_list": {},
        "branches_create": {"name": "announced-too", "from": "main"},
        "diff": {"from": "main", "to": "announced"},
        "commits_list": here,
        "commits_get": {"commit": commit["graph_commit_id"]},
        "commits_changes": {"commit": commit["graph_commit_id"]},
        "changes_poll": {"start": "beginning", **here},
        "entity_get": person,
        "entity_history": person,
        "neighbours": person,
        "search": {"text": "pump", "by": "text"},
        "mutate": {"query": AGE, "params": {"n": "Ann", "a": 3}, **here},
        "load": {"data": '{"type":"Person","data":{"name":"Len"}}', "mode": "merge", **here},
        "branches_merge": {"source": "announced", "dry_run": True},
        "branches_delete": {"name": "announced-too"},
    }
    assert calls.keys() == agent.tools().keys()
    for name, arguments in calls.items():
        agent.done(name, **arguments)
        wrong = [{"surplus": True}]
        if name not in ("health", "graphs_list"):
            wrong.append({**arguments, "graph": "none-such"})
        for each in wrong:
            assert 400 <= agent.failed(name, **each)["status"] < 500
            assert agent.call(name, **each).structured_content is None
    agent.done("branches_delete", name="announced")


def test_entities_neighbours_and_search(agent: AgentClient) -> None:
    ada = agent.done("entity_get", type="Person", id="Ada", branch="main")
    assert ada["properties"] == {"name": "Ada", "age": 36}, "the blob is left out"
    shown = agent.done("entity_get", type="Person", id="Ada", branch="main", include=["photo"])
    assert "photo" in shown["properties"]
    doc = agent.done("entity_get", type="Doc", id="d1", branch="main")
    assert "embedding" not in doc["properties"]
    history = agent.done("entity_history", type="Person", id="Ada", branch="main")
    assert len(history["revisions"]) == 1

    whole = agent.done("neighbours", type="Person", id="Ada", branch="main")
    pages: list[Any] = []
    given: dict[str, Any] = {"branch": "main"}
    while True:
        page = agent.done("neighbours", type="Person", id="Ada", limit=1, **given)
        pages += page["neighbours"]
        if "next_page_token" not in page:
            break
        given = {"page_token": page["next_page_token"]}
    assert pages == whole["neighbours"]
    assert [(each["edge"], each["direction"], each["id"]) for each in pages] == [
        ("Knows", "out", "Bob"),
        ("Knows", "out", "Cyd"),
        ("Knows", "in", "Cyd"),
        ("Wrote", "out", "d1"),
    ]
    only = agent.done("neighbours", type="Person", id="Ada", edge="Knows", direction="in")
    assert [each["id"] for each in only["neighbours"]] == ["Cyd"]
    hits = agent.done("search", text="leaking pumps", branch="main")["hits"]
    assert [(each["type"], each["id"]) for each in hits] == [("Doc", "d1")]


def test_dates_are_texts_in_every_tool_that_shows_entities(agent: AgentClient) -> None:
    doc = {"type": "Doc", "id": "d1", "branch": "main"}
    first = agent.done("entity_history", **doc)["revisions"][-1]
    loaded = first["cause"]["graph_commit_id"]
    of_docs = {"type": ["Doc"]}
    before = {"from": f"{loaded}~1", "to": loaded}
    pages = [
        agent.done("diff", **before, **of_docs),
        agent.done("commits_changes", commit=loaded, **of_docs),
        agent.done("changes_poll", branch="main", start="beginning", **of_docs)["blocks"][0],
    ]
    images = [first["change"]["after"], *(page["changes"][0]["after"] for page in pages)]
    shown = [agent.done("entity_get", **doc), *images]
    assert [each["properties"]["written"] for each in shown] == ["2026-11-18"] * 5
    ask = 'query q() { match { $d: Doc { slug: "d1" } } return { $d.written as written } }'
    assert agent.done("query", query=ask, branch="main")["rows"] == [{"written": "2026-11-18"}]


def test_every_resource_can_be_read(agent: AgentClient) -> None:
    listed = agent.portal.call(agent.client.list_resources).resources
    uris = {str(each.uri) for each in listed}
    assert uris == {
        "omnigraph://schema",
        "omnigraph://branches",
        "omnigraph://graphs",
        *(f"omnigraph://best-practices/{topic}" for topic in topics()),
    }
    assert "node Person" in agent.resource("omnigraph://schema")
    assert "main" in json.loads(agent.resource("omnigraph://branches"))["branches"]
    assert json.loads(agent.resource("omnigraph://graphs"))["graphs"]
    for topic, text in topics().items():
        assert agent.resource(f"omnigraph://best-practices/{topic}") == text
        assert len(text) < 2_000
    templates = agent.portal.call(agent.client.list_resource_templates).resource_templates
    assert "omnigraph://best-practices/{topic}" in {each.uri_template for each in templates}
    with pytest.raises(MCPError, match="Unknown resource"):
        agent.resource("omnigraph://nothing")


def test_a_failure_says_what_a_model_can_do_about_it(agent: AgentClient) -> None:
    wrong = agent.failed("query", query="query q() { match { $p: Person } return { $p.agee } }")
    assert (wrong["status"], wrong["code"]) == (400, "bad_request")
    assert "^^^^" in wrong["error"]
    assert "did you mean 'age'?" in wrong["error"]
    assert wrong["body"]["diagnostic"]["column"] == 46
    assert wrong["requestId"]
    missing = agent.failed("entity_get", type="Person", id="nobody")
    assert (missing["status"], missing["code"]) == (404, "not_found")
    moved = agent.failed("mutate", query=ADD, params={"n": "Zoe"}, if_commit="0" * 26)
    assert moved["status"] == 412
    assert "actual" in moved["body"]["precondition_failure"]
    taken = agent.failed("load", data='{"type":"Person","data":{"name":"Ada"}}', mode="append")
    assert taken["body"]["key_conflict"]["entity_id"] == "Ada"
    misspelt = agent.failed("query", qury="x")
    assert misspelt["status"] == 400
    assert "arguments of query: graph, query, name" in misspelt["error"]
    unknown = agent.failed("mutate", query=ADD, params={"n": "Zoe", "agge": 3})
    assert unknown["error"].startswith("unknown parameter 'agge'")
    with pytest.raises(MCPError, match="Unknown tool"):
        agent.call("drop_everything")


def test_a_conflict_is_shown_settled_and_merged(agent: AgentClient) -> None:
    for name, age in (("left", 40), ("right", 50)):
        agent.done("branches_create", name=name, **{"from": "main"})
        agent.done("mutate", query=AGE, params={"n": "Bob", "a": age}, branch=name)
    agent.done("branches_merge", source="left", target="main")
    preview = agent.done("branches_merge", source="right", target="main", dry_run=True)
    (conflict,) = preview["merge_conflicts"]
    assert (conflict["entity_id"], conflict["ours"]["properties"]["age"]) == ("Bob", 40)
    refused = agent.failed("branches_merge", source="right", target="main")
    assert refused["status"] == 409
    assert refused["body"]["merge_conflicts"][0]["entity_id"] == "Bob"
    answer = {"type_name": "Person", "entity_id": "Bob", "take": "source"}
    agent.done("branches_merge", source="right", resolutions=[answer], delete_branch=True)
    bob = agent.done("entity_get", type="Person", id="Bob", branch="main")
    assert bob["properties"]["age"] == 50
