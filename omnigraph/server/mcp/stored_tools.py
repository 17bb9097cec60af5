"""Stored queries as tools: each with typed parameters, its description and its instruction.

Invariant: what a tool may do is what the route of stored queries lets its actor do. With more
queries than a model should read, `queries_find` and `query_run` stand for all of them.
"""

from collections.abc import Iterable
from typing import Any

from omnigraph.server import wire
from omnigraph.server.mcp.answer_schemas import (
    OBJECT,
    WHOLE,
    JsonSchema,
    answer_schema,
    list_of,
    result_schema,
)
from omnigraph.server.mcp.api_desk import ApiRequest
from omnigraph.server.mcp.result_cuts import fitted, rows_that_fit
from omnigraph.server.mcp.tool_arguments import GRAPH, NAME, PARAMS, Argument, RequestPart, whole
from omnigraph.server.mcp.tool_arguments import branch as branch_argument
from omnigraph.server.mcp.tool_arguments import snapshot as snapshot_argument
from omnigraph.server.mcp.tool_calls import Document, ToolCall, ToolRefused, refused, shown_rows
from omnigraph.server.mcp.tool_table import AgentTool

TOOLS_MAX = 20
_INVOKE = "cluster_invoke_query"
_SHAPES: dict[str, JsonSchema] = {
    "string": {"type": "string"},
    "bool": {"type": "boolean"},
    "int": {"type": "integer"},
    "bigint": {"type": ["integer", "string"]},
    "float": {"type": "number"},
    "date": {"type": "string", "format": "date"},
    "datetime": {"type": "string", "format": "date-time"},
    "blob": {"type": "string"},
}
_CONTROLS = (
    GRAPH,
    branch_argument(RequestPart.OWN),
    snapshot_argument(RequestPart.OWN),
    Argument("rows_from", "Skip so many rows of the result.", shape=whole(0, 1 << 31)),
    Argument("if_commit", "Only if the branch is at this commit.", shape=NAME),
)

QUERIES_FIND = AgentTool(
    "queries_find",
    "Find stored queries",
    "Stored queries whose name or description has some words, with their parameters. Run one "
    "with query_run.",
    "",
    (GRAPH, Argument("text", "Words to look for; all queries without it.")),
    result_schema(("queries", "count"), queries=list_of(OBJECT), count=WHOLE),
)
QUERY_RUN = AgentTool(
    "query_run",
    "Run a stored query",
    "Run a stored query by its name; queries_find shows their parameters.",
    "",
    (
        *_CONTROLS,
        Argument("name", "Its name.", shape=NAME, required=True),
        Argument("params", "Values of its parameters, by name.", shape=PARAMS),
    ),
    answer_schema(wire.ReadOutput, wire.ChangeOutput),
    reads=False,
    destructive=True,
    idempotent=False,
)


def parameter_schema(parameter: Document) -> JsonSchema:
    """The JSON Schema of one parameter of a stored query."""
    kind = parameter["kind"]
    if kind == "vector":
        length = parameter.get("vector_dim")
        shape: JsonSchema = {"type": "array", "items": {"type": "number"}}
        if length is not None:
            shape |= {"minItems": length, "maxItems": length}
    elif kind == "list":
        shape = {"type": "array", "items": _SHAPES.get(parameter.get("item_kind", ""), {})}
    else:
        shape = dict(_SHAPES.get(kind, {}))
    if parameter["nullable"] and "type" in shape:
        named = shape["type"]
        shape["type"] = [*(named if isinstance(named, list) else [named]), "null"]
    return shape


def controls(names: Iterable[str], *, mutation: bool) -> dict[str, Argument]:
    """Arguments that say where a stored query runs, by the name a tool has for each: one that is
    a parameter of the query already has another."""
    taken = set(names)
    unfit = {"snapshot", "rows_from"} if mutation else {"if_commit"}
    fit = (each for each in _CONTROLS if each.name not in unfit)
    return {each.name if each.name not in taken else f"omnigraph_{each.name}": each for each in fit}


def stored_tool(entry: Document) -> AgentTool:
    """The tool of one stored query."""
    names = [each["name"] for each in entry["params"]]
    arguments = [
        Argument(
            each["name"],
            f"Parameter ${each['name']}: {each['kind']}.",
            shape=parameter_schema(each),
            required=not each["nullable"],
        )
        for each in entry["params"]
    ]
    for name, control in controls(names, mutation=entry["mutation"]).items():
        arguments.append(Argument(name, control.about, shape=control.shape))
    about = " ".join(
        text.strip() for text in (entry.get("description"), entry.get("instruction")) if text
    )
    kind = "mutation" if entry["mutation"] else "read"
    return AgentTool(
        entry["tool_name"],
        entry["tool_name"].replace("_", " ").capitalize(),
        about or f"The stored {kind} query {entry['name']}.",
        "",
        tuple(arguments),
        answer_schema(wire.ChangeOutput if entry["mutation"] else wire.ReadOutput),
        reads=not entry["mutation"],
        destructive=entry["mutation"],
        idempotent=not entry["mutation"],
    )


async def stored_entries(call: ToolCall) -> list[Document]:
    """The catalog of the graph that is meant; none where it may not be read."""
    try:
        graph = await call.graph()
        answer = await call.ask(ApiRequest("cluster_list_queries", graph))
    except ToolRefused:
        return []
    queries: list[Document] = answer["queries"]
    return queries


async def queries_find(call: ToolCall) -> Document:
    """Stored queries that some words fit."""
    words = str(call.arguments.get("text", "")).lower().split()
    entries = [
        entry
        for entry in await stored_entries(call)
        if not (call.session.read_only and entry["mutation"])
    ]

    def fits(entry: Document) -> int:
        texts = (entry["name"], entry.get("description", ""), entry.get("instruction", ""))
        whole_text = " ".join(texts).lower()
        return sum(word in whole_text for word in words)

    if words:
        entries = sorted((e for e in entries if fits(e)), key=lambda e: (-fits(e), e["name"]))
    number = rows_that_fit(entries, call.session.rows_max, call.session.bytes_max - 2_000)
    document: Document = {"queries": entries[:number], "count": len(entries)}
    if number < len(entries):
        hint = "give words to look for, or more of them"
        document["truncated"] = {"shown": number, "of": len(entries), "hint": hint}
    return fitted(document, call.session.bytes_max)


async def query_run(call: ToolCall) -> Document:
    """A stored query, by its name."""
    name = call.arguments["name"]
    entries = await stored_entries(call)
    entry = next((each for each in entries if each["name"] == name), None)
    if entry is None:
        raise refused(404, f"stored query '{name}' not found; queries_find lists them")
    return await invoked(call, entry, call.arguments.get("params") or {}, call.arguments)


async def called(call: ToolCall, entry: Document) -> Document:
    """A stored query as the tool of its own."""
    names = [each["name"] for each in entry["params"]]
    params = {name: call.arguments[name] for name in names if name in call.arguments}
    given = {
        control.name: call.arguments[shown]
        for shown, control in controls(names, mutation=entry["mutation"]).items()
        if shown in call.arguments
    }
    return await invoked(call, entry, params, given)


async def invoked(call: ToolCall, entry: Document, params: Document, given: Any) -> Document:
    """The answer of a stored query on the branch or snapshot that is meant."""
    if call.session.read_only and entry["mutation"]:
        raise refused(403, "this session is read-only, and the query is a mutation")
    own = ToolCall(
        call.tool, given, call.session, call.desk, call.known, call.client, call.progress
    )
    graph = await own.graph()
    kind, point = await own.point(graph)
    body: Document = {"params": params, kind: point, "expect_mutation": entry["mutation"]}
    if entry["mutation"]:
        body["metadata"] = call.note()
    operation, headers = _INVOKE, {}
    if given.get("if_commit") is not None and entry["mutation"]:
        operation = f"{_INVOKE}_if_graph_commit"
        headers["Omnigraph-If-Graph-Commit"] = str(given["if_commit"])
    request = ApiRequest(operation, graph, {"name": entry["name"]}, body=body, headers=headers)
    document = await call.ask(request)
    if entry["mutation"]:
        return fitted(document, call.session.bytes_max)
    return shown_rows(document, given.get("rows_from", 0), call.session)
