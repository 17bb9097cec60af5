"""CSV lines (RFC 4180) that `load` reads back: of exports, query rows on the command line and HTTP.

Invariant: a null is an empty field and an empty text is `""`, so each comes back as what it was.
Texts are as they are; everything else is compact JSON.
"""

from collections.abc import Iterable
from typing import Any

from omnigraph.exec.values.json_text import compact_text

_QUOTED = frozenset(',"\r\n')


def csv_line(values: Iterable[Any]) -> str:
    """Return one line without its end."""
    return ",".join(map(_field, values))


def _field(value: Any) -> str:
    if value is None:
        return ""
    text = value if isinstance(value, str) else compact_text(value)
    if not text or _QUOTED.intersection(text):
        return '"' + text.replace('"', '""') + '"'
    return text
