"""Which graph a command is about.

Invariant: a graph is named exactly once, and a command that finds none or two says so before it
touches anything.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

GraphPath = Annotated[str | None, typer.Argument(metavar="[URI]", help="Where the graph lives.")]
Store = Annotated[
    str | None, typer.Option("--store", metavar="URI", help="The same, as an option.")
]
Uri = Annotated[str | None, typer.Option("--uri", metavar="URI", help="The same, as an option.")]
Actor = Annotated[str | None, typer.Option("--as", metavar="ACTOR", help="Who writes.")]
Branch = Annotated[str, typer.Option("--branch", metavar="NAME", help="Which branch.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="Do not say where a write goes.")]

MAIN = "main"


def graph_uri(*named: str | None) -> str:
    """The one address among the ways to give it."""
    given = [uri for uri in named if uri is not None]
    if not given:
        raise typer.BadParameter("name a graph: pass its path, or --store URI")
    if len(given) > 1:
        raise typer.BadParameter("a path, --uri and --store are mutually exclusive: pass one")
    if given[0].startswith(("http://", "https://")):
        raise typer.BadParameter("a server cannot be opened as a store")
    return given[0]


def looks_like_a_graph(word: str) -> bool:
    """Whether a word is rather a graph's address than a query's name."""
    return "/" in word or word.endswith(".omni") or Path(word).is_dir()


def write_target(verb: str, uri: str, *, quiet: bool) -> None:
    """Say on standard error where a write goes."""
    if not quiet:
        where = "local" if "://" not in uri or uri.startswith("file://") else "remote"
        typer.echo(f"omnigraph {verb} → {uri} (direct, {where})", err=True)
