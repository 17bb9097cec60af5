"""JSON encoders: documents to NDJSON lines, and to text for a terminal.

Invariant: the two spell the same document. They differ where that matters to their readers: lines
are made by the thousand and so by the faster encoder; text keeps Python's spelling of numbers.
Nothing here loads Arrow, so a command that prints a document starts at once.
"""

import json
from typing import Any

import orjson


def ndjson_line(document: Any) -> bytes:
    """One line of NDJSON, with its end."""
    return orjson.dumps(document, option=orjson.OPT_APPEND_NEWLINE)


def compact_text(document: Any) -> str:
    """A document on one line, without spaces."""
    return json.dumps(document, ensure_ascii=False, separators=(",", ":"))


def indented_text(document: Any) -> str:
    """A document for a person, indented by two."""
    return json.dumps(document, ensure_ascii=False, indent=2)
