"""CSV export: the rows of one type as comma-separated text (RFC 4180) that `load` reads again.

Invariant: a null is an empty field and an empty text is `""`, so each comes back as what it was.
Dates and moments are ISO text, lists and vectors JSON, blobs `base64:…`.
"""

from collections.abc import Iterable, Iterator
from typing import IO, Any

import pyarrow as pa

from omnigraph.catalog.model import EdgeType, Type
from omnigraph.exec.values.csv_text import csv_line
from omnigraph.exec.values.scalars import JsonForm
from omnigraph.exec.values.to_json import json_column
from omnigraph.types import ID_TYPE


def write_csv(stream: IO[bytes], batches: Iterator[pa.RecordBatch], owner: Type) -> int:
    """A header and a line for each row; how many rows there were."""
    count = 0
    for chunk, rows in csv_chunks(batches, owner):
        stream.write(chunk)
        count += rows
    return count


def csv_chunks(batches: Iterator[pa.RecordBatch], owner: Type) -> Iterator[tuple[bytes, int]]:
    """The header, then the lines of each batch, with the number of their rows."""
    ends = {"from": "src", "to": "dst"} if isinstance(owner, EdgeType) else {}
    stored = {"id": "id", **ends, **{prop.name: prop.name for prop in owner.properties}}
    types = {prop.name: prop.type for prop in owner.properties}
    yield _encoded(stored), 0
    for batch in batches:
        columns = [
            json_column(batch.column(name), types.get(shown, ID_TYPE), JsonForm.ISO)
            for shown, name in stored.items()
        ]
        yield b"".join(map(_encoded, zip(*columns, strict=True))), batch.num_rows


def _encoded(values: Iterable[Any]) -> bytes:
    return f"{csv_line(values)}\n".encode()
