"""Indexes that a schema asks for: their columns, kinds and names.

Invariant: pure; derived from the catalog alone. An index is named after its property's identity and
its kind, so it is recognised after a rename.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from omnigraph.catalog.indexes import IndexKind, index_kind
from omnigraph.catalog.model import Catalog, EdgeType, Type
from omnigraph.storage.lance.indexing import IndexFacts
from omnigraph.types import TableKey


@dataclass(frozen=True, slots=True)
class Wanted:
    """An index that the schema asks for."""

    table: TableKey
    column: str
    kind: IndexKind
    name: str


def is_kind(index: IndexFacts, kind: IndexKind) -> bool:
    """Whether an index is one of ours of this kind."""
    return index.name.endswith(f":{kind}")


def wanted_indexes(catalog: Catalog) -> tuple[Wanted, ...]:
    """Every index the schema asks for."""
    return tuple(wanted for each in catalog.types for wanted in indexes_of(each))


def indexes_of(each: Type) -> Iterator[Wanted]:
    """Every index the schema asks for of one type."""
    ends = ("src", "dst") if isinstance(each, EdgeType) else ()
    for column in ("id", *ends):
        yield Wanted(each.table, column, IndexKind.ORDERED, f"{column}:{IndexKind.ORDERED}")
    for name in dict.fromkeys((*each.key, *each.indexes)):
        prop = each.property(name)
        if prop is None:
            continue  # an edge's own ends, which are indexed in any case
        for kind in _kinds(index_kind(prop.type)):
            yield Wanted(each.table, name, kind, f"{prop.id}:{kind}")


def _kinds(kind: IndexKind | None) -> tuple[IndexKind, ...]:
    if kind is None:
        return ()
    # Text is also asked for as a whole, which an index of its terms cannot answer.
    return (kind, IndexKind.ORDERED) if kind is IndexKind.FULL_TEXT else (kind,)


def by_table(all_wanted: Iterable[Wanted]) -> Iterator[tuple[TableKey, list[Wanted]]]:
    """What each table should have."""
    groups: dict[TableKey, list[Wanted]] = {}
    for wanted in all_wanted:
        groups.setdefault(wanted.table, []).append(wanted)
    yield from groups.items()
