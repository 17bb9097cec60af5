"""Index requests: whether and how an index that a schema asks for is built on a table version.

Invariant: the answer depends on the version alone. An index that is current is not asked for again.
"""

from typing import Any, assert_never

from omnigraph import environment
from omnigraph.catalog.indexes import IndexKind
from omnigraph.costs import COSTS
from omnigraph.exec.search.schema_indexes import SchemaIndex
from omnigraph.exec.search.search import vectors_fit
from omnigraph.exec.values.analyse import INDEX_PARAMETERS
from omnigraph.storage.lance.index_segments import IndexRequest
from omnigraph.storage.lance.reader import TableReader, index_lag


def _lance_type(kind: IndexKind) -> str:
    match kind:
        case IndexKind.ORDERED:
            return "BTREE"
        case IndexKind.FULL_TEXT:
            return "INVERTED"
        case IndexKind.VECTOR:
            return "IVF_FLAT"
        case _:
            assert_never(kind)


def decided(
    reader: TableReader, index: SchemaIndex, *, behind_share: float | None = None
) -> IndexRequest | str:
    """A request to build or extend the index; the reason to wait; or an empty text when it is
    current. `behind_share` of all rows may be new vectors that it does not cover, by default as
    many as a threshold allows."""
    existing = next((each for each in reader.indexes() if each.name == index.name), None)
    if existing is None:
        return _first(reader, index)
    if existing.is_whole:
        return ""
    if index.kind is IndexKind.ORDERED:
        return request_for(reader, index)
    behind, rows = index_lag(reader, index.name), reader.pin.row_count
    is_vector = index.kind is IndexKind.VECTOR
    # The partitions of a vector index are those of the vectors it was trained on.
    untrained = behind.stale_rows + (behind.fresh_rows if is_vector else 0)
    if untrained > COSTS.index_behind_share_max * rows:
        count = _vector_count(reader, index) if is_vector else rows
        return request_for(reader, index, rows=count, anew=True)
    share = COSTS.index_behind_share_max if behind_share is None else behind_share
    waits = behind.fresh_rows <= share * rows if is_vector else not behind.fresh_rows
    return "" if waits else request_for(reader, index)


def outgrows_exact_search(reader: TableReader, index: SchemaIndex) -> bool:
    """Whether an index answers what a scan of all values cannot: always, but for vectors that fit
    into memory, which are searched exactly."""
    if index.kind is not IndexKind.VECTOR:
        return True
    dimension = reader.schema.field(index.column).type.list_size
    return not vectors_fit(reader.pin.row_count, dimension, environment.CACHE.read())


def _first(reader: TableReader, index: SchemaIndex) -> IndexRequest | str:
    if index.kind is IndexKind.VECTOR:
        count = _vector_count(reader, index)
        if count < COSTS.vector_index_rows_min:
            least = COSTS.vector_index_rows_min
            return f"{count} of the {least} vectors that make an index worth training"
        return request_for(reader, index, rows=count)
    return request_for(reader, index) if reader.pin.row_count else "the table has no rows"


def _vector_count(reader: TableReader, index: SchemaIndex) -> int:
    return reader.count(f"`{index.column}` IS NOT NULL")


def request_for(
    reader: TableReader, index: SchemaIndex, *, rows: int | None = None, anew: bool = False
) -> IndexRequest:
    """The request to build an index of a schema on a table version, of which so many rows have a
    value (None: all)."""
    lance_type = _lance_type(index.kind)
    parameters: dict[str, Any] = {}
    if index.kind is IndexKind.FULL_TEXT:
        parameters = dict(INDEX_PARAMETERS)
    if index.kind is IndexKind.VECTOR:
        count = reader.pin.row_count if rows is None else rows
        partitions = max(1, count // COSTS.vectors_per_partition)
        parameters = {"metric": str(index.metric), "num_partitions": partitions}
    return IndexRequest(index.column, lance_type, index.name, parameters, anew)
