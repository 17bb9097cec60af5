"""`omnigraph lint` and `omnigraph explain`: query files against a schema."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from omnigraph.cli.terminal import read_text, show, show_json, told_plainly

if TYPE_CHECKING:
    from omnigraph.catalog.model import Catalog
    from omnigraph.plan.lint import LintReport, QueryResult

SchemaFile = Annotated[
    str, typer.Option("--schema", metavar="FILE", help="The schema to check against (.pg).")
]
QueryFile = Annotated[str, typer.Option("--query", metavar="FILE", help="The query file (.gq).")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def lint(schema: SchemaFile, query: QueryFile, json: Json = False) -> None:
    """Check every query of a file. Exits with 1 if one has an error."""
    from omnigraph.plan.lint import lint as lint_queries

    with told_plainly():
        report = lint_queries(read_text(query), _catalog(schema))
        if json:
            source = {"kind": "file", "path": schema}
            document = report.to_json()
            status = document.pop("status")
            show_json({"status": status, "schema_source": source, "query_path": query, **document})
        else:
            _show_report(report)
    if report.errors:
        raise typer.Exit(1)


def explain(
    schema: SchemaFile,
    query: QueryFile,
    name: Annotated[str | None, typer.Argument(help="Which query of the file.")] = None,
    named: Annotated[str | None, typer.Option("--name", help="The same, as an option.")] = None,
) -> None:
    """Print the plan of a query: what would be done, in which order."""
    from omnigraph.plan.compile import compile_query
    from omnigraph.plan.explain import explain as explain_plan

    with told_plainly():
        plan = compile_query(read_text(query), _catalog(schema), name or named)
        show(explain_plan(plan).rstrip("\n"))


def _catalog(path: str) -> Catalog:
    from omnigraph.catalog.accept import accept

    return accept(read_text(path))


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


def _result_lines(result: QueryResult) -> list[str]:
    if result.error is None:
        lines = [f"OK    query `{result.name}` ({result.kind})"]
    else:
        place = f"(line {result.error.line}, column {result.error.column})"
        lines = [f"ERROR query `{result.name}`: {result.error.headline} {place}"]
        lines += [f"      {line}" for line in result.error.excerpt.splitlines()]
        if result.error.hint:
            lines.append(f"      help: {result.error.hint}")
    return [*lines, *(f"WARN  query `{result.name}`: {text}" for text in result.warnings)]
