"""Index builds: the indexes a schema asks for (B-tree, inverted, IVF), where missing or stale.

Invariant: an index changes the speed of an answer, never the answer, so queries work before a run
and after it. One run is one commit, or none when every index is current.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, assert_never

from omnigraph.catalog.indexes import IndexKind
from omnigraph.catalog.model import Catalog
from omnigraph.exec.search.analyse import INDEX_PARAMETERS
from omnigraph.exec.search.schema_indexes import SchemaIndex, by_table, schema_indexes
from omnigraph.exec.topology.build import TopologyNote, topology_after
from omnigraph.storage.lance.index_segments import IndexFacts, IndexRequest
from omnigraph.storage.lance.reader import TableReader
from omnigraph.storage.locks.turns import Turn
from omnigraph.storage.names import MAIN
from omnigraph.storage.protocol.intent import WriterKind
from omnigraph.storage.retry import ENSURE_INDICES
from omnigraph.storage.store import Store
from omnigraph.types import TableKey

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


@dataclass(frozen=True, slots=True)
class IndexNote:
    """One index, and the reason when it is not built yet."""

    table: TableKey
    column: str
    kind: IndexKind
    reason: str = ""


@dataclass(frozen=True, slots=True)
class IndexReport:
    """Result of a run. `commit_id` is None when every index was current."""

    built: tuple[IndexNote, ...]
    kept: tuple[IndexNote, ...]
    pending: tuple[IndexNote, ...]
    commit_id: str | None
    topology: tuple[TopologyNote, ...] = ()  # the files that were written


def ensure_indices(
    store: Store, catalog: Catalog, branch: str = MAIN, *, actor: str | None = None
) -> IndexReport:
    """Build the indexes that are missing or behind, as one commit; then the topology files."""
    report = store.turns.prepared_again(
        lambda turn: _attempt(store, catalog, branch, actor, turn), budget=ENSURE_INDICES
    )
    return replace(report, topology=topology_after(store, catalog, branch))


def _attempt(
    store: Store, catalog: Catalog, branch: str, actor: str | None, turn: Turn
) -> IndexReport:
    kind = WriterKind.ENSURE_INDICES
    write = store.begin(branch, kind=kind, actor=actor, schema=catalog.schema_id, turn=turn)
    snapshot = store.snapshot(branch)
    built: list[IndexNote] = []
    kept: list[IndexNote] = []
    pending: list[IndexNote] = []
    for table, group in by_table(schema_indexes(catalog)):
        reader = store.reader(snapshot, table)
        requests = []
        for index in group:
            answer = decided(reader, index)
            if isinstance(answer, IndexRequest):
                requests.append(answer)
                built.append(_note(index))
            elif answer:
                pending.append(_note(index, answer))
            else:
                kept.append(_note(index))
        if requests:
            write.create_indexes(table, requests)
    commit_id = store.commit(write).id if built else None
    return IndexReport(tuple(built), tuple(kept), tuple(pending), commit_id)


def _note(index: SchemaIndex, reason: str = "") -> IndexNote:
    return IndexNote(index.table, index.column, index.kind, reason)


def requests_of(
    reader: TableReader, indexes: Iterable[SchemaIndex]
) -> tuple[list[IndexRequest], list[IndexNote]]:
    """Requests that make every index of a table cover all rows, existing ones included; and the
    indexes that cannot be built yet, each with its reason."""
    requests, pending = [], []
    for index in indexes:
        answer = decided(reader, index, behind_share=0.0)
        if isinstance(answer, IndexRequest):
            requests.append(answer)
        elif answer:
            pending.append(_note(index, answer))
        else:
            is_text = index.kind is IndexKind.FULL_TEXT
            requests.append(_request(index, INDEX_PARAMETERS if is_text else {}))
    return requests, pending


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
        return _request(index, INDEX_PARAMETERS, anew=True)
    return _request(index, {})


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
    return _request(index, {"metric": "L2", "num_partitions": partitions}, anew=True)


def _request(index: SchemaIndex, parameters: dict[str, Any], *, anew: bool = False) -> IndexRequest:
    lance_type = _lance_type(index.kind)
    return IndexRequest(index.column, lance_type, index.name, parameters, anew)
