"""Every door holds a value to the same rules: records, columns, parameters, literals and keys."""

from datetime import UTC, date, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

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
