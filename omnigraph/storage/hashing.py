"""128 bits for each of many texts, in one pass over their bytes.

Invariant: equal texts have equal hashes in one process. Different ones have not, but for a chance
that nobody meets: the weights are random, so nobody can choose texts that collide.
"""

import numpy as np
import pyarrow as pa

_PLACES = 4_096
_AT_ONCE = 250_000
_WEIGHTS = np.random.default_rng().integers(0, 2**64, (2, _PLACES), np.uint64, endpoint=False) | 1


def hashes_of(texts: pa.Array | pa.ChunkedArray) -> tuple[np.ndarray, np.ndarray]:
    """Two 64-bit hashes of each text: sums of its bytes, each times the weight of its place."""
    chunks = texts.chunks if isinstance(texts, pa.ChunkedArray) else [texts]
    parts = [
        _hashed(chunk.slice(start, _AT_ONCE))
        for chunk in chunks
        for start in range(0, len(chunk), _AT_ONCE)
    ]
    if not parts:
        return np.empty(0, np.uint64), np.empty(0, np.uint64)
    return np.concatenate([p[0] for p in parts]), np.concatenate([p[1] for p in parts])


def _hashed(texts: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    texts = texts.cast(pa.large_binary())
    _, offsets_buffer, data_buffer = texts.buffers()
    offsets = np.frombuffer(offsets_buffer, np.int64)[texts.offset : texts.offset + len(texts) + 1]
    first, last = int(offsets[0]), int(offsets[-1])
    data = np.frombuffer(data_buffer or b"", np.uint8)[first:last]
    starts, lengths = offsets[:-1] - first, np.diff(offsets)
    places = (np.arange(last - first) - np.repeat(starts, lengths)) % (_PLACES - 1)
    one, two = (_sums(data, places, starts, lengths, weights) for weights in _WEIGHTS)
    return one, two


def _sums(
    data: np.ndarray,
    places: np.ndarray,
    starts: np.ndarray,
    lengths: np.ndarray,
    weights: np.ndarray,
) -> np.ndarray:
    sums: np.ndarray = lengths.astype(np.uint64) * weights[-1]
    filled = lengths > 0
    if filled.any():
        sums[filled] += np.add.reduceat((data + np.uint64(1)) * weights[places], starts[filled])
    return sums
