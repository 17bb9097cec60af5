"""Mutation IR: typed insert, update and delete statements, and the plan that holds them.

Invariant: as in `ir`: table keys, variables and typed expressions, no source text. `statements` is
the only producer, so a statement that exists can be executed.
"""

from omnigraph.light_dataclass import dataclass
from omnigraph.plan.ir import Computed, End, Expr, Parameter, ReadPlan
from omnigraph.types import PropertyId, TableKey, ValueType


@dataclass(frozen=True, slots=True)
class SetColumn:
    """A property and the value it gets."""

    name: str
    property_id: PropertyId
    type: ValueType
    value: Expr


@dataclass(frozen=True, slots=True)
class InsertNode:
    """Write one node. With `key` it replaces the node of that id whole; without, the id is new.

    Properties that are not set have their default, else null. `key` is in the order that makes the
    id.
    """

    table: TableKey
    sets: tuple[SetColumn, ...]
    key: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class InsertEdge:
    """Write one edge between two nodes that exist when the query ends. With `key` it replaces the
    edge of that id whole; without, the id is new."""

    table: TableKey
    source_table: TableKey
    target_table: TableKey
    source: Expr
    target: Expr
    sets: tuple[SetColumn, ...]
    key: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class UpsertRow:
    """Set properties of the entity that `key` names, which keeps the others; or insert it.

    `source` and `target` are the ends of an edge. `key` is in the order that makes the id.
    """

    table: TableKey
    sets: tuple[SetColumn, ...]
    key: tuple[str, ...]
    source: Expr | None = None
    target: Expr | None = None
    end_tables: tuple[TableKey, ...] = ()


@dataclass(frozen=True, slots=True)
class UpdateRows:
    """Set properties of the nodes or edges that satisfy `where`; others keep their values."""

    table: TableKey
    sets: tuple[SetColumn, ...]
    where: Expr


@dataclass(frozen=True, slots=True)
class Cascade:
    """An edge table that loses the edges which touch a deleted node at one of `ends`."""

    edge: TableKey
    ends: tuple[End, ...]


@dataclass(frozen=True, slots=True)
class DeleteRows:
    """Remove the nodes or edges that satisfy `where`, and the edges of removed nodes."""

    table: TableKey
    where: Expr
    cascades: tuple[Cascade, ...]


PlainStatement = InsertNode | InsertEdge | UpsertRow | UpdateRows | DeleteRows


@dataclass(frozen=True, slots=True)
class MatchedRows:
    """Do `statement` for each row of `read`, in order. Columns are parameters of the statement, by
    their names; an update or a delete has the id of its entity in the first."""

    read: ReadPlan
    statement: PlainStatement

    @property
    def table(self) -> TableKey:
        return self.statement.table


StatementOp = PlainStatement | MatchedRows


@dataclass(frozen=True, slots=True)
class MutationPlan:
    """Statements that become one commit, in order. Each sees what the earlier ones wrote."""

    name: str
    parameters: tuple[Parameter, ...]
    statements: tuple[StatementOp, ...]
    computed: tuple[Computed, ...] = ()


Plan = ReadPlan | MutationPlan
