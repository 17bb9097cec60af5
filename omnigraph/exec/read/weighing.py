"""Rows of a pattern for grouping, where a last step that is only counted becomes a weight.

Invariant: a row of weight n stands for n equal rows, which were not made. Rows leave in batches,
and at least one leaves.
"""

from collections.abc import Iterator
from time import perf_counter

import numpy as np

from omnigraph.exec.read.batches import Batches
from omnigraph.exec.read.context import Context
from omnigraph.exec.read.count_walks import pair_counts, walk_counts
from omnigraph.exec.read.expand import degrees, is_single_step
from omnigraph.exec.read.joins import joined
from omnigraph.exec.read.prepare import PreparedPlan
from omnigraph.exec.values.rows import Rows
from omnigraph.plan import ir
from omnigraph.plan.middle_start import Step


class Weighing:
    """The pattern of one running query, and how much of it has to be made."""

    def __init__(self, prepared: PreparedPlan, context: Context, batches: Batches) -> None:
        self._prepared = prepared
        self._context = context
        self._profile = batches.profile
        self._solve = batches.solve

    def batches(
        self, ops: tuple[ir.PatternOp, ...], rows: Rows
    ) -> Iterator[tuple[Rows, np.ndarray | None]]:
        """The rows to group, in batches, and at least one. A last step whose rows are only counted
        is not taken: each row gets the number of rows it would become as its weight."""
        if ops:
            self._context.watch.operator = ops[0]
        rows_max = self._context.rows_max if self._prepared.shares is not None else None
        if self._prepared.closed_pair is not None and len(ops) == 3:
            rows, ops = joined(self._solve(ops[:1], rows)), ops[1:]
            pairs = self._counted_pairs(self._prepared.closed_pair, rows)
            if pairs is not None:
                yield pairs
                return
        if not ops or not self._prepared.counts_last_step:
            for batch in self._solve(ops, rows, rows_max):
                yield batch, None
            return
        length = min(self._prepared.counted_steps, len(ops))
        if length > 1 and _keeps_nodes(ops[:-length]):
            rows, ops = joined(self._solve(ops[:-length], rows)), ops[-length:]
            counted = self._counted_walks(ops, rows)
            if counted is not None:
                yield counted
                return
        star = max(1, min(self._prepared.star_steps, len(ops)))
        for batch in self._solve(ops[:-star], rows, rows_max):
            yield from self._weighed(ops[-star:], batch, rows_max)

    def _weighed(
        self, steps: tuple[ir.PatternOp, ...], rows: Rows, rows_max: int | None
    ) -> Iterator[tuple[Rows, np.ndarray | None]]:
        """Rows weighed by last steps that are only counted, or the rows that they make."""
        if len(steps) > 1 and not all(is_single_step(step, rows) for step in steps):
            for batch in self._solve(steps[:-1], rows, rows_max):
                yield from self._weighed(steps[-1:], batch, rows_max)
            return
        if not is_single_step(steps[0], rows):
            for batch in self._solve(steps, rows, rows_max):
                yield batch, None
            return
        for batch in rows.batches(rows_max):
            weights = np.ones(batch.length, np.int64)
            for step in steps:
                assert isinstance(step, Step)
                self._context.watch.operator = step
                since = perf_counter()
                weights *= degrees(self._context, step, batch)
                self._profile.operator(step, int(weights.sum()), since)
            self._context.watch.tick()
            yield batch.where(weights > 0), weights[weights > 0]

    def _counted_walks(
        self, ops: tuple[ir.PatternOp, ...], rows: Rows
    ) -> tuple[Rows, np.ndarray] | None:
        """The rows that a chain of steps starts from, weighed by the walks from each."""
        steps = [op for op in ops if isinstance(op, ir.Expand | ir.ExpandEdges)]
        self._context.watch.operator = steps[-1]
        since = perf_counter()
        groups = self._prepared.plan.aggregate
        total = groups is not None and not groups.keys
        counted = walk_counts(self._context, steps, rows, total=total)
        if counted is None:
            return None
        rows, counts = counted
        for step, own in zip(steps, counts, strict=True):
            since = self._profile.operator(step, int(own.sum()), since)
        self._context.watch.tick()
        weights = counts[-1]
        return rows.where(weights > 0), weights[weights > 0]

    def _counted_pairs(
        self, steps: tuple[ir.Expand, ir.Expand], rows: Rows
    ) -> tuple[Rows, np.ndarray] | None:
        """One row, weighed by the pairs of nodes that two steps have in common."""
        self._context.watch.operator = steps[-1]
        since = perf_counter()
        counts = pair_counts(self._context, steps, rows)
        if counts is None:
            return None
        for step, count in zip(steps, counts, strict=True):
            since = self._profile.operator(step, count, since)
        self._context.watch.tick()
        return Rows(1, {}, {}), np.array([counts[-1]])


def _keeps_nodes(ops: tuple[ir.PatternOp, ...]) -> bool:
    """Whether operators make no more rows than a table has."""
    return all(
        isinstance(op, ir.Filter) or (op is ops[0] and isinstance(op, ir.NodeScan)) for op in ops
    )
