"""The values of a mutation, as tables store them.

Invariant: a value that comes out fits the column's type. A number keeps its mathematical value or
is refused, except that a float column rounds a float to its width; zero has one sign, so equal keys
are equal bytes. Whether the value is allowed is for the rules to say.
"""

import base64
import binascii
import math
import struct
from collections.abc import Mapping
from typing import Any

from omnigraph.errors import BadRequest
from omnigraph.exec.values.from_input import BLOB_PREFIX, ReadExternal
from omnigraph.plan import ir
from omnigraph.types import FLOATS, INTEGER_BOUNDS, INTEGERS, Scalar, ValueType

_SHOWN_CHARS = 60


def stored(value: ir.Constant, target: ValueType, *, what: str, read: ReadExternal) -> Any:
    """A value of a compatible type as the column of `what` holds it. A Blob that is given by its
    address is copied in by `read`."""
    if value is None:
        return None
    if target.is_blob:
        return blob(value, what, read)
    if target.is_vector:
        return [_float(item, Scalar.F32, what) for item in _items(value)]
    if target.is_list:
        return [_scalar(item, target.scalar, what) for item in _items(value)]
    return _scalar(value, target.scalar, what)


def blob(value: ir.Constant, what: str, read: ReadExternal) -> dict[str, Any]:
    """The bytes of `base64:…`; every other text is an address."""
    assert isinstance(value, str)
    if not value.startswith(BLOB_PREFIX):
        return {"data": read(value)}
    try:
        data = base64.b64decode(value[len(BLOB_PREFIX) :], validate=True)
    except (binascii.Error, ValueError) as cause:
        raise BadRequest(f"{what} is a Blob and its base64 is damaged ({cause})") from None
    return {"data": data}


def require_text(values: Mapping[str, ir.Constant]) -> None:
    """Pass only when every string can be written as UTF-8."""
    for name, value in values.items():
        for item in value if isinstance(value, tuple) else (value,):
            if isinstance(item, str) and not _is_utf8(item):
                raise BadRequest(f"param '{name}': the text cannot be written as UTF-8")


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _items(value: ir.Constant) -> tuple[ir.Constant, ...]:
    assert isinstance(value, tuple)
    return value


def _scalar(value: ir.Constant, scalar: Scalar, what: str) -> Any:
    if scalar in INTEGERS:
        return _integer(value, scalar, what)
    if scalar in FLOATS:
        return _float(value, scalar, what)
    return value


def _integer(value: ir.Constant, scalar: Scalar, what: str) -> int:
    assert isinstance(value, int | float)
    low, high = INTEGER_BOUNDS[scalar]
    if not math.isfinite(value) or value != int(value) or not low <= value <= high:
        raise _unfit(value, scalar, what)
    return int(value)


def _float(value: ir.Constant, scalar: Scalar, what: str) -> float:
    assert isinstance(value, int | float)
    try:
        number = float(value)
        if scalar is Scalar.F32:
            number = struct.unpack("<f", struct.pack("<f", number))[0]
    except OverflowError:
        raise _unfit(value, scalar, what) from None
    if isinstance(value, int) and number != value:
        raise _unfit(value, scalar, what)
    return number + 0.0  # one zero


def _unfit(value: float, scalar: Scalar, what: str) -> BadRequest:
    return BadRequest(f"{what} has type {scalar}; {value} does not fit", "change the value")


def _short(text: str) -> str:
    return text if len(text) <= _SHOWN_CHARS else text[: _SHOWN_CHARS - 1] + "…"
