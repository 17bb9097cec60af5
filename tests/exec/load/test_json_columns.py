"""NDJSON by columns means what NDJSON by lines means, also for values at a bound of their type.

Lines that are wrong in many ways are read one by one anyway; here a line is right but for a value.
"""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omnigraph.exec.load import decode
from omnigraph.exec.load.lines import Lines
from tests.exec.load.test_decode import (
    _COUNTS,
    _EDGES,
    _GOOD,
    _WILD,
    _by_line,
    _dump,
    _rounded,
    decoded,
)

BOUNDS = {
    "id": ['"a"', '"b"', "null", '""', "1"],
    "age": ["0", "-0", "2147483647", "2147483648", "-2147483649", "1.0", "1e2", "true", '"1"'],
    "role": ['"admin"', '"nobody"', '""', "1", "true"],
    "score": [
        "0.1",
        "-0.0",
        "3.4028235e38",
        "3.4028236e38",
        "1e39",
        "1e-50",
        "16777217",
        "true",
        '"1"',
    ],
    "height": ["-0", "1e308", "1e400", "-1e400", "5e-324", "9007199254740993", "0.1"],
    "big": [
        "0",
        "18446744073709551615",
        "18446744073709551616",
        "-1",
        "-0",
        "1e3",
        "1.0",
        "true",
        '"1"',
    ],
    "ok": ["true", "false", "0", "1", "1.5", '"true"', "[true]"],
    "born": [
        *('"0001-01-01"', '"0000-01-01"', '"9999-12-31"', '"10000-01-01"', '"2023-02-29"'),
        *(
            "-719162",
            "-719163",
            "2932896",
            "2932897",
            "0.0",
            '"2024-1-1"',
            '"2024-01-01T00:00:00Z"',
        ),
    ],
    "seen": [
        *(
            '"2024-01-31T10:00:00Z"',
            '"2024-01-31T10:00:00.1230Z"',
            '"2024-01-31T10:00:00.1234Z"',
            '"2024-01-31 10:00:00Z"',
        ),
        *(
            '"2024-01-31T24:00:00Z"',
            '"2024-01-31T10:00:00+02:00"',
            '"2024-01-31"',
            "253402300799999",
        ),
        *("253402300800000", "-62135596800000", "-62135596800001", '"2024-01-31T10:00:60Z"'),
    ],
    "tags": ["[]", "[null]", '["x", null]', '["x", 1]', "[1, 2]", "[true]", "[[]]", '"x"', "{}"],
    "marks": ["[]", "[-0.0, 1]", "[1e400]", "[null]", "[true]", "[1.5, 2]", '["1"]'],
    "days": ['["2020-01-01"]', "[]", "[3]", "[1.5]", '["2020-02-30"]', "[2932897]", "[null]"],
    "face": ["[1, 2]", "[1]", "[1, 2, 3]", "[1, null]", "[1e39, 0]", "[-0.0, 0.1]", "[]"],
    "pic": ['"base64:"', '"base64:aGk="', '"base64:aGk"', '"base64:aG k="', '"hi"', '""'],
    "email": [
        '"a@b"',
        r'"\ud83d\ude00@b"',
        r'"\ud800@b"',
        r'"a\u0000@b"',
        '"ä@b"',
        "null",
        "1",
        "true",
    ],
    "nope": ["null", "1"],
}
MEMBERS = st.sampled_from([(name, text) for name, texts in BOUNDS.items() for text in texts])
DATA = st.lists(MEMBERS, max_size=2).map(
    lambda members: ", ".join(['"name": "a"', *(f'"{name}": {text}' for name, text in members)])
)
LINES = DATA.map(lambda data: f'{{"type": "Person", "data": {{{data}}}}}')


def read_alike(lines: list[bytes]) -> None:
    data = b"".join(line + b"\n" for line in lines)
    together = decoded(data)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Lines, "are_objects", lambda _: False)
        alone = decoded(data)
    # As texts: -0.0 equals 0.0.
    assert repr(sorted(_by_line(together).items())) == repr(sorted(_by_line(alone).items()))
    assert together.faults.counts == alone.faults.counts
    assert _rounded(together) == _rounded(alone)


@settings(max_examples=200, deadline=None)
@given(lines=st.lists(LINES, min_size=1, max_size=3))
def test_values_at_bounds_are_read_by_columns_as_by_line(lines: list[str]) -> None:
    read_alike([line.encode() for line in lines])


@pytest.mark.parametrize("name", BOUNDS)
def test_each_value_at_a_bound_is_read_by_columns_as_by_line(name: str) -> None:
    for text in BOUNDS[name]:
        read_alike([f'{{"type": "Person", "data": {{"name": "a", "{name}": {text}}}}}'.encode()])


@settings(max_examples=150, deadline=None)
@given(records=st.lists(st.one_of(_GOOD, _GOOD, _EDGES, _COUNTS, _WILD), min_size=1, max_size=8))
def test_any_records_are_read_by_columns_as_by_line(records: list[Any]) -> None:
    read_alike([_dump(record) for record in records])


def test_a_line_with_every_property_is_read_by_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without this the comparisons above could compare the reference with itself."""
    read: list[int] = []
    by_columns = decode.read_lines

    def counted(*arguments: Any) -> Any:
        rows = by_columns(*arguments)
        read.append(rows.table.num_rows)
        return rows

    monkeypatch.setattr(decode, "read_lines", counted)
    members = (f'"{name}": {texts[0]}' for name, texts in BOUNDS.items() if name != "nope")
    line = f'{{"type": "Person", "data": {{"name": "a", {", ".join(members)}}}}}\n'
    assert not decoded(line.encode() * 3).faults
    assert read == [3]
