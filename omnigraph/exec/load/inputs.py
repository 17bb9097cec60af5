"""Input of a bulk load: files, streams, Arrow, pandas or polars tables, and records, as pieces.

Invariant: pieces keep the order of the input and are read lazily. A size that cannot be known
without reading is None.
"""

import io
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

import pyarrow as pa

from omnigraph.costs import COSTS
from omnigraph.errors import BadRequest
from omnigraph.exec.load.decode import LineBlock
from omnigraph.exec.load.files import Options
from omnigraph.exec.load.pandas_columns import of_pandas
from omnigraph.exec.load.pandas_index import with_index_names
from omnigraph.exec.load.pieces import Piece, pieces_of
from omnigraph.exec.load.sources import Part, batch_rows, blocks, find_files
from omnigraph.exec.load.text_cells import are_text

_INFLATES = 8  # rough growth of compressed text when it is read
_COLUMNS_INFLATE = 8  # rough size of rows as text over their size in a columnar file


@dataclass(frozen=True, slots=True)
class Input:
    """An opened source: the parts of its files, or an iterator of its pieces."""

    parts: tuple[Part, ...] | None
    own: Iterator[Piece] | None
    size_bytes: int | None
    counts_rows: bool = False  # true for tables and records in memory, which have no lines

    @property
    def rows_bytes(self) -> int | None:
        """Estimated size of the rows as text, which columnar files pack more tightly."""
        if self.parts is None:
            return self.size_bytes
        return sum(part.size * _inflates(part) for part in self.parts)

    def pieces(self) -> Iterator[Piece]:
        """Every piece of the input. Only files can be read twice."""
        if self.parts is not None:
            return pieces_of(self.parts)
        assert self.own is not None
        return self.own


def open_input(source: Any, options: Options = ()) -> Input:
    """Open files, columns or records; `options` are the storage options of remote files."""
    if _names_files(source):
        parts = find_files(source, options)
        size = sum(part.size * (_INFLATES if part.is_compressed else 1) for part in parts)
        return Input(parts, None, size)
    if isinstance(source, bytes | bytearray):
        return Input(None, _lines(bytes(source), 1), len(source))
    if hasattr(source, "read"):
        _require_readable(source)
        return Input(None, _stream(source), None)
    columns = _columns(source)
    if columns is not None:
        return Input(None, _tables(columns[0]), columns[1], counts_rows=True)
    if isinstance(source, Iterable) and not isinstance(source, str | dict):
        return Input(None, _records(source), None, counts_rows=True)
    raise BadRequest(
        f"cannot load a {type(source).__name__}",
        "give files, an Arrow, pandas or polars table, an object with __arrow_c_stream__, "
        "a Spark DataFrame, or records",
    )


def _inflates(part: Part) -> int:
    if part.is_compressed:
        return _INFLATES
    return _COLUMNS_INFLATE if part.format in ("parquet", "orc") else 1


def open_whole(source: Any, options: Options = ()) -> Input:
    """A text that only makes sense as a whole: bytes, an open file, or one file by its name."""
    if _names_files(source):
        (part, *more) = find_files(source, options)
        if more:
            raise BadRequest("the older format is read from one file", "load them one by one")
        data, label = b"".join(block.data for block in blocks(part)), part.label
    elif isinstance(source, bytes | bytearray):
        data, label = bytes(source), None
    elif hasattr(source, "read"):
        _require_readable(source)
        data, label = _bytes(source.read()), None
    else:
        raise BadRequest(f"the older format is text, not a {type(source).__name__}")
    whole = Piece(0, label, 1, LineBlock(data, 1, 0, label))
    return Input(None, iter([whole]), len(data))


def _names_files(source: Any) -> bool:
    if isinstance(source, str | os.PathLike):
        return True
    return (
        isinstance(source, list | tuple)
        and bool(source)
        and all(isinstance(each, str | os.PathLike) for each in source)
    )


def _columns(source: Any) -> tuple[Iterable[pa.Table], int | None] | None:
    if isinstance(source, pa.Table):
        return [source], source.nbytes
    if isinstance(source, pa.RecordBatch):
        return [pa.Table.from_batches([source])], source.nbytes
    if isinstance(source, pa.RecordBatchReader):
        return (pa.Table.from_batches([batch]) for batch in source), None
    frame = _frame(source)
    if frame is None and hasattr(source, "__arrow_c_stream__"):
        return (pa.Table.from_batches([batch]) for batch in _stream_of(source)), None
    return frame


def _stream_of(source: Any) -> pa.RecordBatchReader:
    """The batches of an object of the Arrow PyCapsule interface, a relation of DuckDB say."""
    try:
        return pa.RecordBatchReader.from_stream(source)
    except (pa.ArrowException, TypeError) as cause:
        raise BadRequest(
            f"cannot load a {type(source).__name__}: its Arrow stream has no columns ({cause})",
            "give a table or a relation",
        ) from None


def _frame(source: Any) -> tuple[Iterable[pa.Table], int | None] | None:
    """A table of pandas or polars, or of a library that makes its own of theirs."""
    library, kind = _base(source)
    if library == "pandas" and kind == "DataFrame":
        table = with_index_names(of_pandas(source), source)
        return [table], table.nbytes
    if library == "polars" and kind in ("DataFrame", "LazyFrame"):
        table = (source.collect() if kind == "LazyFrame" else source).to_arrow()
        return [table], table.nbytes
    if library in ("pandas", "polars"):
        hint = "give a DataFrame: a Series has to_frame()"
        raise BadRequest(f"cannot load a {kind} of {library}", hint)
    return None


def _base(source: Any) -> tuple[str, str]:
    """The library and the name of the first class of pandas or polars that an object is of; empty
    for any other object. Neither library is imported for it."""
    for each in type(source).__mro__:
        library = each.__module__.partition(".")[0]
        if library in ("pandas", "polars"):
            return library, each.__name__
    return "", ""


def _tables(tables: Iterable[pa.Table]) -> Iterator[Piece]:
    row = 1
    for table in tables:
        at_once = 4 * batch_rows(table.nbytes, table.num_rows)
        for start in range(0, max(1, table.num_rows), at_once):  # columns without rows, too
            # A table without columns has as many rows as a slice asks for.
            rows = table.slice(start, min(at_once, table.num_rows - start))
            yield Piece(0, None, row, rows, is_text=are_text(table.schema))
            row += rows.num_rows


def _records(records: Iterable[Any]) -> Iterator[Piece]:
    every = iter(records)
    number = 1
    while batch := tuple(islice(every, COSTS.record_piece_rows)):
        yield Piece(0, None, number, batch)
        number += len(batch)


def _lines(data: bytes, line: int) -> Iterator[Piece]:
    if data:
        yield Piece(0, None, line, LineBlock(data, line))


def _require_readable(source: Any) -> None:
    """Refuse a file that is closed, or open for writing alone."""
    again = "open it with mode 'rb', and load it while it is open"
    if getattr(source, "closed", False) is True:
        raise BadRequest("the file is closed", again)
    readable = getattr(source, "readable", None)
    if callable(readable) and readable() is False:
        raise BadRequest("the file is open for writing alone", again)
    if isinstance(source, io.TextIOBase):
        raise _gives_text()


def _bytes(chunk: Any) -> bytes:
    """What a file gave. Wrappers of text files are known by it alone."""
    if isinstance(chunk, str):
        raise _gives_text()
    return bytes(chunk)


def _gives_text() -> BadRequest:
    hint = "open the file with mode 'rb', or give text.encode()"
    return BadRequest("a load reads bytes, and this file gives text", hint)


def _stream(source: Any) -> Iterator[Piece]:
    """A binary file that is open already."""
    buffer, line = b"", 1
    while chunk := source.read(COSTS.stream_read_bytes):
        buffer += _bytes(chunk)
        end = buffer.rfind(b"\n") + 1
        if end:
            yield from _lines(buffer[:end], line)
            line += buffer.count(b"\n", 0, end)
            buffer = buffer[end:]
    yield from _lines(buffer, line)
