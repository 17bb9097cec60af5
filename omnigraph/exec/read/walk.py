"""Patterns that begin at a named node and stay small, walked with Python's own integers.

Invariant: a frame holds the rows that the operators of `scan`, `expand` and `evaluate` would have
made; a random test compares the two. Numpy and Arrow take about a microsecond to begin anything,
which is longer than walking along ten edges, so a handful of rows is a list.

A walk goes only over what is held in memory, and hands over to the operators as soon as there is
something it does not know, or rows become many: its frame is then turned into `Rows`, and the
pattern goes on from there.
"""

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from time import perf_counter
from typing import Protocol

from omnigraph.exec.memory.resident import Edges, Nodes
from omnigraph.exec.memory.view import TablesView
from omnigraph.exec.profile import Profile
from omnigraph.exec.read.context import Context, TraversalMode
from omnigraph.exec.read.key_lookup import pointed_at, points_in
from omnigraph.exec.read.walk_rows import Comparison, Frame, Positions, Reader, comparison_of
from omnigraph.plan import ir
from omnigraph.types import TableKey


class _Step(Protocol):
    def __call__(self, frame: Frame, walk: "Walk") -> Frame | None:
        """The rows after an operator, or None when it is not for a few rows."""
        ...


class Walk:
    """One walk of one query."""

    __slots__ = ("acquires", "context", "given", "reader", "rows_max", "tables")

    def __init__(self, context: Context, rows_max: int) -> None:
        self.context = context
        self.tables = context.tables
        self.given = context.evaluator.given
        self.rows_max = rows_max
        self.reader = Reader(context.tables, self.given)
        self.acquires = context.mode is TraversalMode.CSR

    def nodes(self, table: TableKey) -> Nodes | None:
        return self.tables.nodes(table) if self.acquires else self.tables.resident_nodes(table)

    def neighbours(self, op: ir.Expand | ir.ExpandEdges, source: TableKey) -> "_Near | None":
        """What is one step away, if it is held."""
        steps, key = self.tables.steps, (op.edge, op.direction, source, op.target, type(op))
        found: _Near | None = steps.get(key)
        if found is None and self._holds(op, source):
            found = steps.setdefault(key, _near(self.tables, op, source))
        return found

    def _holds(self, op: ir.Expand | ir.ExpandEdges, source: TableKey) -> bool:
        tables = self.tables
        return self.acquires or (
            tables.holds_edges(op.edge)
            and tables.holds_nodes(source)
            and tables.holds_nodes(op.target)
        )


@dataclass(frozen=True, slots=True)
class _Near:
    """Neighbours by node number, as integers of Python."""

    starts: memoryview
    neighbours: memoryview
    edges: memoryview
    targets: Nodes
    domain: Edges


def _near(tables: TablesView, op: ir.Expand | ir.ExpandEdges, source: TableKey) -> _Near:
    step = (op.edge, op.direction, source, op.target)
    adjacency = tables.adjacency(*step)
    rim = adjacency.distinct if isinstance(op, ir.Expand) else adjacency.multiple
    return _Near(
        rim.starts.data,
        rim.neighbours.data,
        adjacency.edges.data,
        tables.nodes(op.target),
        tables.edges(*step),
    )


class Shortcut:
    """The leading operators of a pattern that a walk knows."""

    def __init__(self, ops: tuple[ir.PatternOp, ...], steps: list[_Step]) -> None:
        self._steps = list(zip(ops, steps, strict=False))

    def walk(self, walk: Walk, profile: Profile) -> tuple[int, Frame | None]:
        """How many operators were done, and the rows they left."""
        frame, watch = Frame(1, {}, {}), walk.context.watch
        since = perf_counter()
        for done, (op, step) in enumerate(self._steps):
            watch.operator = op
            found = step(frame, walk)
            if found is None:
                return done, frame if done else None
            frame = found
            since = profile.operator(op, frame.length, since)
            watch.tick()
        return len(self._steps), frame


def shortcut_of(pattern: tuple[ir.PatternOp, ...]) -> Shortcut | None:
    """What a walk can do of a pattern; None when that is nothing."""
    tables: dict[ir.Var, TableKey] = {}
    steps: list[_Step] = []
    for place, op in enumerate(pattern):
        step = _step_of(op, tables) if place else _start_of(op, tables)
        if step is None:
            break
        steps.append(step)
    return Shortcut(pattern, steps) if steps else None


# ---- where a walk starts


def _start_of(op: ir.PatternOp, tables: dict[ir.Var, TableKey]) -> _Step | None:
    if not isinstance(op, ir.NodeScan) or op.where is None:
        return None
    tables[op.out] = op.table
    parts = op.where.parts if isinstance(op.where, ir.And) else (op.where,)
    choices: list[tuple[ir.Expr, list[Comparison]]] = []
    for part in points_in(op.where):
        others = [comparison_of(other) for other in parts if other is not part]
        rest = [other for other in others if other is not None]
        if len(rest) == len(others):
            choices.append((part, rest))
    return _Start(op, choices) if choices else None


class _Start:
    """The nodes that an equality names."""

    def __init__(self, op: ir.NodeScan, choices: list[tuple[ir.Expr, list[Comparison]]]) -> None:
        self._op = op
        self._choices = choices

    def __call__(self, frame: Frame, walk: Walk) -> Frame | None:
        nodes = walk.nodes(self._op.table)
        if nodes is None:
            return None
        cache = walk.tables.holdings.cache
        for part, rest in self._choices:
            at = pointed_at(nodes, cache, part, walk.given)
            if at is None:
                continue
            if len(at) > walk.rows_max:
                return None
            found = Frame(len(at), {self._op.out: at.tolist()}, {self._op.out: nodes})
            return _kept(found, rest, walk)
        return None


# ---- how it goes on


def _step_of(op: ir.PatternOp, tables: dict[ir.Var, TableKey]) -> _Step | None:
    match op:
        case ir.Expand(hops_min=1) if op.hops_max == 1 or tables[op.source] != op.target:
            step: _Step = _Expand(op, tables[op.source])
        case ir.ExpandEdges():
            step = _ExpandEdges(op, tables[op.source])
            tables[op.edge_var] = op.edge
        case ir.Filter(where=where):
            parts = where.parts if isinstance(where, ir.And) else (where,)
            known = [comparison_of(part) for part in parts]
            some = [each for each in known if each is not None]
            return _Filter(some) if len(some) == len(known) else None
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
        starts, neighbours = near.starts, near.neighbours
        sources = frame.at[op.source]
        if op.closes:
            bound = frame.at[op.out]
            return frame.take(
                [
                    row
                    for row, node in enumerate(sources)
                    if _holds(neighbours, starts[node], starts[node + 1], bound[row])
                ]
            )
        owners: list[int] = []
        nodes: Positions = []
        for row, node in enumerate(sources):
            first, end = starts[node], starts[node + 1]
            if first < end:
                if end - first > walk.rows_max - len(nodes):
                    return None
                nodes += neighbours[first:end].tolist()
                owners += [row] * (end - first)
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
        starts = near.starts
        bound = frame.at[op.out] if op.closes else None
        owners: list[int] = []
        nodes: Positions = []
        edges: Positions = []
        for row, node in enumerate(frame.at[op.source]):
            first, end = starts[node], starts[node + 1]
            if bound is not None:
                first, end = _range(near.neighbours, first, end, bound[row])
            if first < end:
                if end - first > walk.rows_max - len(nodes):
                    return None
                nodes += near.neighbours[first:end].tolist()
                edges += near.edges[first:end].tolist()
                owners += [row] * (end - first)
        found = frame.take(owners).bind(op.edge_var, near.domain, edges)
        return found if op.closes else found.bind(op.out, near.targets, nodes)


def _range(neighbours: memoryview, first: int, end: int, wanted: int) -> tuple[int, int]:
    """Where a node stands among ascending neighbours."""
    low = bisect_left(neighbours, wanted, first, end)
    return low, bisect_right(neighbours, wanted, low, end)


def _holds(neighbours: memoryview, first: int, end: int, wanted: int) -> bool:
    place = bisect_left(neighbours, wanted, first, end)
    return place < end and neighbours[place] == wanted


class _Filter:
    """The rows for which every comparison is true."""

    def __init__(self, parts: list[Comparison]) -> None:
        self._parts = parts

    def __call__(self, frame: Frame, walk: Walk) -> Frame | None:
        return _kept(frame, self._parts, walk)


def _kept(frame: Frame, parts: list[Comparison], walk: Walk) -> Frame:
    for part in parts:
        if not frame.length:
            break
        kept = part.rows(frame, walk.reader)
        if len(kept) < frame.length:
            frame = frame.take(kept)
    return frame
