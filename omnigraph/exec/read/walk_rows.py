"""A few rows as lists, and what they say of themselves in Python's own values.

Invariant: a comparison is true for exactly the rows for which `evaluate` calls it true. Floats are
left to the operators, because NaN has a place in their order that Python does not give it; texts
compare alike as code points and as bytes.
"""

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from omnigraph.exec.memory.resident import Edges, Nodes
from omnigraph.exec.memory.view import TablesView
from omnigraph.exec.values.constants import CONSTANTS, Given
from omnigraph.exec.values.rows import BoundEntities, Rows
from omnigraph.plan import ir
from omnigraph.types import INTEGERS, NUMERICS, Scalar, ValueType

Positions = list[int]
Side = ir.Column | ir.EntityId

_COMPARED: dict[ir.CompareOp, Callable[[Any, Any], bool]] = {
    ir.CompareOp.EQ: operator.eq,
    ir.CompareOp.NE: operator.ne,
    ir.CompareOp.LT: operator.lt,
    ir.CompareOp.LE: operator.le,
    ir.CompareOp.GT: operator.gt,
    ir.CompareOp.GE: operator.ge,
}
_INTEGRAL = {Scalar.DATE: pa.int32(), Scalar.DATETIME: pa.int64()}


@dataclass(frozen=True, slots=True)
class Frame:
    """A few rows: the position of each variable's entity, row by row."""

    length: int
    at: dict[ir.Var, Positions]
    domains: dict[ir.Var, Nodes | Edges]

    def take(self, rows: list[int]) -> "Frame":
        """These rows, as often as they are named."""
        at = {var: [found[row] for row in rows] for var, found in self.at.items()}
        return Frame(len(rows), at, self.domains)

    def bind(self, var: ir.Var, domain: Nodes | Edges, at: Positions) -> "Frame":
        """The same rows with one more variable."""
        return Frame(self.length, {**self.at, var: at}, {**self.domains, var: domain})

    def rows(self) -> Rows:
        """The same rows for the operators."""
        bindings = {
            var: BoundEntities(self.domains[var], np.array(at, np.int64))
            for var, at in self.at.items()
        }
        return Rows(self.length, bindings, {})


def kind_of(type_: ValueType) -> str | None:
    """What values of a type compare with; None for those that only the operators compare."""
    if type_.is_list or type_.is_vector:
        return None
    if type_.scalar in INTEGERS:
        return "integer"
    if type_.scalar in (Scalar.STRING, Scalar.BOOL, Scalar.DATE, Scalar.DATETIME):
        return str(type_.scalar)
    return None


class Reader:
    """Looks values up for one query."""

    __slots__ = ("_steps", "given")

    def __init__(self, tables: TablesView, given: Given) -> None:
        self._steps = tables.steps
        self.given = given

    def values(self, side: Side, frame: Frame) -> list[Any]:
        """The values of an expression row by row, dates and moments as numbers."""
        at, cells = frame.at[side.var], self._cells(side, frame.domains[side.var])
        return [None] * len(at) if cells is None else [cells[place].as_py() for place in at]

    def _cells(self, side: Side, domain: Nodes | Edges) -> pa.Array | None:
        if isinstance(side, ir.EntityId):
            return domain.ids.strings if isinstance(domain, Nodes) else domain.column("id")
        key = (domain.table, side.property_id)
        found = self._steps.get(key)
        if found is None:
            name = domain.source.columns.name_of(side)
            if name is None:
                return None
            found = domain.column(name)
            if side.type.scalar in _INTEGRAL:
                found = found.view(_INTEGRAL[side.type.scalar])
            self._steps[key] = found
        return found


# ---- conditions


@dataclass(frozen=True, slots=True)
class Comparison:
    """A comparison of two values, or of one with a constant."""

    compare: Callable[[Any, Any], bool]
    left: Side
    right: Side | None
    constant: ir.Expr | None

    def rows(self, frame: Frame, reader: Reader) -> list[int]:
        """The rows for which it is true."""
        compare = self.compare
        left = reader.values(self.left, frame)
        if self.right is None:
            assert self.constant is not None
            wanted = reader.given.of(self.constant)
            if wanted is None:
                return []
            return [n for n, v in enumerate(left) if v is not None and compare(v, wanted)]
        right = reader.values(self.right, frame)
        pairs = enumerate(zip(left, right, strict=True))
        return [n for n, (v, w) in pairs if v is not None and w is not None and compare(v, w)]


def comparison_of(expr: ir.Expr) -> Comparison | None:
    """A condition that a few rows can be asked; None for any other."""
    if not isinstance(expr, ir.Compare):
        return None
    compare, left, right = _COMPARED[expr.op], expr.left, expr.right
    if isinstance(left, Side) and isinstance(right, Side):
        kind = kind_of(left.type)
        alike = kind is not None and kind == kind_of(right.type)
        return Comparison(compare, left, right, None) if alike else None
    if isinstance(left, CONSTANTS) and isinstance(right, Side):
        mirrored = _mirrored(compare)
        return Comparison(mirrored, right, None, left) if _compares(right.type, left.type) else None
    if isinstance(left, Side) and isinstance(right, CONSTANTS):
        return Comparison(compare, left, None, right) if _compares(left.type, right.type) else None
    return None


def _mirrored(compare: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:
    return lambda value, wanted: compare(wanted, value)


def _compares(side: ValueType, constant: ValueType) -> bool:
    kind = kind_of(side)
    if kind == "integer":
        return constant.scalar in NUMERICS and not constant.is_list
    return kind is not None and kind == kind_of(constant)
