"""Query IR: what to do, every name already resolved.

Invariant: an operator holds table keys, variables and typed expressions, never source text, and
nothing of an engine. `lower` is the only producer, so a plan that exists can be executed; one
process and Spark run the same plan and must return the same rows.

A read is a pipeline over rows of bindings. It starts with one empty row; each pattern operator maps
rows to rows; then rows are scored, grouped or projected, ordered and cut:

    NodeScan · Expand · ExpandEdges · ExpandPaths · Filter                      the pattern
    SemiJoin · Matches · LeftJoin · Unwind · Stage
    Score                                                                       ranking numbers
    Aggregate | Project, Distinct                                               the columns
    Order, Slice                                                                which, in what order

Values: a condition is true, false or unknown. A comparison with a null operand is unknown, `and`,
`or` and `not` follow three-valued logic, and a row stays only where its condition is true. Numbers
compare by mathematical value across types, strings by UTF-8 bytes, false before true.
"""

from enum import StrEnum

from omnigraph.catalog.indexes import Metric
from omnigraph.light_dataclass import dataclass
from omnigraph.plan.expression_ir import (
    SELF as SELF,
)
from omnigraph.plan.expression_ir import (
    And as And,
)
from omnigraph.plan.expression_ir import (
    Branch as Branch,
)
from omnigraph.plan.expression_ir import (
    Call as Call,
)
from omnigraph.plan.expression_ir import (
    Case as Case,
)
from omnigraph.plan.expression_ir import (
    Column as Column,
)
from omnigraph.plan.expression_ir import (
    Compare as Compare,
)
from omnigraph.plan.expression_ir import (
    CompareOp as CompareOp,
)
from omnigraph.plan.expression_ir import (
    Const as Const,
)
from omnigraph.plan.expression_ir import (
    Constant as Constant,
)
from omnigraph.plan.expression_ir import (
    End as End,
)
from omnigraph.plan.expression_ir import (
    EndpointId as EndpointId,
)
from omnigraph.plan.expression_ir import (
    EntityId as EntityId,
)
from omnigraph.plan.expression_ir import (
    Expr as Expr,
)
from omnigraph.plan.expression_ir import (
    IsNull as IsNull,
)
from omnigraph.plan.expression_ir import (
    ListContains as ListContains,
)
from omnigraph.plan.expression_ir import (
    Not as Not,
)
from omnigraph.plan.expression_ir import (
    Now as Now,
)
from omnigraph.plan.expression_ir import (
    Operand as Operand,
)
from omnigraph.plan.expression_ir import (
    Or as Or,
)
from omnigraph.plan.expression_ir import (
    Param as Param,
)
from omnigraph.plan.expression_ir import (
    Predicate as Predicate,
)
from omnigraph.plan.expression_ir import (
    Slot as Slot,
)
from omnigraph.plan.expression_ir import (
    SlotRef as SlotRef,
)
from omnigraph.plan.expression_ir import (
    TextContains as TextContains,
)
from omnigraph.plan.expression_ir import (
    TextMatch as TextMatch,
)
from omnigraph.plan.expression_ir import (
    TextMode as TextMode,
)
from omnigraph.plan.expression_ir import (
    Var as Var,
)
from omnigraph.plan.path_ir import (
    HOPS_ENDLESS as HOPS_ENDLESS,
)
from omnigraph.plan.path_ir import (
    Direction as Direction,
)
from omnigraph.plan.path_ir import (
    ExpandPaths as ExpandPaths,
)
from omnigraph.plan.path_ir import (
    Leg as Leg,
)
from omnigraph.plan.path_ir import (
    Member as Member,
)
from omnigraph.plan.path_ir import (
    PathMode as PathMode,
)
from omnigraph.plan.path_ir import (
    PathSlots as PathSlots,
)
from omnigraph.types import INTEGERS, TableKey, TypeId, ValueType

# ---- pattern operators


@dataclass(frozen=True, slots=True)
class NodeScan:
    """Bind `out` to every node of a table that satisfies `where`; cross join with the rows so far.

    `where` mentions no variable but `out`. An interface has a table for each member instead, in
    which its properties are looked up by name.
    """

    out: Var
    table: TableKey
    where: Expr | None = None
    members: tuple[Member, ...] | None = None


@dataclass(frozen=True, slots=True)
class Expand:
    """Walk from `source` and bind `out` to each node reached, once a row.

    Breadth first from the source, which counts as visited. A node belongs to its shortest distance
    and is produced when that lies within the bounds. A self edge of a node at distance d produces
    the node at d + 1, if that lies within the bounds and the node was not produced already; it is
    not walked on from there again. With `closes`, `out` is bound already and the row stays when its
    node is among those reached.
    """

    source: Var
    out: Var
    edge: TableKey
    target: TableKey
    direction: Direction
    hops_min: int = 1
    hops_max: int = 1
    closes: bool = False


@dataclass(frozen=True, slots=True)
class ExpandEdges:
    """One step from `source`, one row an edge: bind `edge_var` to it and `out` to its other end.

    In both directions a self edge still gives one row. With `closes`, `out` is bound already and
    only edges that end there count.
    """

    source: Var
    out: Var
    edge_var: Var
    edge: TableKey
    target: TableKey
    direction: Direction
    closes: bool = False


@dataclass(frozen=True, slots=True)
class Filter:
    """Keep the rows for which the condition is true."""

    where: Expr


@dataclass(frozen=True, slots=True)
class SemiJoin:
    """Keep the rows for which the inner pattern has a solution; with `anti`, those without one.

    `inner` continues from the row, so it sees the row's variables; what it binds is gone after.
    A row variable that is null, left so by `LeftJoin`, has no match in it.
    """

    inner: "tuple[PatternOp, ...]"
    anti: bool = False


@dataclass(frozen=True, slots=True)
class Matches:
    """Put into `out` how many solutions the inner pattern has for the row.

    With `exists` only whether there is one, as a truth value.
    """

    inner: "tuple[PatternOp, ...]"
    out: Slot
    exists: bool = False


@dataclass(frozen=True, slots=True)
class LeftJoin:
    """Continue each row with the inner pattern's solutions; without one, with nulls for `binds`."""

    inner: "tuple[PatternOp, ...]"
    binds: tuple[Var, ...]


@dataclass(frozen=True, slots=True)
class Unwind:
    """Continue each row with every element of a list, put into `out`. A null list has none."""

    items: Expr
    out: Slot


@dataclass(frozen=True, slots=True)
class StageColumn:
    """A column of a stage by the name it has from there on: a variable, or a value in a slot."""

    out: Var | Slot
    source: Var | None = None  # the variable that stays bound, under the name `out`


@dataclass(frozen=True, slots=True)
class Stage:
    """Rank, group, order and cut the rows so far as a plan does, and go on from its rows.

    `plan` has no pattern; `outs` go with its columns. All other variables and slots are gone. It
    stands in the pattern of a plan itself, in no inner one.
    """

    plan: "ReadPlan"
    outs: tuple[StageColumn, ...]


PatternOp = (
    NodeScan
    | Expand
    | ExpandEdges
    | ExpandPaths
    | Filter
    | SemiJoin
    | Matches
    | LeftJoin
    | Unwind
    | Stage
)


# ---- ranking


@dataclass(frozen=True, slots=True)
class Nearest:
    """Distance of a vector property to the query, less is better. Null vectors have none, and by
    cosine those of zeros.

    A query of type String is embedded first, with `model` if the property names one, else with the
    model that the graph records for the property of the type `owner`.
    """

    column: Column
    query: Expr
    model: str | None = None
    metric: Metric = Metric.L2
    owner: TypeId | None = None


@dataclass(frozen=True, slots=True)
class Bm25:
    """BM25 of a text property (k1 = 1.2, b = 0.75), more is better. No token matches: none."""

    column: Column
    query: Expr


@dataclass(frozen=True, slots=True)
class Rrf:
    """Reciprocal rank fusion, more is better.

    Each arm ranks the distinct entities of its variable among the rows, ties by id: `nearest` to
    `depth` entities, `bm25` all that match. An entity's score is the sum over the arms that hold it
    of 1 / (k + rank + 1), rank from 0. Ties keep the order of the first arm, then of the second.
    An entity that no arm holds has no score.
    """

    first: Nearest | Bm25
    second: Nearest | Bm25
    k: Expr
    depth: int


Ranking = Nearest | Bm25 | Rrf


@dataclass(frozen=True, slots=True)
class Score:
    """Put a ranking number into `out`, null for rows that have none.

    With `required` those rows are dropped: it is what the query is ordered by. `position`, for
    fusion only, gets the rank of the row's entity, from 0, ties resolved.
    """

    out: Slot
    ranking: Ranking
    required: bool
    position: Slot | None = None


# ---- columns


class AggregateOp(StrEnum):
    """Functions over the rows of a group. All but `count` and `collect` are null over nothing.

    `collect` gives the values in ascending order, `percentile` interpolates between the two values
    that are nearest to its fraction, `stddev` is that of a sample, null of fewer than two.

    A sum of integers is exact. No query asks for its two halves: shares give them, so that a part
    may be larger than the whole can be.
    """

    COUNT = "count"
    SUM = "sum"
    SUM_HIGH = "sum high"  # total >> 32
    SUM_LOW = "sum low"  # total & (2**32 - 1)
    AVG = "avg"
    MIN = "min"
    MAX = "max"
    COLLECT = "collect"
    PERCENTILE = "percentile"
    STDDEV = "stddev"


@dataclass(frozen=True, slots=True)
class Measure:
    """One aggregate. `operand` None counts rows; otherwise nulls are left out."""

    out: Slot
    op: AggregateOp
    operand: Expr | None
    distinct: bool
    type: ValueType
    fraction: Expr | None = None  # of a percentile, from 0 to 1

    @property
    def is_of_integers(self) -> bool:
        return isinstance(self.operand, Operand) and self.operand.type.scalar in INTEGERS


@dataclass(frozen=True, slots=True)
class Aggregate:
    """Group rows by `keys`, null being a value like others. Without keys there is one group.

    Groups leave in ascending order of their keys, nulls first.
    """

    keys: tuple[Expr, ...]
    measures: tuple[Measure, ...]


@dataclass(frozen=True, slots=True)
class OutputColumn:
    """A column of the result. Two may have one name; a JSON row keeps the last."""

    name: str
    value: Expr
    type: ValueType


@dataclass(frozen=True, slots=True)
class ObjectColumn:
    """Neighbouring columns that leave as the fields of one object.

    Until then they are columns like others, so equal objects are those with equal fields. With
    `may_be_null` the first of them is no field: where it is false, the object is null.
    """

    name: str
    start: int
    fields: tuple[str, ...]
    may_be_null: bool

    @property
    def end(self) -> int:
        return self.start + len(self.fields) + self.may_be_null


@dataclass(frozen=True, slots=True)
class SortKey:
    """Nulls come first when ascending and last when descending."""

    value: Expr
    descending: bool = False


# ---- plans


@dataclass(frozen=True, slots=True)
class Parameter:
    """A declared parameter. One that is not given has its default, which reads no row."""

    name: str
    type: ValueType
    default: Expr | None = None


@dataclass(frozen=True, slots=True)
class Computed:
    """A parameter that the request works out once: an expression that reads no row."""

    name: str
    value: Expr
    type: ValueType


@dataclass(frozen=True, slots=True)
class ReadPlan:
    """A read: pattern, scores, columns, order and cut, in this order.

    `order` ends with the tie-break, so rows leave in one order only: after the query's own keys
    come the ids of all named variables by name, or without an `order` in order of appearance. With
    `aggregate`, columns, `having` and sort keys refer to its keys and measures, and groups that tie
    keep their order; `having` drops groups before they are made distinct, ordered and cut. With
    `distinct`, equal output rows are one, and rows that tie are in ascending order of the columns.
    """

    name: str
    parameters: tuple[Parameter, ...]
    pattern: tuple[PatternOp, ...]
    scores: tuple[Score, ...]
    aggregate: Aggregate | None
    columns: tuple[OutputColumn, ...]
    distinct: bool
    order: tuple[SortKey, ...]
    limit: int | None
    offset: int
    having: Expr | None = None
    computed: tuple[Computed, ...] = ()
    limit_from: Param | None = None  # the limit of a request, in the place of `limit`
    offset_from: Param | None = None
    union: "Union | None" = None
    object_columns: tuple[ObjectColumn, ...] = ()  # of the columns, from left to right

    @property
    def output_names(self) -> list[str]:
        """The names of the columns that leave: of those of an object, its own."""
        names = [column.name for column in self.columns]
        for each in reversed(self.object_columns):
            names[each.start : each.end] = [each.name]
        return names


@dataclass(frozen=True, slots=True)
class Union:
    """Reads whose rows follow one another, the first of them the read that has it.

    Where `keeps_equal` of a read after the first is false, rows that equal one before them are
    left out, in what came before as well. `types` are those of the columns of all.
    """

    parts: tuple[ReadPlan, ...]
    keeps_equal: tuple[bool, ...]  # one fewer
    types: tuple[ValueType, ...]
