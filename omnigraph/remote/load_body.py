"""Body of a load over HTTP: any input that a load takes, as NDJSON or as an Arrow stream.

Invariant: the input is read once and kept in a temporary file, so that the same bytes can be sent
again. Lines go as they are; columns of one type keep their types, and columns of files that are
named after several types go as lines.
"""

import base64
import tempfile
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cache
from itertools import chain
from typing import IO, Any

import orjson
import pyarrow as pa

from omnigraph.catalog.arrow import blob_bytes
from omnigraph.catalog.model import Catalog, Type
from omnigraph.errors import BadRequest, ConstraintViolated, NotServed, Violation
from omnigraph.exec.changes.export import lines_of
from omnigraph.exec.load.column_names import ColumnNames
from omnigraph.exec.load.columnar import ragged_faults, rows_of
from omnigraph.exec.load.decode import LineBlock
from omnigraph.exec.load.input_lines import at_input_lines, csv_lines
from omnigraph.exec.load.inputs import open_input
from omnigraph.exec.load.ndjson import BadRecord
from omnigraph.exec.load.pieces import Piece, owner_of_columns, ready_piece
from omnigraph.exec.load.python_records import plain_record
from omnigraph.exec.load.request import LoadRequest
from omnigraph.exec.load.text_cells import TEXT_CELLS
from omnigraph.exec.rules.faults import Faults
from omnigraph.pipeline.load import is_spark_frame
from omnigraph.remote.served_rows import ARROW

NDJSON = "application/x-ndjson"


@dataclass(frozen=True, slots=True)
class SentPiece:
    """Lines or rows of the body from a number on, and where in the input they come from."""

    sent_first: int
    file: str | None
    first: int
    unit: str = "line"


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
        return replace(violation, file=piece.file, line=line, unit=piece.unit)


OwnerOf = Callable[[Mapping[str, Any]], Type | None]
"""The type of a record, if it is known."""


class _Ragged(Exception):
    """Rows of CSV that have too few or too many cells."""

    def __init__(self, faults: Faults) -> None:
        super().__init__()
        self.faults = faults


OwnerFaults = Callable[[Iterator[Piece]], Faults]
"""The faults of pieces of columns whose type the load names."""


def load_body(
    source: Any,
    columns: ColumnNames,
    url: str,
    catalog: Callable[[], Catalog] | None = None,
    owner: OwnerOf = lambda _: None,
    *,
    faults_of: OwnerFaults | None = None,
) -> LoadBody:
    """An input as a body. `columns` renames columns; `catalog` is that of a load which names no
    type, whose columns say theirs by the names of their files; `owner` tells the type of a record.
    Rows of CSV that are ragged cannot be sent, so with them `faults_of` gives every fault of the
    input, as a local load does."""
    if is_spark_frame(source):
        raise NotServed("a load of a Spark DataFrame", url, "load df.toArrow(), or use the files")
    pieces = open_input(source).pieces()
    with ExitStack() as stack:
        file = stack.enter_context(tempfile.TemporaryFile())
        try:
            body = _written(file, pieces, columns, url, catalog, owner)
        except _Ragged as ragged:
            faults = ragged.faults if faults_of is None else faults_of(open_input(source).pieces())
            raise at_input_lines(faults).error() from None
        stack.pop_all()  # it is sent, and closed, by the caller
        return body


def _written(
    file: IO[bytes],
    pieces: Iterator[Piece],
    columns: ColumnNames,
    url: str,
    catalog: Callable[[], Catalog] | None,
    owner: OwnerOf,
) -> LoadBody:
    first = next(pieces, None)
    if first is not None and isinstance(first.data, pa.Table) and catalog is None:
        sent = _write_columns(file, chain([first], pieces), columns)
        return LoadBody("/load", ARROW, file, sent)
    if columns:
        raise NotServed("columns= of lines", url, "rename the keys, or give an Arrow table")
    lines: list[SentPiece] = []
    line = 1
    known = None if catalog is None else cache(catalog)
    for piece in () if first is None else chain([first], pieces):
        data = _lines(piece, known, owner)
        file.write(data)
        unit = "line" if isinstance(piece.data, LineBlock) else "row"
        lines.append(SentPiece(line, piece.file, piece.first, unit))
        line += data.count(b"\n")
    return LoadBody("/load/ndjson", NDJSON, file, tuple(lines))


def _lines(piece: Piece, catalog: Callable[[], Catalog] | None, owner: OwnerOf) -> bytes:
    match piece.data:
        case pa.Table() if catalog is not None:
            return b"".join(_lines_of_columns(piece, piece.data, catalog()))
        case LineBlock(data=data):
            return data if data.endswith(b"\n") else data + b"\n"
        case tuple():
            return b"".join(_lines_of_records(piece, piece.data, owner))
        case _:
            raise BadRequest("lines and columns are two loads", "load files of one format at once")


def _lines_of_records(piece: Piece, records: tuple[Any, ...], owner: OwnerOf) -> Iterator[bytes]:
    """Records as lines. A key that is no text has no JSON, so it is told here as a local load
    tells it."""
    faults = Faults()
    for number, record in enumerate(records, piece.first):
        try:
            yield _line(plain_record(record, owner))
        except BadRecord as wrong:
            faults.add_unread(piece.part, replace(wrong.violation, line=number, unit="row"))
    if faults:
        raise faults.error()


def _lines_of_columns(piece: Piece, table: pa.Table, catalog: Catalog) -> Iterator[bytes]:
    """Columns as lines of the type that their file is named after; their faults are told here."""
    owner = owner_of_columns(catalog, piece.file)
    rows, faults = rows_of(
        catalog,
        owner,
        table,
        rename={},
        is_text=piece.is_text,
        first=piece.first,
        ragged=piece.ragged,
        file=piece.file,
    )
    if rows is None:
        raise at_input_lines(faults).error()
    known = ("id", *(prop.name for prop in owner.properties))
    given = [name for name in known if name in table.column_names]
    for prop in owner.properties:
        if prop.type.is_blob:
            cells = blob_bytes(rows.table[prop.name])
            index = rows.table.column_names.index(prop.name)
            rows = replace(rows, table=rows.table.set_column(index, prop.name, cells))
    for batch in rows.table.to_batches():
        yield from lines_of(batch, owner, given)


def owner_faults(catalog: Catalog, request: LoadRequest, pieces: Iterator[Piece]) -> Faults:
    """Every fault that reading the pieces and the rules of single rows find."""
    faults = Faults()
    for piece in pieces:
        unread, ready = ready_piece(catalog, request, piece, buckets=1)
        faults.merge(unread)
        for rows in ready:
            faults.merge(rows.faults)
    return faults


def _line(record: Any) -> bytes:
    try:
        return orjson.dumps(record, default=_plain, option=orjson.OPT_APPEND_NEWLINE)
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
    sent, row, faults = [], 1, Faults()
    for piece in pieces:
        faults.merge(ragged_faults(piece.ragged, "", piece.part, piece.file))
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
        sent.append(SentPiece(row, piece.file, piece.first, "row"))
        row += table.num_rows
    if writer is not None:
        writer.close()
    if faults:
        raise _Ragged(faults)
    return tuple(sent)
