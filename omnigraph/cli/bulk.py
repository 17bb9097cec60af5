"""`omnigraph load` and `omnigraph export`: bulk data in and out."""

from __future__ import annotations

import sys
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from omnigraph.arguments import as_given
from omnigraph.cli import completing
from omnigraph.cli.address import graph_uri
from omnigraph.cli.compat import OlderJsonl, OlderTables, export_types
from omnigraph.cli.engine import open_graph
from omnigraph.cli.interrupts import heard_interrupts
from omnigraph.cli.load_call import (
    BASE_OPTION,
    INDEXES_OPTION,
    MODE_OPTION,
    ON_DUPLICATE_OPTION,
    Indexes,
    Mode,
    OnDuplicate,
    RowsType,
    column_names,
    index_lines,
    load_document,
    run_load,
)
from omnigraph.cli.options import (
    MAIN,
    Actor,
    Branch,
    BranchOrMain,
    Data,
    Dates,
    DatesForm,
    EmbedTiming,
    Engine,
    EngineOption,
    GraphPath,
    Json,
    Message,
    Meta,
    Quiet,
    Snapshot,
    Store,
    Timing,
    Types,
    exclusive,
    metadata,
)
from omnigraph.cli.progress import following
from omnigraph.cli.shapes import rounded_lines
from omnigraph.cli.terminal import plain_errors, show, show_json

if TYPE_CHECKING:
    from omnigraph.exec.changes.export import ExportResult
    from omnigraph.exec.load.request import LoadResult


class ExportFormat(StrEnum):
    """File format of an export."""

    JSONL = "jsonl"
    PARQUET = "parquet"
    CSV = "csv"


def load(
    uri: GraphPath = None,
    *,
    data: Data,
    mode: Annotated[Mode, MODE_OPTION],
    branch: Branch = MAIN,
    base: Annotated[str | None, BASE_OPTION] = None,
    engine: EngineOption = Engine.AUTO,
    node: Annotated[
        str | None,
        typer.Option(
            "--node",
            metavar="TYPE",
            help="The rows are nodes of this type; for CSV, Parquet and JSON without a type.",
            autocompletion=completing.node_types,
        ),
    ] = None,
    edge: Annotated[
        str | None,
        typer.Option(
            "--edge",
            metavar="TYPE",
            help="The rows are edges of this type, with the columns from and to.",
            autocompletion=completing.edge_types,
        ),
    ] = None,
    type_: Annotated[
        str | None,
        typer.Option(
            "--type",
            metavar="TYPE",
            help="As --node or --edge, whichever.",
            autocompletion=completing.types,
        ),
    ] = None,
    column: Annotated[
        list[str] | None,
        typer.Option(
            "--column",
            metavar="THEIRS=OURS",
            help="A column and the property it fills; THEIRS= leaves it out; repeatable.",
        ),
    ] = None,
    on_duplicate: Annotated[OnDuplicate | None, ON_DUPLICATE_OPTION] = None,
    indexes: Annotated[Indexes, INDEXES_OPTION] = Indexes.NOW,
    embed: EmbedTiming = Timing.NOW,
    rejects: Annotated[
        str | None, typer.Option("--rejects", metavar="DIR", help="Where bad records go.")
    ] = None,
    actor: Actor = None,
    message: Message = None,
    meta: Meta = None,
    json: Json = False,
    store: Store = None,
    quiet: Quiet = False,
    verbose: Annotated[bool, typer.Option("--verbose", help="Say which engine did it.")] = False,
) -> None:
    """Load a file, a folder or standard input as one commit, of any size.

    --mode append adds and refuses what is there, merge adds or replaces by key, patch sets the
    given properties alone, and overwrite replaces every row of the types that are loaded.
    """
    with plain_errors(), heard_interrupts():
        exclusive(node=node, edge=edge, type=type_)
        columns = column_names(column)
        where = graph_uri(uri, store)
        done = run_load(
            "load",
            where,
            data,
            mode,
            json=json,
            quiet=quiet,
            rows=RowsType(node, edge, type_),
            columns=columns,
            branch=branch,
            from_branch=base,
            engine=str(engine),
            on_duplicate=None if on_duplicate is None else str(on_duplicate),
            indexes=str(indexes),
            embed=str(embed),
            rejects=rejects,
            actor=actor,
            message=message,
            metadata=metadata(meta),
        )
        _show(where, done, as_json=json, quiet=quiet, verbose=verbose)


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
        ExportFormat | None,
        typer.Option("--format", help="Else by the ending of PATH, else jsonl. CSV has one type."),
    ] = None,
    dates: Dates = DatesForm.NUMBERS,
    jsonl: OlderJsonl = False,
    tables: OlderTables = None,
    store: Store = None,
    quiet: Quiet = False,
) -> None:
    """Write a graph, as files that `load` reads, to standard output or to PATH.

    A PATH that ends in / or is a folder gets a file for each type; Parquet is always a folder.
    """
    types = export_types(types, tables, jsonl=jsonl)
    exclusive(branch=branch, snapshot=snapshot)
    if format is ExportFormat.PARQUET and out is None:
        raise typer.BadParameter("Parquet is written to a folder: pass --out FOLDER")
    with plain_errors(), open_graph(graph_uri(uri, store), read_only=True) as graph:
        pinned = graph.snapshot(branch or MAIN, commit=snapshot)
        total = None if types else sum(pin.row_count for pin in pinned.tables.values())
        # A bar between lines of data on one terminal would spoil both.
        with following("export", total=total, quiet=quiet or sys.stdout.isatty()) as progress:
            done = graph.export(
                sys.stdout.buffer if out is None else out,
                None if format is None else as_given(str(format)),
                types=types,
                branch=branch or MAIN,
                snapshot=snapshot,
                progress=progress,
                dates=as_given(str(dates)),
            )
        if out is not None and not quiet:
            # Not on standard output: PATH may be /dev/stdout.
            typer.echo(f"exported to {out}: {_entities(done)}", err=True)


def _entities(done: LoadResult | ExportResult) -> str:
    kinds = f"{len(done.nodes)} node types and {len(done.edges)} edge types"
    return f"{done.total_entities} entities across {kinds}"


def _show(uri: str, done: LoadResult, *, as_json: bool, quiet: bool, verbose: bool) -> None:
    if verbose or (done.engine == "spark" and not quiet):
        typer.echo(f"ran on the {done.engine} engine", err=True)
    if as_json:
        show_json(load_document(uri, done))
        return
    show(
        f"loaded {uri} on branch {done.branch} with {done.mode}: {_entities(done)}"
        + (f", {done.inserted} inserted, {done.updated} updated" if done.mode == "patch" else "")
    )
    if done.superseded:
        rows = "row has" if done.superseded == 1 else "rows have"
        show(f"{done.superseded} {rows} a key or an id that a later row has too; the last counts")
    for line in rounded_lines(done.rounded):
        show(line)
    for name, count in done.beside_equal.items():
        edges = "edge was" if count == 1 else "edges were"
        show(f"{count} {name} {edges} added beside equal ones; a @key(src, dst) would update them")
    for line in index_lines(done.indexes):
        show(line)
    if done.branch_created:
        show(f"branch {done.branch} created from {done.base_branch}")
