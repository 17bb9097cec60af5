"""Fast path of: Arrow's `index_in` — hash join of ids that all have the same number of bytes.

Reference: `exec/topology/build.py`, which looks every id up with `index_in`.
Held equal by: `test_TP1_ids_of_one_width_are_numbered_as_arrow_numbers_them`.
Falls back: for ids of several widths or longer than 64 bytes, and when hashes collide too often.

Invariant: an id is compared as a whole, as machine words; its hash only says where to look. An id
that loses its slot to another is kept in a further table, which is asked after the first.
"""

from collections.abc import Iterable

import numpy as np
import pyarrow as pa

_WIDTH_MAX = 64
_LEVELS = 8
_SPARE = 4
"""Slots for each id."""

_MIX = np.uint64(0x9E3779B97F4A7C15)
_FINAL = np.uint64(0xC2B2AE3D27D4EB4F)
_HALF = np.uint64(32)


class FixedWidthIds:
    """The numbers of ids, by hash."""

    def __init__(
        self, width: int, words: list[np.ndarray], tables: list[tuple[np.uint64, np.ndarray]]
    ) -> None:
        self._width = width
        self._words = words
        self._tables = tables

    def numbers(self, ids: pa.ChunkedArray) -> np.ndarray | None:
        """The number of each id, -1 for those that are not here; None for ids of other widths."""
        parts = []
        for chunk in ids.chunks:
            words = _words(chunk, self._width)
            if words is None:
                return None
            parts.append(self._located(words))
        return np.concatenate(parts) if parts else np.empty(0, np.int32)

    def _located(self, words: list[np.ndarray]) -> np.ndarray:
        numbers = np.full(len(words[0]), -1, np.int32)
        rows: np.ndarray | None = None
        hashes = _hashed(words)
        for shift, table in self._tables:
            candidates = table[(hashes >> shift).astype(np.int64)]
            equal = candidates >= 0
            for own, word in zip(self._words, words, strict=True):
                equal &= own[candidates] == word
            if rows is None:
                numbers[equal] = candidates[equal]
                rows = np.flatnonzero(~equal)
            else:
                numbers[rows[equal]] = candidates[equal]
                rows = rows[~equal]
            if not len(rows):
                break
            left = ~equal
            words, hashes = [word[left] for word in words], hashes[left] * _FINAL
        return numbers


def fixed_width_ids(strings: pa.Array) -> FixedWidthIds | None:
    """The ids as a hash table; None when they have several widths."""
    width = _width_of(strings)
    words = None if width is None else _words(strings, width)
    if width is None or words is None:
        return None
    tables = list(_filled(_hashed(words)))
    kept = sum(int(np.count_nonzero(table >= 0)) for _, table in tables)
    return FixedWidthIds(width, words, tables) if kept == len(strings) else None


def _filled(hashes: np.ndarray) -> Iterable[tuple[np.uint64, np.ndarray]]:
    """Tables of numbers by the leading bits of a hash, each for those that the last has no slot
    for."""
    numbers = np.arange(len(hashes), dtype=np.int32)
    for _ in range(_LEVELS):
        bits = max(4, (_SPARE * len(numbers)).bit_length() - 1)
        shift = np.uint64(64 - bits)
        slots = (hashes >> shift).astype(np.int64)
        table = np.full(1 << bits, -1, np.int32)
        table[slots] = numbers
        yield shift, table
        lost = table[slots] != numbers
        if not lost.any():
            return
        numbers, hashes = numbers[lost], hashes[lost] * _FINAL


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


def _offsets(ids: pa.Array) -> np.ndarray:
    kind = np.int64 if pa.types.is_large_string(ids.type) else np.int32
    return np.frombuffer(ids.buffers()[1], kind)[ids.offset : ids.offset + len(ids) + 1]


def _width_of(ids: pa.Array) -> int | None:
    if not len(ids):
        return None
    offsets = _offsets(ids)
    width = int(offsets[1]) - int(offsets[0])
    return width if 1 <= width <= _WIDTH_MAX else None


def _words(ids: pa.Array, width: int) -> list[np.ndarray] | None:
    """The bytes of the ids as machine words, of which the last two may overlap; None when an id is
    null or has another width."""
    if ids.null_count:
        return None
    if not len(ids):
        return [np.empty(0, np.uint64) for _ in range(-(-width // 8))]
    offsets = _offsets(ids)
    if not (offsets[1:] - offsets[:-1] == width).all():
        return None
    first, size = int(offsets[0]), len(ids) * width
    data = np.frombuffer(ids.buffers()[2], np.uint8)[first : first + size]
    if width < 8:
        wide = np.zeros((len(ids), 8), np.uint8)
        wide[:, :width] = data.reshape(len(ids), width)
        return [wide.view(np.uint64).reshape(-1)]
    starts = [*range(0, width - 8, 8), width - 8]
    views = (np.ndarray(len(ids), np.uint64, data, start, (width,)) for start in starts)
    return [np.ascontiguousarray(view) for view in views]
