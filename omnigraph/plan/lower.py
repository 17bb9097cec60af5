"""Lowering: typed trees to plans, with the join order of each pattern.

Invariant: every clause is executed exactly once, as soon as the variables it needs are bound, and
the rows do not depend on the order chosen here. A walk of two or more hops keeps the end it was
written from, because self edges make its result depend on that.
"""

from collections import Counter
from collections.abc import Iterable, Set
from dataclasses import astuple, replace
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Generic, TypeVar, assert_never

from omnigraph.deferred import deferred
from omnigraph.language.query import ast
from omnigraph.plan import ir
from omnigraph.plan.check import Typed, TypedMatched, TypedMutation, TypedRead, TypedUnion
from omnigraph.plan.expressions import conjunction, needs
from omnigraph.plan.typed import (
    Anchor,
    TypedNode,
    TypedPattern,
    TypedStep,
    TypedWalk,
)
from omnigraph.query_limits import checkpoint
from omnigraph.types import TableKey

if TYPE_CHECKING:
    from omnigraph.plan import mutation_ir
else:
    mutation_ir = deferred("omnigraph.plan", "mutation_ir")


Item = TypeVar("Item")


def lower(query: ast.Query, typed: Typed) -> "mutation_ir.Plan":
    """The plan of a checked query."""
    name = query.name.text
    match typed:
        case TypedMutation():
            statements = tuple(
                mutation_ir.MatchedRows(
                    replace(_lowered(name, each.read), computed=()), each.statement
                )
                if isinstance(each, TypedMatched)
                else each
                for each in typed.statements
            )
            return mutation_ir.MutationPlan(name, typed.parameters, statements, typed.computed)
        case TypedRead():
            return _lowered(name, typed)
        case TypedUnion(reads=reads, union=union, types=types):
            parts = tuple(_lowered(name, read) for read in reads)
            return replace(parts[0], union=ir.Union(parts, union.keeps_equal, types))
        case _:
            assert_never(typed)


def _lowered(name: str, typed: TypedRead) -> ir.ReadPlan:
    ops, bound = list[ir.PatternOp](), frozenset[ir.Var]()
    for stage in typed.stages:
        ops += _Solver(stage.read.pattern, bound).solve()
        ops.append(ir.Stage(_tail(name, stage.read, ()), stage.outs))
        bound = frozenset(ir.Var(column.out) for column in stage.outs)
    ops += _Solver(typed.pattern, bound).solve()
    return _tail(name, typed, tuple(ops))


def _tail(name: str, typed: TypedRead, pattern: tuple[ir.PatternOp, ...]) -> ir.ReadPlan:
    """The plan of a read whose pattern is solved."""
    returns = typed.returns
    return ir.ReadPlan(
        name=name,
        parameters=typed.parameters,
        pattern=pattern,
        scores=returns.scores,
        aggregate=returns.aggregate,
        columns=returns.columns,
        distinct=typed.distinct,
        order=returns.order,
        limit=typed.limit,
        offset=typed.offset,
        having=returns.having,
        computed=typed.computed,
        limit_from=typed.limit_from,
        offset_from=typed.offset_from,
        object_columns=returns.object_columns,
    )


class _Waiting(Generic[Item]):
    """Items in their order, each until all the names it needs are bound."""

    def __init__(self, items: Iterable[tuple[Item, frozenset[str]]], bound: Set[str]) -> None:
        self._items = list[Item]()
        self._missing = list[int]()  # names that an item still needs
        self._waits_for = dict[str, list[int]]()
        self._usable = list[int]()
        self.left = set[int]()
        for number, (item, needed) in enumerate(items):
            missing = needed - bound
            self._items.append(item)
            self._missing.append(len(missing))
            self.left.add(number)
            for name in missing:
                self._waits_for.setdefault(name, []).append(number)
            if not missing:
                self._usable.append(number)

    def bind(self, name: str) -> None:
        """Note that a name is bound."""
        for number in self._waits_for.pop(name, ()):
            self._missing[number] -= 1
            if not self._missing[number]:
                self._usable.append(number)

    def take(self) -> list[Item]:
        """Remove and return the items that need nothing more, in order."""
        usable = sorted(self.left.intersection(self._usable))
        self._usable.clear()
        self.left.difference_update(usable)
        return [self._items[number] for number in usable]

    def take_these(self, numbers: Iterable[int]) -> list[Item]:
        """Remove and return those of some items that still wait."""
        taken = [number for number in numbers if number in self.left]
        self.left.difference_update(taken)
        return [self._items[number] for number in taken]


class _Steps:
    """The steps that are left: the first that closes a cycle, else the first that can be walked."""

    def __init__(self, steps: tuple[TypedStep, ...], bound: Set[str]) -> None:
        self._steps = steps
        self._bound = bound
        self._at = dict[ir.Var, list[int]]()
        self._walkable, self._closing = list[int](), list[int]()
        self._far_ends = Counter(_far_end(step) for step in steps if step.is_anchored)
        self.left = set(range(len(steps)))
        for number, step in enumerate(steps):
            for var in {step.left, step.right}:
                self._at.setdefault(var, []).append(number)
            self._look(number)

    def bind(self, name: str) -> None:
        """Look again at the steps of a variable that is bound now."""
        for number in self._at.get(ir.Var(name), ()):
            self._look(number)

    def _look(self, number: int) -> None:
        if number not in self.left:
            return
        step = self._steps[number]
        if self.source_of(step) is not None:
            heappush(self._walkable, number)
            if step.left in self._bound and step.right in self._bound:
                heappush(self._closing, number)

    def next(self) -> int | None:
        """The number of the next step, if one can be walked."""
        for waiting in (self._closing, self._walkable):
            while waiting and waiting[0] not in self.left:
                heappop(waiting)
            if waiting:
                return waiting[0]
        return None

    def __getitem__(self, number: int) -> TypedStep:
        return self._steps[number]

    def take(self, number: int) -> ir.Var | None:
        """Remove a step; returns its far end if no other walk ends there."""
        self.left.remove(number)
        step = self._steps[number]
        if not step.is_anchored:
            return None
        end = _far_end(step)
        self._far_ends[end] -= 1
        return end if not self._far_ends[end] else None

    def is_far_end(self, var: ir.Var) -> bool:
        """Whether a walk that is left ends at a variable."""
        return self._far_ends[var] > 0

    def source_of(self, step: TypedStep) -> ir.Var | None:
        """The end to walk from, if it is bound."""
        if step.is_anchored:
            anchor = _anchor_of(step)
            return anchor if anchor in self._bound else None
        if step.left in self._bound:
            return step.left
        return step.right if step.right in self._bound else None


class _Solver:
    """Turns one block into operators, keeping track of bound variables and pending clauses.

    Each clause waits in an index by the names it needs, so that a block takes time in proportion
    to its clauses.
    """

    def __init__(self, pattern: TypedPattern, bound: Set[str]) -> None:
        self.pattern = pattern
        self.ready = set[str](bound)  # variables and slots that rows have
        self.ops = list[ir.PatternOp]()
        self.nodes = {node.var: node for node in pattern.nodes}
        self.steps = _Steps(pattern.steps, self.ready)
        conditions = [where for node in pattern.nodes for where in node.where]
        needed = {where: needs(where) for where in (*conditions, *pattern.filters)}
        self.own = dict[str, list[tuple[int, ir.Expr]]]()  # conditions on one variable alone
        for number, (where, names) in enumerate(needed.items()):
            if len(names) == 1:
                self.own.setdefault(next(iter(names)), []).append((number, where))
        self.filters = _Waiting(needed.items(), self.ready)
        self.semi_joins = _Waiting(((j, j.pattern.uses) for j in pattern.semi_joins), self.ready)
        self.matches = _Waiting(((m, m.pattern.uses) for m in pattern.matches), self.ready)
        self._order = {var: number for number, var in enumerate(self.nodes)}
        self._free: list[tuple[int, int, ir.Var]] | None = None  # no walk ends there
        self._all = list[tuple[int, int, ir.Var]]()

    def solve(self) -> tuple[ir.PatternOp, ...]:
        self._flush()
        while self.steps.left or self.nodes:
            checkpoint()
            number = self.steps.next()
            goal = None if number is None else self._goal_of(self.steps[number])
            if goal is not None:
                self._scan(goal)
            elif number is not None:
                self._expand(number)
            else:
                self._scan(self._next_node())
            self._flush()
        for unwind in self.pattern.unwinds:
            self.ops.append(unwind)
            self._add(unwind.out)
            self._flush()
        for block in self.pattern.optionals:
            inner = self._inner(block)
            self.ops.append(ir.LeftJoin(inner, block.binds))
            for name in block.binds:
                self._add(name)
            self._flush()
        left_over = [*self.filters.left, *self.semi_joins.left, *self.matches.left]
        assert not left_over, f"{self.pattern} uses what nothing binds"
        return tuple(self.ops)

    def _inner(self, block: TypedPattern) -> tuple[ir.PatternOp, ...]:
        return _Solver(block, block.uses & self.ready).solve()

    def _add(self, name: str) -> None:
        """Bind a name for everything that waits for it."""
        if name in self.ready:
            return
        self.ready.add(name)
        self.steps.bind(name)
        self.filters.bind(name)
        self.semi_joins.bind(name)
        self.matches.bind(name)

    # Steps

    def _goal_of(self, step: TypedStep) -> TypedNode | None:
        """The far end of a walk, if it is one node: a search that knows its goal ends there."""
        goal = self.nodes.get(_far_end(step))
        is_goal = step.walk is not None and goal is not None and self._breadth(goal) == 0
        return goal if is_goal else None

    def _expand(self, number: int) -> None:
        step = self.steps[number]
        freed = self.steps.take(number)
        if freed is not None and self._free is not None and freed in self.nodes:
            heappush(self._free, self._rank(self.nodes[freed]))
        source = self.steps.source_of(step)
        assert source is not None
        forward = source == step.left
        out, node = (step.right, step.right_node) if forward else (step.left, step.left_node)
        direction = step.direction if forward else _reversed(step.direction)
        closes = out in self.ready
        if step.walk is not None:
            self._expand_paths(step, step.walk, (source, out), node.table)
        elif step.edge_var is None:
            self.ops.append(
                ir.Expand(
                    source,
                    out,
                    step.edge.table,
                    node.table,
                    direction,
                    step.hops_min,
                    step.hops_max,
                    closes,
                )
            )
        else:
            self.ops.append(
                ir.ExpandEdges(
                    source, out, step.edge_var, step.edge.table, node.table, direction, closes
                )
            )
            self._add(step.edge_var)
        self._bind(out)

    def _expand_paths(
        self, step: TypedStep, walk: TypedWalk, ends: tuple[ir.Var, ir.Var], target: TableKey
    ) -> None:
        source, out = ends
        slots = ir.PathSlots() if walk.path is None else walk.path.slots
        self.ops.append(
            ir.ExpandPaths(
                source,
                out,
                target,
                walk.legs,
                step.hops_min,
                step.hops_max,
                out in self.ready,
                walk.edge_var,
                walk.via_var,
                walk.via,
                walk.mode,
                slots,
                step.anchor is Anchor.RIGHT,
                walk.members,
            )
        )
        for slot in astuple(slots):
            if slot is not None:
                self._add(slot)

    def _bind(self, var: ir.Var) -> None:
        self._add(var)
        self.nodes.pop(var, None)

    # Scans

    def _next_node(self) -> TypedNode:
        """The unbound node with the narrowest condition; anchors of long walks come first."""
        if self._free is None:
            self._all = sorted(map(self._rank, self.nodes.values()))
            self._free = [rank for rank in self._all if not self.steps.is_far_end(rank[2])]
        for waiting in (self._free, self._all):
            while waiting and waiting[0][2] not in self.nodes:
                heappop(waiting)
            if waiting:
                return self.nodes[waiting[0][2]]
        raise AssertionError("a block has an unbound node")

    def _rank(self, node: TypedNode) -> tuple[int, int, ir.Var]:
        return self._breadth(node), self._order[node.var], node.var

    def _breadth(self, node: TypedNode) -> int:
        """0 names one node, 1 fixes some property, 2 has a condition, 3 has none."""
        own = self._own_filters(node.var)
        fixed = set[str]().union(*map(_fixed_columns, own)) if own else set[str]()
        if "id" in fixed or (node.node.key and fixed.issuperset(node.node.key)):
            return 0
        if fixed:
            return 1
        return 2 if own else 3

    def _own_filters(self, var: ir.Var) -> list[ir.Expr]:
        own = self.own.get(var, ())
        return [where for number, where in own if number in self.filters.left]

    def _scan(self, node: TypedNode) -> None:
        own = self.filters.take_these(number for number, _ in self.own.get(node.var, ()))
        condition = conjunction(own)
        self.ops.append(ir.NodeScan(node.var, node.node.table, condition, node.members))
        self._bind(node.var)

    # Conditions

    def _flush(self) -> None:
        """Apply every condition whose variables are bound: plain ones, then inner patterns."""
        self._flush_filters()
        for match in self.matches.take():
            self.ops.append(ir.Matches(self._inner(match.pattern), match.slot, match.exists))
            self._add(match.slot)
        self._flush_filters()
        for join in self.semi_joins.take():
            self.ops.append(ir.SemiJoin(self._inner(join.pattern), join.anti))

    def _flush_filters(self) -> None:
        condition = conjunction(self.filters.take())
        if condition is not None:
            self.ops.append(ir.Filter(condition))


def _reversed(direction: ir.Direction) -> ir.Direction:
    match direction:
        case ir.Direction.OUT:
            return ir.Direction.IN
        case ir.Direction.IN:
            return ir.Direction.OUT
        case ir.Direction.BOTH:
            return ir.Direction.BOTH
        case _:
            assert_never(direction)


def _anchor_of(step: TypedStep) -> ir.Var:
    return step.left if step.anchor is Anchor.LEFT else step.right


def _far_end(step: TypedStep) -> ir.Var:
    return step.right if step.anchor is Anchor.LEFT else step.left


def _fixed_columns(where: ir.Expr) -> set[str]:
    """The columns a condition gives exactly one value."""
    match where:
        case ir.And(parts=parts):
            return set[str]().union(*map(_fixed_columns, parts))
        case ir.Compare(op=ir.CompareOp.EQ, left=left, right=right):
            return _fixed_by(left, right) | _fixed_by(right, left)
        case _:
            return set()


def _fixed_by(subject: ir.Expr, value: ir.Expr) -> set[str]:
    if needs(value):
        return set()
    match subject:
        case ir.Column(name=name):
            return {name}
        case ir.EntityId():
            return {"id"}
        case _:
            return set()
