"""Expansion along edges (breadth-first search): by index lookups, or in the whole adjacency.

Invariant: both ways end in the same search over the same kind of adjacency, so they give the same
rows. Lookups fetch the edges around the rows' sources and number their ends for this expansion
alone; a resident table is numbered once, for all.
"""

from typing import assert_never

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph import number_arrays
from omnigraph.exec.limits import Watch
from omnigraph.exec.memory.adjacency import (
    Adjacency,
    AdjacencyView,
    ListView,
    NeighbourLists,
    adjacency_of,
)
from omnigraph.exec.memory.numbering import Ids
from omnigraph.exec.memory.version import FetchedEntities, Source
from omnigraph.exec.read.context import Context, TraversalMode, positions_in
from omnigraph.exec.values.columns import in_one
from omnigraph.exec.values.pushdown import ids_filter
from omnigraph.exec.values.rows import BoundEntities, Domain, Positions, Rows
from omnigraph.light_dataclass import dataclass
from omnigraph.plan import ir

Step = ir.Expand | ir.ExpandEdges

_CELLS_MAX = 1 << 24
"""Searches from many sources mark visited nodes in blocks of this many cells."""

_LOOKED_UP_MAX = 4096
_HOPS_ESTIMATED = 32


@dataclass(frozen=True, slots=True)
class Reach:
    """The adjacency a step goes along, and the positions of the rows' sources in it."""

    sources: Positions
    adjacency: AdjacencyView
    targets: Domain
    target_ids: pa.Array | None  # of targets that are not resident
    edges: Domain


def expand(context: Context, op: ir.Expand, rows: Rows) -> Rows:
    """One row for each node reached, or with `closes` the rows whose node is reached."""
    source = rows.bindings[op.source]
    rows = rows.where(source.positions >= 0)
    same_type = rows.bindings[op.source].domain.table == op.target
    hops_max = op.hops_max if same_type else 1
    if op.hops_min > hops_max:
        rows = rows.take(np.empty(0, np.int64))
        hops_max = op.hops_min
    reach = reach_of(context, op, rows, hops_max)
    lists = reach.adjacency.distinct
    if op.closes and hops_max == 1:
        bound = positions_in(reach.targets, reach.target_ids, rows.bindings[op.out])
        context.watch.hold(rows.bytes_as(rows.length))
        return rows.take(np.flatnonzero(lists.joined(reach.sources, bound)))
    if hops_max == 1:
        context.watch.hold(rows.bytes_as(int(lists.degrees(reach.sources).sum())))
        owners, nodes = lists.reached(reach.sources)
    else:
        owners, nodes = _far(context.watch, lists, reach.sources, (op.hops_min, hops_max))
        context.watch.hold(rows.bytes_as(len(nodes)))
    if op.closes:
        bound = positions_in(reach.targets, reach.target_ids, rows.bindings[op.out])
        return rows.take(owners[nodes == bound[owners]])
    return rows.take(owners).bind(op.out, BoundEntities(reach.targets, nodes))


def expand_edges(context: Context, op: ir.ExpandEdges, rows: Rows) -> Rows:
    """One row for each edge taken."""
    rows = rows.where(rows.bindings[op.source].positions >= 0)
    reach = reach_of(context, op, rows, 1)
    lists = reach.adjacency.multiple
    context.watch.hold(rows.bytes_as(int(lists.degrees(reach.sources).sum())))
    owners, nodes, edges = lists.taken(reach.sources)
    if op.closes:
        bound = positions_in(reach.targets, reach.target_ids, rows.bindings[op.out])
        closing = nodes == bound[owners]
        owners, edges = owners[closing], edges[closing]
        return rows.take(owners).bind(op.edge_var, BoundEntities(reach.edges, edges))
    taken = rows.take(owners).bind(op.edge_var, BoundEntities(reach.edges, edges))
    return taken.bind(op.out, BoundEntities(reach.targets, nodes))


def degrees(context: Context, op: Step, rows: Rows) -> np.ndarray:
    """How many rows a single step would make of each row; 0 where its source is null."""
    is_bound = rows.bindings[op.source].positions >= 0
    counts = np.zeros(rows.length, np.int64)
    known = rows.where(is_bound)
    reach = reach_of(context, op, known, 1)
    adjacency = reach.adjacency
    lists: ListView = adjacency.distinct if isinstance(op, ir.Expand) else adjacency.multiple
    counts[is_bound] = lists.degrees(reach.sources)
    return counts


def is_single_step(op: ir.PatternOp, rows: Rows) -> bool:
    """Whether `degrees` tells how many rows an operator makes of each row."""
    match op:
        case ir.ExpandEdges(closes=closes):
            return not closes
        case ir.Expand(closes=False, source=source, target=target, hops_min=1):
            return op.hops_max == 1 or rows.bindings[source].domain.table != target
        case _:
            return False


# ---- which edges


def reach_of(context: Context, op: Step, rows: Rows, hops: int) -> Reach:
    """The edges around the rows' sources, by the cheaper way."""
    source = rows.bindings[op.source]
    if _looks_up(context, op, source, hops):
        return _looked_up(context, op, source, hops)
    return _resident(context, op, source)


def _looks_up(context: Context, op: Step, source: BoundEntities, hops: int) -> bool:
    if context.mode is not TraversalMode.AUTO:
        return context.mode is TraversalMode.INDEXED
    tables = context.tables
    if tables.holds_step(op.edge, op.direction, source.domain.table, op.target):
        return False
    pins = tables.snapshot.tables
    nodes_count = max(pins[source.domain.table].row_count, 1)
    degree = max(pins[op.edge].row_count / nodes_count, 1.0)
    frontier = len(source.positions) * degree ** min(hops - 1, _HOPS_ESTIMATED)
    if frontier > context.frontier_max:
        return False
    return not tables.worth_holding(op.edge, 4 + int(frontier) // 16)


def _resident(context: Context, op: Step, source: BoundEntities) -> Reach:
    """The adjacency of the whole table."""
    tables = context.tables
    starts, targets = tables.nodes(source.domain.table), tables.nodes(op.target)
    adjacency = tables.adjacency(op.edge, op.direction, starts.table, targets.table)
    edges = tables.edges(op.edge, op.direction, starts.table, targets.table)
    sources = positions_in(starts, None, source)
    return Reach(sources, adjacency, targets, None, edges)


def _looked_up(context: Context, op: Step, source: BoundEntities, hops: int) -> Reach:
    """The edges within so many hops, and no others, numbered for this expansion."""
    tables = context.tables
    edges_source, target_source = tables.source(op.edge), tables.source(op.target)
    distinct, inverse = np.unique(source.positions, return_inverse=True)
    starts = Ids(source.domain.ids_at(distinct))
    same_type = source.domain.table == op.target
    targets = starts if same_type else Ids(pa.array([], pa.string()))
    names = _edge_columns(context, op, edges_source)
    fetched: list[tuple[pa.Table, bool]] = []
    frontier = starts.strings
    for _ in range(hops):
        hop = _fetch(context.watch, edges_source, frontier, op.direction, names)
        fetched += hop
        ends = [in_one(rows["dst" if forward else "src"]) for rows, forward in hop]
        reached = pc.unique(pa.concat_arrays(ends))
        frontier = reached.filter(pa.array(targets.locate(reached) < 0))
        targets = targets.extended(frontier)
        if not len(frontier):
            break
    starts = targets if same_type else starts
    adjacency, edges = _local(edges_source, fetched, starts, targets)
    nodes = FetchedEntities(target_source, pa.table({"id": targets.strings}))
    return Reach(inverse, adjacency, nodes, targets.strings, edges)


def _edge_columns(context: Context, op: Step, edges: Source) -> list[str]:
    names = ["src", "dst"]
    if isinstance(op, ir.ExpandEdges):
        read = (edges.columns.name_of(c) for c in context.columns_read.get(op.edge_var, ()))
        names = ["id", *names, *(name for name in read if name is not None)]
    return list(dict.fromkeys(names))


def _columns_walked(direction: ir.Direction) -> tuple[str, ...]:
    """The end columns that hold the nodes a step comes from."""
    match direction:
        case ir.Direction.OUT:
            return ("src",)
        case ir.Direction.IN:
            return ("dst",)
        case ir.Direction.BOTH:
            return "src", "dst"
        case _:
            assert_never(direction)


def _fetch(
    watch: Watch, edges: Source, frontier: pa.Array, direction: ir.Direction, names: list[str]
) -> list[tuple[pa.Table, bool]]:
    """The edges at these nodes, with whether they are walked forwards."""
    fetched = []
    ways = _columns_walked(direction)
    ids = frontier.to_pylist()
    if not ids:
        return [(edges.empty(names), True)]
    for column in ways:
        for start in range(0, len(ids), _LOOKED_UP_MAX):
            filter = ids_filter(ids[start : start + _LOOKED_UP_MAX], column)
            if direction is ir.Direction.BOTH and column == "dst":
                filter += " AND `src` != `dst`"  # a self edge came with `src`
            rows = edges.reader.rows(names, filter=filter)
            watch.hold(rows.nbytes)
            fetched.append((rows, column == "src"))
    return fetched


def _local(
    source: Source, fetched: list[tuple[pa.Table, bool]], starts: Ids, targets: Ids
) -> tuple[Adjacency, FetchedEntities]:
    """Fetched edges as an adjacency over local numbers."""
    rows = pa.concat_tables([table for table, _ in fetched])
    near = [in_one(table["src" if forward else "dst"]) for table, forward in fetched]
    far = [in_one(table["dst" if forward else "src"]) for table, forward in fetched]
    sources = starts.locate(pa.concat_arrays(near))
    neighbours = targets.locate(pa.concat_arrays(far))
    rows, positions = _distinct_edges(rows)
    return adjacency_of(sources, neighbours, positions, len(starts)), FetchedEntities(source, rows)


def _distinct_edges(rows: pa.Table) -> tuple[pa.Table, np.ndarray]:
    """Each edge once, and the position of each row's edge: fetched both ways, an edge comes
    twice."""
    if "id" not in rows.column_names:
        return rows, np.arange(rows.num_rows)
    encoded = in_one(rows["id"]).dictionary_encode()
    codes = encoded.indices.to_numpy()
    _, first = np.unique(codes, return_index=True)
    return rows.take(pa.array(first)), codes


# ---- walking


def _far(
    watch: Watch, lists: ListView, positions: Positions, hops: tuple[int, int]
) -> tuple[np.ndarray, np.ndarray]:
    """Which position reaches which node within the bounds: indexes into `positions`, and nodes. One
    search a distinct source."""
    sources, inverse = np.unique(positions, return_inverse=True)
    nodes_count = lists.nodes
    block = max(1, _CELLS_MAX // max(nodes_count, 1))
    parts = [
        _walk(watch, lists, sources[start : start + block], hops, start)
        for start in range(0, len(sources), block)
    ]
    walked = np.concatenate([owners for owners, _ in parts]) if parts else np.empty(0, np.int64)
    nodes = np.concatenate([nodes for _, nodes in parts]) if parts else np.empty(0, np.int64)
    if len(sources) == len(positions) and (inverse[:-1] <= inverse[1:]).all():
        return walked, nodes
    order = np.argsort(walked, kind="stable")
    starts = np.searchsorted(walked[order], np.arange(len(sources) + 1))
    owners, indexes = NeighbourLists(starts, nodes[order]).spread(inverse)
    return owners, nodes[order][indexes]


def _walk(
    watch: Watch, lists: ListView, sources: np.ndarray, hops: tuple[int, int], offset: int
) -> tuple[np.ndarray, np.ndarray]:
    """Breadth-first search from all sources at once, each with its own marks of visited nodes."""
    hops_min, hops_max = hops
    width = lists.nodes
    visited = np.zeros(len(sources) * width, bool)
    cells = np.arange(len(sources)) * width + sources
    produced = []
    for hop in range(1, hops_max + 1):
        visited[cells] = True
        owners, nodes = np.divmod(cells, width) if len(sources) > 1 else (cells * 0, cells)
        if hop == hops_min:
            # Nodes one hop nearer have not been produced yet; their self edges do it now.
            produced.append(cells[lists.loops(nodes)])
        watch.hold(16 * int(lists.degrees(nodes).sum()))
        spread, reached = lists.reached(nodes)
        cells = owners[spread] * width + reached
        cells = cells[~visited[cells]]
        if hop > 1:
            cells = _distinct(cells, len(visited))
        if hop >= hops_min:
            produced.append(cells)
        if not len(cells):
            break
    owners, nodes = np.divmod(np.concatenate(produced), width) if produced else ([], [])
    return np.asarray(owners, np.int64) + offset, np.asarray(nodes, np.int64)


def _distinct(cells: np.ndarray, size: int) -> np.ndarray:
    if len(cells) * 16 < size:
        return number_arrays.distinct(cells)
    marked = np.zeros(size, bool)
    marked[cells] = True
    return np.flatnonzero(marked)
