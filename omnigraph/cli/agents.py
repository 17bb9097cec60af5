"""`omnigraph mcp`: a graph as tools of an agent, over standard input and output."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from omnigraph.cli.address import graph_uri
from omnigraph.cli.engine import open_graph
from omnigraph.cli.options import Actor, GraphPath, Store
from omnigraph.cli.servers import asked_token, is_served
from omnigraph.cli.terminal import plain_errors
from omnigraph.errors import BadRequest

if TYPE_CHECKING:
    from omnigraph.server.mcp.agent_session import AgentSession


def mcp(
    path: GraphPath = None,
    store: Store = None,
    branch: Annotated[
        str | None,
        typer.Option("--branch", metavar="NAME", help="The agent's branch, made if missing."),
    ] = None,
    base: Annotated[
        str | None, typer.Option("--from", metavar="NAME", help="What it is made from.")
    ] = None,
    read_only: Annotated[bool, typer.Option("--read-only", help="No tool that writes.")] = False,
    stored_only: Annotated[
        bool, typer.Option("--stored-only", help="No tool that runs a text of the agent.")
    ] = False,
    queries: Annotated[
        list[str] | None,
        typer.Option("--queries", metavar="FILE", help="Stored queries (.gq file or folder)."),
    ] = None,
    rows_max: Annotated[int, typer.Option(min=1, help="Rows of a result.")] = 200,
    bytes_max: Annotated[int, typer.Option(min=1000, help="Bytes of a result.")] = 40_000,
    text: Annotated[
        bool, typer.Option("--text", help="Results as texts, for clients that read no other.")
    ] = False,
    actor: Actor = None,
) -> None:
    """Serve a graph to an agent by the Model Context Protocol, on standard input and output.

    Ends when its input does. `omnigraph serve` offers the same at /mcp.
    """
    with plain_errors():
        from omnigraph.extras import require_mcp

        require_mcp()
        from omnigraph.server.mcp.agent_session import AgentSession

        session = AgentSession(
            graph=None,
            branch=branch,
            base=base,
            read_only=read_only,
            stored_only=stored_only,
            rows_max=rows_max,
            bytes_max=bytes_max,
            as_text=text,
        )
        uri = graph_uri(path, store)
        if is_served(uri):
            _remote(uri, session, queries)
        else:
            _local(uri, session, queries or [], actor)


def _remote(url: str, session: AgentSession, queries: list[str] | None) -> None:
    """Tools that ask a server."""
    from omnigraph.remote.connecting import server_and_graph
    from omnigraph.remote.http_connection import HttpConnection
    from omnigraph.server.mcp.remote_desk import RemoteDesk
    from omnigraph.server.mcp.stdio_door import serve_stdio

    if queries:
        raise BadRequest("--queries is for a graph's files; a server has its own", "leave it out")
    server, graph = server_and_graph(url)
    http = HttpConnection(server, asked_token(server))
    try:
        http.document("/healthz")  # a server that does not answer is said here
        serve_stdio(RemoteDesk(http, graph), session)
    finally:
        http.close()


def _local(uri: str, session: AgentSession, queries: list[str], actor: str | None) -> None:
    """Tools on the files of a graph."""
    from pathlib import PurePath

    from omnigraph.cluster.query_catalog import required_queries, texts_of_paths
    from omnigraph.server.mcp.local_desk import LocalDesk
    from omnigraph.server.mcp.stdio_door import serve_stdio

    texts = texts_of_paths(queries)
    if queries and not texts:
        raise BadRequest(
            f"{', '.join(queries)} declares no query", "name a .gq file, or its folder"
        )
    name = PurePath(uri.rstrip("/")).name.removesuffix(".omni") or "graph"
    with open_graph(uri, read_only=session.read_only and session.branch is None) as graph:
        stored = required_queries(texts, graph.schema.catalog)
        serve_stdio(LocalDesk(graph, name, actor, stored), session)
