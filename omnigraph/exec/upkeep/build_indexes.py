"""Index builds: the indexes a schema asks for (B-tree, inverted, IVF), where missing or stale.

Invariant: an index changes the speed of an answer, never the answer, so queries work before a run
and after it. One run is one commit, or none when every index is current.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from omnigraph import environment
from omnigraph.catalog.indexes import IndexKind, IndexNote
from omnigraph.catalog.model import Catalog
from omnigraph.exec.search.index_requests import decided, outgrows_exact_search, request_for
from omnigraph.exec.search.schema_indexes import SchemaIndex, by_table, schema_indexes
from omnigraph.exec.topology.build import TopologyNote, is_worth_a_file, topology_after
from omnigraph.storage.lance.index_segments import IndexRequest
from omnigraph.storage.lance.reader import TableReader
from omnigraph.storage.locks.turns import Turn
from omnigraph.storage.names import MAIN
from omnigraph.storage.protocol.intent import WriterKind
from omnigraph.storage.records import NO_NOTE, CommitNote, TablePin
from omnigraph.storage.retry import ENSURE_INDICES
from omnigraph.storage.store import Store

_TOPOLOGY = frozenset({"id", "src", "dst"})


@dataclass(frozen=True, slots=True)
class IndexReport:
    """Result of a run. `commit_id` is None when every index was current."""

    built: tuple[IndexNote, ...]
    kept: tuple[IndexNote, ...]
    pending: tuple[IndexNote, ...]
    commit_id: str | None
    topology: tuple[TopologyNote, ...] = ()  # the files that were written


def ensure_indices(
    store: Store, catalog: Catalog, branch: str = MAIN, *, note: CommitNote = NO_NOTE
) -> IndexReport:
    """Build the indexes that are missing or behind, as one commit; then the topology files."""
    report = store.turns.prepared_again(
        lambda turn: _attempt(store, catalog, branch, note, turn), budget=ENSURE_INDICES
    )
    return replace(report, topology=topology_after(store, catalog, branch))


def _attempt(
    store: Store, catalog: Catalog, branch: str, note: CommitNote, turn: Turn
) -> IndexReport:
    kind = WriterKind.ENSURE_INDICES
    write = store.begin(branch, kind=kind, **note.stated, schema=catalog.schema_id, turn=turn)
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
    """Requests that bring every index of a table up to date, current ones included; and the indexes
    that cannot be built yet, each with its reason. An index that topology files stand in for is
    kept up to date but not begun."""
    requests, pending = [], []
    existing = {each.name for each in reader.indexes()}
    for index in indexes:
        if index.name not in existing and is_in_topology(reader.pin, index):
            continue
        answer = decided(reader, index, behind_share=0.0)
        if isinstance(answer, IndexRequest):
            requests.append(answer)
        elif answer:
            pending.append(_note(index, answer))
        else:
            requests.append(request_for(reader, index))
    return requests, pending


def is_in_topology(pin: TablePin, index: SchemaIndex) -> bool:
    """Whether topology files answer what an index is for: ids, and the ends of edges."""
    ends = index.kind is IndexKind.ORDERED and index.column in _TOPOLOGY
    return ends and is_worth_a_file(pin)


def requests_after_load(
    reader: TableReader, indexes: Iterable[SchemaIndex]
) -> tuple[list[IndexRequest], list[IndexNote]]:
    """Requests for the indexes that many rows are not covered by: few are compared one by one. A
    vector index is begun where exact search would not fit into memory."""
    requests, pending = [], []
    existing = {each.name: each for each in reader.indexes()}
    for index in indexes:
        known = existing.get(index.name)
        behind = reader.pin.row_count if known is None else known.behind
        if behind < environment.INDEX_ROWS.read():
            continue
        if known is None and (
            is_in_topology(reader.pin, index) or not outgrows_exact_search(reader, index)
        ):
            continue
        answer = decided(reader, index)
        if isinstance(answer, IndexRequest):
            requests.append(answer)
        elif answer:
            pending.append(_note(index, answer))
    return requests, pending
