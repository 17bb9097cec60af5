"""Expression evaluator: typed expressions over rows, as Arrow arrays.

Invariant: a condition evaluates to true, false or null for unknown, by three-valued logic, and
agrees with the filter that `pushdown` writes for the same expression.
"""

import math
from collections.abc import Callable
from typing import Any, assert_never

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.catalog.arrow import arrow_type
from omnigraph.errors import ExpressionFailed
from omnigraph.exec.values.arithmetic import ARITHMETIC, OF_CONSTANTS, RowFault, widened
from omnigraph.exec.values.bounded import in_pieces, is_long, repeat
from omnigraph.exec.values.cast_kernels import CASTS
from omnigraph.exec.values.compare import (
    compare_arrays,
    compare_constant,
    flags,
    in_constants,
    in_lists,
    text_contains,
    text_contains_rows,
    unknown,
)
from omnigraph.exec.values.constants import CONSTANTS, Given, holds, mirrored
from omnigraph.exec.values.rows import ONE_ROW, Rows, as_numpy
from omnigraph.exec.values.text_kernels import TEXTS
from omnigraph.number_arrays import to_arrow
from omnigraph.plan import ir
from omnigraph.plan.explain import said
from omnigraph.plan.expressions import needs, type_of
from omnigraph.query_limits import checkpoint
from omnigraph.types import Scalar, ValueType

KERNELS = {**ARITHMETIC, **TEXTS, **CASTS}
"""Every function and operator of `plan.functions`."""

TextSearch = Callable[[ir.TextMatch, Rows], np.ndarray]
"""Which rows a text search matches."""


_PLAIN = (*CONSTANTS, ir.Column, ir.SlotRef)


class Evaluator:
    """Evaluates the expressions of one request."""

    def __init__(self, given: Given, text_search: TextSearch) -> None:
        self.given = given
        self._text_search = text_search

    def keep(self, where: ir.Expr, rows: Rows) -> np.ndarray:
        """Where the condition is true."""
        return flags(self.truth(where, rows))

    def values(self, expr: ir.Expr, rows: Rows) -> pa.Array:
        """The value of any expression, row by row."""
        match expr:
            case ir.Const() | ir.Param() | ir.Now():
                return repeated(self.given.of(expr), expr.type, rows.length)
            case ir.Column(var=var):
                bound = rows.bindings[var]
                return bound.domain.values_at(expr, bound.positions)
            case ir.EntityId(var=var):
                bound = rows.bindings[var]
                return bound.domain.ids_at(bound.positions)
            case ir.EndpointId(var=var, end=end):
                bound = rows.bindings[var]
                return bound.domain.ends_at(end, bound.positions)
            case ir.SlotRef(slot=slot):
                return rows.slots[slot]
            case ir.Call():
                return self._called(expr, rows)
            case ir.Case():
                return self._chosen(expr, rows)
            case _:
                return self.truth(expr, rows)

    def _called(self, call: ir.Call, rows: Rows) -> pa.Array:
        """The values of a function, or the error of the first row that has none."""
        arguments = self._arguments(call, rows)
        for argument, array in zip(call.arguments, arguments, strict=True):
            if pa.types.is_null(array.type):  # a column that this version does not have
                arguments[arguments.index(array)] = array.cast(arrow_type(type_of(argument)))
        kernel = KERNELS[call.function]
        checkpoint()
        try:
            if not any(is_long(each.type) for each in arguments):
                return kernel(arguments, call.type)
            held = sum(each.nbytes for each in rows.slots.values())
            return in_pieces(arguments, lambda arrays: kernel(arrays, call.type), beside=held)
        except RowFault as fault:
            row = _row_text(call, rows, fault.row)
            raise ExpressionFailed(fault.reason, said(call), row) from None

    def _arguments(self, call: ir.Call, rows: Rows) -> list[Any]:
        """A value a row for each argument; of a constant, where the kernel takes it, one."""
        if call.function in OF_CONSTANTS and len(call.arguments) == 2:
            for index in (0, 1):
                one, other = call.arguments[index], call.arguments[1 - index]
                value = self.given.of(one) if isinstance(one, CONSTANTS) else None
                if _is_number(value) and not isinstance(other, CONSTANTS):
                    scalar = pa.scalar(value, arrow_type(type_of(one)))
                    both = [scalar, self.values(other, rows)]
                    return both if index == 0 else both[::-1]
        return [self.values(argument, rows) for argument in call.arguments]

    def _chosen(self, case: ir.Case, rows: Rows) -> pa.Array:
        """The values of a case: each branch over the rows that come to it."""
        stored = arrow_type(case.type)
        if len(case.branches) == 1 and _is_plain(stored, case.branches[0].value, case.otherwise):
            return self._either(case.branches[0], case.otherwise, rows, stored)
        waiting, pieces, order = np.arange(rows.length), list[pa.Array](), list[np.ndarray]()
        for branch in case.branches:
            here = rows.take(waiting)
            keep = self.keep(branch.condition, here)
            pieces.append(self._widened(branch.value, here.where(keep), stored))
            order.append(waiting[keep])
            waiting = waiting[~keep]
        if case.otherwise is None:
            pieces.append(pa.nulls(len(waiting), stored))
        else:
            pieces.append(self._widened(case.otherwise, rows.take(waiting), stored))
        back = np.empty(rows.length, np.int64)
        back[np.concatenate([*order, waiting])] = np.arange(rows.length)
        return pa.concat_arrays(pieces).take(pa.array(back))

    def _either(
        self, branch: ir.Branch, otherwise: ir.Expr | None, rows: Rows, stored: pa.DataType
    ) -> pa.Array:
        """The same of one branch, whose values cannot fail and so may be those of all rows."""
        keep = self.truth(branch.condition, rows)
        sides = (branch.value, otherwise)
        left, right = (self._one_or_all(side, rows, stored) for side in sides)
        if pa.types.is_integer(stored) or pa.types.is_floating(stored):
            one, other = _whole_numbers(left), _whole_numbers(right)
            if one is not None and other is not None:
                return to_arrow(np.where(flags(keep), one, other))
        return pc.if_else(keep.fill_null(False), left, right)

    def _one_or_all(
        self, value: ir.Expr | None, rows: Rows, stored: pa.DataType
    ) -> pa.Array | pa.Scalar:
        if value is None:
            return pa.scalar(None, stored)
        if isinstance(value, CONSTANTS):
            return self._widened(value, ONE_ROW, stored)[0]
        return self._widened(value, rows, stored)

    def _widened(self, value: ir.Expr, rows: Rows, stored: pa.DataType) -> pa.Array:
        try:
            return widened(self.values(value, rows), stored)
        except RowFault as fault:
            row = _row_text(value, rows, fault.row)
            raise ExpressionFailed(fault.reason, said(value), row) from None

    def truth(self, expr: ir.Expr, rows: Rows) -> pa.Array:
        """A condition, row by row."""
        checkpoint()
        match expr:
            case ir.Compare():
                return self._compare(expr, rows)
            case ir.ListContains():
                return self._list_contains(expr, rows)
            case ir.TextContains():
                return self._text_contains(expr, rows)
            case ir.IsNull(operand=operand, negated=negated):
                present = self._present(operand, rows)
                return pa.array(present if negated else ~present)
            case ir.TextMatch():
                return pa.array(self._text_search(expr, rows))
            case ir.And(parts=parts):
                return self._all(parts, rows)
            case ir.Or(parts=parts):
                truth = self.truth(parts[0], rows)
                for part in parts[1:]:
                    truth = pc.or_kleene(truth, self.truth(part, rows))
                return truth
            case ir.Not(part=part):
                return pc.invert(self.truth(part, rows))
            case (
                ir.Const()
                | ir.Param()
                | ir.Now()
                | ir.Column()
                | ir.EntityId()
                | ir.EndpointId()
                | ir.SlotRef()
                | ir.Call()
                | ir.Case()
            ):
                return self.values(expr, rows)
            case _:
                assert_never(expr)

    def _all(self, parts: tuple[ir.Expr, ...], rows: Rows) -> pa.Array:
        truth = self.truth(parts[0], rows)
        for part in parts[1:]:
            truth = pc.and_kleene(truth, self.truth(part, rows))
        return truth

    def _present(self, operand: ir.Expr, rows: Rows) -> np.ndarray:
        match operand:
            case ir.EntityId(var=var) | ir.EndpointId(var=var):
                return rows.bindings[var].positions >= 0
            case _:
                return as_numpy(self.values(operand, rows).is_valid())

    def _compare(self, expr: ir.Compare, rows: Rows) -> pa.Array:
        op, left, right = expr.op, expr.left, expr.right
        if isinstance(left, CONSTANTS):
            if isinstance(right, CONSTANTS):
                truth = holds(op, self.given.of(left), self.given.of(right))
                return pa.array([truth] * rows.length, pa.bool_())
            op, left, right = mirrored(op), right, left
        values = self.values(left, rows)
        if isinstance(right, CONSTANTS):
            return compare_constant(op, values, self.given.of(right), right.type)
        return compare_arrays(op, values, self.values(right, rows))

    def _list_contains(self, expr: ir.ListContains, rows: Rows) -> pa.Array:
        items, value = expr.items, expr.value
        if not isinstance(items, CONSTANTS):
            lists = self.values(items, rows)
            if isinstance(value, CONSTANTS):
                return in_lists(lists, self.given.of(value), value.type)
            return in_lists(lists, self.values(value, rows), type_of(value))
        constants = self.given.of(items)
        if constants is None:
            return unknown(rows.length)
        assert isinstance(constants, tuple)
        if isinstance(value, CONSTANTS):
            item = self.given.of(value)
            truth = None if item is None else item in constants
            return pa.array([truth] * rows.length, pa.bool_())
        return in_constants(self.values(value, rows), constants)

    def _text_contains(self, expr: ir.TextContains, rows: Rows) -> pa.Array:
        text = self.values(expr.text, rows)
        if not isinstance(expr.part, CONSTANTS):
            return text_contains_rows(text, self.values(expr.part, rows), prefix=expr.prefix)
        part = self.given.of(expr.part)
        assert part is None or isinstance(part, str)
        return in_pieces([text], lambda arrays: text_contains(arrays[0], part, prefix=expr.prefix))


def _whole_numbers(values: pa.Array | pa.Scalar) -> np.ndarray | None:
    """Numbers without a null as numpy has them, whose choice between two takes a fraction of the
    time of Arrow's; None for others."""
    if isinstance(values, pa.Scalar):
        number = values.as_py()
        return None if number is None else np.asarray(number, values.type.to_pandas_dtype())
    return None if values.null_count else as_numpy(values)


def _is_number(value: ir.Constant) -> bool:
    """Whether a constant is a finite number, and not 0."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and value != 0 and math.isfinite(value)  # type: ignore[arg-type]


def _row_text(call: ir.Expr, rows: Rows, row: int) -> str:
    """A row by the ids of the entities that an expression reads."""
    ids = []
    for var in sorted(needs(call)):
        bound = rows.bindings.get(ir.Var(var))
        if bound is not None:
            id_ = bound.domain.ids_at(bound.positions[row : row + 1])[0].as_py()
            ids.append(f"${var} = {id_!r}" if var != ir.SELF else f"id {id_!r}")
    if ids:
        return ", ".join(ids)
    return "a group" if needs(call) else "the parameters of the request"


def _is_plain(stored: pa.DataType, *values: ir.Expr | None) -> bool:
    """Whether these are constants and columns of numbers, dates or truth values, which become
    the stored type whatever they are."""
    return all(
        value is None
        or (isinstance(value, _PLAIN) and _has_width(value.type) and _fits(value.type, stored))
        for value in values
    )


def _has_width(kind: ValueType) -> bool:
    return not (kind.is_list or kind.is_vector or kind.is_blob or kind.is_text)


def _fits(kind: ValueType, stored: pa.DataType) -> bool:
    return kind.scalar is not Scalar.U64 or bool(stored != pa.int64())


def repeated(value: ir.Constant, type_: ValueType, length: int) -> pa.Array:
    """One constant a row."""
    stored = arrow_type(type_)
    if value is None:
        return pa.nulls(length, stored)
    return repeat(pa.scalar(value, stored), length)
