"""Arrow IPC, CSV and Parquet: rows of a read as `Accept` asks, and columns of a load.

Invariant: every format has the same columns and rows. Arrow is written from the columns as they
are: no row becomes a Python value.
"""

import io
from collections.abc import Iterator
from typing import IO, Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from omnigraph.errors import BadRequest
from omnigraph.exec.read.result import QueryResult

ARROW, CSV = "application/vnd.apache.arrow.stream", "text/csv"
PARQUET = "application/vnd.apache.parquet"
_BATCH_ROWS = 65_536
_QUOTED = frozenset(',"\r\n')


def chosen(accept: str | None) -> str | None:
    """Arrow or CSV where the header names it before JSON; None for JSON."""
    for part in (accept or "").split(","):
        media = part.partition(";")[0].strip().lower()
        if media in (ARROW, CSV):
            return media
        if media in ("application/json", "application/*", "*/*"):
            return None
    return None


def column_batches(stream: IO[bytes], media: str) -> pa.RecordBatchReader:
    """The columns of a Parquet file or an Arrow stream, a batch at a time, or `BadRequest`."""
    try:
        if media == ARROW:
            return pa.ipc.open_stream(stream)
        file = pq.ParquetFile(stream)
        return pa.RecordBatchReader.from_batches(
            file.schema_arrow, file.iter_batches(batch_size=_BATCH_ROWS)
        )
    except (pa.ArrowException, OSError) as cause:
        raise BadRequest(f"the body is not {media}: {cause}") from None


def arrow_bytes(result: QueryResult) -> bytes:
    """The columns as an Arrow IPC stream."""
    table = result.to_arrow()
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


def csv_bytes(result: QueryResult) -> bytes:
    """A line of column names, then the rows; a null is `null`, a list is JSON."""
    return "".join(_csv_lines(result)).encode("utf-8", "replace")


def _csv_lines(result: QueryResult) -> Iterator[str]:
    names = result.columns
    yield f"{','.join(map(_field, names))}\n"
    for row in result.rows:
        yield f"{','.join(_field(_cell(row[name])) for name in names)}\n"


def _cell(value: Any) -> str:
    return value if isinstance(value, str) else orjson.dumps(value).decode()


def _field(text: str) -> str:
    if _QUOTED.isdisjoint(text):
        return text
    doubled = text.replace('"', '""')
    return f'"{doubled}"'
