"""Builder of topology files: node dictionaries and adjacency, written once for every process.

    scan ids ─▶ node file ─▶ columns that the schema calls hot
                          ─▶ scan ends ─▶ numbers ─▶ sort ─▶ edge file

Invariant: a file is derived from one table version and nothing else. A file that follows another
keeps its numbers, so edge files outlive changes of nodes. Building changes no table and no answer:
when it fails, or another process is at it, everything goes on without.
"""

from collections.abc import Iterable, Mapping

import numpy as np
import pyarrow as pa

from omnigraph import environment
from omnigraph.catalog.arrow import property_columns
from omnigraph.catalog.model import Catalog
from omnigraph.costs import COSTS
from omnigraph.errors import OmnigraphError
from omnigraph.exec.topology.build_column import column_made
from omnigraph.exec.topology.edge_delta import EdgeDelta, followed, stored_delta
from omnigraph.exec.topology.edge_fold import folded_arrays
from omnigraph.exec.topology.end_numbers import Ends, LoadedEnds
from omnigraph.exec.topology.node_delta import (
    equal_columns,
    id_columns_of,
    kept_numbers,
    node_delta,
    text_equal_to_id,
)
from omnigraph.exec.topology.table_ends import EndsTasks, table_ends
from omnigraph.exec.values.columns import in_one
from omnigraph.light_dataclass import dataclass
from omnigraph.number_arrays import from_arrow
from omnigraph.storage.derived.column_file import can_be_filed
from omnigraph.storage.derived.derived_folder import EDGES, NODES
from omnigraph.storage.derived.edge_delta_file import EDGE_DELTAS, delta_facts
from omnigraph.storage.derived.edge_file import edge_arrays
from omnigraph.storage.derived.mapped_file import DamagedFile
from omnigraph.storage.derived.node_file import node_arrays
from omnigraph.storage.lance.columns import KEY, ROW_ID
from omnigraph.storage.lance.derived_bases import EdgeBase, NodeBase
from omnigraph.storage.lance.reader import TableReader
from omnigraph.storage.names import MAIN
from omnigraph.storage.records import Commit, Snapshot, TablePin
from omnigraph.storage.store import Store
from omnigraph.types import Kind, PropertyId, TableKey, table_key

_EDGES_MAX = (1 << 31) - 1
"""Positions and numbers are 32-bit integers."""

NO_ENDS: Mapping[TableKey, LoadedEnds] = {}

HotColumns = Mapping[TableKey, tuple[PropertyId, ...]]
"""The properties of node tables that a schema asks column files of."""

NO_COLUMNS: HotColumns = {}

Step = tuple[TableKey, TableKey, TableKey]
"""An edge table, and the node tables of its source and target."""


@dataclass(frozen=True, slots=True)
class TopologyNote:
    """A table whose file was written."""

    table: TableKey
    version: int
    bytes: int


def is_worth_a_file(pin: TablePin) -> bool:
    """Whether a table is so large that a file of it pays."""
    return environment.TOPOLOGY_ROWS.read() <= pin.row_count <= _EDGES_MAX


def steps_of(catalog: Catalog) -> list[Step]:
    """The edge tables of a schema with the node tables at their ends."""
    return [
        (edge.table, table_key(Kind.NODE, edge.source), table_key(Kind.NODE, edge.target))
        for edge in catalog.edges.values()
    ]


def hot_columns(catalog: Catalog) -> HotColumns:
    """The properties with `@hot`, by table."""
    hot = {
        node.table: tuple(prop.id for prop in node.properties if prop.is_hot)
        for node in catalog.nodes.values()
    }
    return {table: properties for table, properties in hot.items() if properties}


def topology_after(
    store: Store,
    catalog: Catalog,
    branch: str,
    *,
    touched: frozenset[TableKey] | None = None,
    moved: frozenset[TableKey] = frozenset(),
    ends: Mapping[TableKey, LoadedEnds] = NO_ENDS,
    tasks: EndsTasks | None = None,
) -> tuple[TopologyNote, ...]:
    """The last stage of a write: files for the tables it touched (None: for all), at the head of
    its branch. What stops it stops nothing else: the commit is published. `ends` are the numbers
    that a load gave to the ends of its edges; `tasks` number those of large tables elsewhere."""
    if store.read_only:
        return ()
    steps = [step for step in steps_of(catalog) if touched is None or touched.intersection(step)]
    nodes = [node.table for node in catalog.nodes.values()]
    nodes = [table for table in nodes if touched is None or table in touched]
    hot = hot_columns(catalog)
    try:
        snapshot = store.snapshot(branch)
        return build_topology(
            store, snapshot, steps, nodes, moved=moved, ends=ends, hot=hot, tasks=tasks
        )
    except OmnigraphError as cause:
        store.stats.event("derived.unwritten", cause=str(cause))
        return ()
    finally:
        store.leave_checkpoint()


def topology_after_commit(store: Store, catalog: Catalog, commit: Commit) -> None:
    """The last stage of a merge: files for the tables of which it changed many rows, so that the
    next reader need not read them one by one."""
    many = frozenset(
        table
        for table, rows in commit.counts.items()
        if rows.inserted + rows.updated + rows.deleted > COSTS.commit_file_rows_max
    )
    if many:
        topology_after(store, catalog, commit.branch or MAIN, touched=many)


def build_topology(
    store: Store,
    snapshot: Snapshot,
    steps: Iterable[Step],
    nodes: Iterable[TableKey] = (),
    *,
    moved: frozenset[TableKey] = frozenset(),
    ends: Mapping[TableKey, LoadedEnds] = NO_ENDS,
    hot: HotColumns = NO_COLUMNS,
    tasks: EndsTasks | None = None,
) -> tuple[TopologyNote, ...]:
    """Write the files that are missing or far behind; nothing when another process is at it.

    `moved` are tables most of whose rows have new addresses: their files are written for this
    version.
    """
    builder = _Builder(store, snapshot, moved, ends, hot, tasks)
    steps = [step for step in steps if builder.is_large(step[0])]
    node_tables = dict.fromkeys(each for step in steps for each in step[1:])
    node_tables |= dict.fromkeys(each for each in nodes if builder.is_large(each))
    if not node_tables:
        return ()
    with store.derived.files.building() as is_builder:
        if not is_builder:
            return ()
        try:
            builder.build(node_tables, steps)
        except (OmnigraphError, DamagedFile) as cause:
            if isinstance(cause, DamagedFile):
                store.derived.reject(cause)
            store.stats.event("derived.unwritten", cause=str(cause))
    return tuple(builder.notes)


class _Builder:
    """One run of the builder over one snapshot."""

    def __init__(
        self,
        store: Store,
        snapshot: Snapshot,
        moved: frozenset[TableKey],
        ends: Mapping[TableKey, LoadedEnds],
        hot: HotColumns,
        tasks: EndsTasks | None,
    ) -> None:
        self._store = store
        self._snapshot = snapshot
        self._moved = moved
        self._ends = ends
        self._hot = hot
        self._tasks = tasks
        self.notes: list[TopologyNote] = []

    def is_large(self, table: TableKey) -> bool:
        pin = self._snapshot.tables.get(table)
        return pin is not None and is_worth_a_file(pin)

    def build(self, nodes: Iterable[TableKey], steps: Iterable[Step]) -> None:
        pins = self._snapshot.tables
        bases: dict[TableKey, NodeBase | None] = {}
        for table in nodes:
            if table in pins and pins[table].row_count <= _EDGES_MAX:
                bases[table] = self._nodes(pins[table])
        for edge, source, target in steps:
            near, far = bases.get(source), bases.get(target)
            if near is not None and far is not None:
                self._edges(pins[edge], near, far)

    def _is_current(self, base: NodeBase | EdgeBase, pin: TablePin) -> bool:
        if base.is_exact:
            return True
        return (
            pin.table_key not in self._moved and base.touched.num_rows <= COSTS.commit_file_rows_max
        )

    def _write(
        self, kind: str, pin: TablePin, facts: dict[str, object], arrays: dict[str, np.ndarray]
    ) -> None:
        facts = {**facts, "fingerprint": self._store.derived.fingerprint(pin)}
        file = self._store.derived.files.write(kind, pin, facts, arrays)
        if file is not None:
            self.notes.append(TopologyNote(pin.table_key, pin.version, file.size))

    # Nodes

    def _nodes(self, pin: TablePin) -> NodeBase | None:
        base = self._store.derived.nodes(pin)
        if base is not None and self._is_current(base, pin) and self._can_have_columns(pin, base):
            self._make_columns(pin, base)
            return base
        return self._nodes_anew(pin, base)

    def _nodes_anew(self, pin: TablePin, base: NodeBase | None) -> NodeBase | None:
        """The file of a version and its hot columns, after one that keeps its numbers."""
        if base is None:
            self._write_nodes(pin)
        else:
            self._fold_nodes(pin, base)
        self._store.derived.clear()
        base = self._store.derived.nodes(pin)
        if base is not None:
            self._make_columns(pin, base)
        return base

    def _write_nodes(self, pin: TablePin) -> None:
        reader = self._store.tables.reader(pin)
        same = text_equal_to_id(reader)
        rows = reader.rows([KEY, *same.values()], with_row_id=True)
        ids, row_ids = in_one(rows[KEY]), from_arrow(in_one(rows[ROW_ID]))
        before = self._store.derived.numbering(pin)
        kept = None if before is None else kept_numbers(before, ids, row_ids)
        facts, arrays = node_arrays(*(kept or (ids, row_ids)))
        lineage = [] if before is None or kept is None else sorted(before.lineage)
        more = {
            "lineage": lineage,
            "id_columns": equal_columns(rows, same),
            "in_order": kept is None,
        }
        self._write(NODES, pin, {**facts, **more}, arrays)

    def _fold_nodes(self, pin: TablePin, base: NodeBase) -> None:
        """A file of base and delta, which keeps the numbers of the base."""
        file, delta = base.file, node_delta(base.touched)
        numbers = file.locate(delta.ids)
        new = (numbers < 0) & ~delta.is_gone
        ids = pa.concat_arrays(
            [file.strings, delta.ids.filter(pa.array(new)).cast(file.strings.type)]
        )
        row_ids = np.concatenate((file.row_ids.whole(), delta.row_ids[new]))
        known = numbers >= 0
        row_ids[numbers[known]] = delta.row_ids[known]
        facts, arrays = node_arrays(ids, row_ids)
        columns = id_columns_of(file, delta, self._store.tables.reader(pin))
        more = {"lineage": sorted(file.lineage), "id_columns": sorted(columns), "in_order": False}
        self._write(NODES, pin, {**facts, **more}, arrays)

    # Columns

    def _make_columns(self, pin: TablePin, base: NodeBase) -> None:
        """Write the hot columns that have no file yet, by the numbers of a node file."""
        for each, stored in self._hot_types(pin).items():
            if each not in base.file.id_columns:
                column_made(self._store, base.pin, base.file, each, stored)

    def _can_have_columns(self, pin: TablePin, base: NodeBase) -> bool:
        """Whether the version of a node file has the hot columns of a later one, and is there."""
        types = self._hot_types(pin)
        try:
            return not types or base.pin == pin or self._hot_types(base.pin) == types
        except OmnigraphError:
            return False

    def _hot_types(self, pin: TablePin) -> dict[PropertyId, str]:
        """The hot properties of a large table, with the types of their columns in a version."""
        hot = self._hot.get(pin.table_key, ())
        if not hot or not is_worth_a_file(pin):
            return {}
        schema = self._store.tables.reader(pin).schema
        names = property_columns(schema)
        types = {each: schema.field(names[each]).type for each in hot if each in names}
        return {each: str(stored) for each, stored in types.items() if can_be_filed(stored)}

    # Edges

    def _edges(self, pin: TablePin, source: NodeBase, target: NodeBase) -> None:
        base = self._store.derived.edges(pin, (source.file.lineage, target.file.lineage))
        if base is not None and self._is_current(base, pin):
            return
        if base is None:
            self._write_edges(pin, source, target)
        else:
            self._fold_edges(pin, base, source, target)
        self._store.derived.clear()

    def _write_edges(self, pin: TablePin, source: NodeBase, target: NodeBase) -> None:
        reader = self._store.tables.reader(pin)
        ends = self._loaded(pin, reader, source, target)
        if ends is None:
            ends = table_ends(self._store, reader, (source, target), self._tasks)
            if any(each.min(initial=0) < 0 for each in ends):
                # A node newer than the file of its table: the delta numbers it otherwise.
                source, target = self._exact(source, target)
                ends = table_ends(self._store, reader, (source, target), self._tasks)
        counts = (source.file.count, target.file.count)
        row_ids = from_arrow(in_one(reader.row_ids()))
        facts, arrays = edge_arrays(ends, counts, row_ids)
        self._write_edge_file(pin, source, target, facts, arrays, in_order=True)

    def _loaded(
        self, pin: TablePin, reader: TableReader, source: NodeBase, target: NodeBase
    ) -> Ends | None:
        """The numbers that a load gave to the edges of a version, if it has the files of that load
        and no others, and the node files keep those numbers."""
        loaded = self._ends.get(pin.table_key)
        if loaded is None or not reader.consists_of([each.metadata for each in loaded.fragments]):
            return None
        files = source.file, target.file
        for nodes, file in zip(loaded.nodes, files, strict=True):
            if nodes.base.file.digest not in file.lineage:
                return None
        numbers = loaded.whole()
        is_whole = numbers is not None and len(numbers[0]) == pin.row_count
        return numbers if is_whole else None

    def _exact(self, *bases: NodeBase) -> list[NodeBase]:
        """The bases whose files have every node of the snapshot."""
        exact: dict[TableKey, NodeBase] = {}
        for base in bases:
            key = base.pin.table_key
            if key not in exact and base.touched.num_rows:
                base = self._nodes_anew(self._snapshot.tables[key], base) or base
            exact.setdefault(key, base)
        return [exact[base.pin.table_key] for base in bases]

    def _write_edge_file(
        self,
        pin: TablePin,
        source: NodeBase,
        target: NodeBase,
        facts: dict[str, object],
        arrays: dict[str, np.ndarray],
        *,
        in_order: bool,
    ) -> None:
        more = {"source": source.file.digest, "target": target.file.digest, "in_order": in_order}
        self._write(EDGES, pin, {**facts, **more}, arrays)

    def _delta(
        self, pin: TablePin, base: EdgeBase, source: NodeBase, target: NodeBase
    ) -> EdgeDelta:
        readers = self._store.tables.reader(base.pin), self._store.tables.reader(pin)
        locate = source.file.locate, target.file.locate
        return followed(base.file, stored_delta(base), base.touched, readers, locate)[0]

    def _fold_edges(
        self, pin: TablePin, base: EdgeBase, source: NodeBase, target: NodeBase
    ) -> None:
        """A file of the edges since the base alone; or, where those are many or rows have moved,
        of base and delta, without reading the edges of the base again."""
        delta = self._delta(pin, base, source, target)
        if (delta.source < 0).any() or (delta.target < 0).any():
            source, target = self._exact(source, target)
            delta = self._delta(pin, base, source, target)
        if pin.table_key not in self._moved and _is_short(delta, base):
            ends = source.file.digest, target.file.digest
            self._write(EDGE_DELTAS, pin, *delta_facts(base.file, *ends, delta.arrays))
            return
        counts = (source.file.count, target.file.count)
        facts, arrays = folded_arrays(base.file, delta, counts)
        self._write_edge_file(pin, source, target, facts, arrays, in_order=False)


def _is_short(delta: EdgeDelta, base: EdgeBase) -> bool:
    return (
        len(delta.removed) + len(delta.row_ids)
    ) * COSTS.edge_delta_fold_share <= base.file.count
