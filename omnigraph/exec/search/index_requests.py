"""Index requests: whether and how an index that a schema asks for is built on a table version.

Invariant: the answer depends on the version alone. An index that is current is not asked for again.
"""

from typing import Any, assert_never

from omnigraph.catalog.indexes import IndexKind
from omnigraph.exec.search.analyse import INDEX_PARAMETERS
from omnigraph.exec.search.schema_indexes import SchemaIndex
from omnigraph.storage.lance.index_segments import IndexFacts, IndexRequest
from omnigraph.storage.lance.reader import TableReader

VECTORS_MIN = 256
"""Below this a scan of all vectors is faster than an index lookup."""

_VECTORS_A_PARTITION = 4096
_VECTORS_BEHIND_SHARE = 0.1


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
    reader: TableReader, index: SchemaIndex, *, behind_share: float = _VECTORS_BEHIND_SHARE
) -> IndexRequest | str:
    """A request to build the index; the reason to wait; or an empty text when it is current."""
    existing = next((each for each in reader.indexes() if each.name == index.name), None)
    if index.kind is IndexKind.VECTOR:
        return _decided_vectors(reader, index, existing, behind_share)
    if existing is not None and existing.is_whole:
        return ""
    if not reader.pin.row_count:
        return "the table has no rows"
    if index.kind is IndexKind.FULL_TEXT:
        # Lance finds a changed text by its old terms too once a second segment covers the row, so a
        # text index is one segment, always.
        return request_for(index, INDEX_PARAMETERS, anew=True)
    return request_for(index, {})


def _decided_vectors(
    reader: TableReader, index: SchemaIndex, existing: IndexFacts | None, behind_share: float
) -> IndexRequest | str:
    # Rows that the index does not cover are compared one by one, so a few may wait for more. Its
    # partitions are those of all vectors together: it is built anew, never extended.
    behind = reader.pin.row_count if existing is None else reader.pin.row_count - existing.rows
    if existing is not None and behind <= behind_share * reader.pin.row_count:
        return ""
    count = reader.count(f"`{index.column}` IS NOT NULL")
    if count < VECTORS_MIN:
        return f"{count} of the {VECTORS_MIN} vectors that make an index worth training"
    partitions = max(1, count // _VECTORS_A_PARTITION)
    return request_for(index, {"metric": "L2", "num_partitions": partitions}, anew=True)


def request_for(
    index: SchemaIndex, parameters: dict[str, Any], *, anew: bool = False
) -> IndexRequest:
    """The request to build an index of a schema."""
    lance_type = _lance_type(index.kind)
    return IndexRequest(index.column, lance_type, index.name, parameters, anew)
