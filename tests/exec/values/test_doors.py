"""Every door holds a value to the same rules: records, columns, parameters, literals and keys."""

import json
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import omnigraph as og
from omnigraph.catalog.ids import canonical_text
from omnigraph.graph import Graph
from omnigraph.types import Scalar, ValueType

SCHEMA = """
node Event { name: String @key  at: DateTime?  day: Date?  all: [DateTime]?  days: [Date]?
             half: F32?  whole: F64?  marks: [F64]?  face: Vector(2)? }
node Tick { at: DateTime @key }
"""
ADD = 'query add($v: {}) {{ insert Event {{ name: "e", {}: $v }} }}'
ALL = "query all() { match { $e: Event } return { $e.name, $e.at, $e.day, $e.half, $e.whole } }"
LATE, EARLY = "9999-12-31T23:59:59-14:00", "0001-01-01T00:00:00+14:00"


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    return og.init(tmp_path / "g.omni", SCHEMA)


def refused(graph: Graph, source: Any, mode: str = "append", **options: Any) -> str:
    """The one sentence of a load that is refused."""
    head = graph.snapshot().commit_id
    with pytest.raises(og.Refused) as caught:
        graph.load(source, mode, **options)
    assert graph.snapshot().commit_id == head
    return str(caught.value)


def event(**data: Any) -> list[dict[str, Any]]:
    return [{"type": "Event", "data": {"name": "e", **data}}]


def beyond(kind: pa.DataType, number: int) -> pa.Array:
    """A moment that Python's datetime cannot hold."""
    return pa.array([number], pa.int32() if kind == pa.date32() else pa.int64()).view(kind)


# Moments beyond the years 1 to 9999


@pytest.mark.parametrize("text", [LATE, EARLY])
@pytest.mark.parametrize("name", ["at", "all"])
def test_a_moment_whose_offset_leaves_the_years_is_refused_by_a_load(
    graph: Graph, text: str, name: str
) -> None:
    value = [text] if name == "all" else text
    said = refused(graph, event(**{name: value}))
    assert f"Event.{name}" in said
    assert text in said
    assert "outside the years 1 to 9999" in said


def test_a_key_that_leaves_the_years_is_refused(graph: Graph) -> None:
    assert "outside the years" in refused(graph, [{"type": "Tick", "data": {"at": LATE}}])
    with pytest.raises(og.BadRequest, match="outside the years"):
        graph.mutate("query add($v: DateTime) { insert Tick { at: $v } }", {"v": LATE})
    moment, day = ValueType(Scalar.DATETIME), ValueType(Scalar.DATE)
    for kind, number in ((moment, 253_402_300_800_000), (day, 2_932_897), (day, -719_163)):
        with pytest.raises(og.BadRequest, match="cannot be"):
            canonical_text(kind, number)
    late = datetime(9999, 12, 31, 23, 59, tzinfo=timezone(-timedelta(hours=14)))
    with pytest.raises(og.BadRequest, match="cannot be"):
        canonical_text(moment, late)


@pytest.mark.parametrize("value", [LATE, EARLY, datetime.fromisoformat(LATE), pd.NaT])
def test_a_parameter_that_leaves_the_years_is_refused(graph: Graph, value: Any) -> None:
    with pytest.raises(og.BadRequest, match="param 'v'"):
        graph.mutate(ADD.format("DateTime", "at"), {"v": value})
    asks = "query q($v: DateTime) { match { $e: Event  $e.at < $v } return { $e.name } }"
    with pytest.raises(og.BadRequest, match="param 'v'"):
        graph.query(asks, {"v": value})


def test_a_literal_that_leaves_the_years_is_refused(graph: Graph) -> None:
    insert = f'query add() {{ insert Event {{ name: "e", at: datetime("{LATE}") }} }}'
    with pytest.raises(og.ParseError, match="outside the years"):
        graph.mutate(insert)


@pytest.mark.parametrize("value", [datetime.fromisoformat(LATE), pd.NaT])
def test_a_python_moment_that_leaves_the_years_is_refused_by_a_load(
    graph: Graph, value: Any
) -> None:
    assert "Event.at" in refused(graph, [{"name": "e", "at": value}], type="Event")


@pytest.mark.parametrize(
    ("name", "kind", "number"),
    [
        ("at", pa.timestamp("s"), 253_402_300_800),
        ("at", pa.timestamp("s", "UTC"), 2**62),
        ("at", pa.timestamp("ms", "Asia/Tokyo"), 253_402_300_800_000),
        ("at", pa.timestamp("us"), -62_135_596_800_001_000),
        ("at", pa.date32(), 2_932_897),
        ("at", pa.date64(), 253_402_300_800_000),
        ("day", pa.date32(), 2_932_897),
        ("day", pa.date32(), -719_163),
        ("day", pa.date64(), 86_400_000 * 2_932_897),
    ],
)
def test_a_column_with_moments_that_leave_the_years_is_refused(
    graph: Graph, name: str, kind: pa.DataType, number: int
) -> None:
    moments = pa.concat_arrays([beyond(kind, 0), beyond(kind, number)])
    said = refused(graph, pa.table({"name": ["a", "b"], name: moments}), type="Event")
    assert f"Event.{name}" in said
    assert "outside the years 1 to 9999" in said
    assert "row 2" in said or "line 2" in said


def test_lists_of_moments_that_leave_the_years_are_refused(graph: Graph) -> None:
    offsets = pa.array([0, 1], pa.int32())
    for name, kind, number in (
        ("all", pa.timestamp("ms"), 2**55),
        ("days", pa.date32(), 2_932_897),
    ):
        lists = pa.ListArray.from_arrays(offsets, beyond(kind, number))
        said = refused(graph, pa.table({"name": ["a"], name: lists}), type="Event")
        assert "outside the years 1 to 9999" in said


def test_a_column_of_another_type_is_refused_with_or_without_moments_python_knows(
    graph: Graph,
) -> None:
    for number in (0, 2**62):
        moments = beyond(pa.timestamp("us"), number)
        said = refused(graph, pa.table({"name": ["a"], "whole": moments}), type="Event")
        assert "Event.whole must be a number" in said


def test_the_first_and_the_last_moment_are_kept(graph: Graph) -> None:
    first, last = "0001-01-01T00:00:00.000Z", "9999-12-31T23:59:59.999Z"
    graph.load(event(at=first, day="0001-01-01", all=[first, last]), "append")
    rows = pa.table(
        {
            "name": ["l"],
            "at": beyond(pa.timestamp("us"), 253_402_300_799_999_000),
            "day": beyond(pa.date32(), 2_932_896),
        }
    )
    graph.load(rows, "append", type="Event")
    kept = {row["e.name"]: (row["e.at"], row["e.day"]) for row in graph.query(ALL).rows}
    assert kept == {"e": (first, "0001-01-01"), "l": (last, "9999-12-31")}


@pytest.mark.parametrize("cell", ["--5", "²", "9" * 5000])
def test_a_cell_that_looks_like_a_number_is_refused_as_a_date(
    graph: Graph, tmp_path: Path, cell: str
) -> None:
    (tmp_path / "e.csv").write_text(f"name,day\ne,{cell}\n")
    assert "Event.day" in refused(graph, tmp_path / "e.csv", type="Event")


def test_python_dates_are_kept(graph: Graph) -> None:
    moment = datetime(2024, 1, 31, 10, tzinfo=UTC)
    graph.load([{"name": "e", "at": moment, "day": date(2024, 1, 31)}], "append", type="Event")
    graph.load([{"name": "p", "at": pd.Timestamp(moment)}], "append", type="Event")
    rows = graph.query(ALL).rows
    assert [row["e.at"] for row in rows] == ["2024-01-31T10:00:00.000Z"] * 2


# Numbers and moments that would be rounded


WIDE, WIDE_32 = 2**53 + 1, 2**24 + 1


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("whole", WIDE, str(WIDE)),
        ("whole", -WIDE, str(-WIDE)),
        ("half", WIDE_32, str(WIDE_32)),
        ("half", Decimal(WIDE_32), str(WIDE_32)),
        ("marks", [1, WIDE], str(WIDE)),
        ("face", [0, WIDE_32], str(WIDE_32)),
        ("at", "2024-01-31T10:00:00.1234Z", "2024-01-31T10:00:00.1234Z"),
        ("at", "2024-01-31T10:00:00.0000001Z", "2024-01-31T10:00:00.0000001Z"),
        ("at", datetime(2024, 1, 31, microsecond=1), "2024-01-31"),
        ("at", pd.Timestamp("2024-01-31T10:00:00.000000001"), "2024-01-31"),
        ("all", ["2024-01-31T10:00:00.1234Z"], "2024-01-31T10:00:00.1234Z"),
    ],
)
def test_what_a_column_cannot_hold_exactly_is_refused_by_a_load(
    graph: Graph, name: str, value: Any, said: str
) -> None:
    text = refused(graph, [{"name": "e", name: value}], type="Event")
    assert f"Event.{name}" in text
    assert said in text
    if not isinstance(value, datetime | Decimal):
        lines = [{"name": "a"}, {"name": "b", name: value}]
        data = b"".join(
            json.dumps({"type": "Event", "data": row}).encode() + b"\n" for row in lines
        )
        assert said in refused(graph, data), "many lines at once too"


@pytest.mark.parametrize(
    ("name", "column"),
    [
        ("whole", pa.array([1, WIDE])),
        ("whole", pa.array([1, 2**64 - 1], pa.uint64())),
        ("half", pa.array([1, WIDE_32])),
        ("half", pa.array([1, WIDE_32], pa.int32())),
        ("at", pa.array([0, 1], pa.timestamp("us"))),
        ("at", pa.array([0, -1], pa.timestamp("us", "UTC"))),
        ("at", pa.array([0, 1], pa.timestamp("ns"))),
        ("at", pa.array([0, 1_001_000], pa.timestamp("ns", "Asia/Tokyo"))),
        ("marks", pa.array([[1], [WIDE]])),
        ("all", pa.array([[0], [1]], pa.list_(pa.timestamp("us")))),
    ],
)
def test_a_column_that_would_be_rounded_is_refused(
    graph: Graph, name: str, column: pa.Array
) -> None:
    said = refused(graph, pa.table({"name": ["a", "b"], name: column}), type="Event")
    assert f"Event.{name}" in said
    assert "row 2" in said or "line 2" in said


def test_a_cell_of_text_that_would_be_rounded_is_refused(graph: Graph, tmp_path: Path) -> None:
    for name, cell in (("whole", WIDE), ("half", WIDE_32), ("at", "2024-01-31T10:00:00.1234Z")):
        (tmp_path / "e.csv").write_text(f"name,{name}\na,\ne,{cell}\n")
        assert str(cell) in refused(graph, tmp_path / "e.csv", type="Event")


@pytest.mark.parametrize(
    ("kind", "name", "value"),
    [
        ("I64", "whole", WIDE),
        ("I64", "half", WIDE_32),
        ("DateTime", "at", "2024-01-31T10:00:00.1234Z"),
        ("DateTime", "at", datetime(2024, 1, 31, microsecond=1, tzinfo=UTC)),
        ("F64", "whole", WIDE),
        ("[F64]", "marks", [1, WIDE]),
        ("Vector(2)", "face", [0, WIDE_32]),
    ],
)
def test_a_mutation_refuses_what_a_load_refuses(
    graph: Graph, kind: str, name: str, value: Any
) -> None:
    with pytest.raises(og.BadRequest):
        graph.mutate(ADD.format(kind, name), {"v": value})


def test_a_literal_finer_than_a_millisecond_is_refused(graph: Graph) -> None:
    text = 'query add() { insert Event { name: "e", at: datetime("2024-01-31T10:00:00.0001Z") } }'
    with pytest.raises(og.ParseError, match="finer than a millisecond"):
        graph.mutate(text)


def test_floats_round_to_the_width_and_exact_integers_stay(graph: Graph) -> None:
    rows = [
        {"name": "a", "half": 0.1, "whole": float(WIDE), "marks": [2**53], "face": [0.1, 2**24]},
        {"name": "b", "half": 2**100, "whole": 2**100, "at": "2024-01-31T10:00:00.123000Z"},
        {"name": "c", "half": Decimal("0.1"), "whole": Decimal("0.1")},
    ]
    graph.load(rows, "append", type="Event")
    table = pa.table(
        {
            "name": ["d", "e"],
            "half": pa.array([0.1, 16777217.0]),
            "whole": pa.array([2**53, None]),
            "at": pa.array([1000, -1_000_000], pa.timestamp("us")),
        }
    )
    graph.load(table, "append", type="Event")
    data = '{"type":"Event","data":{"name":"f","half":0.1,"whole":9007199254740993.0}}\n'
    graph.load(data.encode(), "append")
    kept = {row["e.name"]: row for row in graph.query(ALL).rows}
    assert kept["a"]["e.half"] == kept["d"]["e.half"] == kept["f"]["e.half"] == np.float32(0.1)
    assert kept["a"]["e.whole"] == kept["f"]["e.whole"] == 2**53
    assert (kept["b"]["e.half"], kept["b"]["e.whole"]) == (2.0**100, 2.0**100)
    assert kept["b"]["e.at"] == "2024-01-31T10:00:00.123Z"
    assert kept["c"]["e.whole"] == 0.1
    assert (kept["e"]["e.half"], kept["e"]["e.at"]) == (2.0**24, "1969-12-31T23:59:59.000Z")
