"""Seeded 64-bit hash of texts, of one in plain Python and of many at once with numpy.

Invariant: both ways give the same number for the same text and seed. A file keeps the random seed
of its hashes, so collisions cannot be chosen in advance; a hash only says where to look, and the
text itself is compared.
"""

import numpy as np
import pyarrow as pa

from omnigraph.costs import COSTS

_WORD = 8
_WORDS_MAX = 16
"""Of a longer text the words are taken again from the first key on: it is rare."""

_MASK = 0xFFFFFFFFFFFFFFFF
_FIRST, _SECOND = 0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53


def _mixed(word: int) -> int:
    word ^= word >> 32
    word = word * _FIRST & _MASK
    word ^= word >> 32
    word = word * _SECOND & _MASK
    return word ^ word >> 29


class TextHash:
    """The hash function of one seed."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        keys, state = [], seed & _MASK
        for _ in range(_WORDS_MAX + 1):
            state = (state + 0x9E3779B97F4A7C15) & _MASK
            keys.append(_mixed(state))
        self._keys = keys
        self._arrays = np.array(keys, np.uint64)

    def of(self, data: bytes) -> int:
        """The hash of one text."""
        keys = self._keys
        total = _mixed(len(data) ^ keys[_WORDS_MAX])
        for number in range(-(-len(data) // _WORD)):
            word = int.from_bytes(data[number * _WORD : (number + 1) * _WORD], "little")
            # The place of a word beyond the keys must count too.
            total += _mixed((word + number // _WORDS_MAX & _MASK) ^ keys[number % _WORDS_MAX])
        return total & _MASK

    def of_all(self, texts: pa.Array) -> np.ndarray:
        """The hashes of many texts."""
        hashes = np.empty(len(texts), np.uint64)
        for start in range(0, len(texts), COSTS.hash_texts_together):
            block = texts.slice(start, COSTS.hash_texts_together)
            self._fill(block, hashes[start : start + len(block)])
        return hashes

    def _fill(self, texts: pa.Array, into: np.ndarray) -> None:
        wide = pa.types.is_large_string(texts.type)
        _, ends, data = texts.buffers()
        offsets = np.frombuffer(ends, np.int64 if wide else np.int32)
        offsets = offsets[texts.offset : texts.offset + len(texts) + 1].astype(np.int64)
        first, last = int(offsets[0]), int(offsets[-1])
        padded = np.zeros(last - first + _WORD, np.uint8)
        if data is not None and last > first:
            padded[:-_WORD] = np.frombuffer(data, np.uint8)[first:last]
        words = np.ndarray((len(padded) - _WORD + 1,), "<u8", buffer=padded.data, strides=(1,))
        starts, lengths = offsets[:-1] - first, np.diff(offsets)
        into[:] = _mixed_all(lengths.astype(np.uint64) ^ self._arrays[_WORDS_MAX])
        longest = int(lengths.max()) if len(lengths) else 0
        for number in range(-(-longest // _WORD)):
            rows = np.flatnonzero(lengths > _WORD * number)
            own = np.minimum(lengths[rows] - _WORD * number, _WORD)
            beyond = (_WORD * (_WORD - own)).astype(np.uint64)
            # The bytes after the end of a text are those of the next one.
            word = (words[starts[rows] + _WORD * number] << beyond) >> beyond
            word += np.uint64(number // _WORDS_MAX)
            into[rows] += _mixed_all(word ^ self._arrays[number % _WORDS_MAX])


def _mixed_all(words: np.ndarray) -> np.ndarray:
    mixed: np.ndarray = words ^ (words >> np.uint64(32))
    mixed *= np.uint64(_FIRST)
    mixed ^= mixed >> np.uint64(32)
    mixed *= np.uint64(_SECOND)
    mixed ^= mixed >> np.uint64(29)
    return mixed
