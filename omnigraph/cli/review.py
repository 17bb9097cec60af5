"""`omnigraph review …`: merges that are talked about and approved before they are made."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from omnigraph.cli import completing
from omnigraph.cli.address import graph_uri, write_target
from omnigraph.cli.branch import (
    By,
    ByOption,
    CheckFiles,
    CheckQueries,
    DryRun,
    ResolveOption,
    declare_checks,
    resolution,
    show_failed_checks,
    show_merge,
)
from omnigraph.cli.branch import show_refusal as show_conflicts
from omnigraph.cli.change_text import schema_lines
from omnigraph.cli.engine import open_graph
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
from omnigraph.cli.terminal import plain_errors, show, show_json
from omnigraph.errors import BadRequest, ChecksFailed, MergeConflicts

if TYPE_CHECKING:
    from omnigraph.graph import Graph
    from omnigraph.graph.review_records import Review

app = typer.Typer(
    name="review",
    help="Discuss and approve merges before they are made.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

ReviewName = Annotated[
    str, typer.Argument(metavar="REVIEW", help="Its id, or the source branch of the open one.")
]

_ULID = re.compile(r"[0-9A-HJKMNP-TV-Z]{26}")


class ReviewState(StrEnum):
    """State of a review."""

    OPEN = "open"
    MERGED = "merged"
    CLOSED = "closed"


@app.command(name="open")
def open_(
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE", help="Branch to merge.", autocompletion=completing.branches
        ),
    ],
    path: GraphPath = None,
    into: Annotated[str, typer.Option(metavar="BRANCH", help="Branch to merge into.")] = MAIN,
    title: Annotated[str, typer.Option("--title", metavar="TEXT", help="What it is about.")] = "",
    text: Annotated[str, typer.Option("--text", metavar="TEXT", help="More about it.")] = "",
    actor: Actor = None,
    json: Json = False,
    store: Store = None,
    quiet: Quiet = False,
) -> None:
    """Ask for a review of what a merge of SOURCE would bring."""
    with plain_errors():
        where = graph_uri(path, store)
        write_target("review open", where, quiet=quiet)
        with open_graph(where) as graph:
            review = graph.reviews.open(
                source, into, title=title or f"Merge {source}", text=text, actor=actor
            )
        _tell(review, f"opened review {review.id}: {review.title}", as_json=json)


@app.command(name="list")
def list_(
    path: GraphPath = None,
    state: Annotated[
        ReviewState | None, typer.Option("--state", help="Only those; all by default.")
    ] = None,
    limit: Annotated[
        int | None, typer.Option("--limit", min=1, help="At most so many; all by default.")
    ] = None,
    before: Annotated[
        str | None, typer.Option("--before", help="Those older than this review.")
    ] = None,
    json: Json = False,
    store: Store = None,
) -> None:
    """List the reviews, newest first."""
    with plain_errors():
        with open_graph(graph_uri(path, store), read_only=True) as graph:
            reviews = graph.reviews.list(
                state=None if state is None else state.value, limit=limit, before=before
            )
        if json:
            show_json({"reviews": [review.to_json() for review in reviews]})
            return
        for review in reviews:
            branches = f"{review.source} -> {review.target}"
            show(f"{review.id}  {review.state:6}  {branches}  {review.title}")


@app.command(name="show")
def show_(
    name: ReviewName,
    path: GraphPath = None,
    json: Json = False,
    store: Store = None,
) -> None:
    """Show a review with its comments and approvals."""
    with plain_errors():
        with open_graph(graph_uri(path, store), read_only=True) as graph:
            review = graph.reviews.get(_id(graph, name))
        if json:
            show_json(review.to_json())
            return
        for line in _lines(review):
            show(line)


@app.command()
def comment(
    name: ReviewName,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="What to say.")],
    path: GraphPath = None,
    on: Annotated[
        str | None, typer.Option("--on", metavar="TYPE/ID", help="The entity it is about.")
    ] = None,
    edge: Annotated[bool, typer.Option("--edge", help="--on names an edge.")] = False,
    actor: Actor = None,
    json: Json = False,
    store: Store = None,
    quiet: Quiet = False,
) -> None:
    """Comment on a review, or with --on on an entity in it."""
    with plain_errors():
        where = graph_uri(path, store)
        write_target("review comment", where, quiet=quiet)
        with open_graph(where) as graph:
            entity = _entity(on, is_edge=edge)
            review = graph.reviews.comment(_id(graph, name), text, entity=entity, actor=actor)
        _tell(review, f"commented on review {review.id}", as_json=json)


@app.command()
def approve(
    name: ReviewName,
    path: GraphPath = None,
    commit: Annotated[
        str | None,
        typer.Option("--at", metavar="COMMIT", help="Only if the source is at this commit."),
    ] = None,
    resolve: ResolveOption = None,
    by: ByOption = By.ENTITY,
    actor: Actor = None,
    json: Json = False,
    store: Store = None,
    quiet: Quiet = False,
) -> None:
    """Approve the source as it is now; the approval lapses when the source moves.

    With --resolve it covers a merge with the same answers to conflicts, and no other.
    """
    answers = resolution(resolve or [])
    with plain_errors():
        where = graph_uri(path, store)
        write_target("review approve", where, quiet=quiet)
        with open_graph(where) as graph:
            review = graph.reviews.approve(
                _id(graph, name), if_source=commit, resolve=answers, by=by.value, actor=actor
            )
        _tell(review, f"approved review {review.id} at {review.source_commit}", as_json=json)


@app.command()
def close(
    name: ReviewName,
    path: GraphPath = None,
    actor: Actor = None,
    json: Json = False,
    store: Store = None,
    quiet: Quiet = False,
) -> None:
    """End a review without a merge."""
    with plain_errors():
        where = graph_uri(path, store)
        write_target("review close", where, quiet=quiet)
        with open_graph(where) as graph:
            review = graph.reviews.close(_id(graph, name), actor=actor)
        _tell(review, f"closed review {review.id}", as_json=json)


@app.command()
def merge(
    name: ReviewName,
    path: GraphPath = None,
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
    """Merge a review as one commit; its title is the message by default."""
    answers = resolution(resolve or [])
    with plain_errors():
        where = graph_uri(path, store)
        if not dry_run:
            write_target("review merge", where, quiet=quiet)
        with open_graph(where) as graph:
            review_id = _id(graph, name)
            declare_checks(graph, queries)
            try:
                with following("compare", quiet=quiet) as progress:
                    outcome = graph.reviews.merge(
                        review_id,
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
                review = graph.reviews.get(review_id)
                show_conflicts(refused, review.target, review.source, as_json=json)
            except ChecksFailed as refused:
                show_failed_checks(refused, as_json=json)
            show_merge(outcome, as_json=json)


def _id(graph: Graph, name: str) -> str:
    """The id of a review that is named by its id, or by the source of the one open review."""
    if _ULID.fullmatch(name):
        return name
    named = graph.reviews.list(source=name)
    still = [review for review in named if review.state == ReviewState.OPEN]
    if len(still) > 1:
        ids = ", ".join(review.id for review in still)
        raise BadRequest(f"several reviews of '{name}' are open: {ids}", "give an id")
    return (still or list(named[:1]))[0].id if named else name


def _entity(on: str | None, *, is_edge: bool) -> tuple[str, str, str] | None:
    if on is None:
        if is_edge:
            raise typer.BadParameter("--edge goes with --on TYPE/ID")
        return None
    type_name, slash, entity_id = on.partition("/")
    if not slash or not type_name or not entity_id:
        raise typer.BadParameter(f"--on '{on}' is not TYPE/ID")
    return "edge" if is_edge else "node", type_name, entity_id


def _tell(review: Review, text: str, *, as_json: bool) -> None:
    if as_json:
        show_json(review.to_json())
    else:
        show(text)


def _lines(review: Review) -> list[str]:
    """A review for a person."""
    when, author = _when(review.created_at), review.author or "somebody"
    lines = [
        f"review {review.id}: {review.title}",
        f"{review.state}: {review.source} -> {review.target}, by {author} at {when}",
    ]
    lines += [review.text] if review.text else []
    if review.ended_at is not None:
        merge = "" if review.commit_id is None else f" as {review.commit_id}"
        ended = _when(review.ended_at)
        lines.append(f"{review.state}{merge} by {review.ended_by or 'somebody'} at {ended}")
    if review.required_approvals:
        lines.append(f"needs {review.required_approvals} approval(s)")
    lines += schema_lines(review.schema_steps)
    for approval in review.approvals:
        lapsed = "" if approval.is_current else " (lapsed)"
        count = approval.resolutions
        answers = f" with {count} resolution{'s' * (count > 1)}" if count else ""
        at = f"{approval.source_commit}{answers}{lapsed}"
        lines.append(f"approved by {approval.actor} at {at}")
    for each in review.comments:
        about = "" if each.entity_id is None else f" on {each.type_name}/{each.entity_id}"
        lines.append(f"{each.author or 'somebody'}{about}: {each.text}")
    return lines


def _when(microseconds: int) -> str:
    return f"{datetime.fromtimestamp(microseconds // 1_000_000, UTC):%Y-%m-%d %H:%M:%S}Z"
