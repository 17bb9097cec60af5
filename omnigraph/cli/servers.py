"""Servers as the command line names them: by a name of `config.yaml` or by their URL.

Invariant: a served graph is a URL from here on, `http://host:port/graphs/ID`, and without an id it
is the one graph of its server. Nothing is asked of a server before its command opens the graph.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from omnigraph import environment
from omnigraph.cli.config import config
from omnigraph.cli.credentials import is_same_url, token_for
from omnigraph.cli.scope import scope
from omnigraph.errors import BadRequest, NotFound

if TYPE_CHECKING:
    from omnigraph.remote import RemoteGraph

_SCHEMES = ("http://", "https://")


def is_served(uri: str) -> bool:
    """Whether an address is that of a server."""
    return uri.startswith(_SCHEMES)


def server_url(server: str) -> str:
    """The URL of a server, which is given as it is or by its configured name."""
    if is_served(server):
        return _without_slash(server)
    settings = config()
    url = settings.servers.get(server)
    if url is None:
        known = ", ".join(settings.servers) or "none"
        is_address = ":" in server or "." in server or server == "localhost"
        near = f"write http://{server}, or a name: " if is_address and "://" not in server else ""
        raise NotFound("server", server, f"{near}{settings.path} has: {known}")
    if not is_served(url):
        raise BadRequest(f"the url of server '{server}' is '{url}'", "write http://host:port")
    return _without_slash(url)


def _without_slash(url: str) -> str:
    """A URL without slashes at its end, but for those of its scheme."""
    scheme, slashes, rest = url.partition("://")
    return f"{scheme}{slashes}{rest.rstrip('/')}"


def graph_url(server: str, graph: str | None) -> str:
    """The URL of a graph of a server; without an id that of the default graph, if there is one."""
    url = server_url(server)
    defaults = config().defaults
    if graph is None and defaults.server is not None and "/graphs/" not in url:
        graph = defaults.default_graph if is_same_url(server_url(defaults.server), url) else None
    return url if graph is None else f"{url}/graphs/{graph}"


def asked_token(url: str, server: str | None = None) -> str | None:
    """The token for the server at a URL, which is asked for by the name that is given, or else by
    that of `--server`, of a profile or of the defaults."""
    asked, settings = scope(), config()
    profile = asked.profile or environment.PROFILE.read()
    chosen = settings.defaults if profile is None else settings.profiles.get(profile)
    configured = None if chosen is None else chosen.server
    return token_for(url, server or asked.server or configured)


def connected_graph(url: str, *, read_only: bool, server: str | None = None) -> RemoteGraph:
    """The graph at a URL, with the token that is known for its server by its name."""
    from omnigraph.remote.connecting import connected, server_and_graph

    base, graph = server_and_graph(url)
    token = asked_token(base, server)
    return connected(base, graph, token, read_only=read_only, operator=config().actor)


def asked_server(url: str, path: str) -> Any:
    """The document of a server that is about no graph."""
    from omnigraph.remote.connecting import server_and_graph
    from omnigraph.remote.http_connection import HttpConnection

    server, _ = server_and_graph(url)
    http = HttpConnection(server, asked_token(server))
    try:
        return http.document(path)
    finally:
        http.close()


def acting(actor: str | None, where: str) -> str | None:
    """The actor of a write: as given, but for a served graph that of the token."""
    if not is_served(where):
        return actor
    if actor not in (None, config().actor):
        raise BadRequest(
            f"a served write carries the actor of its token, not '{actor}'", "leave --as out"
        )
    try:
        named: str | None = asked_server(where, "/whoami")["actor_id"]
    except NotFound:  # a server of 0.10
        return None
    return named
