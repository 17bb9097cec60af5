"""`omnigraph draw …`: pictures of commits, the schema, a node's neighbourhood or a diff, as SVG."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from omnigraph.cli.address import graph_uri
from omnigraph.cli.engine import open_graph
from omnigraph.cli.options import BranchOrMain, GraphPath, Store, Types
from omnigraph.cli.terminal import plain_errors, show

if TYPE_CHECKING:
    from omnigraph.draw.svg import Picture

app = typer.Typer(
    name="draw",
    help="Draw a picture (SVG) to standard output.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@app.command()
def commits(
    path: GraphPath = None,
    branch: BranchOrMain = None,
    limit: Annotated[int, typer.Option(metavar="N", min=1, help="At most this many.")] = 100,
    store: Store = None,
) -> None:
    """Draw the commits of a branch, or of all, in lanes."""
    _show(graph_uri(path, store), "commits", branch=branch, limit=limit)


@app.command()
def schema(path: GraphPath = None, branch: BranchOrMain = None, store: Store = None) -> None:
    """Draw the schema of a branch."""
    _show(graph_uri(path, store), "schema", branch=branch)


@app.command()
def entity(
    type_: Annotated[str, typer.Argument(metavar="TYPE", help="A node type.")],
    id_: Annotated[str, typer.Argument(metavar="ID", help="The node's id.")],
    path: GraphPath = None,
    branch: BranchOrMain = None,
    store: Store = None,
) -> None:
    """Draw a node with its neighbours."""
    _show(graph_uri(path, store), "entity", type_, id_, branch=branch)


@app.command()
def diff(
    before: Annotated[str, typer.Argument(metavar="BEFORE", help="A branch or any point: main~3.")],
    after: Annotated[str, typer.Argument(metavar="AFTER", help="A branch or any point: a tag.")],
    path: GraphPath = None,
    type_: Types = None,
    store: Store = None,
) -> None:
    """Draw what turns BEFORE into AFTER: added, removed and changed."""
    _show(graph_uri(path, store), "diff", before, after, types=type_ or ())


def _show(uri: str, what: str, *points: str, **options: object) -> None:
    with plain_errors(), open_graph(uri, read_only=True) as graph:
        picture: Picture = graph.draw(what, *points, **options)  # type: ignore[arg-type]
        show(picture.to_svg())
