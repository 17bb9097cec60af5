"""`omnigraph profile …`: the profiles of the user's configuration."""

from __future__ import annotations

from typing import Annotated

import typer

from omnigraph import environment
from omnigraph.cli.config import Config, GraphProfile, config
from omnigraph.cli.options import Json
from omnigraph.cli.terminal import plain_errors, show_json
from omnigraph.cli.terminal import show as show_text

app = typer.Typer(
    name="profile",
    help="Show the places your config.yaml names.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@app.command(name="list")
def list_(json: Json = False) -> None:
    """List the profiles."""
    with plain_errors():
        settings = config()
        active = environment.PROFILE.read()
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
    with plain_errors():
        settings = config()
        chosen = name or environment.PROFILE.read()
        profile = settings.defaults if chosen is None else settings.profile(chosen)
        document = {
            "name": profile.name,
            "scope_kind": profile.kind,
            "target": profile.target,
            "endpoint": _endpoint(settings, profile),
            "default_graph": profile.default_graph,
            "output_format": settings.output,
        }
        if json:
            show_json(document)
            return
        for key, value in document.items():
            if value is not None:
                show_text(f"{key}: {value}")


def _listed(settings: Config, profile: GraphProfile, active: str | None) -> dict[str, object]:
    fault = profile.fault(settings)
    return {
        "name": profile.name,
        "binding": f"{profile.kind}:{profile.target}" if profile.kind else None,
        "scope_kind": profile.kind,
        "target": profile.target,
        "valid": fault is None,
        "error": fault,
        "default_graph": profile.default_graph,
        "active": profile.name == active,
    }


def _endpoint(settings: Config, profile: GraphProfile) -> str | None:
    """The resolved address of a profile: a URL, a root or a path."""
    if profile.server is not None:
        return settings.servers.get(profile.server, profile.server)
    if profile.cluster is not None:
        return settings.clusters.get(profile.cluster)
    return profile.store
