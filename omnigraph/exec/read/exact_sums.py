"""Exact sums and averages of integers over numbered groups, in two halves that cannot overflow.

Invariant: a total is `high * 2**32 + low` with `0 <= low < 2**32`, for any 64-bit numbers of fewer
than 2**31 rows: it is never rounded and never wraps around.
"""

import numpy as np

from omnigraph.errors import LimitExceeded
from omnigraph.light_dataclass import dataclass
from omnigraph.plan import ir
from omnigraph.plan.explain import expression
from omnigraph.types import INTEGER_BOUNDS

_BITS = 32
_LOW = 2**_BITS - 1
_FLOAT_EXACT = 2**53
"""Below it every integer is a 64-bit float."""

_INTEGER_EXACT = 2**63
"""Below it every sum is a 64-bit integer."""


@dataclass(frozen=True, slots=True)
class Totals:
    """A total a group, in halves: two arrays of 64-bit integers."""

    high: np.ndarray
    low: np.ndarray

    def integers(self, measure: ir.Measure) -> np.ndarray:
        """The totals as integers of the measure's type, or `LimitExceeded`."""
        low, high = INTEGER_BOUNDS[measure.type.scalar]
        outside = (self.high < low >> _BITS) | (self.high > high >> _BITS)
        if outside.any():
            total = self._total(int(np.flatnonzero(outside)[0]))
            raise sum_too_large(measure, total, low if total < 0 else high)
        width = np.uint64 if low == 0 else np.int64
        return (self.high.astype(width) << width(_BITS)) | self.low.astype(width)

    def means(self, counts: np.ndarray) -> np.ndarray:
        """The totals divided by counts, each rounded once; 0 where nothing was counted."""
        divisors = np.maximum(counts, 1)
        means: np.ndarray = (self.high * float(2**_BITS) + self.low) / divisors
        limit = _FLOAT_EXACT >> _BITS
        for group in np.flatnonzero((self.high < -limit) | (self.high >= limit)).tolist():
            means[group] = self._total(group) / int(divisors[group])
        return means

    def _total(self, group: int) -> int:
        return (int(self.high[group]) << _BITS) + int(self.low[group])


def totals_of(numbers: np.ndarray, group_of: np.ndarray, count: int) -> Totals:
    """The total of each of `count` groups."""
    width = np.uint64 if numbers.dtype.kind == "u" else np.int64
    numbers = numbers.astype(width, copy=False)
    largest = max(int(numbers.max(initial=0)), -int(numbers.min(initial=0)))
    if count == 1 and largest * len(numbers) < _INTEGER_EXACT:
        return normalised(np.zeros(1, np.int64), np.array([int(numbers.sum())], np.int64))
    if largest * len(numbers) < _FLOAT_EXACT:
        totals = np.bincount(group_of, weights=numbers, minlength=count).astype(np.int64)
        return normalised(np.zeros(count, np.int64), totals)
    high, low = np.zeros(count, np.int64), np.zeros(count, np.int64)
    np.add.at(high, group_of, (numbers >> width(_BITS)).astype(np.int64))
    np.add.at(low, group_of, (numbers & width(_LOW)).astype(np.int64))
    return normalised(high, low)


def normalised(high: np.ndarray, low: np.ndarray) -> Totals:
    """The totals of two halves that were added up apart."""
    return Totals(high + (low >> _BITS), low & _LOW)


def sum_too_large(measure: ir.Measure, total: int, limit: int) -> LimitExceeded:
    """The refusal of a sum that its type cannot hold."""
    operand = "*" if measure.operand is None else expression(measure.operand)
    resource = f"{measure.op}({operand}) as {measure.type.scalar}"
    hint = "sum fewer rows at a time (group them, or narrow the pattern), or ask for avg"
    return LimitExceeded(resource, total, limit, hint)
