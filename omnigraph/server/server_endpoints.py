"""Endpoints that are about no graph: health, readiness, metrics, the API document, who is asking.

Invariant: the application answers them itself, so their handlers are never called.
"""

from typing import Any

from omnigraph.server import wire
from omnigraph.server.access import METADATA_PATH
from omnigraph.server.call import JSON, Answer, RouteCall
from omnigraph.server.endpoint import ApiEndpoint
from omnigraph.server.refusals import HttpRefusal


def server_endpoints() -> tuple[ApiEndpoint, ...]:
    """The endpoints of the server itself."""

    def none(call: RouteCall) -> Answer:
        raise HttpRefusal(404, "there is no such route")

    def row(path: str, operation: str, about: str, answers: Any, action: str | None) -> ApiEndpoint:
        return ApiEndpoint("GET", path, operation, action, none, about, answers)

    return (
        row("/healthz", "health", "That the server answers.", wire.HealthOutput, None),
        row(
            "/readyz",
            "ready",
            "Whether every graph is open and no thread pool is stuck.",
            wire.ReadyOutput,
            None,
        ),
        row("/metrics", "metrics", "Prometheus metrics of all workers.", "text/plain", None),
        row("/openapi.json", "openapi", "This document.", JSON, None),
        row(METADATA_PATH, "oauthProtectedResource", "Who gives out tokens.", JSON, None),
        row("/graphs", "listGraphs", "The served graphs, by id.", wire.GraphList, "graph_list"),
        row("/whoami", "whoami", "Who a token belongs to.", wire.WhoamiOutput, "read"),
    )
