"""`omnigraph queries list` and `queries validate`: stored queries of a cluster or of a folder."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from omnigraph.cli.address import cluster_of_scope, graph_uri
from omnigraph.cli.engine import open_graph
from omnigraph.cli.options import Json, Store
from omnigraph.cli.terminal import plain_errors, show, show_json

if TYPE_CHECKING:
    from omnigraph.cluster.query_catalog import BrokenQuery, StoredQueries, StoredQuery

app = typer.Typer(
    name="queries",
    help="List and check stored queries.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

QueryFolder = Annotated[
    str | None,
    typer.Option("--queries", metavar="DIR", help="A folder of .gq files, for a graph's --store."),
]


@app.command(name="list")
def list_(folder: QueryFolder = None, store: Store = None, json: Json = False) -> None:
    """List the stored queries with their parameters."""
    with plain_errors():
        queries, broken = _checked(folder, store)
        if json:
            show_json({"queries": [_document(each) for each in queries]})
        else:
            for query in queries:
                _show(query)
        for each in broken:
            typer.echo(f"error: query '{each.name}': {each.message}", err=True)
    if broken:
        raise typer.Exit(1)


@app.command()
def validate(folder: QueryFolder = None, store: Store = None, json: Json = False) -> None:
    """Check the stored queries against the schema of their graph. Exits with 1 if one is broken."""
    with plain_errors():
        queries, broken = _checked(folder, store)
        warnings = queries.warnings()
        if json:
            breakages = [{"query": each.name, "message": each.message} for each in broken]
            show_json({"ok": not broken, "breakages": breakages, "warnings": warnings})
        else:
            for each in broken:
                show(f"ERROR  query '{each.name}': {each.message}")
            for text in warnings:
                show(f"WARN  {text}")
            if not broken:
                show(f"OK  {len(queries)} stored queries type-check against the schema")
    if broken:
        raise typer.Exit(1)


def _checked(folder: str | None, store: str | None) -> tuple[StoredQueries, list[BrokenQuery]]:
    from omnigraph.cluster.query_catalog import checked_queries, texts_of_folder

    cluster = cluster_of_scope()
    if (folder is None) == (cluster is None):
        raise typer.BadParameter("pass --cluster DIR|URI, or --queries DIR with --store URI")
    if folder is not None:
        where, texts = graph_uri(store), texts_of_folder(folder)
    else:
        where, texts = _applied(str(cluster), store)
    with open_graph(where, read_only=True) as graph:
        return checked_queries(texts, graph.schema.catalog)


def _applied(cluster: str, store: str | None) -> tuple[str, dict[str, str]]:
    """The graph of a cluster that is meant, and the texts of its applied queries."""
    from omnigraph.cluster.diagnostics import ClusterRefusal
    from omnigraph.cluster.served_state import applied_ledger, cluster_root, query_texts

    where = graph_uri(store)
    try:
        objects = cluster_root(cluster)
        name = where.rpartition("/")[2].removesuffix(".omni")
        return where, query_texts(objects, applied_ledger(objects), name)
    except ClusterRefusal as refusal:
        raise refusal.as_error() from None


def _document(query: StoredQuery) -> dict[str, Any]:
    document: dict[str, Any] = {
        "name": query.name,
        "mcp_expose": True,
        "tool_name": query.name,
        "mutation": query.is_mutation,
    }
    for name in ("description", "instruction"):
        text = getattr(query.declaration, name)
        if text is not None:
            document[name] = text
    document["params"] = [
        {
            "name": each.name,
            "type": str(each.type).removesuffix("?"),
            "nullable": each.type.nullable,
        }
        for each in query.declaration.parameters
    ]
    return document


def _show(query: StoredQuery) -> None:
    kind = "mutation" if query.is_mutation else "read"
    show(f"{kind}  {query.signature} [mcp: {query.name}]")
    for name in ("description", "instruction"):
        text = getattr(query.declaration, name)
        if text is not None:
            show(f"  {name}: {text}")
