"""Placeholder commands for clusters, hidden from the help.

Invariant: each is known by name and says what is missing, so a script written for a later release
fails with a reason and not with "no such command".
"""

from __future__ import annotations

from typing import Annotated

import typer

from omnigraph.cli.terminal import plain_errors
from omnigraph.errors import BadRequest

_COMMANDS = {
    "cluster": "Plan and apply the configuration of a cluster.",
    "queries": "List and check the stored queries of a cluster.",
}

Rest = Annotated[list[str] | None, typer.Argument(help="Anything.")]


def add_to(app: typer.Typer) -> None:
    """Make the commands known, out of sight."""
    for name, about in _COMMANDS.items():
        app.command(
            name,
            help=f"{about} Comes with clusters, in a later release.",
            hidden=True,
            context_settings={"ignore_unknown_options": True},
        )(_missing(name))


def _missing(name: str):  # type: ignore[no-untyped-def]  # typer reads the inner signature
    def command(rest: Rest = None) -> None:
        with plain_errors():
            raise BadRequest(
                f"'omnigraph {name}' needs a cluster, which this release does not have",
                "work on a graph: pass its path, or --server",
            )

    return command
