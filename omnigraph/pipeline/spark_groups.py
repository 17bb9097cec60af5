"""Group by on Spark: the measures of a plan as Spark's aggregates, and our values of their results.

Invariant: a measure has the value it has in one process. Sums of integers are added up as decimals,
which cannot overflow, and refused where the type of the measure cannot hold them; lists,
percentiles and deviations are made of the values that Spark collected, in ascending order. Sums of
floats are added up in another order, and may differ in their last bits.
"""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from omnigraph.catalog.arrow import arrow_type
from omnigraph.exec.read.codes import encoded
from omnigraph.exec.read.exact_sums import sum_too_large
from omnigraph.exec.read.sorted_runs import Runs
from omnigraph.exec.values.constants import Given
from omnigraph.exec.values.rows import as_numpy
from omnigraph.plan import ir
from omnigraph.plan.expressions import type_of
from omnigraph.types import INTEGER_BOUNDS

Op = ir.AggregateOp

_EXACT = "decimal(38,0)"
_COLLECTED = (Op.COLLECT, Op.PERCENTILE, Op.STDDEV)


def grouped(
    frame: DataFrame, keys: Sequence[Column], measures: Sequence[list[Column]]
) -> DataFrame:
    """The groups of a frame: keys `k0`, `k1`, … and the parts of measures `m0_0`, `m0_1`, …"""
    named = [
        part.alias(f"m{number}_{n}")
        for number, parts in enumerate(measures)
        for n, part in enumerate(parts)
    ]
    if keys:
        by = [key.alias(f"k{number}") for number, key in enumerate(keys)]
        return frame.groupBy(*by).agg(*named) if named else frame.select(*by).distinct()
    return frame.agg(*named)


def measured(measure: ir.Measure, operand: Column | None) -> list[Column]:
    """What Spark aggregates for a measure."""
    if operand is None:
        return [F.count(F.lit(1))]
    once = measure.distinct
    match measure.op:
        case Op.COUNT:
            return [F.count_distinct(operand) if once else F.count(operand)]
        case Op.MIN:
            return [F.min(operand)]
        case Op.MAX:
            return [F.max(operand)]
        case Op.SUM | Op.AVG | Op.SUM_HIGH | Op.SUM_LOW:
            numbers = operand.cast(_EXACT) if _is_exact(measure) else operand.cast("double")
            total = F.sum_distinct(numbers) if once else F.sum(numbers)
            count = F.count_distinct(operand) if once else F.count(operand)
            return [total, count] if measure.op is Op.AVG else [total]
        case Op.COLLECT | Op.PERCENTILE | Op.STDDEV:
            return [F.collect_set(operand) if once else F.collect_list(operand)]


def value_of(measure: ir.Measure, parts: Sequence[pa.Array], given: Given) -> pa.Array:
    """The values of a measure, from what Spark aggregated."""
    first = parts[0]
    if measure.op in _COLLECTED:
        return _of_lists(measure, first, given)
    if measure.op is Op.AVG:
        return _mean(measure, first, parts[1])
    if pa.types.is_decimal(first.type) and measure.op not in (Op.MIN, Op.MAX):
        return _integers(measure, first)
    return first.cast(arrow_type(measure.type))


def _is_exact(measure: ir.Measure) -> bool:
    operand = measure.operand
    return operand is not None and type_of(operand).scalar in INTEGER_BOUNDS


def _integers(measure: ir.Measure, totals: pa.Array) -> pa.Array:
    low, high = INTEGER_BOUNDS[measure.type.scalar]
    for total in (pc.min(totals).as_py(), pc.max(totals).as_py()):
        if total is not None and not low <= int(total) <= high:
            raise sum_too_large(measure, int(total), low if total < 0 else high)
    return totals.cast(arrow_type(measure.type))


def _mean(measure: ir.Measure, totals: pa.Array, counts: pa.Array) -> pa.Array:
    if not pa.types.is_decimal(totals.type):
        return pc.divide(totals, counts.cast(pa.float64()))
    pairs = zip(totals.to_pylist(), counts.to_pylist(), strict=True)
    means = [None if total is None else int(total) / count for total, count in pairs]
    return pa.array(means, pa.float64())


def _of_lists(measure: ir.Measure, lists: pa.Array, given: Given) -> pa.Array:
    assert measure.operand is not None
    kind = type_of(measure.operand)
    values = lists.flatten().cast(arrow_type(kind))
    counts = as_numpy(pc.list_value_length(lists).fill_null(0)).astype(np.int64)
    owners = np.repeat(np.arange(len(counts)), counts)
    order = np.lexsort((encoded(values).of_rows, owners))
    runs = Runs(values.take(pa.array(order)), counts)
    match measure.op:
        case Op.COLLECT:
            return runs.lists(measure.type)
        case Op.STDDEV:
            return runs.deviations()
        case _:
            assert measure.fraction is not None
            return runs.percentiles(given.of(measure.fraction))
