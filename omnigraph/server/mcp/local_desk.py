"""Local desk: the routes of the HTTP API on a graph that this process has open, without HTTP.

Invariant: an operation is done by the function that a server has for it, and fails with the same
status and body. There are no tokens: whoever started the process writes as its actor.
"""

import asyncio
import os
from collections.abc import Callable

import anyio.to_thread
import msgspec
import orjson
from starlette.datastructures import QueryParams

from omnigraph import __version__
from omnigraph.cluster.query_catalog import NO_QUERIES, StoredQueries
from omnigraph.exec.limits import Stop
from omnigraph.exec.progress import OnProgress, Progress
from omnigraph.graph import Graph
from omnigraph.server import feed_waiting, wire
from omnigraph.server.call import Answer, RouteCall, answered, branch_or_main
from omnigraph.server.endpoint import Lane
from omnigraph.server.mcp.api_desk import ENDPOINTS, OWN_PATHS, ApiAnswer, ApiRequest
from omnigraph.server.refusals import HttpRefusal
from omnigraph.server.request_headers import RequestHeaders
from omnigraph.server.status import error_answer
from omnigraph.storage.stamp import INTERNAL_SCHEMA_VERSION


class WorkCancelled(Exception):
    """A load that its caller gave up stops in its progress callback, before its commit."""


class LocalDesk:
    """Does operations on one open graph."""

    def __init__(
        self, graph: Graph, graph_id: str, actor: str | None, stored: StoredQueries = NO_QUERIES
    ) -> None:
        self._graph = graph
        self._graph_id = graph_id
        self._actor = actor
        self._stored = stored
        self._stopping = asyncio.Event()

    async def default_graph(self) -> str | None:
        """The one graph."""
        return self._graph_id

    async def ask(self, request: ApiRequest, progress: OnProgress | None = None) -> ApiAnswer:
        """The answer of an operation."""
        request_id = os.urandom(8).hex()
        try:
            if request.graph not in (None, self._graph_id):
                raise HttpRefusal(404, f"graph '{request.graph}' not found")
            if request.operation in OWN_PATHS:
                answer = self._own(request.operation)
            else:
                answer = await self._routed(request, progress)
        except Exception as cause:  # noqa: BLE001  every failure is an answer
            error = error_answer(cause)
            return ApiAnswer(error.status, msgspec.to_builtins(error.body), request_id)
        return ApiAnswer(answer.status, orjson.loads(answer.body), request_id)

    def _own(self, operation: str) -> Answer:
        match operation:
            case "health":
                return answered(
                    wire.HealthOutput(
                        status="ok",
                        version=__version__,
                        internal_schema_version=INTERNAL_SCHEMA_VERSION,
                    )
                )
            case "listGraphs":
                entry = wire.GraphEntry(graph_id=self._graph_id, uri=self._graph.uri)
                return answered(wire.GraphList(graphs=[entry]))
            case _:
                return answered(wire.WhoamiOutput(actor_id=self._actor, access="open"))

    async def _routed(self, request: ApiRequest, progress: OnProgress | None) -> Answer:
        endpoint = ENDPOINTS[request.operation]
        stop = Stop()
        headers = [(name.encode(), text.encode()) for name, text in request.headers.items()]
        headers.append((b"content-type", b"application/json"))
        call = RouteCall(
            self._graph_id,
            self._graph,
            self._actor,
            request.path,
            QueryParams(list(request.query)),
            RequestHeaders(headers),
            body=b"" if request.body is None else wire.encoded(request.body),
            stop=stop,
            stored=self._stored,
            progress=stoppable(progress, stop),
        )

        async def run(call: RouteCall) -> Answer:
            return await _in_thread(endpoint.route, call, stop)

        if request.operation != "cluster_pollChanges" or endpoint.lane is Lane.WRITE:
            return await run(call)

        async def head() -> str:
            branch = branch_or_main(call.one("branch"))
            return await anyio.to_thread.run_sync(lambda: self._graph.snapshot(branch).commit_id)

        return await feed_waiting.long_poll(run, head, call, self._stopping)


def stoppable(progress: OnProgress | None, stop: Stop) -> OnProgress:
    """A progress callback that ends the work of a caller who has left."""

    def tell(step: Progress) -> None:
        if stop.is_cancelled:
            raise WorkCancelled
        if progress is not None:
            progress(step)

    return tell


async def _in_thread(route: Callable[[RouteCall], Answer], call: RouteCall, stop: Stop) -> Answer:
    try:
        return await anyio.to_thread.run_sync(route, call, abandon_on_cancel=True)
    except BaseException:
        stop.cancel()
        raise
