"""Unwind: each row continued with every element of a list (unnest, lateral explode).

Invariant: the elements of a row come in their order, and a row whose list is null or empty ends.
"""

import numpy as np
import pyarrow as pa

from omnigraph.exec.read.context import Context
from omnigraph.exec.values.rows import Rows
from omnigraph.exec.values.text_kernels import list_bounds
from omnigraph.plan import ir


def unwind(context: Context, op: ir.Unwind, rows: Rows) -> Rows:
    """One row for each element."""
    lists = context.evaluator.values(op.items, rows)
    if pa.types.is_null(lists.type):  # a column that this version does not have
        return rows.take(np.empty(0, np.int64)).put(op.out, pa.nulls(0))
    starts, counts = list_bounds(lists)
    context.watch.hold(rows.bytes_as(int(counts.sum())))
    owners = np.repeat(np.arange(rows.length), counts)
    within = np.arange(len(owners)) - np.repeat(np.cumsum(counts) - counts, counts)
    elements = lists.values.take(pa.array(starts[owners] + within))
    return rows.take(owners).put(op.out, elements)
