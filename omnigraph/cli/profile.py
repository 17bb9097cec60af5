"""`omnigraph profile …`: the places that the user's settings name."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from omnigraph.cli.config import Config, Profile, config
from omnigraph.cli.options import Json
from omnigraph.cli.terminal import show as show_text
from omnigraph.cli.terminal import show_json, told_plainly

app = typer.Typer(
    name="profile",
    help="Show the places your config.yaml names.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@app.command(name="list")
def list_(json: Json = False) -> None:
    """List the profiles."""
    with told_plainly():
        settings = config()
        active = os.environ.get("OMNIGRAPH_PROFILE")
        documents = [_listed(settings, one, active) for one in settings.profiles.values()]
        if json:
            show_json(documents)
            return
        for one in documents:
            mark = "*" if one["active"] else " "
            what = one["error"] or f"{one['scope_kind']} {one['target']}"
            show_text(f"{mark} {one['name']}: {what}")


@app.command()
def show(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="Which, else what holds now.")
    ] = None,
    json: Json = False,
) -> None:
    """Show where a profile leads."""
    with told_plainly():
        settings = config()
        chosen = name or os.environ.get("OMNIGRAPH_PROFILE")
        place = settings.defaults if chosen is None else settings.profile(chosen)
        document = {
            "name": place.name,
            "scope_kind": place.kind,
            "target": place.target,
            "endpoint": _endpoint(settings, place),
            "default_graph": place.default_graph,
            "output_format": settings.output,
        }
        if json:
            show_json(document)
            return
        for key, value in document.items():
            if value is not None:
                show_text(f"{key}: {value}")


def _listed(settings: Config, place: Profile, active: str | None) -> dict[str, object]:
    fault = place.fault(settings)
    return {
        "name": place.name,
        "binding": f"{place.kind}:{place.target}" if place.kind else None,
        "scope_kind": place.kind,
        "target": place.target,
        "valid": fault is None,
        "error": fault,
        "default_graph": place.default_graph,
        "active": place.name == active,
    }


def _endpoint(settings: Config, place: Profile) -> str | None:
    """Where it is in the end: a URL, a root or a path."""
    if place.server is not None:
        return settings.servers.get(place.server, place.server)
    if place.cluster is not None:
        return settings.clusters.get(place.cluster)
    return place.store
