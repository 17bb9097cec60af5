"""Fast path of: Arrow's `index_in` — hash join of ids of up to 64 bytes.

Reference: `exec/topology/table_ends.py`, which looks every id up with `index_in`.
Held equal by: `test_TP1_short_ids_are_numbered_as_arrow_numbers_them`.
Falls back: for ids longer than 64 bytes, and when hashes collide too often.

Invariant: an id is compared as a whole, as machine words; its hash only says where to look. Its
length is in its last word, so ids that end in zero bytes differ. An id that loses its slot to
another is kept in a further table, which is asked after the first.
"""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.costs import COSTS

_NO_LENGTH = 255

_LEVELS = 8
_SPARE = 16
"""Slots for each id."""

_MIX = np.uint64(0x9E3779B97F4A7C15)
_FINAL = np.uint64(0xC2B2AE3D27D4EB4F)
_HALF = np.uint64(32)


class ShortIds:
    """The numbers of ids, by hash."""

    def __init__(
        self, longest: int, words: list[np.ndarray], tables: list[tuple[np.uint64, np.ndarray]]
    ) -> None:
        self._longest = longest
        self._words = words
        self._tables = tables

    def numbers(self, ids: pa.ChunkedArray) -> np.ndarray:
        """The number of each id, -1 for those that are not here and for nulls."""
        parts = [self._located(_words(chunk, self._longest)) for chunk in ids.chunks]
        return np.concatenate(parts) if parts else np.empty(0, np.int32)

    def _located(self, words: list[np.ndarray]) -> np.ndarray:
        hashes = _hashed(words)
        numbers, differs = self._looked_up(0, hashes, words)
        rows = np.flatnonzero(differs)
        words, hashes = [word[rows] for word in words], hashes[rows]
        for level in range(1, len(self._tables)):
            if not len(rows):
                break
            hashes *= _FINAL
            candidates, differs = self._looked_up(level, hashes, words)
            numbers[rows] = candidates
            rows, hashes = rows[differs], hashes[differs]
            words = [word[differs] for word in words]
        numbers[rows] = -1
        return numbers

    def _looked_up(
        self, level: int, hashes: np.ndarray, words: list[np.ndarray]
    ) -> tuple[np.ndarray, np.ndarray]:
        """The number in the slot of each hash, and where that is the number of another id."""
        shift, table = self._tables[level]
        candidates = table.take((hashes >> shift).view(np.int64))
        differs = self._words[0].take(candidates) != words[0]
        for own, word in zip(self._words[1:], words[1:], strict=True):
            differs |= own.take(candidates) != word
        return candidates, differs


def short_ids(strings: pa.Array) -> ShortIds | None:
    """The ids as a hash table; None when one of them is too long."""
    longest = int(_lengths(strings).max(initial=0))
    if not len(strings) or longest > COSTS.short_id_bytes_max:
        return None
    words = _words(strings, longest)
    tables = _filled(_hashed(words))
    return None if tables is None else ShortIds(longest, words, tables)


def _filled(hashes: np.ndarray) -> list[tuple[np.uint64, np.ndarray]] | None:
    """Tables of numbers by the leading bits of a hash, each for those that the last has no slot
    for; None when some are left. An empty slot has the first number: ids are compared anyway."""
    numbers = np.arange(len(hashes), dtype=np.int32)
    tables: list[tuple[np.uint64, np.ndarray]] = []
    for _ in range(_LEVELS):
        bits = max(4, (_SPARE * len(numbers)).bit_length() - 1)
        shift = np.uint64(64 - bits)
        slots = (hashes >> shift).astype(np.int64)
        table = np.zeros(1 << bits, np.int32)
        table[slots] = numbers
        tables.append((shift, table))
        lost = table[slots] != numbers
        if not lost.any():
            return tables
        numbers, hashes = numbers[lost], hashes[lost] * _FINAL
    return None


def _hashed(words: list[np.ndarray]) -> np.ndarray:
    hashes = words[0] * _MIX
    for word in words[1:]:
        hashes ^= hashes >> _HALF
        hashes ^= word
        hashes *= _MIX
    hashes ^= hashes >> _HALF
    hashes *= _FINAL
    mixed: np.ndarray = hashes
    return mixed


def _lengths(ids: pa.Array) -> np.ndarray:
    """The bytes of each id."""
    kind = np.int64 if pa.types.is_large_string(ids.type) else np.int32
    offsets = np.frombuffer(ids.buffers()[1], kind)[ids.offset : ids.offset + len(ids) + 1]
    return np.diff(offsets)


def _words(ids: pa.Array, longest: int) -> list[np.ndarray]:
    """The bytes of the ids as machine words, the length in the last byte. Nulls and ids that are
    longer than the longest one have a length that no id has."""
    count = longest // 8 + 1
    words = [np.empty(len(ids), np.uint64) for _ in range(count)]
    for first in range(0, len(ids), COSTS.short_ids_together):
        wide = _laid_out(ids.slice(first, COSTS.short_ids_together), longest, 8 * count)
        for number, word in enumerate(words):
            word[first : first + COSTS.short_ids_together] = wide[:, number]
    return words


def _laid_out(ids: pa.Array, longest: int, width: int) -> np.ndarray:
    """A row of machine words for each id."""
    lengths = _lengths(ids)
    is_other = lengths > longest
    if ids.null_count or is_other.any():
        is_other |= ids.is_null().to_numpy(zero_copy_only=False)
        ids = pc.if_else(pa.array(is_other), pa.scalar("", ids.type), ids)
        lengths = np.where(is_other, _NO_LENGTH, lengths)
    padded = pc.ascii_rpad(ids, width=width, padding="\0")
    data = np.frombuffer(padded.buffers()[2], np.uint8, len(ids) * width)
    wide = data.reshape(len(ids), width).copy()
    wide[:, -1] = lengths
    return wide.view(np.uint64)
