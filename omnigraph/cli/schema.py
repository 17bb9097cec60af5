"""`omnigraph schema …`: check, show, plan and apply a schema."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from omnigraph.cli.address import (
    graph_uri,
    require_outside_cluster,
    two_points_and_uri,
    write_target,
)
from omnigraph.cli.engine import open_graph
from omnigraph.cli.options import (
    MAIN,
    Actor,
    Branch,
    BranchOrMain,
    GraphPath,
    Json,
    Message,
    Meta,
    NextSchema,
    Quiet,
    Snapshot,
    Store,
    exclusive,
    metadata,
)
from omnigraph.cli.shapes import source_error_document
from omnigraph.cli.terminal import plain_errors, read_text, show_json, warn
from omnigraph.cli.terminal import show as show_text
from omnigraph.errors import ParseError

if TYPE_CHECKING:
    from omnigraph.catalog.accept import Admission
    from omnigraph.catalog.schema_diff import MigrationPlan
    from omnigraph.exec.schema.migrate import SchemaApplied

app = typer.Typer(
    name="schema",
    help="Check, show and change schemas.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@app.callback()
def schema() -> None:
    """Check, show and change schemas."""


@app.command()
def check(
    file: Annotated[str, typer.Argument(metavar="FILE", help="The schema (.pg).")],
    against: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="An older schema: also plan the change from it."),
    ] = None,
    allow_data_loss: Annotated[
        bool, typer.Option(help="With --against: plan drops that reclaim the data.")
    ] = False,
    json: Json = False,
) -> None:
    """Check a schema file. Exits with 1 if it is not accepted."""
    from omnigraph.catalog.accept import accept, admit
    from omnigraph.catalog.schema_diff import plan_migration

    with plain_errors():
        text = read_text(file)
        plan = None
        try:
            admission = admit(text)
            if against is not None:
                old = accept(read_text(against))
                plan = plan_migration(old, text, allow_data_loss=allow_data_loss)
        except ParseError as cause:
            if not json:
                raise
            show_json(_error_document(file, cause))
            raise typer.Exit(1) from None
        if json:
            show_json(_document(file, admission, plan))
        else:
            _show(file, admission, plan)


@app.command()
def show(
    path: GraphPath = None,
    branch: BranchOrMain = None,
    snapshot: Snapshot = None,
    json: Json = False,
    store: Store = None,
) -> None:
    """Print the schema of a graph, of one of its branches, or as it was at a point in time."""
    with plain_errors():
        exclusive(branch=branch, snapshot=snapshot)
        point = branch if snapshot is None else snapshot
        with open_graph(graph_uri(path, store), read_only=True) as graph:
            text = graph.schema.text if point is None else graph.schema.at(point).text
        if json:
            show_json({"schema_source": text})
        else:
            show_text(text.rstrip("\n"))


Backfill = Annotated[
    list[str] | None,
    typer.Option(
        "--backfill",
        metavar="TYPE.PROPERTY=EXPR",
        help="Values for an added property: SQL over the row. May be repeated.",
    ),
]


@app.command()
def diff(
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="BEFORE AFTER [URI]", help="Two branches or points; the graph."),
    ] = None,
    branch: Annotated[str | None, typer.Option("--branch", hidden=True)] = None,
    against: Annotated[str, typer.Option("--against", hidden=True)] = MAIN,
    json: Json = False,
    store: Store = None,
) -> None:
    """Print the steps from the schema of BEFORE to that of AFTER. Changes nothing."""
    with plain_errors():
        before, after, path = _compared(list(words or ()), branch, against)
        where = two_points_and_uri(before, after, path, store)
        with open_graph(where, read_only=True) as graph:
            steps = graph.diff(before, after).schema_steps
        if json:
            supported = all(step.facts["kind"] != "change_declaration" for step in steps)
            document = {"uri": where, "from": before, "to": after, "step_count": len(steps)}
            listed = [step.to_json() for step in steps]
            show_json({**document, "supported": supported, "steps": listed})
        else:
            show_text("\n".join(f"- {step}" for step in steps) or "no schema changes")


def _compared(words: list[str], branch: str | None, against: str) -> tuple[str, str, str | None]:
    """The two points and the graph. The older form names a branch by --branch and --against."""
    points = [] if branch is None else [against, branch]
    if not 2 <= len(points) + len(words) <= 3:
        raise typer.BadParameter("a schema diff is between two points: write BEFORE AFTER [URI]")
    before, after, *rest = [*points, *words]
    return before, after, rest[0] if rest else None


@app.command()
def plan(
    schema: NextSchema,
    path: GraphPath = None,
    branch: Branch = MAIN,
    allow_data_loss: Annotated[
        bool, typer.Option(help="Plan drops that reclaim the data.")
    ] = False,
    backfill: Backfill = None,
    json: Json = False,
    store: Store = None,
) -> None:
    """Print the steps from a graph's schema to another one. Changes nothing."""
    with plain_errors():
        given = _given(backfill)
        where = graph_uri(path, store)
        text = read_text(schema)
        with open_graph(where, read_only=True) as graph:
            steps = graph.schema.plan(
                text, allow_data_loss=allow_data_loss, backfill=given, branch=branch
            )
        if json:
            count = {"step_count": len(steps.steps)}
            document = steps.to_json()
            supported = document.pop("supported")
            show_json({"uri": where, "supported": supported, **count, **document})
        else:
            show_text(steps.render(where))


@app.command()
def apply(
    schema: NextSchema,
    path: GraphPath = None,
    branch: Branch = MAIN,
    allow_data_loss: Annotated[
        bool, typer.Option(help="Reclaim what is dropped, in earlier commits too.")
    ] = False,
    backfill: Backfill = None,
    actor: Actor = None,
    message: Message = None,
    meta: Meta = None,
    json: Json = False,
    store: Store = None,
    quiet: Quiet = False,
) -> None:
    """Change a graph's schema, and its data with it, as one commit.

    Beside other branches a change may only add or widen; they keep their schema until they are
    merged. With --branch the schema of that branch changes alone.
    """
    with plain_errors():
        given = _given(backfill)
        where = graph_uri(path, store)
        text = read_text(schema)
        require_outside_cluster(where, "schema apply")
        write_target("schema apply", where, quiet=quiet)
        with open_graph(where) as graph:
            done = graph.schema.apply(
                text,
                allow_data_loss=allow_data_loss,
                backfill=given,
                actor=actor,
                message=message,
                metadata=metadata(meta),
                branch=branch,
            )
        if json:
            show_json({"uri": where, **done.to_json()})
        else:
            show_text("\n".join(_applied(where, done)))


def _given(backfill: list[str] | None) -> dict[str, str]:
    values = {}
    for text in backfill or ():
        name, equals, expression = text.partition("=")
        if not equals or "." not in name or not expression.strip():
            raise typer.BadParameter(f"--backfill '{text}' is not TYPE.PROPERTY=EXPR")
        values[name.strip()] = expression.strip()
    return values


def _applied(where: str, done: SchemaApplied) -> Iterator[str]:
    from omnigraph.catalog.schema_diff import hint_lines

    yield f"schema apply for {where}"
    yield "supported: yes"
    yield f"applied: {'yes' if done.applied else 'no'}"
    yield f"graph_manifest_version: {done.graph_manifest_version}"
    yield from (f"- {step}" for step in done.steps)
    if not done.steps:
        yield "no schema changes"
    yield from hint_lines(done.hints)


def _document(file: str, admission: Admission, plan: MigrationPlan | None) -> dict[str, object]:
    from omnigraph.catalog.suggested_keys import suggested_keys

    catalog = admission.catalog
    document: dict[str, object] = {
        "status": "ok",
        "schema_path": file,
        "nodes": list(catalog.nodes),
        "edges": list(catalog.edges),
        "interfaces": list(catalog.interfaces),
        "diagnostics": [
            {
                "code": diagnostic.code,
                "entity": diagnostic.entity,
                "message": diagnostic.text,
                "line": diagnostic.line,
                "column": diagnostic.column,
            }
            for diagnostic in (plan or admission).diagnostics
        ],
        "suggestions": [
            {"edge": each.edge, "key": each.key, "message": str(each)}
            for each in suggested_keys(catalog)
        ],
    }
    if plan is not None:
        document["plan"] = plan.to_json()
    return document


def _error_document(file: str, cause: ParseError) -> dict[str, object]:
    return {"status": "error", "schema_path": file, "error": source_error_document(cause)}


def _show(file: str, admission: Admission, plan: MigrationPlan | None) -> None:
    from omnigraph.catalog.suggested_keys import suggested_keys

    catalog = admission.catalog
    counts = (
        f"{len(catalog.nodes)} node type(s), {len(catalog.edges)} edge type(s), "
        f"{len(catalog.interfaces)} interface(s)"
    )
    show_text(f"OK    {file}: {counts}")
    for diagnostic in (plan or admission).diagnostics:
        warn(str(diagnostic))
    for suggestion in suggested_keys(catalog):
        typer.echo(f"hint: {suggestion}", err=True)
    if plan is not None:
        show_text(plan.render(file))
