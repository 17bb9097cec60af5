"""Flat JSON lines of one type: read by columns they mean what each line means by itself."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omnigraph.catalog.accept import accept
from omnigraph.exec.load import decode
from omnigraph.exec.load.decode import Decoded, Decoder, LineBlock
from omnigraph.exec.load.lines import Lines
from tests.exec.bulk import CATALOG, lines
from tests.exec.load.test_decode import _FITTING, _TEXTS, _VALUES, _by_line, _dump
from tests.exec.load.test_json_columns import BOUNDS

WITH_DEFAULTS = accept(
    """
node Box { n: I64 @key  size: I32? = 3  label: String? = "none"  at: Date?
           words: [String]?  turns: [Bool]? }
edge In: Box -> Box { weight: F64? = 1.5 }
"""
)
RENAME = {"who": "name", "years": "age", "start": "from", "ident": "id"}


def decoded(data: bytes, owner: Any, catalog: Any = CATALOG, **options: Any) -> Decoded:
    return Decoder(catalog, owner=owner, **options).decode(LineBlock(data, 1))


def read_alike(data: bytes, owner: Any, catalog: Any = CATALOG, **options: Any) -> None:
    together = decoded(data, owner, catalog, **options)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Lines, "are_objects", lambda _: False)
        alone = decoded(data, owner, catalog, **options)
    assert repr(sorted(_by_line(together).items())) == repr(sorted(_by_line(alone).items()))
    assert _marks(together) == _marks(alone)
    assert together.faults.counts == alone.faults.counts
    assert together.faults.examples == alone.faults.examples


def _marks(done: Decoded) -> dict[int, set[str]]:
    """The properties that each line of a patch leaves out."""
    marks: dict[int, set[str]] = {}
    for part in done.rows:
        for name, absent in part.absent.items():
            for line, is_absent in zip(part.lines.to_pylist(), absent.to_pylist(), strict=True):
                if is_absent:
                    marks.setdefault(line, set()).add(name)
    return marks


_GOOD = st.fixed_dictionaries({"name": _TEXTS}, optional=_FITTING)
_WILD = st.fixed_dictionaries(
    {"name": _TEXTS},
    optional={p: _VALUES for p in [*_FITTING, "days", "id", "nope", "who", "years"]},
)
_ENDS = st.one_of(_TEXTS, st.integers(-(2**33), 2**33), st.none(), st.just(1.0), st.just(True))
_EDGES = st.fixed_dictionaries(
    {}, optional={w: _ENDS for w in ("from", "to", "src", "dst", "start")} | {"id": _ENDS}
)


@settings(max_examples=30, deadline=None)
@given(
    records=st.lists(st.one_of(_GOOD, _GOOD, _WILD), min_size=1, max_size=6),
    rename=st.sampled_from([{}, RENAME]),
    patch=st.booleans(),
)
def test_flat_lines_are_read_by_columns_as_by_line(
    records: list[Any], rename: dict[str, str], patch: bool
) -> None:
    data = b"".join(_dump(record) + b"\n" for record in records)
    read_alike(data, CATALOG.nodes["Person"], rename=rename, patch=patch)


@settings(max_examples=30, deadline=None)
@given(
    records=st.lists(_EDGES, min_size=1, max_size=4),
    rename=st.sampled_from([{}, RENAME]),
    name=st.sampled_from(["Knows", "Owns"]),
)
def test_flat_edges_are_read_by_columns_as_by_line(
    records: list[Any], rename: dict[str, str], name: str
) -> None:
    data = b"".join(_dump(record) + b"\n" for record in records)
    read_alike(data, CATALOG.edges[name], rename=rename)


@settings(max_examples=20, deadline=None)
@given(
    records=st.lists(
        st.fixed_dictionaries(
            {"n": st.integers(0, 9)},
            optional={"size": st.sampled_from([1, None]), "label": _TEXTS, "at": st.just("x")},
        ),
        min_size=1,
        max_size=5,
    ),
    patch=st.booleans(),
)
def test_defaults_fill_what_flat_lines_leave_out(records: list[Any], patch: bool) -> None:
    read_alike(lines(*records), WITH_DEFAULTS.nodes["Box"], WITH_DEFAULTS, patch=patch)


@pytest.mark.parametrize("name", BOUNDS)
def test_each_value_at_a_bound_is_read_alike_in_a_flat_line(name: str) -> None:
    for text in BOUNDS[name]:
        read_alike(f'{{"name": "a", "{name}": {text}}}\n'.encode() * 2, CATALOG.nodes["Person"])


@pytest.mark.parametrize("name", ["words", "turns"])
@pytest.mark.parametrize(
    "items", ["[1,2]", "[1,0]", "[3,4.50]", "[true,false]", '["a","b"]', '["true","1"]', "[]"]
)
def test_a_list_is_read_by_the_type_of_its_property(name: str, items: str) -> None:
    """Above all a number is no text and no truth value, in lists as little as alone."""
    data = f'{{"n":1,"{name}":{items}}}\n{{"n":2,"{name}":{items}}}\n'.encode()
    read_alike(data, WITH_DEFAULTS.nodes["Box"], WITH_DEFAULTS)


@pytest.mark.parametrize(
    "line",
    [
        rb'{"name": "a", "i\u0064": null}',
        rb'{"name": "a\u0041", "id": null}',
        rb'{"name": "a", "na\u006de": "b"}',
        b'{"name": "a", "name": "b"}',
        b'{"who": "a", "name": "b"}',
        b'{"name": "a"} {"name": "b"}',
        b'[{"name": "a"}]',
        b'{"name": "a", "face": [1, 2], "face": null}',
    ],
)
def test_lines_that_arrow_could_take_for_others(line: bytes) -> None:
    for rename in ({}, RENAME):
        read_alike(b'{"name": "x"}\n' + line + b"\n", CATALOG.nodes["Person"], rename=rename)


def test_a_flat_line_with_every_property_is_read_by_columns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without this the comparisons above could compare the reference with itself."""
    read: list[int] = []
    by_columns = decode.read_flat

    def counted(*arguments: Any) -> Any:
        rows = by_columns(*arguments)
        read.append(rows.table.num_rows)
        return rows

    monkeypatch.setattr(decode, "read_flat", counted)
    members = (f'"{name}": {texts[0]}' for name, texts in BOUNDS.items() if name != "nope")
    line = f'{{"name": "a", {", ".join(members)}}}\n'.encode()
    assert not decoded(line * 3, CATALOG.nodes["Person"]).faults
    edges = b'{"from": 1, "to": "l"}\n' * 2
    (owns,) = decoded(edges, CATALOG.edges["Owns"]).rows
    boxes = b'{"n": 1, "size": 4}\n{"n": 2}\n'
    (filled,) = decoded(boxes, WITH_DEFAULTS.nodes["Box"], WITH_DEFAULTS).rows
    assert read == [3, 2, 2]
    assert owns.table["src"].to_pylist() == ["1", "1"]
    assert filled.table["size"].to_pylist() == [4, 3]
