"""Accumulator of a read's batches: partial groups are merged, and cut rows cut, as they come.

Invariant: what is kept of any number of batches gives the result that all their rows would give. It
grows with the groups, with the distinct rows or with the rows that a limit shows; only a read that
returns or collects all its rows keeps all of them, as columns of values.
"""

from time import perf_counter
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from omnigraph.deferred import deferred
from omnigraph.exec.profile import Profile
from omnigraph.exec.read.aggregate import aggregate
from omnigraph.exec.read.context import ColumnsRead, Context, domains_of, load_columns
from omnigraph.exec.read.project import Projector
from omnigraph.exec.values.rows import Rows
from omnigraph.plan import ir

if TYPE_CHECKING:
    from omnigraph.plan.shares import Shares
else:
    Shares = deferred("omnigraph.plan.shares", "Shares")


class AddedUp:
    """What is kept of the batches so far."""

    def __init__(self, shares: Shares, context: Context, shown: ColumnsRead) -> None:
        self._plan = shares.of_share
        self._fold = shares.folded
        self._context = context
        self._shown = shown
        self._parts: list[pa.Table] = []
        self._rows = 0
        self._bytes = 0
        self._folded_at = context.rows_max

    def add(self, rows: Rows, weights: np.ndarray | None = None) -> None:
        """Take a batch."""
        watch = self._context.watch
        load_columns(self._shown, domains_of(rows))
        self._keep(self._projected(self._plan, rows, weights))
        watch.operator = "gather"
        watch.hold(2 * self._bytes)
        if self._fold is not None and self._rows > self._folded_at:
            self._folded(self._fold)

    @property
    def is_full(self) -> bool:
        """Whether it is time to pass on what is kept, when somebody else adds it up."""
        return self._rows >= self._context.rows_max

    @property
    def is_empty(self) -> bool:
        """Whether nothing is kept, not even a batch without rows."""
        return not self._parts

    def taken(self) -> pa.Table:
        """What is kept, in one table; nothing of it is kept any longer."""
        if self._fold is not None and len(self._parts) > 1:
            self._folded(self._fold)
        whole = self._whole()
        self._parts, self._rows, self._bytes = [], 0, 0
        return whole

    def slots(self) -> Rows:
        """What is kept, as rows of slots."""
        return _as_rows(self._whole())

    def _whole(self) -> pa.Table:
        return pa.concat_tables(self._parts)

    def _keep(self, part: pa.Table) -> None:
        self._parts.append(part)
        self._rows += part.num_rows
        self._bytes += part.nbytes

    def _folded(self, plan: ir.ReadPlan) -> None:
        folded = self._projected(plan, self.slots(), None)
        self._parts, self._rows, self._bytes = [], 0, 0
        self._keep(folded)
        self._folded_at = max(self._context.rows_max, 2 * self._rows)

    def _projected(self, plan: ir.ReadPlan, rows: Rows, weights: np.ndarray | None) -> pa.Table:
        context = self._context
        projector = Projector(plan, context)
        if plan.aggregate is None:
            values, length = projector.project(rows, Profile(), perf_counter())
        else:
            cache = context.tables.holdings.cache
            groups = aggregate(plan.aggregate, rows, context.evaluator, cache, weights)
            values, length = projector.project(groups, Profile(), perf_counter())
        names = [column.name for column in plan.columns]
        if not names:  # rows that nobody reads are still rows
            return pa.table({ROWS_ALONE: pa.nulls(length)})
        return pa.Table.from_arrays(list(values), names=names)


ROWS_ALONE = "rows"
"""The column of a part whose rows have no values."""


def _as_rows(table: pa.Table) -> Rows:
    slots = {ir.Slot(name): table[name].combine_chunks() for name in table.column_names}
    return Rows(table.num_rows, {}, slots)
