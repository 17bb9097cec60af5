"""Pieces of a bulk load's input: blocks of lines, tables or records, decoded to typed rows.

Invariant: a piece knows its part of the input and the number of its first line or row, so a fault
found while decoding names its line.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from omnigraph.catalog.model import Catalog
from omnigraph.errors import BadRequest
from omnigraph.exec.load.columnar import rows_of
from omnigraph.exec.load.decode import Decoded, Decoder, LineBlock, decode_records, decode_stream
from omnigraph.exec.load.intake import Ready, made_ready, partial_ready
from omnigraph.exec.load.ndjson import TYPE_OF_ROWS, Owner
from omnigraph.exec.load.request import LoadRequest
from omnigraph.exec.load.sources import Part, blocks, read_records, tables, text_rows
from omnigraph.exec.load.text_cells import RaggedRow
from omnigraph.exec.load.type_files import named_type
from omnigraph.exec.rules.faults import Faults
from omnigraph.exec.topology.end_numbers import EndNumbers
from omnigraph.exec.values.scalars import ReadExternal


@dataclass(frozen=True, slots=True)
class Piece:
    """A piece of one part of the input: lines of a file, columns, or records."""

    part: int
    file: str | None
    first: int
    data: LineBlock | pa.Table | tuple[Any, ...]
    is_text: bool = False
    ragged: tuple[RaggedRow, ...] = ()  # rows of CSV that are not in `data`


def pieces_of(parts: tuple[Part, ...]) -> Iterator[Piece]:
    """The input of files, a piece at a time."""
    for part in parts:
        yield from pieces_of_part(part)


def pieces_of_part(part: Part) -> Iterator[Piece]:
    """One file, or a part of it."""
    if part.format == "json":
        for block in blocks(part):
            yield Piece(part.index, part.label, block.line, block)
        return
    if part.format == "records":
        yield Piece(part.index, part.label, part.first, read_records(part))
        return
    if part.format == "csv":
        for rows in text_rows(part):
            columns = pa.Table.from_batches([rows.columns])
            yield Piece(part.index, part.label, rows.first, columns, True, rows.ragged)
        return
    row = part.first
    for table in tables(part):
        yield Piece(part.index, part.label, row, table)
        row += table.num_rows


def decode_piece(
    catalog: Catalog, request: LoadRequest, piece: Piece, read: ReadExternal
) -> Decoded:
    """Typed rows and faults of a piece. Blobs given by their addresses are copied in by `read`."""
    keep = request.rejects is not None
    if isinstance(piece.data, LineBlock) and request.permissive:
        is_last_kept = request.on_duplicate == "last"
        return decode_stream(catalog, piece.data, read, last_of_line=is_last_kept)
    if isinstance(piece.data, LineBlock):
        decoder = Decoder(
            catalog,
            owner=request.owner,
            rename=request.columns,
            keep_rejects=keep,
            patch=request.mode == "patch",
            read=read,
        )
        return decoder.decode(piece.data)
    if isinstance(piece.data, tuple):
        return decode_records(
            catalog,
            piece.data,
            owner=request.owner,
            rename=request.columns,
            first=piece.first,
            part=piece.part,
            patch=request.mode == "patch",
            read=read,
        )
    rows, faults = rows_of(
        catalog,
        request.owner or owner_of_columns(catalog, piece.file),
        piece.data,
        rename=request.columns,
        is_text=piece.is_text,
        first=piece.first,
        ragged=piece.ragged,
        part=piece.part,
        file=piece.file,
        keep_rejects=keep,
        patch=request.mode == "patch",
        read=read,
    )
    return Decoded([] if rows is None else [rows], faults)


def owner_of_columns(catalog: Catalog, file: str | None) -> Owner:
    """The type of columns that were loaded without one: their file is named after it."""
    owner = None if file is None else named_type(catalog, file)
    if owner is None:
        by_name = "" if file is None else ", or by its file: node-TYPE or edge-TYPE, as exports do"
        raise BadRequest(f"{file or 'the input'} holds columns", f"{TYPE_OF_ROWS}{by_name}")
    return owner


def ready_piece(
    catalog: Catalog,
    request: LoadRequest,
    piece: Piece,
    buckets: int,
    ends: EndNumbers | None = None,
) -> tuple[Faults, list[Ready]]:
    """The faults of a piece as a whole, and its rows with their keys and row-rule faults."""
    # Copied bytes live as long as the piece, not as long as the load.
    decoded = decode_piece(catalog, request, piece, request.external.afresh().read)
    keep = request.rejects is not None
    make = partial_ready if request.mode == "patch" else made_ready
    decoded_rows = decoded.rows if request.fill is None else map(request.fill, decoded.rows)
    return decoded.faults, [
        make(rows, piece.part, piece.file, buckets=buckets, keep_rejects=keep, ends=ends)
        for rows in decoded_rows
    ]
