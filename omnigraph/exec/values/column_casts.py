"""Fast path of: values/from_columns.py. Whole Arrow columns cast to the type of a property.

Reference: `stored` of values/from_input.py, asked for each value by values/from_columns.py.
Held equal by: tests/exec/values/test_column_casts.py, test_columns_are_cast_as_their_values_are.
Falls back: `NotSure` or an error of Arrow; `converted` then reads these values one by one.

Invariant: `cast_column` gives for every value what the reference gives, or raises. It covers
vectors, lists, dates, moments, enums, decimals and bytes, from typed columns, from columns of JSON
and from columns of text (CSV).
"""

import base64
import binascii
from enum import StrEnum
from typing import assert_never

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.catalog.arrow import arrow_type
from omnigraph.costs import COSTS
from omnigraph.exec.values.arrow_json import NotSure, json_type, parse_lines
from omnigraph.exec.values.scalars import BLOB_PREFIX
from omnigraph.language.moments import DAYS, MILLISECONDS
from omnigraph.types import FLOATS, INTEGERS, Scalar, ValueType

_INTEGERS_EXACT_BELOW = float(2**53)
"""A double of this size or more may have been another integer in its text."""

_POWERS_EXACT = 22
"""Ten to this power is the last one that a double holds exactly."""

_DATE_TEXT = r"^\d{4}-\d{2}-\d{2}$"
_ZONE = r"(Z|[+-]([01]\d|2[0-3]):[0-5]\d)"
_PLAIN_MOMENT = r"^\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}(:\d{2}(\.\d{1,3})?)?"
_FINER_ZEROS = r"(:\d{2}\.\d{3})0{1,6}(\D|$)"
_INTEGER_TEXT = r"^-?[0-9]{1,18}$"
_NUMBER = r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?"
_TEXT_ITEM = r'"([^"\\\x00-\x1f]|\\.)*"'


class Spelling(StrEnum):
    """How the cells of a column spell their values."""

    TYPED = "typed"
    """By an Arrow type of their own."""

    JSON = "json"
    """As Arrow's JSON reader read them: a double may have been an integer."""

    TEXT = "text"
    """As text: numbers, truth values and lists are JSON inside it."""


def cast_column(values: pa.Array, value_type: ValueType, spelling: Spelling) -> pa.Array:
    """The column as the property stores it; `NotSure` or an Arrow error where a value may not fit
    or may be read otherwise one by one."""
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    if pa.types.is_null(values.type):
        return pa.nulls(len(values), arrow_type(value_type))
    if value_type.is_vector or value_type.is_list:
        return _lists(values, value_type, spelling)
    match value_type.scalar:
        case Scalar.STRING:
            return values.cast(pa.utf8()) if is_string(values.type) else _unsure()
        case Scalar.BLOB:
            return _blobs(values)
        case Scalar.BOOL:
            return _truths(values, spelling)
        case Scalar.I32 | Scalar.I64 | Scalar.U32 | Scalar.U64:
            return _integers(values, arrow_type(value_type), spelling)
        case Scalar.F32 | Scalar.F64 | Scalar.VECTOR:
            return _floats(values, arrow_type(value_type), spelling)
        case Scalar.DATE:
            return _dates(values, spelling)
        case Scalar.DATETIME:
            return _moments(values, spelling)
        case _:
            assert_never(value_type.scalar)


def is_string(kind: pa.DataType) -> bool:
    """Whether Arrow values of the type are texts."""
    return bool(
        pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
    )


def _unsure() -> pa.Array:
    raise NotSure


def _all(mask: pa.BooleanArray) -> bool:
    """Whether a mask holds wherever it is not null."""
    return pc.all(mask).as_py() in (True, None)


def _all_match(texts: pa.Array, pattern: str) -> bool:
    return _all(pc.match_substring_regex(texts, pattern=pattern))


# Numbers and truth values


def _truths(values: pa.Array, spelling: Spelling) -> pa.Array:
    if pa.types.is_boolean(values.type):
        return values
    if spelling is Spelling.TEXT and is_string(values.type):
        lowered = pc.ascii_lower(values)
        is_true = pc.equal(lowered, "true")
        if _all(pc.or_(is_true, pc.equal(lowered, "false"))):
            return is_true
    raise NotSure


def _integers(values: pa.Array, target: pa.DataType, spelling: Spelling) -> pa.Array:
    kind = values.type
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return values.cast(target)  # fails for fractions and beyond the bounds
    if spelling is Spelling.TEXT and is_string(kind):
        numbers = values.cast(pa.utf8()).cast(target)
        # Arrow also reads 007, 0x1F and +1, which JSON does not.
        if _all(pc.equal(numbers.cast(pa.utf8()), values.cast(pa.utf8()))):
            return numbers
    raise NotSure


def _floats(values: pa.Array, target: pa.DataType, spelling: Spelling) -> pa.Array:
    kind = values.type
    if pa.types.is_decimal(kind):
        return floats(_doubles_of_decimals(values), target, are_floats=False)
    if pa.types.is_floating(kind) and spelling is Spelling.TYPED and kind == target:
        return _finite(values)
    if pa.types.is_floating(kind) or pa.types.is_integer(kind):
        numbers = values.cast(pa.float64())  # fails for integers beyond 2**53
        are_floats = pa.types.is_floating(kind) and spelling is Spelling.TYPED
        return floats(numbers, target, are_floats=are_floats)
    if spelling is Spelling.TEXT and is_string(kind) and _all_match(values, f"^{_NUMBER}$"):
        return floats(values.cast(pa.utf8()).cast(pa.float64()), target, are_floats=False)
    raise NotSure


def floats(values: pa.Array, target: pa.DataType, *, are_floats: bool) -> pa.Array:
    """Doubles at a column's width: finite ones, with one zero. Where they may have been integers,
    those that the column cannot hold exactly are left to the reader of single values."""
    numbers = values.cast(target, safe=False)
    if not are_floats and not _are_exact(values, numbers):
        raise NotSure
    return _finite(numbers)


def _finite(numbers: pa.Array) -> pa.Array:
    if not _all(pc.is_finite(numbers)):
        raise NotSure
    if not _has_negative_zero(numbers):
        return numbers
    return pc.add(numbers, pa.scalar(0, numbers.type))  # one zero


def _has_negative_zero(numbers: pa.Array) -> bool:
    """Whether a zero has a sign, also in a null's place."""
    if not len(numbers):
        return False
    width = numbers.type.bit_width // 8
    bits = np.frombuffer(numbers.buffers()[1], f"u{width}", len(numbers), numbers.offset * width)
    return bool((bits == 1 << 8 * width - 1).any())


def _are_exact(values: pa.Array, numbers: pa.Array) -> bool:
    return all(
        _all(
            _exact(
                values.slice(first, COSTS.doubles_together),
                numbers.slice(first, COSTS.doubles_together),
            )
        )
        for first in range(0, len(values), COSTS.doubles_together)
    )


def _exact(values: pa.Array, numbers: pa.Array) -> pa.BooleanArray:
    """Where a double is a fraction, or an integer that was not rounded on the way."""
    is_fraction = pc.not_equal(values, pc.trunc(values))
    if _all(is_fraction):
        return is_fraction
    is_safe = pc.less(pc.abs(values), _INTEGERS_EXACT_BELOW)
    is_kept = pc.equal(numbers.cast(pa.float64()), values)
    return pc.or_(is_fraction, pc.and_(is_safe, is_kept))


def _doubles_of_decimals(values: pa.Array) -> pa.Array:
    """The nearest doubles: digits and power of ten are both exact, so their quotient is rounded
    once."""
    kind = values.type
    if not pa.types.is_decimal128(kind) or not 0 <= kind.scale <= _POWERS_EXACT:
        raise NotSure
    # The digits without their point, which fit a double or raise.
    digits = values.view(pa.decimal128(kind.precision, 0)).cast(pa.int64()).cast(pa.float64())
    return pc.divide(digits, pa.scalar(10.0**kind.scale))


# Dates and moments


def _dates(values: pa.Array, spelling: Spelling) -> pa.Array:
    kind = values.type
    if pa.types.is_date(kind):
        return _inside(values.cast(pa.date32()), pa.int32(), DAYS)
    if pa.types.is_timestamp(kind) and kind.tz is None and spelling is Spelling.TYPED:
        days = values.cast(pa.date32())
        if not pc.all(pc.equal(days.cast(kind), values), min_count=0).as_py():
            raise NotSure  # a time of day is not a part of a date
        return _inside(days, pa.int32(), DAYS)
    if pa.types.is_integer(kind):
        return _inside(values.cast(pa.int32()).cast(pa.date32()), pa.int32(), DAYS)
    if not is_string(kind):
        raise NotSure
    texts = values.cast(pa.utf8())
    if _all_match(texts, _DATE_TEXT) and _is_after_year_0(texts):
        return texts.cast(pa.date32())
    return _dates(_counted(texts, spelling), spelling)


def _moments(values: pa.Array, spelling: Spelling) -> pa.Array:
    kind, target = values.type, arrow_type(ValueType(Scalar.DATETIME))
    if pa.types.is_timestamp(kind):
        # A safe cast, which fails for parts of a millisecond. Without a zone it is UTC.
        whole = values.cast(pa.timestamp("ms", kind.tz))
        return _inside(whole, pa.int64(), MILLISECONDS).cast(target)
    if pa.types.is_date(kind):
        days = _inside(values.cast(pa.date32()), pa.int32(), DAYS)
        return days.cast(pa.timestamp("ms")).cast(target)
    if pa.types.is_integer(kind):
        return _inside(values.cast(pa.int64()), pa.int64(), MILLISECONDS).cast(target)
    if not is_string(kind):
        raise NotSure
    texts = values.cast(pa.utf8())
    if pc.any(pc.match_substring_regex(texts, pattern=_FINER_ZEROS)).as_py():
        texts = pc.replace_substring_regex(texts, pattern=_FINER_ZEROS, replacement=r"\1\2")
    if _all_match(texts, f"{_PLAIN_MOMENT}{_ZONE}$") and _is_after_year_0(texts):
        return _inside(texts.cast(target), pa.int64(), MILLISECONDS)
    if _all_match(texts, f"{_PLAIN_MOMENT}$") and _is_after_year_0(texts):
        return texts.cast(pa.timestamp("ms")).cast(target)
    return _moments(_counted(texts, spelling), spelling)


def _is_after_year_0(texts: pa.Array) -> bool:
    return not pc.any(pc.starts_with(texts, pattern="0000")).as_py()


def _counted(texts: pa.Array, spelling: Spelling) -> pa.Array:
    """Days or milliseconds that a format without types spells as text."""
    if spelling is not Spelling.TEXT or not _all_match(texts, _INTEGER_TEXT):
        raise NotSure
    return texts.cast(pa.int64())


def _inside(values: pa.Array, number: pa.DataType, bounds: tuple[int, int]) -> pa.Array:
    numbers = values.view(number)
    least, most = pc.min_max(numbers).values()
    if least.is_valid and not bounds[0] <= least.as_py() <= most.as_py() <= bounds[1]:
        raise NotSure
    return values


# Bytes


def _blobs(values: pa.Array) -> pa.Array:
    kind = values.type
    if is_string(kind):
        cells = pa.array([_bytes_of(text) for text in values.to_pylist()], pa.large_binary())
    elif pa.types.is_fixed_size_binary(kind):
        cells = values.cast(pa.binary()).cast(pa.large_binary())
    elif (
        pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind)
    ):
        cells = values.cast(pa.large_binary())
    else:
        raise NotSure
    layout = arrow_type(ValueType(Scalar.BLOB))
    absent = (pa.nulls(len(cells), field.type) for field in list(layout)[1:])
    return pa.StructArray.from_arrays(
        [cells, *absent], fields=list(layout), mask=cells.is_null() if cells.null_count else None
    )


def _bytes_of(text: str | None) -> bytes | None:
    if text is None:
        return None
    if not text.startswith(BLOB_PREFIX):
        raise NotSure
    try:
        return base64.b64decode(text[len(BLOB_PREFIX) :], validate=True)
    except (binascii.Error, ValueError) as cause:
        raise NotSure from cause


# Lists and vectors


def _lists(values: pa.Array, value_type: ValueType, spelling: Spelling) -> pa.Array:
    if spelling is Spelling.TEXT and is_string(values.type):
        return _lists(_parsed(values.cast(pa.utf8()), value_type), value_type, Spelling.JSON)
    if not _is_list(values.type):
        raise NotSure
    items = values.flatten()
    if items.null_count or value_type.is_blob:
        raise NotSure
    is_json = spelling is not Spelling.TYPED
    if is_json and value_type.scalar in INTEGERS and not pa.types.is_integer(items.type):
        raise NotSure  # in JSON a whole float is no integer
    item = Scalar.F32 if value_type.is_vector else value_type.scalar
    cells = cast_column(items, ValueType(item), spelling)
    lengths = pc.list_value_length(values)
    if value_type.is_vector:
        return _vectors(cells, lengths, value_type)
    counts = pc.fill_null(lengths, 0).to_numpy(zero_copy_only=False)
    offsets = np.concatenate([[0], np.cumsum(counts)])
    if offsets[-1] >= 1 << 31:
        raise NotSure
    return pa.ListArray.from_arrays(
        pa.array(offsets.astype(np.int32)),
        cells,
        type=arrow_type(value_type),
        mask=values.is_null() if values.null_count else None,
    )


def _vectors(numbers: pa.Array, lengths: pa.Array, value_type: ValueType) -> pa.Array:
    """Vectors of numbers that lie one behind the other, none where a length is null."""
    target, dimension = arrow_type(value_type), value_type.dimension or 0
    if not _all(pc.equal(lengths, dimension)):
        raise NotSure
    if not lengths.null_count:
        return pa.FixedSizeListArray.from_arrays(numbers, type=target)
    whole = np.zeros((len(lengths), dimension), np.float32)
    whole[lengths.is_valid().to_numpy(zero_copy_only=False)] = numbers.to_numpy().reshape(
        -1, dimension
    )
    cells = pa.array(whole.reshape(-1))
    return pa.FixedSizeListArray.from_arrays(cells, type=target, mask=lengths.is_null())


def _is_list(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    )


def _parsed(texts: pa.Array, value_type: ValueType) -> pa.Array:
    """Texts of JSON arrays as lists. The shape is compared first, so a text is one value and no
    piece of two."""
    scalar = value_type.scalar
    is_number = scalar in INTEGERS or scalar in FLOATS or value_type.is_vector
    item = _NUMBER if is_number else _TEXT_ITEM
    if scalar is Scalar.BOOL or not _all_match(texts, rf"^\[ *({item}( *, *{item})*)? *\]$"):
        raise NotSure
    given = texts.drop_null()
    if not len(given):
        return pa.nulls(len(texts), pa.list_(pa.null()))
    rows = pc.binary_join_element_wise('{"v":', given, "}\n", "")
    kind = json_type(value_type, None)
    ends = np.frombuffer(rows.buffers()[1], np.int32)
    data = rows.buffers()[2].slice(0, int(ends[len(rows)]))
    lists = parse_lines(pa.schema([("v", kind)]), data)["v"].combine_chunks()
    if len(lists) != len(given):
        raise NotSure
    if not texts.null_count:
        return lists
    positions = np.cumsum(texts.is_valid().to_numpy(zero_copy_only=False)) - 1
    return lists.take(pa.array(positions, mask=texts.is_null().to_numpy(zero_copy_only=False)))
