"""MCP over streamable HTTP: `/mcp` of a server, behind its tokens, without sessions.

Invariant: a tool runs as a request of its own through the application that serves the API, with
the token of the agent: the same authorization, limits, log lines and metrics. Nothing is kept
between requests, so that any worker answers any of them.
"""

import asyncio
import contextlib
import os
from collections.abc import MutableMapping
from typing import Any, Protocol

import orjson
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

from omnigraph.exec.limits import Stop
from omnigraph.exec.progress import OnProgress
from omnigraph.server.connection import PROGRESS, AnswerBroken, Receive, Scope, Send
from omnigraph.server.mcp.agent_server import AgentSeat, AgentServer, Context
from omnigraph.server.mcp.agent_session import session_of
from omnigraph.server.mcp.api_desk import ApiAnswer, ApiRequest
from omnigraph.server.mcp.local_desk import stoppable

_FORWARDED = (b"authorization", b"user-agent")


_UNDER_WAY: set["asyncio.Task[None]"] = set()
"""Requests whose callers may have left; the loop itself keeps no task alive."""


class Asgi(Protocol):
    """The application that serves the API."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None: ...


class ServedDesk:
    """Has operations done by the application of this worker, for the sender of one request."""

    def __init__(self, app: Asgi, scope: Scope, graph_id: str | None) -> None:
        self._app = app
        self._scope = scope
        self._graph_id = graph_id

    async def default_graph(self) -> str | None:
        """The server's default graph, or its only one."""
        return self._graph_id

    async def ask(self, request: ApiRequest, progress: OnProgress | None = None) -> ApiAnswer:
        """The answer of an operation."""
        stop = Stop()
        body = b"" if request.body is None else orjson.dumps(request.body)
        received = False
        sent: list[MutableMapping[str, Any]] = []
        gone = asyncio.Event()

        async def receive() -> MutableMapping[str, Any]:
            nonlocal received
            if not received:
                received = True
                return {"type": "http.request", "body": body, "more_body": False}
            await gone.wait()
            return {"type": "http.disconnect"}

        async def send(message: MutableMapping[str, Any]) -> None:
            sent.append(message)

        scope = self._request(request, len(body), stoppable(progress, stop))
        work = asyncio.get_running_loop().create_task(_whole(self._app, scope, receive, send))
        _UNDER_WAY.add(work)
        work.add_done_callback(_UNDER_WAY.discard)
        try:
            # In a task of its own: a caller who leaves is a client that closes its connection,
            # which ends a read and leaves a write to itself.
            await asyncio.shield(work)
        except asyncio.CancelledError:
            stop.cancel()
            gone.set()
            raise
        return _answer(sent)

    def _request(self, request: ApiRequest, size: int, progress: OnProgress) -> Scope:
        path = request.encoded_path
        headers = [pair for pair in self._scope["headers"] if pair[0].lower() in _FORWARDED]
        headers += [(name.lower().encode(), t.encode()) for name, t in request.headers.items()]
        headers += [(b"x-request-id", os.urandom(8).hex().encode())]
        if request.body is not None:
            headers += [(b"content-type", b"application/json")]
            headers += [(b"content-length", str(size).encode())]
        return {
            **{name: self._scope.get(name) for name in ("asgi", "scheme", "client", "server")},
            "type": "http",
            "http_version": "1.1",
            "method": request.method,
            "path": path,
            "raw_path": path.encode(),
            "query_string": request.query_string.encode(),
            "root_path": "",
            "headers": headers,
            PROGRESS: progress,
        }


async def _whole(app: Asgi, scope: Scope, receive: Receive, send: Send) -> None:
    with contextlib.suppress(AnswerBroken):  # it is seen by what was not sent
        await app(scope, receive, send)


def _answer(sent: list[MutableMapping[str, Any]]) -> ApiAnswer:
    start = next(message for message in sent if message["type"] == "http.response.start")
    chunks = (m.get("body", b"") for m in sent if m["type"] == "http.response.body")
    headers = {name.lower(): value for name, value in start.get("headers", ())}
    request_id = headers.get(b"x-request-id", b"").decode() or None
    return ApiAnswer(start["status"], orjson.loads(b"".join(chunks)), request_id)


class HttpDoor:
    """The endpoint `/mcp` of one worker."""

    def __init__(self, app: Asgi, graph_id: str | None, body_bytes_max: int) -> None:
        self._app = app
        self._graph_id = graph_id
        self._manager = StreamableHTTPSessionManager(
            AgentServer(self._seat).server(),
            stateless=True,
            max_request_body_size=body_bytes_max,
        )
        self._running: asyncio.Task[None] | None = None
        self._begun = asyncio.Event()

    def _seat(self, context: Context) -> AgentSeat:
        request = context.request
        session = session_of(request.query_params)
        return AgentSeat(ServedDesk(self._app, request.scope, self._graph_id), session)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._begin()
        await self._manager.handle_request(scope, receive, send)

    async def _begin(self) -> None:
        if self._running is None:
            self._running = asyncio.get_running_loop().create_task(self._run())
        await self._begun.wait()

    async def _run(self) -> None:
        async with self._manager.run():
            self._begun.set()
            await asyncio.Event().wait()  # until the loop ends
