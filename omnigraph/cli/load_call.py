"""Load command: a call of `Graph.load` from the command line, and its result as JSON.

Invariant: every command that loads says where the write goes, asks before it throws remote data
away, and shows the same progress.
"""

from __future__ import annotations

import sys
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import typer

from omnigraph.cli.address import confirm_destructive, write_target
from omnigraph.cli.engine import open_graph
from omnigraph.cli.progress import following
from omnigraph.cli.shapes import commit_document, rounded_document
from omnigraph.types import parse_table_key

if TYPE_CHECKING:
    from omnigraph.exec.load.request import LoadIndexes, LoadResult


class Mode(StrEnum):
    """Load mode: the treatment of rows that exist."""

    OVERWRITE = "overwrite"
    APPEND = "append"
    MERGE = "merge"
    PATCH = "patch"


class OnDuplicate(StrEnum):
    """Treatment of an id that comes twice in the input of a merge or a patch."""

    LAST = "last"
    REFUSE = "refuse"


class Indexes(StrEnum):
    """When the indexes that the schema asks for are built: after the load, or by upkeep."""

    NOW = "now"
    LATER = "later"


INDEXES_OPTION = typer.Option(
    "--indexes", help="Build the schema's indexes after the commit, or leave them to optimize."
)
MODE_OPTION = typer.Option("--mode", help="What to do with what is there.")
ON_DUPLICATE_OPTION = typer.Option(
    "--on-duplicate", help="An id that comes twice in a merge or patch: the last counts, or none."
)
BASE_OPTION = typer.Option("--from", metavar="BASE", help="Create the branch from this one.")


def run_load(
    verb: str, uri: str, data: str, mode: Mode, *, json: bool, quiet: bool, **options: Any
) -> LoadResult:
    """Load a file, or standard input as `-`; `options` are those of `Graph.load`."""
    write_target(verb, uri, quiet=quiet)
    if mode is Mode.OVERWRITE:
        confirm_destructive(f"{verb} --mode overwrite", uri, json=json)
    source = sys.stdin.buffer if data == "-" else data
    with open_graph(uri) as graph, following("load", quiet=quiet) as progress:
        return graph.load(source, str(mode), progress=progress, **options)


def load_document(uri: str, done: LoadResult) -> dict[str, Any]:
    """A load as JSON: only touched types, in name order."""
    base = {} if done.base_branch is None else {"base_branch": done.base_branch}
    return {
        "uri": uri,
        "branch": done.branch,
        "mode": done.mode,
        **base,
        "branch_created": done.branch_created,
        "nodes": [{"name": n, "entities_loaded": c} for n, c in done.nodes.items()],
        "edges": [{"name": n, "entities_loaded": c} for n, c in done.edges.items()],
        "total_entities": done.total_entities,
        **({"inserted": done.inserted, "updated": done.updated} if done.mode == "patch" else {}),
        **rounded_document(done.rounded),
        **({"beside_equal": done.beside_equal} if done.beside_equal else {}),
        **_indexes_document(done.indexes),
        "commit": commit_document(done.commit),
    }


def _indexes_document(indexes: LoadIndexes) -> dict[str, Any]:
    """The indexes that a load built, and why others are missing; nothing when it had none to."""
    if not indexes.built and indexes.missing is None:
        return {}
    built = [{"table": n.table, "property": n.column, "kind": str(n.kind)} for n in indexes.built]
    reason = {} if indexes.missing is None else {"missing": indexes.missing}
    return {"indexes": {"built": built, "graph_commit_id": indexes.commit_id, **reason}}


def index_lines(indexes: LoadIndexes) -> list[str]:
    """The same for people."""
    names = dict.fromkeys(
        f"{parse_table_key(note.table)[1]}.{note.column}" for note in indexes.built
    )
    lines = [f"indexed {', '.join(names)}"] if names else []
    return lines if indexes.missing is None else [*lines, indexes.missing]
