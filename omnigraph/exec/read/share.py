"""Shares of a read: a hash partition of its first scan's nodes, and the merge of their groups.

Invariant: an id belongs to one share, the same in every process.
"""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.exec.profile import Figures
from omnigraph.exec.read.aggregate import Groups
from omnigraph.exec.values.buckets import bucket_numbers
from omnigraph.plan.shares import Shares


@dataclass(frozen=True, slots=True)
class Share:
    """One share of several, counted from 0."""

    number: int
    of: int

    def indexes(self, ids: pa.Array) -> np.ndarray:
        """The indexes of those ids that belong to the share."""
        if self.of == 1:
            return np.arange(len(ids))
        numbers = bucket_numbers(pa.table({"id": ids}), ["id"], self.of)
        return np.flatnonzero(numbers == self.number)


@dataclass(frozen=True, slots=True)
class ShareResult:
    """The result of a share: columns of values, and the figures of its run."""

    length: int
    columns: pa.Table
    figures: Figures


def put_together(shares: Shares, groups: Groups) -> Groups:
    """The measures of a plan from those that were added up: counts are whole, averages made."""
    measures = dict(groups.measures)
    for slot in shares.counts:
        measures[slot] = measures[slot].cast(pa.int64())
    for average in shares.averages:
        total, count = measures.pop(average.total), measures.pop(average.count)
        measures[average.out] = pc.divide(total, count.cast(pa.float64()))
    return Groups(groups.length, groups.examples, groups.keys, measures)
