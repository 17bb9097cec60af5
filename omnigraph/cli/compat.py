"""Deprecated spellings of commands and options, which earlier releases used.

Invariant: an older spelling does what its new one does and warns with the new one's name; `--name`
and `schema get`, which mean what they always meant, do not warn.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from omnigraph.cli import schema
from omnigraph.cli.address import graph_uri
from omnigraph.cli.load_call import BASE_OPTION, MODE_OPTION, Mode, load_document, run_load
from omnigraph.cli.options import (
    MAIN,
    Actor,
    Branch,
    Data,
    GraphPath,
    Json,
    Message,
    Meta,
    Quiet,
    Store,
    metadata,
)
from omnigraph.cli.shapes import rounded_lines
from omnigraph.cli.terminal import plain_errors, show, show_json, warn
from omnigraph.types import parse_table_key

if TYPE_CHECKING:
    from omnigraph.exec.load.request import LoadResult

_COMMANDS = {
    ("check",): ("lint",),
    ("query", "lint"): ("lint",),
    ("query", "check"): ("lint",),
    ("read",): ("query",),
    ("change",): ("mutate",),
}


def current_spelling(arguments: list[str]) -> list[str]:
    """The arguments with an older command replaced by the one it is now."""
    for old, new in _COMMANDS.items():
        if tuple(arguments[: len(old)]) == old and not _is_upkeep(arguments):
            warn(f"'omnigraph {' '.join(old)}' is now 'omnigraph {' '.join(new)}'")
            return [*new, *arguments[len(old) :]]
    return arguments


def _is_upkeep(arguments: list[str]) -> bool:
    """Whether `check` means the graph: queries were checked with --query."""
    return arguments[:1] == ["check"] and not any(a.startswith("--query") for a in arguments)


# Options

QueryName = Annotated[
    str | None, typer.Option("--name", metavar="NAME", help="Which query of the file.")
]
OlderJsonl = Annotated[bool, typer.Option("--jsonl", hidden=True)]
OlderTables = Annotated[list[str] | None, typer.Option("--table", hidden=True)]


def export_types(
    types: list[str] | None, tables: list[str] | None, *, jsonl: bool
) -> list[str] | None:
    """The types of an export, with those that `--table` names, as `Person` or as `node:Person`."""
    if jsonl:
        warn("--jsonl is what export writes anyway and need not be said")
    if tables:
        warn("'--table' is now '--type'")
        return [*(types or ()), *map(_type_name, tables)]
    return types


def _type_name(table: str) -> str:
    try:
        return parse_table_key(table)[1]
    except ValueError:  # of a type, or refused as one
        return table


# Commands


def add_to(app: typer.Typer) -> None:
    """Make the older commands known, out of sight."""
    app.command(hidden=True)(ingest)
    schema.app.command("get", hidden=True)(schema.show)


def ingest(
    uri: GraphPath = None,
    *,
    data: Data,
    mode: Annotated[Mode, MODE_OPTION] = Mode.MERGE,
    branch: Branch = MAIN,
    base: Annotated[str, BASE_OPTION] = MAIN,
    actor: Actor = None,
    message: Message = None,
    meta: Meta = None,
    json: Json = False,
    store: Store = None,
    quiet: Quiet = False,
) -> None:
    """Load data of the older, forgiving format. Use `load` instead."""
    with plain_errors():
        warn("'omnigraph ingest' is now 'omnigraph load', which takes no unknown properties")
        where = graph_uri(uri, store)
        done = run_load(
            "ingest",
            where,
            data,
            mode,
            json=json,
            quiet=quiet,
            branch=branch,
            from_branch=base,
            actor=actor,
            message=message,
            metadata=metadata(meta),
            permissive=True,
        )
        if json:
            show_json(_ingest_document(where, base, done))
            return
        branch_state = "branch created" if done.branch_created else "branch exists"
        show(
            f"ingested {done.total_entities} entities from {where} into branch {done.branch} "
            f"from {base} with {done.mode} ({branch_state})"
        )
        for kind, counts in (("node", done.nodes), ("edge", done.edges)):
            for name, count in counts.items():
                show(f"{kind} type '{name}': {count}")
        for line in rounded_lines(done.rounded):
            show(line)


def _ingest_document(uri: str, base: str, done: LoadResult) -> dict[str, Any]:
    document = {**load_document(uri, done), "base_branch": base, "actor_id": done.actor_id}
    first = ("uri", "branch", "base_branch", "branch_created", "mode", "nodes", "edges")
    words = (*first, "total_entities", "rounded", "actor_id", "commit")
    return {word: document[word] for word in words if word in document}
