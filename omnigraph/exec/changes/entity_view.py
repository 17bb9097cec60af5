"""Entity lookup: the properties of one node or edge, and how many edges of each type a node has.

Invariant: of one snapshot. The cost follows the edges of the entity and the number of edge types,
not the tables.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from omnigraph.catalog.model import Catalog, NodeType, Type
from omnigraph.catalog.near_names import did_you_mean, near_edge
from omnigraph.errors import BadRequest, NotFound
from omnigraph.exec.changes.entities import Entities
from omnigraph.exec.changes.images import Image, Moments, images, moments_of
from omnigraph.exec.values.pushdown import ids_filter
from omnigraph.storage.derived.node_file import NO_ROW
from omnigraph.storage.lance.columns import CREATED, KEY, ROW_ID, UPDATED
from omnigraph.storage.lance.reader import TableReader
from omnigraph.storage.records import Snapshot
from omnigraph.storage.store import Store

OUT, IN = "out", "in"
_ENDS = {OUT: "src", IN: "dst"}


@dataclass(frozen=True, slots=True)
class EdgeCount:
    """How many edges of a type leave a node (`out`) or lead to it (`in`).

    >>> graph.entity("node", "Person", "Bob").edges
    (EdgeCount(type='Knows', direction='in', count=1),)
    """

    type: str
    direction: str
    count: int


@dataclass(frozen=True, slots=True)
class EntityView:
    """One entity of a snapshot. `edges` are those of a node, without the types it has none of.

    >>> [(edges.type, edges.count) for edges in graph.entity("node", "Person", "Ada").edges]
    [('Knows', 1)]
    """

    kind: str
    type: str
    type_id: str
    id: str
    image: Image
    edges: tuple[EdgeCount, ...]
    commit_id: str
    moments: Moments = field(default_factory=dict, repr=False, compare=False)
    """The properties that are dates or moments."""

    @property
    def properties(self) -> dict[str, Any]:
        """The values by name, as those of its image."""
        return self.image.properties

    def to_json(self, dates: str = "numbers") -> dict[str, Any]:
        """The entity as a server sends it; with `dates="iso"` its dates are text."""
        return {
            "kind": self.kind,
            "type": {"id": self.type_id, "name": self.type},
            "id": self.id,
            **self.image.to_json(dates),
            "edges": [
                {"type_name": each.type, "direction": each.direction, "count": each.count}
                for each in self.edges
            ],
            "graph_commit_id": self.commit_id,
        }


def require_type(catalog: Catalog, kind: str, name: str) -> Type:
    """The type of an entity that a caller names, or `BadRequest`."""
    if kind not in ("node", "edge"):
        raise BadRequest(f"'{kind}' is neither node nor edge")
    owner = catalog.node(name) if kind == "node" else catalog.edge(name)
    if owner is None:
        is_node = kind == "node"
        hint = did_you_mean(name, catalog.nodes) if is_node else near_edge(name, catalog)
        raise BadRequest(f"unknown {kind} type '{name}'", hint)
    return owner


class StoredRow(NamedTuple):
    """Where an entity lies in a table version."""

    row_id: int
    written: int  # the table version that last wrote it, or a later one
    is_first: bool  # whether it was never written again under this row id


def stored_row(reader: TableReader, entity: str) -> StoredRow | None:
    """The row of an entity in one table version; None if it has none."""
    row_id = known_row(reader, entity)
    if row_id is not None:
        return None if row_id == NO_ROW else row_at(reader, row_id, entity)
    recent = reader.recent_rows.row_id(reader.pin, entity)
    row = None if recent is None else row_at(reader, recent, entity)
    if row is not None or reader.lacks(pa.array([entity])):
        return row
    ordered = reader.ordered_row(entity)
    row = None if ordered is None else row_at(reader, ordered, entity)
    if row is not None:
        return row
    rows = reader.rows([KEY, CREATED, UPDATED], filter=ids_filter([entity]), with_row_id=True)
    reader.recent_rows.note(reader.pin, rows[KEY], rows[ROW_ID])
    return _stored(rows)


def row_at(reader: TableReader, row_id: int, entity: str) -> StoredRow | None:
    """The row of a row id, if this version has it and it is this entity's."""
    rows = reader.among_row_ids(pa.array([row_id], pa.uint64()), [KEY, CREATED, UPDATED])
    return _stored(rows) if rows[KEY].to_pylist() == [entity] else None


def _stored(rows: pa.Table) -> StoredRow | None:
    if not rows.num_rows:
        return None
    created, written = (rows[name][0].as_py() for name in (CREATED, UPDATED))
    return StoredRow(rows[ROW_ID][0].as_py(), written, created == written)


def known_row(reader: TableReader, entity: str) -> int | None:
    """The row id of a node as a file of node ids has it, `NO_ROW` when it is not there; None when
    no file can tell."""
    row_ids = known_rows(reader, [entity])
    return None if row_ids is None else int(row_ids[0])


def known_rows(reader: TableReader, ids: Sequence[str]) -> np.ndarray | None:
    """The row id of each of these nodes, as `known_row` has it."""
    finder = reader.finder
    return None if finder is None else finder.row_ids(reader.pin, pa.array(ids, pa.string()))


def require_entity(store: Store, snapshot: Snapshot, owner: Type, entity: str) -> None:
    """Pass for an entity that a snapshot has, else `NotFound`."""
    is_stored = False
    if owner.table in snapshot.tables:
        with store.history.lost.reading(snapshot):
            reader = store.reader(snapshot, owner.table)
            row_id = known_row(reader, entity)
            unsure = row_id is None
            is_stored = stored_row(reader, entity) is not None if unsure else row_id != NO_ROW
    if not is_stored:
        raise NotFound(f"{owner.kind} {owner.name}", entity)


def find_entity(
    store: Store, catalog: Catalog, snapshot: Snapshot, owner: Type, entity: str
) -> EntityView:
    """An entity as a snapshot has it, or `NotFound`."""
    missing = NotFound(f"{owner.kind} {owner.name}", entity)
    if owner.table not in snapshot.tables:
        raise missing
    with store.history.lost.reading(snapshot):
        reader = store.reader(snapshot, owner.table)
        row = stored_row(reader, entity)
        if row is None:
            raise missing
        row_ids = pa.array([row.row_id], pa.uint64())
        picked = Entities(owner, reader).pick(row_ids, pa.array([entity]))
        (image,) = images(owner, picked.rows)
        edges = tuple(_edge_counts(store, catalog, snapshot, owner, entity))
    assert image is not None
    return EntityView(
        str(owner.kind),
        owner.name,
        str(owner.id),
        entity,
        image,
        edges,
        str(snapshot.commit_id),
        moments_of(owner),
    )


def _edge_counts(
    store: Store, catalog: Catalog, snapshot: Snapshot, owner: Type, entity: str
) -> Iterator[EdgeCount]:
    if not isinstance(owner, NodeType):
        return
    for edge in catalog.edges.values():
        if edge.table not in snapshot.tables:
            continue
        for direction, node in ((OUT, edge.source), (IN, edge.target)):
            if node != owner.name:
                continue
            reader, end = store.reader(snapshot, edge.table), _ENDS[direction]
            known = known_edges(reader, end, entity)
            count = reader.count(ids_filter([entity], end)) if known is None else len(known)
            if count:
                yield EdgeCount(edge.name, direction, count)


def known_edges(reader: TableReader, end: str, entity: str) -> np.ndarray | None:
    """The row ids of a node's edges as a topology file has them; None when none can tell."""
    finder = reader.finder
    return None if finder is None else finder.edge_row_ids(reader.pin, end, pa.array([entity]))
