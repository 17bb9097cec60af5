"""`omnigraph load` and `omnigraph export`: bulk data in and out. `ingest` is an older `load`."""

from __future__ import annotations

import sys
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from omnigraph.cli.address import confirm_destructive, graph_uri, write_target
from omnigraph.cli.engine import open_graph
from omnigraph.cli.options import (
    MAIN,
    Actor,
    Branch,
    BranchOrMain,
    Data,
    Engine,
    EngineOption,
    GraphPath,
    Json,
    Quiet,
    Snapshot,
    Store,
    Types,
    exclusive,
)
from omnigraph.cli.progress import following
from omnigraph.cli.shapes import commit_document
from omnigraph.cli.terminal import plain_errors, show, show_json, warn

if TYPE_CHECKING:
    from omnigraph.exec.load.request import LoadResult


class Mode(StrEnum):
    """What a load does with rows that are there already."""

    OVERWRITE = "overwrite"
    APPEND = "append"
    MERGE = "merge"


class ExportFormat(StrEnum):
    """How an export is written."""

    JSONL = "jsonl"
    PARQUET = "parquet"


_MODE = typer.Option("--mode", help="What to do with what is there.")
_BASE = typer.Option("--from", metavar="BASE", help="Create the branch from this one.")


def load(
    uri: GraphPath = None,
    *,
    data: Data,
    mode: Annotated[Mode, _MODE],
    branch: Branch = MAIN,
    base: Annotated[str | None, _BASE] = None,
    engine: EngineOption = Engine.AUTO,
    node: Annotated[
        str | None, typer.Option("--node", metavar="T", help="The node type of columnar data.")
    ] = None,
    edge: Annotated[
        str | None, typer.Option("--edge", metavar="T", help="The edge type of columnar data.")
    ] = None,
    rejects: Annotated[
        str | None, typer.Option("--rejects", metavar="DIR", help="Where bad records go.")
    ] = None,
    actor: Actor = None,
    json: Json = False,
    store: Store = None,
    quiet: Quiet = False,
) -> None:
    """Load bulk data as one commit."""
    with plain_errors():
        exclusive(node=node, edge=edge)
        where = graph_uri(uri, store)
        write_target("load", where, quiet=quiet)
        if mode is Mode.OVERWRITE:
            confirm_destructive("load --mode overwrite", where, json=json)
        with open_graph(where) as graph, following("load", quiet=quiet) as progress:
            done = graph.load(
                sys.stdin.buffer if data == "-" else data,
                str(mode),
                type=node,
                edge=edge,
                branch=branch,
                from_branch=base,
                engine=str(engine),
                rejects=rejects,
                progress=progress,
                actor=actor,
            )
        _show(where, done, as_json=json, quiet=quiet)


def ingest(
    uri: GraphPath = None,
    *,
    data: Data,
    mode: Annotated[Mode, _MODE] = Mode.MERGE,
    branch: Branch = MAIN,
    base: Annotated[str, _BASE] = MAIN,
    actor: Actor = None,
    json: Json = False,
    store: Store = None,
    quiet: Quiet = False,
) -> None:
    """Load data of the older, forgiving format. Use `load` instead."""
    with plain_errors():
        warn("'omnigraph ingest' is now 'omnigraph load', which takes no unknown properties")
        where = graph_uri(uri, store)
        write_target("ingest", where, quiet=quiet)
        if mode is Mode.OVERWRITE:
            confirm_destructive("ingest --mode overwrite", where, json=json)
        with open_graph(where) as graph, following("load", quiet=quiet) as progress:
            done = graph.load(
                sys.stdin.buffer if data == "-" else data,
                str(mode),
                branch=branch,
                from_branch=base,
                progress=progress,
                actor=actor,
                permissive=True,
            )
        if json:
            show_json(_ingest_document(where, base, actor, done))
            return
        branch_state = "branch created" if done.branch_created else "branch exists"
        show(
            f"ingested {done.total_entities} entities from {where} into branch {done.branch} "
            f"from {base} with {done.mode} ({branch_state})"
        )
        for kind, counts in (("node", done.nodes), ("edge", done.edges)):
            for name, count in counts.items():
                show(f"{kind} type '{name}': {count}")


def export(
    uri: GraphPath = None,
    branch: BranchOrMain = None,
    types: Types = None,
    snapshot: Snapshot = None,
    out: Annotated[
        str | None,
        typer.Option("--out", metavar="PATH", help="A file, or a folder, instead of the output."),
    ] = None,
    format: Annotated[
        ExportFormat, typer.Option("--format", help="Parquet needs --out.")
    ] = ExportFormat.JSONL,
    jsonl: Annotated[bool, typer.Option("--jsonl", hidden=True)] = False,
    tables: Annotated[list[str] | None, typer.Option("--table", hidden=True)] = None,
    store: Store = None,
    quiet: Quiet = False,
) -> None:
    """Write a graph to standard output as NDJSON that `load` reads."""
    if jsonl:
        warn("--jsonl is what export writes anyway and need not be said")
    if tables:
        warn("'--table' is now '--type'")
        types = [*(types or ()), *tables]
    exclusive(branch=branch, snapshot=snapshot)
    if format is ExportFormat.PARQUET and out is None:
        raise typer.BadParameter("Parquet is written to a folder: pass --out FOLDER")
    with plain_errors(), open_graph(graph_uri(uri, store), read_only=True) as graph:
        pinned = graph.snapshot(branch or MAIN, commit=snapshot)
        total = None if types else sum(pin.row_count for pin in pinned.tables.values())
        # A bar between lines of data on one terminal would spoil both.
        with following("export", total=total, quiet=quiet or sys.stdout.isatty()) as progress:
            graph.export(
                sys.stdout.buffer if out is None else out,
                str(format),
                types=types,
                branch=branch or MAIN,
                snapshot=snapshot,
                progress=progress,
            )


def load_document(uri: str, done: LoadResult) -> dict[str, Any]:
    """A load as JSON: only touched types, in name order."""
    base = {} if done.base_branch is None else {"base_branch": done.base_branch}
    return {
        "uri": uri,
        "branch": done.branch,
        "mode": done.mode,
        **base,
        "branch_created": done.branch_created,
        "nodes": [{"name": n, "entities_loaded": c} for n, c in done.nodes.items()],
        "edges": [{"name": n, "entities_loaded": c} for n, c in done.edges.items()],
        "total_entities": done.total_entities,
        "commit": commit_document(done.commit),
    }


def _ingest_document(uri: str, base: str, actor: str | None, done: LoadResult) -> dict[str, Any]:
    document = {**load_document(uri, done), "base_branch": base, "actor_id": actor}
    words = ("uri", "branch", "base_branch", "branch_created", "mode", "nodes", "edges")
    return {word: document[word] for word in (*words, "total_entities", "actor_id", "commit")}


def _show(uri: str, done: LoadResult, *, as_json: bool, quiet: bool) -> None:
    if not quiet:
        typer.echo(f"ran on the {done.engine} engine", err=True)
    if as_json:
        show_json(load_document(uri, done))
        return
    kinds = f"{len(done.nodes)} node types and {len(done.edges)} edge types"
    show(
        f"loaded {uri} on branch {done.branch} with {done.mode}: "
        f"{done.total_entities} entities across {kinds}"
    )
    if done.branch_created:
        show(f"branch {done.branch} created from {done.base_branch}")
