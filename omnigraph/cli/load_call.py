"""Load command: a call of `Graph.load` from the command line, and its result as JSON.

Invariant: every command that loads says where the write goes, asks before it throws remote data
away, and shows the same progress.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import typer

from omnigraph.arguments import as_given
from omnigraph.cli import completing
from omnigraph.cli.address import confirm_destructive, write_target
from omnigraph.cli.engine import open_graph
from omnigraph.cli.progress import following
from omnigraph.cli.shapes import commit_document, rounded_document
from omnigraph.errors import ConstraintViolated, NotFound
from omnigraph.types import parse_table_key

if TYPE_CHECKING:
    from omnigraph.catalog.model import Type
    from omnigraph.exec.load.request import LoadIndexes, LoadResult
    from omnigraph.graph import Graph


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
MODE_OPTION = typer.Option("--mode", help="What becomes of rows that are there already.")
ON_DUPLICATE_OPTION = typer.Option(
    "--on-duplicate", help="An id that comes twice in a merge or patch: the last counts, or none."
)
BASE_OPTION = typer.Option(
    "--from",
    metavar="BASE",
    help="Create the branch from this one.",
    autocompletion=completing.branches,
)


@dataclass(frozen=True, slots=True)
class RowsType:
    """Type of rows that do not say it themselves: of nodes, of edges, or whichever has the name."""

    node: str | None = None
    edge: str | None = None
    either: str | None = None

    def named(self, graph: Graph, branch: str, base: str | None) -> dict[str, Any]:
        """The arguments of `Graph.load`."""
        if self.either is None:
            return {"type": self.node, "edge": self.edge}
        try:
            catalog = graph.schema.on(branch).catalog
        except NotFound:
            if base is None:
                return {"type": self.either}  # the load says that there is no such branch
            catalog = graph.schema.on(base).catalog
        is_edge = self.either in catalog.edges and self.either not in catalog.nodes
        if not is_edge and self.either not in catalog.nodes:
            from omnigraph.catalog.near_names import did_you_mean, family_hint

            known = (owner.name for owner in catalog.types)
            hint = family_hint(self.either, catalog) or did_you_mean(self.either, known)
            raise NotFound("type", self.either, hint)
        return {"edge" if is_edge else "type": self.either}


def column_names(given: list[str] | None) -> dict[str, str | None]:
    """The properties of `--column`, by the column of the data; `THEIRS=` leaves a column out."""
    names: dict[str, str | None] = {}
    for word in given or ():
        theirs, equals, ours = word.rpartition("=")
        if not equals:
            raise typer.BadParameter(f"--column '{word}' is not THEIRS=OURS, as in Title=title")
        if theirs in names:
            raise typer.BadParameter(f"--column gives '{theirs}' twice")
        names[theirs] = ours or None
    return names


def run_load(
    verb: str,
    uri: str,
    data: str,
    mode: Mode,
    *,
    json: bool,
    quiet: bool,
    rows: RowsType = RowsType(),  # noqa: B008
    **options: Any,
) -> LoadResult:
    """Load a file, or standard input as `-`; `options` are those of `Graph.load`."""
    write_target(verb, uri, quiet=quiet)
    if mode is Mode.OVERWRITE:
        confirm_destructive(f"{verb} --mode overwrite", uri, json=json)
    source = sys.stdin.buffer if data == "-" else data
    with open_graph(uri) as graph, following("load", quiet=quiet) as progress:
        named = rows.named(graph, options["branch"], options.get("from_branch"))
        try:
            return graph.load(source, as_given(str(mode)), progress=progress, **named, **options)
        except ConstraintViolated as refused:
            for line in _column_hints(graph, options["branch"], refused, named):
                typer.echo(line, err=True)
            if options.get("rejects") is not None:
                # Edges are checked only once the nodes at their ends could be read.
                file = f"{options['rejects']}/rejects.jsonl"
                typer.echo(f"{file} has every bad record that was found", err=True)
            raise


def _column_hints(
    graph: Graph, branch: str, refused: ConstraintViolated, named: dict[str, Any]
) -> Iterator[str]:
    """How to load columns whose names are not those of properties."""
    from omnigraph.exec.load.columnar import ADVICE_ON_COLUMNS

    unknown = [
        (each.type_name, each.property)
        for each in refused.violations
        if each.rule == "property" and each.property is not None and each.line is None
        if ADVICE_ON_COLUMNS in each.text
    ]
    if not unknown:
        return
    from omnigraph.catalog.near_names import nearest

    types = {owner.name: owner for owner in graph.schema.on(branch).catalog.types}
    if not any(named.values()):
        yield "hint: --column is for the rows of one type, so load this file by itself:"
    for type_name, name in dict.fromkeys(unknown):
        known = _fillable(types[type_name]) if type_name in types else []
        near = nearest(name, known)
        of_type = "" if any(named.values()) else f"--type {type_name} "
        if near is not None:
            yield f"hint: {of_type}--column '{name}={near}' fills {type_name}.{near}"
        else:
            yield (
                f"hint: {of_type}--column '{name}=…' fills one of {type_name}'s "
                f"{', '.join(known)}; --column '{name}=' leaves the column out"
            )


def _fillable(owner: Type) -> list[str]:
    """What a column may fill: the two ends of an edge, and properties."""
    ends = ["from", "to"] if hasattr(owner, "source") else []
    return [*ends, *(prop.name for prop in owner.properties)]


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
        **({"superseded": done.superseded} if done.superseded else {}),
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
