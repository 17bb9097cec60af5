"""JSON and Python values of an input to stored values, and the wording of refusals.

Invariant: `stored` gives a value that the column takes as it is, or raises `Unfit`. It is the
meaning of every input format: a faster way to read one may only be used where it agrees.
"""

from collections.abc import Sequence
from typing import Any, assert_never

import pyarrow as pa

from omnigraph.catalog.arrow import arrow_type
from omnigraph.errors import ExternalBlobDenied, ExternalBlobUnreadable
from omnigraph.exec.values.float_items import floats_at_once
from omnigraph.exec.values.scalars import SCALARS, Misfit, ReadExternal, Reason
from omnigraph.types import FLOATS, INTEGER_BOUNDS, INTEGERS, Scalar, ValueType


class Unfit(ValueError):
    """A value that its property cannot hold. `rule` names the kind of fault."""

    def __init__(self, rule: str, text: str) -> None:
        super().__init__(text)
        self.rule = rule
        self.text = text


def no_external(uri: str) -> bytes:
    """The reader of external addresses where none is allowed."""
    raise ExternalBlobDenied(uri)


def stored(value: Any, value_type: ValueType, read: ReadExternal = no_external) -> Any:
    """The column's value; None stays None. A blob given by its address is copied in by `read`."""
    if value is None:
        return None
    if value_type.is_vector:
        return _vector(value, value_type.dimension or 0)
    if value_type.is_list:
        return _list(value, value_type.scalar, read)
    return _scalar(value, value_type.scalar, read)


def column(values: Sequence[Any], value_type: ValueType) -> pa.Array:
    """Stored values as a column of the type's own Arrow type."""
    target = arrow_type(value_type)
    if value_type.is_blob:
        return pa.array([None if v is None else {"data": v} for v in values], target)
    source = SCALARS[value_type.scalar].built_as
    if source is None:
        return pa.array(values, target)
    if value_type.is_list:
        source = pa.list_(pa.field("item", source, nullable=False))
    return pa.array(values, source).cast(target)


def json_type_name(value: Any) -> str:
    """A value's type in JSON's words."""
    match value:
        case None:
            return "null"
        case bool():
            return "a boolean"
        case int():
            return "an integer"
        case float():
            return "a number"
        case str():
            return "a string"
        case dict():
            return "an object"
        case list() | tuple():
            return "an array"
        case _:
            return f"a {type(value).__name__}"


def _scalar(value: Any, scalar: Scalar, read: ReadExternal) -> Any:
    try:
        return SCALARS[scalar].from_json(value, read)
    except Misfit as cause:
        raise Unfit(str(cause.reason), _refusal(cause, value, scalar)) from None
    except ExternalBlobDenied:
        text = "names an external URI, which no configured base allows; send base64:<data>"
        raise Unfit("blob", text) from None
    except ExternalBlobUnreadable as cause:
        raise Unfit("blob", f"names an external URI that cannot be read: {cause.reason}") from None


def _refusal(cause: Misfit, value: Any, scalar: Scalar) -> str:
    match cause.reason:
        case Reason.TYPE:
            given = value if isinstance(value, float) else json_type_name(value)
            return f"must be {SCALARS[scalar].expected}, not {given}"
        case Reason.TEXT:
            return "holds half of a surrogate pair, which is no character"
        case Reason.RANGE if scalar in INTEGERS:
            low, high = INTEGER_BOUNDS[scalar]
            return f"must lie between {low} and {high} ({scalar})"
        case Reason.RANGE:
            return f"must be a finite number that fits {scalar}"
        case Reason.INEXACT:
            return f"cannot hold {value} exactly: it is {scalar}, which rounds that integer"
        case Reason.DATE:
            return cause.detail
        case Reason.BLOB:
            return f"is not base64 ({cause.detail})"
        case _:
            assert_never(cause.reason)


def _list(value: Any, scalar: Scalar, read: ReadExternal) -> list[Any]:
    if not isinstance(value, list | tuple):
        raise Unfit("type", f"must be an array, not {json_type_name(value)}")
    if (floats := floats_at_once(value, scalar)) is not None:
        return floats
    if any(item is None for item in value):
        # A null among floats may have been NaN: Arrow makes one of the other in columns of pandas.
        null = "a null or NaN" if scalar in FLOATS else "a null"
        raise Unfit("list", f"holds {null}: the items of a list cannot be null")
    return [_scalar(item, scalar, read) for item in value]


def _vector(value: Any, dimension: int) -> list[float]:
    items = _list(value, Scalar.F32, no_external)
    if len(items) != dimension:
        raise Unfit("vector", f"needs {dimension} numbers, not {len(items)}")
    return items
