"""Files cut at any byte give every line once."""

import itertools
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omnigraph.exec.load import sources
from omnigraph.exec.load.sources import Part, blocks
from omnigraph.exec.load.spill import KeySet, Spill, origins, part_and_line
from omnigraph.exec.values.buckets import bucket_numbers
from tests.exec.bulk import lines, person


def _read(path: Path, start: int, end: int | None, block_bytes: int) -> list[bytes]:
    part = Part(0, str(path), "json", 0, start=start, end=end)
    data = b"".join(block.data for block in blocks(part, block_bytes=block_bytes))
    return data.splitlines()


@settings(max_examples=200, deadline=None)
@given(
    texts=st.lists(st.integers(0, 12).map(lambda n: b"x" * n), max_size=12),
    cuts=st.lists(st.integers(0, 120), max_size=5),
    block_bytes=st.integers(1, 40),
    ends=st.booleans(),
)
def test_parts_cut_anywhere_hold_every_line_once(
    texts: list[bytes], cuts: list[int], block_bytes: int, ends: bool
) -> None:
    data = b"\n".join(texts) + (b"\n" if ends else b"")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.jsonl"
        path.write_bytes(data)
        bounds = sorted({0, *(c for c in cuts if c < len(data)), len(data)})
        found: list[bytes] = []
        for start, end in itertools.pairwise(bounds):
            found += _read(path, start, end, block_bytes)
        assert found == _read(path, 0, None, block_bytes) == data.splitlines()


def test_line_numbers_go_on_from_block_to_block(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_bytes(lines(*[person(f"p{n}") for n in range(50)]))
    found = list(blocks(Part(3, str(path), "json", 0, label="x"), block_bytes=100))
    assert len(found) > 5
    line = 1
    for block in found:
        assert (block.line, block.part, block.file) == (line, 3, "x")
        line += block.data.count(b"\n")
    assert line == 51


def test_a_line_that_is_too_long_is_not_held(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(sources, "LINE_BYTES_MAX", 1000)
    path = tmp_path / "x.jsonl"
    path.write_bytes(b"a\n" + b"y" * 100_000 + b"\nb\n")
    found = list(blocks(Part(0, str(path), "json", 0), block_bytes=512))
    assert [(b.line, b.data[:1]) for b in found] == [(1, b"a"), (2, b"x"), (3, b"b")]
    assert len(found[1].data) < 3000


@given(parts=st.integers(0, 2**20), line=st.integers(1, 2**35))
def test_a_place_is_one_number(parts: int, line: int) -> None:
    (at,) = origins(parts, pa.array([line])).to_pylist()
    assert part_and_line(at) == (parts, line)


@pytest.mark.parametrize(
    "values", [["", "a", "b" * 30, "ü"], [1, 2, 3, 2**40], [0.0, -0.0, 1.5, 2.5]]
)
def test_equal_values_are_in_one_bucket(values: list[Any]) -> None:
    table = pa.table({"x": pa.array(values * 3)})
    numbers = bucket_numbers(table, ["x"], 5).tolist()
    assert numbers[:4] == numbers[4:8] == numbers[8:]
    assert bucket_numbers(table.slice(4, 4), ["x"], 5).tolist() == numbers[4:8]
    if 0.0 in values:
        assert numbers[0] == numbers[1]


def test_keys_spread_over_the_buckets() -> None:
    table = pa.table({"x": [f"person-{n}" for n in range(10_000)]})
    numbers = bucket_numbers(table, ["x"], 16)
    assert {int(n) for n in numbers} == set(range(16))
    assert max(int((numbers == n).sum()) for n in range(16)) < 1000


def test_a_spill_gives_back_what_it_took(tmp_path: Path) -> None:

    keys = KeySet("t#id", ("id",), ("id",))
    spill = Spill(tmp_path, 4, memory_bytes_max=2_000)
    for start in range(0, 500, 50):
        spill.add(keys, pa.table({"id": [f"k{n}" for n in range(start, start + 50)]}))
    assert spill.files, "it went to disk"
    read = [spill.read("t#id", bucket) for bucket in range(4)]
    ids = sorted(i for part in read if part is not None for i in part.column("id").to_pylist())
    assert ids == sorted(f"k{n}" for n in range(500))
    assert spill.rows("t#id") == 500
