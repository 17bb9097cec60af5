"""Unwind: each row continued with every element of a list (unnest, lateral explode).

Invariant: the elements of a row come in their order, and a row whose list is null or empty ends.
"""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from omnigraph.exec.read.context import Context
from omnigraph.exec.read.neighbour_batches import spread_in_batches
from omnigraph.exec.values.rows import Rows
from omnigraph.exec.values.text_kernels import list_bounds
from omnigraph.plan import ir


def unwind(
    context: Context, op: ir.Unwind, rows: Rows, rows_max: int | None = None
) -> Iterator[Rows]:
    """One row for each element, no more than `rows_max` at a time."""
    lists = context.evaluator.values(op.items, rows)
    if pa.types.is_null(lists.type):  # a column that this version does not have
        yield rows.take(np.empty(0, np.int64)).put(op.out, pa.nulls(0))
        return
    starts, counts = list_bounds(lists)
    if rows_max is None:
        context.watch.hold(rows.bytes_as(int(counts.sum())))
    for owners, indexes in spread_in_batches(starts, counts, rows_max):
        yield rows.take(owners).put(op.out, lists.values.take(pa.array(indexes)))
