"""Lines of one layout, cut by offsets: what is read is what Arrow's JSON reader reads."""

import json
from typing import Any

import orjson
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omnigraph.exec.load.lines import lines_of
from omnigraph.exec.load.uniform_lines import uniform_table
from omnigraph.exec.values.arrow_json import parse_lines

MEMBERS: dict[str, tuple[pa.DataType, list[str]]] = {
    "name": (
        pa.utf8(),
        ['"a"', '""', '"p12"', '"ä, {b}: [1]"', '"null"', r'"\n"', "null", "1", "true"],
    ),
    "day": (pa.utf8(), ['"2024-01-31"', '"2020-02-02"', '"\x1f"', "19000", "1.5"]),
    "age": (
        pa.int32(),
        ["1", "22", "-3", "0", "-0", "007", "1.0", "2147483648", "null", "+1", "true"],
    ),
    "big": (pa.uint64(), ["18446744073709551615", "7", "-1", "1e3", '"1"', "true"]),
    "ok": (pa.bool_(), ["true", "false", "null", "True", '"true"', "1", "0"]),
    "score": (
        pa.float64(),
        [
            *("0.5", "-12.25", "1e-05", "3", "-0.0", "0", "1E+5", "1.5e3", "1e400"),
            *("01", "-01.5", ".5", "-.5", "5.", "5.e3", "+1", "inf", "NaN", "-", "1 2", "0x1"),
            *("true", '"0.5"'),
        ],
    ),
    "face": (
        pa.list_(pa.float64()),
        [
            *("[0.5,-1]", "[1,2.25]", "[1e-7,0]", "[0.5, -1]", "[3]", "[]", "[01,1]", "[1,.5]"),
            *("[1,2,3]", "[1,null]", "[1,[2]]", "[ 1,2]", "[1,2 ]", "[1 ,2]", '["1","2"]', "null"),
        ],
    ),
    "marks": (
        pa.list_(pa.int64()),
        ["[1,2]", "[-5,0]", "[1.0,2]", "[1]", "[00,1]", "[true,1]", '["1","2"]', "1"],
    ),
    # Items of another JSON type come first: they alone have the layout of a list of numbers.
    "words": (pa.list_(pa.utf8()), ["[1,2]", "[3,4.50]", "[true,false]", '["a","b"]', "[]", '"a"']),
    "flags": (pa.list_(pa.bool_()), ["[1,0]", "[0,1]", "[true,false]", '["true","1"]', "[1]", "1"]),
}
SCHEMA = pa.schema(
    [
        *(pa.field(name, kind) for name, (kind, _) in MEMBERS.items()),
        pa.field("data", pa.struct([(name, kind) for name, (kind, _) in MEMBERS.items()])),
    ]
)
NAMES = st.lists(st.sampled_from(list(MEMBERS)), min_size=1, max_size=4, unique=True)


@st.composite
def blocks(draw: Any) -> bytes:
    """Lines of one layout, or nearly: values that mostly fit, now and then one that does not."""
    names, nested = draw(NAMES), draw(st.one_of(st.just([]), NAMES))
    colon, comma = draw(st.sampled_from([(":", ","), (": ", ", ")]))
    odd = draw(st.booleans())
    # The first two spellings of a value have one layout.
    values = [
        {n: st.sampled_from(MEMBERS[n][1] if odd else MEMBERS[n][1][:2]) for n in each}
        for each in (names, nested)
    ]
    lines = []
    for _ in range(draw(st.integers(1, 4))):
        own, below = (
            comma.join(f'"{name}"{colon}{draw(value)}' for name, value in each.items())
            for each in values
        )
        lines.append(
            f"{{{own}{f'{comma}{chr(34)}data{chr(34)}{colon}{{{below}}}' if below else ''}}}"
        )
    return "\n".join(lines).encode()


@settings(max_examples=300, deadline=None)
@given(data=blocks())
def test_lines_of_one_layout_are_read_as_arrow_reads_them(data: bytes) -> None:
    lines = lines_of(data)
    table = uniform_table(SCHEMA, lines)
    if table is not None:
        table.validate(full=True)
        # As texts: -0.0 equals 0.0.
        assert repr(table.to_pylist()) == repr(parse_lines(SCHEMA, lines.data).to_pylist())


def _spaced(record: Any) -> bytes:
    return json.dumps(record, ensure_ascii=False).encode()


@pytest.mark.parametrize("dumps", [orjson.dumps, _spaced])
def test_lines_as_programs_write_them_are_cut(dumps: Any) -> None:
    """Without this the comparison above could compare nothing."""
    records = [
        {
            "name": f"p{n}, {{it}}",
            "age": n - 2,
            "ok": n % 2 == 0,
            "score": n / 7 - 1,
            "face": [n / 3, -1.5e-9 * n],
            "data": {"name": "ä" * n, "big": n},
        }
        for n in range(20)
    ]
    table = uniform_table(SCHEMA, lines_of(b"\n".join(dumps(each) for each in records)))
    assert table is not None
    rows = [{name: row[name] for name in records[0]} for row in table.to_pylist()]
    for row in rows:
        row["data"] = {name: row["data"][name] for name in ("name", "big")}
    assert rows == records


@pytest.mark.parametrize(
    "other",
    [
        '{"age":1,"name":"a"}',
        '{"name":"a","age":1,"ok":true}',
        '{"name":"a"}',
        '{"name":"a", "age":1}',
        '{"name":"a","age":1 }',
        '{"nome":"a","age":1}',
        '{"name":"a","age":null}',
        r'{"name":"\u0041","age":1}',
        '{"name":"a","age":01}',
        '{"name":"a","age":"1"}',
        '{"name":"a"x,"age":1}',
        '{"name":"a","age":1}{"name":"a","age":1}',
        '{"name":"a","name":"a","age":1}',
    ],
)
def test_a_line_of_another_layout_is_left_to_arrow(other: str) -> None:
    first = b'{"name":"a","age":1}\n'
    assert uniform_table(SCHEMA, lines_of(first * 2)) is not None
    for data in (first + other.encode(), other.encode() + b"\n" + first):
        assert uniform_table(SCHEMA, lines_of(data)) is None
