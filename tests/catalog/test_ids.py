"""Ids that follow from keys."""

import math
import random
import struct
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omnigraph.catalog.accept import accept
from omnigraph.catalog.ids import KeyValue, NamedKey, canonical_text, entity_id, key_text
from omnigraph.errors import BadRequest
from omnigraph.types import Scalar, ValueType
from tests.catalog.evolution import evolve

F32, F64 = ValueType(Scalar.F32), ValueType(Scalar.F64)


def test_the_id_of_a_single_key_is_the_value() -> None:
    node = accept("node Person { name: String @key }").nodes["Person"]

    assert entity_id(node, {"name": "Ada"}) == "Ada"


def test_a_composite_id_lists_its_parts_by_property_id() -> None:
    node = accept("node Ticket { tenant: String number: I64 @key(tenant, number) }").nodes["Ticket"]

    assert entity_id(node, {"tenant": "acme", "number": 42}) == '["42","acme"]'


def test_a_composite_id_is_compact_json_whatever_is_in_it() -> None:
    node = accept("node A { a: String b: String @key(a, b) }").nodes["A"]

    assert entity_id(node, {"a": 'say "é"', "b": "x\ny"}) == '["say \\"é\\"","x\\ny"]'


def test_a_rename_does_not_change_a_composite_id() -> None:
    old = accept("node A { a: String b: String @key(a, b) }")
    new = evolve(old, 'node A { z: String @rename_from("a") b: String @key(z, b) }')

    assert entity_id(old.nodes["A"], {"a": "1", "b": "2"}) == '["1","2"]'
    assert entity_id(new.nodes["A"], {"z": "1", "b": "2"}) == '["1","2"]'


def test_a_type_without_key_has_no_id_of_its_own() -> None:
    assert entity_id(accept("node Log { text: String }").nodes["Log"], {"text": "x"}) is None


@pytest.mark.parametrize("values", [{}, {"name": None}])
def test_a_key_needs_a_value(values: dict[str, None]) -> None:
    node = accept("node Person { name: String @key }").nodes["Person"]

    with pytest.raises(BadRequest, match=r"Person\.name is part of the key"):
        entity_id(node, values)


@pytest.mark.parametrize(
    ("scalar", "value", "text"),
    [
        (Scalar.BOOL, True, "true"),
        (Scalar.BOOL, False, "false"),
        (Scalar.I32, -7, "-7"),
        (Scalar.I64, 2**63 - 1, "9223372036854775807"),
        (Scalar.U64, 2**64 - 1, "18446744073709551615"),
        (Scalar.DATE, date(1970, 1, 2), "1"),
        (Scalar.DATE, date(1969, 12, 31), "-1"),
        (Scalar.DATE, 19000, "19000"),
        (Scalar.DATETIME, datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC), "1000"),
        (Scalar.DATETIME, datetime(1970, 1, 1, 0, 0, 1), "1000"),
        (Scalar.DATETIME, datetime(1970, 1, 1, 1, tzinfo=timezone(timedelta(hours=1))), "0"),
        (Scalar.DATETIME, datetime(1969, 12, 31, 23, 59, 59, 999000, tzinfo=UTC), "-1"),
        (Scalar.DATETIME, 1_700_000_000_123, "1700000000123"),
        (Scalar.F64, 0.1, "0.1"),
        (Scalar.F64, 0.1 + 0.2, "0.30000000000000004"),
        (Scalar.F32, 0.1, "0.1"),
        (Scalar.F32, 0.1 + 0.2, "0.3"),
        (Scalar.F64, -0.0, "0"),
        (Scalar.F32, -0.0, "0"),
        (Scalar.F64, 1.0, "1"),
        (Scalar.F64, 100, "100"),
        (Scalar.F64, -2.5, "-2.5"),
        (Scalar.F64, 1e21, "1000000000000000000000"),
        (Scalar.F64, 1e-7, "0.0000001"),
        (Scalar.F32, 16777216.0, "16777216"),
        (Scalar.F32, 1485376.75, "1485376.8"),  # as near as 1485376.7, and even
    ],
)
def test_each_value_has_one_text(scalar: Scalar, value: KeyValue, text: str) -> None:
    assert canonical_text(ValueType(scalar), value) == text


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("value_type", [F32, F64])
def test_a_float_that_is_not_finite_is_no_key(value_type: ValueType, value: float) -> None:
    with pytest.raises(BadRequest, match="cannot be"):
        canonical_text(value_type, value)


def test_a_float_too_large_for_its_column_is_no_key() -> None:
    with pytest.raises(BadRequest):
        canonical_text(F32, 1e39)
    with pytest.raises(BadRequest):
        canonical_text(F64, 10**400)


@pytest.mark.parametrize(
    ("scalar", "value"),
    [
        (Scalar.STRING, 1),
        (Scalar.BOOL, 1),
        (Scalar.I32, True),
        (Scalar.I32, 2**31),
        (Scalar.U32, -1),
        (Scalar.I64, 1.0),
        (Scalar.F64, "1"),
        (Scalar.DATE, datetime(2020, 1, 1)),
        (Scalar.DATETIME, date(2020, 1, 1)),
        (Scalar.DATE, True),
    ],
)
def test_a_value_of_another_type_is_refused(scalar: Scalar, value: KeyValue) -> None:
    with pytest.raises(BadRequest):
        canonical_text(ValueType(scalar), value)


@settings(max_examples=300, derandomize=True, deadline=None)
@given(value=st.floats(allow_nan=False, allow_infinity=False))
def test_a_double_reads_back_from_its_text(value: float) -> None:
    text = canonical_text(F64, value)

    assert float(text) == value
    assert "e" not in text


def test_a_single_has_the_shortest_text_that_reads_back() -> None:
    chance = random.Random(3)
    bits = [chance.getrandbits(31) for _ in range(1500)] + [
        exponent << 23 for exponent in range(255)
    ]
    values = [struct.unpack("<f", struct.pack("<I", each))[0] for each in bits]
    values = [value for value in values if math.isfinite(value) and value != 0]
    arrow = pc.cast(pa.array(values, pa.float32()), pa.utf8()).to_pylist()

    for value, expected in zip(values, arrow, strict=True):
        found = Decimal(canonical_text(F32, value))
        digits, wanted = len(found.normalize().as_tuple().digits), Decimal(expected).normalize()
        assert digits <= len(wanted.as_tuple().digits)
        assert canonical_text(F32, -value) == f"-{canonical_text(F32, value)}"
        assert pc.cast(pa.array([str(found)]), pa.float32())[0].as_py() == value


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("Ada", "Ada"),
        (42, "42"),
        (True, "true"),
        (date(2020, 1, 1), "2020-01-01"),
        (datetime(2020, 1, 1, 5), "2020-01-01T05:00:00"),
        (["a", 1, date(2020, 1, 1)], '["a","1","2020-01-01"]'),
        ((("a", 1), np.int64(7)), '["[\\"a\\",\\"1\\"]","7"]'),
        ([np.datetime64("2020-01-01")], '["2020-01-01"]'),
    ],
    ids=str,
)
def test_a_key_names_a_node_by_a_text(key: NamedKey, text: str) -> None:
    assert key_text(key) == text


@pytest.mark.parametrize(
    ("key", "said"),
    [
        ([None, 1], "null is no id and no value of a key"),
        ([pd.NaT], "null is no id"),
        ([{"a": 1}], "a dict is no id"),
        ([b"a"], "a bytes is no id"),
        (10**5000, "thousands of digits"),
        ([10**5000], "thousands of digits"),
        ("\ud800", "UTF-8"),
        (["\ud800"], "UTF-8"),
    ],
    ids=["None", "NaT", "dict", "bytes", "huge", "huge part", "surrogate", "surrogate part"],
)
def test_other_values_name_no_node(key: NamedKey, said: str) -> None:
    with pytest.raises(BadRequest, match=said):
        key_text(key)
