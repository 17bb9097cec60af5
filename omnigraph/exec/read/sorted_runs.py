"""Measures over sorted values of groups: lists, percentiles and standard deviations.

Invariant: the values of a group stand together in ascending order, so a measure depends on which
values there are and not on the order in which rows came.
"""

import numpy as np
import pyarrow as pa

from omnigraph.catalog.arrow import arrow_type
from omnigraph.errors import BadRequest
from omnigraph.exec.values.rows import as_numpy
from omnigraph.light_dataclass import dataclass
from omnigraph.plan import ir
from omnigraph.types import ValueType


@dataclass(frozen=True, slots=True)
class Runs:
    """Values group after group, and how many each group has."""

    values: pa.Array
    counts: np.ndarray

    def _starts(self) -> np.ndarray:
        return np.concatenate(([0], np.cumsum(self.counts)))

    def _numbers(self) -> np.ndarray:
        return as_numpy(self.values).astype(np.float64)

    def lists(self, kind: ValueType) -> pa.Array:
        """The values of each group as a list."""
        offsets = pa.array(self._starts().astype(np.int32))
        return pa.ListArray.from_arrays(offsets, self.values).cast(arrow_type(kind))

    def percentiles(self, fraction: ir.Constant) -> pa.Array:
        """The value at a fraction of each group, interpolated."""
        if not isinstance(fraction, int | float) or not 0 <= fraction <= 1:
            raise BadRequest(f"the fraction of percentile is {fraction}", "give one from 0 to 1")
        numbers, starts = self._numbers(), self._starts()[:-1]
        if not len(numbers):
            return pa.nulls(len(self.counts), pa.float64())
        rank = fraction * np.maximum(self.counts - 1, 0)
        low = np.floor(rank).astype(np.int64)
        last = len(numbers) - 1
        below = numbers[np.minimum(starts + low, last)]
        above = numbers[np.minimum(starts + np.minimum(low + 1, self.counts - 1), last)]
        share = rank - low
        with np.errstate(invalid="ignore", over="ignore"):
            between = below + (above - below) * share
        return pa.array(np.where(share == 0, below, between), mask=self.counts == 0)

    def deviations(self) -> pa.Array:
        """The standard deviation of each group, as of a sample."""
        numbers, starts = self._numbers(), self._starts()[:-1]
        several = self.counts > 1
        result = np.zeros(len(self.counts))
        owners = np.repeat(np.arange(len(self.counts)), self.counts)
        divisors = np.maximum(self.counts, 1)
        with np.errstate(invalid="ignore", over="ignore"):
            means = np.bincount(owners, weights=numbers, minlength=len(starts)) / divisors
            squares = (numbers - means[owners]) ** 2
            sums = np.bincount(owners, weights=squares, minlength=len(starts))
            result = np.sqrt(sums / np.maximum(self.counts - 1, 1))
        return pa.array(result, mask=~several)
