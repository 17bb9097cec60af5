"""`omnigraph login`, `logout`, `whoami`, `graphs list` and `alias`: servers and their tokens."""

from __future__ import annotations

import json as json_codec
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from omnigraph import environment
from omnigraph.cli.config import AliasSettings, config
from omnigraph.cli.credentials import credentials_path, forget_token, store_token
from omnigraph.cli.options import Json, Params
from omnigraph.cli.render import Format, QueryRows
from omnigraph.cli.scope import scope
from omnigraph.cli.servers import asked_server, connected_graph, graph_url, server_url
from omnigraph.cli.terminal import plain_errors, show, show_json, warn
from omnigraph.errors import BadRequest, NotFound

if TYPE_CHECKING:
    from collections.abc import Mapping

graphs_app = typer.Typer(
    name="graphs",
    help="Look at the graphs of a server.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

ServerName = Annotated[
    str, typer.Argument(metavar="NAME", help="The server, by its name in config.yaml.")
]


def login(
    name: ServerName,
    token: Annotated[
        str | None, typer.Option("--token", metavar="TOKEN", help="Else a line of input.")
    ] = None,
    json: Json = False,
) -> None:
    """Store the token of a server, in a file that only you may read."""
    with plain_errors():
        given = sys.stdin.readline() if token is None else token
        path = store_token(name, given.strip())
        declared = name in config().servers
        if json:
            show_json({"server": name, "credentials_path": str(path), "declared": declared})
            return
        show(f"stored credential for '{name}' in {path}")
        if not declared:
            warn(f"{config().path} names no server '{name}' yet")


def logout(name: ServerName, json: Json = False) -> None:
    """Forget the token of a server."""
    with plain_errors():
        had_token, path = forget_token(name), credentials_path()
        if json:
            show_json({"server": name, "credentials_path": str(path)})
        elif had_token:
            show(f"removed the credential for '{name}' from {path}")
        else:
            show(f"no credential for '{name}' in {path}")


def whoami(json: Json = False) -> None:
    """Show whom a server takes you for, by the token that is known for it."""
    with plain_errors():
        url = _asked_url()
        answer = asked_server(url, "/whoami")
        if json:
            show_json({"server": url, **answer})
            return
        actor = answer["actor_id"]
        show(f"{url}: {'nobody in particular' if actor is None else actor} ({answer['access']})")


@graphs_app.callback()
def graphs() -> None:
    """Look at the graphs of a server."""


@graphs_app.command(name="list")
def list_(json: Json = False) -> None:
    """List the graphs of a server, each with its address there."""
    with plain_errors():
        document = asked_server(_asked_url(), "/graphs")
        if json:
            show_json({"graphs": document["graphs"]})
            return
        for each in document["graphs"]:
            show(f"{each['graph_id']}\t{each['uri']}")


def _asked_url() -> str:
    """The server of `--server`, of a profile or of the defaults."""
    asked = scope()
    if asked.server is not None:
        return server_url(asked.server)
    settings = config()
    name = asked.profile or environment.PROFILE.read()
    profile = settings.defaults if name is None else settings.profile(name)
    if profile.server is None:
        raise typer.BadParameter("name a server: pass --server NAME|URL")
    return server_url(profile.server)


def alias(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The alias, of config.yaml.")],
    words: Annotated[
        list[str] | None, typer.Argument(metavar="[VALUE]…", help="Its arguments, in order.")
    ] = None,
    params: Params = None,
    format: Annotated[Format | None, typer.Option("--format", help="How to print rows.")] = None,
    json: Json = False,
) -> None:
    """Run the stored read query that an alias of config.yaml names."""
    from omnigraph.cli.data import read_params, show_answer

    with plain_errors():
        settings = config()
        known = settings.aliases.get(name)
        if known is None:
            listed = ", ".join(settings.aliases) or "none"
            raise NotFound("alias", name, f"{settings.path} has: {listed}")
        values = {**known.params, **_filled(name, known, words or [])}
        values |= read_params(params, None) or {}
        url = graph_url(known.server, known.graph)
        answer = invoked(url, known.query, values, server=known.server)
        chosen = Format.JSON if json else format
        show_answer(answer, chosen or (None if known.format is None else Format(known.format)))


def _filled(name: str, known: AliasSettings, words: list[str]) -> dict[str, Any]:
    if len(words) > len(known.args):
        expected = ", ".join(known.args) or "none"
        raise BadRequest(f"alias '{name}' takes {len(known.args)} arguments", f"its: {expected}")
    return dict(zip(known.args, map(_value, words), strict=False))


def _value(word: str) -> Any:
    """A word as JSON where it is a number, a truth value or null; else as the text it is."""
    try:
        value = json_codec.loads(word)
    except ValueError:
        return word
    return word if isinstance(value, str | list | dict) else value


def invoked(
    url: str,
    name: str,
    params: Mapping[str, Any] | None,
    branch: str | None = None,
    snapshot: str | None = None,
    *,
    server: str | None = None,
) -> QueryRows:
    """The rows of a stored read query of a server."""
    with connected_graph(url, read_only=True, server=server) as graph:
        answer = graph.stored_queries.document(name, params, branch, snapshot)
    target, columns = answer["target"], answer.get("columns", [])
    return QueryRows(
        answer["query_name"],
        target["branch"],
        target["snapshot"],
        columns,
        answer["rows"],
        [[row.get(column) for column in columns] for row in answer["rows"]],
        answer.get("graph_commit_id", ""),
    )
