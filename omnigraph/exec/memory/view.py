"""Views of a snapshot over the resident tables of a graph, and when a table becomes resident.

Invariant: within one query a table is one domain of positions, so that positions of two variables
of one type can be compared. Whether a version becomes resident is a rent-or-buy decision by what
its uses have cost so far: a filter sent to Lance each time, until loading its columns would have
paid.
"""

from collections.abc import Hashable
from threading import RLock
from typing import Any

import pyarrow as pa

from omnigraph.catalog.arrow import property_columns
from omnigraph.costs import COSTS
from omnigraph.errors import LimitExceeded, OmnigraphError
from omnigraph.exec.limits import announce, arrived
from omnigraph.exec.memory.adjacency import AdjacencyView, Topology
from omnigraph.exec.memory.cache import Cache
from omnigraph.exec.memory.filed_columns import ColumnFiles
from omnigraph.exec.memory.filed_ids import FiledIds
from omnigraph.exec.memory.filed_tables import (
    FiledEdges,
    FiledNodes,
    FiledTopology,
    filed_edges,
    filed_nodes,
    follow_filed_edges,
    follow_filed_nodes,
)
from omnigraph.exec.memory.numbering import Ids
from omnigraph.exec.memory.resident import (
    Edges,
    Nodes,
    follow_edges,
    follow_nodes,
    has_columns_of,
    read_edges,
    read_nodes,
)
from omnigraph.exec.memory.version import Source, VersionKey, line_of
from omnigraph.exec.topology.build import Step, build_topology, is_worth_a_file
from omnigraph.lru import Lru
from omnigraph.plan.ir import Direction
from omnigraph.storage.derived.column_file import can_be_filed
from omnigraph.storage.records import Snapshot, TablePin
from omnigraph.storage.store import Store
from omnigraph.types import TableKey

_BYTES_A_ROW = 128
"""The peak of building a topology file: ids of both ends, keys and their order."""

_Step = tuple[TableKey, Direction, TableKey, TableKey]
"""An edge table, which way, and the node tables a step comes from and goes to."""


class Holdings:
    """Everything one open graph keeps in memory for reading."""

    def __init__(self, store: Store, bytes_max: int) -> None:
        self.store = store
        self.cache = Cache(bytes_max)
        self.sources: Lru[VersionKey, Source] = Lru(COSTS.open_versions_max)
        self._numbering = RLock()  # ids of one type get their numbers one reader at a time

    def clear(self) -> None:
        """Drop everything."""
        self.cache.clear()
        self.sources.clear()

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
        nodes = self.filed_nodes(source)
        if known is not None and type(base) is Nodes and base.ids.family is known.family:
            nodes = nodes or follow_nodes(source, self.cache, base, known)
        if nodes is None:
            nodes = read_nodes(source, self.cache, known, self._read_ahead(source))
        self.cache.put(ids_key, nodes.ids, nodes.ids.bytes_held)
        self._remember_nodes(source, nodes)
        return nodes, nodes.bytes_held

    def filed_nodes(self, source: Source) -> Nodes | None:
        """A node table version over a derived file, if there is one that is near enough."""
        before = self._resident_before(source, "nodes")
        if isinstance(before, FiledNodes):
            known = self._filed_ids(before.ids)
            if known.family is before.ids.family and has_columns_of(source, before):
                touched = self._touched(before.source.pin, source.pin)
                if touched is not None:
                    return follow_filed_nodes(source, self.cache, before, known, touched)
        elif before is not None:
            return None  # the version before is in memory whole
        base = self.store.derived.nodes(source.pin)
        if base is None:
            return None
        columns = ColumnFiles(self.store, base.pin, base.file)
        return filed_nodes(source, self.cache, base, self._filed_ids(FiledIds(base.file)), columns)

    def _filed_ids(self, first: FiledIds) -> FiledIds:
        """The longest dictionary over a file, or the one given if there is none yet."""
        known: FiledIds | None = self.cache.get(("filed ids", first.file.digest))
        return first if known is None else known

    def _remember_nodes(self, source: Source, nodes: Nodes) -> None:
        if isinstance(nodes, FiledNodes):
            key = ("filed ids", nodes.file.digest)
            self.cache.put(key, nodes.ids, nodes.ids.bytes_held)
        self._remember(source, "nodes")

    def _touched(self, before: TablePin, pin: TablePin, *names: str) -> pa.Table | None:
        """The ids that differ between two versions, if they are few and can be told."""
        if abs(before.row_count - pin.row_count) > COSTS.followed_rows_max:
            return None
        try:
            touched = self.store.deltas.touched(before, pin, columns=names or None)
        except OmnigraphError:
            return None  # a version between was reclaimed
        return touched if touched.num_rows <= COSTS.followed_rows_max else None

    def mapped_nodes(self, source: Source) -> Nodes | None:
        """A node table version, if it is in memory or a file makes it so without a scan."""
        nodes: Nodes | None = self.cache.get((source.key, "nodes"))
        if nodes is not None:
            return nodes
        with self._numbering:
            nodes = self.cache.get((source.key, "nodes")) or self.filed_nodes(source)
            if nodes is not None:
                self.cache.put((source.key, "nodes"), nodes, nodes.bytes_held)
                self._remember_nodes(source, nodes)
        return nodes

    def filed_edges(
        self, source: Source, dictionaries: tuple[Ids, Ids], family: tuple[object, ...]
    ) -> FiledEdges | None:
        """An edge table version over a derived file, if there is one of these numberings."""
        near, far = dictionaries
        if not isinstance(near, FiledIds) or not isinstance(far, FiledIds):
            return None
        before = self._resident_before(source, "edges", family)
        if isinstance(before, FiledEdges) and has_columns_of(source, before):
            touched = self._touched(before.source.pin, source.pin, "src", "dst")
            if touched is not None:
                return follow_filed_edges(source, self.cache, before, (near, far), touched)
        base = self.store.derived.edges(source.pin, (near.file.lineage, far.file.lineage))
        if base is None:
            return None
        reader = self.store.tables.reader(base.pin, arrived)
        return filed_edges(source, self.cache, base, reader, (near, far))

    def mapped_edges(self, source: Source, dictionaries: tuple[Ids, Ids]) -> Edges | None:
        """An edge table version, if it is in memory or a file makes it so without a scan."""
        family = tuple(ids.family for ids in dictionaries)
        key = (source.key, "edges", family)
        edges: Edges | None = self.cache.get(key)
        if edges is None:
            edges = self.filed_edges(source, dictionaries, family)
            if edges is not None:
                self.cache.put(key, edges, edges.bytes_held)
                self._remember(source, "edges")
        return edges

    def topology(self, source: Source, dictionaries: tuple[Ids, Ids]) -> Topology:
        """The edges of a version, resident from now on."""
        family = tuple(ids.family for ids in dictionaries)

        def make() -> tuple[Edges, int]:
            base = self._resident_before(source, "edges", family)
            edges: Edges | None = self.filed_edges(source, dictionaries, family)
            if edges is None and type(base) is Edges:
                edges = follow_edges(source, self.cache, base, dictionaries)
            if edges is None:
                edges = read_edges(source, self.cache, dictionaries, self._read_ahead(source))
            self._remember(source, "edges")
            return edges, edges.bytes_held

        edges = self.cache.made((source.key, "edges", family), make)
        is_filed = isinstance(edges, FiledEdges)
        return FiledTopology(edges, self.cache) if is_filed else Topology(edges, self.cache)

    def _read_ahead(self, source: Source) -> list[str]:
        """The columns that come with the ids or ends of a table: on an object store a small one is
        read by the calls that the ids take."""
        if self.store.where.is_local or source.pin.row_count > COSTS.remote_read_ahead_rows_max:
            return []
        schema = source.reader.schema
        names = property_columns(schema).values()
        return [name for name in names if can_be_filed(schema.field(name).type)]

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
        self._adjacencies: dict[_Step, AdjacencyView] = {}
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
        store, sources = self.holdings.store, self.holdings.sources
        if pin is None:
            return Source(store.reader(self.snapshot, table, arrived))
        key = (line_of(pin), pin.version)
        source = sources.get(key)
        if source is None:
            source = Source(store.reader(self.snapshot, table, arrived))
            sources.put(key, source)
        return source

    def nodes(self, table: TableKey) -> Nodes:
        """All nodes of a table."""
        nodes = self.resident_nodes(table)
        if nodes is None:
            self._build((), table)
            nodes = self.resident_nodes(table)
        if nodes is None:
            # Threads share the view: the first to finish decides which domain it is.
            nodes = self._nodes.setdefault(table, self.holdings.nodes(self.source(table)))
        return nodes

    def leave_files(self, steps: tuple[Step, ...], *nodes: TableKey) -> None:
        """Make files of these tables for other processes, where they are large and have none."""
        missing = tuple(step for step in steps if not self.holds_edges(*step))
        lacking = tuple(table for table in nodes if not self.holds_nodes(table))
        for step in missing:
            self._build((step,))
        for table in lacking:
            self._build((), table)

    def _build(self, steps: tuple[Step, ...], *nodes: TableKey) -> None:
        """Leave topology files for every process, where this one would read whole tables."""
        tables = (*nodes, *(step[0] for step in steps))
        pins = self.snapshot.tables
        if not all(table in pins and is_worth_a_file(pins[table]) for table in tables):
            return
        try:
            announce(_BYTES_A_ROW * sum(pins[table].row_count for table in tables))
        except LimitExceeded:
            return  # the query may not hold that much: it says so where it reads
        build_topology(self.holdings.store, self.snapshot, steps, nodes)

    def resident_nodes(self, table: TableKey) -> Nodes | None:
        """All nodes of a table, if they are in memory or in a file."""
        nodes = self._nodes.get(table)
        if nodes is None:
            nodes = self.holdings.mapped_nodes(self.source(table))
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
        cost = lookups * COSTS.lookup_cost_rows if lookups else COSTS.scan_cost_rows
        used = self.holdings.cache.use((source.key, "uses"), cost) - cost
        if (
            source.pin.row_count <= COSTS.remote_load_rows_max
            and not self.holdings.store.where.is_local
        ):
            return True
        return used >= source.pin.row_count

    def topology(self, edge: TableKey, source: TableKey, target: TableKey) -> Topology:
        """The edges of a table between the node numbers of its two ends."""
        between = (edge, source, target)
        topology = self._topologies.get(between)
        if topology is None:
            if not self.holds_edges(*between):
                self._build((between,))
            dictionaries = self.nodes(source).ids, self.nodes(target).ids
            made = self.holdings.topology(self.source(edge), dictionaries)
            topology = self._topologies.setdefault(between, made)
        return topology

    def adjacency(
        self, edge: TableKey, direction: Direction, source: TableKey, target: TableKey
    ) -> AdjacencyView:
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

    def holds_edges(self, edge: TableKey, source: TableKey, target: TableKey) -> bool:
        """Whether the edges are in memory or in a file, with the numbering of both ends."""
        if (edge, source, target) in self._topologies:
            return True
        near, far = self.resident_nodes(source), self.resident_nodes(target)
        if near is None or far is None:
            return False
        own = self.source(edge)
        return self.holdings.mapped_edges(own, (near.ids, far.ids)) is not None

    def holds_step(
        self, edge: TableKey, direction: Direction, source: TableKey, target: TableKey
    ) -> bool:
        """Whether such a step needs no scan of a table."""
        forward = direction is not Direction.IN
        return self.holds_edges(edge, *((source, target) if forward else (target, source)))
