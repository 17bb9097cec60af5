"""`omnigraph lint` and `omnigraph explain`: query files against a schema."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from omnigraph.cli.address import graph_uri, name_and_graph
from omnigraph.cli.compat import QueryName
from omnigraph.cli.data import query_source
from omnigraph.cli.engine import open_graph
from omnigraph.cli.options import GraphPath, Json, QueryFile, QueryText, Store, Words
from omnigraph.cli.terminal import plain_errors, read_text, show, show_json

if TYPE_CHECKING:
    from omnigraph.catalog.model import Catalog
    from omnigraph.plan.lint import LintReport, QueryLint

SchemaFile = Annotated[
    str | None,
    typer.Option("--schema", metavar="FILE", help="A schema (.pg) instead of a graph's."),
]


def lint(
    path: GraphPath = None,
    query: QueryFile = None,
    source: QueryText = None,
    schema: SchemaFile = None,
    json: Json = False,
    store: Store = None,
) -> None:
    """Check every query of a file, or of a text. Exits with 1 if one has an error."""
    from omnigraph.plan.lint import lint as lint_queries

    with plain_errors():
        text = query_source(query, source)
        catalog, checked_against = _schema(schema, path, store)
        report = lint_queries(text, catalog)
        if json:
            document = report.to_json()
            status = document.pop("status")
            named = {"schema_source": checked_against, "query_path": query or "-e"}
            show_json({"status": status, **named, **document})
        else:
            _show_report(report)
    if report.errors:
        raise typer.Exit(1)


def explain(
    words: Words = None,
    query: QueryFile = None,
    source: QueryText = None,
    schema: SchemaFile = None,
    named: QueryName = None,
    json: Json = False,
    store: Store = None,
) -> None:
    """Print the plan of a query: what would be done, in which order."""
    from omnigraph.plan.compile import compile_query
    from omnigraph.plan.explain import explain as explain_plan

    with plain_errors():
        text = query_source(query, source)
        name, path = name_and_graph(list(words or ()), named, schema or store)
        catalog, _ = _schema(schema, path, store)
        plan = compile_query(text, catalog, name)
        lines = explain_plan(plan).rstrip("\n")
        if json:
            show_json({"query_name": plan.name, "plan": lines.splitlines()})
        else:
            show(lines)


def _schema(file: str | None, *uris: str | None) -> tuple[Catalog, dict[str, object]]:
    """The schema to check against, and what it was taken from."""
    if file is None:
        where = _named(*uris)
        with open_graph(where, read_only=True) as graph:
            return graph.schema.catalog, {"kind": "graph", "uri": where}
    if any(uri is not None for uri in uris):
        raise typer.BadParameter("--schema and a graph are mutually exclusive: pass one")
    from omnigraph.catalog.accept import accept

    return accept(read_text(file)), {"kind": "file", "path": file}


def _named(*uris: str | None) -> str:
    try:
        return graph_uri(*uris)
    except typer.BadParameter:
        if any(uri is not None for uri in uris):
            raise
        raise typer.BadParameter("say against what: pass --schema FILE, or name a graph") from None


def _show_report(report: LintReport) -> None:
    for result in report.results:
        for line in _result_lines(result):
            show(line)
    for finding in report.findings:
        show(f"{_LABELS[finding.severity]} {finding.code} {finding.message}")
    if report.parse_error is not None:
        for line in report.parse_error.excerpt.splitlines():
            show(f"      {line}")
    counts = f"{report.errors} error(s), {report.warnings} warning(s), {report.infos} info item(s)"
    show(f"INFO  Lint complete: {len(report.results)} queries processed ({counts})")


_LABELS = {"error": "ERROR", "warning": "WARN ", "info": "INFO "}


def _result_lines(result: QueryLint) -> list[str]:
    if result.error is None:
        lines = [f"OK    query `{result.name}` ({result.kind})"]
    else:
        position = f"(line {result.error.line}, column {result.error.column})"
        lines = [f"ERROR query `{result.name}`: {result.error.headline} {position}"]
        lines += [f"      {line}" for line in result.error.excerpt.splitlines()]
        if result.error.hint:
            lines.append(f"      help: {result.error.hint}")
    return [*lines, *(f"WARN  query `{result.name}`: {text}" for text in result.warnings)]
