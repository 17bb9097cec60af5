"""Cells of CSV and TSV: comma-separated text (RFC 4180) read as columns of texts.

Invariant: a cell is the text that was written, and an empty one without quotes is null. What a text
means is said by the property that it fills.
"""

from collections.abc import Callable, Iterator
from pathlib import PurePosixPath
from typing import Any

import pyarrow as pa
import pyarrow.csv as pv

from omnigraph.errors import BadRequest

COMMAS = "separate them by commas, or by tabs in a file that is called .tsv"
_HEADER_BYTES = 1 << 16
_OTHER_SIGNS = (";", "|", "\t")


def other_separator(name: str) -> str | None:
    """The sign that separates what was read as one name of a column, if there is one."""
    return next((sign for sign in _OTHER_SIGNS if sign in name), None)


TEXT_CELLS = {b"omnigraph:cells": b"text"}
"""Metadata of a schema whose columns are the texts of CSV cells, read as those of a file are."""


def are_text(schema: pa.Schema) -> bool:
    """Whether the columns are texts of CSV cells."""
    return (schema.metadata or {}).items() >= TEXT_CELLS.items()


def csv_batches(reopen: Callable[[], Any], delimiter: str = ",") -> Iterator[pa.RecordBatch]:
    """The rows of CSV, every cell as text, an empty one null. `reopen` gives it from its start."""
    try:
        yield from _batches(reopen, pv.ParseOptions(delimiter=delimiter, newlines_in_values=True))
    except pa.ArrowInvalid:
        with reopen() as stream:
            first = bytes(stream.read(_HEADER_BYTES)).partition(b"\n")[0].decode("utf-8", "replace")
        sign = None if delimiter in first else other_separator(first)
        if sign is None:
            raise
        raise BadRequest(f"the cells are separated by {sign!r}", COMMAS) from None


def _batches(reopen: Callable[[], Any], parse: pv.ParseOptions) -> Iterator[pa.RecordBatch]:
    with reopen() as stream:
        head = pv.open_csv(stream, parse_options=parse)
        names = head.schema.names
        head.close()
    convert = pv.ConvertOptions(
        column_types=dict.fromkeys(names, pa.utf8()),
        null_values=[""],
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
    )
    with reopen() as again:
        yield from pv.open_csv(again, parse_options=parse, convert_options=convert)


def csv_delimiter(name: str) -> str:
    """What stands between the cells of a file."""
    return "\t" if ".tsv" in PurePosixPath(name).suffixes else ","
