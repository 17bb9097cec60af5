"""Columns of other libraries: timestamps at midnight as dates, too fine ones, Arrow streams."""

from datetime import date, datetime
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

import omnigraph as og
from omnigraph.exec.values import from_columns
from tests.remote.both import Maker

SCHEMA = "node Day { k: I64 @key  on: Date?  at: DateTime? }"
ROWS = 60_000


class Relation:
    """An object that offers its rows as an Arrow stream and nothing else, as DuckDB's do."""

    def __init__(self, table: Any) -> None:
        self._table = table

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._table.__arrow_c_stream__(requested_schema)


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_timestamps_at_midnight_are_dates(new: Maker, unit: str) -> None:
    graph = new(SCHEMA)
    days = np.array(["2024-01-02", "1969-12-31", "NaT"], f"datetime64[{unit}]")
    graph.load(pa.table({"k": [1, 2, 3], "on": pa.array(days)}), "append", type="Day")
    graph.load(
        [{"k": 4, "on": datetime(2024, 1, 2)}, {"k": 5, "on": days[0]}], "append", type="Day"
    )
    rows = graph.query(
        "query q() { match { $d: Day } return { $d.k as k, $d.on as on } order { k } }"
    )
    assert [row["on"] for row in rows] == [
        "2024-01-02",
        "1969-12-31",
        None,
        "2024-01-02",
        "2024-01-02",
    ]


def test_a_time_of_day_is_no_part_of_a_date(new: Maker) -> None:
    graph = new(SCHEMA)
    days = np.array(["2024-01-02", "2024-01-02T00:00:01"], "datetime64[ms]")
    with pytest.raises(og.ConstraintViolated, match=r"row 2: Day\.on must be a date") as refused:
        graph.load(pa.table({"k": [1, 2], "on": pa.array(days)}), "append", type="Day")
    assert refused.value.total == 1


@pytest.mark.parametrize("unit", ["us", "ns"])
def test_refusing_fine_timestamps_reads_a_few_and_counts_all(
    new: Maker, monkeypatch: pytest.MonkeyPatch, unit: str
) -> None:
    read: list[object] = []
    stored = from_columns.stored

    def counted(value: Any, *more: Any) -> Any:
        read.append(value)
        return stored(value, *more)

    monkeypatch.setattr(from_columns, "stored", counted)
    graph = new(SCHEMA)
    fine = np.datetime64("2024-01-01T00:00:00", unit) + np.arange(ROWS) * np.timedelta64(1001, "us")
    fine[0] = np.datetime64("2024-01-01", unit)
    table = pa.table({"k": range(ROWS), "at": pa.array(fine.astype(f"datetime64[{unit}]"))})
    with pytest.raises(og.ConstraintViolated, match="is finer than a millisecond") as refused:
        graph.load(table, "append", type="Day")
    exact = ROWS - len(range(0, ROWS, 1000))
    assert refused.value.total == exact
    assert dict(refused.value.counts) == {"date": exact}
    assert str(refused.value).startswith(f"{exact} rows: Day.at 2024-01-01")
    assert len(read) < 1_000


@pytest.mark.parametrize("make", [pa.table, pl.DataFrame])
def test_an_object_with_an_arrow_stream_is_loaded(new: Maker, make: Any) -> None:
    graph = new(SCHEMA)
    source = Relation(make({"k": [1, 2], "on": [date(2024, 1, 2), None]}))
    assert graph.load(source, "append", type="Day").nodes == {"Day": 2}
    rows = graph.query(
        "query q() { match { $d: Day } return { $d.k as k, $d.on as on } order { k } }"
    )
    assert [dict(row) for row in rows] == [{"k": 1, "on": "2024-01-02"}, {"k": 2, "on": None}]


def test_a_stream_without_columns_is_refused(new: Maker) -> None:
    graph = new(SCHEMA)
    with pytest.raises(og.BadRequest, match="its Arrow stream has no columns"):
        graph.load(Relation(pa.chunked_array([[1, 2]])), "append", type="Day")
