"""Records given as Python objects mean what the same values mean in a pandas table."""

from datetime import date, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import omnigraph as og
from omnigraph.graph import Graph
from tests.exec.bulk import contents

SCHEMA = """
node Item { no: I64 @key  count: I32?  weight: F64?  half: F32?  shown: Bool?  text: String?
            day: Date?  at: DateTime?  marks: [I64]?  face: Vector(2)? }
edge Beside: Item -> Item { gap: I64? }
"""


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    return og.init(tmp_path / "g.omni", SCHEMA)


def item(graph: Graph) -> dict[str, Any]:
    (row,) = contents(graph)["node:Item"]
    return row


@pytest.mark.parametrize(
    ("name", "value", "kept"),
    [
        ("count", np.int64(4), 4),
        ("count", np.uint8(4), 4),
        ("count", 2.0, 2),
        ("count", np.float64(2.0), 2),
        ("count", float("nan"), None),
        ("weight", np.float32(1.5), 1.5),
        ("weight", float("nan"), None),
        ("half", np.int16(3), 3.0),
        ("shown", np.bool_(True), True),
        ("text", np.str_("a"), "a"),
        ("text", float("nan"), None),
        ("text", pd.NA, None),
        ("day", np.datetime64("2024-01-31"), date(2024, 1, 31)),
        ("day", pd.NaT, None),
        ("at", np.datetime64("NaT"), None),
        ("at", np.datetime64("2024-01-31T10:00", "ns"), "2024-01-31 10:00:00+00:00"),
        ("at", np.datetime64("2024-01-31T10:00:00.000000001"), "2024-01-31 10:00:00+00:00"),
        ("marks", np.array([1, 2]), [1, 2]),
        ("marks", [np.int64(1), 2.0], [1, 2]),
        ("face", np.array([1.0, 2.0], "float32"), [1.0, 2.0]),
    ],
)
def test_a_record_takes_the_values_of_numpy_and_pandas(
    graph: Graph, name: str, value: Any, kept: Any
) -> None:
    for record, options in (
        ({"no": np.int64(1), name: value}, {"type": "Item"}),
        ({"type": "Item", "data": {"no": np.int64(1), name: value}}, {}),
    ):
        graph.load([record], "overwrite", **options)
        found = item(graph)[name]
        assert (str(found) if name == "at" and found is not None else found) == kept


def test_the_records_of_a_frame_load_as_the_frame_does(graph: Graph) -> None:
    frame = pd.DataFrame(
        {
            "no": [1, 2],
            "count": [1.0, None],
            "shown": pd.array([True, None], "boolean"),
            "text": ["a", None],
            "at": [datetime(2024, 1, 31), pd.NaT],
            "marks": [[1.0, 2.0], None],
        }
    )
    graph.load(frame, "overwrite", type="Item")
    loaded = contents(graph)
    graph.load(frame.to_dict("records"), "overwrite", type="Item")
    assert contents(graph) == loaded
    ends = pd.DataFrame({"from": [1], "to": [2], "gap": [3.0]})
    graph.load(ends.to_dict("records"), "append", edge="Beside")
    (edge,) = contents(graph)["edge:Beside"]
    assert (edge["src"], edge["dst"], edge["gap"]) == ("1", "2", 3)


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("count", 2.5, "must be an integer, not 2.5"),
        ("count", float("inf"), "must be an integer, not inf"),
        ("marks", [1.5], "must be an integer, not 1.5"),
        ("marks", [None], "holds a null"),
        ("face", [float("nan"), 1.0], "finite number"),
        ("day", 2.0, "must be a date"),
        ("day", datetime(2024, 1, 31, 1), "not a datetime; give its date: value.date()"),
        ("day", np.datetime64("20000-01-01"), "is not a date like"),
    ],
)
def test_a_record_is_refused_where_the_value_does_not_fit(
    graph: Graph, name: str, value: Any, said: str
) -> None:
    with pytest.raises(og.ConstraintViolated, match=said.replace("(", r"\(").replace(")", r"\)")):
        graph.load([{"no": 1, name: value}], "append", type="Item")


def test_lines_of_json_keep_whole_floats_apart_from_integers(graph: Graph, tmp_path: Path) -> None:
    (tmp_path / "flat.jsonl").write_text('{"no": 1, "count": 2.0}\n')
    (tmp_path / "list.jsonl").write_text('{"no": 1, "marks": [1.0]}\n')
    for name in ("flat", "list"):
        with pytest.raises(og.ConstraintViolated, match="must be an integer"):
            graph.load(tmp_path / f"{name}.jsonl", "append", type="Item")


@pytest.mark.parametrize(
    ("key", "kind"), [(1, "an integer"), (None, "null"), (("a",), "an array"), (b"no", "a bytes")]
)
def test_a_key_that_is_no_text_is_a_fault_of_its_row(graph: Graph, key: Any, kind: str) -> None:
    told = rf"row 2: a key of a record must be a string, not {kind} \("
    flat = [{"no": 1}, {"no": 2, key: 3}]
    for records, options in (
        (flat, {"type": "Item"}),
        (flat, {"type": "Item", "columns": {"n": "no"}}),
        ([{"type": "Item", "data": each} for each in flat], {}),
        ([{"type": "Item", "data": {"no": 1}}, {"type": "Item", key: 1, "data": {"no": 2}}], {}),
    ):
        with pytest.raises(og.ConstraintViolated, match=told):
            graph.load(records, "append", **options)
    assert contents(graph) == {}
