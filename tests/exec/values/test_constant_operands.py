"""A constant beside a column gives what a column of that constant gives, errors included."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omnigraph.catalog.arrow import arrow_type
from omnigraph.exec.values.arithmetic import ARITHMETIC, OF_CONSTANTS, RowFault
from omnigraph.exec.values.compare import compare_constant
from omnigraph.exec.values.rows import as_numpy
from omnigraph.plan import ir
from omnigraph.plan.function_types import arithmetic_type
from omnigraph.types import INTEGER_BOUNDS, Scalar, ValueType
from tests.exec.reference import compare

INF, NAN = float("inf"), float("nan")
VALUES: dict[Scalar, st.SearchStrategy[Any]] = {
    **{
        scalar: st.sampled_from((low, low + 1, 0, 1, 7, high - 1, high)) | st.integers(low, high)
        for scalar, (low, high) in INTEGER_BOUNDS.items()
    },
    Scalar.F64: st.sampled_from((0.0, -0.0, 1.5, 1e300, -1e300, 5e-324, INF, NAN)),
}
SCALARS = st.sampled_from(sorted(VALUES))


@settings(max_examples=200, deadline=None)
@given(data=st.data(), function=st.sampled_from(sorted(OF_CONSTANTS)), swapped=st.booleans())
def test_a_constant_operand_is_a_column_of_one_value(
    data: st.DataObject, function: str, swapped: bool
) -> None:
    kinds = [ValueType(data.draw(SCALARS)) for _ in range(2)]
    cells = data.draw(st.lists(st.none() | VALUES[kinds[0].scalar], max_size=5))
    constant = data.draw(VALUES[kinds[1].scalar].filter(lambda x: x != 0 and abs(x) < INF))
    kind = arithmetic_type(*kinds)
    assert kind is not None
    kind = ValueType(Scalar.F64) if function == "divide" else kind
    column = pa.array(cells, arrow_type(kinds[0]))
    stored = arrow_type(kinds[1])
    one, many = pa.scalar(constant, stored), pa.array([constant] * len(cells), stored)
    answers = [
        _answer(function, [other, column] if swapped else [column, other], kind)
        for other in (one, many)
    ]
    assert answers[0] == answers[1]


def _answer(function: str, arguments: list[Any], kind: ValueType) -> Any:
    try:
        return repr(ARITHMETIC[function](arguments, kind).to_pylist())
    except RowFault as fault:
        return fault.row, fault.reason


@given(
    cells=st.lists(st.none() | st.sampled_from((0.0, -0.0, 0.5, -1.5, INF, -INF, NAN)), max_size=6),
    constant=st.sampled_from((0, 0.5, -1.5, 2**60, 0.1)),
    op=st.sampled_from(ir.CompareOp),
    scalar=st.sampled_from((Scalar.F32, Scalar.F64)),
)
def test_NaN_follows_every_constant(
    cells: list[Any], constant: float, op: ir.CompareOp, scalar: Scalar
) -> None:
    kind = ValueType(Scalar.F64)
    column = pa.array(cells, arrow_type(ValueType(scalar)))
    found = compare_constant(op, column, constant, kind).to_pylist()
    assert found == [compare(op, cell, constant) for cell in cells]


@pytest.mark.parametrize("start", [0, 1, 7, 8, 13])
def test_truth_values_of_a_slice_are_unpacked(start: int) -> None:
    values = np.arange(40) % 3 == 0
    array = pa.array(values).slice(start, 21)
    assert as_numpy(array).tolist() == values[start : start + 21].tolist()
    assert as_numpy(pa.array([], pa.bool_())).tolist() == []
