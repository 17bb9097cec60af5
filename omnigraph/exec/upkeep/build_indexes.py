"""Index builds: the indexes a schema asks for (B-tree, inverted, IVF), where missing or stale.

Invariant: an index changes the speed of an answer, never the answer, so queries work before a run
and after it. One run is one commit, or none when every index is current.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from omnigraph.catalog.indexes import IndexKind
from omnigraph.catalog.model import Catalog
from omnigraph.exec.search.analyse import INDEX_PARAMETERS
from omnigraph.exec.search.index_requests import decided, request_for
from omnigraph.exec.search.schema_indexes import SchemaIndex, by_table, schema_indexes
from omnigraph.storage.lance.index_segments import IndexRequest
from omnigraph.storage.lance.reader import TableReader
from omnigraph.storage.locks.turns import Turn
from omnigraph.storage.names import MAIN
from omnigraph.storage.protocol.intent import WriterKind
from omnigraph.storage.records import NO_NOTE, CommitNote
from omnigraph.storage.retry import ENSURE_INDICES
from omnigraph.storage.store import Store
from omnigraph.types import TableKey


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


def ensure_indices(
    store: Store, catalog: Catalog, branch: str = MAIN, *, note: CommitNote = NO_NOTE
) -> IndexReport:
    """Build the indexes that are missing or behind, as one commit."""
    return store.turns.prepared_again(
        lambda turn: _attempt(store, catalog, branch, note, turn), budget=ENSURE_INDICES
    )


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
            requests.append(request_for(index, INDEX_PARAMETERS if is_text else {}))
    return requests, pending
