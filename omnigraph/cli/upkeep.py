"""`omnigraph optimize`, `repair` and `check`: maintenance of a graph.

Invariant: a preview goes to standard error and changes nothing; reports of changes, and every
document of `--json`, go to standard output.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from omnigraph.arguments import as_given
from omnigraph.cli.address import graph_uri, write_target
from omnigraph.cli.engine import open_graph
from omnigraph.cli.interrupts import heard_interrupts
from omnigraph.cli.options import (
    MAIN,
    Actor,
    Branch,
    Confirm,
    Engine,
    EngineOption,
    GraphPath,
    Json,
    Message,
    Meta,
    Quiet,
    Store,
    metadata,
)
from omnigraph.cli.servers import is_served
from omnigraph.cli.terminal import plain_errors, show, show_json
from omnigraph.errors import NotServed

if TYPE_CHECKING:
    from collections.abc import Callable

    from omnigraph.exec.progress import UpkeepProgress
    from omnigraph.exec.upkeep.check import CheckReport
    from omnigraph.exec.upkeep.optimize import TableReport
    from omnigraph.storage.upkeep.repair import RepairReport


# optimize


def optimize(
    uri: GraphPath = None,
    branch: Branch = MAIN,
    engine: EngineOption = Engine.AUTO,
    actor: Actor = None,
    message: Message = None,
    meta: Meta = None,
    json: Json = False,
    store: Store = None,
    quiet: Quiet = False,
) -> None:
    """Make fragments few and indexes whole, in one commit that changes no row."""
    with plain_errors(), heard_interrupts():
        where = graph_uri(uri, store)
        write_target("optimize", where, quiet=quiet)
        with open_graph(where) as graph:
            report = graph.optimize(
                branch,
                engine=as_given(str(engine)),
                actor=actor,
                message=message,
                metadata=metadata(meta),
                progress=_progress(quiet),
            )
        if json:
            from omnigraph.exec.upkeep.report_json import optimize_document

            show_json(optimize_document(where, report))
            return
        for table in report.tables:
            show(_optimized(table))
        show(f"committed {report.commit_id}" if report.commit_id else "nothing to commit")


def _optimized(table: TableReport) -> str:
    if table.skipped is not None:
        return f"{table.table}: skipped, {table.skipped}"
    if not table.committed:
        return f"{table.table}: in order, {table.fragments_after} fragment(s)"
    built = f", {len(table.built)} index(es) built" if table.built else ""
    return f"{table.table}: {table.fragments_before} -> {table.fragments_after} fragment(s){built}"


def _progress(quiet: bool) -> Callable[[UpkeepProgress], None] | None:
    """A line on a terminal that follows the work."""
    if quiet or not sys.stderr.isatty():
        return None

    def tell(progress: UpkeepProgress) -> None:
        end = "\n" if progress.done == progress.total else ""
        line = f"{progress.stage:<9} {progress.done}/{progress.total} {progress.table:<30.30}"
        sys.stderr.write(f"\r{line}{end}")
        sys.stderr.flush()

    return tell


# repair


def repair(
    uri: GraphPath = None,
    confirm: Confirm = False,
    force: Annotated[
        bool, typer.Option("--force", help="Set tables that others wrote to back to the published.")
    ] = False,
    engine: EngineOption = Engine.AUTO,
    actor: Actor = None,
    message: Message = None,
    meta: Meta = None,
    json: Json = False,
    store: Store = None,
    quiet: Quiet = False,
) -> None:
    """Look for table heads that no commit explains and for misplaced deletion files, and mend what
    can be mended."""
    with plain_errors(), heard_interrupts():
        where = graph_uri(uri, store)
        write_target("repair", where, quiet=quiet)
        with open_graph(where, read_only=not confirm) as graph:
            report = graph.repair(
                confirm,
                force,
                actor=actor,
                message=message,
                metadata=metadata(meta),
                engine=as_given(str(engine)),
            )
            version = graph.snapshot().manifest_version
        if json:
            show_json(repair_document(where, report, version))
        else:
            _show_repair(report)
    if report.refused:
        raise typer.Exit(1)


def repair_document(uri: str, report: RepairReport, version: int) -> dict[str, Any]:
    """Report of repair as JSON."""
    return {
        "uri": uri,
        "confirm": report.confirmed,
        "force": report.forced,
        "graph_manifest_version": version,
        "commits": list(report.commit_ids),
        "datasets": [
            {
                "type_key": table.table,
                "branch": table.branch,
                "published_dataset_version": table.published_version,
                "lance_head_version": table.head_version,
                "classification": table.classification,
                "action": table.action,
                "operations": list(table.operations),
                "error": table.error,
                "files": list(table.files),
            }
            for table in report.tables
        ],
    }


def _show_repair(report: RepairReport) -> None:
    drifted = [table for table in report.tables if table.action != "none"]
    if not drifted:
        show("no drift: every table head is what is published, and its files are in place")
    for table in drifted:
        what = f"{table.table} on {table.branch}: head {table.head_version}, published "
        what += f"{table.published_version}, {table.classification}"
        would = "" if report.confirmed or table.action == "refused" else "would "
        details = table.error or ", ".join(table.files)
        show(f"{what}: {would}{table.action}{f': {details}' if details else ''}")
    if drifted and not report.confirmed:
        typer.echo("nothing was changed; pass --confirm to do it", err=True)


# check


def check(uri: GraphPath = None, json: Json = False, store: Store = None) -> None:
    """Read everything a graph is made of and say what does not fit together."""
    from omnigraph.graph import check_at

    with plain_errors():
        where = graph_uri(uri, store)
        if is_served(where):
            raise NotServed("check", where, "run it where the files of the graph are")
        report = check_at(where)
        if json:
            show_json(check_document(where, report))
        else:
            _show_check(report)
    if not report.ok:
        raise typer.Exit(1)


def check_document(uri: str, report: CheckReport) -> dict[str, Any]:
    """Report of check as JSON."""
    return {
        "uri": uri,
        "ok": report.ok,
        "branches": list(report.branches),
        "tables": report.tables,
        "rows": report.rows,
        "findings": [finding.to_json() for finding in report.findings],
    }


def _show_check(report: CheckReport) -> None:
    for finding in report.findings:
        show(f"ERROR {finding.code} {finding.subject}: {finding.text}")
        show(f"      help: {finding.todo}")
    looked = f"{len(report.branches)} branch(es), {report.tables} table(s), {report.rows} row(s)"
    show(f"{'OK    ' if report.ok else 'INFO  '}{looked}, {len(report.findings)} finding(s)")
