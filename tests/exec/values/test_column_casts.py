"""Columns cast at once mean what their values mean one by one, for every type and spelling."""

import math
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omnigraph.catalog.arrow import arrow_type
from omnigraph.exec.values import from_columns
from omnigraph.exec.values.from_columns import Converted, converted
from omnigraph.types import Scalar, ValueType

_SINGLE = [ValueType(scalar) for scalar in Scalar if scalar is not Scalar.VECTOR]
_LISTS = [
    ValueType(scalar, is_list=True)
    for scalar in Scalar
    if scalar not in (Scalar.VECTOR, Scalar.BLOB)
]
_VECTOR = ValueType(Scalar.VECTOR, dimension=2)
TYPES = [*_SINGLE, *_LISTS, _VECTOR]

_NUMBERS = st.one_of(
    st.integers(-3, 3),
    st.sampled_from([2**24 + 1, 2**31 - 1, 2**31, -(2**31), 2**53, 2**53 + 1, 2**63 - 1]),
)
_FLOATS = st.one_of(
    st.sampled_from([0.0, -0.0, 1.0, 0.1, 1e39, 3.4028235e38, math.inf, math.nan, 2.0**53, 5e-324]),
    st.floats(width=32),
)
_DAYS = st.one_of(st.dates(), st.sampled_from([date(1, 1, 1), date(9999, 12, 31)]))
_MOMENTS = st.datetimes().map(lambda moment: moment.replace(microsecond=0))
_TEXTS = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=4),
    st.dates().map(str),
    st.datetimes().map(str),
    st.sampled_from(
        [
            *("007", "-0", "+1", "0x1F", "1.", ".5", "1e2", "inf", "NaN", " 1", "1_0", "2.50"),
            *("true", "FALSE", "null", "9007199254740993", "16777217", "1e400", "3"),
            *("2024-02-30", "0000-01-01", "2024-01-31T10:00:00Z", "2024-01-31T10:00", "19000"),
            *("2024-01-31T10:00:00.123000Z", "2024-01-31T10:00:00.1230000000Z", "1:22.1230"),
            *("2024-01-31T10:00:00.1239Z", "2024-01-31 10:00:00+02:00", "2024-01-31T10:00:60Z"),
            *("0001-01-01T00:00:00+02:00", "2024-01-31T24:00:00Z", "2024-01-31T10:00:00+24:00"),
            *("2024-01-31T10:00:00-00:00", "99999999999999999", "2932897", "2024-01-31T10:00z"),
            *("[1, 2]", "[1.5,2]", "[ 1 , 2 ]", "[]", "[1", "[1]}", '["a", "b"]', "[1, null]"),
            *('["a\\n", ""]', '["\\ud800"]', '["2020-01-01", "2020-01-02"]', "[01, 2]", "[true]"),
            *('["a"]\n{"v":["b"]', '["a]', "[1e400, 0]", "[16777217, 0]", "[-0.0, 0.1]", "[3, 4]"),
            *("base64:", "base64:aGk=", "base64:aGk", "elsewhere", "[9007199254740993]"),
        ]
    ),
)


def _arrays(item: st.SearchStrategy[Any], kind: pa.DataType) -> st.SearchStrategy[pa.Array]:
    cells = st.lists(st.one_of(st.none(), item, item, item), max_size=5)
    return cells.map(lambda values: pa.array(values, kind, from_pandas=False))


def _lists(item: st.SearchStrategy[Any], kind: pa.DataType) -> st.SearchStrategy[pa.Array]:
    some = st.lists(item, max_size=3) | st.lists(item, min_size=2, max_size=2)
    return _arrays(some, kind)


_INT64 = st.integers(-(2**63), 2**63 - 1) | _NUMBERS
TYPED = st.one_of(
    _arrays(_INT64, pa.int64()),
    _arrays(st.integers(0, 2**64 - 1) | st.just(5), pa.uint64()),
    _arrays(st.integers(-128, 127), pa.int8()),
    _arrays(_FLOATS, pa.float64()),
    _arrays(st.floats(width=32) | st.sampled_from([0.0, -0.0, 1.0]), pa.float32()),
    _arrays(st.booleans(), pa.bool_()),
    _arrays(_TEXTS, pa.utf8()),
    _arrays(_TEXTS, pa.large_utf8()),
    _arrays(_TEXTS, pa.string_view()),
    _arrays(_TEXTS, pa.utf8()).map(lambda texts: texts.dictionary_encode()),
    _arrays(_DAYS, pa.date32()),
    _arrays(_DAYS, pa.date64()),
    _arrays(st.integers(-(2**31), 2**31 - 1), pa.int32()).map(lambda days: days.view(pa.date32())),
    _arrays(_MOMENTS, pa.timestamp("s")),
    _arrays(_MOMENTS, pa.timestamp("ms", "UTC")),
    _arrays(st.datetimes(), pa.timestamp("us", "Europe/Berlin")),
    _arrays(st.datetimes(datetime(1700, 1, 1), datetime(2200, 1, 1)), pa.timestamp("ns")),
    _arrays(_INT64, pa.int64()).map(lambda numbers: numbers.view(pa.timestamp("ms", "UTC"))),
    _arrays(st.decimals(-(10**6), 10**6, places=2), pa.decimal128(20, 2)),
    _arrays(st.decimals(-(10**17), 10**17, places=0), pa.decimal128(38, 0)),
    _arrays(st.sampled_from([Decimal("0.1"), Decimal(1), Decimal(3)]), pa.decimal256(40, 3)),
    _arrays(st.binary(max_size=3), pa.binary()),
    _arrays(st.binary(max_size=3), pa.large_binary()),
    _arrays(st.binary(max_size=3), pa.binary_view()),
    _arrays(st.binary(min_size=2, max_size=2), pa.binary(2)),
    _lists(_FLOATS, pa.list_(pa.float64())),
    _lists(st.floats(width=32) | st.none(), pa.large_list(pa.float32())),
    _arrays(st.lists(_FLOATS, min_size=2, max_size=2), pa.list_(pa.float64(), 2)),
    _arrays(st.lists(_FLOATS, min_size=3, max_size=3), pa.list_(pa.float64(), 3)),
    _lists(_NUMBERS | st.none(), pa.list_(pa.int64())),
    _lists(_TEXTS, pa.list_(pa.utf8())),
    _lists(_TEXTS, pa.large_list(pa.string_view())),
    _lists(st.booleans(), pa.list_(pa.bool_())),
    _lists(_DAYS, pa.list_(pa.date32())),
    _lists(st.datetimes(), pa.list_(pa.timestamp("us"))),
    _lists(st.binary(max_size=2), pa.list_(pa.binary())),
    _lists(st.lists(_NUMBERS, max_size=2), pa.list_(pa.list_(pa.int64()))),
    st.integers(0, 3).map(pa.nulls),
)


def _answer(done: Converted) -> Any:
    # As texts: -0.0 equals 0.0, and NaN nothing.
    bad = [(cell.row, repr(cell.value), cell.unfit.rule, cell.unfit.text) for cell in done.bad]
    return repr(done.cells.to_pylist()), str(done.cells.type), bad, done.rounded


def read_alike(values: pa.Array, value_type: ValueType, *, is_text: bool) -> None:
    at_once = converted(values, value_type, is_text=is_text)
    at_once.cells.validate(full=True)
    assert at_once.cells.type == arrow_type(value_type)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(from_columns, "_cast", lambda *_: None)
        alone = converted(values, value_type, is_text=is_text)
    assert _answer(at_once) == _answer(alone)
    sliced = converted(values[1:], value_type, is_text=is_text)
    assert sliced.cells.equals(at_once.cells[1:]) or math.nan in _flat(values.to_pylist())


def _flat(values: list[Any]) -> list[Any]:
    return [each for value in values for each in (value if isinstance(value, list) else [value])]


def _every_type(values: pa.Array, *, is_text: bool) -> None:
    for value_type in TYPES:
        read_alike(values, value_type, is_text=is_text)


@settings(max_examples=60, deadline=None)
@given(values=TYPED)
def test_columns_are_cast_as_their_values_are(values: pa.Array) -> None:
    _every_type(values, is_text=False)


@settings(max_examples=50, deadline=None)
@given(values=_arrays(_TEXTS, pa.utf8()))
def test_columns_of_text_are_cast_as_their_values_are(values: pa.Array) -> None:
    _every_type(values, is_text=True)


@pytest.mark.slow
@settings(max_examples=3_000, deadline=None)
@given(values=TYPED, texts=_arrays(_TEXTS, pa.utf8()))
def test_many_columns_are_cast_as_their_values_are(values: pa.Array, texts: pa.Array) -> None:
    _every_type(values, is_text=False)
    _every_type(texts, is_text=True)


_MOMENT = datetime(2024, 1, 31, 10, tzinfo=UTC)


@pytest.mark.parametrize(
    ("values", "value_type", "is_text"),
    [
        (pa.array([[1.0, 2.0], None], pa.list_(pa.float32(), 2)), _VECTOR, False),
        (pa.array([[1, 2], None], pa.large_list(pa.int16())), _VECTOR, False),
        (pa.array([[0.5, 2.0]], pa.list_(pa.float64())), _VECTOR, False),
        (pa.array(["[0.5, 2]", None, "[3,4]"]), _VECTOR, True),
        (pa.array(['["a", "b"]', "[]"]), ValueType(Scalar.STRING, is_list=True), True),
        (pa.array([["a"]]), ValueType(Scalar.STRING, is_list=True), False),
        (pa.array([[date(2020, 1, 1)]]), ValueType(Scalar.DATE, is_list=True), False),
        (pa.array([["2020-01-01"]]), ValueType(Scalar.DATE, is_list=True), False),
        (pa.array(["2020-01-01"]), ValueType(Scalar.DATE), False),
        (pa.array(["19000", "-3"]), ValueType(Scalar.DATE), True),
        (pa.array([19000]), ValueType(Scalar.DATE), False),
        (pa.array([date(2020, 1, 1)]), ValueType(Scalar.DATETIME), False),
        (pa.array(["2024-01-31T10:00:00+02:00"]), ValueType(Scalar.DATETIME), True),
        (pa.array(["2024-01-31 10:00:00.123"]), ValueType(Scalar.DATETIME), True),
        (pa.array(["2024-01-31T10:00:00.123000Z"]), ValueType(Scalar.DATETIME), False),
        (pa.array([_MOMENT], pa.timestamp("ns", "UTC")), ValueType(Scalar.DATETIME), False),
        (pa.array([b"hi", None]), ValueType(Scalar.BLOB), False),
        (pa.array(["base64:aGk="]), ValueType(Scalar.BLOB), True),
        (pa.array(["true", "False", None]), ValueType(Scalar.BOOL), True),
        (pa.array(["12", "-3"]), ValueType(Scalar.I32), True),
        (pa.array(["0.5", "3", "-1e-3"]), ValueType(Scalar.F64), True),
        (pa.array([Decimal("1.25")], pa.decimal128(9, 2)), ValueType(Scalar.F64), False),
        (pa.array([Decimal("7.00")], pa.decimal128(9, 2)), ValueType(Scalar.I32), False),
        (pa.array(["a"]).dictionary_encode(), ValueType(Scalar.STRING), False),
    ],
)
def test_common_columns_are_cast_at_once(
    values: pa.Array, value_type: ValueType, is_text: bool
) -> None:
    """Without this the comparisons above could compare the reference with itself."""
    assert from_columns._cast(values, value_type, is_text) is not None


def test_a_strange_value_is_read_one_by_one_with_its_neighbours_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read: list[int] = []
    one_by_one = from_columns._one_by_one

    def counted(values: pa.Array, *rest: Any) -> Converted:
        read.append(len(values))
        return one_by_one(values, *rest)

    monkeypatch.setattr(from_columns, "_one_by_one", counted)
    texts = ["2024-01-31"] * 10_000
    texts[5_000] = "nope"
    done = converted(pa.array(texts), ValueType(Scalar.DATE))
    assert [(cell.row, cell.value) for cell in done.bad] == [(5_000, "nope")]
    assert done.cells.null_count == 1
    assert sum(read) < 2_000
