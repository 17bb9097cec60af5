"""Fast path of: the operators of read/run — short patterns from a point lookup, walked row by row.

A call into numpy or Arrow takes about a microsecond to begin, which is longer than following ten
edges, so a handful of rows is walked over Python lists and integers.

Reference: `read/run` with the operators of `scan`, `expand` and `values/evaluate`.
Held equal by: `test_walking_one_by_one_gives_the_rows_of_the_operators` and
`test_every_way_of_running_a_query_gives_the_same_rows`.
Falls back: at an operator that it does not know, at a table that is not resident, and when rows
become many. The frame is then turned into `Rows`, and the operators go on from there.

Invariant: a frame holds the rows that the operators would have made, in their order.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from time import perf_counter
from typing import Protocol

from omnigraph.exec.memory.adjacency import EdgeListView, ListView
from omnigraph.exec.memory.resident import Edges, Nodes
from omnigraph.exec.memory.view import TablesView
from omnigraph.exec.profile import Profile
from omnigraph.exec.read.context import Context, TraversalMode
from omnigraph.exec.read.key_lookup import pointed_at, points_in
from omnigraph.exec.read.walk_rows import (
    CellReader,
    Frame,
    Positions,
    RowComparison,
    comparison_of,
)
from omnigraph.light_dataclass import dataclass
from omnigraph.plan import ir
from omnigraph.types import TableKey


class _Step(Protocol):
    def __call__(self, frame: Frame, walk: "Walk") -> Frame | None:
        """The rows after an operator, or None where the operators must take over."""
        ...


class Walk:
    """One walk of one query."""

    __slots__ = ("acquires", "context", "given", "reader", "rows_max", "tables")

    def __init__(self, context: Context, rows_max: int) -> None:
        self.context = context
        self.tables = context.tables
        self.given = context.evaluator.given
        self.rows_max = rows_max
        self.reader = CellReader(context.tables, self.given, context.columns_read)
        self.acquires = context.mode is TraversalMode.CSR

    def nodes(self, table: TableKey) -> Nodes | None:
        return self.tables.nodes(table) if self.acquires else self.tables.resident_nodes(table)

    def neighbours(self, op: ir.Expand | ir.ExpandEdges, source: TableKey) -> "_Near | None":
        """The adjacency of one step, if it is resident."""
        steps, key = self.tables.steps, (op.edge, op.direction, source, op.target, type(op))
        near: _Near | None = steps.get(key)
        if near is None and self._holds(op, source):
            near = steps.setdefault(key, _near(self.tables, op, source))
        return near

    def _holds(self, op: ir.Expand | ir.ExpandEdges, source: TableKey) -> bool:
        return self.acquires or self.tables.holds_step(op.edge, op.direction, source, op.target)


@dataclass(frozen=True, slots=True)
class _Near:
    """The adjacency of a step, node by node."""

    lists: ListView
    edges: EdgeListView | None  # of a step that binds its edges
    targets: Nodes
    domain: Edges


def _near(tables: TablesView, op: ir.Expand | ir.ExpandEdges, source: TableKey) -> _Near:
    step = (op.edge, op.direction, source, op.target)
    adjacency = tables.adjacency(*step)
    targets, domain = tables.nodes(op.target), tables.edges(*step)
    if isinstance(op, ir.Expand):
        return _Near(adjacency.distinct, None, targets, domain)
    return _Near(adjacency.multiple, adjacency.multiple, targets, domain)


class WalkPlan:
    """The leading operators of a pattern that a walk can run."""

    def __init__(self, ops: tuple[ir.PatternOp, ...], steps: list[_Step]) -> None:
        self._steps = list(zip(ops, steps, strict=False))

    def run(self, walk: Walk, profile: Profile) -> tuple[int, Frame | None]:
        """How many operators were done, and the rows they left."""
        frame, watch = Frame(1, {}, {}), walk.context.watch
        since = perf_counter()
        for done, (op, step) in enumerate(self._steps):
            watch.operator = op
            after = step(frame, walk)
            if after is None:
                return done, frame if done else None
            frame = after
            since = profile.operator(op, frame.length, since)
            watch.tick()
        return len(self._steps), frame


def walk_plan_of(pattern: tuple[ir.PatternOp, ...]) -> WalkPlan | None:
    """The operators of a pattern that a walk can run; None when it cannot run the first."""
    tables: dict[ir.Var, TableKey] = {}
    steps: list[_Step] = []
    for nth, op in enumerate(pattern):
        step = _step_of(op, tables) if nth else _start_of(op, tables)
        if step is None:
            break
        steps.append(step)
    return WalkPlan(pattern, steps) if steps else None


# ---- where a walk starts


def _start_of(op: ir.PatternOp, tables: dict[ir.Var, TableKey]) -> _Step | None:
    if not isinstance(op, ir.NodeScan) or op.where is None or op.members is not None:
        return None
    tables[op.out] = op.table
    parts = op.where.parts if isinstance(op.where, ir.And) else (op.where,)
    place = {id(part): nth for nth, part in enumerate(parts)}
    points = {place[id(part)]: part for part in points_in(op.where)}
    comparisons = [comparison_of(part) for part in parts]
    others = [nth for nth, comparison in enumerate(comparisons) if comparison is None]
    # Every conjunct but the point itself must be a comparison of row values.
    choices: dict[int, ir.Expr] = {
        nth: part for nth, part in points.items() if not others or others == [nth]
    }
    return _Start(op, choices, comparisons) if choices else None


class _Start:
    """The nodes of a point lookup."""

    def __init__(
        self,
        op: ir.NodeScan,
        choices: dict[int, ir.Expr],
        comparisons: list[RowComparison | None],
    ) -> None:
        self._op = op
        self._choices = choices  # points by their place among the conjuncts
        self._comparisons = comparisons

    def __call__(self, frame: Frame, walk: Walk) -> Frame | None:
        nodes = walk.nodes(self._op.table)
        if nodes is None:
            return None
        cache = walk.tables.holdings.cache
        for nth, part in self._choices.items():
            positions = pointed_at(nodes, cache, part, walk.given)
            if positions is None:
                continue
            if len(positions) > walk.rows_max:
                return None
            others = (*self._comparisons[:nth], *self._comparisons[nth + 1 :])
            rest = [other for other in others if other is not None]
            out = self._op.out
            start = Frame(len(positions), {out: positions.tolist()}, {out: nodes})
            return _kept(start, rest, walk)
        return None


# ---- the steps after it


def _step_of(op: ir.PatternOp, tables: dict[ir.Var, TableKey]) -> _Step | None:
    match op:
        case ir.Expand(hops_min=1) if op.hops_max == 1 or tables[op.source] != op.target:
            step: _Step = _Expand(op, tables[op.source])
        case ir.ExpandEdges():
            step = _ExpandEdges(op, tables[op.source])
            tables[op.edge_var] = op.edge
        case ir.Filter(where=where):
            parts = where.parts if isinstance(where, ir.And) else (where,)
            known = [comparison for part in parts if (comparison := comparison_of(part))]
            return _Filter(known) if len(known) == len(parts) else None
        case _:
            return None
    tables.setdefault(op.out, op.target)
    return step


class _Expand:
    """One row for each node one step away, or with `closes` the rows whose node is."""

    def __init__(self, op: ir.Expand, source: TableKey) -> None:
        self._op = op
        self._source = source

    def __call__(self, frame: Frame, walk: Walk) -> Frame | None:
        op, near = self._op, walk.neighbours(self._op, self._source)
        if near is None:
            return None
        row_of, sources = near.lists.row, frame.positions[op.source]
        if op.closes:
            bound = frame.positions[op.out]
            return frame.take(
                [row for row, node in enumerate(sources) if _holds(row_of(node), bound[row])]
            )
        owners: list[int] = []
        nodes: Positions = []
        for row, node in enumerate(sources):
            reached = row_of(node)
            if len(reached):
                if len(reached) > walk.rows_max - len(nodes):
                    return None
                nodes += reached
                owners += [row] * len(reached)
        return frame.take(owners).bind(op.out, near.targets, nodes)


class _ExpandEdges:
    """One row for each edge taken."""

    def __init__(self, op: ir.ExpandEdges, source: TableKey) -> None:
        self._op = op
        self._source = source

    def __call__(self, frame: Frame, walk: Walk) -> Frame | None:
        op, near = self._op, walk.neighbours(self._op, self._source)
        if near is None:
            return None
        lists = near.edges
        assert lists is not None
        bound = frame.positions[op.out] if op.closes else None
        owners: list[int] = []
        nodes: Positions = []
        edges: Positions = []
        for row, node in enumerate(frame.positions[op.source]):
            reached = lists.row(node)
            first, end = 0, len(reached)
            if bound is not None:
                first, end = _range(reached, bound[row])
            if first < end:
                if end - first > walk.rows_max - len(nodes):
                    return None
                nodes += reached[first:end]
                edges += lists.edge_row(node)[first:end]
                owners += [row] * (end - first)
        taken = frame.take(owners).bind(op.edge_var, near.domain, edges)
        return taken if op.closes else taken.bind(op.out, near.targets, nodes)


def _range(reached: Sequence[int], node: int) -> tuple[int, int]:
    """The indexes of a node among ascending neighbours: the first, and the one behind the last."""
    low = bisect_left(reached, node)
    return low, bisect_right(reached, node, low)


def _holds(reached: Sequence[int], node: int) -> bool:
    index = bisect_left(reached, node)
    return index < len(reached) and reached[index] == node


class _Filter:
    """The rows for which every comparison is true."""

    def __init__(self, parts: list[RowComparison]) -> None:
        self._parts = parts

    def __call__(self, frame: Frame, walk: Walk) -> Frame | None:
        return _kept(frame, self._parts, walk)


def _kept(frame: Frame, parts: list[RowComparison], walk: Walk) -> Frame:
    for part in parts:
        if not frame.length:
            break
        kept = part.rows(frame, walk.reader)
        if len(kept) < frame.length:
            frame = frame.take(kept)
    return frame
