"""Exact number conversion: an int or float as an integer or float of one scalar type.

Invariant: pure. An integer keeps its value or the answer is None, and a float is only ever rounded
to the width it is stored in: no conversion truncates or wraps around.
"""

import math
import struct

from omnigraph.types import INTEGER_BOUNDS, Scalar


def as_integer(value: int | float, scalar: Scalar) -> int | None:
    """The same number as an integer of the type; None for a fraction, NaN or one out of bounds."""
    if isinstance(value, float) and not value.is_integer():
        return None
    low, high = INTEGER_BOUNDS[scalar]
    return int(value) if low <= value <= high else None


def as_float(value: int | float, scalar: Scalar) -> float | None:
    """The number as a float of the type's width; None for an integer that would change, and for a
    float beyond the type's range."""
    number = at_width(value, scalar)
    if isinstance(value, int):
        return number if number == value else None
    return None if math.isinf(number) and not math.isinf(value) else number


def at_width(value: int | float, scalar: Scalar) -> float:
    """The nearest float of the type's width; infinite beyond its range."""
    try:
        number = float(value)
        if scalar is Scalar.F32:
            number = struct.unpack("<f", struct.pack("<f", number))[0]
    except OverflowError:
        return math.inf if value > 0 else -math.inf
    return number
