"""Body of a load over HTTP: any input that a load takes, as NDJSON or as an Arrow stream.

Invariant: the input is read once and kept in a temporary file, so that the same bytes can be sent
again. Lines go as they are; columns keep their types.
"""

import base64
import tempfile
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import chain
from typing import IO, Any

import orjson
import pyarrow as pa

from omnigraph.errors import BadRequest, ConstraintViolated, NotServed, Violation
from omnigraph.exec.load.column_names import ColumnNames
from omnigraph.exec.load.decode import LineBlock
from omnigraph.exec.load.input_lines import csv_lines
from omnigraph.exec.load.inputs import open_input
from omnigraph.exec.load.pieces import Piece
from omnigraph.exec.load.text_cells import TEXT_CELLS
from omnigraph.pipeline.load import is_spark_frame
from omnigraph.remote.served_rows import ARROW

NDJSON = "application/x-ndjson"


@dataclass(frozen=True, slots=True)
class SentPiece:
    """Lines or rows of the body from a number on, and where in the input they come from."""

    sent_first: int
    file: str | None
    first: int


@dataclass(frozen=True, slots=True)
class LoadBody:
    """The bytes of a load, what they are, the route that takes them and where each comes from."""

    path: str
    media: str
    content: IO[bytes]
    pieces: tuple[SentPiece, ...] = ()

    def at_source(self, refused: ConstraintViolated) -> ConstraintViolated:
        """The same refusal, with the files and lines of the input that was sent."""
        located = [self._located(each) for each in refused.violations]
        folded = [(self._located(each), count) for each, count in refused.folded]
        at_line = csv_lines([*located, *(each for each, _ in folded)])
        violations = tuple(map(at_line, located))
        counted = tuple((at_line(each), count) for each, count in folded)
        return ConstraintViolated(violations, refused.total, refused.counts, counted)

    def _located(self, violation: Violation) -> Violation:
        if violation.line is None:
            return violation
        before = bisect_right(self.pieces, violation.line, key=lambda each: each.sent_first)
        if not before:
            return violation
        piece = self.pieces[before - 1]
        line = violation.line - piece.sent_first + piece.first
        return replace(violation, file=piece.file, line=line)


def load_body(source: Any, columns: ColumnNames, url: str) -> LoadBody:
    """An input as a body. `columns` renames columns."""
    if is_spark_frame(source):
        raise NotServed("a load of a Spark DataFrame", url, "load df.toArrow(), or use the files")
    pieces = open_input(source).pieces()
    with ExitStack() as stack:
        file = stack.enter_context(tempfile.TemporaryFile())
        body = _written(file, pieces, columns, url)
        stack.pop_all()  # it is sent, and closed, by the caller
        return body


def _written(file: IO[bytes], pieces: Iterator[Piece], columns: ColumnNames, url: str) -> LoadBody:
    first = next(pieces, None)
    if first is not None and isinstance(first.data, pa.Table):
        sent = _write_columns(file, chain([first], pieces), columns)
        return LoadBody("/load", ARROW, file, sent)
    if columns:
        raise NotServed("columns= of lines", url, "rename the keys, or give an Arrow table")
    lines: list[SentPiece] = []
    line = 1
    for piece in () if first is None else chain([first], pieces):
        data = _lines(piece)
        file.write(data)
        lines.append(SentPiece(line, piece.file, piece.first))
        line += data.count(b"\n")
    return LoadBody("/load/ndjson", NDJSON, file, tuple(lines))


def _lines(piece: Piece) -> bytes:
    match piece.data:
        case LineBlock(data=data):
            return data if data.endswith(b"\n") else data + b"\n"
        case tuple():
            return b"".join(map(_line, piece.data))
        case _:
            raise BadRequest("lines and columns are two loads", "load files of one format at once")


def _line(record: Any) -> bytes:
    options = orjson.OPT_APPEND_NEWLINE | orjson.OPT_SERIALIZE_NUMPY
    try:
        return orjson.dumps(record, default=_plain, option=options)
    except TypeError as cause:
        raise BadRequest(f"a record cannot be sent as JSON: {cause}", "give plain values") from None


def _plain(value: Any) -> Any:
    if isinstance(value, bytes | bytearray):
        return f"base64:{base64.b64encode(value).decode()}"
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"a {type(value).__name__} has no JSON form")


def _write_columns(
    file: IO[bytes], pieces: Iterator[Piece], columns: ColumnNames
) -> tuple[SentPiece, ...]:
    """Write the tables as one Arrow stream; which rows of it are of which file."""
    writer: pa.RecordBatchStreamWriter | None = None
    sent, row = [], 1
    for piece in pieces:
        if not isinstance(piece.data, pa.Table):
            raise BadRequest("lines and columns are two loads", "load files of one format at once")
        names = [columns.get(name, name) for name in piece.data.column_names]
        kept = [index for index, name in enumerate(names) if name is not None]
        table = piece.data.select(kept).rename_columns([names[index] for index in kept])
        if piece.is_text:
            table = table.replace_schema_metadata(TEXT_CELLS)
        if writer is None:
            writer = pa.ipc.new_stream(file, table.schema)
        try:
            writer.write_table(table)
        except pa.ArrowException as cause:
            raise BadRequest(
                f"the files have different columns: {cause}", "load them one at a time"
            ) from cause
        sent.append(SentPiece(row, piece.file, piece.first))
        row += table.num_rows
    if writer is not None:
        writer.close()
    return tuple(sent)
