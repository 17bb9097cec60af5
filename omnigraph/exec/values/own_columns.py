"""Columns of an update whose values are expressions over the rows that it changes.

Invariant: a value fits its column exactly or the update is refused with the row: an integer keeps
its value, a float column rounds a float to its width, and zero has one sign.
"""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.catalog.arrow import arrow_type
from omnigraph.errors import ExpressionFailed
from omnigraph.exec.values.arithmetic import RowFault
from omnigraph.exec.values.cast_kernels import exact_number
from omnigraph.exec.values.constants import Given
from omnigraph.exec.values.selection import evaluated_over
from omnigraph.plan import mutation_ir
from omnigraph.plan.explain import said


def stored_column(rows: pa.Table, column: mutation_ir.SetColumn, given: Given) -> pa.Array:
    """The values of a property for these rows."""
    values = evaluated_over(rows, column.value, given)
    stored = arrow_type(column.type)
    if not column.type.is_numeric:
        return values if values.type == stored else values.cast(stored)
    try:
        numbers = exact_number(values, column.type)
    except RowFault as fault:
        row = f"id {rows.column('id')[fault.row].as_py()!r}"
        reason = f"{column.name}: {fault.reason}"
        raise ExpressionFailed(reason, said(column.value), row) from None
    return pc.add(numbers, np.zeros(1, stored.to_pandas_dtype())[0]) if _floats(stored) else numbers


def _floats(stored: pa.DataType) -> bool:
    return bool(pa.types.is_floating(stored))
