"""Hash buckets: the bucket number of a row, from the values of its key columns.

Invariant: pure and the same in every process: equal keys have equal numbers, so a rule can be
checked, and a query cut into shares, bucket by bucket.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

_HASHED_BYTES = 16
_SPREAD = 0x9E3779B97F4A7C15


def bucket_numbers(rows: pa.Table, by: Sequence[str], buckets: int) -> npt.NDArray[np.int64]:
    """The bucket of each row, from the values of its meeting columns alone."""
    total = np.zeros(rows.num_rows, np.uint64)
    for name in by:
        total = total * np.uint64(_SPREAD) + _hashes(rows.column(name))
    total ^= total >> np.uint64(29)
    return (total % np.uint64(buckets)).astype(np.int64)


def _hashes(values: pa.ChunkedArray) -> npt.NDArray[np.uint64]:
    """A number for each value, from the length and the last bytes of its text."""
    text = _text(values.combine_chunks())
    if text is None:
        return np.zeros(len(values), np.uint64)
    offsets = np.frombuffer(text.buffers()[1], np.int32)[text.offset : text.offset + len(text) + 1]
    data = text.buffers()[2]
    raw = np.frombuffer(data, np.uint8) if data else np.zeros(0, np.uint8)
    first, last = (int(offsets[0]), int(offsets[-1])) if len(text) else (0, 0)
    padded = np.concatenate([np.zeros(_HASHED_BYTES, np.uint8), raw[first:last]])
    # Eight bytes from any byte on, as one number each.
    words = np.ndarray((len(padded) - 7,), "<u8", buffer=padded.data, strides=(1,))
    lengths = np.diff(offsets)
    ends = offsets[1:] - first + _HASHED_BYTES
    hashes = lengths.astype(np.uint64)
    for back in range(8, _HASHED_BYTES + 1, 8):
        own = np.clip(lengths - (back - 8), 0, 8)
        word = words[ends - back] >> (8 * (8 - np.maximum(own, 1))).astype(np.uint64)
        hashes = (hashes ^ np.where(own > 0, word, 0).astype(np.uint64)) * np.uint64(_SPREAD)
        hashes ^= hashes >> np.uint64(29)
    return hashes


def _text(values: pa.Array) -> pa.Array | None:
    """Equal values as equal texts; None for types without a text, which share one bucket."""
    if pa.types.is_string(values.type):
        return values
    if pa.types.is_timestamp(values.type):
        values = values.cast(pa.int64())
    elif pa.types.is_floating(values.type):
        values = pc.add(values, pa.scalar(0, values.type))  # -0 equals 0
    try:
        return values.cast(pa.utf8())
    except pa.ArrowException:
        return None
