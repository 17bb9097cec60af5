"""CSV of other programs and of hands: another separator, quotes left open, cells left out."""

import csv
import io
from pathlib import Path

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

import omnigraph as og
from omnigraph.exec.load.text_cells import csv_rows
from omnigraph.exec.load.text_lines import text_lines, unclosed_quote

SCHEMA = "node Supplier { code: String @key, country: String, name: String?, opened: Date? }"
HEADER = "code,country,name,opened"
ROWS = [f"S{n},DE,Name {n},2020-01-02" for n in range(50)]


def told(folder: Path, rows: list[str], header: str = HEADER) -> str:
    """Load rows from `s.csv` and see the refusal; the folder is not named in it."""
    graph = og.init(folder / "g.omni", schema=SCHEMA)
    (folder / "s.csv").write_text("\n".join([header, *rows]) + "\n")
    with pytest.raises(og.OmnigraphError) as refused:
        graph.load(folder / "s.csv", "merge", type="Supplier", rejects=folder, engine="local")
    assert list(graph.export_lines()) == []
    graph.close()
    return str(refused.value).replace(f"{folder}/", "")


@pytest.mark.parametrize(
    "text",
    ["name;age\nAda;1\n", "name;age\nAda;1,5\n", "name|age\nAda|1\n", "name\tage\nAda\t1\n"],
)
def test_another_separator_is_told(tmp_path: Path, text: str) -> None:
    graph = og.init(tmp_path / "g.omni", schema="node Person { name: String @key, age: I32? }")
    (tmp_path / "p.csv").write_text(text)
    with pytest.raises(og.OmnigraphError) as refused:
        graph.load(tmp_path / "p.csv", "merge", type="Person")
    sign = repr(text[4])
    assert f"the cells are separated by {sign}; separate them by commas" in str(refused.value)
    graph.close()


@pytest.mark.parametrize(
    ("row", "line"),
    [
        ('S9,DE,N9,"2020-01-02', 11),
        ('S9,DE,"N9 GmbH,2020-01-02', 11),
        ('S9,DE,"two\nlines","2020-01-02', 12),
        ('S9,DE,"so ""called"",2020-01-02', 11),
    ],
)
def test_a_quote_that_is_never_closed_is_refused_with_its_line(
    tmp_path: Path, row: str, line: int
) -> None:
    rows = [*ROWS[:9], row, *ROWS[10:]]
    said = told(tmp_path, rows)
    assert said.startswith(f"the quote opened in line {line} of s.csv is never closed; close it")


def test_a_quote_that_only_the_next_opening_one_closes_is_refused(tmp_path: Path) -> None:
    rows = [row.replace("Name", '"Name').replace(",2020", '",2020') for row in ROWS]
    rows[9] = rows[9].replace('",2020', ",2020")
    assert told(tmp_path, rows).startswith("the quote opened in line 11 of s.csv is never closed")


def test_a_quote_left_open_before_many_rows_is_refused(tmp_path: Path) -> None:
    rows = ['S,DE,"never closed,2020-01-02', *(ROWS * 2_000)]
    assert told(tmp_path, rows).startswith("the quote opened in line 2 of s.csv is never closed")


def test_a_header_with_a_quote_left_open_is_refused(tmp_path: Path) -> None:
    said = told(tmp_path, ROWS, f'"{HEADER}')
    assert said.startswith("the quote opened in line 1 of s.csv is never closed")


_CELL = st.text(st.sampled_from('ab"\n ,\r'), max_size=6)
_TABLE = st.integers(1, 3).flatmap(
    lambda width: st.lists(st.lists(_CELL, min_size=width, max_size=width), min_size=1, max_size=8)
)


@given(_TABLE, st.booleans())
def test_cells_in_closed_quotes_are_read_whatever_is_in_them(
    rows: list[list[str]], is_every_cell_quoted: bool
) -> None:
    names = [f"c{n}" for n in range(len(rows[0]))]
    rows = [row if any(row) else ["a" for _ in row] for row in rows]
    file = io.StringIO()
    quoting = csv.QUOTE_ALL if is_every_cell_quoted else csv.QUOTE_MINIMAL
    csv.writer(file, quoting=quoting).writerows([names, *rows])
    text = file.getvalue().encode()
    read = list(csv_rows(lambda: io.BytesIO(text)))
    cells = [list(row.values()) for each in read for row in each.columns.to_pylist()]
    assert [[cell or "" for cell in row] for row in cells] == rows
    assert unclosed_quote(text_lines(io.BytesIO(text).read), ",") is None
    left_open = text + b'"x' + b",y\n" * 2
    with pytest.raises(og.BadRequest, match="never closed"):
        list(csv_rows(lambda: io.BytesIO(left_open)))


def test_rows_with_cells_left_out_or_too_many_are_told_with_other_faults(tmp_path: Path) -> None:
    rows = [*ROWS]
    rows[3], rows[7] = "S3,DE", "S7,DE,n,2020-01-02,,"
    rows[8], rows[20] = 'S8,DE,"a\n\nb",2008-13-45', "\nS20,,m,soon"
    rows[40], rows[49] = "S40,DE", "S49"
    assert told(tmp_path, rows) == (
        "4 rows: the row has 2 cells, not 4 as the header has (s.csv:5), "
        "the row has 6 cells, not 4 as the header has (s.csv:9), "
        "the row has 1 cell, not 4 as the header has (s.csv:54), and 1 more; "
        "2 rows: Supplier.opened '2008-13-45' is not a date: month must be in 1..12 "
        "(id 'S8', s.csv:10), "
        "Supplier.opened 'soon' is not a date like 2024-01-31 (id 'S20', s.csv:25); "
        "s.csv:25: Supplier.country is non-nullable and has no value; "
        "correct the data and write again"
    )
    rejects = map(orjson.loads, (tmp_path / "rejects.jsonl").read_bytes().splitlines())
    assert [(each["line"], each["rule"], each["record"]) for each in rejects] == [
        (5, "cells", "S3,DE"),
        (9, "cells", "S7,DE,n,2020-01-02,,"),
        (10, "date", 'S8,DE,"a\n\nb",2008-13-45'),
        (25, "date", "S20,,m,soon"),
        (25, "required", "S20,,m,soon"),
        (45, "cells", "S40,DE"),
        (54, "cells", "S49"),
    ]


def test_every_row_with_cells_left_out_is_counted(tmp_path: Path) -> None:
    assert told(tmp_path, ["S1,DE"] * 70_000).startswith("70000 rows: the row has 2 cells, not 4")


@pytest.mark.parametrize("row", ["Bj\xf6rk", "Bj\xf6rk,DE,,", 'B,DE,"\xf6', "B,DE,,\xf6"])
def test_csv_in_another_encoding_is_refused_with_its_line(tmp_path: Path, row: str) -> None:
    text = "\n".join([HEADER, ROWS[0].replace("Name", "N\xe4me"), "A,DE,\ufffd,", row, *ROWS[1:]])
    damaged = text.encode().replace("\xf6".encode(), b"\xf6")
    with pytest.raises(og.BadRequest, match="line 4 of the body is not UTF-8 text; save it with"):
        list(csv_rows(lambda: io.BytesIO(damaged)))


def test_rows_keep_their_numbers_among_ragged_ones_in_a_file_of_several_blocks() -> None:
    rows = [f"{n},DE" if n % 7 < 2 else f"{n},DE,Name {n},2020-01-02" for n in range(1, 90_001)]
    text = "\n".join([HEADER, *rows]).encode()
    read = list(csv_rows(lambda: io.BytesIO(text)))
    assert len(read) > 2
    assert sum(each.count for each in read) == len(rows)
    for each in read:
        ragged = {row.row for row in each.ragged}
        numbers = [n for n in range(each.first, each.first + each.count) if n not in ragged]
        assert each.columns["code"].to_pylist() == [str(n) for n in numbers]
        assert all(n % 7 < 2 for n in ragged)


@pytest.mark.parametrize("end", [b"d\xcc", b"d,e,f,g,h\xcc"])
def test_a_ragged_row_that_ends_within_a_character_is_refused_with_its_line(end: bytes) -> None:
    """The reader wrote a traceback to the terminal before the answer came."""
    damaged = f"{HEADER}\n{ROWS[0]}\n".encode() + end
    with pytest.raises(og.BadRequest, match="line 3 of the body is not UTF-8 text; save it with"):
        list(csv_rows(lambda: io.BytesIO(damaged)))
