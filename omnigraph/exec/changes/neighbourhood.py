"""Neighbourhood of a node: its edges by type, a page at a time, and the nodes at their other ends.

Invariant: of one snapshot. A budget bounds what is read, not what is shown of it: the cost follows
the edges of the nodes that are expanded and the page, not the tables.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from omnigraph.catalog.model import Catalog, EdgeType, NodeType, Type
from omnigraph.errors import BadRequest
from omnigraph.exec.changes.entities import Entities
from omnigraph.exec.changes.entity_view import IN, OUT, known_edges, known_rows
from omnigraph.exec.values.pushdown import ids_filter
from omnigraph.storage.derived.node_file import NO_ROW
from omnigraph.storage.lance.columns import ROW_ID
from omnigraph.storage.lance.reader import TableReader
from omnigraph.storage.records import Snapshot
from omnigraph.storage.store import Store

NODES_MAX = 300
PAGE_EDGES = 50
_ENDS = {OUT: ("src", "dst"), IN: ("dst", "src")}
_NAMES = ("name", "title", "label", "subject", "headline")


@dataclass(frozen=True, slots=True)
class Expansion:
    """A node whose edges of one type and direction are shown, the first `limit` of them."""

    type: str
    id: str
    edge: str
    direction: str
    limit: int = PAGE_EDGES


@dataclass(frozen=True, slots=True)
class SeenNode:
    """A node of a neighbourhood; `step` counts the expansions before it was seen."""

    type: str
    type_id: int
    id: str
    label: str
    step: int = 0

    @property
    def key(self) -> str:
        """What tells it from the others."""
        return f"{self.type}:{self.id}"


@dataclass(frozen=True, slots=True)
class SeenEdge:
    """An edge of a neighbourhood, between the keys of two nodes."""

    type: str
    id: str
    source: str
    target: str


@dataclass(frozen=True, slots=True)
class EdgeOffer:
    """Edges of a node that can be shown: how many there are, and how many are."""

    type: str
    direction: str
    other: str
    total: int
    shown: int = 0

    @property
    def left(self) -> int:
        """How many are not shown."""
        return self.total - self.shown


@dataclass(slots=True)
class Neighbourhood:
    """Nodes and edges around a node. `is_full` when the budget ended it."""

    focus: str
    commit_id: str
    nodes: dict[str, SeenNode] = field(default_factory=dict)
    edges: dict[tuple[str, str], SeenEdge] = field(default_factory=dict)
    offers: tuple[EdgeOffer, ...] = ()
    is_full: bool = False


class Surroundings:
    """Reads the neighbours of nodes in one snapshot."""

    def __init__(self, store: Store, catalog: Catalog, snapshot: Snapshot) -> None:
        self._store = store
        self._catalog = catalog
        self._snapshot = snapshot
        self._rows: dict[tuple[str, str, str], np.ndarray] = {}

    def neighbourhood(
        self,
        focus: NodeType,
        entity: str,
        steps: Sequence[Expansion] | None,
        *,
        first: int = 12,
        budget: int = NODES_MAX,
    ) -> Neighbourhood:
        """A node and what the expansions add to it; without any, the first edges of each type."""
        seen = Neighbourhood(f"{focus.name}:{entity}", str(self._snapshot.commit_id))
        labels = self._labels(focus, [entity])
        seen.nodes[seen.focus] = SeenNode(
            focus.name, int(focus.id), entity, labels.get(entity, entity)
        )
        if steps is None:
            steps = [
                Expansion(focus.name, entity, edge.name, direction, first)
                for edge, direction in self._edges_of(focus)
            ]
        for number, step in enumerate(steps, start=1):
            self._expand(seen, step, number, budget)
        return seen

    def offers(self, owner: NodeType, entity: str, seen: Neighbourhood) -> tuple[EdgeOffer, ...]:
        """What a node can be expanded by, and how much of it is shown already."""
        key = f"{owner.name}:{entity}"
        offered = []
        for edge, direction in self._edges_of(owner):
            total = len(self._edge_rows(edge, direction, entity))
            side = "source" if direction == OUT else "target"
            shown = sum(
                each.type == edge.name and getattr(each, side) == key
                for each in seen.edges.values()
            )
            other = edge.target if direction == OUT else edge.source
            if total:
                offered.append(EdgeOffer(edge.name, direction, other, total, shown))
        return tuple(offered)

    def _edges_of(self, owner: NodeType) -> Iterator[tuple[EdgeType, str]]:
        for edge in self._catalog.edges.values():
            if edge.table in self._snapshot.tables:
                if edge.source == owner.name:
                    yield edge, OUT
                if edge.target == owner.name:
                    yield edge, IN

    def _expand(self, seen: Neighbourhood, step: Expansion, number: int, budget: int) -> None:
        edge = self._catalog.edge(step.edge)
        if edge is None or step.direction not in _ENDS:
            raise BadRequest(f"'{step.edge}' {step.direction} is no edge to follow")
        centre = f"{step.type}:{step.id}"
        if centre not in seen.nodes:
            return  # it was hidden, or the budget ended before it
        page = self._page(edge, step.direction, step.id, step.limit)
        other_type = edge.target if step.direction == OUT else edge.source
        other = self._catalog.nodes[other_type]
        fresh = [end for _, end in page if f"{other.name}:{end}" not in seen.nodes]
        room = max(0, budget - len(seen.nodes))
        taken = list(dict.fromkeys(fresh))[:room]
        seen.is_full |= len(set(fresh)) > room
        labels = self._labels(other, taken)
        for end in taken:
            node = SeenNode(other.name, int(other.id), end, labels.get(end, end), number)
            seen.nodes[node.key] = node
        for edge_id, end in page:
            ends = (centre, f"{other.name}:{end}")
            source, target = ends if step.direction == OUT else ends[::-1]
            if source in seen.nodes and target in seen.nodes:
                seen.edges[edge.name, edge_id] = SeenEdge(edge.name, edge_id, source, target)

    def _reader(self, owner: Type) -> TableReader:
        return self._store.reader(self._snapshot, owner.table)

    def _edge_rows(self, edge: EdgeType, direction: str, entity: str) -> np.ndarray:
        """The row ids of a node's edges, in any order."""
        reader, end = self._reader(edge), _ENDS[direction][0]
        key = edge.name, direction, entity
        if key not in self._rows:  # an expansion and an offer ask for the same
            known = known_edges(reader, end, entity)
            if known is None:
                known = reader.row_ids(ids_filter([entity], end)).to_numpy()
            self._rows[key] = known
        return self._rows[key]

    def _page(
        self, edge: EdgeType, direction: str, entity: str, limit: int
    ) -> list[tuple[str, str]]:
        """The ids of a node's first edges in the order of the table, each with the id at the other
        end."""
        rows = _least(self._edge_rows(edge, direction, entity), max(0, min(limit, NODES_MAX)))
        if not len(rows):
            return []
        other = _ENDS[direction][1]
        read = self._reader(edge).by_row_id(pa.array(rows, pa.uint64()), ["id", other])
        return list(zip(read["id"].to_pylist(), read[other].to_pylist(), strict=True))

    def _labels(self, owner: NodeType, ids: Sequence[str]) -> dict[str, str]:
        """What people call these nodes: a property such as `name`, else the id."""
        named = next((name for name in _NAMES if _is_text(owner, name)), None)
        if named is None or owner.key == (named,) or not ids:
            return {}
        reader = self._reader(owner)
        rows = self._node_rows(reader, ids)
        if not len(rows):
            return {}
        row_ids = pa.array(rows, pa.uint64())
        known_ids = reader.by_row_id(row_ids, ["id"])["id"].combine_chunks()
        values = Entities(owner, reader).pick(row_ids, known_ids).rows[named].to_pylist()
        pairs = zip(known_ids.to_pylist(), values, strict=True)
        return {each: value for each, value in pairs if value}

    def _node_rows(self, reader: TableReader, ids: Sequence[str]) -> np.ndarray:
        known = known_rows(reader, ids)
        if known is not None:
            return np.asarray(known[known != NO_ROW])
        read = reader.rows(["id"], filter=ids_filter(list(ids)), with_row_id=True)
        return np.asarray(read[ROW_ID].to_numpy())


def _least(numbers: np.ndarray, count: int) -> np.ndarray:
    """The smallest numbers, in order; a hub has many more edges than are shown."""
    if len(numbers) > count:
        numbers = np.partition(numbers, count)[:count]
    return np.sort(numbers)


def _is_text(owner: NodeType, name: str) -> bool:
    prop = owner.property(name)
    return prop is not None and prop.type.is_text
