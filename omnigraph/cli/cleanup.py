"""`omnigraph cleanup`: which commits stay and why, and what is removed.

Invariant: a preview goes to standard error and changes nothing; reports of changes, and every
document of `--json`, go to standard output.
"""

from __future__ import annotations

from datetime import datetime
from itertools import groupby
from typing import TYPE_CHECKING, Annotated

import typer

from omnigraph.arguments import as_given
from omnigraph.cli.address import confirm_destructive, graph_uri, write_target
from omnigraph.cli.engine import open_graph
from omnigraph.cli.interrupts import heard_interrupts
from omnigraph.cli.options import (
    MAIN,
    Confirm,
    Engine,
    EngineOption,
    Grace,
    GraphPath,
    Json,
    OlderThan,
    Quiet,
    Store,
)
from omnigraph.cli.terminal import plain_errors, show_json

if TYPE_CHECKING:
    from collections.abc import Iterator

    from omnigraph.exec.upkeep.cleanup import CleanupReport
    from omnigraph.exec.upkeep.retention import KeptCommit
    from omnigraph.storage.upkeep.cleanup import TableCleanup

_RUN_MIN = 4  # so many commits in a row with the same reasons are one line


def cleanup(
    uri: GraphPath = None,
    keep: Annotated[
        int | None,
        typer.Option("--keep", metavar="N", min=1, help="Newest commits of each branch."),
    ] = None,
    older_than: OlderThan = None,
    grace: Grace = "10m",
    confirm: Confirm = False,
    engine: EngineOption = Engine.AUTO,
    json: Json = False,
    store: Store = None,
    quiet: Quiet = False,
) -> None:
    """Remove what only old commits need.

    Heads, tags, branch points, merge bases and what registered feed consumers have yet to read
    stay, whatever the policy. Without --confirm nothing is removed, and each commit that stays is
    listed with its reasons.
    """
    if keep is None and older_than is None:
        raise typer.BadParameter("say what stays: pass --keep N, --older-than DUR, or both")
    with plain_errors(), heard_interrupts():
        where = graph_uri(uri, store)
        if confirm:
            confirm_destructive("cleanup", where, json=json)
            write_target("cleanup", where, quiet=quiet)
        with open_graph(where, read_only=not confirm) as graph:
            report = graph.cleanup(
                keep, older_than, confirm, grace=grace, engine=as_given(str(engine))
            )
        typer.echo(_policy(report, grace), err=True)
        for line in () if json or confirm else _kept_lines(report):
            typer.echo(line, err=True)
        for consumer in report.consumers_lapsed:
            verb = "lost its claim" if confirm else "would lose its claim"
            behind = f"{consumer.behind_commits} commit(s), {consumer.behind_seconds} s"
            typer.echo(f"feed consumer {consumer.name} {verb}: it is behind by {behind}", err=True)
        if json:
            from omnigraph.exec.upkeep.report_json import cleanup_document

            show_json(cleanup_document(where, report))
        for table in () if json else report.tables:
            typer.echo(_cleaned(table, confirm), err=not confirm)
        if not confirm:
            typer.echo("nothing was removed; pass --confirm to do it", err=True)
    if report.errors:
        raise typer.Exit(1)


def _policy(report: CleanupReport, grace: str) -> str:
    parts = [] if report.keep is None else [f"the newest {report.keep} commit(s) of each branch"]
    if report.older_than_s is not None:
        parts.append(f"commits that were a head in the last {report.older_than_s} s")
    parts.append(f"those of the last {grace} for readers")
    return (
        f"policy: keep {', '.join(parts)}; "
        f"{report.commits_kept} commit(s) stay, {report.commits_reclaimed} go"
    )


def _kept_lines(report: CleanupReport) -> Iterator[str]:
    """A line for each commit that stays; many in a row with the same reasons share one."""
    for key, run in groupby(report.kept, key=lambda kept: (kept.commit.branch, kept.reasons)):
        commits = list(run)
        why = "; ".join(map(str, key[1]))
        if len(commits) < _RUN_MIN:
            yield from (f"stays {_shown(kept)}  {why}" for kept in commits)
        else:
            yield f"stays {_shown(commits[0])}  {why}"
            yield f"      … and {len(commits) - 1} older ones, down to {_shown(commits[-1])}  {why}"


def _shown(kept: KeptCommit) -> str:
    commit = kept.commit
    when = datetime.fromtimestamp(commit.created_at / 1e6).strftime("%Y-%m-%d %H:%M:%S")
    return f"{commit.id} {when} {commit.branch or MAIN}"


def _cleaned(table: TableCleanup, confirm: bool) -> str:
    if table.error is not None:
        return f"{table.table}: failed, {table.error}"
    verb = "removed" if confirm else "would remove"
    forks = f", {len(table.forks)} fork(s)" if table.forks else ""
    return f"{table.table}: {verb} {table.versions} version(s), {table.bytes} bytes{forks}"
