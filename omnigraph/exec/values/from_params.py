"""Constants of a mutation to stored values, and the wording of refusals.

Invariant: a value that comes out fits the column's type. A number keeps its mathematical value or
is refused, except that a float column rounds a float to its width; zero has one sign, so equal keys
are equal bytes. Whether the value is allowed is for the rules to say.
"""

from typing import Any

from omnigraph.errors import BadRequest
from omnigraph.exec.values.scalars import SCALARS, Misfit, ReadExternal, Reason
from omnigraph.plan import ir
from omnigraph.types import Scalar, ValueType


def stored(value: ir.Constant, target: ValueType, *, what: str, read: ReadExternal) -> Any:
    """A value of a compatible type as the column of `what` holds it. A Blob that is given by its
    address is copied in by `read`."""
    if value is None:
        return None
    if target.is_vector or target.is_list:
        assert isinstance(value, tuple)
        return [_scalar(item, target.scalar, what, read) for item in value]
    cell = _scalar(value, target.scalar, what, read)
    return {"data": cell} if target.is_blob else cell


def _scalar(value: ir.Constant, scalar: Scalar, what: str, read: ReadExternal) -> Any:
    try:
        return SCALARS[scalar].from_constant(value, read)
    except Misfit as cause:
        if cause.reason is Reason.BLOB:
            text = f"{what} is a Blob and its base64 is damaged ({cause.detail})"
            raise BadRequest(text) from None
        of = Scalar.F32 if scalar is Scalar.VECTOR else scalar
        text = f"{what} has type {of}; {value} does not fit"
        raise BadRequest(text, "change the value") from None
