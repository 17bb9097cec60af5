"""Indexes that the schema asks for, built where they are missing or behind.

Invariant: an index changes how fast an answer comes, never the answer, so everything works before
this ran and after. One run is one commit, or none when nothing was to be done.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from omnigraph.catalog.indexes import IndexKind
from omnigraph.catalog.model import Catalog
from omnigraph.exec.search.analyse import INDEX_PARAMETERS
from omnigraph.exec.search.wanted import Wanted, by_table, wanted_indexes
from omnigraph.storage.lance.indexing import IndexFacts, IndexRequest
from omnigraph.storage.lance.tables import TableReader
from omnigraph.storage.locks.turns import Turn
from omnigraph.storage.names import MAIN
from omnigraph.storage.protocol.intent import WriterKind
from omnigraph.storage.retry import ENSURE_INDICES
from omnigraph.storage.store import Store
from omnigraph.types import TableKey

VECTORS_MIN = 256
"""Fewer vectors are compared one by one in less time than an index takes to look up."""

_VECTORS_A_PARTITION = 4096
_VECTORS_BEHIND_SHARE = 0.1

_LANCE_TYPES = {
    IndexKind.ORDERED: "BTREE",
    IndexKind.FULL_TEXT: "INVERTED",
    IndexKind.VECTOR: "IVF_FLAT",
}


@dataclass(frozen=True, slots=True)
class IndexNote:
    """One index, and for one that waits the reason."""

    table: TableKey
    column: str
    kind: IndexKind
    reason: str = ""


@dataclass(frozen=True, slots=True)
class IndexReport:
    """What a run did. `commit_id` is None when nothing was to be done."""

    built: tuple[IndexNote, ...]
    kept: tuple[IndexNote, ...]
    pending: tuple[IndexNote, ...]
    commit_id: str | None


def ensure_indices(
    store: Store, catalog: Catalog, branch: str = MAIN, *, actor: str | None = None
) -> IndexReport:
    """Build the indexes that are missing or behind, as one commit."""
    return store.turns.prepared_again(
        lambda turn: _attempt(store, catalog, branch, actor, turn), budget=ENSURE_INDICES
    )


def _attempt(
    store: Store, catalog: Catalog, branch: str, actor: str | None, turn: Turn
) -> IndexReport:
    kind = WriterKind.ENSURE_INDICES
    write = store.begin(branch, kind=kind, actor=actor, schema=catalog.schema_id, turn=turn)
    snapshot = store.snapshot(branch)
    built: list[IndexNote] = []
    kept: list[IndexNote] = []
    pending: list[IndexNote] = []
    for table, group in by_table(wanted_indexes(catalog)):
        reader = store.reader(snapshot, table)
        requests = []
        for wanted in group:
            answer = decided(reader, wanted)
            if isinstance(answer, IndexRequest):
                requests.append(answer)
                built.append(_note(wanted))
            elif answer:
                pending.append(_note(wanted, answer))
            else:
                kept.append(_note(wanted))
        if requests:
            write.create_indexes(table, requests)
    commit_id = store.commit(write).id if built else None
    return IndexReport(tuple(built), tuple(kept), tuple(pending), commit_id)


def _note(wanted: Wanted, reason: str = "") -> IndexNote:
    return IndexNote(wanted.table, wanted.column, wanted.kind, reason)


def requests_of(
    reader: TableReader, wanted: Iterable[Wanted]
) -> tuple[list[IndexRequest], list[IndexNote]]:
    """The indexes a table should have over every row, those that it has included; and those that
    wait, each with its reason."""
    requests, pending = [], []
    for each in wanted:
        found = decided(reader, each, behind_share=0.0)
        if isinstance(found, IndexRequest):
            requests.append(found)
        elif found:
            pending.append(_note(each, found))
        else:
            is_text = each.kind is IndexKind.FULL_TEXT
            requests.append(_request(each, INDEX_PARAMETERS if is_text else {}))
    return requests, pending


def decided(
    reader: TableReader, wanted: Wanted, *, behind_share: float = _VECTORS_BEHIND_SHARE
) -> IndexRequest | str:
    """The index to build; why it has to wait; or nothing to do, which is an empty text."""
    found = next((each for each in reader.indexes() if each.name == wanted.name), None)
    if wanted.kind is IndexKind.VECTOR:
        return _decided_vectors(reader, wanted, found, behind_share)
    if found is not None and found.is_whole:
        return ""
    if not reader.pin.row_count:
        return "the table has no rows"
    if wanted.kind is IndexKind.FULL_TEXT:
        # Lance finds a changed text by its old terms too once a second segment covers the row, so a
        # text index is one segment, always.
        return _request(wanted, INDEX_PARAMETERS, anew=True)
    return _request(wanted, {})


def _decided_vectors(
    reader: TableReader, wanted: Wanted, found: IndexFacts | None, behind_share: float
) -> IndexRequest | str:
    # Rows that the index does not cover are compared one by one, so a few may wait for more. Its
    # partitions are those of all vectors together: it is built anew, never extended.
    behind = reader.pin.row_count if found is None else reader.pin.row_count - found.rows
    if found is not None and behind <= behind_share * reader.pin.row_count:
        return ""
    count = reader.count(f"`{wanted.column}` IS NOT NULL")
    if count < VECTORS_MIN:
        return f"{count} of the {VECTORS_MIN} vectors that make an index worth training"
    partitions = max(1, count // _VECTORS_A_PARTITION)
    return _request(wanted, {"metric": "L2", "num_partitions": partitions}, anew=True)


def _request(wanted: Wanted, parameters: dict[str, Any], *, anew: bool = False) -> IndexRequest:
    lance_type = _LANCE_TYPES[wanted.kind]
    return IndexRequest(wanted.column, lance_type, wanted.name, parameters, anew)
