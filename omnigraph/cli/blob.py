"""`omnigraph blob …`: bytes out of a graph."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from omnigraph.cli.address import graph_uri
from omnigraph.cli.engine import open_graph
from omnigraph.cli.filters import EntityKind
from omnigraph.cli.options import (
    MAIN,
    BranchOrMain,
    GraphPath,
    Json,
    Snapshot,
    Store,
    exclusive,
)
from omnigraph.cli.terminal import plain_errors, show, show_json
from omnigraph.output_file import file_path, whole_file

if TYPE_CHECKING:
    from omnigraph.exec.changes.blobs import BlobCell
    from omnigraph.graph import Graph

app = typer.Typer(name="blob", help="Read blobs.", no_args_is_help=True, rich_markup_mode=None)


KindWord = Annotated[EntityKind, typer.Argument(help="What holds it.")]
TypeName = Annotated[str, typer.Argument(metavar="TYPE", help="Its type.")]
Id = Annotated[str, typer.Argument(metavar="ID", help="Its id.")]
Property = Annotated[str, typer.Argument(metavar="PROPERTY", help="The Blob property.")]


@app.command()
def get(
    kind: KindWord,
    type_name: TypeName,
    id: Id,
    property: Property,
    path: GraphPath = None,
    branch: BranchOrMain = None,
    snapshot: Snapshot = None,
    offset: Annotated[
        int, typer.Option("--offset", metavar="N", min=0, help="Skip so many bytes.")
    ] = 0,
    length: Annotated[
        int | None, typer.Option("--length", metavar="N", min=1, help="At most so many bytes.")
    ] = None,
    out: Annotated[
        str | None, typer.Option("--out", metavar="FILE", help="Write to a file.")
    ] = None,
    store: Store = None,
) -> None:
    """Write the bytes of a blob."""
    exclusive(branch=branch, snapshot=snapshot)
    with plain_errors():
        if out is not None:
            file_path(out)
        with open_graph(graph_uri(path, store), read_only=True) as graph:
            cell = _find(graph, (kind, type_name, id, property), branch, snapshot)
            data = cell.read(offset, length)
        if out is None:
            sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()
        else:
            with whole_file(out) as stream:
                stream.write(data)


@app.command()
def stat(
    kind: KindWord,
    type_name: TypeName,
    id: Id,
    property: Property,
    path: GraphPath = None,
    branch: BranchOrMain = None,
    snapshot: Snapshot = None,
    json: Json = False,
    store: Store = None,
) -> None:
    """Show what is known about a blob, without reading it."""
    exclusive(branch=branch, snapshot=snapshot)
    with plain_errors():
        with open_graph(graph_uri(path, store), read_only=True) as graph:
            cell = _find(graph, (kind, type_name, id, property), branch, snapshot)
        facts = {"kind": cell.kind, "size": cell.size, "etag": cell.etag, "uri": cell.uri}
        known = {key: value for key, value in facts.items() if value is not None}
        named = {"snapshot": snapshot} if snapshot else {"branch": branch or MAIN}
        if json:
            selector = {"entity": str(kind), "type": type_name, "id": id, "property": property}
            target = {**named, "resolved_snapshot": cell.commit_id}
            show_json({"selector": selector, **known, "target": target})
            return
        for key, value in known.items():
            show(f"{key}: {value}")


def _find(
    graph: Graph,
    selector: tuple[EntityKind, str, str, str],
    branch: str | None,
    snapshot: str | None,
) -> BlobCell:
    kind, type_name, id, property = selector
    return graph.blob(str(kind), type_name, id, property, branch=branch, snapshot=snapshot)
