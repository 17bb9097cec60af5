"""Typed AST: a checked pattern, before operators are put in an order.

Invariant: every variable has one type and every expression one; blocks know which variables of the
row around them they use. `check` makes it, `lower` reads it.
"""

from enum import StrEnum

from omnigraph.catalog.model import EdgeType, NodeType
from omnigraph.light_dataclass import dataclass
from omnigraph.plan.ir import Direction, Expr, Leg, Member, PathMode, Slot, Unwind, Var
from omnigraph.plan.scope import PathVar
from omnigraph.types import TableKey


@dataclass(frozen=True, slots=True)
class TypedNode:
    """A node variable with everything its bindings say about it alone."""

    var: Var
    node: NodeType
    where: tuple[Expr, ...]
    members: tuple[Member, ...] | None = None  # of an interface


class Anchor(StrEnum):
    """The end a walk starts from where that matters: which one was bound when it was written."""

    LEFT = "left"
    RIGHT = "right"


@dataclass(frozen=True, slots=True)
class TypedWalk:
    """What a walk has that a plain step has not. Legs lead away from its anchor."""

    legs: tuple[Leg, ...]
    edge_var: Var | None
    via_var: Var | None
    via: tuple[tuple[TableKey, Expr], ...]
    mode: PathMode
    path: PathVar | None
    members: tuple[Member, ...] | None = None  # of the interface at its far end


@dataclass(frozen=True, slots=True)
class TypedStep:
    """A traversal. `direction` is that of the walk from left to right."""

    left: Var
    right: Var
    left_node: NodeType
    right_node: NodeType
    edge: EdgeType  # of a walk along several, one of them
    direction: Direction
    hops_min: int
    hops_max: int
    anchor: Anchor
    edge_var: Var | None = None
    walk: TypedWalk | None = None

    @property
    def is_anchored(self) -> bool:
        """Whether its rows depend on the end it starts from."""
        return self.hops_min > 1 or self.walk is not None


@dataclass(frozen=True, slots=True)
class TypedPattern:
    """The clauses of one block, sorted by kind, each kind in the order written."""

    nodes: tuple[TypedNode, ...]  # variables first bound here, in order of appearance
    steps: tuple[TypedStep, ...]
    filters: tuple[Expr, ...]
    semi_joins: "tuple[TypedSemiJoin, ...]"
    matches: "tuple[TypedMatches, ...]"
    optionals: "tuple[TypedPattern, ...]"
    unwinds: tuple[Unwind, ...]
    uses: frozenset[Var]  # variables of the row around it

    @property
    def binds(self) -> tuple[Var, ...]:
        """Node and edge variables this block binds, optional ones inside it included."""
        own = [node.var for node in self.nodes]
        own += [step.edge_var for step in self.steps if step.edge_var is not None]
        return (*own, *(var for block in self.optionals for var in block.binds))


@dataclass(frozen=True, slots=True)
class TypedSemiJoin:
    """`exists` or, with `anti`, `not`, as a condition of its own."""

    pattern: TypedPattern
    anti: bool


@dataclass(frozen=True, slots=True)
class TypedMatches:
    """`exists` or `count` as part of a larger condition, which reads `slot`."""

    pattern: TypedPattern
    slot: Slot
    exists: bool
