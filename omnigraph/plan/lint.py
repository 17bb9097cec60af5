"""Lint of a query file against a schema: type errors, and warnings of likely mistakes.

Invariant: a file lints without errors exactly when every query in it compiles.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from omnigraph.catalog.model import Catalog, NodeType, declared_edge
from omnigraph.catalog.near_names import did_you_mean
from omnigraph.catalog.suggested_keys import suggested_keys
from omnigraph.errors import ParseError, TypeCheckError
from omnigraph.language.query import ast
from omnigraph.language.query.parser import parse_queries
from omnigraph.plan import ir, mutation_ir
from omnigraph.plan.compile import plan_query
from omnigraph.plan.expressions import parts_of_kind
from omnigraph.plan.facts import Operation, describe


@dataclass(frozen=True, slots=True)
class LintFinding:
    """A remark about the file as a whole."""

    severity: str
    code: str
    message: str
    type_name: str | None = None
    property: str | None = None
    query_names: tuple[str, ...] = ()

    def to_json(self) -> dict[str, object]:
        document: dict[str, object] = {
            "severity": self.severity,
            "code": self.code,
            "message": self.message,
        }
        if self.type_name is not None:
            document["type_name"] = self.type_name
        if self.property is not None:
            document["property"] = self.property
        if self.query_names:
            document["query_names"] = list(self.query_names)
        return document


@dataclass(frozen=True, slots=True)
class QueryLint:
    """The lint of one query: its error or its warnings, and its metadata."""

    name: str
    kind: str
    error: TypeCheckError | None
    warnings: tuple[str, ...]
    operation: Operation | None

    def to_json(self) -> dict[str, object]:
        status = "ok" if self.error is None else "error"
        document: dict[str, object] = {"name": self.name, "kind": self.kind, "status": status}
        if self.warnings:
            document["warnings"] = list(self.warnings)
        if self.error is not None:
            document["error"] = self.error.headline
            document["line"] = self.error.line
            document["column"] = self.error.column
        if self.operation is not None:
            document["operation"] = self.operation.to_json()
        return document


@dataclass(frozen=True, slots=True)
class LintReport:
    """The findings of a file."""

    results: tuple[QueryLint, ...]
    findings: tuple[LintFinding, ...]
    parse_error: ParseError | None = field(default=None, compare=False)

    def _count(self, severity: str) -> int:
        return sum(finding.severity == severity for finding in self.findings)

    @property
    def errors(self) -> int:
        return self._count("error") + sum(result.error is not None for result in self.results)

    @property
    def warnings(self) -> int:
        return self._count("warning") + sum(len(result.warnings) for result in self.results)

    @property
    def infos(self) -> int:
        return self._count("info")

    def to_json(self) -> dict[str, object]:
        return {
            "status": "error" if self.errors else "ok",
            "queries_processed": len(self.results),
            "errors": self.errors,
            "warnings": self.warnings,
            "infos": self.infos,
            "results": [result.to_json() for result in self.results],
            "findings": [finding.to_json() for finding in self.findings],
        }


def lint(source: str, catalog: Catalog) -> LintReport:
    """Every fault and doubt of a query file."""
    try:
        file = parse_queries(source)
    except ParseError as cause:
        return LintReport((), (LintFinding("error", "Q000", cause.headline),), cause)
    results = tuple(_lint_query(query, catalog, source) for query in file.queries)
    findings = (
        *_repeated_names(file),
        *_never_updated(file, catalog),
        *_without_identity(file, catalog),
    )
    return LintReport(results, findings)


def _lint_query(query: ast.Query, catalog: Catalog, source: str) -> QueryLint:
    name, kind = query.name.text, "mutation" if query.is_mutation else "read"
    try:
        plan = plan_query(query, catalog, source)
    except TypeCheckError as cause:
        return QueryLint(name, kind, cause, tuple(_mutation_warnings(query)), None)
    warnings = (*_mutation_warnings(query), *_plan_warnings(plan))
    return QueryLint(name, kind, None, warnings, describe(query, plan, catalog))


def _mutation_warnings(query: ast.Query) -> Iterator[str]:
    if query.is_mutation and not query.parameters:
        yield "mutation declares no params; hardcoded mutations are easy to miss"


def _plan_warnings(plan: mutation_ir.Plan) -> Iterator[str]:
    if isinstance(plan, ir.ReadPlan):
        for name, times in Counter(plan.output_names).items():
            if times > 1:
                yield f"column '{name}' is returned {times} times; a JSON row keeps the last one"
    for fused in parts_of_kind(plan, ir.Rrf):
        first, second = fused.first.column.var, fused.second.column.var
        if first != second:
            yield f"rrf ranks ${first} and ${second}: only the ranking of ${first} counts"
    for comparison in parts_of_kind(plan, ir.Compare):
        yield from _never_true(comparison)
        for left, right in (
            (comparison.left, comparison.right),
            (comparison.right, comparison.left),
        ):
            if isinstance(left, ir.Column) and isinstance(right, ir.Const):
                yield from _no_such_value(left, right)


def _never_true(comparison: ir.Compare) -> Iterator[str]:
    """A comparison with the literal null, which is unknown for every row."""
    sides = (comparison.left, comparison.right)
    if any(isinstance(side, ir.Const) and side.value is None for side in sides):
        test = "is not null" if comparison.op is ir.CompareOp.NE else "is null"
        yield f"a comparison with null is never true: write {test}"


def _no_such_value(column: ir.Column, constant: ir.Const) -> Iterator[str]:
    """A comparison of an enum with a text that is none of its values."""
    values = column.type.enum_values
    if values is not None and constant.value is not None and constant.value not in values:
        near = did_you_mean(str(constant.value), values, listed=False)
        hint = near or f"it has {', '.join(values)}"
        yield f"'{constant.value}' is no value of {column.name}: {hint}"


def _repeated_names(file: ast.QueryFile) -> Iterator[LintFinding]:
    for name, times in Counter(query.name.text for query in file.queries).items():
        if times > 1:
            text = f"query '{name}' is declared {times} times; the first one runs"
            yield LintFinding("warning", "L202", text, query_names=(name,))


def _never_updated(file: ast.QueryFile, catalog: Catalog) -> Iterator[LintFinding]:
    """L201: types that are updated, but never all of what could be."""
    updaters = dict[str, list[str]]()
    assigned = dict[str, set[str]]()
    of_matched = set[str]()  # set on what a match finds, whatever its type
    for query in file.queries:
        for statement in query.body.statements if isinstance(query.body, ast.Mutation) else ():
            if isinstance(statement, ast.UpdateMatched):
                of_matched.update(each.property.text for each in statement.assignments)
            if isinstance(statement, ast.Update | ast.Upsert):
                type_name = statement.type_name.text
                if isinstance(statement, ast.Update):
                    updaters.setdefault(type_name, []).append(query.name.text)
                names = {assignment.property.text for assignment in statement.assignments}
                assigned.setdefault(type_name, set()).update(names)
    for type_name in sorted(updaters):
        node = catalog.node(type_name)
        for name in _updatable(node) if node is not None else ():
            if name not in assigned[type_name] and name not in of_matched:
                text = f"{type_name}.{name} exists in schema but no update query sets it"
                queries = tuple(dict.fromkeys(updaters[type_name]))
                yield LintFinding("warning", "L201", text, type_name, name, queries)


def _without_identity(file: ast.QueryFile, catalog: Catalog) -> Iterator[LintFinding]:
    """L203: edges that are inserted, and that a key would fit."""
    inserters = dict[str, list[str]]()
    for query in file.queries:
        for statement in query.body.statements if isinstance(query.body, ast.Mutation) else ():
            if isinstance(statement, ast.Insert):
                name = statement.type_name.text
                for edge in catalog.members(name) if catalog.node(name) is None else ():
                    inserters.setdefault(declared_edge(edge).name, []).append(query.name.text)
    for suggestion in suggested_keys(catalog):
        if queries := inserters.get(suggestion.edge):
            names = tuple(dict.fromkeys(queries))
            text = str(suggestion)
            yield LintFinding("info", "L203", text, suggestion.edge, query_names=names)


def _updatable(node: NodeType) -> list[str]:
    return [
        declared.name
        for declared in node.properties
        if declared.type.nullable and declared.name not in node.key and declared.embed is None
    ]
