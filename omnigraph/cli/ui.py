"""`omnigraph ui`: a graph in the browser, from this machine and for this machine."""

from __future__ import annotations

import webbrowser
from typing import TYPE_CHECKING, Annotated

import typer

from omnigraph.cli.address import graph_uri
from omnigraph.cli.options import GraphPath, Store
from omnigraph.cli.servers import is_served
from omnigraph.cli.terminal import plain_errors, show
from omnigraph.errors import BadRequest

if TYPE_CHECKING:
    from omnigraph.server.serve_settings import ServerSettings


def ui(
    path: GraphPath = None,
    port: Annotated[int, typer.Option(min=0, max=65_535, help="0 takes one that is free.")] = 0,
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open it.")] = True,
    allowed_host: Annotated[
        list[str] | None,
        typer.Option(
            "--allowed-host",
            metavar="NAME",
            help="Name that requests may be sent to, beside loopback; * allows every one.",
        ),
    ] = None,
    store: Store = None,
) -> None:
    """Show a graph in the browser until Ctrl-C.

    It listens on this machine alone and asks nobody who they are; `omnigraph serve` is for others.
    """
    with plain_errors():
        address = graph_uri(path, store)
        if is_served(address):
            raise BadRequest("this graph has a server", "open /ui/ at its address in a browser")
        from omnigraph.extras import require_draw, require_server

        require_server()
        require_draw()
        from omnigraph.server.host_check import checked_hosts
        from omnigraph.server.serve_settings import Access, ServerSettings
        from omnigraph.server.supervisor import supervise

        settings = ServerSettings(
            graphs={"graph": address},
            host="127.0.0.1",
            port=port,
            access=Access.OPEN,
            allowed_hosts=checked_hosts(allowed_host or ()),
        )
        settings = _named(settings, address)

        def say(listening: str, access: str) -> None:
            page = f"http://{listening}/ui/"
            show(f"look at {page} (Ctrl-C ends it)")
            if browser:
                webbrowser.open(page)

        status = supervise(settings, say)
    raise typer.Exit(status)


def _named(settings: ServerSettings, address: str) -> ServerSettings:
    """The settings with the graph under the name of its folder, where that can be one."""
    from dataclasses import replace

    from omnigraph.server.serve_settings import graph_id_of

    try:
        return replace(settings, graphs={graph_id_of(address): address})
    except BadRequest:
        return settings
