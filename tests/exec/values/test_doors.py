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
edge Then: Tick -> Tick
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


def test_a_python_moment_that_leaves_the_years_is_refused_by_a_load(graph: Graph) -> None:
    late = datetime.fromisoformat(LATE)
    assert "Event.at" in refused(graph, [{"name": "e", "at": late}], type="Event")


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
FINE = datetime(1970, 1, 1, microsecond=1)


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("whole", WIDE, str(WIDE)),
        ("whole", -WIDE, str(-WIDE)),
        ("half", WIDE_32, str(WIDE_32)),
        ("half", Decimal(WIDE_32), str(WIDE_32)),
        ("marks", [1, WIDE], str(WIDE)),
        ("face", [0, WIDE_32], str(WIDE_32)),
    ],
)
def test_what_a_column_cannot_hold_exactly_is_refused_by_a_load(
    graph: Graph, name: str, value: Any, said: str
) -> None:
    text = refused(graph, [{"name": "e", name: value}], type="Event")
    assert f"Event.{name}" in text
    assert said in text
    if not isinstance(value, Decimal):
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
    if name in ("at", "all"):
        assert "is finer than a millisecond" in said
        assert "date_trunc('millisecond', t)" in said, "how to cut them"


def test_an_end_column_finer_than_a_millisecond_is_refused(graph: Graph) -> None:
    graph.load([{"at": 0}], "append", type="Tick")
    for column in (pa.array([1], pa.timestamp("us")), pa.array([1], pa.timestamp("ns"))):
        said = refused(graph, pa.table({"from": column, "to": column}), edge="Then")
        assert "is finer than a millisecond" in said
    graph.load([{"from": FINE, "to": datetime(1970, 1, 1)}], "append", edge="Then")


def test_a_cell_of_text_that_would_be_rounded_is_refused(graph: Graph, tmp_path: Path) -> None:
    for name, cell in (("whole", WIDE), ("half", WIDE_32)):
        (tmp_path / "e.csv").write_text(f"name,{name}\na,\ne,{cell}\n")
        assert str(cell) in refused(graph, tmp_path / "e.csv", type="Event")


@pytest.mark.parametrize(
    ("kind", "name", "value"),
    [
        ("I64", "whole", WIDE),
        ("I64", "half", WIDE_32),
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


# Moments finer than a millisecond: cut toward the past, and said


CUT = [
    ("2024-01-31T10:00:00.123456Z", "2024-01-31T10:00:00.123Z"),
    ("2024-01-31T10:00:00.1239999+02:00", "2024-01-31T08:00:00.123Z"),
    ("2024-01-31T10:00:00.000000001Z", "2024-01-31T10:00:00.000Z"),
    ("1969-12-31T23:59:59.999999Z", "1969-12-31T23:59:59.999Z"),
    ("1969-12-31 23:59:58.0001", "1969-12-31T23:59:58.000Z"),
    (datetime(2024, 1, 31, microsecond=999_999), "2024-01-31T00:00:00.999Z"),
    (datetime(1960, 1, 1, microsecond=1, tzinfo=UTC), "1960-01-01T00:00:00.000Z"),
    (pd.Timestamp("1969-12-31T23:59:59.999999999"), "1969-12-31T23:59:59.999Z"),
]


def moments(graph: Graph) -> list[str]:
    return [row["e.at"] for row in graph.query(ALL).rows]


@pytest.mark.parametrize(("value", "kept"), CUT)
def test_a_moment_with_microseconds_is_loaded_cut_and_said(
    graph: Graph, tmp_path: Path, value: Any, kept: str
) -> None:
    rows = [{"name": "a"}, {"name": "b", "at": value, "all": [value, 0, value]}]
    done = graph.load(rows, "merge", type="Event")
    assert done.rounded == {"Event.all": 2, "Event.at": 1}
    if isinstance(value, str):
        line = {"type": "Event", "data": rows[1]}
        data = json.dumps(line).encode() + b"\n"
        for options in ({}, {"permissive": True}):
            assert graph.load(data, "merge", **options).rounded == done.rounded
        (tmp_path / "e.csv").write_text(f"name,at\nc,{value}\nd,\n")
        assert graph.load(tmp_path / "e.csv", "merge", type="Event").rounded == {"Event.at": 1}
        table = pa.table({"name": ["e"], "at": [value]})
        assert graph.load(table, "merge", type="Event").rounded == {"Event.at": 1}
    assert set(moments(graph)) - {None} == {kept}
    assert graph.load([{"at": value}], "merge", type="Tick").rounded == {"Tick.at": 1}
    ticks = graph.query("query t() { match { $t: Tick } return { $t.at } }").rows
    assert [row["t.at"] for row in ticks] == [kept], "a key too"


@pytest.mark.parametrize(("value", "kept"), CUT)
def test_a_moment_with_microseconds_is_a_parameter_cut_and_said(
    graph: Graph, value: Any, kept: str
) -> None:
    assert graph.mutate(ADD.format("DateTime", "at"), {"v": value}).rounded == {"Event.at": 1}
    assert moments(graph) == [kept]
    same = "query same($v: DateTime) { match { $e: Event { at: $v } } return { $e.at } }"
    assert [row["e.at"] for row in graph.query(same, {"v": value}).rows] == [kept]
    text = 'query set($v: [DateTime]) { update Event set { all: $v } where name = "e" }'
    assert graph.mutate(text, {"v": [value, value]}).rounded == {"Event.all": 2}


def test_the_current_time_of_python_is_a_parameter(graph: Graph) -> None:
    moment = datetime.now(UTC).replace(microsecond=123_456)
    done = graph.mutate(ADD.format("DateTime", "at"), {"v": moment})
    assert moments(graph) == [moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")]
    assert done.rounded == {"Event.at": 1}
    graph.mutate(ADD.format("DateTime", "at"), {"v": datetime.now()})


def test_a_literal_with_microseconds_is_cut_and_said(graph: Graph) -> None:
    moment = 'datetime("1969-12-31T23:59:59.9999Z")'
    done = graph.mutate(f'query add() {{ insert Event {{ name: "e", at: {moment} }} }}')
    assert done.rounded == {"Event.at": 1}
    assert moments(graph) == ["1969-12-31T23:59:59.999Z"]
    same = f"query same() {{ match {{ $e: Event  $e.at = {moment} }} return {{ $e.name }} }}"
    assert len(graph.query(same).rows) == 1


def test_nothing_is_said_of_moments_that_are_kept(graph: Graph) -> None:
    whole = "2024-01-31T10:00:00.123000Z"
    assert graph.load(event(at=whole), "append").rounded == {}
    assert graph.mutate(ADD.format("DateTime", "at"), {"v": whole}).rounded == {}
    assert graph.load(event(at=12), "merge").rounded == {}


def test_an_answer_to_a_merge_conflict_may_have_microseconds(graph: Graph) -> None:
    graph.load(event(at=0), "append")
    graph.branches.create("side")
    graph.load(event(at=1), "merge")
    graph.load(event(at=2), "merge", branch="side")
    answer = {("Event", "e"): {"at": "1969-12-31T23:59:59.9999Z"}}
    graph.branches.merge("side", resolve=answer)
    assert moments(graph) == ["1969-12-31T23:59:59.999Z"]
