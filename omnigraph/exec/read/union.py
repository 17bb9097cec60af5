"""Union of query results: the rows of one read after those of another, equal ones once or as often.

Invariant: rows keep the order of their own read, and of equal rows the first stays.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from omnigraph.catalog.arrow import arrow_type
from omnigraph.exec.read.codes import combined, encoded, first_of_each
from omnigraph.exec.read.result import QueryResult, plain_columns
from omnigraph.plan import ir


def united(plan: ir.ReadPlan, results: Sequence[QueryResult]) -> QueryResult:
    """The rows of a plan, from the results of its parts."""
    union, first = plan.union, results[0]
    assert union is not None
    declared = [arrow_type(kind) for kind in union.types]
    whole = _columns(first, declared)
    for result, keeps_equal in zip(results[1:], union.keeps_equal, strict=True):
        more = _columns(result, declared)
        whole = [pa.concat_arrays(both) for both in zip(whole, more, strict=True)]
        if not keeps_equal:
            whole = _distinct(whole)
    length = len(whole[0])
    return replace(
        first, _types=union.types, _values=tuple(whole), _length=length, _plan=plan, _parts=results
    )


def _columns(result: QueryResult, declared: Sequence[pa.DataType]) -> list[pa.Array]:
    columns = (column.combine_chunks() for column in plain_columns(result).columns)
    return [column.cast(kind) for column, kind in zip(columns, declared, strict=True)]


def _distinct(columns: list[pa.Array]) -> list[pa.Array]:
    length = len(columns[0])
    firsts = np.sort(first_of_each(combined([encoded(column) for column in columns], length)))
    return [column.take(pa.array(firsts)) for column in columns]
