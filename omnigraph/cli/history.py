"""`omnigraph commit …`, `snapshot` and `recoveries`: what a graph is and how it came to be."""

from __future__ import annotations

from typing import Annotated

import typer

from omnigraph.cli.address import (
    MAIN,
    Branch,
    GraphPath,
    Json,
    Store,
    Uri,
    graph_uri,
)
from omnigraph.cli.engine import open_graph
from omnigraph.cli.shapes import commit_document, recovery_document, snapshot_document
from omnigraph.cli.terminal import show, show_json, told_plainly

commit_app = typer.Typer(
    name="commit", help="Look at the history.", no_args_is_help=True, rich_markup_mode=None
)

_FILTER = "actor="


@commit_app.command(name="list")
def list_(
    path: GraphPath = None,
    branch: Branch = MAIN,
    filter: Annotated[
        str | None, typer.Option("--filter", metavar="actor=NAME", help="Only these commits.")
    ] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="At most this many.")] = None,
    json: Json = False,
    uri: Uri = None,
    store: Store = None,
) -> None:
    """List the commits of a branch, newest first."""
    with told_plainly():
        if filter is not None and not filter.startswith(_FILTER):
            raise typer.BadParameter("a filter is written actor=NAME")
        actor = None if filter is None else filter.removeprefix(_FILTER)
        with open_graph(graph_uri(path, uri, store), read_only=True) as graph:
            commits = graph.commits.list(branch, actor=actor, limit=limit)
        if json:
            show_json({"commits": [commit_document(commit) for commit in commits]})
            return
        for commit in commits:
            by = f" actor={commit.actor}" if commit.actor else ""
            where = f"graph_branch={commit.branch or MAIN}"
            show(f"{commit.id} {where} graph_manifest_version={commit.manifest_version}{by}")


@commit_app.command(name="show")
def show_one(
    commit: Annotated[str, typer.Argument(metavar="COMMIT", help="The commit's id.")],
    path: GraphPath = None,
    json: Json = False,
    uri: Uri = None,
    store: Store = None,
) -> None:
    """Show one commit."""
    with told_plainly():
        with open_graph(graph_uri(path, uri, store), read_only=True) as graph:
            document = commit_document(graph.commits.get(commit))
        if json:
            show_json(document)
            return
        for key, value in document.items():
            if value is not None:
                show(f"{key}: {value}")


def snapshot(
    path: GraphPath = None,
    branch: Branch = MAIN,
    json: Json = False,
    store: Store = None,
) -> None:
    """Show every type of a branch with its version and how many entities it has."""
    with told_plainly():
        with open_graph(graph_uri(path, store), read_only=True) as graph:
            document = snapshot_document(graph.snapshot(branch))
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
            show(f"{kind} type '{name}' {versions} entities={facts['entity_count']}")


def recoveries(path: GraphPath = None, json: Json = False, store: Store = None) -> None:
    """List what recovery did, newest first."""
    with told_plainly():
        with open_graph(graph_uri(path, store), read_only=True) as graph:
            documents = [recovery_document(recovery) for recovery in graph.recoveries.list()]
        if json:
            show_json({"recoveries": documents})
            return
        for document in documents:
            who = document["recovery_for_actor"] or "nobody"
            what = f"{document['recovery_kind']} of {document['sidecar_writer_kind']}"
            show(f"{document['operation_id']} {what} by {who}")
