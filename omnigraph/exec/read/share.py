"""Shares of a read: a range partition of its first scan's rows, and the merge of their groups.

Invariant: a row of a table version belongs to one share, the same in every process, because the
order of a version's rows never changes.
"""

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.deferred import deferred
from omnigraph.exec.profile import Figures
from omnigraph.exec.read.aggregate import Groups
from omnigraph.exec.read.exact_sums import Totals, normalised
from omnigraph.exec.values.rows import as_numpy
from omnigraph.light_dataclass import dataclass
from omnigraph.plan import ir

if TYPE_CHECKING:
    from omnigraph.plan.shares import Halves, Shares
else:
    Halves = deferred("omnigraph.plan.shares", "Halves")
    Shares = deferred("omnigraph.plan.shares", "Shares")


@dataclass(frozen=True, slots=True)
class Share:
    """One share of several, counted from 0."""

    number: int
    of: int

    def bounds(self, rows: int) -> tuple[int, int]:
        """The first of a table's rows that belong to the share, and the first that does not."""
        return rows * self.number // self.of, rows * (self.number + 1) // self.of


@dataclass(frozen=True, slots=True)
class ShareResult:
    """The result of a share: columns of values, and the figures of its run."""

    length: int
    columns: pa.Table
    figures: Figures


def put_together(shares: Shares, groups: Groups) -> Groups:
    """The measures of a plan from those that were added up: totals of halves, averages."""
    measures = dict(groups.measures)
    for whole in shares.sums:
        totals, missing = _totals(measures, whole.total)
        measures[whole.measure.out] = pa.array(totals.integers(whole.measure), mask=missing)
    for average in shares.averages:
        count = measures.pop(average.count)
        if isinstance(average.total, Halves):
            totals, missing = _totals(measures, average.total)
            measures[average.out] = pa.array(totals.means(as_numpy(count)), mask=missing)
        else:
            total = measures.pop(average.total)
            measures[average.out] = pc.divide(total, count.cast(pa.float64()))
    return Groups(groups.length, groups.examples, groups.keys, measures)


def _totals(measures: dict[ir.Slot, pa.Array], halves: Halves) -> tuple[Totals, np.ndarray]:
    """The totals of two halves, which leave the measures, and flags of the groups without one."""
    high, low = measures.pop(halves.high), measures.pop(halves.low)
    missing = as_numpy(high.is_null())
    return normalised(*(as_numpy(half.fill_null(0)) for half in (high, low))), missing
