"""Renaming of columns: which property a column, or a member of a flat record, fills.

Invariant: a column that is not named fills the property of its own name; one that is named with
None is left out.
"""

from collections.abc import Mapping
from typing import Any

ColumnNames = Mapping[str, str | None]
"""The property that each column fills, by the column; None leaves the column out."""


def renamed(record: Mapping[str, Any], names: ColumnNames) -> dict[str, Any]:
    """The values of a flat record by the property that they fill."""
    kept: dict[str, Any] = {}
    for name, value in record.items():
        # A key that is no text, None among them, stays for the reader of records to refuse.
        target = names.get(name, name)
        if target is not None or name not in names:
            kept[name if target is None else target] = value
    return kept
