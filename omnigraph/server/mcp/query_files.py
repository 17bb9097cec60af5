"""Stored queries of files: what `.gq` files declare, as a catalog with typed parameters.

Invariant: a name stands for one declaration. Files are read once; a text that does not parse, or a
name that is declared twice, is refused at the start and not when an agent calls it.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from msgspec import UNSET

from omnigraph.errors import BadRequest
from omnigraph.language.query.ast import Query
from omnigraph.language.query.parser import parse_queries
from omnigraph.server.wire import QueryCatalog, QueryCatalogEntry, QueryParameter
from omnigraph.types import Scalar, ValueType

_KINDS = {
    Scalar.STRING: "string",
    Scalar.BOOL: "bool",
    Scalar.I32: "int",
    Scalar.U32: "int",
    Scalar.I64: "bigint",
    Scalar.U64: "bigint",
    Scalar.F32: "float",
    Scalar.F64: "float",
    Scalar.DATE: "date",
    Scalar.DATETIME: "datetime",
    Scalar.BLOB: "blob",
    Scalar.VECTOR: "vector",
}


@dataclass(frozen=True, slots=True)
class FiledQuery:
    """One declaration, with the text of its file."""

    text: str
    entry: QueryCatalogEntry


class FiledQueries:
    """The declarations of some files and folders."""

    def __init__(self, paths: Iterable[str]) -> None:
        self._queries: dict[str, FiledQuery] = {}
        for path in paths:
            for file in _files(Path(path)):
                self._add(file)

    def _add(self, file: Path) -> None:
        try:
            text = file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as cause:
            raise BadRequest(f"cannot read the queries of {file}: {cause}") from None
        for query in parse_queries(text).queries:
            name = query.name.text
            if name in self._queries:
                raise BadRequest(f"two stored queries are called '{name}'", "rename one of them")
            self._queries[name] = FiledQuery(text, catalog_entry(query))

    def get(self, name: str) -> FiledQuery | None:
        """The declaration of a name."""
        return self._queries.get(name)

    def catalog(self) -> QueryCatalog:
        """Every declaration, by name."""
        return QueryCatalog(queries=[self._queries[name].entry for name in sorted(self._queries)])


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    files = sorted(path.glob("*.gq"))
    if not files:
        raise BadRequest(f"the folder {path} holds no .gq file", "name one that does")
    return files


def catalog_entry(query: Query) -> QueryCatalogEntry:
    """A declaration as the catalog of stored queries shows it."""
    return QueryCatalogEntry(
        name=query.name.text,
        tool_name=query.name.text,
        description=UNSET if query.description is None else query.description,
        instruction=UNSET if query.instruction is None else query.instruction,
        mutation=query.is_mutation,
        params=[
            _parameter(each.name, each.type, is_optional=each.default is not None)
            for each in query.parameters
        ],
    )


def _parameter(name: str, value_type: ValueType, *, is_optional: bool) -> QueryParameter:
    kind = _KINDS[value_type.scalar]
    return QueryParameter(
        name=name,
        kind="list" if value_type.is_list else kind,
        item_kind=kind if value_type.is_list else UNSET,
        vector_dim=UNSET if value_type.dimension is None else value_type.dimension,
        nullable=value_type.nullable or is_optional,
    )
