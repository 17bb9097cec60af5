"""`omnigraph changes …` and `omnigraph commit changes`: the change feed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
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
    Dates,
    DatesForm,
    GraphPath,
    Json,
    Store,
    Types,
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

_PAGE = 1_000
Limit = Annotated[
    int | None,
    typer.Option("--limit", metavar="N", min=1, help="Show at most N changes, else all."),
]
PageToken = Annotated[
    str | None, typer.Option("--page-token", metavar="TOKEN", help="Show one page, this one.")
]


@commit_app.command(name="changes")
def of_commit(
    commit: CommitId,
    path: GraphPath = None,
    limit: Limit = None,
    page_token: PageToken = None,
    kind: Kinds = None,
    type_: Types = None,
    op: Ops = None,
    dates: Dates = DatesForm.NUMBERS,
    json: Json = False,
    store: Store = None,
) -> None:
    """Show what a commit changed against its first parent.

    Without --limit and --page-token everything is shown; with either, one page and the token of
    the next.
    """
    with plain_errors(), open_graph(graph_uri(path, store), read_only=True) as graph:
        cause = graph.commits.get(commit)
        changes = graph.commits.changes(commit, **change_filter(kind, type_, op))
        if limit is None and page_token is None:
            if json:
                show_json(_block(cause, list(changes), dates))
            else:
                _show_block(cause, changes)
            return
        page = changes.page(limit or _PAGE, page_token)
        token = page.next_page_token
        if json:
            document = _block(cause, page.changes, dates)
            show_json(document if token is None else {**document, "next_page_token": token})
            return
        _show_block(cause, page.changes)
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
    limit: Limit = None,
    page_token: PageToken = None,
    kind: Kinds = None,
    type_: Types = None,
    op: Ops = None,
    dates: Dates = DatesForm.NUMBERS,
    json: Json = False,
    store: Store = None,
) -> None:
    """Show the commits of a branch since a place, oldest first, with what each changed.

    With --limit it ends after N changes: with the cursor, or inside a commit with the token of the
    page that goes on. A consumer is shown whole commits, N changes read at a time.

    A registered consumer goes on behind what it acknowledged: with --ack after the output is
    written, else with `changes consumer ack NAME --cursor CURSOR` once its changes are kept.
    """
    exclusive(cursor=cursor, start=start, consumer=consumer, **{"page-token": page_token})
    if ack and consumer is None:
        raise typer.BadParameter("--ack acknowledges for a --consumer: name it")
    if start is not None and start not in ("now", "beginning") and not start.startswith("after:"):
        raise typer.BadParameter(f"'{start}' is no place: write now, beginning or after:POINT")
    with plain_errors():
        narrowed = change_filter(kind, type_, op)
        with open_graph(graph_uri(path, store), read_only=not ack) as graph:
            page = graph.changes.poll(
                branch,
                consumer=consumer,
                cursor=cursor,
                start=start,
                page_token=page_token,
                limit=limit or _PAGE,
                **narrowed,
            )
            pages = iter([page])
            if consumer is not None or (limit is None and page_token is None):
                pages = _every_page(graph, branch, consumer, page, limit or _PAGE, narrowed)
            page = _show_json(pages, dates) if json else _show_pages(pages)
            if ack and consumer is not None and page.cursor is not None:
                flush_output()  # what is not written is not acknowledged
                graph.changes.ack(consumer, page.cursor)


def _show_json(pages: Iterator[FeedPage], dates: DatesForm) -> FeedPage:
    """One document of every page; a block that pages cut is put together again."""
    blocks: list[tuple[Commit, list[Change]]] = []
    for page in pages:
        for block in page.blocks:
            if blocks and blocks[-1][0].id == block.cause.id:
                blocks[-1][1].extend(block.changes)
            else:
                blocks.append((block.cause, list(block.changes)))
    shown = [_block(cause, changes, dates) for cause, changes in blocks]
    caught_up = bool(page.caught_up)
    document: dict[str, object] = {"blocks": shown, "cursor": page.cursor, "caught_up": caught_up}
    if page.next_page_token is not None:
        document["next_page_token"] = page.next_page_token
    show_json(document)
    return page


def _show_pages(pages: Iterator[FeedPage]) -> FeedPage:
    """Every page as it is read; a block that pages cut goes on."""
    shown: str | None = None
    for page in pages:
        for block in page.blocks:
            if block.cause.id == shown:
                _show_changes(block.changes)
                continue
            if shown is not None:
                show("")
            _show_block(block.cause, block.changes)
            shown = block.cause.id
        flush_output()
    show("(no new commits)" if shown is None else "")
    if page.next_page_token is not None:
        show(f"next_page_token: {page.next_page_token}")
    else:
        show(f"cursor: {page.cursor}")
    show(f"caught_up: {'true' if page.caught_up else 'false'}")
    return page


def _every_page(
    graph: Graph,
    branch: str,
    consumer: str | None,
    page: FeedPage,
    limit: int,
    narrowed: ChangeFilter,
) -> Iterator[FeedPage]:
    """The pages of a poll, each read when it is asked for."""
    yield page
    while page.next_page_token is not None:
        token = page.next_page_token
        page = graph.changes.poll(
            branch, consumer=consumer, page_token=token, limit=limit, **narrowed
        )
        yield page


@app.command()
def baseline(
    out: Annotated[str, typer.Option("--out", metavar="FILE", help="Where the records go.")],
    path: GraphPath = None,
    branch: Branch = MAIN,
    consumer: ConsumerName = None,
    kind: Kinds = None,
    type_: Types = None,
    op: Ops = None,
    dates: Dates = DatesForm.NUMBERS,
    json: Json = False,
    store: Store = None,
) -> None:
    """Write everything at a branch's head to a file, and the cursor to poll on from.

    The file appears when it is whole and durable; --op narrows only what the cursor tells later.
    """
    with plain_errors():
        with open_graph(graph_uri(path, store), read_only=True) as graph:
            taken = graph.changes.baseline(
                branch, consumer=consumer, **change_filter(kind, type_, op)
            )
            taken.to_file(out, dates.value)
        if json:
            show_json(taken.to_json())
            return
        show(f"snapshot: {out}")
        for key, value in taken.to_json().items():
            show(f"{key}: {value}")


def _block(cause: Commit, changes: Sequence[Change], dates: DatesForm) -> dict[str, object]:
    from omnigraph.exec.changes.feed import FeedBlock

    return FeedBlock(cause, tuple(changes)).to_json(dates)


def _show_block(cause: Commit, changes: Iterable[Change]) -> None:
    for line in cause_lines(cause):
        show(line)
    if not _show_changes(changes):
        show("(no changes)")


def _show_changes(changes: Iterable[Change]) -> int:
    """Each change as it is read; how many there were."""
    count = 0
    for change in changes:
        count += 1
        for line in change_lines(change):
            show(line)
    return count
