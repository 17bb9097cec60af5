"""Exports as CSV: what `load` reads comes back as what it was."""

import io
from pathlib import Path

import pytest

import omnigraph as og

SCHEMA = """
node Paper { doi: String @key, title: String?, day: Date?, tags: [String]?, n: I64?, raw: Blob? }
edge Cites: Paper -> Paper { weight: F64? }
"""
RECORDS = [
    {"type": "Paper", "data": {"doi": "a", "title": "", "day": "2024-01-02", "n": -(2**63)}},
    {"type": "Paper", "data": {"doi": "b", "title": 'say "hi",\r\nand go', "tags": ["x,y", ""]}},
    {"type": "Paper", "data": {"doi": " c ", "title": "null", "raw": "base64:AAEC"}},
    {"edge": "Cites", "from": "a", "to": "b", "data": {"weight": 0.1}},
]


def test_an_export_as_csv_loads_again(tmp_path: Path) -> None:
    graph = og.init(tmp_path / "a.omni", schema=SCHEMA)
    graph.load(RECORDS, "append")
    done = graph.export(f"{tmp_path}/csv/", "csv")
    assert (done.nodes, done.edges) == ({"Paper": 3}, {"Cites": 1})
    again = og.init(tmp_path / "b.omni", schema=SCHEMA)
    again.load(tmp_path / "csv", "append")
    exports = [io.BytesIO(), io.BytesIO()]
    for each, stream in zip((graph, again), exports, strict=True):
        each.export(stream)
    assert exports[0].getvalue() == exports[1].getvalue()


def test_a_csv_file_has_the_rows_of_one_type(tmp_path: Path) -> None:
    graph = og.init(tmp_path / "a.omni", schema=SCHEMA)
    graph.load(RECORDS, "append")
    stream = io.BytesIO()
    with pytest.raises(og.BadRequest, match="one type"):
        graph.export(stream, "csv")
    graph.export(tmp_path / "cites.csv", "csv", types=["Cites"])
    header, row = (tmp_path / "cites.csv").read_text().splitlines()
    assert (header, row.partition(",")[2]) == ("id,from,to,weight", "a,b,0.1")
