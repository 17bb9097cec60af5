"""Fast path of: the operators of read/run — rows of a walk as lists, and comparisons over them.

Reference: `values/rows` and `values/evaluate`.
Held equal by: `test_walking_one_by_one_gives_the_rows_of_the_operators` and
`test_a_constant_stands_on_either_side`.
Falls back: for floats, whose NaN sorts after every number in the operators and nowhere in Python,
and for lists, vectors and conditions other than comparisons.

Invariant: a comparison is true for exactly the rows for which `evaluate` calls it true. Texts
compare alike as code points and as bytes.
"""

import operator
from collections.abc import Callable, Mapping
from typing import Any, assert_never

import numpy as np
import pyarrow as pa

from omnigraph.costs import COSTS
from omnigraph.exec.memory.filed_tables import FiledEdges, FiledNodes
from omnigraph.exec.memory.resident import Edges, Nodes
from omnigraph.exec.memory.view import TablesView
from omnigraph.exec.values.constants import CONSTANTS, Given
from omnigraph.exec.values.rows import BoundEntities, Rows
from omnigraph.light_dataclass import dataclass
from omnigraph.plan import ir
from omnigraph.types import NUMERICS, Scalar, ValueType

Positions = list[int]
Side = ir.Column | ir.EntityId


def _compared(op: ir.CompareOp) -> Callable[[Any, Any], bool]:
    match op:
        case ir.CompareOp.EQ:
            return operator.eq
        case ir.CompareOp.NE:
            return operator.ne
        case ir.CompareOp.LT:
            return operator.lt
        case ir.CompareOp.LE:
            return operator.le
        case ir.CompareOp.GT:
            return operator.gt
        case ir.CompareOp.GE:
            return operator.ge
        case _:
            assert_never(op)


_INTEGRAL = {Scalar.DATE: pa.int32(), Scalar.DATETIME: pa.int64()}


@dataclass(frozen=True, slots=True)
class Frame:
    """A few rows: the position of each variable's entity, row by row."""

    length: int
    positions: dict[ir.Var, Positions]
    domains: dict[ir.Var, Nodes | Edges]

    def take(self, rows: list[int]) -> "Frame":
        """These rows, as often as they are named."""
        positions = {var: [own[row] for row in rows] for var, own in self.positions.items()}
        return Frame(len(rows), positions, self.domains)

    def bind(self, var: ir.Var, domain: Nodes | Edges, own: Positions) -> "Frame":
        """The same rows with one more variable."""
        return Frame(self.length, {**self.positions, var: own}, {**self.domains, var: domain})

    def rows(self) -> Rows:
        """The same rows for the operators."""
        bindings = {
            var: BoundEntities(self.domains[var], np.array(own, np.int64))
            for var, own in self.positions.items()
        }
        return Rows(self.length, bindings, {})


def kind_of(type_: ValueType) -> str | None:
    """The kind of values that a type compares with; None if only the operators compare it."""
    if type_.is_list or type_.is_vector:
        return None
    match type_.scalar:
        case Scalar.I32 | Scalar.I64 | Scalar.U32 | Scalar.U64:
            return "integer"
        case Scalar.STRING | Scalar.BOOL | Scalar.DATE | Scalar.DATETIME:
            return str(type_.scalar)
        case Scalar.F32 | Scalar.F64 | Scalar.BLOB | Scalar.VECTOR:
            return None
        case _:
            assert_never(type_.scalar)


class CellReader:
    """Reads single values of resident columns for one query."""

    __slots__ = ("_columns_read", "_steps", "given")

    def __init__(
        self,
        tables: TablesView,
        given: Given,
        columns_read: Mapping[ir.Var, tuple[ir.Column, ...]] | None = None,
    ) -> None:
        self._steps = tables.steps
        self._columns_read = columns_read or {}
        self.given = given

    def values(self, side: Side, frame: Frame) -> list[Any]:
        """The values of an expression row by row, dates and moments as numbers."""
        positions, domain = frame.positions[side.var], frame.domains[side.var]
        if isinstance(domain, FiledNodes | FiledEdges):
            few = self._few(side, domain, positions)
            if few is not None:
                return few
        cells = self._cells(side, domain)
        return [None] * len(positions) if cells is None else [cells[p].as_py() for p in positions]

    def _few(
        self, side: Side, domain: FiledNodes | FiledEdges, positions: Positions
    ) -> list[Any] | None:
        """The values of a column that is not in memory, fetched for these rows alone."""
        if not positions:
            return []
        name_of = domain.source.columns.name_of
        named = (name_of(column) for column in self._columns_read.get(side.var, ()))
        if isinstance(side, ir.EntityId):
            if isinstance(domain, FiledEdges):
                # Ids order the rows: what is returned of few of them comes by the same call.
                together = named if len(positions) <= COSTS.ordered_together_rows_max else ()
                return domain.few_values("id", positions, [each for each in together if each])
            return domain.ids_listed(positions)
        name = name_of(side)
        if isinstance(domain, FiledNodes) and name is not None and domain.is_id(side):
            return domain.ids_listed(positions)
        if name is None or (domain.table, side.property_id) in self._steps:
            return None
        return domain.few_values(name, positions, [each for each in named if each is not None])

    def _cells(self, side: Side, domain: Nodes | Edges) -> pa.Array | None:
        if isinstance(side, ir.EntityId):
            return domain.ids.strings if isinstance(domain, Nodes) else domain.column("id")
        key = (domain.table, side.property_id)
        cells = self._steps.get(key)
        if cells is None:
            name = domain.source.columns.name_of(side)
            if name is None:
                return None
            cells = domain.column(name)
            if side.type.scalar in _INTEGRAL:
                cells = cells.view(_INTEGRAL[side.type.scalar])
            self._steps[key] = cells
        return cells


# ---- conditions


@dataclass(frozen=True, slots=True)
class RowComparison:
    """A comparison of two values of a row, or of one with a constant."""

    compare: Callable[[Any, Any], bool]
    left: Side
    right: Side | None
    constant: ir.Expr | None

    def rows(self, frame: Frame, reader: CellReader) -> list[int]:
        """The rows for which it is true."""
        compare = self.compare
        left = reader.values(self.left, frame)
        if self.right is None:
            assert self.constant is not None
            constant = reader.given.of(self.constant)
            if constant is None:
                return []
            return [n for n, v in enumerate(left) if v is not None and compare(v, constant)]
        right = reader.values(self.right, frame)
        pairs = enumerate(zip(left, right, strict=True))
        return [n for n, (v, w) in pairs if v is not None and w is not None and compare(v, w)]


def comparison_of(expr: ir.Expr) -> RowComparison | None:
    """A condition as a comparison of row values; None for any other."""
    if not isinstance(expr, ir.Compare):
        return None
    compare, left, right = _compared(expr.op), expr.left, expr.right
    if isinstance(left, Side) and isinstance(right, Side):
        kind = kind_of(left.type)
        alike = kind is not None and kind == kind_of(right.type)
        return RowComparison(compare, left, right, None) if alike else None
    if isinstance(left, CONSTANTS) and isinstance(right, Side):
        mirrored = _mirrored(compare)
        return (
            RowComparison(mirrored, right, None, left) if _compares(right.type, left.type) else None
        )
    if isinstance(left, Side) and isinstance(right, CONSTANTS):
        return (
            RowComparison(compare, left, None, right) if _compares(left.type, right.type) else None
        )
    return None


def _mirrored(compare: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:
    return lambda value, constant: compare(constant, value)


def _compares(side: ValueType, constant: ValueType) -> bool:
    kind = kind_of(side)
    if kind == "integer":
        return constant.scalar in NUMERICS and not constant.is_list
    return kind is not None and kind == kind_of(constant)
