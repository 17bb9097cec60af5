"""What a line of graph NDJSON means, and that reading many at once means the same."""

from collections import Counter
from datetime import UTC, date, datetime
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omnigraph.exec.load.decode import Decoded, Decoder, LineBlock, decode_stream
from omnigraph.exec.load.lines import Lines
from omnigraph.exec.rules.faults import Faults
from tests.exec.bulk import CATALOG, edge, lines, node, person


def decoded(data: bytes) -> Decoded:
    return Decoder(CATALOG).decode(LineBlock(data, 1))


def rows(data: bytes) -> list[dict[str, Any]]:
    done = decoded(data)
    assert not done.faults, [str(v) for _, v in done.faults.listed()]
    return [row for part in done.rows for row in part.table.to_pylist()]


def only(data: bytes) -> dict[str, Any]:
    (row,) = rows(data)
    return row


def refused(*records: Any) -> Faults:
    done = decoded(lines(*records))
    assert done.faults
    return done.faults


def test_every_property_type_is_read() -> None:
    row = only(
        lines(
            person(
                "Ada",
                age=36,
                email="a@b",
                role="admin",
                score=1.5,
                height=2,
                big=2**64 - 1,
                ok=True,
                born="1815-12-10",
                seen="2024-01-31T10:00:00.5Z",
                tags=["x", ""],
                marks=[1, 2.5],
                days=["2020-01-01", 3],
                face=[1, 2],
                pic="base64:aGk=",
            )
        )
    )
    assert row["id"] == row["name"] == "Ada"
    assert (row["age"], row["role"], row["score"], row["height"]) == (36, "admin", 1.5, 2.0)
    assert row["big"] == 2**64 - 1
    assert row["ok"] is True
    assert row["born"] == date(1815, 12, 10)
    assert row["seen"] == datetime(2024, 1, 31, 10, 0, 0, 500_000, tzinfo=UTC)
    assert (row["tags"], row["marks"], row["face"]) == (["x", ""], [1.0, 2.5], [1.0, 2.0])
    assert row["days"] == [date(2020, 1, 1), date(1970, 1, 4)]
    assert row["pic"]["data"] == b"hi"


def test_dates_are_numbers_too() -> None:
    row = only(lines(person("Ada", born=19000, seen=1_700_000_000_123)))
    assert row["born"] == date(2022, 1, 8)
    assert row["seen"] == datetime(2023, 11, 14, 22, 13, 20, 123_000, tzinfo=UTC)


def test_an_empty_blob_is_not_null() -> None:
    assert only(lines(person("Ada", pic="base64:")))["pic"]["data"] == b""


def test_ids_follow_from_keys() -> None:
    assert only(lines(node("Ticket", tenant="acme", number=42)))["id"] == '["42","acme"]'
    assert only(lines(node("Count", n=7)))["id"] == "7"


def test_a_type_without_key_gets_ids_that_ascend_and_differ() -> None:
    ids = [row["id"] for row in rows(lines(*[node("Log", text="x")] * 100))]
    assert len(set(ids)) == 100
    assert ids == sorted(ids)
    assert {len(i) for i in ids} == {26}


def test_a_stated_id_is_kept_and_others_are_made_up() -> None:
    done = decoded(lines(edge("knows", "a", "b", id="e1"), edge("Knows", "b", "a")))
    tables = [part.table.to_pylist() for part in done.rows]
    ids = [row["id"] for part in tables for row in part]
    assert "e1" in ids
    assert len(ids) == 2


def test_blank_lines_and_carriage_returns_are_skipped_and_counted() -> None:
    done = decoded(
        b'\n{"type":"Log","data":{"text":"a"}}\r\n   \n\n{"type":"Log","data":{}, "x":1}'
    )
    assert done.rows[0].lines.to_pylist() == [2]
    assert [v.line for _, v in done.faults.listed()] == [5]


def test_a_byte_order_mark_is_no_part_of_the_first_line() -> None:
    mark = b"\xef\xbb\xbf"
    two = lines(person("Ada"), person("Bob"))
    assert [row["id"] for row in rows(mark + two)] == ["Ada", "Bob"]
    assert rows(mark) == []
    later = decoded(two + mark + lines(person("Cy")))
    assert [violation.rule for _, violation in later.faults.listed()] == ["json"]


def test_mixed_types_keep_their_line_numbers() -> None:
    done = decoded(lines(person("a"), edge("Knows", "a", "a"), person("b"), node("Count", n=1)))
    where = {part.owner.name: part.lines.to_pylist() for part in done.rows}
    assert where == {"Person": [1, 3], "Knows": [2], "Count": [4]}


@pytest.mark.parametrize(
    ("line", "rule"),
    [
        (b"nope", "json"),
        (b'{"type":"Log","data":{"text":"a"}', "json"),
        (b'{"type":"Log","data":{"text":"a"}} {}', "json"),
        (b'{"type":"Person","data":{"name":"a","height":NaN}}', "json"),
        (b"[1]", "json"),
        (b'"x"', "json"),
        (b'{"type":"Log","data":{"text":"\xff"}}', "json"),
        (b'{"type":"Log","data":{"text":"\\ud800"}}', "text"),
        (b'{"type":"Log","type":"Log","data":{"text":"a"}}', "duplicate_member"),
        (b'{"type":"Log","data":{"text":"a","text":"a"}}', "duplicate_member"),
        (b'{"type":"Log","data":{"text":"a","te\\u0078t":"b"}}', "duplicate_member"),
        (b'{"type":"Log","data":{"text":[{"a":1,"a":1}]}}', "duplicate_member"),
        (b'{"data":{"text":"a"}}', "member"),
        (b'{"type":"Log","edge":"Knows"}', "member"),
        (b'{"type":"Log","when":1}', "member"),
        (b'{"type":"Log","from":"a","data":{"text":"a"}}', "member"),
        (b'{"type":"log","data":{"text":"a"}}', "unknown_type"),
        (b'{"edge":"Likes","from":"a","to":"b"}', "unknown_type"),
        (b'{"type":null,"data":{}}', "type"),
        (b'{"type":1,"data":{}}', "type"),
        (b'{"type":"Log","data":null}', "type"),
        (b'{"type":"Log","data":[]}', "type"),
        (b'{"type":"Log","data":{"text":"a","nope":1}}', "property"),
        (b'{"edge":"Knows","from":"a","to":"b","data":{"src":"a"}}', "property"),
        (b'{"type":"Log","data":{"text":"a","_rowid":1}}', "property"),
        (b'{"type":"Log","data":{"text":"a","_tombstone":true}}', "property"),
        (b'{"edge":"Knows","from":"a"}', "required"),
        (b'{"edge":"Knows","from":"a","to":null}', "required"),
        (b'{"edge":"Knows","from":1,"to":"b"}', "type"),
        (b'{"type":"Person","data":{}}', "required"),
        (b'{"type":"Person","data":{"name":null}}', "required"),
        (b'{"type":"Person","data":{"name":"a","id":"b"}}', "key_id"),
        (b'{"type":"Log","data":{"text":"a","id":5}}', "type"),
        (b'{"type":"Log","data":{"text":"a","id":null}}', "type"),
        (b'{"type":"Log","data":{"text":5}}', "type"),
        (b'{"type":"Person","data":{"name":"a","age":1.0}}', "type"),
        (b'{"type":"Person","data":{"name":"a","age":"1"}}', "type"),
        (b'{"type":"Person","data":{"name":"a","age":true}}', "type"),
        (b'{"type":"Person","data":{"name":"a","age":2147483648}}', "out_of_range"),
        (b'{"type":"Person","data":{"name":"a","big":-1}}', "out_of_range"),
        (b'{"type":"Person","data":{"name":"a","score":1e39}}', "out_of_range"),
        (b'{"type":"Person","data":{"name":"a","height":1e400}}', "out_of_range"),
        (b'{"type":"Person","data":{"name":"a","score":16777217}}', "inexact"),
        (b'{"type":"Person","data":{"name":"a","height":9007199254740993}}', "inexact"),
        (b'{"type":"Person","data":{"name":"a","ok":1}}', "type"),
        (b'{"type":"Person","data":{"name":"a","born":"2024-02-30"}}', "date"),
        (b'{"type":"Person","data":{"name":"a","born":"0000-01-01"}}', "date"),
        (b'{"type":"Person","data":{"name":"a","born":1.5}}', "type"),
        (b'{"type":"Person","data":{"name":"a","seen":"yesterday"}}', "date"),
        (b'{"type":"Person","data":{"name":"a","seen":99999999999999999}}', "date"),
        (b'{"type":"Person","data":{"name":"a","tags":"x"}}', "type"),
        (b'{"type":"Person","data":{"name":"a","tags":["x",null]}}', "list"),
        (b'{"type":"Person","data":{"name":"a","tags":["x",1]}}', "type"),
        (b'{"type":"Person","data":{"name":"a","face":[1]}}', "vector"),
        (b'{"type":"Person","data":{"name":"a","face":[1,null]}}', "list"),
        (b'{"type":"Person","data":{"name":"a","pic":"http://x/y"}}', "blob"),
        (b'{"type":"Person","data":{"name":"a","pic":"base64:?"}}', "blob"),
    ],
)
def test_a_bad_line_is_refused_with_its_rule_and_line(line: bytes, rule: str) -> None:
    good = lines(person("first"))
    done = decoded(good + line + b"\n" + lines(person("last")))
    assert dict(done.faults.counts) == {rule: 1}
    ((_, violation),) = done.faults.listed()
    assert violation.line == 2
    assert sum(part.table.num_rows for part in done.rows) == 2


def test_every_bad_property_of_a_record_is_counted() -> None:
    faults = refused(person("a", age="x", ok=3, nope=1))
    assert dict(faults.counts) == {"type": 2, "property": 1}


def test_a_line_with_too_many_tokens_is_refused() -> None:
    record = b'{"type":"Person","data":{"name":"a","tags":[' + b'"",' * 140_000 + b'""]}}'
    assert dict(refused(record).counts) == {"line_tokens": 1}
    text = {"type": "Log", "data": {"text": ",:{}[]" * 100_000}}
    assert rows(lines(text)), "what is inside a string is no token"


def test_a_line_nested_too_deeply_is_refused() -> None:
    faults = refused(b'{"type":' + b"[" * 60_000 + b"]" * 60_000 + b"}")
    assert dict(faults.counts) == {"json": 1}


def test_zero_has_one_sign() -> None:
    row = only(b'{"type":"Person","data":{"name":"a","height":-0.0,"score":-0,"marks":[-0.0]}}')
    assert str(row["height"]) == str(row["score"]) == str(row["marks"][0]) == "0.0"


# The older, forgiving format


def permissive(text: str) -> Decoded:
    return decode_stream(CATALOG, LineBlock(text.encode(), 1))


def test_the_permissive_variant_forgives() -> None:
    done = permissive(
        """{"type": "Person",
            "data": {"name": "a", "age": "old", "nope": 1}}
           {"type":"Count","data":{"id":"007","n":7}} {"type":"Log","data":{"id":"l","text":"t"}}
           {"edge":"owns","from":"007","to":"l"}""",
    )
    assert not done.faults
    found = {part.owner.name: part.table.to_pylist()[0] for part in done.rows}
    assert found["Person"]["age"] is None
    assert found["Count"]["id"] == found["Owns"]["src"] == "7"


def test_the_permissive_variant_still_refuses_what_makes_no_sense() -> None:
    done = permissive('{"type":"Count","data":{"n":7,"id":"8"}}\n{"type":\n"Nope"} [')
    assert dict(done.faults.counts) == {"key_id": 1, "unknown_type": 1, "json": 1}
    assert [v.line for _, v in done.faults.listed()] == [1, 2, 3]


# Reading many at once


_TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
_VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**65), 2**65),
    st.floats(allow_nan=False, allow_infinity=False),
    _TEXTS,
    st.sampled_from(
        ["2024-02-29", "2024-01-31T10:00:00Z", "2024-01-31 10:00+02:00", "base64:aGk="]
    ),
    st.lists(st.one_of(_TEXTS, st.integers(-3, 3), st.none(), st.floats(0, 1)), max_size=3),
)
_PROPERTIES = [p.name for p in CATALOG.nodes["Person"].properties]
_FITTING = {
    "age": st.integers(0, 150),
    "email": st.just("a@b"),
    "role": st.sampled_from(["admin", "guest"]),
    "score": st.one_of(
        st.floats(width=32, allow_nan=False, allow_infinity=False), st.integers(-(2**26), 2**26)
    ),
    "height": st.one_of(
        st.floats(allow_nan=False, allow_infinity=False), st.integers(-(2**55), 2**55)
    ),
    "big": st.integers(0, 2**64 - 1),
    "ok": st.booleans(),
    "born": st.one_of(st.dates().map(str), st.integers(-700_000, 2_900_000)),
    "seen": st.one_of(st.datetimes().map(str), st.integers(-(10**12), 10**13)),
    "tags": st.lists(_TEXTS, max_size=3),
    "marks": st.lists(st.floats(allow_nan=False, allow_infinity=False), max_size=3),
    "face": st.lists(st.integers(-9, 9) | st.integers(2**24, 2**25), min_size=2, max_size=2),
    "pic": st.just("base64:aGk="),
}


def _people(values: dict[str, st.SearchStrategy[Any]]) -> st.SearchStrategy[dict[str, Any]]:
    data = st.fixed_dictionaries({"name": _TEXTS}, optional=values)
    return data.map(lambda d: {"type": "Person", "data": d})


_GOOD = _people(_FITTING)
_WILD = _people({name: _VALUES for name in [*_PROPERTIES, "id", "nope"] if name != "name"})
_EDGES = st.builds(
    lambda a, b, d: {"edge": "Knows", "from": a, "to": b, "data": d},
    _TEXTS,
    _TEXTS,
    st.fixed_dictionaries({}, optional={"since": st.dates().map(str), "id": _TEXTS}),
)
_COUNTS = st.integers(-(2**63), 2**63 - 1).map(lambda n: {"type": "Count", "data": {"n": n}})


def _dump(record: Any) -> bytes:
    try:
        return orjson.dumps(record)
    except TypeError:
        import json  # noqa: PLC0415

        return json.dumps(record).encode()


@settings(max_examples=150, deadline=None)
@given(records=st.lists(st.one_of(_GOOD, _GOOD, _EDGES, _COUNTS, _WILD), min_size=1, max_size=8))
def test_reading_many_lines_at_once_means_the_same(records: list[Any]) -> None:
    data = b"".join(_dump(record) + b"\n" for record in records)
    together = decoded(data)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Lines, "are_objects", lambda _: False)
        alone = decoded(data)
    assert _by_line(together) == _by_line(alone)
    assert together.faults.counts == alone.faults.counts
    assert _rounded(together) == _rounded(alone)


def _rounded(done: Decoded) -> Counter[str]:
    return sum((Counter(part.rounded) for part in done.rows), Counter())


def _by_line(done: Decoded) -> dict[int, Any]:
    found: dict[int, Any] = {}
    for part in done.rows:
        listed = zip(
            part.lines.to_pylist(), part.table.to_pylist(), part.given.to_pylist(), strict=True
        )
        for line, row, stated in listed:
            found[line] = (
                part.owner.name,
                stated,
                {k: v for k, v in row.items() if stated or k != "id"},
            )
    return found
