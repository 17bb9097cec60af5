"""Query rows as Parquet or an Arrow stream: bytes for a file or a pipe, never for a terminal.

Invariant: the columns keep the types that the query gives them: dates are dates, not text.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

from omnigraph.cli.render import Format
from omnigraph.errors import BadRequest

if TYPE_CHECKING:
    import pyarrow as pa


def column_bytes(table: pa.Table, format: Format | None) -> Iterator[bytes]:
    """The rows as a Parquet file, or as an Arrow IPC stream."""
    buffer = io.BytesIO()
    if format is Format.PARQUET:
        import pyarrow.parquet as pq

        from omnigraph.exec.read.result import require_distinct

        require_distinct(table.column_names, "a Parquet file")
        pq.write_table(table, buffer)
    else:
        import pyarrow.ipc as ipc

        with ipc.new_stream(buffer, table.schema) as writer:
            writer.write_table(table)
    yield buffer.getvalue()


def show_bytes(chunks: Iterator[bytes], out: str | None) -> None:
    """Bytes to a file that appears when it is whole, or to standard output."""
    if out is not None:
        from omnigraph.output_file import whole_file

        with whole_file(out, "the result") as stream:
            for chunk in chunks:
                stream.write(chunk)
        return
    if sys.stdout.isatty():
        raise BadRequest("a terminal shows no bytes", "pass --out FILE, or send them to a file")
    for chunk in chunks:
        sys.stdout.buffer.write(chunk)
