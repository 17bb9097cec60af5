"""Constants of a request, and how a constant fits the numbers a column can hold.

Invariant: `fit` changes how a comparison is written, never which numbers satisfy it. It is exact
where a cast would round, so that `I32 < 2.7` holds for 2 and `F32 = 0.1` for nothing.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from omnigraph.catalog.numbers import at_width
from omnigraph.plan import ir
from omnigraph.types import FLOATS, INTEGER_BOUNDS, INTEGERS, Scalar

Op = ir.CompareOp

_LESS = frozenset({Op.LT, Op.LE})
_GREATER = frozenset({Op.GT, Op.GE})

MIRRORED = {
    Op.EQ: Op.EQ,
    Op.NE: Op.NE,
    Op.LT: Op.GT,
    Op.LE: Op.GE,
    Op.GT: Op.LT,
    Op.GE: Op.LE,
}
"""`a op b` is `b MIRRORED[op] a`."""


@dataclass(frozen=True, slots=True)
class Given:
    """The values of one request."""

    params: Mapping[str, ir.Constant]
    now_ms: int

    def of(self, expr: ir.Expr) -> ir.Constant:
        """The value of a constant, a parameter or `now()`."""
        match expr:
            case ir.Const(value=value):
                return value
            case ir.Param(name=name):
                return self.params[name]
            case ir.Now():
                return self.now_ms
            case _:
                raise AssertionError(f"{expr} is no constant")


CONSTANTS = (ir.Const, ir.Param, ir.Now)


def holds(op: Op, left: ir.Constant, right: ir.Constant) -> bool | None:
    """A comparison of two constants. Python compares numbers and strings as the plan means it."""
    if left is None or right is None:
        return None
    match op:
        case Op.EQ:
            return left == right
        case Op.NE:
            return left != right
        case Op.LT:
            return bool(left < right)  # type: ignore[operator]
        case Op.LE:
            return bool(left <= right)  # type: ignore[operator]
        case Op.GT:
            return bool(left > right)  # type: ignore[operator]
        case Op.GE:
            return bool(left >= right)  # type: ignore[operator]


Fitted = tuple[Op, int | float] | bool
"""The comparison to make, or what it is for every number that is there."""


def fit(op: Op, value: int | float, scalar: Scalar) -> Fitted:
    """`x op value`, for x of a numeric type, with a value of that type."""
    if scalar in INTEGERS:
        return _fit_integer(op, value, scalar)
    assert scalar in FLOATS
    return _fit_float(op, value, scalar)


def _fit_integer(op: Op, value: int | float, scalar: Scalar) -> Fitted:
    low, high = INTEGER_BOUNDS[scalar]
    whole = math.floor(value)
    if whole != value:  # between two integers: x < 2.7 is x <= 2, x > 2.7 is x > 2
        if op in (Op.EQ, Op.NE):
            return op is Op.NE
        op = Op.LE if op in _LESS else Op.GT
    if whole < low:
        return op in _GREATER or op is Op.NE
    if whole > high:
        return op in _LESS or op is Op.NE
    return op, whole


def _fit_float(op: Op, value: int | float, scalar: Scalar) -> Fitted:
    near = at_width(value, scalar)
    if near == value:
        return op, near
    if op in (Op.EQ, Op.NE):
        return op is Op.NE
    if near > value:  # nothing lies between value and near
        return (Op.LT if op in _LESS else Op.GE), near
    return (Op.LE if op in _LESS else Op.GT), near
