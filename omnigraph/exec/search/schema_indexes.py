"""Indexes that a schema asks for: their columns, kinds and names.

Invariant: pure; derived from the catalog alone. An index is named after its property's identity and
its kind, so it is recognised after a rename.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import assert_never

from omnigraph.catalog.indexes import IndexKind, Metric, index_kind
from omnigraph.catalog.model import Catalog, EdgeType, Type
from omnigraph.storage.lance.index_segments import IndexFacts
from omnigraph.types import TableKey


@dataclass(frozen=True, slots=True)
class SchemaIndex:
    """An index that the schema asks for."""

    table: TableKey
    column: str
    kind: IndexKind
    name: str
    metric: Metric = Metric.L2  # of vectors


def is_kind(index: IndexFacts, kind: IndexKind) -> bool:
    """Whether an index, built for a schema, is of this kind."""
    return index.name.endswith(f":{kind}")


def metric_of(index: IndexFacts) -> Metric:
    """The metric of an index of vectors."""
    ends = {metric: f":{metric}:{IndexKind.VECTOR}" for metric in Metric}
    return next((m for m, end in ends.items() if index.name.endswith(end)), Metric.L2)


def schema_indexes(catalog: Catalog) -> tuple[SchemaIndex, ...]:
    """Every index the schema asks for."""
    return tuple(index for each in catalog.types for index in indexes_of(each))


def indexes_of(each: Type) -> Iterator[SchemaIndex]:
    """Every index the schema asks for of one type."""
    ends = ("src", "dst") if isinstance(each, EdgeType) else ()
    for column in ("id", *ends):
        yield SchemaIndex(each.table, column, IndexKind.ORDERED, f"{column}:{IndexKind.ORDERED}")
    for name in dict.fromkeys((*each.key, *each.indexes)):
        prop = each.property(name)
        if prop is None:
            continue  # an edge's own ends, which are indexed in any case
        for kind in _kinds(index_kind(prop.type)):
            metric = prop.metric
            measured = "" if metric is Metric.L2 else f":{metric}"
            yield SchemaIndex(each.table, name, kind, f"{prop.id}{measured}:{kind}", metric)


def _kinds(kind: IndexKind | None) -> tuple[IndexKind, ...]:
    match kind:
        case None:
            return ()
        case IndexKind.FULL_TEXT:
            # Text is also asked for as a whole, which an index of its terms cannot answer.
            return kind, IndexKind.ORDERED
        case IndexKind.ORDERED | IndexKind.VECTOR:
            return (kind,)
        case _:
            assert_never(kind)


def by_table(indexes: Iterable[SchemaIndex]) -> Iterator[tuple[TableKey, list[SchemaIndex]]]:
    """The indexes grouped by table."""
    groups: dict[TableKey, list[SchemaIndex]] = {}
    for index in indexes:
        groups.setdefault(index.table, []).append(index)
    yield from groups.items()
