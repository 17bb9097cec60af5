"""`omnigraph branch …`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from omnigraph.cli.address import (
    MAIN,
    Actor,
    GraphPath,
    Json,
    Quiet,
    Store,
    Uri,
    confirm_destructive,
    graph_uri,
    write_target,
)
from omnigraph.cli.engine import open_graph
from omnigraph.cli.terminal import show, show_json, told_plainly, warn
from omnigraph.errors import OmnigraphError

if TYPE_CHECKING:
    from omnigraph.graph import Graph

app = typer.Typer(
    name="branch",
    help="Fork, list, merge and drop branches.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

BranchName = Annotated[str, typer.Argument(metavar="NAME", help="The branch.")]


@app.command()
def create(
    name: BranchName,
    path: GraphPath = None,
    from_: Annotated[str, typer.Option("--from", metavar="BRANCH", help="Where to fork.")] = MAIN,
    actor: Actor = None,
    json: Json = False,
    uri: Uri = None,
    store: Store = None,
    quiet: Quiet = False,
) -> None:
    """Fork a branch. Copies nothing."""
    with told_plainly():
        where = graph_uri(path, uri, store)
        write_target("branch create", where, quiet=quiet)
        with open_graph(where) as graph:
            name = graph.branches.create(name, from_)
        if json:
            show_json({"uri": where, "from": from_, "name": name, "actor_id": actor})
        else:
            show(f"created branch {name} from {from_}")


@app.command(name="list")
def list_(path: GraphPath = None, json: Json = False, uri: Uri = None, store: Store = None) -> None:
    """List the branches."""
    with told_plainly():
        with open_graph(graph_uri(path, uri, store), read_only=True) as graph:
            names = graph.branches.list()
        if json:
            show_json({"branches": list(names)})
        else:
            for name in names:
                show(name)


@app.command()
def delete(
    name: BranchName,
    path: GraphPath = None,
    actor: Actor = None,
    json: Json = False,
    uri: Uri = None,
    store: Store = None,
    quiet: Quiet = False,
) -> None:
    """Delete a branch no other depends on."""
    with told_plainly():
        where = graph_uri(path, uri, store)
        write_target("branch delete", where, quiet=quiet)
        confirm_destructive("branch delete", where, json=json)
        with open_graph(where) as graph:
            graph.branches.delete(name)
        if json:
            show_json({"uri": where, "name": name, "actor_id": actor})
        else:
            show(f"deleted branch {name}")


@app.command()
def merge(
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="Branch to take from.")],
    path: GraphPath = None,
    into: Annotated[str, typer.Option(metavar="BRANCH", help="Branch to commit to.")] = MAIN,
    delete_branch: Annotated[
        bool, typer.Option("--delete-branch", help="Delete the source afterwards.")
    ] = False,
    actor: Actor = None,
    json: Json = False,
    uri: Uri = None,
    store: Store = None,
    quiet: Quiet = False,
) -> None:
    """Merge SOURCE into a branch as one commit."""
    with told_plainly():
        where = graph_uri(path, uri, store)
        write_target("branch merge", where, quiet=quiet)
        with open_graph(where) as graph:
            outcome = graph.branches.merge(source, into=into, actor=actor)
            failure = _dropped(graph, source) if delete_branch else None
        document: dict[str, object] = {
            "source": source,
            "target": into,
            "outcome": outcome.kind,
            "actor_id": actor,
        }
        if delete_branch:
            document["branch_deleted"] = failure is None
            if failure is not None:
                document["branch_delete_error"] = failure
        if json:
            show_json(document)
            return
        show(f"merged {source} into {into}: {outcome.kind}")
        if delete_branch and failure is None:
            show(f"deleted branch {source}")
        elif failure is not None:
            warn(f"branch {source} was merged but not deleted: {failure}")


def _dropped(graph: Graph, name: str) -> str | None:
    """Delete a merged branch; why not, if it could not be. The merge stands either way."""
    try:
        graph.branches.delete(name)
    except OmnigraphError as cause:
        return str(cause)
    return None
