"""API desk: where a tool of an agent has one operation of the HTTP API done.

Invariant: a tool knows operations by their ids and their JSON, never a graph. Whether the routes
run in this process, in the worker that the agent talks to or on a server far away is the desk's.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol
from urllib.parse import quote, urlencode

from omnigraph.exec.progress import OnProgress
from omnigraph.server.endpoint import ApiEndpoint
from omnigraph.server.route_table import NESTED

ENDPOINTS: dict[str, ApiEndpoint] = {each.operation: each for each in NESTED}
OWN_PATHS = {"health": "/healthz", "listGraphs": "/graphs", "whoami": "/whoami"}
"""Operations that are about no graph."""

ONCE = frozenset(
    {
        "cluster_mutate",
        "cluster_mutate_if_graph_commit",
        "cluster_load",
        "cluster_mergeBranches",
        "cluster_invoke_query",
        "cluster_invoke_query_if_graph_commit",
    }
)
"""Operations that take an idempotency key."""


@dataclass(frozen=True, slots=True)
class ApiRequest:
    """One operation with its parameters. A body that is None is none."""

    operation: str
    graph: str | None = None
    path: Mapping[str, str] = field(default_factory=dict)
    query: tuple[tuple[str, str], ...] = ()
    body: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def method(self) -> str:
        """The HTTP method."""
        if self.operation in OWN_PATHS:
            return "GET"
        return ENDPOINTS[self.operation].method

    @property
    def encoded_path(self) -> str:
        """The path, its parameters percent-encoded."""
        if self.operation in OWN_PATHS:
            return OWN_PATHS[self.operation]
        values = {**self.path, "graph_id": self.graph or ""}
        parts = ENDPOINTS[self.operation].segments
        encoded = (quote(values[p[1:-1]], safe="") if p.startswith("{") else p for p in parts)
        return "/" + "/".join(encoded)

    @property
    def query_string(self) -> str:
        """The query parameters, percent-encoded."""
        return urlencode(self.query)


@dataclass(frozen=True, slots=True)
class ApiAnswer:
    """The JSON that an operation answered, or that of its error."""

    status: int
    document: Any
    request_id: str | None = None

    @property
    def is_refusal(self) -> bool:
        """Whether the operation failed."""
        return self.status >= 400


class ApiDesk(Protocol):
    """Has operations done."""

    async def ask(self, request: ApiRequest, progress: OnProgress | None = None) -> ApiAnswer:
        """The answer of an operation; `progress` hears of a load from another thread. A read that
        is cancelled ends, a write goes on."""
        ...

    async def default_graph(self) -> str | None:
        """The graph that a tool means which names none."""
        ...
