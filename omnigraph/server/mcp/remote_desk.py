"""Remote desk: operations of the HTTP API, done by a server.

Invariant: a write that can carry an idempotency key does, so that one whose answer was lost is
sent again and done once. What the server refuses comes back with its status and body.
"""

import os
from typing import Any

import anyio.to_thread
import msgspec
import orjson

from omnigraph.errors import Forbidden, OmnigraphError
from omnigraph.exec.progress import Meter, OnProgress
from omnigraph.remote.connecting import graphs_of
from omnigraph.remote.http_connection import JSON, HttpConnection, encoded
from omnigraph.server.endpoint import Lane
from omnigraph.server.mcp.api_desk import ENDPOINTS, ONCE, OWN_PATHS, ApiAnswer, ApiRequest
from omnigraph.server.status import error_answer

_LONG_POLL = "cluster_pollChanges"


class RemoteDesk:
    """Sends operations to one server."""

    def __init__(self, http: HttpConnection, graph_id: str | None) -> None:
        self._http = http
        self._graph_id = graph_id

    async def default_graph(self) -> str | None:
        """The graph that was named, or the only one of the server."""
        if self._graph_id is None:
            self._graph_id = await anyio.to_thread.run_sync(self._only)
        return self._graph_id

    def _only(self) -> str | None:
        try:
            ids = [graph_id for graph_id, _ in graphs_of(self._http)]
        except Forbidden:
            return None
        return ids[0] if len(ids) == 1 else None

    async def ask(self, request: ApiRequest, progress: OnProgress | None = None) -> ApiAnswer:
        """The answer of an operation."""
        request_id = os.urandom(8).hex()
        meter = Meter(progress)
        meter.add(0, "send")
        try:
            document = await anyio.to_thread.run_sync(
                self._sent, request, request_id, abandon_on_cancel=True
            )
        except OmnigraphError as cause:
            error = error_answer(cause)
            return ApiAnswer(error.status, msgspec.to_builtins(error.body), request_id)
        meter.add(0, "answer")
        return ApiAnswer(200, document, request_id)

    def _sent(self, request: ApiRequest, request_id: str) -> Any:
        headers = {**request.headers, "X-Request-Id": request_id}
        path, params = request.encoded_path, request.query
        content = None
        if request.body is not None:
            content, headers = encoded(request.body), {**headers, **JSON}
        if request.operation in ONCE:
            answer = self._http.write_once(path, content, headers, params)
        else:
            is_own = request.operation in OWN_PATHS
            is_read = is_own or ENDPOINTS[request.operation].lane is Lane.READ
            answer = self._http.exchange(
                request.method, path, params, headers, content, is_read=is_read
            )
        return orjson.loads(answer.content)
