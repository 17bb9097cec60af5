"""Catalog of stored queries: queries by name, checked against the schema of a graph.

Invariant: a catalog that exists holds only queries that type-check, and no two claim one name.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from omnigraph.catalog.model import Catalog
from omnigraph.errors import BadRequest, ParseError, TypeCheckError
from omnigraph.language.query import ast
from omnigraph.language.query.parser import parse_queries
from omnigraph.plan.compile import plan_query
from omnigraph.plan.facts import Field, typed_field
from omnigraph.policy.merge_demands import TargetCheck

QueryTexts = Mapping[str, str]
"""Texts by the name of the one query of each that is meant."""


@dataclass(frozen=True, slots=True)
class StoredQuery:
    """One query, with the text of the file it stands in."""

    source: str
    declaration: ast.Query

    @property
    def name(self) -> str:
        return self.declaration.name.text

    @property
    def is_mutation(self) -> bool:
        return self.declaration.is_mutation

    @property
    def params(self) -> tuple[Field, ...]:
        """Its parameters, by kind. One with a default may be left out."""
        return tuple(
            replace(field, nullable=True) if each.default is not None else field
            for each in self.declaration.parameters
            for field in (typed_field(each.name, each.type),)
        )

    @property
    def signature(self) -> str:
        """Its name and parameters, as they are written."""
        params = ", ".join(map(self._written, self.declaration.parameters))
        return f"{self.name}({params})"

    def _written(self, parameter: ast.Parameter) -> str:
        default = self.default_text(parameter)
        typed = f"${parameter.name}: {parameter.type}"
        return typed if default is None else f"{typed} = {default}"

    def default_text(self, parameter: ast.Parameter) -> str | None:
        """The default of one of its parameters as it is written; None without one."""
        if parameter.default is None:
            return None
        span = parameter.default.span
        return self.source[span.start : span.end]


@dataclass(frozen=True, slots=True)
class BrokenQuery:
    """A stored query that cannot be run, and why."""

    name: str
    message: str


@dataclass(frozen=True, slots=True)
class StoredQueries:
    """The stored queries of one graph, sorted by name."""

    queries: Mapping[str, StoredQuery]

    def get(self, name: str) -> StoredQuery | None:
        """A query by its name."""
        return self.queries.get(name)

    def __iter__(self) -> Iterator[StoredQuery]:
        return iter(self.queries.values())

    def __len__(self) -> int:
        return len(self.queries)

    def warnings(self) -> list[str]:
        """Doubts about queries that run."""
        return [
            f"query '{query.name}': agents cannot supply the vector ${param.name}"
            for query in self
            for param in query.params
            if param.kind == "vector"
        ]


NO_QUERIES = StoredQueries({})


def checked_queries(texts: QueryTexts, catalog: Catalog) -> tuple[StoredQueries, list[BrokenQuery]]:
    """The queries that type-check against a schema, and those that do not."""
    queries, broken = {}, []
    for name, text in sorted(texts.items()):
        try:
            file = parse_queries(text)
            declared = [each for each in file.queries if each.name.text == name]
            if not declared:
                broken.append(BrokenQuery(name, "its file does not declare it"))
                continue
            plan_query(declared[0], catalog, file.source)
        except (ParseError, TypeCheckError) as cause:
            position = f"(line {cause.line}, column {cause.column})"
            broken.append(BrokenQuery(name, f"{cause.headline} {position}"))
        else:
            queries[name] = StoredQuery(text, declared[0])
    return StoredQueries(queries), broken


def required_queries(texts: QueryTexts, catalog: Catalog) -> StoredQueries:
    """All the queries, or `BadRequest` that names the first that cannot be run."""
    queries, broken = checked_queries(texts, catalog)
    if broken:
        raise BadRequest(f"stored query '{broken[0].name}': {broken[0].message}", "correct it")
    return queries


def require_checks(queries: StoredQueries, checks: Iterable[TargetCheck]) -> None:
    """Pass if every check of merges is a stored read that runs without parameters."""
    for check in checks:
        query = queries.get(check.query)
        fault = "is not stored" if query is None else None
        if query is not None and query.is_mutation:
            fault = "writes"
        elif query is not None and any(not param.nullable for param in query.params):
            fault = "needs parameters"
        if fault is not None:
            raise BadRequest(
                f"the check '{check.query}' of merges into '{check.target}' {fault}",
                "name a stored read without parameters",
            )


def texts_of_folder(folder: str) -> dict[str, str]:
    """The texts of every query in the `*.gq` files right below a folder."""
    return texts_of_paths([folder])


def texts_of_paths(paths: Iterable[str]) -> dict[str, str]:
    """The texts of every query in some files, and in the `*.gq` files right below some folders."""
    texts: dict[str, str] = {}
    homes: dict[str, str] = {}
    for path in paths:
        for name, content in _contents(path).items():
            for query in parse_queries(content).queries:
                declared = query.name.text
                if declared in homes:
                    text = f"query '{declared}' is declared in {homes[declared]} and in {name}"
                    raise BadRequest(text, "keep one of them")
                texts[declared], homes[declared] = content, name
    return texts


def _contents(path: str) -> dict[str, str]:
    """The texts of a file, or of the files right below a folder."""
    root = Path(path)
    try:
        files = sorted(root.iterdir()) if root.is_dir() else [root]
        chosen = (
            file for file in files if file == root or (file.suffix == ".gq" and file.is_file())
        )
        return {file.name: file.read_text(encoding="utf-8") for file in chosen}
    except (OSError, ValueError) as cause:
        raise BadRequest(f"cannot read the stored queries of {path}: {cause}") from None
