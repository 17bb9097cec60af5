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
    targets = ((names.get(name, name), value) for name, value in record.items())
    return {target: value for target, value in targets if target is not None}
