"""Cells of CSV and TSV: comma-separated text (RFC 4180) read as columns of texts.

Invariant: a cell is the text that was written, and an empty one without quotes is null. What a text
means is said by the property that it fills. A row with more or fewer cells than the header is left
out of the columns and named, so every row counts once.
"""

from codecs import getincrementaldecoder
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from secrets import token_hex
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pv

from omnigraph.errors import BadRequest, Violation
from omnigraph.exec.load.text_lines import text_lines, unclosed_quote, undecodable_line

COMMAS = "separate them by commas, or by tabs in a file that is called .tsv"
_CLOSE_IT = "close it, and write a quote inside quotes twice; nothing was written"
_SAVE_AS_UTF8 = "save it with the encoding UTF-8; nothing was written"
_OTHER_SIGNS = (";", "|", "\t")


def other_separator(name: str) -> str | None:
    """The sign that separates what was read as one name of a column, if there is one."""
    return next((sign for sign in _OTHER_SIGNS if sign in name), None)


TEXT_CELLS = {b"omnigraph:cells": b"text"}
"""Metadata of a schema whose columns are the texts of CSV cells, read as those of a file are."""


def are_text(schema: pa.Schema) -> bool:
    """Whether the columns are texts of CSV cells."""
    return (schema.metadata or {}).items() >= TEXT_CELLS.items()


@dataclass(frozen=True, slots=True)
class RaggedRow:
    """A row with another number of cells than the header; rows count from 1 after the header."""

    row: int
    cells: int
    expected: int

    def violation(self, type_name: str, file: str | None) -> Violation:
        """The fault of this row."""
        is_one = self.cells == 1
        text = f"the row has {self.cells} {'cell' if is_one else 'cells'}, not {self.expected}"
        text = f"{text} as the header has"
        return Violation("cells", type_name, None, None, str(self.cells), text, file, self.row)


@dataclass(frozen=True, slots=True)
class CsvRows:
    """Rows of CSV from the one numbered `first` on: columns, and the ragged rows among them."""

    columns: pa.RecordBatch
    first: int
    ragged: tuple[RaggedRow, ...] = ()

    @property
    def count(self) -> int:
        return len(self.columns) + len(self.ragged)


def csv_rows(
    reopen: Callable[[], Any], delimiter: str = ",", name: str = "the body"
) -> Iterator[CsvRows]:
    """The rows of CSV, every cell as text, an empty one null. `reopen` gives it from its start;
    `BadRequest` if it ends inside quotes or is not UTF-8."""
    reading, failed = _CsvReading(delimiter), None
    try:
        yield from reading.rows(reopen)
    except pa.ArrowInvalid as cause:
        # A quote that is never closed may make a row too long for the reader.
        failed = cause
    except UnicodeDecodeError:
        with reopen() as stream:
            bad = undecodable_line(stream.read)
        raise BadRequest(f"line {bad} of {name} is not UTF-8 text", _SAVE_AS_UTF8) from None
    if reading.is_ended and not reading.is_doubtful and failed is None:
        return
    with reopen() as stream:
        line = unclosed_quote(text_lines(stream.read), delimiter)
    if line is None and failed is not None:
        raise failed
    if line is None and reading.is_ended:
        return
    quote = "a quote" if line is None else f"the quote opened in line {line}"
    raise BadRequest(f"{quote} of {name} is never closed", _CLOSE_IT)


class _CsvReading:
    """One pass over CSV. A row of the wrong number of cells is put after the last one: the reader
    reports it as a row of its own unless a quote is open there."""

    def __init__(self, delimiter: str) -> None:
        self._delimiter = delimiter
        self._end = token_hex(16)
        self._ragged: list[RaggedRow] = []
        self.is_ended = False
        self.is_doubtful = False  # a cell of several lines has a quote inside

    def rows(self, reopen: Callable[[], Any]) -> Iterator[CsvRows]:
        """The rows in their order."""
        names = self._names(reopen)
        if len(names) == 1:
            self._end = f"{self._end}{self._delimiter}{self._end}"
        convert = pv.ConvertOptions(
            column_types=dict.fromkeys(names, pa.utf8()),
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        )
        first = 1
        with reopen() as stream:
            ended = _Utf8Stream(stream, f"\n{self._end}\n".encode())
            for columns in self._open(ended, self._invalid, convert):
                rows = CsvRows(columns, first, self._taken(first + columns.num_rows - 1))
                self._require_commas(names, rows)
                first += rows.count
                self.is_doubtful = self.is_doubtful or any(map(_has_quoted_lines, columns.columns))
                if rows.count:
                    yield rows
        if self._ragged or first == 1:  # a header without rows is checked, too
            schema = pa.schema([(name, pa.utf8()) for name in names])
            none = pa.RecordBatch.from_arrays(
                [pa.nulls(0, pa.utf8()) for _ in names], schema=schema
            )
            rows = CsvRows(none, first, tuple(self._ragged))
            self._require_commas(names, rows)
            yield rows

    def _names(self, reopen: Callable[[], Any]) -> list[str]:
        with reopen() as stream:
            head = self._open(_Utf8Stream(stream), lambda row: "skip")
            names: list[str] = head.schema.names
            head.close()
        return names

    def _open(
        self,
        stream: Any,
        invalid: Callable[[Any], str],
        convert: pv.ConvertOptions | None = None,
    ) -> pv.CSVStreamingReader:
        parse = pv.ParseOptions(
            delimiter=self._delimiter, newlines_in_values=True, invalid_row_handler=invalid
        )
        # The reader numbers rows only where one thread reads them.
        read = pv.ReadOptions(use_threads=False)
        return pv.open_csv(stream, read_options=read, parse_options=parse, convert_options=convert)

    def _invalid(self, row: Any) -> str:
        if row.text == self._end:
            self.is_ended = True
        elif self._end not in row.text:
            # The header is the first row.
            self._ragged.append(RaggedRow(row.number - 1, row.actual_columns, row.expected_columns))
        return "skip"

    def _taken(self, last: int) -> tuple[RaggedRow, ...]:
        """The ragged rows among those up to `last`, which is counted without them."""
        count = 0
        while count < len(self._ragged) and self._ragged[count].row <= last + count:
            count += 1
        taken, self._ragged = tuple(self._ragged[:count]), self._ragged[count:]
        return taken

    def _require_commas(self, names: Sequence[str], rows: CsvRows) -> None:
        sign = other_separator(names[0]) if rows.ragged and len(names) == 1 else None
        if sign is not None:
            raise BadRequest(f"the cells are separated by {sign!r}", COMMAS)


def _has_quoted_lines(cells: pa.StringArray) -> bool:
    """Whether a cell has several lines and a quote: perhaps the one that opens a later cell."""
    texts = cells.buffers()[2]
    if texts is None or b"\n" not in texts.to_pybytes():
        return False
    of_lines = cells.filter(pc.match_substring(cells, "\n"))
    return bool(pc.any(pc.match_substring(of_lines, '"')).as_py())


class _Utf8Stream:
    """A binary file with more bytes after its end. It is checked to be UTF-8 here: the reader
    cannot hand over a ragged row that is not."""

    closed = False

    def __init__(self, stream: Any, end: bytes = b"") -> None:
        self._stream = stream
        self._end = end
        self._decoder = getincrementaldecoder("utf-8")()

    def read(self, count: int) -> bytes:
        data = bytes(self._stream.read(count))
        if not data:
            data, self._end = self._end, b""
        if not data.isascii() or self._decoder.getstate()[0]:
            self._decoder.decode(data, final=not data)
        return data

    def readable(self) -> bool:
        return True

    def close(self) -> None:
        self.closed = True


def csv_delimiter(name: str) -> str:
    """What stands between the cells of a file."""
    return "\t" if ".tsv" in PurePosixPath(name).suffixes else ","
