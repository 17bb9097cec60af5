"""Records of Python are stored over HTTP as locally, and refused in the same words."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID

import numpy as np
import pandas as pd
import pytest

import omnigraph as og
from tests.remote.both import Maker

SCHEMA = """
node P {
    k: String @key
    i: I64?
    f: F64?
    g: F32?
    d: Date?
    m: DateTime?
    li: [I64]?
    lf: [F64]?
    ld: [Date]?
    v: Vector(2)?
    bl: Blob?
    s: String?
}
node Day { d: Date @key }
edge Then: Day -> Day { at: DateTime? }
"""
DATA = '{"type":"P","data":{"k":"x","f":1.5,"s":"keep"}}\n'
NOON = datetime(2020, 1, 1, 12)
BERLIN_OF_OLD = timezone(timedelta(minutes=53, seconds=28))


def loaded(graph: og.Graph, prop: str, value: object) -> object:
    graph.load([{"k": "x", prop: value}], "merge", type="P")
    return graph.entity("node", "P", "x").image.properties[prop]


def shown(value: object) -> str:
    """The id of a case: without an address of memory, which differs between processes."""
    return type(value).__name__ if " at 0x" in repr(value) else repr(value)


@pytest.mark.parametrize(
    ("prop", "value", "expected"),
    [
        ("f", math.nan, None),
        ("f", Decimal("0.1"), 0.1),
        ("f", Decimal("NaN"), None),
        ("f", 2**70, float(2**70)),
        ("g", Decimal("0.1"), float(np.float32(0.1))),
        ("lf", [Decimal("0.5"), 1], [0.5, 1.0]),
        ("v", (Decimal("0.5"), 1), [0.5, 1.0]),
        ("d", date(2020, 1, 1), "2020-01-01"),
        ("ld", [date(2020, 1, 1), "2020-01-02"], ["2020-01-01", "2020-01-02"]),
        ("d", pd.NaT, None),
        ("m", NOON, "2020-01-01T12:00:00.000Z"),
        ("m", date(2020, 1, 1), "2020-01-01T00:00:00.000Z"),
        ("m", pd.Timestamp(NOON), "2020-01-01T12:00:00.000Z"),
        ("m", pd.Timestamp("2020-01-01", tz="Europe/Paris"), "2019-12-31T23:00:00.000Z"),
        ("m", datetime(1890, 1, 1, tzinfo=BERLIN_OF_OLD), "1889-12-31T23:06:32.000Z"),
        ("bl", b"abc", "blob:3"),
        ("bl", bytearray(b"abc"), "blob:3"),
        ("bl", memoryview(b"abc"), "blob:3"),
    ],
    ids=shown,
)
def test_a_value_is_stored_as_its_property_reads_it(
    new: Maker, prop: str, value: object, expected: object
) -> None:
    assert loaded(new(SCHEMA, DATA), prop, value) == expected


@pytest.mark.parametrize(
    ("prop", "value", "said"),
    [
        ("f", math.inf, "P.f must be a finite number that fits F64"),
        ("i", math.inf, "P.i must be an integer, not inf"),
        ("lf", [math.nan], "P.lf must be a finite number"),
        ("v", [1.0, math.inf], "P.v must be a finite number"),
        ("i", 2**70, "P.i must lie between"),
        ("i", 10**5000, "P.i must lie between"),
        ("i", 1e30, "P.i must lie between"),
        ("i", Decimal(3), "P.i must be an integer, not a Decimal"),
        ("d", NOON, r"not a datetime; give its date: value.date\(\)"),
        ("d", pd.Timestamp(NOON), r"not a Timestamp; give its date: value.date\(\)"),
        ("s", b"abc", "P.s must be a string, not a bytes"),
        ("s", UUID(int=5), "P.s must be a string, not a UUID"),
        ("s", date(2020, 1, 1), "P.s must be a string, not a date"),
        ("s", {"a": np.int64(1)}, "P.s must be a string, not an object"),
        ("s", "\ud800", "P.s holds half of a surrogate pair"),
        ("s", np.dtype("int64"), "P.s must be a string, not a Int64DType"),
        ("li", {1}, "P.li must be an array, not a set"),
        ("other", NOON, "unknown property 'other' of P"),
    ],
    ids=lambda value: ascii(value)[:30] if not isinstance(value, int) else "number",
)
def test_a_value_that_does_not_fit_is_refused_in_the_same_words(
    new: Maker, prop: str, value: object, said: str
) -> None:
    graph = new(SCHEMA, DATA)
    with pytest.raises(og.ConstraintViolated, match=f"row 1: .*{said}"):
        loaded(graph, prop, value)
    assert graph.entity("node", "P", "x").image.properties["s"] == "keep"


@pytest.mark.parametrize("value", [math.inf, -math.inf, np.float64("inf")])
def test_an_infinity_in_a_patch_erases_nothing(new: Maker, value: float) -> None:
    graph = new(SCHEMA, DATA)
    with pytest.raises(og.ConstraintViolated, match="finite"):
        graph.load([{"k": "x", "f": value}], "patch", type="P")
    assert graph.entity("node", "P", "x").image.properties["f"] == 1.5


def test_a_frame_as_records_is_loaded(new: Maker) -> None:
    frame = pd.DataFrame(
        {
            "k": ["a", "b"],
            "i": [1, None],
            "m": pd.to_datetime(["2020-01-01", None]),
            "v": [np.array([1, 2.0]), None],
        }
    )
    graph = new(SCHEMA)
    graph.load(frame.to_dict("records"), "append", type="P")
    text = "query q() { match { $p: P } return { $p.i, $p.m, $p.v } order { $p.k } }"
    assert graph.query(text).tuples() == [
        (1, "2020-01-01T00:00:00.000Z", [1.0, 2.0]),
        (None, None, None),
    ]


def test_a_moment_that_is_cut_is_counted(new: Maker) -> None:
    graph = new(SCHEMA)
    fine = pd.Timestamp("2020-01-01T00:00:00.123456789")
    done = graph.load([{"k": "a", "m": fine}, {"k": "b", "m": NOON}], "append", type="P")
    assert done.rounded == {"P.m": 1}


@pytest.mark.parametrize(
    "wrap",
    [lambda record: record, lambda record: {"type": "P", "data": record}],
    ids=["flat", "graph"],
)
def test_every_fault_of_the_records_is_told(
    new: Maker, wrap: Callable[[dict[str, Any]], dict[str, Any]]
) -> None:
    graph = new(SCHEMA)
    rows = [{"k": "a", "s": b"x"}, {"k": "b", "i": "three"}, {"k": "c", "f": math.inf}]
    is_flat = "type" not in wrap({})

    def records() -> Iterator[dict[str, Any]]:
        yield from map(wrap, rows)

    with pytest.raises(og.ConstraintViolated) as refused:
        graph.load(records(), "append", type="P" if is_flat else None)
    assert [(each.line, each.property) for each in refused.value.violations] == [
        (1, "s"),
        (2, "i"),
        (3, "f"),
    ]


def test_ends_and_properties_of_edges_are_moments(new: Maker) -> None:
    graph = new(SCHEMA)
    first, second = date(2020, 1, 1), date(2020, 1, 2)
    graph.load([{"d": first}, {"d": second}], "append", type="Day")
    moment = NOON.replace(tzinfo=UTC)
    graph.load([{"from": first, "to": second, "at": moment}], "append", edge="Then")
    text = "query q() { match { $a: Day $a $e:then $b } return { $a.d, $b.d, $e.at } }"
    assert graph.query(text).tuples() == [("2020-01-01", "2020-01-02", "2020-01-01T12:00:00.000Z")]


@dataclass
class Row:
    """An object with the fields of a record."""

    k: str


@pytest.mark.parametrize("record", [Row("a"), np.int64(1), pd.Series({"k": "a"})], ids=shown)
def test_what_is_no_mapping_is_no_record(new: Maker, record: object) -> None:
    with pytest.raises(og.ConstraintViolated, match="row 1: a record must be an object"):
        new(SCHEMA).load([record], "append", type="P")
