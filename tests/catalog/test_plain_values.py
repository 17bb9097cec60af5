"""Values of numpy and pandas as plain ones."""

from datetime import date

import numpy as np
import pandas as pd
import pytest

from omnigraph.catalog.plain_values import plain, plain_item


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (np.int64(3), 3),
        (np.float32(0.5), 0.5),
        (np.array([1, 2]), [1, 2]),
        (np.datetime64("2020-01-01"), date(2020, 1, 1)),
        (np.datetime64("NaT"), None),
        (pd.NA, None),
        (pd.NaT, None),
        ("text", "text"),
    ],
    ids=repr,
)
def test_a_value_of_numpy_or_pandas_is_a_plain_one(value: object, expected: object) -> None:
    assert plain_item(value) == expected


@pytest.mark.parametrize(
    "value",
    [np.dtype("int64"), np.random.default_rng(1), np.finfo(float)],
    ids=lambda value: type(value).__name__,
)
def test_what_is_no_value_of_numpy_is_left_to_its_reader(value: object) -> None:
    assert plain_item(value) is value
    assert plain(value) is value
