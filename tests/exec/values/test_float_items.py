"""Floats that are read at once are those that are read one by one."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from omnigraph.catalog.plain_values import plain, plain_item
from omnigraph.exec.values import from_input
from omnigraph.exec.values.float_items import floats_at_once
from omnigraph.exec.values.from_input import Unfit, stored
from omnigraph.types import Scalar, ValueType

TYPES = (
    ValueType(Scalar.VECTOR, dimension=20),
    ValueType(Scalar.F32, is_list=True),
    ValueType(Scalar.F64, is_list=True),
)
BOUNDS = (
    0.0,
    -0.0,
    0.1,
    3.4028235e38,
    3.4028235677973366e38,
    -1e39,
    1e308,
    1e-46,
    1e-320,
    16777217.0,
)
ODD = (
    math.nan,
    math.inf,
    -math.inf,
    1,
    2**53 + 1,
    16777217,
    -(2**24),
    2**2000,
    True,
    None,
    "1",
    [1.0],
    np.float32(0.1),
)
FLOATS = st.floats(allow_nan=False, allow_infinity=False) | st.sampled_from(BOUNDS)


@st.composite
def numbers(draw: Any) -> list[Any]:
    """Floats, mostly as many as the vector has; now and then one that is none or does not fit."""
    size = draw(st.sampled_from([20, 20, 20, 3, 19, 21]))
    items: list[Any] = draw(st.lists(st.floats(width=32) | FLOATS, min_size=size, max_size=size))
    if draw(st.booleans()):
        items[draw(st.integers(0, size - 1))] = draw(st.sampled_from(ODD))
    return items


def said(items: list[Any], value_type: ValueType) -> str:
    try:
        return repr(stored(items, value_type))  # as a text: -0.0 equals 0.0
    except Unfit as unfit:
        return f"{unfit.rule}: {unfit.text}"


@given(items=numbers(), value_type=st.sampled_from(TYPES))
@example(items=[0.5] * 20, value_type=TYPES[0])
@example(items=[0.5] * 19, value_type=TYPES[0])
@example(items=[-0.0] * 20, value_type=TYPES[0])
@example(items=[1e39] * 20, value_type=TYPES[0])
def test_floats_at_once_are_floats_one_by_one(items: list[Any], value_type: ValueType) -> None:
    together = said(items, value_type)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(from_input, "floats_at_once", lambda *_: None)
        assert together == said(items, value_type)


def test_a_long_list_of_floats_is_read_at_once() -> None:
    """Without this the comparison above could compare the reference with itself."""
    assert floats_at_once([0.1] * 20, Scalar.F32) == [float(np.float32(0.1))] * 20
    assert floats_at_once((0.1,) * 20, Scalar.F64) == [0.1] * 20
    assert floats_at_once([0.1] * 19 + [2], Scalar.F64) == [0.1] * 19 + [2.0]
    assert floats_at_once([0.1] * 19 + [2**24 + 1], Scalar.F32) is None
    assert floats_at_once([0.1] * 19 + [1e39], Scalar.F32) is None


@given(items=numbers())
def test_plain_lists_are_plain_item_by_item(items: list[Any]) -> None:
    for given_items in (items, tuple(items)):
        assert repr(plain(given_items)) == repr([plain_item(item) for item in items])


@pytest.mark.parametrize(
    "kind", ["float32", "float64", "longdouble", "float16", "int64", "bool", "U", "M8[s]"]
)
def test_an_array_is_plain_as_its_items_are(kind: str) -> None:
    array = np.array([0, 1, 2]).astype(kind)
    items = plain(array)
    assert repr(items) == repr([plain_item(item) for item in array])
    assert not any(type(item).__module__ == "numpy" for item in items)
