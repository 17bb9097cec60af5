"""Parameter values: what is accepted, and what each refusal says."""

import datetime

import numpy
import pandas
import pytest

from omnigraph.errors import BadRequest
from omnigraph.language.query.parser import parse_queries
from omnigraph.plan.ir import Parameter
from omnigraph.plan.params import bind_parameters

A_MOMENT = (
    "param 'x': expected date string, not the moment 1970-01-02 00:00:00; "
    "give its date: value.date()"
)


def declared(text: str) -> tuple[Parameter, ...]:
    (query,) = parse_queries(f"query q({text}) {{ match {{ $p: P }} return {{ $p }} }}").queries
    return tuple(Parameter(p.name, p.type) for p in query.parameters)


@pytest.mark.parametrize(
    ("type_text", "given", "bound"),
    [
        ("String", "a", "a"),
        ("Blob", "base64:aGk=", "base64:aGk="),
        ("Bool", True, True),
        ("I32", -(2**31), -(2**31)),
        ("I32", "-12", -12),
        ("I64", 2**63 - 1, 2**63 - 1),
        ("U32", "4294967295", 2**32 - 1),
        ("U64", 2**64 - 1, 2**64 - 1),
        ("F32", 3, 3.0),
        ("F64", 2.5, 2.5),
        ("Date", "1970-01-02", 1),
        ("Date", datetime.date(1969, 12, 31), -1),
        ("DateTime", "1970-01-01T00:00:01.5Z", 1500),
        ("DateTime", "1970-01-01T02:00:00+02:00", 0),
        ("DateTime", datetime.datetime(1970, 1, 1, 0, 1), 60_000),
        ("[String]", ["a", "b"], ("a", "b")),
        ("[I32]", [], ()),
        ("[Date]", ["1970-01-02"], (1,)),
        ("Vector(2)", [1, 0.5], (1.0, 0.5)),
        ("Vector(2)", numpy.array([1, 0.5], dtype="float32"), (1.0, 0.5)),
        ("I64", numpy.int64(7), 7),
        ("Bool", numpy.bool_(True), True),
        ("Blob", b"hi", "base64:aGk="),
        ("Date", numpy.datetime64("1970-01-02"), 1),
        ("[Date]", numpy.array(["1970-01-02"], "datetime64[D]"), (1,)),
        ("DateTime", numpy.datetime64("1970-01-01T00:01", "ns"), 60_000),
        ("DateTime", datetime.date(1970, 1, 2), 86_400_000),
        ("Date?", pandas.NaT, None),
        ("I64", 1001.0, 1001),
        ("[I64]", [1001.0, 1002], (1001, 1002)),
        ("DateTime", numpy.datetime64("1970-01-01T00:00:01.5", "ns"), 1500),
        ("[DateTime]", numpy.array(["1970-01-01T00:01"], dtype="datetime64[ns]"), (60_000,)),
        ("String?", None, None),
        ("Vector(3)?", None, None),
    ],
)
def test_a_value_of_the_declared_type_is_bound(
    type_text: str, given: object, bound: object
) -> None:
    assert bind_parameters(declared(f"$x: {type_text}"), {"x": given}) == {"x": bound}


@pytest.mark.parametrize(
    ("type_text", "given", "message"),
    [
        ("String", 3, "param 'x': expected string, got number"),
        ("String", ["a"], "param 'x': expected string, got array"),
        ("Blob", {}, "param 'x': expected string, got object"),
        ("Bool", 1, "param 'x': expected boolean, got number"),
        ("Date", datetime.datetime(1970, 1, 2), A_MOMENT),
        ("String", b"hi", "param 'x': expected string, got bytes"),
        ("String", "a\ud800", "param 'x': the text cannot be written as UTF-8: it holds half of a"),
        ("Blob", "\udfff", "param 'x': the text cannot be written as UTF-8"),
        ("[String]", ["a", "\ud800"], "param 'x': the text cannot be written as UTF-8"),
        ("Date", pandas.Timestamp("1970-01-02"), A_MOMENT),
        ("Date", numpy.datetime64("1970-01-02T00", "ns"), A_MOMENT),
        ("I32", 5_000_000_000, "param 'x': value 5000000000 exceeds I32"),
        ("I32", "5000000000", "param 'x': value 5000000000 exceeds I32"),
        ("U32", -1, "param 'x': value -1 exceeds U32"),
        ("U64", 2**64, f"param 'x': value {2**64} exceeds U64"),
        ("I32", 1.5, "param 'x': expected integer, got number"),
        ("I32", float("inf"), "param 'x': expected integer, got number"),
        ("I32", True, "param 'x': expected integer, got boolean"),
        ("I32", "1.5", "param 'x': expected integer, got string"),
        ("I32", "9" * 5000, "param 'x': expected integer, got string"),
        ("F64", "1.5", "param 'x': expected float"),
        ("F64", True, "param 'x': expected float"),
        ("F64", 10**400, f"param 'x': value {10**400} exceeds F64"),
        ("F64", float("nan"), "param 'x': expected a finite float"),
        ("Date", 3, "param 'x': expected date string"),
        ("Date", "yesterday", "param 'x': expected date string"),
        ("Date", "2024-02-30", "param 'x': expected date string"),
        ("DateTime", 3, "param 'x': expected datetime string"),
        ("DateTime", "2024-01-31T25:00:00Z", "param 'x': expected datetime string"),
        ("[String]", "a", "param 'x': expected array, got string"),
        ("[String]", ["a", None], "param 'x': expected string, got null"),
        ("Vector(2)", [1], "param 'x': expected 2 numbers, got 1"),
        ("Vector(2)", [1, "a"], "param 'x': expected float"),
        ("String", None, "param 'x': null is not accepted for non-nullable parameter"),
    ],
)
def test_another_value_is_refused_by_name(type_text: str, given: object, message: str) -> None:
    with pytest.raises(BadRequest) as caught:
        bind_parameters(declared(f"$x: {type_text}"), {"x": given})

    assert str(caught.value).startswith(message)


def test_a_required_parameter_must_be_given() -> None:
    with pytest.raises(BadRequest, match="parameter 'x' not provided"):
        bind_parameters(declared("$x: String"), {})


def test_a_nullable_parameter_may_be_left_out() -> None:
    assert bind_parameters(declared("$x: String?"), {}) == {"x": None}


@pytest.mark.parametrize(
    ("types", "given", "text"),
    [
        ("", {"y": 3}, "unknown parameter 'y'; the query declares none"),
        ("$since: I64 = 0", {"sinse": 9}, "unknown parameter 'sinse'; did you mean 'since'?"),
        ("$since: I64", {"sinse": 9}, "unknown parameter 'sinse'; did you mean 'since'?"),
        ("$a: I64?, $b: I64?", {"zz": 9, 5: 1}, "unknown parameters 'zz', '5'; known: a, b"),
    ],
)
def test_an_unknown_parameter_is_refused_with_the_near_name(
    types: str, given: dict[object, object], text: str
) -> None:
    with pytest.raises(BadRequest) as refused:
        bind_parameters(declared(types), given)
    assert str(refused.value) == text
    assert refused.value.unknown == tuple(map(str, given))


@pytest.mark.parametrize("empty", [None, {}])
def test_no_parameters_can_be_said_in_two_ways(empty: object) -> None:
    assert bind_parameters((), empty) == {}


@pytest.mark.parametrize("given", [[], "x", 3, [("x", 1)]])
def test_anything_but_an_object_is_refused(given: object) -> None:
    with pytest.raises(BadRequest, match="params must be a JSON object"):
        bind_parameters((), given)
