"""`connect`: a graph of a server by its URL, its id and a token.

Invariant: what is returned was reached: a server that does not answer, a token it does not know or
a graph it does not have raise here and not at the first query.
"""

import re
from urllib.parse import unquote, urlsplit

from omnigraph import environment
from omnigraph.arguments import checked
from omnigraph.catalog.near_names import did_you_mean
from omnigraph.errors import BadRequest, Forbidden, NotFound, OmnigraphError
from omnigraph.remote.http_connection import TIMEOUT_S, HttpConnection
from omnigraph.remote.remote_graph import RemoteGraph
from omnigraph.remote.remote_session import RemoteSession

_GRAPH_PATH = re.compile(r"(?P<base>.*?)/graphs/(?P<graph>[^/]+)/?")
_GRAPH_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")


@checked
def connect(
    url: str,
    graph: str | None = None,
    token: str | None = None,
    *,
    timeout: int | float | None = TIMEOUT_S,
    retry_writes: bool = True,
    read_only: bool = False,
) -> RemoteGraph:
    """A graph that a server has, with the methods of one that was opened.

    `graph` is its id there; it may be left out if the server has one graph, or if the URL ends in
    `/graphs/<id>`. `token` says who asks, by default that of `OMNIGRAPH_BEARER_TOKEN`. `timeout`
    is how many seconds the server may be silent. Writes carry an idempotency key and are sent again
    after a connection failure, unless `retry_writes` is false.

    >>> try:
    ...     og.connect("http://127.0.0.1:1", graph="people")
    ... except og.ServerUnreachable as error:
    ...     error.url
    'http://127.0.0.1:1'
    """
    return connected(
        url,
        graph,
        environment.BEARER_TOKEN.read() if token is None else token,
        timeout=timeout,
        retry_writes=retry_writes,
        read_only=read_only,
    )


def connected(
    url: str,
    graph: str | None,
    token: str | None,
    *,
    timeout: float | None = TIMEOUT_S,
    retry_writes: bool = True,
    read_only: bool = False,
    operator: str | None = None,
) -> RemoteGraph:
    """The graph at a URL, once its server has answered."""
    base, named = server_and_graph(url)
    if named is not None and graph not in (None, named):
        raise BadRequest(f"the URL names the graph '{named}', not '{graph}'", "name one of them")
    http = HttpConnection(base, token, timeout=timeout, retry_writes=retry_writes)
    try:
        graph_id = graph or named or only_graph(http)
        if not _GRAPH_ID.fullmatch(graph_id):
            raise BadRequest(f"'{graph_id}' is no graph id", "letters, digits and hyphens")
        http.base = f"/graphs/{graph_id}"
        reached = RemoteGraph(RemoteSession(http, read_only, operator))
        try:
            reached.refresh()
        except NotFound as missing:
            raise _unknown_graph(http, graph_id, missing) from None
    except OmnigraphError:
        http.close()
        raise
    return reached


def _unknown_graph(http: HttpConnection, graph_id: str, missing: NotFound) -> NotFound:
    """What the server does not have, with the graph that is near if this actor may list them."""
    if (missing.kind, missing.name) != ("graph", graph_id):
        return missing
    http.base = ""
    try:
        known = [each for each, _ in graphs_of(http)]
    except OmnigraphError:
        return missing  # the list is a kindness: its failure is not the caller's
    return NotFound("graph", graph_id, did_you_mean(graph_id, known) if known else "")


def server_and_graph(url: str) -> tuple[str, str | None]:
    """The address of a server, and the graph of it that the URL names, if it names one."""
    try:
        parts = urlsplit(url)
        is_server = parts.scheme in ("http", "https") and bool(parts.hostname)
    except ValueError:  # half of an IPv6 address
        is_server = False
    if not is_server:
        raise BadRequest(f"'{url}' is no address of a server", "give http://host:port")
    if parts.query or parts.fragment:
        raise BadRequest(f"'{url}' holds more than an address", "leave out what follows ? or #")
    match = _GRAPH_PATH.fullmatch(parts.path)
    path = parts.path if match is None else match["base"]
    base = f"{parts.scheme}://{parts.netloc}{path.rstrip('/')}"
    return base, None if match is None else unquote(match["graph"])


def graphs_of(http: HttpConnection) -> list[tuple[str, str]]:
    """The ids and addresses of the graphs of a server."""
    listed = http.document("/graphs")["graphs"]
    return [(each["graph_id"], each["uri"]) for each in listed]


def only_graph(http: HttpConnection) -> str:
    """The id of the one graph of a server."""
    try:
        ids = [graph_id for graph_id, _ in graphs_of(http)]
    except Forbidden:
        raise BadRequest(
            f"the server at {http.url} does not list its graphs", "name one: graph=, --graph ID"
        ) from None
    if not ids:
        raise NotFound("graph", http.url, "the server has none that is open")
    if len(ids) > 1:
        listed = ", ".join(ids)
        raise BadRequest(
            f"the server at {http.url} has several graphs: {listed}",
            "name one: graph=, --graph ID",
        )
    return ids[0]
