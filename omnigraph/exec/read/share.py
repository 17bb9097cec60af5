"""One share of a read's nodes, and the groups of many shares as one.

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
    """One of several, counted from 0."""

    number: int
    of: int

    def places(self, ids: pa.Array) -> np.ndarray:
        """Where the ids are that belong to it."""
        if self.of == 1:
            return np.arange(len(ids))
        numbers = bucket_numbers(pa.table({"id": ids}), ["id"], self.of)
        return np.flatnonzero(numbers == self.number)


@dataclass(frozen=True, slots=True)
class Answer:
    """What a share gives: columns of values, and how it came to them."""

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
