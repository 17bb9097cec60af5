"""`omnigraph changes …` and `omnigraph commit changes`: the change feed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from omnigraph.cli.address import graph_uri
from omnigraph.cli.change_text import cause_lines, change_lines
from omnigraph.cli.engine import open_graph
from omnigraph.cli.filters import ChangeFilter, Kinds, Ops, change_filter
from omnigraph.cli.history import commit_app
from omnigraph.cli.options import (
    MAIN,
    Branch,
    CommitId,
    GraphPath,
    Json,
    Store,
    Types,
    Uri,
    exclusive,
)
from omnigraph.cli.terminal import flush_output, plain_errors, show, show_json

if TYPE_CHECKING:
    from omnigraph.exec.changes.diff import Change
    from omnigraph.exec.changes.feed import FeedPage
    from omnigraph.graph import Graph
    from omnigraph.storage.records import Commit

app = typer.Typer(
    name="changes",
    help="Follow what happens on a branch.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

_LIMIT = 1_000
Limit = Annotated[int, typer.Option("--limit", metavar="N", min=1, help="Changes to a page.")]


@commit_app.command(name="changes")
def of_commit(
    commit: CommitId,
    path: GraphPath = None,
    limit: Limit = _LIMIT,
    page_token: Annotated[
        str | None, typer.Option("--page-token", metavar="TOKEN", help="Show one page, this one.")
    ] = None,
    kind: Kinds = None,
    type_: Types = None,
    op: Ops = None,
    json: Json = False,
    uri: Uri = None,
    store: Store = None,
) -> None:
    """Show what a commit changed against its first parent."""
    with plain_errors():
        with open_graph(graph_uri(path, uri, store), read_only=True) as graph:
            cause = graph.commits.get(commit)
            changes = graph.commits.changes(commit, **change_filter(kind, type_, op))
            page = changes.page(limit, page_token)
            listed, token = list(page.changes), page.next_page_token
            while token is not None and page_token is None:
                page = changes.page(limit, token)
                listed += page.changes
                token = page.next_page_token
        if json:
            document = _block(cause, listed)
            show_json(document if token is None else {**document, "next_page_token": token})
            return
        _show_block(cause, listed)
        if token is not None:
            show(f"next_page_token: {token}")


ConsumerName = Annotated[
    str | None,
    typer.Option("--consumer", metavar="NAME", help="A registered consumer, where it stands."),
]


@app.command()
def poll(
    path: GraphPath = None,
    branch: Branch = MAIN,
    consumer: ConsumerName = None,
    ack: Annotated[
        bool,
        typer.Option("--ack", help="With --consumer: acknowledge what was shown, afterwards."),
    ] = False,
    cursor: Annotated[
        str | None, typer.Option("--cursor", metavar="CURSOR", help="Where a poll ended.")
    ] = None,
    start: Annotated[
        str | None,
        typer.Option("--start", metavar="PLACE", help="now, beginning or after:POINT."),
    ] = None,
    limit: Limit = _LIMIT,
    kind: Kinds = None,
    type_: Types = None,
    op: Ops = None,
    json: Json = False,
    uri: Uri = None,
    store: Store = None,
) -> None:
    """Show the commits of a branch since a place, oldest first, with what each changed.

    A registered consumer goes on behind what it acknowledged: with --ack after the output is
    written, else with `changes consumer ack NAME --cursor CURSOR` once its changes are kept.
    """
    exclusive(cursor=cursor, start=start, consumer=consumer)
    if ack and consumer is None:
        raise typer.BadParameter("--ack acknowledges for a --consumer: name it")
    if start is not None and start not in ("now", "beginning") and not start.startswith("after:"):
        raise typer.BadParameter(f"'{start}' is no place: write now, beginning or after:POINT")
    with plain_errors():
        narrowed = change_filter(kind, type_, op)
        with open_graph(graph_uri(path, uri, store), read_only=not ack) as graph:
            page = graph.changes.poll(
                branch, consumer=consumer, cursor=cursor, start=start, limit=limit, **narrowed
            )
            blocks, page = _whole_poll(graph, branch, consumer, page, limit, narrowed)
            _show_poll(blocks, page, json=json)
            if ack and consumer is not None and page.cursor is not None:
                flush_output()  # what is not written is not acknowledged
                graph.changes.ack(consumer, page.cursor)


def _show_poll(blocks: Blocks, page: FeedPage, *, json: bool) -> None:
    if json:
        documents = [_block(cause, changes) for cause, changes in blocks]
        show_json({"blocks": documents, "cursor": page.cursor, "caught_up": page.caught_up})
        return
    for cause, changes in blocks:
        _show_block(cause, changes)
        show("")
    if not blocks:
        show("(no new commits)")
    show(f"cursor: {page.cursor}")
    show(f"caught_up: {'true' if page.caught_up else 'false'}")


Blocks = list[tuple["Commit", list["Change"]]]


def _whole_poll(
    graph: Graph,
    branch: str,
    consumer: str | None,
    page: FeedPage,
    limit: int,
    narrowed: ChangeFilter,
) -> tuple[Blocks, FeedPage]:
    """Every page of a poll; a block that pages cut is put together again."""
    blocks: Blocks = []
    while True:
        for block in page.blocks:
            if blocks and blocks[-1][0].id == block.cause.id:
                blocks[-1][1].extend(block.changes)
            else:
                blocks.append((block.cause, list(block.changes)))
        if page.next_page_token is None:
            return blocks, page
        token = page.next_page_token
        page = graph.changes.poll(
            branch, consumer=consumer, page_token=token, limit=limit, **narrowed
        )


@app.command()
def baseline(
    out: Annotated[str, typer.Option("--out", metavar="FILE", help="Where the records go.")],
    path: GraphPath = None,
    branch: Branch = MAIN,
    consumer: ConsumerName = None,
    kind: Kinds = None,
    type_: Types = None,
    op: Ops = None,
    json: Json = False,
    uri: Uri = None,
    store: Store = None,
) -> None:
    """Write everything at a branch's head to a file, and the cursor to poll on from.

    The file appears when it is whole and durable; --op narrows only what the cursor tells later.
    """
    with plain_errors():
        with open_graph(graph_uri(path, uri, store), read_only=True) as graph:
            taken = graph.changes.baseline(
                branch, consumer=consumer, **change_filter(kind, type_, op)
            )
            taken.to_file(out)
        if json:
            show_json(taken.to_json())
            return
        show(f"snapshot: {out}")
        for key, value in taken.to_json().items():
            show(f"{key}: {value}")


def _block(cause: Commit, changes: list[Change]) -> dict[str, object]:
    from omnigraph.exec.changes.feed import FeedBlock

    return FeedBlock(cause, tuple(changes)).to_json()


def _show_block(cause: Commit, changes: list[Change]) -> None:
    for line in cause_lines(cause):
        show(line)
    if not changes:
        show("(no changes)")
    for change in changes:
        for line in change_lines(change):
            show(line)
