"""HTTP request as a route sees it, and its answer.

Invariant: plain values. A route runs in a thread, reads its `RouteCall`, makes one call on the
graph and returns an `Answer`; it never touches the connection.
"""

import io
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Protocol, TypeVar

from starlette.datastructures import QueryParams

from omnigraph.cluster.query_catalog import NO_QUERIES, StoredQueries
from omnigraph.errors import BadRequest
from omnigraph.exec.limits import Stop
from omnigraph.exec.progress import OnProgress
from omnigraph.graph import Graph
from omnigraph.graph.door import graph_for
from omnigraph.server.refusals import HttpRefusal
from omnigraph.server.request_headers import RequestHeaders
from omnigraph.server.serve_settings import ServerLimits, ServerSettings
from omnigraph.server.wire import Body, decoded, encoded
from omnigraph.storage.names import MAIN

if TYPE_CHECKING:
    from omnigraph.server.job_runner import JobRunner
    from omnigraph.server.ui.ui_front import PageVisit

B = TypeVar("B", bound=Body)
JSON, NDJSON = "application/json", "application/x-ndjson"
_INTEGER_DIGITS = 18


class Require(Protocol):
    """Pass if the actor of a request may do an action, else raise `Forbidden`."""

    def __call__(
        self, action: str, branch: str | None = None, target: str | None = None
    ) -> None: ...


@dataclass(frozen=True, slots=True)
class JobDesk:
    """Where a route leaves work for the background."""

    runner: "JobRunner"
    settings: ServerSettings


@dataclass(slots=True)
class RouteCall:
    """A request. `facts` are what its log line says beside status and time."""

    graph_id: str
    graph: Graph
    actor: str | None
    path: Mapping[str, str]
    query: QueryParams
    headers: RequestHeaders
    body: bytes = b""
    spooled: Path | None = None  # a body that is too large for memory
    stop: Stop = field(default_factory=Stop)
    limits: ServerLimits = field(default_factory=ServerLimits)
    facts: dict[str, Any] = field(default_factory=dict)
    jobs: "JobDesk | None" = None
    progress: OnProgress | None = None  # of a load or merge, for a client that listens
    stored: StoredQueries = NO_QUERIES
    is_clustered: bool = False  # its schema is declared elsewhere
    require: "Require" = lambda action, branch=None, target=None: None
    visit: "PageVisit | None" = None  # of a page

    def whole_graph(self) -> Graph:
        """The graph without a policy, for work that was asked about."""
        return graph_for(self.graph, self.actor)

    def json(self, shape: type[B]) -> B:
        """The body as JSON of one shape."""
        return decoded(self.body, shape)

    def body_stream(self) -> IO[bytes]:
        """The body as a file, wherever it is kept."""
        return io.BytesIO(self.body) if self.spooled is None else self.spooled.open("rb")

    def one(self, name: str) -> str | None:
        """A query parameter that may be given once."""
        values = self.query.getlist(name)
        if len(values) > 1:
            raise BadRequest(f"query parameter '{name}' may be given once")
        return values[0] if values else None

    def number(self, name: str, least: int = 0) -> int | None:
        """A query parameter that is a whole number."""
        text = self.one(name)
        if text is None:
            return None
        if not text.isascii() or not text.isdigit() or len(text) > _INTEGER_DIGITS:
            raise BadRequest(f"query parameter '{name}' is no whole number")
        if int(text) < least:
            raise BadRequest(f"query parameter '{name}' must be at least {least}")
        return int(text)

    def switch(self, name: str) -> bool:
        """A query parameter that is true or false; false by default."""
        text = self.one(name)
        if text not in (None, "true", "false"):
            raise BadRequest(f"query parameter '{name}' is true or false")
        return text == "true"

    def only(self, *names: str) -> None:
        """Refuse a query parameter that the route does not know."""
        for name in self.query:
            if name not in names:
                raise BadRequest(f"unknown query parameter '{name}'")


def branch_or_main(name: str | None) -> str:
    """The branch that a request names, main where it names none. No name is not the empty name."""
    return MAIN if name is None else name


@dataclass(slots=True)
class Answer:
    """A response: a body, or a stream of chunks that ends the connection when it fails."""

    body: bytes = b""
    status: int = 200
    media: str | None = JSON
    headers: dict[str, str] = field(default_factory=dict)
    stream: Iterator[bytes] | None = None
    events: AsyncIterator[bytes] | None = None  # a stream that ends when the client leaves
    document: Any = None  # what `body` says, for the older routes that add to it


def answered(document: Any, **headers: str) -> Answer:
    """A JSON answer."""
    return Answer(encoded(document), headers=headers, document=document)


def require_media(headers: RequestHeaders, *media: str) -> str:
    """The content type of a body, without its parameters, or 415."""
    given = headers.get("content-type") or ""
    if given in media:
        return given
    given = given.partition(";")[0].strip().lower()
    if given not in media:
        said = f"'{given}'" if given else "missing"
        raise HttpRefusal(415, f"the content type is {said}; send {' or '.join(media)}")
    return given
