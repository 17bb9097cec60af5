"""Sets of numbers: the way that is chosen for speed gives what numpy gives."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from omnigraph import number_arrays

NUMBERS = st.lists(st.integers(0, 30), max_size=40)


@settings(deadline=None)  # the first call loads modules of Arrow
@given(numbers=NUMBERS, others=NUMBERS)
def test_numbers_are_among_others_as_numpy_says(numbers: list[int], others: list[int]) -> None:
    for kind in (np.int64, np.uint64):
        these, those = np.array(numbers, kind), np.array(others, np.int64)
        expected = np.isin(these, those.astype(kind))
        assert number_arrays.are_among(these, those).tolist() == expected.tolist()
