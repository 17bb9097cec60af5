"""Lowering: typed trees to plans, with the join order of each pattern.

Invariant: every clause is executed exactly once, as soon as the variables it needs are bound, and
the rows do not depend on the order chosen here. A walk of two or more hops keeps the end it was
written from, because self edges make its result depend on that.
"""

from collections.abc import Callable
from dataclasses import astuple, replace
from typing import TYPE_CHECKING, TypeVar, assert_never

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
from omnigraph.types import TableKey

if TYPE_CHECKING:
    from omnigraph.plan import mutation_ir
else:
    mutation_ir = deferred("omnigraph.plan", "mutation_ir")


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


class _Solver:
    """Turns one block into operators, keeping track of bound variables and pending clauses."""

    def __init__(self, pattern: TypedPattern, bound: frozenset[ir.Var]) -> None:
        self.pattern = pattern
        self.ready = set[str](bound)  # variables and slots that rows have
        self.ops = list[ir.PatternOp]()
        self.nodes = {node.var: node for node in pattern.nodes}
        self.steps = list(pattern.steps)
        conditions = [where for node in pattern.nodes for where in node.where]
        self.filters = {where: needs(where) for where in (*conditions, *pattern.filters)}
        self.semi_joins = list(pattern.semi_joins)
        self.matches = list(pattern.matches)

    def solve(self) -> tuple[ir.PatternOp, ...]:
        self._flush()
        while self.steps or self.nodes:
            step = self._next_step()
            goal = None if step is None else self._goal_of(step)
            if goal is not None:
                self._scan(goal)
            elif step is not None:
                self._expand(step)
            else:
                self._scan(self._next_node())
            self._flush()
        for unwind in self.pattern.unwinds:
            self.ops.append(unwind)
            self.ready.add(unwind.out)
            self._flush()
        for block in self.pattern.optionals:
            inner = _Solver(block, self._bound()).solve()
            self.ops.append(ir.LeftJoin(inner, block.binds))
            self.ready.update(block.binds)
            self._flush()
        left_over = [*self.filters, *self.semi_joins, *self.matches]
        assert not left_over, f"{left_over} use what nothing binds"
        return tuple(self.ops)

    def _bound(self) -> frozenset[ir.Var]:
        return frozenset(ir.Var(name) for name in self.ready)

    # Steps

    def _goal_of(self, step: TypedStep) -> TypedNode | None:
        """The far end of a walk, if it is one node: a search that knows its goal ends there."""
        goal = self.nodes.get(_far_end(step))
        is_goal = step.walk is not None and goal is not None and self._breadth(goal) == 0
        return goal if is_goal else None

    def _next_step(self) -> TypedStep | None:
        """A step that can be walked now: one that closes a cycle first, then as written."""
        walkable = [step for step in self.steps if self._source_of(step) is not None]
        closing = (s for s in walkable if s.left in self.ready and s.right in self.ready)
        return next(closing, walkable[0] if walkable else None)

    def _source_of(self, step: TypedStep) -> ir.Var | None:
        """The end to walk from, if it is bound."""
        if step.is_anchored:
            anchor = _anchor_of(step)
            return anchor if anchor in self.ready else None
        if step.left in self.ready:
            return step.left
        return step.right if step.right in self.ready else None

    def _expand(self, step: TypedStep) -> None:
        self.steps.remove(step)
        source = self._source_of(step)
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
            self.ready.add(step.edge_var)
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
        self.ready.update(slot for slot in astuple(slots) if slot is not None)

    def _bind(self, var: ir.Var) -> None:
        self.ready.add(var)
        self.nodes.pop(var, None)

    # Scans

    def _next_node(self) -> TypedNode:
        """The unbound node with the narrowest condition; anchors of long walks come first."""
        far_ends = {_far_end(step) for step in self.steps if step.is_anchored}
        free = [node for node in self.nodes.values() if node.var not in far_ends]
        return min(free or self.nodes.values(), key=self._breadth)

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
        return [where for where, needed in self.filters.items() if needed == {var}]

    def _scan(self, node: TypedNode) -> None:
        own = self._own_filters(node.var)
        for where in own:
            del self.filters[where]
        condition = conjunction(own)
        self.ops.append(ir.NodeScan(node.var, node.node.table, condition, node.members))
        self._bind(node.var)

    # Conditions

    def _flush(self) -> None:
        """Apply every condition whose variables are bound: plain ones, then inner patterns."""
        self._flush_filters()
        for match in _take(self.matches, lambda m: m.pattern.uses <= self.ready):
            inner = _Solver(match.pattern, self._bound()).solve()
            self.ops.append(ir.Matches(inner, match.slot, match.exists))
            self.ready.add(match.slot)
        self._flush_filters()
        for join in _take(self.semi_joins, lambda j: j.pattern.uses <= self.ready):
            inner = _Solver(join.pattern, self._bound()).solve()
            self.ops.append(ir.SemiJoin(inner, join.anti))

    def _flush_filters(self) -> None:
        usable = [where for where, needed in self.filters.items() if needed <= self.ready]
        for where in usable:
            del self.filters[where]
        condition = conjunction(usable)
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


Waiting = TypeVar("Waiting")


def _take(waiting: list[Waiting], usable: Callable[[Waiting], bool]) -> list[Waiting]:
    """Remove and return the items that are usable."""
    taken = [item for item in waiting if usable(item)]
    waiting[:] = [item for item in waiting if item not in taken]
    return taken


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
