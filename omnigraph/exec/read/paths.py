"""Walks along several edge tables, with conditions on their way, and the paths they leave.

Invariant: rows are those of a breadth-first search from each source (`path_search`), in the order
of destinations and then of paths, whatever was resident. The edges that a walk may take are always
read as whole tables: what a condition leaves of them is known only hop by hop.
"""

from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa

from omnigraph.costs import COSTS
from omnigraph.errors import ExpressionFailed
from omnigraph.exec.memory.resident import Edges
from omnigraph.exec.read.context import Context, positions_in
from omnigraph.exec.read.cost_search import by_cost
from omnigraph.exec.read.members import MemberDomains, put_back
from omnigraph.exec.read.path_search import (
    EdgeLane,
    Paths,
    Question,
    Reached,
    SearchField,
    edge_ranks,
    search,
)
from omnigraph.exec.values.rows import BoundEntities, Rows, as_numpy
from omnigraph.light_dataclass import dataclass
from omnigraph.plan import ir
from omnigraph.plan.explain import expression
from omnigraph.types import TableKey


def expand_paths(
    context: Context, op: ir.ExpandPaths, rows: Rows, rows_max: int | None = None
) -> Iterator[Rows]:
    """One row for each node reached, or each path to it; with `closes` only to the node bound. With
    `rows_max` from few rows at a time: how many paths lead from one is not known before."""
    walk = _Walk(context, op)
    size, first = rows.length if rows_max is None else min(COSTS.path_rows_first, rows_max), 0
    while first < rows.length or not first:
        part = _from_rows(walk, rows.between(first, first + size))
        yield part
        first = max(first + size, 1)
        if rows_max is not None:
            size = max(size // 2, 1) if part.length > rows_max else min(size * 2, rows_max)


def _from_rows(walk: "_Walk", rows: Rows) -> Rows:
    op = walk.op
    rows = rows.where(rows.bindings[op.source].positions >= 0)
    spots = walk.spots_of(rows.bindings[op.source])
    if len(spots) and spots.min() < 0:  # of a member that no edge leads from
        rows, spots = rows.where(spots >= 0), spots[spots >= 0]
    goals = walk.spots_of(rows.bindings[op.out]) if op.closes else None
    sources, inverse = np.unique(spots, return_inverse=True)
    parts = list[_Part]()
    block = max(
        1,
        (COSTS.path_cells_weighted_max if op.is_weighted else COSTS.path_cells_max)
        // walk.field.width,
    )
    for start in range(0, max(len(sources), 1), block):
        chosen = sources[start : start + block]
        sought = None
        if goals is not None:
            inside = (inverse >= start) & (inverse < start + block) & (goals >= 0)
            cells = (inverse[inside] - start) * walk.field.width + goals[inside]
            sought = np.unique(cells)
        parts.append(walk.part(chosen, sought, start))
    return walk.rows(rows, inverse, goals, _joined(parts))


@dataclass(frozen=True, slots=True)
class _Part:
    """Destinations of some sources, in the order of sources, destinations and paths."""

    owners: np.ndarray
    spots: np.ndarray
    slots: dict[str, pa.Array]


def _joined(parts: list[_Part]) -> _Part:
    if len(parts) == 1:
        return parts[0]
    owners, spots = (
        np.concatenate(each) for each in zip(*((p.owners, p.spots) for p in parts), strict=True)
    )
    names = parts[0].slots
    slots = {name: pa.concat_arrays([part.slots[name] for part in parts]) for name in names}
    return _Part(owners, spots, slots)


class _Walk:
    """One operator over one snapshot: its tables in one numbering, its edges as lanes."""

    def __init__(self, context: Context, op: ir.ExpandPaths) -> None:
        self.context = context
        self.op = op
        tables = {leg.source for leg in op.legs} | {leg.target for leg in op.legs} | {*op.targets}
        self.nodes = {table: context.tables.nodes(table) for table in sorted(tables)}
        self.legs = tuple(sorted(op.legs, key=lambda leg: (leg.edge, leg.direction)))
        # Adjacencies first: those of a newer version may number more nodes than were known.
        step = context.tables
        adjacencies = [
            step.adjacency(leg.edge, leg.direction, leg.source, leg.target) for leg in self.legs
        ]
        self.edges = [
            step.edges(leg.edge, leg.direction, leg.source, leg.target) for leg in self.legs
        ]
        sizes = {table: nodes.size for table, nodes in self.nodes.items()}
        for leg, adjacency in zip(self.legs, adjacencies, strict=True):
            sizes[leg.source] = max(sizes[leg.source], adjacency.nodes)
        self.offsets = dict[TableKey, int]()
        width = 0
        for table, size in sizes.items():
            self.offsets[table] = width
            width += size
        lanes = tuple(
            EdgeLane(
                adjacency,
                self.offsets[leg.source],
                sizes[leg.source],
                self.offsets[leg.target],
                self._allowed(leg, edges),
                self._weights(leg, edges),
                edges.ranks_at,
            )
            for leg, adjacency, edges in zip(self.legs, adjacencies, self.edges, strict=True)
        )
        self.sizes = sizes
        self.field = SearchField(lanes, max(width, 1), self._passable(), self._ranks)

    # What may be walked

    def _kept(self, where: ir.Expr, var: ir.Var, bound: BoundEntities) -> np.ndarray:
        rows = Rows(len(bound.positions), {var: bound}, {})
        return self.context.evaluator.keep(where, rows)

    def _allowed(self, leg: ir.Leg, edges: Edges) -> Callable[[np.ndarray], np.ndarray] | None:
        where, var = leg.where, self.op.edge_var
        if where is None:
            return None
        return lambda positions: self._kept(
            where, var or ir.Var("_"), BoundEntities(edges, positions)
        )

    def _weights(self, leg: ir.Leg, edges: Edges) -> Callable[[np.ndarray], np.ndarray] | None:
        weight, var = leg.weight, self.op.edge_var
        if weight is None or var is None:
            return None

        def weighed(positions: np.ndarray) -> np.ndarray:
            bound = BoundEntities(edges, positions)
            values = self.context.evaluator.values(weight, Rows(len(positions), {var: bound}, {}))
            if pa.types.is_null(values.type):
                return np.full(len(positions), np.nan)
            known = as_numpy(values.is_valid())
            numbers = as_numpy(values.cast(pa.float64(), safe=False).fill_null(0.0))
            bad = np.flatnonzero(known & ~(numbers >= 0))
            if len(bad):
                edge = edges.ids_at(positions[bad[:1]])[0].as_py()
                raise ExpressionFailed(
                    f"a weight is at least 0, not {values[int(bad[0])].as_py()}",
                    expression(weight),
                    f"${var} = {edge}",
                )
            return np.where(known, numbers, np.nan)

        return weighed

    def _passable(self) -> Callable[[np.ndarray], np.ndarray] | None:
        op = self.op
        if not op.via or op.via_var is None:
            return None
        var, conditions = op.via_var, op.via

        def passable(spots: np.ndarray) -> np.ndarray:
            flags = np.ones(len(spots), bool)
            for table, where in conditions:
                mine, local = self._within(table, spots)
                bound = BoundEntities(self.nodes[table], local)
                flags[mine] = self._kept(where, var, bound)
            return flags

        return passable

    # Numbers of nodes

    def _within(self, table: TableKey, spots: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The indexes of spots in one table, and their positions there."""
        local = spots - self.offsets[table]
        mine = np.flatnonzero((local >= 0) & (local < self.sizes[table]))
        return mine, local[mine]

    def _ranks(self, spots: np.ndarray) -> np.ndarray:
        """Numbers that order nodes by type and id."""
        ranks = np.empty(len(spots), np.int64)
        for table, nodes in self.nodes.items():
            mine, local = self._within(table, spots)
            ranks[mine] = nodes.ranks_at(local) + self.offsets[table]
        return ranks

    def _ids(self, spots: np.ndarray) -> pa.Array:
        if len(self.nodes) == 1:
            ((_, nodes),) = self.nodes.items()
            return nodes.ids_at(spots)
        parts = list[tuple[np.ndarray, pa.Array]]()
        for table, nodes in self.nodes.items():
            mine, local = self._within(table, spots)
            parts.append((mine, nodes.ids_at(local)))
        return put_back(len(spots), parts, pa.string())

    def _edge_ids(self, lanes: np.ndarray, positions: np.ndarray) -> pa.Array:
        parts = list[tuple[np.ndarray, pa.Array]]()
        for number, edges in enumerate(self.edges):
            mine = np.flatnonzero(lanes == number)
            if len(mine):
                parts.append((mine, edges.ids_at(positions[mine])))
        return put_back(len(lanes), parts, pa.string())

    def spots_of(self, bound: BoundEntities) -> np.ndarray:
        """The spots of nodes, -1 for one of a table that no walk comes to."""
        if isinstance(bound.domain, MemberDomains):
            spots = np.full(len(bound.positions), -1, np.int64)
            for mine, own in bound.domain.split(bound.positions):
                spots[mine] = self.spots_of(own)
            return spots
        table = bound.domain.table
        if table not in self.nodes:
            return np.full(len(bound.positions), -1, np.int64)
        positions = positions_in(self.nodes[table], None, bound)
        return np.where(positions >= 0, positions + self.offsets[table], -1)

    # Answers

    def part(self, sources: np.ndarray, goals: np.ndarray | None, offset: int) -> _Part:
        """What some sources reach, numbered from `offset` on."""
        op, slots = self.op, self.op.slots
        every = op.mode is ir.PathMode.ALL
        asked = Question(
            op.hops_min,
            op.hops_max,
            tracked=every or op.is_weighted or slots.nodes is not None or slots.edges is not None,
            every=every,
            edges=slots.edges is not None or op.is_weighted,
        )
        run = by_cost if op.is_weighted else search
        reached = run(self.context.watch, self.field, sources, asked, goals)
        return self._written(self._of_target(reached), asked, offset)

    def _of_target(self, reached: Reached) -> list[Paths]:
        """The paths that end in the table of the destination."""
        if len(self.nodes) == 1:
            return reached.parts
        kept = list[Paths]()
        for part in reached.parts:
            spots = part.cells % self.field.width
            within = [self._within(table, spots)[0] for table in self.op.targets]
            mine = np.sort(np.concatenate(within or [np.empty(0, np.int64)]))
            costs = None if part.costs is None else part.costs[mine]
            kept.append(
                Paths(
                    part.cells[mine],
                    part.length,
                    part.nodes[mine],
                    part.lanes[mine],
                    part.edges[mine],
                    costs,
                )
            )
        return kept

    def _written(self, parts: list[Paths], asked: Question, offset: int) -> _Part:
        slots, width = self.op.slots, self.field.width
        nothing = np.empty(0, np.int64)
        cells = np.concatenate([part.cells for part in parts] or [nothing])
        lengths = np.concatenate(
            [np.full(len(part.cells), part.length) for part in parts] or [nothing]
        )
        order = self._order(parts, cells) if asked.every else np.argsort(cells, kind="stable")
        taken = pa.array(order)
        columns = dict[str, pa.Array]()
        if slots.length is not None:
            columns[slots.length] = pa.array(lengths[order])
        if slots.nodes is not None:
            lists = [self._lists(part.nodes, None) for part in parts]
            columns[slots.nodes] = _lists_of(lists).take(taken)
        if slots.edges is not None:
            lists = [self._lists(part.edges, part.lanes) for part in parts]
            columns[slots.edges] = _lists_of(lists).take(taken)
        if slots.cost is not None:
            costs = [part.costs for part in parts if part.costs is not None]
            columns[slots.cost] = pa.array(np.concatenate(costs or [np.empty(0)])[order])
        cells = cells[order]
        if slots.number is not None:
            columns[slots.number] = pa.array(_numbered(cells))
        owners, spots = np.divmod(cells, width)
        return _Part(owners + offset, spots, columns)

    def _order(self, parts: list[Paths], cells: np.ndarray) -> np.ndarray:
        """Paths by cell, then by nodes, then by edges. The paths to one cell have one length."""
        orders, start = list[np.ndarray](), 0
        for part in parts:
            edges = [
                edge_ranks(self.field, part.lanes[:, hop], part.edges[:, hop])
                for hop in range(part.length)
            ]
            nodes = [self._ranks(part.nodes[:, hop]) for hop in range(1, part.length)]
            orders.append(np.lexsort((*edges[::-1], *nodes[::-1], part.cells)) + start)
            start += len(part.cells)
        by_part = np.concatenate(orders or [np.empty(0, np.int64)])
        ordered: np.ndarray = by_part[np.argsort(cells[by_part], kind="stable")]
        return ordered

    def _lists(self, members: np.ndarray, lanes: np.ndarray | None) -> pa.Array:
        """The ids of each path as a list."""
        if self.op.is_backward:
            members = members[:, ::-1]
            lanes = None if lanes is None else lanes[:, ::-1]
        flat = members.ravel()
        self.context.watch.hold(64 * len(flat))
        ids = self._ids(flat) if lanes is None else self._edge_ids(lanes.ravel(), flat)
        starts = np.arange(len(members) + 1) * members.shape[1]
        return pa.ListArray.from_arrays(pa.array(starts, pa.int32()), ids)

    def rows(self, rows: Rows, inverse: np.ndarray, goals: np.ndarray | None, part: _Part) -> Rows:
        """The rows that go on: each with every destination of its source."""
        count = int(inverse.max(initial=-1)) + 1
        starts = np.searchsorted(part.owners, np.arange(count + 1))
        counts = starts[inverse + 1] - starts[inverse]
        self.context.watch.hold(rows.bytes_as(int(counts.sum())))
        owners = np.repeat(np.arange(rows.length), counts)
        indexes = np.arange(len(owners))
        indexes += np.repeat(starts[inverse] - (np.cumsum(counts) - counts), counts)
        if goals is not None:
            closing = np.flatnonzero(part.spots[indexes] == goals[owners])
            owners, indexes = owners[closing], indexes[closing]
        going = rows.take(owners)
        for name, values in part.slots.items():
            going = going.put(ir.Slot(name), values.take(pa.array(indexes)))
        if goals is not None:
            return going
        return going.bind(self.op.out, self._bound(part.spots[indexes]))

    def _bound(self, spots: np.ndarray) -> BoundEntities:
        op = self.op
        if op.members is None:
            return BoundEntities(self.nodes[op.target], spots - self.offsets[op.target])
        domain = MemberDomains(
            op.target, op.members, tuple(self.nodes[table] for table in op.targets)
        )
        positions = np.empty(len(spots), np.int64)
        split = [self._within(table, spots) for table in op.targets]
        if split:
            numbers = domain.numbered([local for _, local in split])
            positions[np.concatenate([mine for mine, _ in split])] = numbers
        return BoundEntities(domain, positions)


def _lists_of(parts: list[pa.Array]) -> pa.Array:
    if not parts:
        return pa.array([], pa.list_(pa.string()))
    return pa.concat_arrays([part.cast(pa.list_(pa.string())) for part in parts])


def _numbered(cells: np.ndarray) -> np.ndarray:
    """For each the number of equal ones before it. Equal ones stand together."""
    starts = np.ones(len(cells), bool)
    np.not_equal(cells[1:], cells[:-1], out=starts[1:])
    numbers = np.arange(len(cells))
    first = np.maximum.accumulate(np.where(starts, numbers, 0))
    counted: np.ndarray = numbers - first
    return counted
