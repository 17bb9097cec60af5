"""`omnigraph changes consumer …`: registered consumers of the change feed.

Invariant: a consumer's claim is shown with how far it is behind, and changed by name alone.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from omnigraph.cli.address import graph_uri
from omnigraph.cli.engine import open_graph
from omnigraph.cli.filters import Kinds, Ops, change_filter
from omnigraph.cli.options import MAIN, Branch, GraphPath, Json, MaxLag, Store, Types
from omnigraph.cli.terminal import plain_errors, show, show_json

if TYPE_CHECKING:
    from omnigraph.exec.changes.consumers import FeedConsumer

app = typer.Typer(
    name="consumer",
    help="Consumers of the feed for whom cleanup keeps what they have not read.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

Name = Annotated[str, typer.Argument(metavar="NAME", help="The consumer's name.")]


@app.command()
def add(
    name: Name,
    path: GraphPath = None,
    branch: Branch = MAIN,
    max_lag: MaxLag = None,
    max_lag_commits: Annotated[
        int | None,
        typer.Option("--max-lag-commits", metavar="N", min=1, help="The most unread commits."),
    ] = None,
    start: Annotated[
        str | None,
        typer.Option("--start", metavar="PLACE", help="now (default), beginning or after:COMMIT."),
    ] = None,
    kind: Kinds = None,
    type_: Types = None,
    op: Ops = None,
    json: Json = False,
    store: Store = None,
) -> None:
    """Register a consumer of a branch's feed. Past its largest lag it may lose commits."""
    if max_lag is None and max_lag_commits is None:
        raise typer.BadParameter("say its largest lag: --max-lag DUR, --max-lag-commits N, or both")
    with plain_errors():
        with open_graph(graph_uri(path, store)) as graph:
            added = graph.changes.register(
                name,
                branch,
                max_lag=max_lag,
                max_lag_commits=max_lag_commits,
                start=start,
                **change_filter(kind, type_, op),
            )
        if json:
            show_json(added.to_json())
            return
        show(f"registered feed consumer {added.name} on {added.branch} at {added.acknowledged}")


@app.command(name="list")
def list_(path: GraphPath = None, json: Json = False, store: Store = None) -> None:
    """List the consumers, and how far each is behind."""
    with plain_errors():
        with open_graph(graph_uri(path, store), read_only=True) as graph:
            consumers = graph.changes.consumers()
        if json:
            show_json({"consumers": [consumer.to_json() for consumer in consumers]})
            return
        for consumer in consumers:
            show(_line(consumer))
        if not consumers:
            show("(no feed consumers)")


@app.command()
def ack(
    name: Name,
    cursor: Annotated[
        str, typer.Option("--cursor", metavar="CURSOR", help="Where a poll or baseline ended.")
    ],
    path: GraphPath = None,
    json: Json = False,
    store: Store = None,
) -> None:
    """Acknowledge that everything up to a cursor is kept."""
    with plain_errors():
        with open_graph(graph_uri(path, store)) as graph:
            consumer = graph.changes.ack(name, cursor)
        if json:
            show_json(consumer.to_json())
            return
        show(_line(consumer))


@app.command()
def remove(
    name: Name,
    path: GraphPath = None,
    json: Json = False,
    store: Store = None,
) -> None:
    """Remove a consumer; nothing is kept for it any longer."""
    with plain_errors():
        with open_graph(graph_uri(path, store)) as graph:
            graph.changes.unregister(name)
        if json:
            show_json({"removed": name})
            return
        show(f"removed feed consumer {name}")


def _line(consumer: FeedConsumer) -> str:
    lag = f"{consumer.behind_commits} commit(s) behind"
    if consumer.behind_seconds:
        lag += f", the oldest {timedelta(seconds=consumer.behind_seconds)} ago"
    seconds, commits = consumer.max_lag_seconds, consumer.max_lag_commits
    limits = [] if commits is None else [f"{commits} commit(s)"]
    limits += [] if seconds is None else [str(timedelta(seconds=seconds))]
    of = f"{consumer.name} on {consumer.branch}: {consumer.state}"
    return f"{of}, {lag} (may be {' or '.join(limits)}), acknowledged {consumer.acknowledged}"
