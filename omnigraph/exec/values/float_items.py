"""Fast path of: values/from_input.py. Lists and vectors of floats, rounded at once with numpy.

Reference: `from_json` of values/scalars.py, asked for each item by values/from_input.py.
Held equal by: tests/exec/values/test_float_items.py, test_floats_at_once_are_floats_one_by_one.
Falls back: None, for short lists, for items that are neither float nor int, beside integers that a
float may round, and where a number is not finite at the width of the list; the reference then says
which rule it breaks.

Invariant: `floats_at_once` gives the numbers that the reference gives, or None.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from omnigraph.costs import COSTS
from omnigraph.types import Scalar

_WIDTHS = {Scalar.F32: np.float32, Scalar.F64: np.float64}
_INTEGERS_EXACT = {Scalar.F32: 2.0**24, Scalar.F64: 2.0**53}
"""The size up to which every integer is a float of the width."""


def floats_at_once(items: Sequence[Any], scalar: Scalar) -> list[float] | None:
    """The numbers of a list as they are stored; None where they have to be read one by one."""
    width = _WIDTHS.get(scalar)
    if width is None or len(items) < COSTS.float_items_min:
        return None
    kinds = set(map(type, items))
    if not kinds <= {float, int}:
        return None
    try:
        numbers = np.array(items, np.float64)
    except OverflowError:
        return None
    if int in kinds and not (np.abs(numbers) <= _INTEGERS_EXACT[scalar]).all():
        return None  # an integer that the width rounds is refused
    with np.errstate(over="ignore"):
        numbers = numbers.astype(width)
    if not np.isfinite(numbers).all():
        return None
    stored: list[float] = (numbers + 0.0).tolist()  # one zero
    return stored
