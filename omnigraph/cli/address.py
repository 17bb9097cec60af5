"""URI of the graph a command works on: from its arguments, its flags or the configuration.

Invariant: a graph is named exactly once, by the command line or else by the user's settings, and a
command that finds none or two says so before it touches anything.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import typer

from omnigraph import environment
from omnigraph.cli.config import GraphProfile, config
from omnigraph.cli.scope import scope
from omnigraph.cli.servers import graph_url, is_served
from omnigraph.errors import BadRequest


class NoGraphNamed(typer.BadParameter):
    """A command line and settings that name no graph."""


def graph_uri(*named: str | None) -> str:
    """The one address among the ways to give it."""
    given = [uri for uri in named if uri is not None]
    asked = scope()
    flags = {"--server": asked.server, "--cluster": asked.cluster, "--profile": asked.profile}
    used = [flag for flag, value in flags.items() if value is not None]
    if len(given) + len(used) > 1:
        ways = "a path, --uri, --store, --server, --cluster and --profile"
        twice = " and ".join([*(f"'{uri}'" for uri in given), *used])
        raise typer.BadParameter(
            f"the graph is named twice, by {twice}: {ways} are mutually exclusive: pass one"
        )
    if given and asked.graph is not None and not is_served(given[0]):
        raise typer.BadParameter("--graph names a graph of a server or cluster, not of a store")
    if given:
        return graph_url(given[0], asked.graph) if is_served(given[0]) else given[0]
    if asked.cluster is not None:
        return _clustered(str(cluster_of_scope()), asked.graph)
    if asked.server is not None:
        return graph_url(asked.server, asked.graph)
    return _configured(asked.profile or environment.PROFILE.read(), asked.graph)


def _configured(profile: str | None, graph: str | None) -> str:
    """The store, or the graph of a server, that the settings name."""
    settings = config()
    target_profile: GraphProfile = (
        settings.defaults if profile is None else settings.profile(profile)
    )
    if target_profile.server is not None:
        return graph_url(target_profile.server, graph or target_profile.default_graph)
    if target_profile.store is not None and graph is not None:
        raise typer.BadParameter("--graph names a graph of a server or cluster, not of a store")
    if target_profile.store is not None:
        return target_profile.store
    if target_profile.cluster is not None:
        root = settings.clusters.get(target_profile.cluster, target_profile.cluster)
        return _clustered(root, graph or target_profile.default_graph)
    raise NoGraphNamed(
        f"name a graph: pass its path, --store URI, or set defaults.store in {settings.path}"
    )


def cluster_of_scope() -> str | None:
    """The folder or the storage of the cluster that `--cluster` or a profile names."""
    asked, settings = scope(), config()
    if asked.cluster is not None:
        return settings.clusters.get(asked.cluster, asked.cluster)
    name = asked.profile or environment.PROFILE.read()
    profile = settings.defaults if name is None else settings.profile(name)
    if profile.cluster is None or asked.server is not None:
        return None
    return settings.clusters.get(profile.cluster, profile.cluster)


def _clustered(cluster: str, graph: str | None) -> str:
    """The address of a graph of a cluster."""
    from omnigraph.cluster.diagnostics import ClusterRefusal
    from omnigraph.cluster.served_state import graph_of_cluster

    try:
        return graph_of_cluster(cluster, graph)
    except ClusterRefusal as refusal:
        raise refusal.as_error() from None


def require_outside_cluster(uri: str, verb: str) -> None:
    """Refuse to change by hand what a cluster declares."""
    if is_served(uri):
        return
    where = str(Path(uri).absolute()) if "://" not in uri else uri
    if "/graphs/" not in where:
        return
    from omnigraph.cluster.served_state import enclosing_cluster

    root = enclosing_cluster(where)
    if root is not None:
        raise BadRequest(
            f"'{uri}' belongs to the cluster at {root}, and {verb} would be undone",
            "change its cluster.yaml, then omnigraph cluster apply",
        )


def _is_the_graph(word: str, elsewhere: str | None) -> bool:
    """Whether a word is rather a graph's address than a query's name. Beside a graph that is named
    elsewhere the name of a folder may be a query's; a path cannot, and is refused as a second."""
    is_path = "/" in word or word.endswith(".omni")
    return is_path or (elsewhere is None and Path(word).is_dir())


def name_and_graph(
    words: list[str], named: str | None, elsewhere: str | None
) -> tuple[str | None, str | None]:
    """The query's name and the graph among the words after a command."""
    if len(words) > 2:
        raise typer.BadParameter("at most a query's name and a graph follow")
    path = None
    if len(words) == 2 or (words and _is_the_graph(words[-1], elsewhere)):
        path = words.pop()
    if words and named is not None:
        raise typer.BadParameter("--name and a name are mutually exclusive: pass one")
    return (words[0] if words else named), path


def name_and_uri(
    words: list[str], named: str | None, store: str | None, text: str | None
) -> tuple[str | None, str]:
    """The query's name and the address of the graph. Where nothing else names a graph, a word that
    names no query of the text can only be one."""
    given = list(words)
    name, path = name_and_graph(words, named, store)
    try:
        return name, graph_uri(path, store)
    except NoGraphNamed:
        if (
            len(given) != 1
            or text is None
            or re.search(rf"\bquery\s+{re.escape(given[0])}\b", text)
        ):
            raise
        return named, given[0]


def two_points_and_uri(before: str, after: str, *named: str | None) -> str:
    """The address of a graph whose two points come first on the command line."""
    try:
        return graph_uri(*named)
    except NoGraphNamed:
        if not _is_an_address(after):
            raise
        raise typer.BadParameter(
            f"AFTER is missing: '{after}' is a graph; write {before} AFTER {after}"
        ) from None


def point_and_graph(words: list[str], elsewhere: str | None) -> tuple[str | None, str | None]:
    """The point in time and the graph among the words after a command. One word is the graph if it
    is a folder or ends as one: a point may hold a slash."""
    if len(words) > 2:
        raise typer.BadParameter("at most a point in time and a graph follow")
    path = None
    if len(words) == 2 or (words and elsewhere is None and _is_an_address(words[0])):
        path = words.pop()
    return (words[0] if words else None), path


def _is_an_address(word: str) -> bool:
    return "://" in word or word.endswith(".omni") or Path(word).is_dir()


def is_local(uri: str) -> bool:
    """Whether the graph is on this machine."""
    return "://" not in uri or uri.startswith("file://")


def write_target(verb: str, uri: str, *, quiet: bool) -> None:
    """Say on standard error where a write goes."""
    if not quiet:
        where = "served" if is_served(uri) else f"direct, {'local' if is_local(uri) else 'remote'}"
        typer.echo(f"omnigraph {verb} → {uri} ({where})", err=True)


def confirm_destructive(verb: str, uri: str, *, json: bool = False) -> None:
    """Ask before data of a graph that is not on this machine is thrown away."""
    if is_local(uri) or scope().yes:
        return
    if json or not sys.stdin.isatty():
        raise BadRequest(f"'{verb}' on {uri} throws data away", "pass --yes if that is meant")
    typer.echo(f"'{verb}' on {uri} throws data away. Type yes to go on: ", err=True, nl=False)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise BadRequest("nothing was done", "type yes, or pass --yes, to go on")
