"""`omnigraph branch …`: create, list, merge and delete branches."""

from __future__ import annotations

import json as json_
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from enum import StrEnum
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from omnigraph.cli import completing
from omnigraph.cli.address import confirm_destructive, graph_uri, write_target
from omnigraph.cli.change_text import conflict_lines, kept_edge_lines, preview_lines, schema_lines
from omnigraph.cli.engine import open_graph
from omnigraph.cli.failure_document import conflict_document
from omnigraph.cli.options import (
    MAIN,
    Actor,
    GraphPath,
    Json,
    Message,
    Meta,
    Quiet,
    Store,
    metadata,
)
from omnigraph.cli.progress import following
from omnigraph.cli.servers import acting
from omnigraph.cli.terminal import fail, plain_errors, show, show_json, warn
from omnigraph.errors import ChecksFailed, Forbidden, MergeConflicts

if TYPE_CHECKING:
    from omnigraph.draw.branch_states import BranchState
    from omnigraph.exec.merge.resolve import Resolve
    from omnigraph.exec.merge.run import MergeOutcome
    from omnigraph.graph import Graph

app = typer.Typer(
    name="branch",
    help="Fork, list, merge and drop branches.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

BranchName = Annotated[
    str, typer.Argument(metavar="NAME", help="The branch.", autocompletion=completing.branches)
]


@app.command()
def create(
    name: BranchName,
    path: GraphPath = None,
    from_: Annotated[
        str,
        typer.Option(
            "--from",
            metavar="POINT",
            help="Where to fork: main, v1, main~3.",
            autocompletion=completing.points,
        ),
    ] = MAIN,
    actor: Actor = None,
    json: Json = False,
    store: Store = None,
    quiet: Quiet = False,
) -> None:
    """Fork a branch. Copies nothing."""
    with plain_errors():
        where = graph_uri(path, store)
        write_target("branch create", where, quiet=quiet)
        actor = acting(actor, where)
        with open_graph(where) as graph:
            name = graph.branches.create(name, from_)
        if json:
            show_json({"uri": where, "from": from_, "name": name, "actor_id": actor})
        else:
            show(f"created branch {name} from {from_}")


@app.command(name="list")
def list_(path: GraphPath = None, json: Json = False, store: Store = None) -> None:
    """List the branches: head, age and actor, and commits ahead of main and behind it."""
    with plain_errors():
        with open_graph(graph_uri(path, store), read_only=True) as graph:
            names = graph.branches.list()
            states = _states(graph, names)
        if json:
            details = [_state_document(each) for each in states]
            show_json({"branches": list(names), "details": details})
            return
        rows = {each.name: _state_cells(each) for each in states}
        for line in _in_columns([(name, *rows.get(name, ())) for name in names]):
            show(line)


def _in_columns(rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    """Rows with their cells below each other."""
    widths = [max(map(len, cells)) for cells in zip_longest(*rows, fillvalue="")]
    for row in rows:
        yield "  ".join(
            f"{cell:{width}}" for cell, width in zip(row, widths, strict=False)
        ).rstrip()


def _states(graph: Graph, names: Sequence[str]) -> list[BranchState]:
    """The states of branches; none where the actor may not read the history of all."""
    from omnigraph.draw.branch_states import branch_states

    try:
        heads = graph.commits.names()
        listed = graph.commits.list(all_branches=True)
    except Forbidden:
        return []
    return list(branch_states(names, heads, {each.id: each for each in listed}, MAIN))


def _state_document(state: BranchState) -> dict[str, object]:
    return {
        "name": state.name,
        "graph_commit_id": state.head.id,
        "created_at": state.head.created_at,
        "actor_id": state.head.actor,
        "ahead": state.ahead,
        "behind": state.behind,
    }


def _state_cells(state: BranchState) -> tuple[str, ...]:
    from omnigraph.draw.ages import ago

    head = state.head
    distance = "" if state.name == MAIN else f"{state.ahead} ahead, {state.behind} behind"
    return head.id[:10], ago(head.created_at), head.actor or "-", distance


@app.command()
def delete(
    name: BranchName,
    path: GraphPath = None,
    actor: Actor = None,
    json: Json = False,
    store: Store = None,
    quiet: Quiet = False,
) -> None:
    """Delete a branch no other depends on."""
    with plain_errors():
        where = graph_uri(path, store)
        write_target("branch delete", where, quiet=quiet)
        actor = acting(actor, where)
        confirm_destructive("branch delete", where, json=json)
        with open_graph(where) as graph:
            graph.branches.delete(name)
        if json:
            show_json({"uri": where, "name": name, "actor_id": actor})
        else:
            show(f"deleted branch {name}")


class By(StrEnum):
    """Granularity of a merge."""

    ENTITY = "entity"
    PROPERTY = "property"


ResolveOption = Annotated[
    list[str] | None,
    typer.Option(
        "--resolve",
        metavar="ANSWER",
        help="Conflicts: ours, theirs, or TYPE/ID=ours|theirs|JSON for one; may be repeated.",
    ),
]
ByOption = Annotated[
    By, typer.Option("--by", help="property: sides may change other properties of an entity.")
]
CheckFiles = Annotated[
    list[str] | None,
    typer.Option("--check", metavar="FILE", help="Reads (.gq) that must then give no rows."),
]
CheckQueries = Annotated[
    str | None,
    typer.Option("--queries", metavar="DIR", help="Stored queries, for checks that are declared."),
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Only show what would change, and the conflicts.")
]


@app.command()
def merge(
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE", help="Branch to take from.", autocompletion=completing.branches
        ),
    ],
    path: GraphPath = None,
    into: Annotated[
        str,
        typer.Option(
            metavar="BRANCH", help="Branch to commit to.", autocompletion=completing.branches
        ),
    ] = MAIN,
    resolve: ResolveOption = None,
    by: ByOption = By.ENTITY,
    delete_branch: Annotated[
        bool, typer.Option("--delete-branch", help="Delete the source afterwards.")
    ] = False,
    dry_run: DryRun = False,
    check: CheckFiles = None,
    queries: CheckQueries = None,
    actor: Actor = None,
    message: Message = None,
    meta: Meta = None,
    json: Json = False,
    store: Store = None,
    quiet: Quiet = False,
) -> None:
    """Merge SOURCE into a branch as one commit.

    Conflicts are shown with the entity as it was, as BRANCH has it (ours) and as SOURCE has it
    (theirs), and nothing is merged. With --check the merged graph is read first, and nothing is
    merged if a query of the file gives rows.
    """
    answers = resolution(resolve or [])
    with plain_errors():
        where = graph_uri(path, store)
        if not dry_run:
            write_target("branch merge", where, quiet=quiet)
        # Checks read the merged graph, which is made for them and taken away.
        with open_graph(where, read_only=dry_run and not (check or queries)) as graph:
            declare_checks(graph, queries)
            try:
                with following("compare", quiet=quiet) as progress:
                    outcome = graph.branches.merge(
                        source,
                        into=into,
                        actor=actor,
                        message=message,
                        metadata=metadata(meta),
                        delete_source=delete_branch,
                        by=by.value,
                        resolve=answers,
                        progress=progress,
                        dry_run=dry_run,
                        checks=[Path(each) for each in check or ()],
                    )
            except MergeConflicts as refused:
                show_refusal(refused, into, source, as_json=json)
            except ChecksFailed as refused:
                show_failed_checks(refused, as_json=json)
            show_merge(outcome, as_json=json)


def declare_checks(graph: Graph, folder: str | None) -> None:
    """Demand the checks of a folder of stored queries, where those of a policy are too."""
    if folder is None:
        return
    from omnigraph.policy import TargetCheck
    from omnigraph.server.served_sets import extras_of_folder

    extras = extras_of_folder(folder)
    graph.check_merges([TargetCheck(*each) for each in extras.checks], extras.queries)


def show_merge(outcome: MergeOutcome, *, as_json: bool) -> None:
    """Show the outcome of a merge, or of its preview."""
    source, into = outcome.source, outcome.target
    if outcome.branch_delete_error is not None:
        warn(f"branch {source} was merged but not deleted: {outcome.branch_delete_error}")
    if as_json:
        conflicts = [conflict_document(each) for each in outcome.conflicts]
        shown = {"merge_conflicts": conflicts} if outcome.dry_run else {}
        show_json({**outcome.to_json(), **shown})
        if conflicts:
            raise typer.Exit(1)
        return
    if outcome.conflicts:
        show_refusal(MergeConflicts(outcome.conflicts), into, source, as_json=False)
    if outcome.dry_run:
        show(f"would merge {source} into {into}: {outcome.kind}")
        for line in preview_lines(outcome.changes.counts(), outcome.schema_steps):
            show(line)
    else:
        show(f"merged {source} into {into}: {outcome.kind}")
        for line in schema_lines(outcome.schema_steps):
            show(line)
    for line in kept_edge_lines(outcome.kept_edges):
        show(line)
    if outcome.branch_deleted:
        show(f"deleted branch {source}")


def show_refusal(refused: MergeConflicts, ours: str, theirs: str, *, as_json: bool) -> NoReturn:
    """Show every conflict and exit: as the server's JSON document, or side by side for a person."""
    if not as_json:
        for line in conflict_lines(refused, ours, theirs):
            sys.stderr.write(f"{line}\n")
    fail(str(refused), refused)


def show_failed_checks(refused: ChecksFailed, *, as_json: bool) -> NoReturn:
    """Show the rows of checks that must give none and exit."""
    checks = [check.to_json() for check in refused.checks]
    for check in () if as_json else checks:
        for row in check["rows"]:
            sys.stderr.write(f"{check['query']}: {json_.dumps(row, ensure_ascii=False)}\n")
    fail(str(refused), refused)


def resolution(answers: Sequence[str]) -> Resolve:
    """Conflict resolution from `--resolve`: one answer for all, answers by entity, or both."""
    everything: str | None = None
    by_entity: dict[tuple[str, str], str | dict[str, object] | None] = {}
    for text in answers:
        if text in ("ours", "theirs"):
            if everything not in (None, text):
                raise typer.BadParameter(
                    "--resolve ours and --resolve theirs contradict each other"
                )
            everything = text
            continue
        entity, answer = _answer(text)
        by_entity[entity] = answer
    if not by_entity:
        return everything
    return defaultdict(lambda: everything, by_entity)


def _answer(text: str) -> tuple[tuple[str, str], str | dict[str, object]]:
    """`TYPE/ID=ANSWER`. An id may hold `=`: the first one that an answer follows ends it."""
    type_name, slash, rest = text.partition("/")
    equals_signs = [position for position, char in enumerate(rest) if char == "="] if slash else []
    for position in equals_signs:
        answer = rest[position + 1 :]
        if answer in ("ours", "theirs"):
            return (type_name, rest[:position]), answer
        try:
            values = json_.loads(answer)
        except ValueError:
            continue
        if isinstance(values, dict):
            return (type_name, rest[:position]), values
    raise typer.BadParameter(
        f"'{text}' resolves nothing: write ours, theirs, TYPE/ID=ours, TYPE/ID=theirs or "
        'TYPE/ID={"property": value}'
    )
