"""Arithmetic kernels: checked integers of 64 bits, and floats that may not become infinite.

Invariant: an integer result is exact or the row fails; it never wraps around and is never rounded.
Signed and unsigned integers mix by their values. A float result is what IEEE 754 gives, but a
finite number never becomes an infinity, and nothing is divided by zero.
"""

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.exec.values.rows import as_numpy
from omnigraph.types import INTEGER_BOUNDS, INTEGERS, Scalar, ValueType

_LOW = 2**32 - 1
_OVERFLOW = "the result does not fit {}"
_ZERO = "division by zero"


class RowFault(Exception):
    """A row for which a kernel has no value: its index, and the reason."""

    def __init__(self, row: int, reason: str) -> None:
        super().__init__(reason)
        self.row = row
        self.reason = reason


_SHOWN_MAX = 100


def shortened(text: str) -> str:
    """A text as errors show it, in at most 100 characters."""
    return text if len(text) <= _SHOWN_MAX else f"{text[: _SHOWN_MAX - 1]}…"


def shown(value: object) -> str:
    """A value as errors show it."""
    return shortened(repr(value[:_SHOWN_MAX] if isinstance(value, str) else value))


def refuse(bad: np.ndarray, reason: str) -> None:
    """Fail at the first row that is bad, if there is one."""
    if bad.any():
        raise RowFault(int(np.flatnonzero(bad)[0]), reason)


Argument: TypeAlias = "pa.Array | pa.Scalar"
"""A value a row; for the kernels of `OF_CONSTANTS` also one for all rows, neither null nor 0."""


def known_rows(arrays: Sequence[Argument]) -> np.ndarray | None:
    """Flags of the rows in which no argument is null; None for all of them."""
    known: np.ndarray | None = None
    for array in arrays:
        if isinstance(array, pa.Array) and array.null_count:
            valid = as_numpy(array.is_valid())
            known = valid if known is None else known & valid
    return known


def _filled(array: Argument, known: np.ndarray | None, value: int = 1) -> np.ndarray:
    """Numbers, with one that does no harm where a row has none."""
    if isinstance(array, pa.Scalar):
        numbers = np.asarray(array.as_py(), array.type.to_pandas_dtype())
    else:
        numbers = as_numpy(array.fill_null(value) if array.null_count else array)
    return numbers if known is None else np.where(known, numbers, numbers.dtype.type(value))


def _answer(values: np.ndarray, known: np.ndarray | None, kind: ValueType) -> pa.Array:
    stored = pa.uint64() if kind.scalar is Scalar.U64 else None
    return pa.array(values, stored, mask=None if known is None else ~known)


def widened(values: pa.Array, stored: pa.DataType) -> pa.Array:
    """Values as the wider type that they share with others: integers may become floats, which
    rounds large ones, and unsigned ones signed, if they fit."""
    if values.type == stored:
        return values
    if pa.types.is_floating(stored):
        return values.cast(stored, safe=False)
    if values.type == pa.uint64() and stored == pa.int64():
        large = pc.greater(values, pa.scalar(2**63 - 1, pa.uint64())).fill_null(False)
        refuse(as_numpy(large), _OVERFLOW.format(Scalar.I64))
    return values.cast(stored)


# ---- floats


def _floats(arrays: Sequence[Argument], known: np.ndarray | None) -> list[np.ndarray]:
    return [_filled(array, known).astype(np.float64, copy=False) for array in arrays]


def float_kernel(
    compute: Callable[..., np.ndarray],
    *,
    nonzero: bool = False,
    domain: Callable[..., np.ndarray] | None = None,
    reason: str = "",
    arrow: Callable[..., pa.Array] | None = None,
) -> Callable[[Sequence[pa.Array], ValueType], pa.Array]:
    """A kernel over 64-bit floats. `nonzero`: the last argument may not be 0; `domain` flags the
    arguments that there is a value for; `arrow` computes the same, in memory that Arrow keeps."""

    def kernel(arrays: Sequence[pa.Array], kind: ValueType) -> pa.Array:
        known = known_rows(arrays)
        numbers = _floats(arrays, known)
        if nonzero:
            refuse(numbers[-1] == 0, _ZERO)
        if domain is not None:
            refuse(~domain(*numbers), reason)
        quick: pa.Array | None = None
        if arrow is not None and known is None and all(a.type == pa.float64() for a in arrays):
            quick = arrow(*arrays)
            result = as_numpy(quick)
        else:
            with np.errstate(all="ignore"):
                result = compute(*numbers)
        infinite = np.isinf(result)
        if infinite.any():
            finite = reduce(np.logical_and, map(np.isfinite, numbers))
            refuse(infinite & finite, "the result is too large for a float")
        return _answer(result, known, kind) if quick is None else quick

    return kernel


# ---- integers


def _halves(numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The number as `high * 2**32 + low`, with `0 <= low < 2**32`."""
    width = np.uint64 if numbers.dtype == np.uint64 else np.int64
    wide = numbers.astype(width, copy=False)
    return (wide >> width(32)).astype(np.int64), (wide & width(_LOW)).astype(np.int64)


def _whole(high: np.ndarray, low: np.ndarray, kind: ValueType) -> np.ndarray:
    """The integers of two halves, or a fault."""
    high, low = high + (low >> 32), low & _LOW
    least, most = INTEGER_BOUNDS[kind.scalar]
    refuse((high < least >> 32) | (high > most >> 32), _OVERFLOW.format(kind.scalar))
    width = np.uint64 if kind.scalar is Scalar.U64 else np.int64
    return (high.astype(width) << width(32)) | low.astype(width)


def _magnitudes(numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Absolute values as unsigned integers, and flags of the negative ones."""
    if numbers.dtype.kind == "u":
        return numbers.astype(np.uint64), np.zeros(numbers.shape, bool)
    wide = numbers.astype(np.int64)
    negative = wide < 0
    low = np.where(negative, ~wide, wide).astype(np.uint64)
    return low + negative.astype(np.uint64), negative


def _signed(size: np.ndarray, negative: np.ndarray, kind: ValueType) -> np.ndarray:
    """Integers of magnitudes and signs, or a fault."""
    negative = negative & (size > 0)
    most = np.uint64(INTEGER_BOUNDS[kind.scalar][1])
    if kind.scalar is Scalar.U64:
        refuse(negative, _OVERFLOW.format(kind.scalar))
        return size
    refuse(size > most + negative.astype(np.uint64), _OVERFLOW.format(kind.scalar))
    with np.errstate(over="ignore"):
        return np.where(negative, np.uint64(0) - size, size).view(np.int64)


def _integers(arrays: Sequence[Argument], known: np.ndarray | None) -> list[np.ndarray]:
    return [_filled(array, known) for array in arrays]


def _simple(arrays: Sequence[Argument], kind: ValueType) -> bool:
    """Whether Arrow's own checked kernels apply: everything is a signed integer of 64 bits."""
    return kind.scalar is Scalar.I64 and all(a.type != pa.uint64() for a in arrays)


def _checked(kernel: Callable[..., pa.Array], arrays: Sequence[Argument]) -> pa.Array | None:
    """Arrow's answer; None where some row overflows, which it does not name."""
    try:
        return kernel(*(array.cast(pa.int64()) for array in arrays))
    except pa.ArrowInvalid:
        return None


def _by_halves(
    kernel: Callable[..., pa.Array], combine: Callable[[np.ndarray, np.ndarray], np.ndarray]
) -> Callable[[Sequence[pa.Array], ValueType], pa.Array]:
    def integers(arrays: Sequence[Argument], kind: ValueType) -> pa.Array:
        if _simple(arrays, kind) and (quick := _checked(kernel, arrays)) is not None:
            return quick
        known = known_rows(arrays)
        left, right = map(_halves, _integers(arrays, known))
        whole = _whole(combine(left[0], right[0]), combine(left[1], right[1]), kind)
        return _answer(whole, known, kind)

    return integers


def _multiplied(arrays: Sequence[Argument], kind: ValueType) -> pa.Array:
    if _simple(arrays, kind):
        quick = _checked(pc.multiply_checked, arrays)
        if quick is not None:
            return quick
    known = known_rows(arrays)
    (left, minus_left), (right, minus_right) = map(_magnitudes, _integers(arrays, known))
    most = np.uint64(2**64 - 1) // np.maximum(left, np.uint64(1))
    refuse((left > 0) & (right > most), _OVERFLOW.format(kind.scalar))
    return _answer(_signed(left * right, minus_left ^ minus_right, kind), known, kind)


def _divided(arrays: Sequence[pa.Array], kind: ValueType) -> pa.Array:
    known = known_rows(arrays)
    (left, minus_left), (right, minus_right) = map(_magnitudes, _integers(arrays, known))
    refuse(right == 0, _ZERO)
    return _answer(_signed(left // right, minus_left ^ minus_right, kind), known, kind)


def _remainder(arrays: Sequence[Argument], kind: ValueType) -> pa.Array:
    known = known_rows(arrays)
    if _simple(arrays, kind):
        dividend, divisor = (n.astype(np.int64, copy=False) for n in _integers(arrays, known))
        refuse(divisor == 0, _ZERO)
        return _answer(np.fmod(dividend, divisor), known, kind)
    (left, minus_left), (right, _) = map(_magnitudes, _integers(arrays, known))
    refuse(right == 0, _ZERO)
    return _answer(_signed(left % right, minus_left, kind), known, kind)


def _opposite(arrays: Sequence[pa.Array], kind: ValueType) -> pa.Array:
    known = known_rows(arrays)
    size, negative = _magnitudes(_integers(arrays, known)[0])
    return _answer(_signed(size, ~negative, kind), known, kind)


def _absolute(arrays: Sequence[pa.Array], kind: ValueType) -> pa.Array:
    known = known_rows(arrays)
    size, _ = _magnitudes(_integers(arrays, known)[0])
    return _answer(_signed(size, np.zeros(len(size), bool), kind), known, kind)


def _by_class(
    integers: Callable[[Sequence[pa.Array], ValueType], pa.Array],
    floats: Callable[[Sequence[pa.Array], ValueType], pa.Array],
) -> Callable[[Sequence[pa.Array], ValueType], pa.Array]:
    def kernel(arrays: Sequence[pa.Array], kind: ValueType) -> pa.Array:
        return (integers if kind.scalar in INTEGERS else floats)(arrays, kind)

    return kernel


def _same(arrays: Sequence[pa.Array], kind: ValueType) -> pa.Array:
    return arrays[0].cast(pa.uint64() if kind.scalar is Scalar.U64 else pa.int64())


def _rounded(arrays: Sequence[pa.Array], kind: ValueType) -> pa.Array:
    """To digits after the point, halves away from zero; integers to tens, hundreds …"""
    known = known_rows(arrays)
    numbers = _integers(arrays[:1], known)[0]
    digits = _integers(arrays[1:], known)[0].astype(np.int64) if len(arrays) > 1 else None
    if kind.scalar in INTEGERS:
        return _answer(_rounded_integers(numbers, digits, kind), known, kind)
    values = numbers.astype(np.float64)
    scale = np.ones(1) if digits is None else 10.0 ** np.clip(np.abs(digits), 0, 308)
    down = np.zeros(1, bool) if digits is None else digits < 0
    with np.errstate(all="ignore"):
        scaled = np.where(down, values / scale, values * scale)
        size = np.abs(scaled)
        whole = np.floor(size)
        whole = np.where(size - whole >= 0.5, whole + 1, whole)
        rounded = np.copysign(np.where(down, whole * scale, whole / scale), values)
    kept = np.isfinite(scaled) & (size < 2.0**52)
    return _answer(np.where(kept, rounded, np.where(down, 0.0, values)), known, kind)


def _rounded_integers(
    numbers: np.ndarray, digits: np.ndarray | None, kind: ValueType
) -> np.ndarray:
    size, negative = _magnitudes(numbers)
    if digits is not None:
        powers = np.clip(-digits, 0, 19).astype(np.uint64)
        unit = np.uint64(10) ** powers
        rest = size % unit
        up = rest >= unit - rest
        size = size - rest
        up &= unit > 1
        with np.errstate(over="ignore"):
            raised = size + unit
        refuse(up & (raised < size), _OVERFLOW.format(kind.scalar))
        size = np.where(-digits > 19, np.uint64(0), np.where(up, raised, size))
    return _signed(size, negative, kind)


def _sign(arrays: Sequence[pa.Array], kind: ValueType) -> pa.Array:
    known = known_rows(arrays)
    numbers = _filled(arrays[0], known)
    signs = (numbers > 0).astype(np.int64) - (numbers < 0)
    return _answer(signs, known, kind)


Kernel = Callable[[Sequence[Any], ValueType], pa.Array]

ARITHMETIC: dict[str, Kernel] = {
    "add": _by_class(_by_halves(pc.add_checked, np.add), float_kernel(np.add, arrow=pc.add)),
    "subtract": _by_class(
        _by_halves(pc.subtract_checked, np.subtract), float_kernel(np.subtract, arrow=pc.subtract)
    ),
    "multiply": _by_class(_multiplied, float_kernel(np.multiply, arrow=pc.multiply)),
    "divide": float_kernel(np.divide, nonzero=True, arrow=pc.divide),
    "div": _divided,
    "remainder": _by_class(_remainder, float_kernel(np.fmod, nonzero=True)),
    "negate": _by_class(_opposite, float_kernel(np.negative)),
    "abs": _by_class(_absolute, float_kernel(np.abs)),
    "floor": _by_class(_same, float_kernel(np.floor)),
    "ceil": _by_class(_same, float_kernel(np.ceil)),
    "round": _rounded,
    "sign": _sign,
    "sqrt": float_kernel(
        np.sqrt, domain=lambda x: ~(x < 0), reason="the root of a negative number"
    ),
    "exp": float_kernel(np.exp),
    "ln": float_kernel(
        np.log, domain=lambda x: ~(x <= 0), reason="the logarithm of a number that is not positive"
    ),
    "power": float_kernel(
        np.power,
        domain=lambda x, y: ~(((x < 0) & (y != np.floor(y))) | ((x == 0) & (y < 0))),
        reason="the power is no real number",
    ),
}

OF_CONSTANTS = frozenset({"add", "subtract", "multiply", "divide", "remainder"})
"""Kernels that take a constant as it is, one value for all rows."""
