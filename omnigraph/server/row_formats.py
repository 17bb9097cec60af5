"""Arrow IPC, CSV and Parquet: rows of a read as `Accept` asks, and columns of a load.

Invariant: every format has the same columns and rows. Arrow is written from the columns as they
are: no row becomes a Python value.
"""

import io
from collections.abc import Callable, Iterator
from itertools import chain
from typing import IO

import pyarrow as pa
import pyarrow.parquet as pq

from omnigraph.costs import COSTS
from omnigraph.errors import BadRequest
from omnigraph.exec.load.columnar import ragged_faults
from omnigraph.exec.load.text_cells import TEXT_CELLS, csv_rows
from omnigraph.exec.read.result import QueryResult
from omnigraph.exec.rules.faults import Faults
from omnigraph.exec.values.csv_text import csv_line

ARROW, CSV = "application/vnd.apache.arrow.stream", "text/csv"
PARQUET = "application/vnd.apache.parquet"
_JSON = ("application/json", "application/*", "*/*")
_QUOTED = frozenset(',"\r\n')


def chosen(accept: str | None) -> str | None:
    """Arrow or CSV where the header names it before JSON; None for JSON."""
    if accept is None or accept in _JSON:
        return None
    for part in accept.split(","):
        media = part.partition(";")[0].strip().lower()
        if media in (ARROW, CSV):
            return media
        if media in _JSON:
            return None
    return None


def column_batches(
    stream: IO[bytes], media: str, reopen: Callable[[], IO[bytes]]
) -> pa.RecordBatchReader:
    """The columns of a Parquet file, an Arrow stream or CSV, a batch at a time, or `BadRequest`.
    `reopen` gives the body from its beginning."""
    if media == CSV:
        return _text_columns(reopen)
    try:
        if media == ARROW:
            return pa.ipc.open_stream(stream)
        file = pq.ParquetFile(stream)
        return pa.RecordBatchReader.from_batches(
            file.schema_arrow, file.iter_batches(batch_size=COSTS.answer_batch_rows)
        )
    except (pa.ArrowException, OSError) as cause:
        raise BadRequest(f"the body is not {media}: {cause}") from None


def _text_columns(reopen: Callable[[], IO[bytes]]) -> pa.RecordBatchReader:
    """The cells of CSV, marked as texts."""
    batches = _sound(reopen)
    first = next(batches, None)
    if first is None:
        return pa.RecordBatchReader.from_batches(pa.schema([]), [])
    schema = first.schema.with_metadata(TEXT_CELLS)
    marked = (batch.replace_schema_metadata(TEXT_CELLS) for batch in chain([first], batches))
    return pa.RecordBatchReader.from_batches(schema, marked)


def _sound(reopen: Callable[[], IO[bytes]]) -> Iterator[pa.RecordBatch]:
    faults = Faults()
    try:
        for rows in csv_rows(reopen):
            faults.merge(ragged_faults(rows.ragged, "", 0, None))
            yield rows.columns
    except (pa.ArrowException, OSError) as cause:
        raise BadRequest(
            f"the body is not {CSV}: {cause}", "correct it and send it again"
        ) from None
    if faults:
        raise faults.in_rows().error()


def arrow_bytes(result: QueryResult) -> bytes:
    """The columns as an Arrow IPC stream."""
    table = result.to_arrow()
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


def arrow_chunks(batches: Iterator[pa.RecordBatch]) -> Iterator[bytes]:
    """An Arrow IPC stream, a batch at a time; nothing where there is no batch."""
    sink, writer = io.BytesIO(), None
    for batch in batches:
        if writer is None:
            writer = pa.ipc.new_stream(sink, batch.schema)
        writer.write_batch(batch)
        yield sink.getvalue()
        sink.seek(0)
        sink.truncate()
    if writer is not None:
        writer.close()
        yield sink.getvalue()


def csv_bytes(result: QueryResult) -> bytes:
    """A line of column names, then the rows; a null is an empty field, a list is JSON."""
    return "".join(_csv_lines(result)).encode("utf-8", "replace")


def _csv_lines(result: QueryResult) -> Iterator[str]:
    for values in chain([result.columns], result.tuples()):
        yield f"{csv_line(values)}\n"
