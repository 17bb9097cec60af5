"""`omnigraph revert` and `omnigraph restore`: undo a commit, or go back to a point in time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from omnigraph.cli import completing
from omnigraph.cli.address import graph_uri, write_target
from omnigraph.cli.branch import By, ByOption, DryRun, ResolveOption, resolution, show_refusal
from omnigraph.cli.change_text import kept_edge_lines, preview_lines
from omnigraph.cli.engine import open_graph
from omnigraph.cli.options import (
    MAIN,
    Actor,
    Branch,
    GraphPath,
    Json,
    Message,
    Meta,
    Quiet,
    Store,
    metadata,
)
from omnigraph.cli.progress import following
from omnigraph.cli.terminal import plain_errors, show, show_json
from omnigraph.errors import MergeConflicts

if TYPE_CHECKING:
    from omnigraph.exec.merge.undo import UndoOutcome

_RANGE = ".."


def revert(
    commit: Annotated[
        str,
        typer.Argument(
            metavar="COMMIT", help="Its id or any point; A..B: the commits after A up to B."
        ),
    ],
    path: GraphPath = None,
    onto: Annotated[str, typer.Option(metavar="BRANCH", help="Branch to commit to.")] = MAIN,
    resolve: ResolveOption = None,
    by: ByOption = By.ENTITY,
    dry_run: DryRun = False,
    message: Message = None,
    meta: Meta = None,
    actor: Actor = None,
    json: Json = False,
    store: Store = None,
    quiet: Quiet = False,
) -> None:
    """Undo COMMIT as one new commit.

    Entities that were changed again since are conflicts: ours is BRANCH, theirs the state before
    COMMIT. A merge is undone against its first parent. Of a range A..B the commits after A up to B
    are undone, on the line of first parents.
    """
    answers = resolution(resolve or [])
    first, dots, last = commit.partition(_RANGE)
    if dots and not (first and last):
        raise typer.BadParameter(f"'{commit}' is no range: write EARLIER..LATER")
    with plain_errors():
        where = graph_uri(path, store)
        if not dry_run:
            write_target("revert", where, quiet=quiet)
        with open_graph(where, read_only=dry_run) as graph:
            try:
                with following("compare", quiet=quiet) as progress:
                    outcome = graph.revert(
                        first,
                        last or None,
                        onto=onto,
                        by=by.value,
                        resolve=answers,
                        dry_run=dry_run,
                        actor=actor,
                        message=message,
                        metadata=metadata(meta),
                        progress=progress,
                    )
            except MergeConflicts as refused:
                show_refusal(refused, onto, f"before {commit}", as_json=json)
            _show(outcome, f"before {commit}", "revert", as_json=json)


def restore(
    point: Annotated[
        str,
        typer.Argument(
            metavar="POINT",
            help="A commit, branch, tag, main~3 or main@{t}.",
            autocompletion=completing.points,
        ),
    ],
    path: GraphPath = None,
    types: Annotated[
        list[str] | None,
        typer.Option("--types", metavar="A,B", help="Only these types; may be repeated."),
    ] = None,
    branch: Branch = MAIN,
    dry_run: DryRun = False,
    message: Message = None,
    meta: Meta = None,
    actor: Actor = None,
    json: Json = False,
    store: Store = None,
    quiet: Quiet = False,
) -> None:
    """Make a branch's content that of POINT, or that of some types, as one new commit."""
    with plain_errors():
        where = graph_uri(path, store)
        if not dry_run:
            write_target("restore", where, quiet=quiet)
        with open_graph(where, read_only=dry_run) as graph:
            try:
                with following("compare", quiet=quiet) as progress:
                    outcome = graph.restore(
                        point,
                        _names(types),
                        branch=branch,
                        dry_run=dry_run,
                        actor=actor,
                        message=message,
                        metadata=metadata(meta),
                        progress=progress,
                    )
            except MergeConflicts as refused:
                show_refusal(refused, branch, point, as_json=json)
            _show(outcome, point, "restore", as_json=json)


def _names(types: list[str] | None) -> list[str] | None:
    if types is None:
        return None
    names = [name.strip() for text in types for name in text.split(",")]
    if not all(names):
        raise typer.BadParameter("--types takes names of types with commas between them")
    return names


_WORDS = {
    "reverted": ("reverted {} on {}", "would revert {} on {}"),
    "restored": ("restored {1} to {0}", "would restore {1} to {0}"),
}


def _show(outcome: UndoOutcome, theirs: str, verb: str, *, as_json: bool) -> None:
    if as_json:
        show_json(outcome.to_json())
        if outcome.conflicts:
            raise typer.Exit(1)
        return
    if outcome.conflicts:
        refused = MergeConflicts(outcome.conflicts, verb, outcome.reason)
        show_refusal(refused, outcome.branch, theirs, as_json=False)
    words = _WORDS.get(outcome.kind)
    if words is None:
        show(f"{outcome.kind.replace('_', ' ')}: {outcome.reason}")
    else:
        show(words[outcome.dry_run].format(_RANGE.join(outcome.undone), outcome.branch))
        for line in preview_lines(outcome.changes.counts()):
            show(line)
    for line in kept_edge_lines(outcome.kept_edges):
        show(line)
    if outcome.commit is not None:
        show(f"commit {outcome.commit.id}")
