"""Views of a snapshot over the resident tables of a graph, and when a table becomes resident.

Invariant: within one query a table is one domain of positions, so that positions of two variables
of one type can be compared. Whether a version becomes resident is a rent-or-buy decision by what
its uses have cost so far: a filter sent to Lance each time, until loading its columns would have
paid.
"""

from collections.abc import Hashable
from threading import RLock
from typing import Any

from omnigraph.exec.limits import arrived
from omnigraph.exec.memory.adjacency import Adjacency, Topology
from omnigraph.exec.memory.cache import Cache
from omnigraph.exec.memory.numbering import Ids
from omnigraph.exec.memory.resident import (
    Edges,
    Nodes,
    follow_edges,
    follow_nodes,
    read_edges,
    read_nodes,
)
from omnigraph.exec.memory.version import Source, line_of
from omnigraph.plan.ir import Direction
from omnigraph.storage.records import Snapshot
from omnigraph.storage.store import Store
from omnigraph.types import TableKey

_SCANNED_ROWS = 262_144
"""A filter that Lance answers by a scan costs about as much as loading this many rows."""

_LOOKED_UP_ROWS = 16_384
"""The same for a filter that an index answers: loading ids means sorting them, and edges
numbering."""

_SOURCE_BYTES = 4096

_Step = tuple[TableKey, Direction, TableKey, TableKey]
"""An edge table, which way, and the node tables a step comes from and goes to."""


class Holdings:
    """Everything one open graph keeps in memory for reading."""

    def __init__(self, store: Store, bytes_max: int) -> None:
        self.store = store
        self.cache = Cache(bytes_max)
        self._numbering = RLock()  # ids of one type get their numbers one reader at a time

    def nodes(self, source: Source) -> Nodes:
        """A node table version, resident from now on."""
        key = (source.key, "nodes")
        nodes: Nodes | None = self.cache.get(key)
        if nodes is not None:
            return nodes
        with self._numbering:
            return self.cache.made(key, lambda: self._made_nodes(source))

    def _made_nodes(self, source: Source) -> tuple[Nodes, int]:
        ids_key = ("ids", source.pin.location)
        known: Ids | None = self.cache.get(ids_key)
        base = self._resident_before(source, "nodes")
        nodes = None
        if known is not None and isinstance(base, Nodes) and base.ids.family is known.family:
            nodes = follow_nodes(source, self.cache, base, known)
        if nodes is None:
            nodes = read_nodes(source, self.cache, known)
        self.cache.put(ids_key, nodes.ids, nodes.ids.bytes_held)
        self._remember(source, "nodes")
        return nodes, nodes.bytes_held

    def topology(self, source: Source, dictionaries: tuple[Ids, Ids]) -> Topology:
        """The edges of a version, resident from now on."""
        family = tuple(ids.family for ids in dictionaries)

        def make() -> tuple[Edges, int]:
            base = self._resident_before(source, "edges", family)
            edges = None
            if isinstance(base, Edges):
                edges = follow_edges(source, self.cache, base, dictionaries)
            if edges is None:
                edges = read_edges(source, self.cache, dictionaries)
            self._remember(source, "edges")
            return edges, edges.bytes_held

        edges = self.cache.made((source.key, "edges", family), make)
        return Topology(edges, self.cache)

    def _resident_before(self, source: Source, what: str, *more: object) -> object | None:
        """The newest resident version of the line, if it is older."""
        version: int | None = self.cache.get((source.line, "newest", what))
        if version is None or version >= source.pin.version:
            return None
        return self.cache.get(((source.line, version), what, *more))

    def _remember(self, source: Source, what: str) -> None:
        newest: int | None = self.cache.get((source.line, "newest", what))
        if newest is None or newest < source.pin.version:
            self.cache.put((source.line, "newest", what), source.pin.version, 0)


class TablesView:
    """The tables of one snapshot, and the resident ones that its queries have looked up so far.

    Queries of one snapshot share a view for an epoch of the cache, so nothing is looked up twice
    and no evicted entry is kept alive.
    """

    def __init__(self, holdings: Holdings, snapshot: Snapshot) -> None:
        self.holdings = holdings
        self.snapshot = snapshot
        self._sources: dict[TableKey, Source] = {}
        self._nodes: dict[TableKey, Nodes] = {}
        self._topologies: dict[tuple[TableKey, TableKey, TableKey], Topology] = {}
        self._adjacencies: dict[_Step, Adjacency] = {}
        self.steps: dict[Hashable, Any] = {}  # adjacency and columns as `read/walk` has them
        self.small: set[object] = set()  # the plans whose results were small

    def source(self, table: TableKey) -> Source:
        """A table's version in this snapshot."""
        source = self._sources.get(table)
        if source is None:
            source = self._sources.setdefault(table, self._open(table))
        return source

    def _open(self, table: TableKey) -> Source:
        pin = self.snapshot.tables.get(table)
        store, cache = self.holdings.store, self.holdings.cache
        if pin is None:
            return Source(store.reader(self.snapshot, table, arrived))
        key = (line_of(pin), pin.version, "source")
        source: Source | None = cache.get(key)
        if source is None:
            source = Source(store.reader(self.snapshot, table, arrived))
            cache.put(key, source, _SOURCE_BYTES)
        return source

    def nodes(self, table: TableKey) -> Nodes:
        """All nodes of a table."""
        nodes = self.resident_nodes(table)
        if nodes is None:
            # Threads share the view: the first to finish decides which domain it is.
            nodes = self._nodes.setdefault(table, self.holdings.nodes(self.source(table)))
        return nodes

    def resident_nodes(self, table: TableKey) -> Nodes | None:
        """All nodes of a table, if they are in memory."""
        nodes = self._nodes.get(table)
        if nodes is None:
            nodes = self.holdings.cache.get((self.source(table).key, "nodes"))
            if nodes is not None:
                nodes = self._nodes.setdefault(table, nodes)
        return nodes

    def holds_nodes(self, table: TableKey) -> bool:
        """Whether a table is in memory."""
        return self.resident_nodes(table) is not None

    def worth_holding(self, table: TableKey, lookups: int = 0) -> bool:
        """Count a use of the table's rows, a scan or so many index lookups; whether loading them
        would have paid by now."""
        source = self.source(table)
        cost = lookups * _LOOKED_UP_ROWS if lookups else _SCANNED_ROWS
        return self.holdings.cache.use((source.key, "uses"), cost) - cost >= source.pin.row_count

    def topology(self, edge: TableKey, source: TableKey, target: TableKey) -> Topology:
        """The edges of a table between the node numbers of its two ends."""
        between = (edge, source, target)
        topology = self._topologies.get(between)
        if topology is None:
            dictionaries = self.nodes(source).ids, self.nodes(target).ids
            made = self.holdings.topology(self.source(edge), dictionaries)
            topology = self._topologies.setdefault(between, made)
        return topology

    def adjacency(
        self, edge: TableKey, direction: Direction, source: TableKey, target: TableKey
    ) -> Adjacency:
        """The neighbours of every node of `source` one step away, by way of an edge table."""
        key = (edge, direction, source, target)
        adjacency = self._adjacencies.get(key)
        if adjacency is None:
            topology = self._stepped(*key)
            made = topology.adjacency(direction, self.nodes(source).size)
            adjacency = self._adjacencies.setdefault(key, made)
        return adjacency

    def edges(
        self, edge: TableKey, direction: Direction, source: TableKey, target: TableKey
    ) -> Edges:
        """The edges that such a step takes."""
        return self._stepped(edge, direction, source, target).edges

    def _stepped(
        self, edge: TableKey, direction: Direction, source: TableKey, target: TableKey
    ) -> Topology:
        forward = direction is not Direction.IN
        return self.topology(edge, *((source, target) if forward else (target, source)))

    def holds_edges(self, edge: TableKey) -> bool:
        """Whether some numbering of the edges is in memory."""
        source = self.source(edge)
        return self.holdings.cache.get((source.line, "newest", "edges")) == source.pin.version
