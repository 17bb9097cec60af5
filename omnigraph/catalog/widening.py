"""Type widening: the smallest value type that holds the values of two, where there is one.

Invariant: every value of either type is a value of the wider one, exactly. So a cast to it neither
rounds nor fails, and a schema change that only widens breaks no row.
"""

from omnigraph.types import Scalar, ValueType

_WIDER = {Scalar.I32: Scalar.I64, Scalar.U32: Scalar.U64, Scalar.F32: Scalar.F64}


def widened_type(one: ValueType, other: ValueType) -> ValueType | None:
    """The type that holds the values of both, or None: I32 and I64, F32 and F64, U32 and U64, a
    type and its nullable form, two enums."""
    if (one.is_list, one.dimension) != (other.is_list, other.dimension):
        return None
    scalar = _wider_scalar(one.scalar, other.scalar)
    if scalar is None or (one.enum_values is None) != (other.enum_values is None):
        return None
    values = None
    if one.enum_values is not None and other.enum_values is not None:
        values = tuple(sorted({*one.enum_values, *other.enum_values}))
    return ValueType(scalar, one.nullable or other.nullable, one.is_list, values, one.dimension)


def _wider_scalar(one: Scalar, other: Scalar) -> Scalar | None:
    if one is other or _WIDER.get(one) is other:
        return other
    return one if _WIDER.get(other) is one else None
