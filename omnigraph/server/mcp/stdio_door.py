"""MCP over standard input and output, for one agent that started this process.

Invariant: standard output carries the protocol and nothing else. The process ends when its input
does; a write under way is then settled by the next writer, as after any crash.
"""

import anyio
from mcp.server.stdio import stdio_server

from omnigraph.server.mcp.agent_server import AgentSeat, AgentServer
from omnigraph.server.mcp.agent_session import AgentSession
from omnigraph.server.mcp.api_desk import ApiDesk


def serve_stdio(desk: ApiDesk, session: AgentSession) -> None:
    """Answer requests from standard input until it ends."""
    anyio.run(_serve, AgentSeat(desk, session))


async def _serve(seat: AgentSeat) -> None:
    server = AgentServer(lambda context: seat).server()
    async with stdio_server() as (reading, writing):
        await server.run(reading, writing, server.create_initialization_options())
