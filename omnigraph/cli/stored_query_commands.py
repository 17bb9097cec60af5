"""`omnigraph queries …`: stored queries of a cluster, a folder or a server, listed and checked.

Invariant: a query is listed from its document, whichever of them it comes from.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from omnigraph.cli.address import cluster_of_scope, graph_uri
from omnigraph.cli.engine import open_graph
from omnigraph.cli.options import GraphPath, Json, Store
from omnigraph.cli.servers import connected_graph, is_served
from omnigraph.cli.terminal import plain_errors, show, show_json
from omnigraph.errors import NotServed

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
    typer.Option("--queries", metavar="DIR", help="A folder of .gq files, beside a graph."),
]


@app.command(name="list")
def list_(
    path: GraphPath = None, folder: QueryFolder = None, store: Store = None, json: Json = False
) -> None:
    """List the stored queries with their parameters."""
    broken: list[BrokenQuery] = []
    with plain_errors():
        url = _url(folder, path, store)
        if url is not None:
            documents = _of_server(url)
        else:
            queries, broken = _checked(folder, path, store)
            documents = [_document(each) for each in queries]
        if json:
            show_json({"queries": documents})
        else:
            for document in documents:
                _show(document)
        for each in broken:
            typer.echo(f"error: query '{each.name}': {each.message}", err=True)
    if broken:
        raise typer.Exit(1)


@app.command()
def validate(
    path: GraphPath = None, folder: QueryFolder = None, store: Store = None, json: Json = False
) -> None:
    """Check the stored queries against the schema of their graph. Exits with 1 if one is broken."""
    with plain_errors():
        url = _url(folder, path, store)
        if url is not None:
            raise NotServed("queries validate", url, "a server starts with queries that it checked")
        queries, broken = _checked(folder, path, store)
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


def _url(folder: str | None, path: str | None, store: str | None) -> str | None:
    """The address of a served graph, if one is named and no folder of queries."""
    is_clustered = path is None and store is None and cluster_of_scope() is not None
    if folder is not None or is_clustered:
        return None
    uri = graph_uri(path, store)
    return uri if is_served(uri) else None


def _of_server(url: str) -> list[dict[str, Any]]:
    """The documents of the queries that a server lists: its types are kinds of values."""
    with connected_graph(url, read_only=True) as graph:
        return [
            _texts(each, each.name, is_mutation=each.mutation)
            | {"params": [_kind_of(param) for param in each.params]}
            for each in graph.stored_queries.list()
        ]


def _kind_of(param: Mapping[str, Any]) -> dict[str, Any]:
    kind = param["kind"]
    if kind == "list":
        kind = f"[{param['item_kind']}]"
    elif kind == "vector":
        kind = f"vector({param['vector_dim']})"
    return {"name": param["name"], "type": kind, "nullable": param["nullable"]}


def _checked(
    folder: str | None, path: str | None, store: str | None
) -> tuple[StoredQueries, list[BrokenQuery]]:
    from omnigraph.cluster.query_catalog import checked_queries, texts_of_folder

    cluster = cluster_of_scope()
    if (folder is None) == (cluster is None):
        raise typer.BadParameter(
            "pass --queries DIR beside a graph, or --cluster DIR|URI, or --server URL"
        )
    if folder is not None:
        where, texts = graph_uri(path, store), texts_of_folder(folder)
    else:
        where, texts = _applied(str(cluster), graph_uri(path, store))
    with open_graph(where, read_only=True) as graph:
        return checked_queries(texts, graph.schema.catalog)


def _applied(cluster: str, where: str) -> tuple[str, dict[str, str]]:
    """The graph of a cluster that is meant, and the texts of its applied queries."""
    from omnigraph.cluster.diagnostics import ClusterRefusal
    from omnigraph.cluster.served_state import applied_ledger, cluster_root, query_texts

    try:
        objects = cluster_root(cluster)
        name = where.rpartition("/")[2].removesuffix(".omni")
        return where, query_texts(objects, applied_ledger(objects), name)
    except ClusterRefusal as refusal:
        raise refusal.as_error() from None


def _texts(described: Any, name: str, *, is_mutation: bool) -> dict[str, Any]:
    """The members that say what a query is for."""
    document = {"name": name, "mcp_expose": True, "tool_name": name, "mutation": is_mutation}
    for member in ("description", "instruction"):
        text = getattr(described, member)
        if text is not None:
            document[member] = text
    return document


def _document(query: StoredQuery) -> dict[str, Any]:
    document = _texts(query.declaration, query.name, is_mutation=query.is_mutation)
    document["params"] = [
        {
            "name": each.name,
            "type": str(each.type).removesuffix("?"),
            "nullable": each.type.nullable,
            **({} if default is None else {"default": default}),
        }
        for each in query.declaration.parameters
        for default in (query.default_text(each),)
    ]
    return document


def _show(document: dict[str, Any]) -> None:
    kind = "mutation" if document["mutation"] else "read"
    params = ", ".join(map(_shown, document["params"]))
    show(f"{kind}  {document['name']}({params}) [mcp: {document['tool_name']}]")
    for member in ("description", "instruction"):
        if member in document:
            show(f"  {member}: {document[member]}")


def _shown(param: dict[str, Any]) -> str:
    default = f" = {param['default']}" if "default" in param else ""
    return f"${param['name']}: {param['type']}{'?' if param['nullable'] else ''}{default}"
