"""`omnigraph log`: the commits that changed one node or edge, newest first."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Annotated

import typer

from omnigraph.cli import completing
from omnigraph.cli.address import graph_uri
from omnigraph.cli.change_text import diff_lines
from omnigraph.cli.commit_text import commit_lines
from omnigraph.cli.engine import open_graph
from omnigraph.cli.options import BranchOrMain, Dates, DatesForm, GraphPath, Json, Store
from omnigraph.cli.terminal import plain_errors, show, show_json

if TYPE_CHECKING:
    from omnigraph.exec.changes.entity_history import EntityHistory
    from omnigraph.graph import Graph


def log(
    type_: Annotated[
        str,
        typer.Argument(
            metavar="TYPE", help="Its node or edge type.", autocompletion=completing.types
        ),
    ],
    id_: Annotated[str, typer.Argument(metavar="ID", help="Its id; of a keyed node, the key.")],
    path: GraphPath = None,
    branch: BranchOrMain = None,
    limit: Annotated[
        int | None, typer.Option("--limit", metavar="N", min=1, help="At most this many.")
    ] = None,
    dates: Dates = DatesForm.NUMBERS,
    json: Json = False,
    store: Store = None,
) -> None:
    """Show every commit that changed one node or edge, newest first.

    Below a commit stands what it did: `+` inserted, `-` deleted, `~` updated with each value that
    differs.
    """
    with plain_errors(), open_graph(graph_uri(path, store), read_only=True) as graph:
        history = _history(graph, type_, id_, branch)
        revisions = list(islice(history, limit))
        unreadable = history.unreadable
        if not revisions and unreadable is None:
            from omnigraph.errors import NotFound

            raise NotFound(type_, id_, f"no commit has or had it{_id_form(graph, type_)}")
        if json:
            document: dict[str, object] = {"revisions": [each.to_json(dates) for each in revisions]}
            if unreadable is not None:
                document["first_unreadable_commit_id"] = unreadable
            show_json(document)
            return
        causes = [each.cause for each in revisions]
        for line, revision in zip(
            commit_lines(causes, graph.commits.names()), revisions, strict=True
        ):
            show(line)
            for text in diff_lines(revision.change):
                show(f"  {text}")
        if unreadable is not None:
            show(f"(cleanup removed what was before {unreadable})")


def _id_form(graph: Graph, type_: str) -> str:
    """What an id of a node type looks like, where its key has several properties."""
    from omnigraph.catalog.ids import id_form

    node = graph.schema.catalog.nodes.get(type_)
    return "" if node is None else id_form(type_, node.key)


def _history(graph: Graph, type_: str, entity: str, branch: str | None) -> EntityHistory:
    """The history of an entity of a node type, else of an edge type."""
    from omnigraph.errors import BadRequest

    try:
        return graph.history("node", type_, entity, branch=branch)
    except BadRequest:
        try:
            return graph.history("edge", type_, entity, branch=branch)
        except BadRequest:
            from omnigraph.catalog.near_names import did_you_mean

            known = (owner.name for owner in graph.schema.catalog.types)
            raise BadRequest(f"unknown type '{type_}'", did_you_mean(type_, known)) from None
