"""Aggregation: group by, and count, sum, average, least and greatest over each group.

Invariant: groups leave in ascending order of their keys, nulls first, because they are numbered by
codes that order as the keys do. Without keys there is one group, also over no rows. A weighted row
stands for as many equal rows as its weight says.
"""

from collections.abc import Sequence
from typing import assert_never

import numpy as np
import pyarrow as pa

from omnigraph.catalog.arrow import arrow_type
from omnigraph.exec.memory.cache import Cache
from omnigraph.exec.read.codes import (
    Codes,
    codes_of,
    combined,
    first_of_each,
    namesakes,
    present,
)
from omnigraph.exec.read.exact_sums import Totals, totals_of
from omnigraph.exec.read.sorted_runs import Runs
from omnigraph.exec.values.evaluate import Evaluator
from omnigraph.exec.values.rows import ONE_ROW, Rows, as_numpy
from omnigraph.light_dataclass import dataclass
from omnigraph.plan import ir

Op = ir.AggregateOp


@dataclass(frozen=True, slots=True)
class Groups:
    """One row for each group to read its keys from, the codes of these, and the measures."""

    length: int
    examples: Rows
    keys: dict[ir.Expr, Codes]
    measures: dict[ir.Slot, pa.Array]

    def as_rows(self) -> Rows:
        """A row a group: what its keys are read from, and the measures as slots."""
        examples = self.examples
        return Rows(self.length, examples.bindings, {**examples.slots, **self.measures})

    def take(self, chosen: np.ndarray) -> "Groups":
        """Some groups, in this order."""
        index = pa.array(chosen)
        return Groups(
            len(chosen),
            self.examples.take(chosen) if self.keys else self.examples,
            {key: Codes(codes.of_rows[chosen], codes.count) for key, codes in self.keys.items()},
            {slot: values.take(index) for slot, values in self.measures.items()},
        )


def aggregate(
    op: ir.Aggregate,
    rows: Rows,
    evaluator: Evaluator,
    cache: Cache,
    weights: np.ndarray | None = None,
    nodes: Sequence[ir.Var] = (),
) -> Groups:
    """The groups of the rows. With weights only rows are counted. Of `nodes`, which are keys too,
    two that have one id are in two groups."""
    keys = [codes_of(key, rows, evaluator, cache) for key in op.keys]
    if not op.keys:
        groups = Codes(np.broadcast_to(np.int64(0), rows.length), 1)
    else:
        groups = combined([*keys, *namesakes(nodes, rows)], rows.length)
        groups = groups if rows.length else Codes(groups.of_rows, 0)
    examples, codes = ONE_ROW, {}
    if op.keys:
        firsts = first_of_each(groups)
        examples = rows.take(firsts)
        codes = {
            key: Codes(each.of_rows[firsts], each.count)
            for key, each in zip(op.keys, keys, strict=True)
        }
    measurer = _Measurer(rows, groups, evaluator, cache, weights)
    measures = {measure.out: measurer.measure(measure) for measure in op.measures}
    return Groups(groups.count, examples, codes, measures)


class _Measurer:
    """Computes measures over numbered groups."""

    def __init__(
        self,
        rows: Rows,
        groups: Codes,
        evaluator: Evaluator,
        cache: Cache,
        weights: np.ndarray | None,
    ) -> None:
        self._weights = weights
        self._rows = rows
        self._groups = groups
        self._evaluator = evaluator
        self._cache = cache
        self._latest: tuple[ir.Expr, pa.Array] | None = None

    def measure(self, measure: ir.Measure) -> pa.Array:
        if measure.operand is None:
            return pa.array(self._count_rows(measure))
        assert self._weights is None, f"{measure.op} is asked of rows that were not made"
        chosen = self._chosen(measure.operand, distinct=measure.distinct)
        group_of = self._groups.of_rows if chosen is None else self._groups.of_rows[chosen]
        match measure.op:
            case Op.COUNT:
                return pa.array(self._count(group_of))
            case Op.SUM | Op.AVG | Op.SUM_HIGH | Op.SUM_LOW:
                return self._sum(measure, chosen, group_of)
            case Op.MIN | Op.MAX:
                return self._extreme(measure, chosen, group_of)
            case Op.COLLECT | Op.PERCENTILE | Op.STDDEV:
                return self._sorted(measure, chosen, group_of)
            case _:
                assert_never(measure.op)

    def _count_rows(self, measure: ir.Measure) -> np.ndarray:
        group_of = self._groups.of_rows
        if self._weights is None:
            return self._count(group_of)
        totals = totals_of(self._weights, group_of, self._groups.count)
        return totals.integers(measure)

    def _count(self, group_of: np.ndarray) -> np.ndarray:
        if self._groups.count == 1:
            return np.array([len(group_of)], np.int64)
        return np.bincount(group_of, minlength=self._groups.count)

    def _chosen(self, operand: ir.Expr, *, distinct: bool) -> np.ndarray | None:
        """The rows that are counted: those with a value, with `distinct` one for each value of a
        group. None when all are."""
        if not distinct:
            if not isinstance(operand, ir.EntityId) and not self._values(operand).null_count:
                return None
            has_value = self._has_value(operand)
            return None if has_value.all() else np.flatnonzero(has_value)
        codes = codes_of(operand, self._rows, self._evaluator, self._cache)
        pairs = combined([self._groups, codes], self._rows.length)
        firsts = first_of_each(pairs)
        return np.compress(codes.of_rows[firsts] >= 0, firsts)

    def _has_value(self, operand: ir.Expr) -> np.ndarray:
        if isinstance(operand, ir.EntityId):
            return self._rows.bindings[operand.var].positions >= 0
        return present(self._values(operand))

    def _values(self, operand: ir.Expr) -> pa.Array:
        """The values of an operand for all rows, worked out once a measure."""
        if self._latest is None or self._latest[0] is not operand:
            self._latest = operand, self._evaluator.values(operand, self._rows)
        return self._latest[1]

    def _sorted(
        self, measure: ir.Measure, chosen: np.ndarray | None, group_of: np.ndarray
    ) -> pa.Array:
        """A measure over the values of each group in ascending order."""
        assert measure.operand is not None
        chosen = np.arange(self._rows.length) if chosen is None else chosen
        codes = codes_of(measure.operand, self._rows, self._evaluator, self._cache).of_rows
        order = np.lexsort((codes[chosen], group_of))
        values = self._evaluator.values(measure.operand, self._rows.take(chosen[order]))
        runs = Runs(values, self._count(group_of))
        if measure.op is Op.COLLECT:
            return runs.lists(measure.type)
        if measure.op is Op.STDDEV:
            return runs.deviations()
        assert measure.fraction is not None
        return runs.percentiles(self._evaluator.given.of(measure.fraction))

    def _sum(
        self, measure: ir.Measure, chosen: np.ndarray | None, group_of: np.ndarray
    ) -> pa.Array:
        assert measure.operand is not None
        values = self._values(measure.operand)
        if chosen is not None:
            values = values.take(pa.array(chosen))
        numbers, counts = as_numpy(values), self._count(group_of)
        if measure.is_of_integers:
            totals = totals_of(numbers, group_of, self._groups.count)
            return pa.array(_of_integers(measure, totals, counts), mask=counts == 0)
        sums = np.bincount(
            group_of, weights=numbers.astype(np.float64), minlength=self._groups.count
        )
        if measure.op is Op.AVG:
            with np.errstate(invalid="ignore"):
                sums = sums / np.maximum(counts, 1)
        return pa.array(sums.astype(np.float64), mask=counts == 0)

    def _extreme(
        self, measure: ir.Measure, chosen: np.ndarray | None, group_of: np.ndarray
    ) -> pa.Array:
        assert measure.operand is not None
        if not len(group_of):
            return pa.nulls(self._groups.count, arrow_type(measure.type))
        codes = codes_of(measure.operand, self._rows, self._evaluator, self._cache).of_rows
        chosen = np.arange(self._rows.length) if chosen is None else chosen
        ranks = codes[chosen]
        order = np.lexsort((ranks if measure.op is Op.MIN else ~ranks, group_of))
        groups, first = np.unique(group_of[order], return_index=True)
        best = np.full(self._groups.count, -1)
        best[groups] = np.arange(len(groups))
        examples = self._rows.take(chosen[order[first]])
        values = self._evaluator.values(measure.operand, examples)
        return values.take(pa.array(best, mask=best < 0))


def _of_integers(measure: ir.Measure, totals: Totals, counts: np.ndarray) -> np.ndarray:
    """What a measure gives of exact totals."""
    match measure.op:
        case Op.SUM:
            return totals.integers(measure)
        case Op.SUM_HIGH:
            return totals.high
        case Op.SUM_LOW:
            return totals.low
        case Op.AVG:
            return totals.means(counts)
        case Op.COUNT | Op.MIN | Op.MAX | Op.COLLECT | Op.PERCENTILE | Op.STDDEV:
            raise AssertionError(f"{measure.op} needs no total")
        case _:
            assert_never(measure.op)
