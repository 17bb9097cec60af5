"""Endpoint `/mcp`: requests of agents, handed to the door that speaks the protocol.

Invariant: a request without a known token reaches no tool. The protocol's package is imported by
the first request, away from the event loop.
"""

import asyncio
from collections.abc import MutableMapping
from typing import TYPE_CHECKING, Any, Protocol

from starlette.datastructures import QueryParams

from omnigraph.deferred import deferred
from omnigraph.extras import has_mcp
from omnigraph.server.access import Gate
from omnigraph.server.answer_sender import origin_fields
from omnigraph.server.connection import AnswerBroken, Receive, Scope, Send
from omnigraph.server.host_check import HostCheck
from omnigraph.server.mcp.agent_session import session_of
from omnigraph.server.refusals import HttpRefusal
from omnigraph.server.request_headers import RequestHeaders
from omnigraph.server.serve_settings import ServerSettings

if TYPE_CHECKING:
    from omnigraph.server.mcp.http_door import HttpDoor
else:
    HttpDoor = deferred("omnigraph.server.mcp.http_door", "HttpDoor")

PATH = "/mcp"


class ApiApplication(Protocol):
    """The application that the tools of agents ask."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None: ...


class AgentEndpoint:
    """Hands requests of agents on."""

    def __init__(
        self,
        app: ApiApplication,
        settings: ServerSettings,
        gate: Gate,
        graph_id: str | None,
        hosts: HostCheck,
    ) -> None:
        self._hosts = hosts
        self._app = app
        self._settings = settings
        self._gate = gate
        self._graph_id = graph_id
        self._door: HttpDoor | None = None
        self._loading = asyncio.Lock()

    def serves(self, scope: Scope) -> bool:
        """Whether a request is for an agent."""
        return bool(self._settings.mcp and scope["path"] == PATH and scope["method"] != "OPTIONS")

    async def answer(
        self,
        scope: Scope,
        headers: RequestHeaders,
        receive: Receive,
        send: Send,
        request_id: str,
        facts: dict[str, Any],
    ) -> int:
        """Answer one request of the protocol; the status that was sent."""
        facts["path"] = PATH
        facts["actor"] = self._gate.actor(headers)
        session_of(QueryParams(scope["query_string"]))
        door = await self._opened()
        origin = headers.get("origin")
        if origin is not None and not self._hosts.allows_origin(origin):
            raise HttpRefusal(403, "this origin may not use /mcp; see --allow-origin")
        is_allowed = origin is not None and origin == self._settings.allow_origin
        added = origin_fields(origin or "") if is_allowed else []
        status = 0

        async def noting(message: MutableMapping[str, Any]) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                named = (b"x-request-id", request_id.encode())
                message = {**message, "headers": [*message.get("headers", ()), named, *added]}
            await send(message)

        try:
            await door(scope, receive, noting)
        except Exception as cause:
            if status:
                raise AnswerBroken from cause
            raise
        return status

    async def _opened(self) -> "HttpDoor":
        async with self._loading:
            if self._door is None:
                if not has_mcp():
                    raise HttpRefusal(404, "agents are not served here: omnigraph[mcp] is missing")
                await asyncio.to_thread(lambda: HttpDoor.__call__)
                self._door = HttpDoor(
                    self._app, self._graph_id, self._settings.limits.load_body_bytes
                )
            return self._door
