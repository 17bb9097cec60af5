"""`omnigraph backup`: a copy of a graph with its branches, tags and commits.

Invariant: a preview and progress go to standard error; the report goes to standard output. The
status is 0 only if the copy is whole and its check found nothing.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from omnigraph.cli.address import graph_uri, write_target
from omnigraph.cli.options import Json, Quiet
from omnigraph.cli.servers import is_served
from omnigraph.cli.terminal import plain_errors, show, show_json
from omnigraph.errors import NotServed

if TYPE_CHECKING:
    from collections.abc import Callable

    from omnigraph.exec.progress import UpkeepProgress
    from omnigraph.exec.upkeep.backup import BackupReport


def backup(
    source: Annotated[str, typer.Argument(metavar="SRC", help="The graph.")],
    target: Annotated[str, typer.Argument(metavar="DST", help="An empty place, or a backup.")],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say what would be copied.")
    ] = False,
    check: Annotated[bool, typer.Option(help="Read the whole copy at the end.")] = True,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Copy a graph at one moment, with its branches, tags and commits.

    A second run copies only what is new. Writers, readers and optimize go on meanwhile; cleanup
    waits. An interrupted backup cannot be opened and is completed by running it again. To restore
    a backup is to open it, or to back it up in its turn.
    """
    from omnigraph.graph import backup as run

    with plain_errors():
        where, into = graph_uri(source), graph_uri(target)
        for address in (where, into):
            if is_served(address):
                raise NotServed("backup", address)
        if not dry_run:
            write_target("backup", into, quiet=quiet)
        report = run(where, into, check=check, dry_run=dry_run, progress=_progress(quiet))
        if json:
            show_json(report.to_json())
        else:
            _show(report, into)
    if report.check is not None and not report.check.ok:
        raise typer.Exit(1)


def _show(report: BackupReport, target: str) -> None:
    verb = "would copy" if report.dry_run else "copied"
    removed = f", {report.files_removed} stale file(s) removed" if report.files_removed else ""
    show(
        f"{verb} {report.files_copied} file(s), {report.bytes_copied} bytes; "
        f"{report.files_reused} file(s), {report.bytes_reused} bytes were there{removed}"
    )
    for finding in () if report.check is None else report.check.findings:
        show(f"ERROR {finding.code} {finding.subject}: {finding.text}")
    if report.check is not None and report.check.ok:
        show(f"OK    {target}: {len(report.check.branches)} branch(es) checked")
    elif report.check is None and not report.dry_run:
        show(f"{target} was not checked; run `omnigraph check {target}`")


def _progress(quiet: bool) -> Callable[[UpkeepProgress], None] | None:
    """A line on a terminal that follows the work."""
    if quiet or not sys.stderr.isatty():
        return None

    def follow(progress: UpkeepProgress) -> None:
        end = "\n" if progress.done == progress.total else ""
        share = 100 * progress.done // max(progress.total, 1)
        bar = "#" * (share // 5)
        line = f"{progress.stage:<8} [{bar:<20}] {share:>3}% {progress.done}/{progress.total} files"
        sys.stderr.write(f"\r{line}{end}")
        sys.stderr.flush()

    return follow
