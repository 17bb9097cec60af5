"""Builder of topology files: node dictionaries and adjacency, written once for every process.

    scan ids ─▶ node file ─▶ scan ends ─▶ numbers ─▶ sort ─▶ edge file

Invariant: a file is derived from one table version and nothing else. A file that follows another
keeps its numbers, so edge files outlive changes of nodes. Building changes no table and no answer:
when it fails, or another process is at it, everything goes on without.
"""

from collections.abc import Iterable, Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph import environment
from omnigraph.catalog.model import Catalog
from omnigraph.errors import OmnigraphError
from omnigraph.exec.threads import in_order
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
from omnigraph.exec.topology.short_ids import ShortIds, short_ids
from omnigraph.exec.values.columns import in_one
from omnigraph.light_dataclass import dataclass
from omnigraph.number_arrays import from_arrow
from omnigraph.storage.derived.derived_folder import EDGES, NODES
from omnigraph.storage.derived.edge_delta_file import EDGE_DELTAS, delta_facts
from omnigraph.storage.derived.edge_file import edge_arrays
from omnigraph.storage.derived.mapped_file import DamagedFile
from omnigraph.storage.derived.node_file import node_arrays
from omnigraph.storage.lance.columns import KEY, ROW_ID
from omnigraph.storage.lance.derived_bases import TOUCHED_FEW, EdgeBase, NodeBase
from omnigraph.storage.lance.reader import TableReader
from omnigraph.storage.records import Snapshot, TablePin
from omnigraph.storage.store import Store
from omnigraph.types import Kind, TableKey, table_key

_EDGES_MAX = (1 << 31) - 1
"""Positions and numbers are 32-bit integers."""

_FOLDED_SHARE = 10
"""A delta of more than this share of its edge file is folded into a new one."""

NO_ENDS: Mapping[TableKey, LoadedEnds] = {}

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


def topology_after(
    store: Store,
    catalog: Catalog,
    branch: str,
    *,
    touched: frozenset[TableKey] | None = None,
    moved: frozenset[TableKey] = frozenset(),
    ends: Mapping[TableKey, LoadedEnds] = NO_ENDS,
) -> tuple[TopologyNote, ...]:
    """The last stage of a write: files for the tables it touched (None: for all), at the head of
    its branch. What stops it stops nothing else: the commit is published. `ends` are the numbers
    that a load gave to the ends of its edges."""
    if store.read_only:
        return ()
    steps = [step for step in steps_of(catalog) if touched is None or touched.intersection(step)]
    nodes = [node.table for node in catalog.nodes.values()]
    nodes = [table for table in nodes if touched is None or table in touched]
    try:
        return build_topology(store, store.snapshot(branch), steps, nodes, moved=moved, ends=ends)
    except OmnigraphError as cause:
        store.stats.event("derived.unwritten", cause=str(cause))
        return ()


def build_topology(
    store: Store,
    snapshot: Snapshot,
    steps: Iterable[Step],
    nodes: Iterable[TableKey] = (),
    *,
    moved: frozenset[TableKey] = frozenset(),
    ends: Mapping[TableKey, LoadedEnds] = NO_ENDS,
) -> tuple[TopologyNote, ...]:
    """Write the files that are missing or far behind; nothing when another process is at it.

    `moved` are tables most of whose rows have new addresses: their files are written for this
    version.
    """
    builder = _Builder(store, snapshot, moved, ends)
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
    ) -> None:
        self._store = store
        self._snapshot = snapshot
        self._moved = moved
        self._ends = ends
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
        return pin.table_key not in self._moved and base.touched.num_rows <= TOUCHED_FEW

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
        if base is not None and self._is_current(base, pin):
            return base
        if base is None:
            self._write_nodes(pin)
        else:
            self._fold_nodes(pin, base)
        self._store.derived.clear()
        return self._store.derived.nodes(pin)

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
        if ends is not None:
            row_ids = from_arrow(in_one(reader.row_ids()))
        else:
            rows = reader.rows(["src", "dst"], with_row_id=True)
            ends = _both_numbers(rows, source, target)
            if any(each.min(initial=0) < 0 for each in ends):
                # A node newer than the file of its table: the delta numbers it otherwise.
                source, target = self._exact(source, target)
                ends = _both_numbers(rows, source, target)
            row_ids = from_arrow(in_one(rows[ROW_ID]))
        counts = (source.file.count, target.file.count)
        facts, arrays = edge_arrays(ends, counts, row_ids)
        self._write_edge_file(pin, source, target, facts, arrays, in_order=True)

    def _loaded(
        self, pin: TablePin, reader: TableReader, source: NodeBase, target: NodeBase
    ) -> Ends | None:
        """The numbers that a load gave to the edges of a version, if it has the files of that load
        and no others, and the node files keep those numbers."""
        loaded = self._ends.get(pin.table_key)
        if loaded is None or not reader.consists_of(loaded.fragments):
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
                pin = self._snapshot.tables[key]
                self._fold_nodes(pin, base)
                self._store.derived.clear()
                base = self._store.derived.nodes(pin) or base
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
    return (len(delta.removed) + len(delta.row_ids)) * _FOLDED_SHARE <= base.file.count


def _both_numbers(
    rows: pa.Table, source: NodeBase, target: NodeBase
) -> tuple[np.ndarray, np.ndarray]:
    """The numbers at both ends of edges, worked out at once."""
    own = short_ids(source.file.strings)
    other = own if source is target else short_ids(target.file.strings)
    sides = ((rows["src"], source, own), (rows["dst"], target, other))
    near, far = in_order(lambda side: _numbers(*side), sides, threads=2)
    return near, far


def _numbers(ids: pa.ChunkedArray, base: NodeBase, known: ShortIds | None) -> np.ndarray:
    """The numbers of ends; -1 for a node that the version of the base does not have."""
    file = base.file
    if known is not None:
        flat = known.numbers(ids)
    else:
        numbers = pc.index_in(ids.cast(file.strings.type), value_set=file.strings).fill_null(-1)
        flat = numbers.to_numpy()
    if len(file.gone):
        flat = np.where(np.isin(flat, file.gone), -1, flat)
    return flat.astype(np.int32, copy=False)
