"""The table of scalars: reading, storing, writing, sorting and filtering agree with each other."""

import math
from datetime import UTC, date, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.catalog.arrow import arrow_type, scalar_of
from omnigraph.catalog.numbers import as_float, as_integer, at_width
from omnigraph.errors import BadRequest, ExternalBlobDenied
from omnigraph.exec.values import from_params
from omnigraph.exec.values.from_input import Unfit, column, no_external, stored
from omnigraph.exec.values.json_text import compact_text, indented_text, ndjson_line
from omnigraph.exec.values.scalars import SCALARS, JsonForm
from omnigraph.exec.values.to_json import json_column
from omnigraph.plan.ir import Parameter
from omnigraph.plan.params import bind_parameters
from omnigraph.types import INTEGER_BOUNDS, Scalar, ValueType

EXAMPLES: dict[Scalar, list[Any]] = {
    Scalar.STRING: ["", "a", "é", "it's"],
    Scalar.BLOB: ["base64:", "base64:eHg="],
    Scalar.BOOL: [False, True],
    **{scalar: [*bounds, 7] for scalar, bounds in INTEGER_BOUNDS.items()},
    Scalar.F32: [-1.5, 0.0, 2.5],
    Scalar.F64: [-1.5, 0.0, 1e300],
    Scalar.DATE: ["0001-01-01", "1970-01-01", "9999-12-31"],
    Scalar.DATETIME: ["0001-01-01T00:00:00.000Z", "2024-01-31T10:00:00.250Z"],
    Scalar.VECTOR: [-1.5, 0.0, 2.5],
}
"""Values of each scalar, as a result writes them and in their order."""

SINGLE = [scalar for scalar in Scalar if scalar is not Scalar.VECTOR]


def test_every_scalar_has_a_row_and_examples() -> None:
    assert set(SCALARS) == set(EXAMPLES) == set(Scalar)


@pytest.mark.parametrize("scalar", SINGLE)
def test_what_is_written_is_read_again(scalar: Scalar) -> None:
    value_type = ValueType(scalar)
    kept = [stored(value, value_type) for value in EXAMPLES[scalar]]
    values = column([*kept, None], value_type)
    assert values.type == arrow_type(value_type)
    if scalar is Scalar.BLOB:
        values = values.field("data")
        assert json_column(values, value_type, JsonForm.RECORD)[:2] == EXAMPLES[scalar]
        return
    for form in JsonForm:
        shown = json_column(values, value_type, form)
        assert shown.pop() is None
        assert [stored(value, value_type) for value in shown] == kept
    assert json_column(values, value_type, JsonForm.RESULT)[:-1] == EXAMPLES[scalar]


@pytest.mark.parametrize("scalar", SINGLE)
def test_a_parameter_means_what_an_input_means(scalar: Scalar) -> None:
    value_type = ValueType(scalar)
    for value in EXAMPLES[scalar]:
        constant = bind_parameters((Parameter("p", value_type),), {"p": value})["p"]
        kept = from_params.stored(constant, value_type, what="it", read=no_external)
        plain = kept["data"] if scalar is Scalar.BLOB else kept
        assert plain == stored(value, value_type)


@pytest.mark.parametrize("scalar", [s for s in SINGLE if SCALARS[s].order is not None])
def test_numbers_sort_as_the_values_do(scalar: Scalar) -> None:
    order = SCALARS[scalar].order
    assert order is not None
    kept = sorted(stored(value, ValueType(scalar)) for value in EXAMPLES[scalar])
    numbers = order(column(kept, ValueType(scalar)))
    assert numbers.dtype == np.int64
    assert (numbers[:-1] < numbers[1:]).all()


@pytest.mark.parametrize("scalar", [s for s in SINGLE if s is not Scalar.BLOB])
def test_a_column_tells_its_scalar(scalar: Scalar) -> None:
    assert scalar_of(arrow_type(ValueType(scalar))) is scalar


@pytest.mark.parametrize("form", JsonForm)
def test_lists_and_vectors_keep_their_nulls(form: JsonForm) -> None:
    lists = ValueType(Scalar.DATE, is_list=True)
    days = column([[0, 1], None, []], lists)
    shown = {
        JsonForm.RESULT: [["1970-01-01", "1970-01-02"], None, []],
        JsonForm.ISO: [["1970-01-01", "1970-01-02"], None, []],
        JsonForm.RECORD: [[0, 1], None, []],
    }
    assert json_column(days, lists, form) == shown[form]
    assert json_column(pa.chunked_array([days, days]), lists, form) == shown[form] * 2
    vectors = ValueType(Scalar.VECTOR, dimension=2)
    places = column([[1.5, 2.0], None], vectors)
    assert json_column(places, vectors, form) == [[1.5, 2.0], None]
    assert json_column(places.slice(1), vectors, form) == [None]
    assert json_column(pa.nulls(2), vectors, form) == [None, None]


def test_results_name_what_json_has_no_number_for() -> None:
    floats = pa.array([math.nan, math.inf, None, -math.inf, 1.0])
    shown = json_column(floats, ValueType(Scalar.F64), JsonForm.RESULT)
    assert shown == ["NaN", "Infinity", None, "-Infinity", 1.0]
    vectors = pa.array([[math.nan, 1.0]], pa.list_(pa.float32(), 2))
    value_type = ValueType(Scalar.VECTOR, dimension=2)
    assert json_column(vectors, value_type, JsonForm.RESULT) == [["NaN", 1.0]]


def test_described_blobs_are_told_by_size_or_address() -> None:
    cells = pa.array([{"size": 3, "blob_uri": ""}, {"size": 0, "blob_uri": "s3://b/k"}, None])
    shown = json_column(cells, ValueType(Scalar.BLOB), JsonForm.RECORD)
    assert shown == ["blob:3", "s3://b/k", None]


def test_python_dates_are_values_too() -> None:
    assert stored(date(1970, 1, 2), ValueType(Scalar.DATE)) == 1
    assert stored(datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC), ValueType(Scalar.DATETIME)) == 1000
    with pytest.raises(Unfit, match="must be a date"):
        stored(datetime(1970, 1, 1, tzinfo=UTC), ValueType(Scalar.DATE))


def test_external_addresses_are_read_by_whom_the_caller_names() -> None:
    blob = ValueType(Scalar.BLOB)
    assert stored("s3://b/k", blob, lambda uri: uri.encode()) == b"s3://b/k"
    with pytest.raises(Unfit, match="no configured base allows"):
        stored("s3://b/k", blob)
    with pytest.raises(ExternalBlobDenied):
        from_params.stored("s3://b/k", blob, what="it", read=no_external)
    with pytest.raises(BadRequest, match="its base64 is damaged"):
        from_params.stored("base64:%", blob, what="it", read=no_external)


@given(value=st.integers() | st.floats(), scalar=st.sampled_from(sorted(INTEGER_BOUNDS)))
def test_an_integer_keeps_its_value_or_is_refused(value: int | float, scalar: Scalar) -> None:
    low, high = INTEGER_BOUNDS[scalar]
    number = as_integer(value, scalar)
    if number is None:
        assert value != value or not low <= value <= high or value != math.floor(value)
    else:
        assert number == value
        assert type(number) is int


@given(value=st.integers() | st.floats(), scalar=st.sampled_from([Scalar.F32, Scalar.F64]))
def test_a_float_is_rounded_to_its_width_alone(value: int | float, scalar: Scalar) -> None:
    number = as_float(value, scalar)
    if number is None:
        assert at_width(value, scalar) != value
    elif isinstance(value, int):
        assert number == value
    else:
        with np.errstate(over="ignore"):
            nearest = float(np.float32(value)) if scalar is Scalar.F32 else value
        assert number == nearest or (math.isnan(number) and math.isnan(nearest))


def test_the_encoders_spell_one_document() -> None:
    document = {"é": [1, 1.5, None, "x"], "deep": {"a": True}}
    assert ndjson_line(document).decode() == compact_text(document) + "\n"
    assert indented_text({"a": 1}) == '{\n  "a": 1\n}'
