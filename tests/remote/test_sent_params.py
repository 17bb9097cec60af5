"""Parameters mean over HTTP what they mean locally, and are refused in the same words."""

import math
from array import array
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from fractions import Fraction
from types import MappingProxyType
from uuid import UUID

import numpy as np
import pandas as pd
import pytest

import omnigraph as og
from omnigraph.remote.sent_params import sent_params
from tests.remote.both import Maker

SCHEMA = "node P { k: String @key f: F64? g: F32? s: String? d: Date? bl: Blob? }"
DATA = '{"type":"P","data":{"k":"x","f":1.5,"g":0.1,"s":"keep","d":"2020-01-01"}}\n'
NOON = datetime(2020, 1, 1, 12)


def shown(graph: og.Graph, kind: str, value: object) -> object:
    text = f"query q($a: {kind}) {{ match {{ $p: P }} return {{ $a as a }} }}"
    (row,) = graph.query(text, {"a": value}).rows
    return row["a"]


def stored(graph: og.Graph, prop: str, kind: str, value: object) -> object:
    text = f'query q($a: {kind}) {{ update P set {{ {prop}: $a }} where k = "x" }}'
    graph.mutate(text, {"a": value})
    return graph.entity("node", "P", "x").image.properties[prop]


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        ("String?", pd.NaT, None),
        ("Date?", pd.NaT, None),
        ("I64?", pd.NA, None),
        ("F64", np.float32(0.1), float(np.float32(0.1))),
        ("F64", np.longdouble(1), 1.0),
        ("F64", Decimal("0.5"), 0.5),
        ("F64", Fraction(1, 2), 0.5),
        ("F64", 2**70, float(2**70)),
        ("Date", date(2020, 1, 1), "2020-01-01"),
        ("Date", np.datetime64("2020-01-01"), "2020-01-01"),
        ("[Date]", np.array(["2020-01-01"], dtype="datetime64[D]"), ["2020-01-01"]),
        ("DateTime", date(2020, 1, 1), "2020-01-01T00:00:00.000Z"),
        ("DateTime", pd.Timestamp("2020-01-01", tz="Europe/Paris"), "2019-12-31T23:00:00.000Z"),
        ("DateTime", pd.Timestamp("2020-01-01T00:00:00.123456789"), "2020-01-01T00:00:00.123Z"),
        ("[DateTime]", [NOON.replace(tzinfo=UTC)], ["2020-01-01T12:00:00.000Z"]),
        ("[I64]", array("i", [1, 2]), [1, 2]),
        ("[I64]", [np.int64(1)], [1]),
        ("[String]", np.array(["a", "b"]), ["a", "b"]),
        ("U64", 2**64 - 1, 2**64 - 1),
    ],
    ids=repr,
)
def test_a_parameter_of_any_library_has_one_meaning(
    new: Maker, kind: str, value: object, expected: object
) -> None:
    assert shown(new(SCHEMA, DATA), kind, value) == expected


@pytest.mark.parametrize(
    ("kind", "value", "said"),
    [
        ("F64", math.nan, "expected a finite float"),
        ("F64?", math.inf, "expected a finite float"),
        ("F64?", np.float64("nan"), "expected a finite float"),
        ("[F64]", [math.nan], "expected a finite float"),
        ("Vector(2)", [1.0, math.inf], "expected a finite float"),
        ("String?", math.nan, "expected string, got number"),
        ("String", UUID(int=5), "expected string, got UUID"),
        ("String", date(2020, 1, 1), "expected string, got date"),
        ("String", b"a", "expected string, got bytes"),
        ("String", {"a": 1}, "expected string, got object"),
        ("I64", Decimal(3), "expected integer, got Decimal"),
        ("I64", Fraction(3), "expected integer, got Fraction"),
        ("I64", 2**70, f"value {2**70} exceeds I64"),
        ("I64", 10**5000, "value of thousands of digits exceeds I64"),
        ("F64", 10**5000, "value of thousands of digits exceeds F64"),
        ("I64", np.dtype("int64"), "expected integer, got Int64DType"),
        ("Date", NOON, r"not the moment 2020-01-01 12:00:00; give its date: value.date\(\)"),
        ("Date", pd.Timestamp(NOON), r"give its date: value.date\(\)"),
        ("[I64]", {1}, "expected array, got set"),
        ("[String]", ["a", pd.NA], "expected string, got null"),
    ],
    ids=lambda value: repr(value)[:30] if not isinstance(value, int) else "number",
)
def test_a_parameter_that_does_not_fit_is_refused_in_the_same_words(
    new: Maker, kind: str, value: object, said: str
) -> None:
    with pytest.raises(og.BadRequest, match=f"param 'a': .*{said}"):
        shown(new(SCHEMA, DATA), kind, value)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_number_that_is_not_finite_erases_nothing(new: Maker, value: float) -> None:
    graph = new(SCHEMA, DATA)
    with pytest.raises(og.BadRequest, match="finite"):
        stored(graph, "f", "F64?", value)
    assert graph.entity("node", "P", "x").image.properties["f"] == 1.5


def test_a_missing_value_of_pandas_is_stored_as_null(new: Maker) -> None:
    assert stored(new(SCHEMA, DATA), "s", "String?", pd.NaT) is None


@pytest.mark.parametrize("wrap", [bytes, bytearray, memoryview, np.bytes_])
def test_bytes_are_a_blob(new: Maker, wrap: Callable[[bytes], object]) -> None:
    graph = new(SCHEMA, DATA)
    assert stored(graph, "bl", "Blob", wrap(b"abc")) == "blob:3"
    assert graph.blob("node", "P", "x", "bl").read() == b"abc"


def test_a_float_of_32_bits_finds_what_it_was_stored_as(new: Maker) -> None:
    text = "query q($a: F64) { match { $p: P $p.g = $a } return { $p.k } }"
    assert len(new(SCHEMA, DATA).query(text, {"a": np.float32(0.1)})) == 1


def test_an_unknown_parameter_is_refused_whatever_it_is(new: Maker) -> None:
    graph = new(SCHEMA, DATA)
    text = "query q($a: I64) { match { $p: P } return { $a as a } }"
    given = MappingProxyType({"a": 1, "other": object(), "nan": math.nan, 5: 6})
    with pytest.raises(og.BadRequest, match="unknown parameters 'other', 'nan', '5'; known: a"):
        graph.query(text, given)  # type: ignore[arg-type]


def test_the_parameters_are_those_of_the_query_that_is_named(new: Maker) -> None:
    text = (
        "query one($a: String) { match { $p: P } return { $a as a } }\n"
        "query two($a: Date) { match { $p: P } return { $a as a } }"
    )
    graph = new(SCHEMA, DATA)
    assert graph.query(text, {"a": date(2020, 1, 1)}, name="two").rows == [{"a": "2020-01-01"}]
    with pytest.raises(og.BadRequest, match="expected string, got date"):
        graph.query(text, {"a": date(2020, 1, 1)}, name="one")


def test_a_text_that_does_not_parse_is_told_before_its_parameters(new: Maker) -> None:
    with pytest.raises(og.ParseError):
        new(SCHEMA, DATA).query("query q($a: Date) { match", {"a": date(2020, 1, 1)})


def test_parameters_of_unknown_type_are_sent_as_texts_and_numbers() -> None:
    given = {
        "day": np.datetime64("2020-01-01"),
        "moment": pd.Timestamp("2020-01-01", tz="Europe/Paris"),
        "bytes": b"abc",
        "half": Decimal("0.5"),
        "days": pd.Series([date(2020, 1, 1)]),
        "none": pd.NA,
    }
    assert sent_params(given) == {
        "day": "2020-01-01",
        "moment": "2019-12-31T23:00:00+00:00",
        "bytes": "base64:YWJj",
        "half": 0.5,
        "days": ["2020-01-01"],
        "none": None,
    }


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (math.nan, "expected a finite float"),
        ([Decimal("Infinity")], "expected a finite float"),
        (2**70, "beyond 64 bits"),
        (UUID(int=5), "a UUID has no JSON form"),
    ],
    ids=repr,
)
def test_values_of_unknown_type_that_json_lacks_are_refused(value: object, said: str) -> None:
    with pytest.raises(og.BadRequest, match=f"param 'a': .*{said}"):
        sent_params({"a": value})
