"""Comparisons over Arrow arrays, exact across numeric types, with unknown where a side is null.

Invariant: numbers compare by mathematical value, whatever their widths; NaN equals itself and
follows every number, as it does in a sorted result; -0.0 equals 0.0.
"""

from collections.abc import Callable, Sequence
from typing import assert_never

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.catalog.arrow import arrow_type, scalar_of
from omnigraph.exec.values.constants import fit
from omnigraph.exec.values.rows import as_numpy
from omnigraph.plan import ir
from omnigraph.types import NUMERICS, Scalar, ValueType

Op = ir.CompareOp


def _kernel(op: Op) -> Callable[..., pa.Array]:
    match op:
        case Op.EQ:
            kernel = pc.equal
        case Op.NE:
            kernel = pc.not_equal
        case Op.LT:
            kernel = pc.less
        case Op.LE:
            kernel = pc.less_equal
        case Op.GT:
            kernel = pc.greater
        case Op.GE:
            kernel = pc.greater_equal
        case _:
            assert_never(op)
    return kernel  # type: ignore[no-any-return]


_KERNELS = {op: _kernel(op) for op in Op}
_OPPOSITE = {Op.GT: Op.LE, Op.GE: Op.LT}


def _number_type(stored: pa.DataType) -> Scalar | None:
    """The number type of a column; None for columns of other types."""
    scalar = scalar_of(stored)
    return scalar if scalar in NUMERICS else None


def unknown(length: int) -> pa.Array:
    """Not true, not false, for every row."""
    return pa.nulls(length, pa.bool_())


def where_known(array: pa.Array, truth: bool) -> pa.Array:
    """One truth value for every row that has a value, unknown for the others."""
    flags = pa.array(np.full(len(array), truth))
    return flags if not array.null_count else pc.if_else(array.is_valid(), flags, None)


def compare_constant(op: Op, array: pa.Array, value: ir.Constant, type_: ValueType) -> pa.Array:
    """`array op value`."""
    if value is None:
        return unknown(len(array))
    scalar = _number_type(array.type)
    if scalar is None:
        return _KERNELS[op](array, pa.scalar(value, _comparable(array.type, type_)))
    assert isinstance(value, int | float)
    fitted = fit(op, value, scalar)
    if isinstance(fitted, bool):
        return _nan_follows(op, array, where_known(array, fitted))
    op, number = fitted
    constant = pa.scalar(number, array.type)
    if op in _OPPOSITE and pa.types.is_floating(array.type):
        # NaN follows every number, and is neither less than one nor equal to it.
        return pc.invert(_KERNELS[_OPPOSITE[op]](array, constant))
    return _KERNELS[op](array, constant)


def _comparable(stored: pa.DataType, type_: ValueType) -> pa.DataType:
    return stored if not pa.types.is_null(stored) else arrow_type(type_)


def _nan_follows(op: Op, array: pa.Array, truth: pa.Array) -> pa.Array:
    if not pa.types.is_floating(array.type):
        return truth
    match op:
        case Op.EQ | Op.NE:
            return truth
        case Op.GT | Op.GE:
            return pc.or_kleene(truth, pc.is_nan(array))
        case Op.LT | Op.LE:
            return pc.and_kleene(truth, pc.invert(pc.is_nan(array)))
        case _:
            assert_never(op)


def compare_arrays(op: Op, left: pa.Array, right: pa.Array) -> pa.Array:
    """`left op right`, row by row."""
    if left.type == right.type and not pa.types.is_floating(left.type):
        return _KERNELS[op](left, right)
    if _number_type(left.type) is None or _number_type(right.type) is None:
        return unknown(len(left))  # a column of nothing but nulls
    known = pc.and_(left.is_valid(), right.is_valid())
    sign = _three_way(_numbers(left), _numbers(right))
    truth = pa.array(_holds(op, sign))
    return pc.if_else(known, truth, None)


def _holds(op: Op, sign: np.ndarray) -> np.ndarray:
    """Whether a comparison holds, from the sign of the left number minus the right one."""
    truth: np.ndarray
    match op:
        case Op.EQ:
            truth = sign == 0
        case Op.NE:
            truth = sign != 0
        case Op.LT:
            truth = sign < 0
        case Op.LE:
            truth = sign <= 0
        case Op.GT:
            truth = sign > 0
        case Op.GE:
            truth = sign >= 0
        case _:
            assert_never(op)
    return truth


def _numbers(array: pa.Array) -> np.ndarray:
    if array.null_count:
        array = array.fill_null(0)
    return as_numpy(array)


def _three_way(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """-1, 0 or 1, as the left number is less than, equal to or greater than the right one."""
    floats = left.dtype.kind == "f", right.dtype.kind == "f"
    if all(floats):
        return _three_way_floats(left.astype(np.float64), right.astype(np.float64))
    if floats[1]:
        return _integer_to_float(left, right.astype(np.float64))
    if floats[0]:
        return -_integer_to_float(right, left.astype(np.float64))
    return _three_way_integers(left, right)


def _three_way_floats(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    sign = (left > right).astype(np.int8) - (left < right).astype(np.int8)
    left_nan, right_nan = np.isnan(left), np.isnan(right)
    return np.where(
        left_nan | right_nan, left_nan.astype(np.int8) - right_nan.astype(np.int8), sign
    )


def _three_way_integers(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """U64 has a half that I64 lacks, so the high halves are compared apart."""
    left_high, right_high = _beyond_signed(left), _beyond_signed(right)
    left_low, right_low = left.astype(np.int64), right.astype(np.int64)
    sign = (left_low > right_low).astype(np.int8) - (left_low < right_low).astype(np.int8)
    halves = left_high.astype(np.int8) - right_high.astype(np.int8)
    # In one half, the wrapped values keep their order.
    return np.where(halves != 0, halves, sign)


def _beyond_signed(numbers: np.ndarray) -> np.ndarray:
    if numbers.dtype != np.uint64:
        return np.zeros(len(numbers), bool)
    return numbers > np.uint64(2**63 - 1)


def _integer_to_float(integers: np.ndarray, floats: np.ndarray) -> np.ndarray:
    """Compare with the float's whole part first, which is exact, then with its fraction."""
    high = 2.0**64 if integers.dtype == np.uint64 else 2.0**63
    low = 0.0 if integers.dtype == np.uint64 else -(2.0**63)
    whole = np.floor(floats)
    inside = (whole >= low) & (whole < high)
    exact = np.where(inside, whole, 0.0).astype(
        np.uint64 if integers.dtype == np.uint64 else np.int64
    )
    sign = _three_way_integers(integers, exact)
    sign = np.where((sign == 0) & (floats > whole), np.int8(-1), sign)
    outside = np.where(floats < low, np.int8(1), np.int8(-1))  # NaN follows every number
    return np.where(inside, sign, outside)


def in_constants(array: pa.Array, items: Sequence[ir.Constant]) -> pa.Array:
    """Whether each value is one of the constants."""
    stored = [number for item in items for number in _as_stored(array.type, item)]
    if not stored:
        return where_known(array, False)
    member = pc.is_in(array, value_set=pa.array(stored, array.type))
    return member if not array.null_count else pc.if_else(array.is_valid(), member, None)


def _as_stored(stored: pa.DataType, item: ir.Constant) -> tuple[ir.Constant, ...]:
    """The constant as the stored type writes it: not at all, once, or as both zeros."""
    scalar = _number_type(stored)
    if scalar is None or not isinstance(item, int | float):
        return () if item is None else (item,)
    fitted = fit(Op.EQ, item, scalar)
    if isinstance(fitted, bool):
        return ()
    number = fitted[1]
    return (0.0, -0.0) if isinstance(number, float) and number == 0 else (number,)


def in_lists(lists: pa.Array, value: ir.Constant | pa.Array, type_: ValueType) -> pa.Array:
    """Whether each list holds the constant, or the value of its row."""
    if pa.types.is_null(lists.type) or value is None:
        return unknown(len(lists))
    offsets = lists.offsets.to_numpy()
    items = lists.values.slice(offsets[0], offsets[-1] - offsets[0])
    counts = np.diff(offsets)
    if isinstance(value, pa.Array):
        owners = np.repeat(np.arange(len(lists)), counts)
        equal = compare_arrays(Op.EQ, items, value.take(pa.array(owners)))
        known = pc.and_(lists.is_valid(), value.is_valid())
    else:
        equal = compare_constant(Op.EQ, items, value, type_)
        known = lists.is_valid()
    hits = np.concatenate(([0], np.cumsum(flags(equal))))
    ends = offsets - offsets[0]
    return pc.if_else(known, pa.array(hits[ends[1:]] > hits[ends[:-1]]), None)


def flags(truth: pa.Array) -> np.ndarray:
    """Where a condition is true, and not unknown."""
    if truth.null_count:
        truth = truth.fill_null(False)
    return as_numpy(truth)


def text_contains(text: pa.Array, part: str | None, *, prefix: bool) -> pa.Array:
    """Whether each text holds, or starts with, a constant."""
    if part is None or pa.types.is_null(text.type):
        return unknown(len(text))
    return pc.starts_with(text, part) if prefix else pc.match_substring(text, part)


def text_contains_rows(text: pa.Array, part: pa.Array, *, prefix: bool) -> pa.Array:
    """The same with a part a row: one kernel call a distinct part, over the rows that have it."""
    if pa.types.is_null(text.type) or pa.types.is_null(part.type) or not len(text):
        return unknown(len(text))
    encoded = part.dictionary_encode()
    codes = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
    order = np.argsort(codes, kind="stable")
    cuts = np.searchsorted(codes[order], np.arange(-1, len(encoded.dictionary) + 1))
    truths = [unknown(int(cuts[1] - cuts[0]))]
    for code, needle in enumerate(encoded.dictionary.to_pylist()):
        rows = pa.array(order[cuts[code + 1] : cuts[code + 2]])
        truths.append(text_contains(text.take(rows), needle, prefix=prefix))
    back = np.empty(len(order), np.int64)
    back[order] = np.arange(len(order))
    return pa.concat_arrays(truths).take(pa.array(back))
