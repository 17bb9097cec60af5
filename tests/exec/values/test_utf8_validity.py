"""Texts whose bytes are not UTF-8: found by row, and refused wherever columns come in."""

from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import omnigraph as og
from omnigraph.exec.values.utf8_validity import undecodable
from omnigraph.graph import Graph
from tests.exec.bulk import contents

SCHEMA = """
node Person { name: String @key  note: String?  tags: [String]?  mood: enum(good, bad)?  on: Date? }
edge Knows: Person -> Person
"""
BROKEN = b"\xe1"


def texts(*values: bytes) -> pa.Array:
    """An array of texts with these bytes, whatever they are."""
    offsets = np.cumsum([0, *map(len, values)]).astype(np.int32)
    buffers = pa.py_buffer(offsets), pa.py_buffer(b"".join(values))
    return pa.StringArray.from_buffers(len(values), *buffers)


def is_utf8(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


@given(st.lists(st.binary(max_size=4), max_size=40), st.integers(1, 3), st.booleans())
def test_rows_with_broken_texts_are_found(values: list[bytes], step: int, are_lists: bool) -> None:
    array = texts(*values)
    if are_lists:
        offsets = [*range(0, len(values), step), len(values)]
        array = pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), array)
        rows = [values[a:b] for a, b in pairwise(offsets)]
    else:
        rows = [[value] for value in values]
    wrong = [n for n, row in enumerate(rows) if not all(map(is_utf8, row))]
    assert undecodable(array).tolist() == wrong


def test_they_are_found_among_many_and_in_every_layout() -> None:
    values = [b"fine"] * 5_000
    values[7] = values[4_321] = BROKEN
    many = texts(*values)
    assert undecodable(many).tolist() == [7, 4_321]
    assert undecodable(many.cast(pa.large_utf8())).tolist() == [7, 4_321]
    coded = pa.DictionaryArray.from_arrays(pa.array([1, 0, 1, None]), texts(BROKEN, b"b"))
    assert undecodable(coded).tolist() == [1]
    assert undecodable(pa.array([1, 2])).tolist() == []


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    made = og.init(str(tmp_path / "g.omni"), SCHEMA)
    made.load([{"type": "Person", "data": {"name": "a"}}], "append")
    return made


NAMES = texts(b"b", b"c")
COLUMNS = {
    "key": ("name", pa.table({"name": texts(b"b", BROKEN)})),
    "property": ("note", pa.table({"name": NAMES, "note": texts(b"ok", BROKEN)})),
    "enum": ("mood", pa.table({"name": NAMES, "mood": texts(b"good", BROKEN)})),
    "date": ("on", pa.table({"name": NAMES, "on": texts(b"2024-01-31", BROKEN)})),
    "list": (
        "tags",
        pa.table(
            {
                "name": NAMES,
                "tags": pa.ListArray.from_arrays(
                    pa.array([0, 1, 3], pa.int32()), texts(b"x", b"y", BROKEN)
                ),
            }
        ),
    ),
}


@pytest.mark.parametrize("case", COLUMNS)
@pytest.mark.parametrize("source", ["parquet", "batches", "table"])
def test_a_text_that_is_not_utf8_is_refused_with_its_row(
    graph: Graph, tmp_path: Path, case: str, source: str
) -> None:
    name, table = COLUMNS[case]
    data: object = table
    if source == "batches":
        data = pa.RecordBatchReader.from_batches(table.schema, table.to_batches())
    elif source == "parquet":
        data = tmp_path / "in.parquet"
        pq.write_table(table, data)
    before = contents(graph)
    with pytest.raises(og.ConstraintViolated, match=f"Person.{name} has bytes that are not UTF-8"):
        graph.load(data, "append", type="Person")
    assert contents(graph) == before


def test_an_end_that_is_not_utf8_is_refused_once(graph: Graph) -> None:
    table = pa.table({"from": texts(b"a", BROKEN), "to": texts(b"a", b"a")})
    with pytest.raises(og.ConstraintViolated) as refused:
        graph.load(table, "append", edge="Knows")
    (violation,) = refused.value.violations
    assert violation.property == "from"
    assert "not UTF-8" in violation.text


@pytest.mark.parametrize("owner", ["type", "edge"])
def test_a_column_that_is_broken_is_refused_once(graph: Graph, owner: str) -> None:
    broken = pa.DictionaryArray.from_arrays(
        pa.array([0, 7], pa.int32()), pa.array(["a"]), safe=False
    )
    if owner == "edge":
        table, named = pa.table({"from": broken, "to": texts(b"a", b"a")}), {"edge": "Knows"}
    else:
        table, named = pa.table({"name": broken}), {"type": "Person"}
    with pytest.raises(og.ConstraintViolated, match="a column that cannot be read") as refused:
        graph.load(table, "append", engine="local", **named)
    assert len(refused.value.violations) == 1
