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

if TYPE_CHECKING:
    from omnigraph.exec.load.request import LoadResult


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
        "commit": commit_document(done.commit),
    }
