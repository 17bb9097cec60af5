"""Bounded evaluation of texts and lists: sizes known before they are made, work in short pieces.

Invariant: a kernel runs over at most `PIECE_BYTES` of arguments and results, or over one row; the
deadline of the request is checked between. A result is announced to the memory limit before it is
made, so a text that would grow beyond a limit is refused with `LimitExceeded` instead.
"""

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.errors import LimitExceeded
from omnigraph.exec.limits import announce
from omnigraph.exec.values.arithmetic import RowFault
from omnigraph.query_limits import TEXT_BYTES_MAX, checkpoint

PIECE_BYTES = 4 << 20
_COLUMN_BYTES_MAX = (1 << 31) - 1
"""What the 32-bit offsets of an Arrow array of texts reach."""

Apply = Callable[[Sequence[pa.Array]], pa.Array]


def require_room(sizes: np.ndarray, what: str, beside: int = 0) -> None:
    """Announce texts of these sizes in bytes, with what is held beside them.

    Raises `LimitExceeded` if one of them, or all together, exceed a limit.
    """
    largest = int(sizes.max(initial=0))
    if largest > TEXT_BYTES_MAX:
        hint = "cut the texts with substring before they are joined or replaced"
        raise LimitExceeded(f"bytes of one text of {what}", largest, TEXT_BYTES_MAX, hint)
    _require_column(int(sizes.sum()), what, beside)


def _require_column(total: int, what: str, beside: int = 0) -> None:
    announce(total + beside)
    if total > _COLUMN_BYTES_MAX:
        hint = "narrow the pattern, or make shorter texts"
        raise LimitExceeded(f"bytes of the values of {what}", total, _COLUMN_BYTES_MAX, hint)


def repeat(value: pa.Scalar, length: int) -> pa.Array:
    """Return one value for each of many rows, if the memory limit allows them."""
    one = pa.array([value.as_py()], value.type) if is_long(value.type) else None
    if one is None:
        return pa.repeat(value, length)
    _require_column(one.nbytes * length, "a constant")
    if pa.types.is_nested(value.type):
        return one.take(pa.array(np.zeros(length, np.int64)))
    return pa.repeat(value, length)


def is_long(kind: pa.DataType) -> bool:
    """Whether values of a type have no fixed size."""
    return bool(
        pa.types.is_string(kind)
        or pa.types.is_list(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_binary(kind)
    )


def bytes_of_rows(array: pa.Array) -> np.ndarray:
    """Return the bytes of each text or list; 0 for null."""
    if pa.types.is_list(array.type):
        offsets = array.offsets.to_numpy().astype(np.int64)
        values = array.values
        if not is_long(values.type):
            widths: np.ndarray = np.diff(offsets) * 8
            return widths
        within = np.concatenate([[0], np.cumsum(bytes_of_rows(values) + 4)])
        spans: np.ndarray = within[offsets[1:]] - within[offsets[:-1]]
        return spans
    lengths = pc.binary_length(array).fill_null(0)
    return np.asarray(lengths.to_numpy(zero_copy_only=False)).astype(np.int64)


def in_pieces(
    arrays: Sequence[pa.Array], apply: Apply, sizes: np.ndarray | None = None, beside: int = 0
) -> pa.Array:
    """Apply a kernel to arrays of one length, a piece of bounded bytes at a time.

    `sizes` are the bytes of each row's result where they exceed those of its arguments; `beside`
    are bytes that are held meanwhile.
    """
    long = [array for array in arrays if is_long(array.type)]
    given = sum(array.nbytes for array in long)
    if not long or (sizes is None and given <= PIECE_BYTES):
        checkpoint()
        return apply(arrays)
    work = sum((bytes_of_rows(array) for array in long), np.zeros(len(arrays[0]), np.int64))
    if sizes is not None:
        work = np.maximum(work, sizes)
    pieces, made = list[pa.Array](), 0
    for first, end in _cuts(work):
        checkpoint()
        try:
            piece = apply([array.slice(first, end - first) for array in arrays])
        except RowFault as fault:
            raise RowFault(first + fault.row, fault.reason) from None
        pieces.append(piece)
        made += piece.nbytes
        _require_column(made, "an expression", given + beside)
    return pa.concat_arrays(pieces) if len(pieces) > 1 else pieces[0]


def _cuts(work: np.ndarray) -> list[tuple[int, int]]:
    """Return ranges of rows with little work each, at least one."""
    before = np.concatenate([[0], np.cumsum(work)])
    cuts, first = list[tuple[int, int]](), 0
    while first < len(work):
        end = int(np.searchsorted(before, before[first] + PIECE_BYTES, side="right")) - 1
        end = max(end, first + 1)
        cuts.append((first, end))
        first = end
    return cuts or [(0, 0)]
