"""Composed tools: the schema in brief, the neighbours of a node, and search over every type.

Invariant: each reads one commit. All of them ask the API, so they may read what their actor may.
"""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Awaitable, Callable
from typing import Any

import orjson

from omnigraph.catalog.model import Catalog, EdgeType, NodeType, Property, Type
from omnigraph.catalog.schema_text import type_text
from omnigraph.server.mcp.answer_schemas import (
    NUMBER,
    OBJECT,
    TEXT,
    WHOLE,
    list_of,
    object_schema,
    result_schema,
)
from omnigraph.server.mcp.api_desk import ApiRequest
from omnigraph.server.mcp.result_cuts import (
    fitted,
    hidden_properties,
    rows_that_fit,
    without_properties,
)
from omnigraph.server.mcp.tool_arguments import (
    GRAPH,
    INCLUDE,
    NAME,
    NAMES,
    Argument,
    RequestPart,
    branch,
    one_of,
    snapshot,
    whole,
)
from omnigraph.server.mcp.tool_calls import Document, ToolCall, refused
from omnigraph.server.mcp.tool_table import AgentTool

_POINT = (branch(RequestPart.OWN), snapshot(RequestPart.OWN))
_RRF = 60
_SEARCHED_MAX = 16
_NEIGHBOURS = 50

SCHEMA_GET = AgentTool(
    "schema_get",
    "Show the schema",
    "The node and edge types of a graph with their properties. Call it before you write a query.",
    "",
    (
        GRAPH,
        Argument("types", "Only these types; all by default.", shape=NAMES),
        Argument(
            "detail",
            "brief (the default): names, types and keys; full: the text with every constraint.",
            shape=one_of("brief", "full"),
        ),
        *_POINT,
    ),
    result_schema(
        (),
        nodes=list_of(
            object_schema(("name", "key", "properties"), name=TEXT, properties=list_of(TEXT))
        ),
        edges=list_of(object_schema(("name", "from", "to"), name=TEXT, to=TEXT)),
        schema_source=TEXT,
    ),
)
NEIGHBOURS = AgentTool(
    "neighbours",
    "Neighbours of a node",
    "The nodes that edges of a node lead to or come from, page by page, and how many edges of "
    "each type it has.",
    "",
    (
        GRAPH,
        Argument("type", "The type of the node.", shape=NAME, required=True),
        Argument("id", "Its id; of a type with a key, the key.", shape=NAME, required=True),
        Argument("edge", "Only edges of this type.", shape=NAME),
        Argument("direction", "Only edges that leave or come.", shape=one_of("out", "in")),
        Argument("limit", "At most so many.", shape=whole(1, 200)),
        Argument("page_token", "next_page_token of the page before.", shape=NAME),
        *_POINT,
        INCLUDE,
    ),
    result_schema(
        ("neighbours", "edges", "graph_commit_id"),
        edges=list_of(OBJECT),
        neighbours=list_of(
            object_schema(
                ("edge", "direction", "edge_id", "type", "id", "properties"),
                edge=TEXT,
                direction=TEXT,
                edge_id=TEXT,
                type=TEXT,
                id=TEXT,
                properties=OBJECT,
                edge_properties=OBJECT,
            )
        ),
        graph_commit_id=TEXT,
        next_page_token=TEXT,
    ),
)
SEARCH = AgentTool(
    "search",
    "Search texts",
    "The nodes whose texts fit some words, best first, over all indexed text properties or those "
    "of some types. by=meaning ranks by embedded vectors, by=both fuses the two.",
    "",
    (
        GRAPH,
        Argument("text", "The words to look for.", shape=NAME, required=True),
        Argument("types", "Only nodes of these types.", shape=NAMES),
        Argument("by", "text by default.", shape=one_of("text", "meaning", "both")),
        Argument("limit", "At most so many; 10 by default.", shape=whole(1, 100)),
        *_POINT,
    ),
    result_schema(
        ("hits", "searched"),
        hits=list_of(
            object_schema(
                ("type", "id", "property", "text", "score"),
                type=TEXT,
                id=TEXT,
                property=TEXT,
                text={"type": ["string", "null"]},
                score=NUMBER,
            )
        ),
        searched=list_of(TEXT),
        graph_commit_id=TEXT,
        count=WHOLE,
    ),
)


async def schema_get(call: ToolCall) -> Document:
    """The schema, brief or as text."""
    graph = await call.graph()
    catalog = await call.catalog(graph, await call.point(graph))
    chosen = _chosen(catalog, call.arguments.get("types"))
    if call.arguments.get("detail") == "full":
        document: Document = {"schema_source": "\n".join(type_text(each) for each in chosen)}
    else:
        document = {
            "nodes": [_node(each) for each in chosen if isinstance(each, NodeType)],
            "edges": [_edge(each) for each in chosen if isinstance(each, EdgeType)],
        }
    return fitted(document, call.session.bytes_max)


def _chosen(catalog: Catalog, names: list[str] | None) -> list[Type]:
    if names is None:
        return list(catalog.types)
    chosen: list[Type] = []
    for name in names:
        node = catalog.node(name)
        owners: tuple[Type, ...] = catalog.members(name) if node is None else (node,)
        if not owners:
            known = ", ".join(each.name for each in catalog.types)
            raise refused(400, f"there is no type '{name}'; known: {known}")
        chosen += owners
    return chosen


def _node(node: NodeType) -> Document:
    shown: Document = {
        "name": node.name,
        "key": list(node.key),
        "properties": [_property(each) for each in node.properties],
    }
    if node.indexes:
        shown["indexed"] = list(node.indexes)
    return shown


def _edge(edge: EdgeType) -> Document:
    shown: Document = {"name": edge.name, "from": edge.source, "to": edge.target}
    if edge.family is not None:
        shown["queried_as"] = edge.family.name
    if edge.properties:
        shown["properties"] = [_property(each) for each in edge.properties]
    return shown


def _property(prop: Property) -> str:
    return f"{prop.name}: {prop.type}"


# ---- neighbours


async def neighbours(call: ToolCall) -> Document:
    """A page of the neighbours of a node."""
    graph = await call.graph()
    given = call.arguments
    token = _token(given.get("page_token"))
    point = ("snapshot", token["commit"]) if token else await call.point(graph)
    path = {"kind": "node", "type": given["type"], "id": given["id"]}
    node = await call.ask(ApiRequest("cluster_getEntity", graph, path, (point,)))
    commit = node["graph_commit_id"]
    catalog = await call.catalog(graph, ("snapshot", commit))
    lanes = _lanes(catalog, node["edges"], given.get("edge"), given.get("direction"))
    limit = min(given.get("limit", _NEIGHBOURS), call.session.rows_max)
    lane, offset = (token["lane"], token["offset"]) if token else (0, 0)
    rows: list[Document] = []
    while lane < len(lanes) and len(rows) <= limit:  # one more than is shown says: there is more
        edge, direction = lanes[lane]
        page = await _neighbours_by(
            call, graph, commit, (given["type"], given["id"]), edge, direction, limit, offset
        )
        rows += page[: limit - len(rows) + 1]
        lane, offset = lane + 1, 0
    hidden = hidden_properties(catalog) - set(given.get("include", ()))
    rows = without_properties(rows, hidden)
    number = rows_that_fit(rows, limit, call.session.bytes_max - 2_000)
    document: Document = {
        "edges": node["edges"],
        "neighbours": rows[:number],
        "graph_commit_id": commit,
    }
    if number < len(rows):
        document["next_page_token"] = _onwards(commit, lanes, rows[:number], token)
    return fitted(document, call.session.bytes_max)


def _lanes(
    catalog: Catalog, counts: list[Document], edge: str | None, direction: str | None
) -> list[tuple[EdgeType, str]]:
    """The edge types and directions to walk, in the order of the counts."""
    named = [] if edge is None else [each.name for each in catalog.members(edge)]
    if edge is not None and not named:
        raise refused(400, f"there is no edge type '{edge}'; known: {', '.join(catalog.edges)}")
    lanes = []
    for each in counts:
        owner = catalog.edge(each["type_name"])
        if owner is None or (named and owner.name not in named):
            continue
        if direction in (None, each["direction"]):
            lanes.append((owner, each["direction"]))
    return lanes


def _onwards(
    commit: str, lanes: list[tuple[EdgeType, str]], rows: list[Document], before: Document | None
) -> str:
    """The token behind some rows: the lane of the last one, and how many of it were shown."""
    last = (rows[-1]["edge"], rows[-1]["direction"])
    lane = next(n for n, (edge, way) in enumerate(lanes) if (edge.name, way) == last)
    shown = sum((row["edge"], row["direction"]) == last for row in rows)
    if before is not None and before["lane"] == lane:
        shown += before["offset"]
    document = {"commit": commit, "lane": lane, "offset": shown}
    return urlsafe_b64encode(orjson.dumps(document)).decode().rstrip("=")


def _token(text: str | None) -> Document | None:
    if text is None:
        return None
    try:
        document = orjson.loads(urlsafe_b64decode(text.encode() + b"=" * (-len(text) % 4)))
        is_whole = (
            isinstance(document["commit"], str)
            and type(document["lane"]) is int
            and type(document["offset"]) is int
            and min(document["lane"], document["offset"]) >= 0
        )
    except (ValueError, TypeError, KeyError):
        is_whole = False
    if not is_whole:
        raise refused(400, "this page_token is not one of neighbours")
    token: Document = document
    return token


async def _neighbours_by(
    call: ToolCall,
    graph: str,
    commit: str,
    node: tuple[str, str],
    edge: EdgeType,
    direction: str,
    limit: int,
    offset: int,
) -> list[Document]:
    """The neighbours over one edge type in one direction, one more than the limit."""
    word = edge.name[0].lower() + edge.name[1:]
    path = f"$n $e:{word} $b" if direction == "out" else f"$b $e:{word} $n"
    other = edge.target if direction == "out" else edge.source
    shown = "$b.*, $e.*" if edge.properties else "$b.*"
    text = (
        f"query neighbours($id: String) {{ match {{ $n: {node[0]} {{ id: $id }}  $b: {other}  "
        f"{path} }} return {{ $e.id as edge_id, $b as node_id, {shown} }} order {{ $b }} "
        f"limit {limit + 1} offset {offset} }}"
    )
    body = {"query": text, "params": {"id": node[1]}, "snapshot": commit}
    rows = (await call.ask(ApiRequest("cluster_query", graph, body=body)))["rows"]
    return [
        {
            "edge": edge.name,
            "direction": direction,
            "edge_id": row["edge_id"],
            "type": other,
            "id": row["node_id"],
            "properties": _columns_of(row, "b."),
            "edge_properties": _columns_of(row, "e."),
        }
        for row in rows
    ]


def _columns_of(row: Document, prefix: str) -> Document:
    return {n.removeprefix(prefix): value for n, value in row.items() if n.startswith(prefix)}


# ---- search


async def search(call: ToolCall) -> Document:
    """The nodes that fit some words, best first."""
    graph = await call.graph()
    given = call.arguments
    point = await call.point(graph)
    catalog = await call.catalog(graph, point)
    by, limit = given.get("by", "text"), min(given.get("limit", 10), call.session.rows_max)
    arms = _arms(catalog, given.get("types"), by)[:_SEARCHED_MAX]
    if not arms:
        raise refused(400, _nothing_to_search(by))
    scores: dict[tuple[str, str], Document] = {}
    for owner, prop, call_text in arms:
        ranked = await _ranked(call, graph, point, (owner, prop, call_text), limit)
        point = ("snapshot", ranked["graph_commit_id"])
        for rank, row in enumerate(ranked["rows"]):
            hit = {"type": owner.name, "id": row["id"], "property": prop, "text": row["text"]}
            best = scores.setdefault((owner.name, row["id"]), {**hit, "score": 0.0})
            best["score"] += 1 / (_RRF + rank + 1)
    hits = sorted(scores.values(), key=lambda hit: (-hit["score"], hit["type"], hit["id"]))
    document: Document = {
        "hits": hits[:limit],
        "searched": sorted({f"{owner.name}.{prop}" for owner, prop, _ in arms}),
        "graph_commit_id": point[1],
    }
    return fitted(document, call.session.bytes_max)


def _nothing_to_search(by: str) -> str:
    if by == "meaning":
        return "no type has a vector with @embed; search by text"
    return "no type has a text with @index; name types, or write a query with search()"


def _arms(catalog: Catalog, names: list[str] | None, by: str) -> list[tuple[NodeType, str, str]]:
    """What is searched: a type, the text that is shown, and the ranking."""
    chosen = [each for each in _chosen(catalog, names) if isinstance(each, NodeType)]
    arms: list[tuple[NodeType, str, str]] = []
    for owner in chosen:
        for prop in owner.properties:
            is_text = prop.type.is_text and prop.type.enum_values is None
            if by != "meaning" and is_text and (prop.name in owner.indexes or names):
                arms.append((owner, prop.name, f"bm25($d.{prop.name}, $q)"))
            if by != "text" and prop.embed is not None:
                arms.append((owner, prop.embed.source, f"nearest($d.{prop.name}, $q)"))
    return arms


async def _ranked(
    call: ToolCall,
    graph: str,
    point: tuple[str, str],
    arm: tuple[NodeType, str, str],
    limit: int,
) -> Document:
    owner, prop, ranking = arm
    text = (
        f"query hits($q: String) {{ match {{ $d: {owner.name} }} "
        f"return {{ $d as id, $d.{prop} as text }} order {{ {ranking} }} limit {limit} }}"
    )
    params = {"q": call.arguments["text"]}
    body = {"query": text, "params": params, point[0]: point[1]}
    return await call.ask(ApiRequest("cluster_query", graph, body=body))


Composed = Callable[[ToolCall], Awaitable[Any]]
COMPOSED: dict[str, tuple[AgentTool, Composed]] = {
    "schema_get": (SCHEMA_GET, schema_get),
    "neighbours": (NEIGHBOURS, neighbours),
    "search": (SEARCH, search),
}
