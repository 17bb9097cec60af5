"""128 bits for each of many texts, eight bytes at a time.

Invariant: equal texts have equal hashes in one process. Different ones have not, but for a chance
that nobody meets: the keys are random, so nobody can choose texts that collide.
"""

import hashlib
import secrets

import numpy as np
import pyarrow as pa

_AT_ONCE = 32_768  # texts: what is made on the way stays near the processor
_WORD = 8
_WORDS_MAX = 64
_LONG = _WORD * _WORDS_MAX  # bytes; longer texts are rare, and each is hashed by itself
_KEY = secrets.token_bytes(32)
_KEYS = np.random.default_rng().integers(0, 2**64, (2, _WORDS_MAX + 1), np.uint64, endpoint=False)
_FACTORS = (
    (np.uint64(0xFF51AFD7ED558CCD), np.uint64(0xC4CEB9FE1A85EC53)),
    (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)),
)
_SHIFTS = np.uint64(32), np.uint64(29)


def hashes_of(texts: pa.Array | pa.ChunkedArray) -> tuple[np.ndarray, np.ndarray]:
    """Two 64-bit hashes of each text: sums over its words, each mixed with the key of its place."""
    chunks = texts.chunks if isinstance(texts, pa.ChunkedArray) else [texts]
    found = np.empty((2, sum(map(len, chunks))), np.uint64)
    at = 0
    for chunk in chunks:
        for start in range(0, len(chunk), _AT_ONCE):
            some = chunk.slice(start, _AT_ONCE)
            _hash(some, found[:, at : at + len(some)])
            at += len(some)
    return found[0], found[1]


def _hash(texts: pa.Array, into: np.ndarray) -> None:
    kind = np.int64 if pa.types.is_large_string(texts.type) else np.int32
    _, ends, data = texts.buffers()
    offsets = np.frombuffer(ends, kind)[texts.offset : texts.offset + len(texts) + 1]
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
    for place in range(max(1, min(_WORDS_MAX, -(-longest // _WORD)))):
        if place:
            rows = np.flatnonzero(lengths > _WORD * place)
        own = np.minimum(lengths[rows] - _WORD * place, _WORD)
        # The bytes after the end of a text are those of the next one.
        beyond = (_WORD * (_WORD - own)).astype(np.uint64)
        word = np.where(own > 0, words[starts[rows] + _WORD * place] << beyond, np.uint64(0))
        for half in (0, 1):
            into[half, rows] += _mixed(word, half, place)
    for row in np.flatnonzero(lengths > _LONG).tolist() if longest > _LONG else ():
        text = padded[starts[row] : starts[row] + lengths[row]].tobytes()
        told = hashlib.blake2b(text, digest_size=16, key=_KEY).digest()
        into[:, row] = np.frombuffer(told, np.uint64)


def _mixed(words: np.ndarray, half: int, place: int) -> np.ndarray:
    """Every bit of a word and its key spread over all bits."""
    mixed: np.ndarray = words ^ _KEYS[half, place]
    for factor in _FACTORS[half]:
        mixed ^= mixed >> _SHIFTS[0]
        mixed *= factor
    mixed ^= mixed >> _SHIFTS[1]
    return mixed
