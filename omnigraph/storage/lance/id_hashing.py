"""Keyed 128-bit hash of many strings at once, vectorised over words of eight bytes.

Invariant: equal strings have equal hashes in one process. Unequal strings have unequal hashes up to
a chance of 2**-128 a pair: the keys are random, so collisions cannot be chosen either.
"""

import hashlib
import secrets

import numpy as np
import pyarrow as pa

from omnigraph.costs import COSTS

Hashes = tuple[np.ndarray, np.ndarray]
"""The two 64-bit halves of each string's hash."""

_WORD = 8
_WORDS_MAX = 64
_LONG = _WORD * _WORDS_MAX  # bytes; longer strings are rare, and each is hashed by itself
_KEY = secrets.token_bytes(32)
_KEYS = np.frombuffer(secrets.token_bytes(16 * (_WORDS_MAX + 1)), np.uint64).reshape(2, -1)
_FACTORS = (
    (np.uint64(0xFF51AFD7ED558CCD), np.uint64(0xC4CEB9FE1A85EC53)),
    (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)),
)
_SHIFTS = np.uint64(32), np.uint64(29)


def hashes_of(strings: pa.Array | pa.ChunkedArray) -> Hashes:
    """Two 64-bit hashes of each string: sums over its words, each mixed with the key of its
    position in the string."""
    chunks = strings.chunks if isinstance(strings, pa.ChunkedArray) else [strings]
    hashes = np.empty((2, sum(map(len, chunks))), np.uint64)
    done = 0
    for chunk in chunks:
        for start in range(0, len(chunk), COSTS.hash_ids_together):
            block = chunk.slice(start, COSTS.hash_ids_together)
            _hash(block, hashes[:, done : done + len(block)])
            done += len(block)
    return hashes[0], hashes[1]


def _hash(strings: pa.Array, into: np.ndarray) -> None:
    kind = np.int64 if pa.types.is_large_string(strings.type) else np.int32
    _, ends, data = strings.buffers()
    offsets = np.frombuffer(ends, kind)[strings.offset : strings.offset + len(strings) + 1]
    first, last = int(offsets[0]), int(offsets[-1])
    padded = np.zeros(last - first + _WORD, np.uint8)
    if data is not None:
        padded[:-_WORD] = np.frombuffer(data, np.uint8)[first:last]
    # Eight bytes from any byte on, as one number each.
    words = np.ndarray((len(padded) - _WORD + 1,), "<u8", buffer=padded.data, strides=(1,))
    starts, lengths = offsets[:-1] - first, np.diff(offsets)
    for half in (0, 1):
        into[half] = _mixed(lengths.astype(np.uint64), half, _WORDS_MAX)
    longest = int(lengths.max()) if len(lengths) else 0
    rows: np.ndarray | slice = slice(None)
    for number in range(max(1, min(_WORDS_MAX, -(-longest // _WORD)))):
        if number:
            rows = np.flatnonzero(lengths > _WORD * number)
        own = np.minimum(lengths[rows] - _WORD * number, _WORD)
        # The bytes after the end of a string are those of the next one.
        beyond = (_WORD * (_WORD - own)).astype(np.uint64)
        word = np.where(own > 0, words[starts[rows] + _WORD * number] << beyond, np.uint64(0))
        for half in (0, 1):
            into[half, rows] += _mixed(word, half, number)
    for row in np.flatnonzero(lengths > _LONG).tolist() if longest > _LONG else ():
        data_of_row = padded[starts[row] : starts[row] + lengths[row]].tobytes()
        digest = hashlib.blake2b(data_of_row, digest_size=16, key=_KEY).digest()
        into[:, row] = np.frombuffer(digest, np.uint64)


def _mixed(words: np.ndarray, half: int, number: int) -> np.ndarray:
    """Every bit of a word and of the key of its number spread over all bits."""
    mixed: np.ndarray = words ^ _KEYS[half, number]
    for factor in _FACTORS[half]:
        mixed ^= mixed >> _SHIFTS[0]
        mixed *= factor
    mixed ^= mixed >> _SHIFTS[1]
    return mixed
