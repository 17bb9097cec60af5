"""Page of a type's entities: rows in the order of the table, from an offset, without a scan.

Invariant: of one snapshot, so that pages join: no entity is on two of them and none is left out.
The cost follows the page, not the table.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from omnigraph.catalog.model import Type
from omnigraph.exec.changes.entities import Entities
from omnigraph.exec.changes.entity_view import known_rows
from omnigraph.exec.changes.images import Image, images
from omnigraph.exec.values.pushdown import ids_filter
from omnigraph.storage.derived.node_file import NO_ROW
from omnigraph.storage.lance.columns import ROW_ID
from omnigraph.storage.lance.reader import TableReader
from omnigraph.storage.records import Snapshot
from omnigraph.storage.store import Store


@dataclass(frozen=True, slots=True)
class ListedEntity:
    """One entity of a page."""

    id: str
    image: Image


@dataclass(frozen=True, slots=True)
class EntityPage:
    """Entities of one type. `total` counts the table; `next_offset` is None on the last page."""

    entities: tuple[ListedEntity, ...]
    total: int
    next_offset: int | None
    commit_id: str


def entity_page(
    store: Store, snapshot: Snapshot, owner: Type, offset: int, limit: int
) -> EntityPage:
    """Entities of a type from an offset on."""
    pin = snapshot.tables.get(owner.table)
    if pin is None or offset >= pin.row_count:
        return EntityPage((), 0 if pin is None else pin.row_count, None, str(snapshot.commit_id))
    with store.history.lost.reading(snapshot):
        reader = store.reader(snapshot, owner.table)
        rows = reader.rows(["id"], limit=limit, offset=offset, with_row_id=True)
        listed = _listed(store, snapshot, owner, rows)
    end = offset + rows.num_rows
    more = end if rows.num_rows and end < pin.row_count else None
    return EntityPage(listed, pin.row_count, more, str(snapshot.commit_id))


def entities_by_id(
    store: Store, snapshot: Snapshot, owner: Type, ids: Sequence[str]
) -> tuple[ListedEntity, ...]:
    """These entities, in this order; those that are not there are left out."""
    if owner.table not in snapshot.tables or not ids:
        return ()
    with store.history.lost.reading(snapshot):
        reader = store.reader(snapshot, owner.table)
        by_id = {each.id: each for each in _listed(store, snapshot, owner, _rows(reader, ids))}
    return tuple(by_id[each] for each in ids if each in by_id)


def _rows(reader: TableReader, ids: Sequence[str]) -> pa.Table:
    """Ids and row ids of those entities that are there."""
    row_ids = known_rows(reader, ids)
    if row_ids is None:
        return reader.rows(["id"], filter=ids_filter(list(ids)), with_row_id=True)
    is_there = row_ids != NO_ROW
    named = pa.array(ids, pa.string()).filter(pa.array(is_there))
    return pa.table({"id": named, ROW_ID: pa.array(row_ids[is_there], pa.uint64())})


def _listed(
    store: Store, snapshot: Snapshot, owner: Type, rows: pa.Table
) -> tuple[ListedEntity, ...]:
    if not rows.num_rows:
        return ()
    ids = rows["id"].combine_chunks()
    picked = Entities(owner, store.reader(snapshot, owner.table)).pick(
        rows[ROW_ID].combine_chunks(), ids
    )
    pairs = zip(ids.to_pylist(), images(owner, picked.rows), strict=True)
    return tuple(ListedEntity(each, image) for each, image in pairs if image is not None)
