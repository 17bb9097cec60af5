"""`omnigraph tag …`: names for commits, which do not move and keep what they name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from omnigraph.cli import completing
from omnigraph.cli.address import confirm_destructive, graph_uri, point_and_graph, write_target
from omnigraph.cli.engine import open_graph
from omnigraph.cli.options import MAIN, Actor, GraphPath, Json, Quiet, Store
from omnigraph.cli.servers import acting
from omnigraph.cli.terminal import plain_errors, show, show_json

if TYPE_CHECKING:
    from omnigraph.storage.manifest.tags import Tag

app = typer.Typer(
    name="tag",
    help="Name commits, for reading and so that cleanup keeps them.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

TagName = Annotated[
    str, typer.Argument(metavar="NAME", help="The tag.", autocompletion=completing.tags)
]


@app.command()
def create(
    name: TagName,
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="[POINT] [URI]", help="What it names, else main; and the graph."),
    ] = None,
    actor: Actor = None,
    json: Json = False,
    store: Store = None,
    quiet: Quiet = False,
) -> None:
    """Name a commit: the head of main, or any point such as review/x, main~3 or main@{2026-11-15}.

    Again for the same commit changes nothing; for another one it is refused.
    """
    with plain_errors():
        point, path = point_and_graph(list(words or ()), store)
        where = graph_uri(path, store)
        write_target("tag create", where, quiet=quiet)
        actor = acting(actor, where)
        with open_graph(where) as graph:
            tag = graph.tags.create(name, point or MAIN)
        if json:
            show_json({"uri": where, **_document(tag), "actor_id": actor})
        else:
            show(f"created tag {tag.name} of {tag.commit_id}")


@app.command(name="list")
def list_(path: GraphPath = None, json: Json = False, store: Store = None) -> None:
    """List the tags, each with its commit."""
    with plain_errors():
        with open_graph(graph_uri(path, store), read_only=True) as graph:
            tags = graph.tags.list()
        if json:
            show_json({"tags": [_document(tag) for tag in tags]})
            return
        width = max((len(tag.name) for tag in tags), default=0)
        for tag in tags:
            show(f"{tag.name:{width}}  {tag.commit_id}")


@app.command()
def delete(
    name: TagName,
    path: GraphPath = None,
    actor: Actor = None,
    json: Json = False,
    store: Store = None,
    quiet: Quiet = False,
) -> None:
    """Delete a tag; what it named stays until a cleanup takes it."""
    with plain_errors():
        where = graph_uri(path, store)
        write_target("tag delete", where, quiet=quiet)
        actor = acting(actor, where)
        confirm_destructive("tag delete", where, json=json)
        with open_graph(where) as graph:
            graph.tags.delete(name)
        if json:
            show_json({"uri": where, "name": name, "actor_id": actor})
        else:
            show(f"deleted tag {name}")


def _document(tag: Tag) -> dict[str, object]:
    return {
        "name": tag.name,
        "graph_commit_id": tag.commit_id,
        "graph_branch": tag.branch,
        "graph_manifest_version": tag.manifest_version,
    }
