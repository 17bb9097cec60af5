"""Kernels of casts, dates and moments over Arrow arrays.

Invariant: moments are UTC; a cast keeps the value, except that fractions are cut where a whole
number is asked for and floats are rounded to their width. A row that has no such value fails.
"""

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.catalog.arrow import arrow_type
from omnigraph.exec.values.arithmetic import Kernel, RowFault, known_rows, refuse, shown
from omnigraph.exec.values.rows import as_numpy
from omnigraph.language.moments import DAYS, MILLISECONDS
from omnigraph.types import INTEGER_BOUNDS, INTEGERS, Scalar, ValueType

_DAY_MS = 86_400_000
_NAIVE = pa.timestamp("ms")
_OUTSIDE = "the result lies outside the years 1 to 9999"
_INTEGER_TEXT = "^[+-]?[0-9]+$"
_FLOAT_TEXT = r"^[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?$"
_DATE_TEXT = "^[0-9]{4}-[0-9]{2}-[0-9]{2}$"


def _naive(moments: pa.Array) -> pa.Array:
    """Moments without their zone, which is UTC: Arrow then needs no database of zones."""
    return moments.view(_NAIVE) if pa.types.is_timestamp(moments.type) else moments


def _numbers(moments: pa.Array) -> np.ndarray:
    """Days or milliseconds, 0 for null."""
    width = pa.int64() if pa.types.is_timestamp(moments.type) else pa.int32()
    numbers = moments.view(width)
    return as_numpy(numbers.fill_null(0)).astype(np.int64)


# ---- parts of moments


def _part(kernel: Callable[[pa.Array], pa.Array]) -> Kernel:
    def part(arrays: Sequence[pa.Array], kind: ValueType) -> pa.Array:
        return kernel(_naive(arrays[0])).cast(pa.int64())

    return part


def _weekday(moments: pa.Array) -> pa.Array:
    return pc.day_of_week(moments, count_from_zero=False, week_start=1)


def _truncate(arrays: Sequence[pa.Array], kind: ValueType) -> pa.Array:
    moments, units = arrays
    if not len(moments):
        return moments
    unit = units[0].as_py()
    if pa.types.is_date(moments.type) and unit in ("hour", "minute", "second", "day"):
        return moments
    floor = pc.floor_temporal(_naive(moments), unit=unit)
    return floor.cast(arrow_type(kind), safe=False)


def _shift(scale: Callable[[pa.DataType], int]) -> Kernel:
    """Moments some days, seconds or milliseconds later."""

    def shift(arrays: Sequence[pa.Array], kind: ValueType) -> pa.Array:
        moments, counts = arrays
        known = known_rows(arrays)
        low, high = DAYS if kind.scalar is Scalar.DATE else MILLISECONDS
        factor = scale(moments.type)
        count = as_numpy(counts.fill_null(0))
        if known is not None:
            count = np.where(known, count, count.dtype.type(0))
        reach = (high - low) // factor + 1
        far = (count > reach) | (count.astype(np.float64) < -reach)
        numbers = _numbers(moments) + np.where(far, 0, count).astype(np.int64) * factor
        if known is not None:
            numbers = np.where(known, numbers, low)
        refuse(far | (numbers < low) | (numbers > high), _OUTSIDE)
        width = np.int32 if kind.scalar is Scalar.DATE else np.int64
        mask = None if known is None else ~known
        return pa.array(numbers.astype(width), mask=mask).view(arrow_type(kind))

    return shift


def _between(arrays: Sequence[pa.Array], kind: ValueType) -> pa.Array:
    known = known_rows(arrays)
    left, right = map(_numbers, arrays)
    return pa.array(left - right, mask=None if known is None else ~known)


# ---- casts


def _first_bad(values: pa.Array, cast: Callable[[pa.Array], pa.Array], reason: str) -> pa.Array:
    """The cast, or a fault at the first row that Arrow refuses, which a binary search finds."""
    try:
        return cast(values)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        low, high = 0, len(values)
        while high - low > 1:
            middle = (low + high) // 2
            try:
                cast(values.slice(low, middle - low))
                low = middle
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
                high = middle
        raise RowFault(low, f"{shown(values[low].as_py())} {reason}") from None


def _require_form(texts: pa.Array, pattern: str, reason: str) -> None:
    fits = pc.match_substring_regex(texts, pattern=pattern)
    bad = as_numpy(pc.invert(fits).fill_null(False))
    if bad.any():
        row = int(np.flatnonzero(bad)[0])
        raise RowFault(row, f"{shown(texts[row].as_py())} {reason}")


def _to_number(arrays: Sequence[pa.Array], kind: ValueType) -> pa.Array:
    (values,) = arrays
    stored, reason = arrow_type(kind), f"is no {kind.scalar}"
    if pa.types.is_string(values.type) or pa.types.is_large_string(values.type):
        whole = kind.scalar in INTEGERS
        _require_form(values, _INTEGER_TEXT if whole else _FLOAT_TEXT, reason)
        if whole:
            values = pc.replace_substring_regex(values, pattern="^\\+", replacement="")
        else:
            values = _first_bad(values, lambda v: v.cast(pa.float64()), reason)
            refuse(np.isinf(as_numpy(values.fill_null(0))), f"a number does not fit {kind.scalar}")
    if pa.types.is_floating(values.type) and kind.scalar in INTEGERS:
        return _cut(values, kind)
    if pa.types.is_floating(stored):
        narrow = values.cast(stored, safe=False)
        before, after = (
            as_numpy(each.fill_null(0)).astype(np.float64) for each in (values, narrow)
        )
        refuse(np.isinf(after) & np.isfinite(before), f"a number does not fit {kind.scalar}")
        return narrow
    return _first_bad(values, lambda v: v.cast(stored), reason)


def exact_number(values: pa.Array, kind: ValueType) -> pa.Array:
    """Numbers as a column of this type holds them. Only a float column may round, a float."""
    stored = arrow_type(kind)
    if kind.scalar in INTEGERS and pa.types.is_floating(values.type):
        numbers = as_numpy(values.fill_null(0)).astype(np.float64)
        refuse(~(numbers == np.trunc(numbers)), f"a number does not fit {kind.scalar}")
        return _cut(values, kind)
    if pa.types.is_floating(stored) and not pa.types.is_floating(values.type):
        narrow = values.cast(stored, safe=False)
        back = narrow.cast(pa.float64()).cast(values.type, safe=False)
        refuse(as_numpy(pc.not_equal(back, values).fill_null(False)), f"does not fit {kind.scalar}")
        return narrow
    return _to_number([values], kind)


def _cut(values: pa.Array, kind: ValueType) -> pa.Array:
    """Floats as whole numbers, towards zero."""
    numbers = np.trunc(as_numpy(values.fill_null(0)).astype(np.float64))
    low, high = INTEGER_BOUNDS[kind.scalar]
    refuse(
        ~((numbers >= low) & (numbers < float(high + 1))), f"a number does not fit {kind.scalar}"
    )
    missing = as_numpy(values.is_null()) if values.null_count else None
    width = arrow_type(kind).to_pandas_dtype()
    return pa.array(numbers.astype(width), mask=missing)


def _to_text(arrays: Sequence[pa.Array], kind: ValueType) -> pa.Array:
    (values,) = arrays
    if pa.types.is_timestamp(values.type):
        return pc.strftime(_naive(values), format="%Y-%m-%dT%H:%M:%SZ")
    return values.cast(pa.string())


def _to_bool(arrays: Sequence[pa.Array], kind: ValueType) -> pa.Array:
    (values,) = arrays
    if pa.types.is_boolean(values.type):
        return values
    _require_form(values, "^(true|false)$", "is neither true nor false")
    return pc.equal(values, "true")


def _to_date(arrays: Sequence[pa.Array], kind: ValueType) -> pa.Array:
    (values,) = arrays
    if pa.types.is_date(values.type):
        return values
    if pa.types.is_timestamp(values.type):
        days = (_numbers(values) // _DAY_MS).astype(np.int32)
        missing = as_numpy(values.is_null()) if values.null_count else None
        return pa.array(days, mask=missing).view(pa.date32())
    _require_form(values, _DATE_TEXT, "is no Date")
    return _first_bad(values, lambda v: v.cast(pa.date32()), "is no Date")


def _to_moment(arrays: Sequence[pa.Array], kind: ValueType) -> pa.Array:
    (values,) = arrays
    stored = arrow_type(kind)
    if pa.types.is_timestamp(values.type):
        return values
    if pa.types.is_date(values.type):
        missing = as_numpy(values.is_null()) if values.null_count else None
        return pa.array(_numbers(values) * _DAY_MS, mask=missing).view(stored)
    return _first_bad(values, lambda v: v.cast(stored), "is no DateTime")


_NUMBERS = (Scalar.I32, Scalar.I64, Scalar.U32, Scalar.U64, Scalar.F32, Scalar.F64)

CASTS: dict[str, Kernel] = {
    **{str(scalar): _to_number for scalar in _NUMBERS},
    str(Scalar.STRING): _to_text,
    str(Scalar.BOOL): _to_bool,
    str(Scalar.DATE): _to_date,
    str(Scalar.DATETIME): _to_moment,
    "date": _to_date,
    "datetime": _to_moment,
    "year": _part(pc.year),
    "month": _part(pc.month),
    "day": _part(pc.day),
    "weekday": _part(_weekday),
    "hour": _part(pc.hour),
    "minute": _part(pc.minute),
    "second": _part(pc.second),
    "truncate": _truncate,
    "add_days": _shift(lambda stored: _DAY_MS if pa.types.is_timestamp(stored) else 1),
    "add_seconds": _shift(lambda _stored: 1000),
    "add_ms": _shift(lambda _stored: 1),
    "date_add": _shift(lambda _stored: 1),
    "days_between": _between,
    "ms_between": _between,
}
