"""Expansion along edges (breadth-first search): by index lookups, or in the whole adjacency.

Invariant: both ways end in the same search over the same kind of adjacency, so they give the same
rows. Lookups fetch the edges around the rows' sources and number their ends for this expansion
alone; a resident table is numbered once, for all. An expansion leaves in batches, never empty of
batches: one without a row still binds its variables.
"""

from collections.abc import Iterable, Iterator
from typing import assert_never

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.costs import COSTS
from omnigraph.exec.limits import Watch
from omnigraph.exec.memory.adjacency import (
    Adjacency,
    AdjacencyView,
    ListView,
    adjacency_of,
)
from omnigraph.exec.memory.numbering import Ids
from omnigraph.exec.memory.version import FetchedEntities, Source
from omnigraph.exec.read.context import Context, TraversalMode, positions_in
from omnigraph.exec.read.hop_search import search_blocks
from omnigraph.exec.read.neighbour_batches import (
    Reached,
    reached_in_batches,
    spread_in_batches,
    taken_in_batches,
)
from omnigraph.exec.values.columns import in_one
from omnigraph.exec.values.pushdown import ids_filter
from omnigraph.exec.values.rows import BoundEntities, Domain, Positions, Rows
from omnigraph.light_dataclass import dataclass
from omnigraph.plan import ir

Step = ir.Expand | ir.ExpandEdges

_HOPS_ESTIMATED = 32


@dataclass(frozen=True, slots=True)
class Reach:
    """The adjacency a step goes along, and the positions of the rows' sources in it."""

    sources: Positions
    adjacency: AdjacencyView
    targets: Domain
    target_ids: pa.Array | None  # of targets that are not resident
    edges: Domain


def expand(
    context: Context, op: ir.Expand, rows: Rows, rows_max: int | None = None
) -> Iterator[Rows]:
    """One row for each node reached, or with `closes` the rows whose node is reached; no more than
    `rows_max` at a time."""
    source = rows.bindings[op.source]
    rows = rows.where(source.positions >= 0)
    same_type = rows.bindings[op.source].domain.table == op.target
    hops_max = op.hops_max if same_type else 1
    if op.hops_min > hops_max:
        rows = rows.take(np.empty(0, np.int64))
        hops_max = op.hops_min
    reach = reach_of(context, op, rows, hops_max)
    lists = reach.adjacency.distinct
    bound = None
    if op.closes:
        bound = positions_in(reach.targets, reach.target_ids, rows.bindings[op.out])
        if hops_max == 1:
            context.watch.hold(rows.bytes_as(rows.length))
            yield rows.take(np.flatnonzero(lists.joined(reach.sources, bound)))
            return
    if hops_max == 1:
        if rows_max is None:
            context.watch.hold(rows.bytes_as(int(lists.degrees(reach.sources).sum())))
        pairs = reached_in_batches(lists, reach.sources, rows_max)
    else:
        pairs = _far(context.watch, reach, (op.hops_min, hops_max), rows_max)
        pairs = pairs if rows_max is not None else iter([_joined(pairs)])
    for owners, nodes in pairs:
        context.watch.hold(rows.bytes_as(len(nodes)))
        if bound is not None:
            yield rows.take(owners[nodes == bound[owners]])
        else:
            yield rows.take(owners).bind(op.out, BoundEntities(reach.targets, nodes))


def _far(
    watch: Watch, reach: Reach, hops: tuple[int, int], rows_max: int | None
) -> Iterator[Reached]:
    """Which row reaches which node within the bounds: the number of a row, and a node. One search a
    distinct source."""
    sources, inverse = np.unique(reach.sources, return_inverse=True)
    order = np.argsort(inverse, kind="stable")
    firsts = np.searchsorted(inverse[order], np.arange(len(sources) + 1))
    cells_max = None if rows_max is None else COSTS.search_cells_per_row * rows_max
    for block in search_blocks(watch, reach.adjacency.distinct, sources, hops, cells_max):
        starts = np.searchsorted(block.owners, np.arange(block.first, block.end + 1))
        own = order[firsts[block.first] : firsts[block.end]]  # the rows of these sources
        numbers = inverse[own] - block.first
        counts = starts[numbers + 1] - starts[numbers]
        for owners, indexes in spread_in_batches(starts[numbers], counts, rows_max):
            yield own[owners], block.nodes[indexes]


def _joined(pairs: Iterable[Reached]) -> Reached:
    owners, nodes = zip(*pairs, strict=True)
    return np.concatenate(owners), np.concatenate(nodes)


def expand_edges(
    context: Context, op: ir.ExpandEdges, rows: Rows, rows_max: int | None = None
) -> Iterator[Rows]:
    """One row for each edge taken, no more than `rows_max` at a time."""
    rows = rows.where(rows.bindings[op.source].positions >= 0)
    reach = reach_of(context, op, rows, 1)
    lists = reach.adjacency.multiple
    bound = None
    if op.closes:
        bound = positions_in(reach.targets, reach.target_ids, rows.bindings[op.out])
    if rows_max is None:
        context.watch.hold(rows.bytes_as(int(lists.degrees(reach.sources).sum())))
    for owners, nodes, edges in taken_in_batches(lists, reach.sources, rows_max):
        context.watch.hold(rows.bytes_as(len(nodes)))
        if bound is not None:
            closing = nodes == bound[owners]
            owners, edges = owners[closing], edges[closing]
            yield rows.take(owners).bind(op.edge_var, BoundEntities(reach.edges, edges))
            continue
        taken = rows.take(owners).bind(op.edge_var, BoundEntities(reach.edges, edges))
        yield taken.bind(op.out, BoundEntities(reach.targets, nodes))


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
        for start in range(0, len(ids), COSTS.edge_lookup_ids_max):
            filter = ids_filter(ids[start : start + COSTS.edge_lookup_ids_max], column)
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
