"""Radix sort of pairs of numbers, by the first and then the second, and the other way round.

    pairs ─▶ by target ─▶ by source (sorted by source and target) ─▶ by target (the other way)

Invariant: every step is stable, so pairs that are equal keep their order. A digit has so few values
that Arrow sorts it by counting, and the rank of a pair travels with it in one machine word.
"""

from collections.abc import Iterator

import numpy as np
import pyarrow.compute as pc

from omnigraph.costs import COSTS
from omnigraph.number_arrays import from_arrow, to_arrow

_DIGIT_BITS = 11
"""Arrow counts numbers of up to 12 bits; more of them at once leave the processor's cache."""

_WORD = 64

_Bits = tuple[int, int]
"""The lowest of some bits, and how many they are."""

Sorted = tuple[np.ndarray, np.ndarray]
"""The ranks of the pairs in sorted order, and the numbers that were sorted by last."""


def sorted_both_ways(source: np.ndarray, target: np.ndarray) -> Iterator[Sorted]:
    """The stable order by source and target with the targets in it, then by target and source with
    the sources in it. Numbers are not negative."""
    if len(source) < COSTS.radix_rows_min:
        yield _compared(source, target)
        yield _compared(target, source)
        return
    words = _Words(source, target)
    words.sort(words.target)
    words.sort(words.source)
    yield words.ranks(), words.field(words.target)
    words.sort(words.target)
    yield words.ranks(), words.field(words.source)


def _compared(first: np.ndarray, second: np.ndarray) -> Sorted:
    order = np.lexsort((second, first)).astype(np.int32)
    return order, second[order].astype(np.int32, copy=False)


def _bits(numbers: np.ndarray) -> int:
    return max(1, int(numbers.max(initial=0)).bit_length())


class _Words:
    """Pairs and their ranks as machine words; ranks lie apart where the three do not fit."""

    def __init__(self, source: np.ndarray, target: np.ndarray) -> None:
        rank, far, near = (len(source) - 1).bit_length(), _bits(target), _bits(source)
        is_apart = rank + far + near > _WORD
        self._rank_bits = 0 if is_apart else rank
        self._apart = np.arange(len(source), dtype=np.int32) if is_apart else None
        self.target = (self._rank_bits, far)
        self.source = (self._rank_bits + far, near)
        self._words = source.astype(np.uint64)
        self._spare = np.empty_like(self._words)
        # A part at a time, so that nothing but the words is written to memory.
        for first in range(0, len(source), COSTS.radix_rows_together):
            part = self._words[first : first + COSTS.radix_rows_together]
            part <<= np.uint64(far)
            part |= target[first : first + COSTS.radix_rows_together].astype(np.uint64)
            if not is_apart:
                part <<= np.uint64(rank)
                part |= np.arange(first, first + len(part), dtype=np.uint64)

    def ranks(self) -> np.ndarray:
        """The ranks of the pairs in the order they have now."""
        return self.field((0, self._rank_bits)) if self._apart is None else self._apart

    def field(self, bits: _Bits) -> np.ndarray:
        """The numbers in some bits."""
        numbers = np.empty(len(self._words), np.int32)
        self._cut_out(bits, numbers)
        return numbers

    def _cut_out(self, bits: _Bits, into: np.ndarray) -> None:
        shift, mask = np.uint64(bits[0]), np.uint64((1 << bits[1]) - 1)
        for first in range(0, len(into), COSTS.radix_rows_together):
            part = self._words[first : first + COSTS.radix_rows_together] >> shift
            np.bitwise_and(
                part, mask, out=into[first : first + COSTS.radix_rows_together], casting="unsafe"
            )

    def sort(self, bits: _Bits) -> None:
        """The stable order of the numbers in some bits: counting sorts, the lowest digit first."""
        shift, width = bits
        steps = -(-width // _DIGIT_BITS)
        digits = np.empty(len(self._words), np.uint16)
        for step in range(steps):
            low, high = width * step // steps, width * (step + 1) // steps
            self._cut_out((shift + low, high - low), digits)
            order = from_arrow(pc.array_sort_indices(to_arrow(digits))).view(np.int64)
            # With an array to write to and no look at bounds, nothing is allocated.
            np.take(self._words, order, out=self._spare, mode="clip")
            self._words, self._spare = self._spare, self._words
            if self._apart is not None:
                self._apart = self._apart[order]
