"""`omnigraph commit …`, `snapshot` and `recoveries`: commit log, table versions, recovery audit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from omnigraph.cli import lanes
from omnigraph.cli.address import graph_uri
from omnigraph.cli.commit_text import (
    Names,
    commit_line,
    commit_lines,
    described,
    short_chars,
)
from omnigraph.cli.engine import open_graph
from omnigraph.cli.options import (
    MAIN,
    BranchOrMain,
    CommitId,
    GraphPath,
    Json,
    Store,
    Verbose,
    exclusive,
)
from omnigraph.cli.shapes import commit_document, recovery_document, snapshot_document
from omnigraph.cli.terminal import plain_errors, show, show_json
from omnigraph.draw.commit_order import in_order, reachable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from omnigraph.graph import Graph
    from omnigraph.storage.records import Commit

commit_app = typer.Typer(
    name="commit", help="Look at the history.", no_args_is_help=True, rich_markup_mode=None
)

_FILTER = "actor="


@commit_app.command(name="list")
def list_(
    path: GraphPath = None,
    branch: BranchOrMain = None,
    filter: Annotated[
        str | None, typer.Option("--filter", metavar="actor=NAME", help="Only these commits.")
    ] = None,
    limit: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="At most this many.")
    ] = None,
    graph_: Annotated[
        bool, typer.Option("--graph", help="Draw the history, with what was merged into it.")
    ] = False,
    every: Annotated[
        bool, typer.Option("--all-branches", "--all", help="Of every branch.")
    ] = False,
    verbose: Verbose = False,
    json: Json = False,
    store: Store = None,
) -> None:
    """List the commits of a branch, or of all, newest first.

    A line has the id's beginning, when (UTC), who, the branches and tags that lead there, the rows
    that were inserted (+), updated (~) and deleted (-) by type, the first step of a schema change
    as [schema: …], and the message.
    """
    with plain_errors():
        actor = _actor(filter)
        exclusive(branch=branch, **{"all-branches": every})
        if graph_ and (json or verbose or actor is not None):
            raise typer.BadParameter("--graph goes with none of --json, --verbose and --filter")
        with open_graph(graph_uri(path, store), read_only=True) as graph:
            if graph_:
                _draw(graph, None if every else branch or MAIN, limit)
                return
            commits = graph.commits.list(
                branch or MAIN, actor=actor, limit=limit, all_branches=every
            )
            names: Names = graph.commits.names() if not (json or verbose) else {}
        if json:
            show_json({"commits": [commit_document(commit) for commit in commits]})
            return
        for line in map(_verbose, commits) if verbose else commit_lines(commits, names):
            show(line)


def _actor(filter: str | None) -> str | None:
    if filter is None:
        return None
    if not filter.startswith(_FILTER):
        raise typer.BadParameter("a filter is written actor=NAME")
    return filter.removeprefix(_FILTER)


def _verbose(commit: Commit) -> str:
    by = f" actor={commit.actor}" if commit.actor else ""
    where = f"graph_branch={commit.branch or MAIN}"
    return f"{commit.id} {where} graph_manifest_version={commit.manifest_version}{by}"


def _draw(graph: Graph, branch: str | None, limit: int | None) -> None:
    """The commits that lead to one branch, or to all, as a drawing."""
    commits: dict[str, Commit] = {}
    names = list(graph.branches.list())
    if branch is not None:
        names = [branch, *(name for name in names if name != branch)]
    for name in names:
        commits.update((commit.id, commit) for commit in graph.commits.list(name))
        if branch is not None and _is_whole(commits):
            break  # what was merged is here too, so no other branch need be read
    if branch is not None:
        newest = graph.commits.list(branch, limit=1)
        commits = reachable(commits, [commit.id for commit in newest])
    order = in_order(commits)
    short = short_chars(order)
    labels = graph.commits.names()
    for row, commit in lanes.drawn(order[:limit]):
        text = ""
        if commit is not None:
            text = commit_line(commit, labels.get(commit.id, ()), short)
        show(f"{row} {text}".rstrip() if text else row)


def _is_whole(commits: Mapping[str, Commit]) -> bool:
    return all(parent in commits for commit in commits.values() for parent in commit.parents)


@commit_app.command(name="show")
def show_one(
    commit: CommitId,
    path: GraphPath = None,
    verbose: Verbose = False,
    json: Json = False,
    store: Store = None,
) -> None:
    """Show one commit: who made it, when, what it changed and why."""
    with plain_errors():
        with open_graph(graph_uri(path, store), read_only=True) as graph:
            resolved = graph.commits.get(commit)
            names: Names = graph.commits.names() if not (json or verbose) else {}
        document = commit_document(resolved)
        if json:
            show_json(document)
            return
        stored = [(key, str(value)) for key, value in document.items() if value]
        known = names.get(resolved.id, ())
        for title, text in stored if verbose else described(resolved, known):
            show(f"{title}: {text}")


def snapshot(
    path: GraphPath = None,
    branch: BranchOrMain = None,
    json: Json = False,
    store: Store = None,
) -> None:
    """Show every type of a branch with its version, entities and topology file."""
    with plain_errors():
        with open_graph(graph_uri(path, store), read_only=True) as graph:
            document = snapshot_document(graph.snapshot(branch or MAIN))
        if json:
            show_json(document)
            return
        datasets = document.pop("datasets")
        for key, value in document.items():
            show(f"{key}: {value}")
        assert isinstance(datasets, list)
        for facts in datasets:
            versions = (
                f"published_dataset_version={facts['published_dataset_version']} "
                f"native_dataset_branch={facts['native_dataset_branch']}"
            )
            kind, name = facts["entity_kind"], facts["type_name"]
            line = f"{kind} type '{name}' {versions} entities={facts['entity_count']}"
            topology = facts.get("topology")
            if topology is not None:
                line += f" topology_bytes={topology['bytes']}"
                line += f" topology_rows_behind={topology['rows_behind']}"
            show(line)


def recoveries(path: GraphPath = None, json: Json = False, store: Store = None) -> None:
    """List what recovery did, newest first."""
    with plain_errors():
        with open_graph(graph_uri(path, store), read_only=True) as graph:
            documents = [recovery_document(recovery) for recovery in graph.recoveries.list()]
        if json:
            show_json({"recoveries": documents})
            return
        for document in documents:
            who = document["recovery_for_actor"] or "nobody"
            what = f"{document['recovery_kind']} of {document['sidecar_writer_kind']}"
            show(f"{document['operation_id']} {what} by {who}")
