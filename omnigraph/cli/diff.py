"""`omnigraph diff`: what turns one branch or commit into another."""

from __future__ import annotations

from collections import Counter
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, assert_never

import typer

from omnigraph.cli import completing
from omnigraph.cli.address import two_points_and_uri
from omnigraph.cli.change_text import diff_lines, preview_lines, schema_lines
from omnigraph.cli.engine import open_graph
from omnigraph.cli.filters import Kinds, Ops, change_filter
from omnigraph.cli.options import Dates, DatesForm, GraphPath, Json, Store, Types, exclusive
from omnigraph.cli.servers import is_served
from omnigraph.cli.shapes import schema_document
from omnigraph.cli.terminal import plain_errors, show, show_json, warn
from omnigraph.errors import NoChanges
from omnigraph.exec.values.json_text import compact_text

if TYPE_CHECKING:
    from omnigraph.exec.changes.diff import Changes
    from omnigraph.graph import Graph

_WORDS = {"insert": "inserted", "update": "updated", "delete": "deleted"}


class DiffFormat(StrEnum):
    """Output format of a diff."""

    DIFF = "diff"
    STAT = "stat"
    JSONL = "jsonl"
    JSON = "json"


def diff(
    before: Annotated[
        str,
        typer.Argument(
            metavar="BEFORE",
            help="A branch or any point: main~3.",
            autocompletion=completing.points,
        ),
    ],
    after: Annotated[
        str,
        typer.Argument(
            metavar="AFTER", help="A branch or any point: a tag.", autocompletion=completing.points
        ),
    ],
    path: GraphPath = None,
    kind: Kinds = None,
    type_: Types = None,
    op: Ops = None,
    format: Annotated[
        DiffFormat | None, typer.Option("--format", help="How to show it, else as a diff.")
    ] = None,
    dates: Dates = DatesForm.NUMBERS,
    json: Json = False,
    store: Store = None,
) -> None:
    """Show what turns BEFORE into AFTER.

    `+` is inserted, `-` deleted, `~` updated. json and jsonl carry every value whole.
    """
    exclusive(json=json, format=None if format is DiffFormat.JSON else format)
    where = two_points_and_uri(before, after, path, store)
    with plain_errors(), open_graph(where, read_only=True) as graph:
        changes = graph.diff(before, after, **change_filter(kind, type_, op))
        ends = changes.between
        shape = DiffFormat.JSON if json else format or DiffFormat.DIFF
        try:
            _show(changes, (before, after), shape, dates)
        except NoChanges as cause:
            if cause.type_name:
                # A type that was dropped and added again stands in the way of all the others.
                text = f"hint: --type shows the types it is given; leave out {cause.type_name}"
                typer.echo(text, err=True)
            raise
        if shape in (DiffFormat.DIFF, DiffFormat.STAT) and not is_served(where):
            _warn_added_again(graph, ends)


def _warn_added_again(graph: Graph, ends: tuple[str, str]) -> None:
    """Say which properties were not compared, because they share only their names."""
    from omnigraph.catalog.added_again import properties_added_again, said_of

    old, new = (graph.schema.at(end).catalog for end in ends)
    if again := properties_added_again(old, new):
        warn(said_of(again))


def _show(changes: Changes, names: tuple[str, str], shape: DiffFormat, dates: DatesForm) -> None:
    match shape:
        case DiffFormat.JSON:
            show_json(_document(changes, dates))
        case DiffFormat.JSONL:
            _show_jsonl(changes, dates)
        case DiffFormat.STAT:
            for line in preview_lines(changes.counts(), changes.schema_steps):
                show(line)
        case DiffFormat.DIFF:
            _show_diff(changes, *names)
        case _:
            assert_never(shape)


def _document(changes: Changes, dates: DatesForm) -> dict[str, object]:
    listed = list(changes)
    counts = Counter((change.kind, change.type, change.op) for change in listed)
    return {
        "before": changes.between[0],
        "after": changes.between[1],
        **schema_document(changes.schema_steps),
        "changes": [change.to_json(dates) for change in listed],
        "statistics": [
            {"kind": kind, "type_name": name, "op": op, "count": count}
            for (kind, name, op), count in counts.items()
        ],
    }


def _show_jsonl(changes: Changes, dates: DatesForm) -> None:
    for step in changes.schema_steps:
        show(compact_text({"kind": "schema", "step": step.to_json()}))
    for change in changes:
        show(compact_text(change.to_json(dates)))


def _show_diff(changes: Changes, before: str, after: str) -> None:
    counts: Counter[str] = Counter()
    for line in schema_lines(changes.schema_steps):
        show(line)
    for change in changes:
        counts[change.op] += 1
        for line in diff_lines(change):
            show(line)
    parts = [f"{counts[op]} {word}" for op, word in _WORDS.items() if counts[op]]
    if steps := len(changes.schema_steps):
        parts.append(f"{steps} schema {'step' if steps == 1 else 'steps'}")
    summary = ", ".join(parts)
    show(f"{before} → {after}: {summary or 'no changes'}")
