"""Query IR of walks: directions, legs, paths, and the members of an interface.

Invariant: as `ir`, which has these names too: table keys, variables and typed expressions only.
"""

from enum import StrEnum

from omnigraph.light_dataclass import dataclass
from omnigraph.plan.expression_ir import Expr, Slot, Var
from omnigraph.types import PropertyId, TableKey


class Direction(StrEnum):
    """Which way a walk goes along its edges."""

    OUT = "out"  # src to dst
    IN = "in"  # dst to src
    BOTH = "both"

    @property
    def reversed(self) -> "Direction":
        """The way back."""
        ways = {Direction.OUT: Direction.IN, Direction.IN: Direction.OUT}
        return ways.get(self, self)


HOPS_ENDLESS = 2**31
"""The greatest number of hops of a walk without one: it ends where nothing new is reached."""


@dataclass(frozen=True, slots=True)
class Member:
    """A node type that implements an interface: its table, and its own ids of the properties."""

    table: TableKey
    columns: tuple[tuple[str, PropertyId], ...]


@dataclass(frozen=True, slots=True)
class Leg:
    """One way to take a hop: an edge of `edge`, from a node of `source` to one of `target`.

    Only edges for which `where` is true are walked, and with `weight` only those that have one.
    """

    edge: TableKey
    direction: Direction
    source: TableKey
    target: TableKey
    where: Expr | None = None
    weight: Expr | None = None


class PathMode(StrEnum):
    """How many rows a destination has: one, or one for each shortest path to it."""

    ONE = "one"
    ALL = "all"


@dataclass(frozen=True, slots=True)
class PathSlots:
    """What is kept of a path; None for what nobody reads.

    `length` is its number of hops, `nodes` and `edges` are ids from end to end, `cost` is the sum
    of its weights, `number` counts the paths to one destination from 0, in their order.
    """

    length: Slot | None = None
    nodes: Slot | None = None
    edges: Slot | None = None
    cost: Slot | None = None
    number: Slot | None = None


@dataclass(frozen=True, slots=True)
class ExpandPaths:
    """Walk from `source` along any of the legs, hop by hop, as `Expand` does along one.

    `via` are conditions on the nodes of a table, by the name `via_var`: a walk does not go on from
    a node for which its condition is not true, though it may end there. `edge_var` is the name of
    the edge in conditions and weights of legs. Neither is bound in the rows.

    Paths are ordered by the types and ids of their nodes, then by those of their edges, from the
    source on; a destination has the first of its shortest paths, or with `ALL` each of them. A self
    edge that produces its node once more is the last edge of its path. With `is_backward` a path
    is written down from its last node to its source.

    With `cost`, or where a leg has a weight, the shortest path is the one with the least sum of
    weights, then the one with the fewest hops; the source is never produced, and `hops_min` is 1.
    """

    source: Var
    out: Var
    target: TableKey
    legs: tuple[Leg, ...]
    hops_min: int
    hops_max: int
    closes: bool = False
    edge_var: Var | None = None
    via_var: Var | None = None
    via: tuple[tuple[TableKey, Expr], ...] = ()
    mode: PathMode = PathMode.ONE
    slots: PathSlots = PathSlots()
    is_backward: bool = False
    members: tuple[Member, ...] | None = None  # of the interface that `target` is

    @property
    def targets(self) -> tuple[TableKey, ...]:
        """The tables that `out` can be in."""
        return (self.target,) if self.members is None else tuple(m.table for m in self.members)

    @property
    def is_weighted(self) -> bool:
        return any(leg.weight is not None for leg in self.legs)
