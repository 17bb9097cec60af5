"""Dates of an NDJSON stream as ISO text, written where the stream is received.

Invariant: a line keeps its members and their order; only the dates and moments that the schema of
the snapshot declares are rewritten.
"""

from collections.abc import Iterator

import orjson

from omnigraph.catalog.model import Catalog
from omnigraph.exec.changes.images import Moments, moments_of, shown_moment
from omnigraph.exec.values.json_text import ndjson_line


def iso_lines(chunks: Iterator[bytes], catalog: Catalog) -> Iterator[bytes]:
    """Whole lines of an export, with ISO dates."""
    moments = {(str(owner.kind), owner.name): moments_of(owner) for owner in catalog.types}
    rest = b""
    for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        yield b"".join(_rewritten(line, moments) for line in lines)
    if rest:
        yield _rewritten(rest, moments)


def _rewritten(line: bytes, moments: dict[tuple[str, str], Moments]) -> bytes:
    record = orjson.loads(line)
    kind, name = ("edge", record.get("edge")) if "edge" in record else ("node", record.get("type"))
    data = record.get("data", {})
    for prop, scalar in moments.get((kind, name), {}).items():
        if prop in data:
            data[prop] = shown_moment(data[prop], scalar)
    return ndjson_line(record)
