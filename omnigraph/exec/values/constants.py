"""Constants of a request, and the exact rewrite of a comparison to a column's number type.

Invariant: `fit` changes how a comparison is written, never which numbers satisfy it. It is exact
where a cast would round, so that `I32 < 2.7` holds for 2 and `F32 = 0.1` for nothing.
"""

import math
from collections.abc import Mapping
from typing import assert_never

from omnigraph.catalog.numbers import at_width
from omnigraph.light_dataclass import dataclass
from omnigraph.plan import ir
from omnigraph.types import FLOATS, INTEGER_BOUNDS, INTEGERS, Scalar

Op = ir.CompareOp


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


def mirrored(op: Op) -> Op:
    """`a op b` is `b mirrored(op) a`."""
    match op:
        case Op.EQ | Op.NE:
            return op
        case Op.LT:
            return Op.GT
        case Op.LE:
            return Op.GE
        case Op.GT:
            return Op.LT
        case Op.GE:
            return Op.LE
        case _:
            assert_never(op)


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
        case _:
            assert_never(op)


Fitted = tuple[Op, int | float] | bool
"""The comparison to make, or what it is for every number that is there."""


def fit(op: Op, value: int | float, scalar: Scalar) -> Fitted:
    """`x op value`, for x of a numeric type, with a value of that type."""
    if scalar in INTEGERS:
        return _fit_integer(op, value, scalar)
    assert scalar in FLOATS
    return _fit_float(op, value, scalar)


def _beside(op: Op, *, below: Op, above: Op) -> Op | bool:
    """A comparison with a value that no number of the type equals, as one with its neighbour: one
    operator for less, another for greater; equality is decided."""
    match op:
        case Op.EQ:
            return False
        case Op.NE:
            return True
        case Op.LT | Op.LE:
            return below
        case Op.GT | Op.GE:
            return above
        case _:
            assert_never(op)


def _fit_integer(op: Op, value: int | float, scalar: Scalar) -> Fitted:
    low, high = INTEGER_BOUNDS[scalar]
    whole = math.floor(value)
    if whole != value:  # between two integers: x < 2.7 is x <= 2, x > 2.7 is x > 2
        between = _beside(op, below=Op.LE, above=Op.GT)
        if isinstance(between, bool):
            return between
        op = between
    if low <= whole <= high:
        return op, whole
    # Every number of the type lies on one side of the value.
    return bool(holds(op, low, whole))


def _fit_float(op: Op, value: int | float, scalar: Scalar) -> Fitted:
    near = at_width(value, scalar)
    if near == value:
        return op, near
    if near > value:  # nothing lies between value and near
        beside = _beside(op, below=Op.LT, above=Op.GE)
    else:
        beside = _beside(op, below=Op.LE, above=Op.GT)
    return beside if isinstance(beside, bool) else (beside, near)
